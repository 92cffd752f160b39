"""The log of a simulated space, as it was seen to become durable, and every document at every seq, on every branch.

Replicas are compared with it: folding the log, nothing else (C11). It follows the engine after each of its steps and
never forgets, so that compaction, restarts and crashes of the engine change nothing here. It reports a log that
shrinks, changes, or takes a commit twice (C5, C7, C10), loses a branch, or merges something else than the changes of a
branch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from headwater.data.address import DocKey, Link
from headwater.data.patch import PatchError, apply
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from headwater.engine import Engine, Logged, every
from headwater.engine.verify import stepped
from headwater.protocol.commit import MAIN, Commit, encode_commit
from headwater.testing.simulation.access import Register
from headwater.testing.simulation.trace import Trace

MERGES: Final = "merge of "


def merge_session(branch: str) -> str:
    """The session that the log names for the merges of a branch."""
    return MERGES + branch


def links_in(value: MaybeValue) -> Iterator[Link]:
    """Every link inside a value."""
    if isinstance(value, Link):
        yield value
    elif isinstance(value, dict | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from links_in(item)


class BranchFork(NamedTuple):
    """A branch: its parent, and the seq up to which it shows the parent."""

    parent: str
    fork_seq: int


def folded(value: MaybeValue, commit: Commit, doc: DocKey, *, lenient: bool = False) -> MaybeValue:
    """A document after a commit. Lenient: a commit that does not fit shows nothing there, as a layer does."""
    after = value
    for operation in commit.operations:
        if operation.doc == doc:
            for patch in operation.patches:
                try:
                    after = apply(after, patch)[0]
                except PatchError:
                    if not lenient:
                        raise
                    return value
    return after


def fits(value: MaybeValue, commit: Commit, doc: DocKey) -> bool:
    """Whether a commit applies to a document."""
    try:
        folded(value, commit, doc)
    except PatchError:
        return False
    return True


class Oracle:
    """Everything that was ever durable in the space."""

    __slots__ = (
        "_last_of",
        "_merged",
        "_trace",
        "_versions",
        "access",
        "are_branches_moving",
        "doomed",
        "gone",
        "is_behind",
        "lines",
        "log",
        "seq_of",
        "tags",
    )

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.access = Register(self.value, trace)
        self.log: list[Logged] = []
        self.is_behind = False  # the server died in a step: its messages are known here when it is up again
        self.are_branches_moving = False  # a fork or a deletion is under way in this step
        self.lines: dict[str, BranchFork] = {}  # every branch that there was, but main
        self.doomed: set[str] = set()  # a deletion was tried
        self.gone: set[str] = set()  # and these are deleted
        self.seq_of: dict[tuple[str, int], int] = {}
        self.tags: dict[str, list[int]] = {}  # the node of a commit -> the seqs of such commits
        self._merged: dict[str, int] = {}
        self._last_of: dict[str, int] = {}
        self._versions: dict[tuple[str, DocKey], tuple[list[int], list[MaybeValue]]] = {}

    def follow(self, engine: Engine) -> None:
        """Take in the new end of the log."""
        if self.are_branches_moving:
            self.are_branches_moving = False
            self._follow_branches(engine)
        while engine.last_seq > len(self.log):
            gained = engine.changes(since=len(self.log)).items
            if not gained:
                last = engine.last_seq
                self._trace.broken("C7", "log", f"the engine is at seq {last}, its log ends at {len(self.log)}")
                return
            for logged in gained:
                self.add(logged)

    def _follow_branches(self, engine: Engine) -> None:
        live = {branch.name: branch for branch in every(lambda after: engine.branches(after=after))}
        for name, branch in live.items():
            line = BranchFork(branch.parent.name, branch.fork_seq) if branch.parent is not None else None
            if line is not None and self.lines.setdefault(name, line) != line:
                self._trace.broken("C11", "log", f"branch {name} was {self.lines[name]} and is {line}")
        for name in [name for name in self.lines if name not in live]:
            if name not in self.doomed:
                self._trace.broken("C6", "log", f"branch {name} is gone, and nobody deleted it")
            self.gone.add(name)

    def add(self, logged: Logged) -> None:
        """One more commit is durable."""
        seq, session, commit = logged.seq, logged.session, logged.commit
        broken = self._trace.broken
        if seq != len(self.log) + 1:
            broken("C7", "log", f"seq {seq} follows {len(self.log)}")
        key = (session, commit.local_seq)
        if key in self.seq_of:
            broken("C10", "log", f"commit {key} is at seq {self.seq_of[key]} and again at {seq}")
        if commit.local_seq <= self._last_of.get(session, 0):
            broken("C5", "log", f"commit {key} comes after {self._last_of[session]}")
        if commit.branch != MAIN and (commit.branch not in self.lines or commit.branch in self.gone):
            broken("C7", "log", f"commit {key} at seq {seq} is on branch {commit.branch!r}, which there is not")
        self.access.check_landed(seq, session, commit)
        if session.startswith(MERGES) and session.removeprefix(MERGES) in self.lines:
            self._check_merge(session.removeprefix(MERGES), commit, seq)
        self.log.append(logged)
        self.seq_of[key] = seq
        self._last_of[session] = commit.local_seq
        if commit.provenance.node:
            self.tags.setdefault(commit.provenance.node, []).append(seq)
        for operation in commit.operations:
            before = self.value(operation.doc, seq - 1, commit.branch)
            try:
                value, is_written = stepped(before, commit, operation.doc)
            except PatchError as error:
                broken("C7", "log", f"commit {key} at seq {seq} does not apply: {error}")
                continue
            if is_written == (operation.doc in logged.dropped):
                broken("C7", "log", f"commit {key} at seq {seq} writes {operation.doc}: {is_written}, the log differs")
            if not is_written:
                continue
            seqs, values = self._versions.setdefault((commit.branch, operation.doc), ([], []))
            seqs.append(seq)
            values.append(value)

    def _check_merge(self, name: str, commit: Commit, seq: int) -> None:
        """Check that a merge brings the changes of the branch since its fork or its last merge: all of them and nothing
        else. A document that only derived commits changed may be left out: its parent derives it again.
        """
        first = name not in self._merged
        since = self._merged.get(name, self.lines[name].fork_seq)
        self._merged[name] = seq - 1
        if commit.branch != self.lines[name].parent:
            self._trace.broken("merge", "log", f"branch {name} was merged into {commit.branch!r} at {seq}")
        brought = {operation.doc for operation in commit.operations}
        for branch, doc in self._versions:
            if branch != name:
                continue
            if doc not in brought and self._is_derived(name, doc, since):
                continue
            before, after = self.value(doc, since, name), self.value(doc, seq - 1, name)
            if not equal(folded(before, commit, doc, lenient=True), after):
                self._trace.broken("merge", "log", f"the merge of {name} at {seq} does not bring {doc} as {after!r}")

        if first:
            self._check_overwritten(name, commit, seq)

    def _is_derived(self, name: str, doc: DocKey, since: int) -> bool:
        """Whether derived commits made every write of a branch to a document after a seq."""
        seqs, _ = self._versions[name, doc]
        return all(self.log[seq - 1].commit.provenance.derived for seq in seqs if seq > since)

    def _check_overwritten(self, name: str, commit: Commit, seq: int) -> None:
        """Check that no place written by a merge was written on the parent since the fork, except by earlier merges.

        What the parent only derived since then may be replaced as a whole.
        """
        fork_seq = self.lines[name].fork_seq
        for operation in commit.operations:
            is_whole = all(not patch.path for patch in operation.patches)
            is_known = (commit.branch, operation.doc) in self._versions
            if is_whole and is_known and self._is_derived(commit.branch, operation.doc, fork_seq):
                continue
            then = self.value(operation.doc, fork_seq, commit.branch)
            now = self.value(operation.doc, seq - 1, commit.branch)
            for patch in operation.patches:
                if not equal(lookup(then, patch.path), lookup(now, patch.path)):
                    said = f"the merge of {name} at {seq} overwrites {operation.doc} at {patch.path}"
                    self._trace.broken("merge", "log", said)

    def restored(self, end: int, engine: Engine) -> Oracle:
        """The truth from now on, since the server was given an older state of the log: all of it up to there."""
        again = Oracle(self._trace)
        again.access.users.update(self.access.users)
        again.are_branches_moving = True
        kept = {branch.name for branch in every(lambda after: engine.branches(after=after))}
        again.lines = dict(self.lines)
        for logged in self.log[:end]:
            again.add(logged)
        again.gone = {name for name in self.lines if name not in kept}
        again.doomed = set(again.gone)
        return again

    # ---- history -------------------------------------------------------------------------------------

    def _version(self, doc: DocKey, at: int, branch: str) -> tuple[int, MaybeValue]:
        while True:
            found = self._versions.get((branch, doc))
            place = bisect_right(found[0], at) if found is not None else 0
            if found is not None and place:
                return found[0][place - 1], found[1][place - 1]
            line = self.lines.get(branch)
            if line is None:
                return 0, ABSENT
            branch, at = line.parent, min(at, line.fork_seq)

    def value(self, doc: DocKey, at: int, branch: str = MAIN) -> MaybeValue:
        """A document as it was at a seq."""
        return self._version(doc, at, branch)[1]

    def written(self, doc: DocKey, at: int, branch: str = MAIN) -> int:
        """The seq of the last commit up to `at` that wrote the document; 0: none did."""
        return self._version(doc, at, branch)[0]

    def docs(self) -> list[DocKey]:
        return list(dict.fromkeys(doc for _, doc in self._versions))

    def live(self) -> list[str]:
        return [MAIN, *(name for name in self.lines if name not in self.gone)]

    # ---- the engine --------------------------------------------------------------------------------

    def compare(self, engine: Engine) -> None:
        """After a restart: check that nothing durable is gone, and that the end of the log is the same."""
        self.is_behind = False
        last = len(self.log)
        if engine.last_seq < last:
            self._trace.broken("C6", "log", f"it ended at seq {last} and ends at {engine.last_seq} after a restart")
            return
        if last:
            again = engine.changes(since=last - 1, limit=1).items[0]
            if encode_commit(again.commit) != encode_commit(self.log[-1].commit):
                self._trace.broken("C7", "log", f"seq {last} holds another commit after a restart")
        self.are_branches_moving = True
        self.follow(engine)

    def compare_all(self, engine: Engine) -> None:
        """At the end: check that every document of the engine equals the folded log (C11)."""
        for branch in self.live():
            for doc in self.docs():
                shown = engine.read(doc, branch=branch)
                expected = self.value(doc, len(self.log), branch)
                if not equal(shown.value, expected):
                    said = f"it shows {doc} as {shown.value!r} on {branch}, the log says {expected!r}"
                    self._trace.broken("C11", "engine", said)
