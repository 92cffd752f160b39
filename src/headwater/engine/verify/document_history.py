"""Documents of the replay: for each branch, the present value and every write with its changes.

Owns the history of one document on one branch (`DocumentHistory`) and the value of a document on a branch, through its
ancestors up to each fork. This is the plain definition again, kept so that no past has to be folded twice: a write has
the paths that it truly changed, and a value is kept where a branch begins. Never judges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from headwater.data.address import Depth, DocKey
from headwater.data.patch_kinds import Touch
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.engine.store.port import BranchRow

_END: Final = 2**62


class DocumentWrite(NamedTuple):
    """One commit's effect on one document: the paths that differ after it, compared by value."""

    seq: int
    session: int
    local_seq: int
    size: int  # of its patches to this document, encoded
    commit_size: int  # of the whole commit, encoded
    changed: tuple[Touch, ...]


class DocumentHistory:
    """One document on one branch."""

    __slots__ = ("_at", "_below", "_keys", "base", "base_seq", "doc", "kept", "seqs", "snapshots", "value", "writes")

    def __init__(self, doc: int, value: MaybeValue, base_seq: int) -> None:
        self.doc = doc
        self.base = value  # the value at the beginning of the kept history, or of the branch
        self.base_seq = base_seq  # the write on this branch that the kept history begins with; 0: none
        self.value = value
        self.writes: list[DocumentWrite] = []
        self.seqs: list[int] = []
        self.kept: dict[int, MaybeValue] = {}  # by the seq that wrote it, where a branch began on it
        self.snapshots: dict[int, int] = {}  # stored snapshots: seq to ordinal
        self._at: dict[Path, int] = {}  # the last seq that changed this very path
        self._below: dict[Path, int] = {}  # ... this path or something below it
        self._keys: dict[Path, int] = {}  # ... the keys or the length of the container here

    @property
    def last_seq(self) -> int:
        return self.seqs[-1] if self.seqs else self.base_seq

    def add(self, write: DocumentWrite, value: MaybeValue) -> None:
        self.value = value
        self.writes.append(write)
        self.seqs.append(write.seq)
        for path, keyset in write.changed:
            self._at[path] = write.seq
            for end in range(len(path) + 1):
                self._below[path[:end]] = write.seq
            if keyset and path:
                self._keys[path[:-1]] = write.seq

    def changed_at(self, path: Path, depth: Depth) -> int:
        """The last seq that changed something a read of this path could see; 0 if none did."""
        above = max([self._at.get(path[:end], 0) for end in range(len(path) + 1)])
        return max(above, (self._below if depth == Depth.DEEP else self._keys).get(path, 0))

    def written_at(self, seq: int) -> int:
        """The last write up to `seq`, 0 if there was none."""
        place = bisect_right(self.seqs, seq)
        if place:
            return self.seqs[place - 1]
        return self.base_seq if self.base_seq <= seq else 0

    def between(self, after: int, until: int) -> Iterator[DocumentWrite]:
        """Writes with after < seq <= until, latest first."""
        start, end = bisect_right(self.seqs, after), bisect_right(self.seqs, until)
        for place in range(end - 1, start - 1, -1):
            yield self.writes[place]


class DocumentHistories:
    """Every document of a space, on every branch."""

    __slots__ = ("_by_branch", "_forks", "branches", "unknown")

    def __init__(self, branches: dict[int, BranchRow]) -> None:
        self.branches = branches
        self.unknown: set[int] = set()  # branches whose beginning was compacted away
        self._by_branch: dict[tuple[int, DocKey], DocumentHistory] = {}
        self._forks: dict[int, list[int]] = {}
        for row in branches.values():
            self._forks.setdefault(row.parent, []).append(row.fork_seq)
        for forks in self._forks.values():
            forks.sort()

    def items(self) -> Iterator[tuple[int, DocKey, DocumentHistory]]:
        for (branch, key), line in self._by_branch.items():
            yield branch, key, line

    def find(self, branch: int, key: DocKey) -> DocumentHistory | None:
        return self._by_branch.get((branch, key))

    def begin(self, branch: int, key: DocKey, line: DocumentHistory) -> None:
        self._by_branch[branch, key] = line

    def record(self, branch: int, line: DocumentHistory, write: DocumentWrite, value: MaybeValue) -> None:
        """Record an accepted commit: `value` is the branch's present value."""
        last = line.last_seq
        if last:
            forks = self._forks.get(branch, ())
            place = bisect_left(forks, last)
            if place < len(forks) and forks[place] < write.seq:
                line.kept[last] = line.value  # A branch began on this value.
        line.add(write, value)

    def value(self, branch: int, key: DocKey, at: int = _END) -> tuple[MaybeValue, int]:
        """C11: the value of a document on a branch, and the seq that wrote it. `at`: now, or where a branch began."""
        line = self._by_branch.get((branch, key))
        if line is not None:
            written = line.written_at(at)
            if written:
                if written == line.last_seq:
                    return line.value, written
                return (line.base if written == line.base_seq else line.kept[written]), written
        row = self.branches[branch]
        if not row.parent:
            return ABSENT, 0
        return self.value(row.parent, key, min(at, row.fork_seq))

    def shows(self, branch: int, home: int, seq: int) -> bool:
        """True if `branch` shows a commit made on `home`."""
        while branch != home:
            row = self.branches[branch]
            if not row.parent or seq > row.fork_seq:
                return False
            branch = row.parent
        return True

    def after(self, branch: int, key: DocKey, basis: int, path: Path, depth: Depth) -> Iterator[DocumentWrite]:
        """The writes to a document after a basis that the branch shows, latest first.

        Those of a branch on which nothing that a read of the path could see changed since are left out.
        """
        until = _END
        while branch:
            line = self._by_branch.get((branch, key))
            if line is not None and line.changed_at(path, depth) > basis:
                yield from line.between(basis, until)
            row = self.branches[branch]
            if basis >= row.fork_seq:
                return
            until = min(until, row.fork_seq)
            branch = row.parent


def differences(before: MaybeValue, after: MaybeValue) -> tuple[Touch, ...]:
    """Return the same as `data.change.changed_touches`, without comparing the shared parts of two values."""
    if before is after:
        return ()
    if (before is ABSENT) != (after is ABSENT):
        return (Touch((), True),)
    found: list[Touch] = []
    _compare(before, after, (), found)
    return tuple(found)


def _compare(before: MaybeValue, after: MaybeValue, path: Path, found: list[Touch]) -> None:
    if type(before) is dict and type(after) is dict:
        for key, item in before.items():
            other = after.get(key, ABSENT)
            if other is ABSENT:
                found.append(Touch((*path, key), True))
            elif other is not item:
                _compare(item, other, (*path, key), found)
        if len(after) > len(before) or any(key not in before for key in after):
            found.extend(Touch((*path, key), True) for key in after if key not in before)
    elif type(before) is tuple and type(after) is tuple:
        shared = min(len(before), len(after))
        for index in range(shared):
            if before[index] is not after[index]:
                _compare(before[index], after[index], (*path, index), found)
        for index in range(shared, max(len(before), len(after))):
            found.append(Touch((*path, index), True))
    elif not equal(before, after):
        found.append(Touch(path, False))
