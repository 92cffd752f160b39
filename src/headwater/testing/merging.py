"""Merges, compared: a merge brings the parent what changed on the branch, and overwrites nothing it never saw.

The naive definition: a document changed if it differs from what the parent already knows; each change is a deep
read of its path as it was at the fork, over the branch's earlier merges, whose content came from the branch. A
merge is refused if and only if such a read would be, or an over-approximation says so. Never merges by itself.
"""

from __future__ import annotations

from headwater.data.address import Depth
from headwater.data.path import lookup
from headwater.data.value import equal
from headwater.engine import BranchDiff, Engine
from headwater.engine.verify import NaiveSpace
from headwater.protocol.commit import MAIN, Commit, Read
from headwater.protocol.verdict import Rejected
from headwater.testing.agreement import Disagreement
from headwater.testing.approximations import Circumstances, explain
from headwater.testing.draws import DOCS
from headwater.testing.sim_oracle import merge_session


def compare_merge(engine: Engine, naive: NaiveSpace, name: str, around: Circumstances) -> None:
    """Merge a branch on both sides."""
    parent = naive.branches[name].parent or MAIN
    session = merge_session(name)
    reads = _Reads(naive, name, session)
    found, verdict = engine.merge(name)
    changed = {doc for doc in DOCS if not equal(naive.value(doc, name, found.since), naive.value(doc, name))}
    if {change.doc for change in found.changes} != changed or found.parent != parent:
        raise Disagreement(f"merging {name} would change {changed}, the engine says {found}")
    _compare_collisions(naive, reads, parent, found, around)
    if verdict is None:
        if found.changes and not found.collisions:
            raise Disagreement(f"merging {name} did nothing, although nothing stands in the way: {found}")
        return
    if found.collisions or isinstance(verdict, Rejected):
        raise Disagreement(f"merging {name} answered {verdict} to {found}")
    logged = engine.changes(since=verdict.seq - 1).items[0]
    naive.begin_frame()
    judgement = naive.judge(session, logged.commit)
    if judgement or logged.session != session or logged.commit.branch != parent:
        raise Disagreement(f"merging {name} wrote {logged}: {judgement}")
    if naive.accept(session, logged.commit) != verdict.seq:
        raise Disagreement(f"merging {name} got seq {verdict.seq}, the log ends at {naive.last_seq}")
    _compare_outcome(naive, logged.commit, name, parent)


class _Reads:
    """What a change of the branch looked at, as reads that the naive model can judge."""

    __slots__ = ("_fork_seq", "_layers", "session")

    def __init__(self, naive: NaiveSpace, name: str, session: str) -> None:
        self.session = session
        self._fork_seq = naive.branches[name].fork_seq
        own = [past.commit.local_seq for past in naive.history if past.session == session]
        self._layers = tuple((number, number) for number in own)

    def of(self, found: BranchDiff) -> list[Read]:
        return [
            Read(change.doc, patch.path, Depth.DEEP, self._fork_seq, self._layers)
            for change in found.changes
            for patch in change.patches
        ]


def _compare_collisions(
    naive: NaiveSpace, reads: _Reads, parent: str, found: BranchDiff, around: Circumstances
) -> None:
    reported = {(each.doc, each.path) for each in found.collisions}
    for read in reads.of(found):
        missed = naive.missed(reads.session, parent, read)
        if missed and (read.doc, read.path) not in reported:
            raise Disagreement(f"merging {found.branch} overwrites {missed[-1]}, which it never saw: {found}")
        for collision in found.collisions:
            if (collision.doc, collision.path) == (read.doc, read.path):
                kind = explain(naive, reads.session, parent, read, collision.seq, around)
                if kind is None:
                    raise Disagreement(f"merging {found.branch}: nothing explains {collision}")


def _compare_outcome(naive: NaiveSpace, commit: Commit, name: str, parent: str) -> None:
    """Where it changed something, the parent now shows what the branch shows."""
    for operation in commit.operations:
        ours, theirs = naive.value(operation.doc, parent), naive.value(operation.doc, name)
        for patch in operation.patches:
            if not equal(lookup(ours, patch.path), lookup(theirs, patch.path)):
                raise Disagreement(f"merging {name} with {patch} made {ours!r} of {theirs!r}")
