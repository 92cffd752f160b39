"""Waves: computations of one pass that travel together, and the reads that need not travel with them.

A read that lies inside an earlier plain write of the same frame saw exactly that write: nothing can come between two
commits of one frame. Such a read is not sent; the commit says instead that it stands on the other (C4), which is
all that is left to check.
"""

from __future__ import annotations

import msgspec

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.value import size_of
from headwater.protocol.commit import Commit, Read
from headwater.replica.spans import ranges
from headwater.replica.transaction import PLAIN


def thinned(frame: list[Commit]) -> tuple[Commit, ...]:
    """The same commits without the reads that the frame itself answers."""
    if len(frame) < 2:
        return tuple(frame)
    sent: list[Commit] = []
    earlier = _Earlier()
    for commit in frame:
        kept: list[Read] = []
        after: set[int] = set()
        for read in commit.reads:
            writer = earlier.answer(read)
            if writer is None:
                kept.append(read)
            else:
                after.add(writer)
        # fault wave.leans_on_nothing: sent.append(msgspec.structs.replace(commit, reads=tuple(kept)))
        sent.append(
            msgspec.structs.replace(commit, reads=tuple(kept), after=ranges(sorted(after))) if after else commit
        )
        earlier.add(commit)
    return tuple(sent)


def size_of_commit(commit: Commit) -> int:
    """About how many bytes a commit is on the wire."""
    size = 64
    for read in commit.reads:
        size += 40 + len(read.doc.id) + 12 * len(read.layers)
        if read.path:
            size += _size_of_path(read.path)
    for doc, path in commit.provenance.causes:
        size += 16 + len(doc.id) + _size_of_path(path)
    for operation in commit.operations:
        size += 32 + len(operation.doc.id)
        for patch in operation.patches:
            size += 16 + _size_of_path(patch.path) + size_of(patch.arg)
    for event in commit.events:
        size += 64 + size_of(event.payload)
    for handled in commit.handled:
        size += 8 + len(handled)
    for record in commit.records:
        size += 64 + size_of(record.payload)
    for declared in commit.declared:
        size += 32 + len(declared.reaction) + len(declared.topic)
    return size


def _size_of_path(path: Path) -> int:
    return sum(4 + len(step) if isinstance(step, str) else 8 for step in path)


class _Earlier:
    """What the earlier commits of a frame wrote last, by place: a read is answered in the depth of its path."""

    __slots__ = ("_below", "_here", "_order")

    def __init__(self) -> None:
        self._order = 0  # rises with every patch
        self._here: dict[DocKey, dict[Path, tuple[int, int, bool]]] = {}  # order, commit and whether it is plain
        self._below: dict[DocKey, dict[Path, int]] = {}  # the order of the last patch below a place

    def add(self, commit: Commit) -> None:
        for operation in commit.operations:
            here = self._here.setdefault(operation.doc, {})
            below = self._below.setdefault(operation.doc, {})
            for patch in operation.patches:
                self._order += 1
                path = patch.path
                here[path] = (self._order, commit.local_seq, patch.kind in PLAIN)
                for length in range(len(path)):
                    below[path[:length]] = self._order

    def answer(self, read: Read) -> int | None:
        """The commit whose plain write is all that the read saw, if there is one.

        Over-approximated: an intent on an array reaches everything in it, a write everything below and above.
        """
        here = self._here.get(read.doc)
        if here is None:
            return None
        # fault+ wave.thins_too_much: return next(iter(here.values()))[1]
        path = read.path
        last = here.get(())
        for length in range(1, len(path) + 1):
            found = here.get(path[:length])
            if found is not None and (last is None or found > last):
                last = found
        if last is None:
            return None
        order, local_seq, is_plain = last
        if not is_plain or self._below[read.doc].get(path, 0) > order:
            return None
        for first, end in read.layers:
            if first <= local_seq <= end:
                return local_seq  # its view stood on it
        return None
