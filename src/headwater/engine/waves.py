"""Waves: commits whose results are judged one by one, and land together at one seq.

Each result is judged as a commit with its operations and reads would be, after the results before it in the wave. Those
that are accepted are one commit of the log, without the operations of the others. All checks come before all writes
(C7). Upholds C1, C4 and C10 for results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headwater.data.address import DocKey
from headwater.engine.admission.access import Access
from headwater.engine.admission.admission import Admission, Planned
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Heads
from headwater.engine.log.log import Log
from headwater.engine.log.sessions import AcceptedCommit, Sessions, StoredSession, landed_wave
from headwater.engine.planned_writes import PlannedWrites
from headwater.errors import ProtocolError
from headwater.protocol.commit import Commit, Read, encode_commit, parts_of, without_results
from headwater.protocol.log_record import DROPPED, sizes_charged
from headwater.protocol.verdict import Accepted, Conflict, Rejected, RuleRefused


def check_wave(commit: Commit) -> None:
    """ProtocolError: its results are not those of one wave."""
    effects = (commit.preconditions, commit.events, commit.records, commit.handled)
    if any(effects) or commit.delivered or commit.declared or not commit.provenance.derived:
        raise ProtocolError(f"commit {commit.local_seq} is a wave, which has results, their operations and reads only")
    operations, known = 0, len(commit.reads)
    for place, result in enumerate(commit.results):
        operations += result.operations
        if not result.operations:
            raise ProtocolError(f"result {place} of commit {commit.local_seq} writes nothing")
        if result.reads and max(result.reads) >= known:
            raise ProtocolError(f"result {place} of commit {commit.local_seq} names a read that is not in it")
        if result.after and max(result.after) >= place:
            raise ProtocolError(f"result {place} of commit {commit.local_seq} read one that does not come before it")
    if operations != len(commit.operations):
        raise ProtocolError(
            f"commit {commit.local_seq} has {len(commit.operations)} operations, and its results have {operations}"
        )


class _Fates(NamedTuple):
    """The judgement of each result, by place."""

    plans: dict[int, list[Planned]]  # of the accepted ones
    superseded: dict[int, Conflict]
    refused: dict[int, RuleRefused]


class Waves:
    """Judges waves inside the open frame of the log, and writes the accepted results."""

    __slots__ = ("_access", "_admission", "_heads", "_limits", "_log", "_sessions", "_writes")

    def __init__(
        self,
        log: Log,
        heads: Heads,
        sessions: Sessions,
        admission: Admission,
        writes: PlannedWrites,
        access: Access | None,
        limits: Limits,
    ) -> None:
        self._log = log
        self._heads = heads
        self._sessions = sessions
        self._admission = admission
        self._writes = writes
        self._access = access
        self._limits = limits

    def judge(
        self, session: StoredSession, branch: Branch, commit: Commit, encoded: bytes
    ) -> tuple[Accepted | Rejected, frozenset[DocKey]]:
        """Return the verdict, and the documents that it names and did not write."""
        operations = commit.operations
        sizes = sizes_charged(encoded, operations)
        named = [*[each.doc for each in operations], *[each.doc for each in commit.reads]]
        if len(named) > self._limits.prefetch_documents:
            self._heads.prefetch(branch, named)
        fates = self._fates(session, branch, commit, sizes)
        if not fates.plans:
            return _rejected(commit, fates), frozenset()
        landed = commit
        if fates.superseded or fates.refused:
            lost = {*fates.superseded, *fates.refused}
            landed = without_results(commit, lost)
            encoded = encode_commit(landed)
            sizes = sizes_charged(encoded, landed.operations)
        plan = [planned for plan in fates.plans.values() for planned in plan]
        # An operation that changes nothing here is no write: it wakes no reader and conflicts with no commit.
        previous = tuple([head.seq if touched else DROPPED for head, _, touched in plan])
        seq = self._log.admit(commit.local_seq, encoded, previous, results=len(commit.results))
        written = self._writes.write(session, branch, seq, plan, sizes)
        wave = landed_wave(landed)
        self._sessions.accept(session, commit.local_seq, AcceptedCommit(seq, branch.id, written, wave))
        unwritten: frozenset[DocKey] = frozenset()
        # fault waves.lost_results_told: if False:
        if len(written) < len(operations):
            docs = {doc for doc, _ in written}
            unwritten = frozenset([operation.doc for operation in operations if operation.doc not in docs])
        refused = tuple(fates.refused.items())
        return Accepted(commit.local_seq, seq, False, tuple(fates.superseded), refused), unwritten

    def _fates(self, session: StoredSession, branch: Branch, commit: Commit, sizes: Sequence[int]) -> _Fates:
        fates = _Fates({}, {}, self._refused(session, commit))
        plans, superseded, refused = fates
        plan_of = self._admission.plan
        reads, operations = commit.reads, commit.operations
        conflicts = self._conflicts(session, branch, reads)
        written: set[DocKey] = set()  # by results that are accepted
        end = 0
        for place, result in enumerate(commit.results):
            begin, end = end, end + result.operations
            if place in refused:
                continue
            conflict: Conflict | None = None
            # fault waves.reads_not_compared: for at in ():
            for at in result.reads:
                found = conflicts[at]
                if found is not None:
                    conflict = found if conflict is None else _joined(conflict, found)
                elif reads[at].doc in written:
                    # An earlier result wrote it, and this one does not say that it read that result.
                    conflict = conflict or _UNSEEN
            # fault waves.lost_inputs_ignored: for at in ():
            for at in result.after:
                if at not in plans:
                    conflict = conflict or _UNSEEN  # C4: the result that it read is not in the log.
            own = operations[begin:end]
            plan = conflict or plan_of(branch, own, None, sizes[begin:end])
            if isinstance(plan, list):
                plans[place] = plan
                for operation in own:
                    written.add(operation.doc)
            elif isinstance(plan, Conflict):
                superseded[place] = plan
            else:
                refused[place] = plan
        return fates

    def _conflicts(self, session: StoredSession, branch: Branch, reads: tuple[Read, ...]) -> Sequence[Conflict | None]:
        """What each read of a wave missed in the log before it."""
        if not reads or self._admission.conflict(session, branch, reads) is None:
            return [None] * len(reads)
        return [self._admission.conflict(session, branch, (read,)) for read in reads]

    def _refused(self, session: StoredSession, commit: Commit) -> dict[int, RuleRefused]:
        """The results that may not land whatever the space holds: too large ones, and those without the right."""
        refused: dict[int, RuleRefused] = {}
        limits, access = self._limits, self._access
        has_few_patches = sum([len(operation.patches) for operation in commit.operations]) <= limits.commit_patches
        end = 0
        for place, result in enumerate(commit.results):
            begin, end = end, end + result.operations
            reads = len(result.reads) + len(result.provenance.causes)
            if reads > limits.commit_reads or result.operations > limits.commit_operations or not has_few_patches:
                patches = sum([len(operation.patches) for operation in commit.operations[begin:end]])
                found = size_refusal(reads, result.operations, patches, limits)
                if found is not None:
                    refused[place] = found
        if access is not None and access.refusal(session, commit) is not None:
            for place, part in enumerate(parts_of(commit)):
                alone = Commit(commit.local_seq, part.operations, part.reads, branch=commit.branch)
                found = access.refusal(session, alone)
                if found is not None:
                    refused[place] = found
        return refused


_UNSEEN: Final = Conflict()


def _joined(first: Conflict, second: Conflict) -> Conflict:
    dead = tuple(sorted({*first.dead_layers, *second.dead_layers}))
    return Conflict(first.collisions + second.collisions, dead, first.basis_expired or second.basis_expired)


def _rejected(commit: Commit, fates: _Fates) -> Rejected:
    """The verdict on a wave of which nothing is accepted."""
    refused = fates.refused
    reasons = set(refused.values())
    if not fates.superseded and len(reasons) == 1:
        return Rejected(commit.local_seq, reasons.pop())
    joined = _UNSEEN
    for conflict in dict.fromkeys(fates.superseded.values()):
        joined = _joined(joined, conflict)
    joined = Conflict(tuple(dict.fromkeys(joined.collisions)), joined.dead_layers, joined.basis_expired)
    return Rejected(commit.local_seq, joined, tuple(refused.items()))


def size_refusal(reads: int, operations: int, patches: int, limits: Limits) -> RuleRefused | None:
    """Why a commit, or a result, of so many parts is over a limit, or None."""
    if reads <= limits.commit_reads and operations <= limits.commit_operations and patches <= limits.commit_patches:
        return None
    return RuleRefused(
        "commit_size",
        f"it has {reads} reads and causes, {operations} operations and {patches} patches; the limits are "
        f"{limits.commit_reads}, {limits.commit_operations} and {limits.commit_patches}. Split it.",
    )
