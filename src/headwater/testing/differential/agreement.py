"""Agreement between the engine and the naive model, verdict by verdict.

The engine accepts nothing that the model refuses; each rejection beyond the model belongs to a listed
over-approximation; a conflict names every stale read, and no read without an explanation. `SessionMemory` says which
sessions the engine has in memory and which verdicts a restart would find; only that excuses an engine that has
forgotten a verdict. It is written from the rules and not from the engine's code, and never asks the engine.

A session in memory knows its accepted commits since it was loaded; the least recently used one is evicted at the end
of a group when there are too many. A rejection is stored with the next accepted frame of its session, when the session
is evicted, or when the client acknowledges; a restart forgets a rejection that was not stored, and nothing else does.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import assert_never

from headwater.data.address import Depth, DocKey
from headwater.data.path import Path
from headwater.engine import Limits
from headwater.engine.verify import AlreadyAccepted, NaiveRefusal, NaiveSpace
from headwater.protocol.commit import (
    Commit,
    Frame,
    OriginCommitted,
    Read,
    lost_results,
    part_that_wrote,
    parts_of,
    without_results,
)
from headwater.protocol.verdict import (
    Accepted,
    Collision,
    Conflict,
    PreconditionFailed,
    Rejected,
    Rejection,
    RuleRefused,
    Verdict,
)
from headwater.testing.differential.approximations import TRUE, Circumstances, expired, explain


class SessionMemory:
    """The sessions of one engine, next to the naive model, whose turns a restart takes back."""

    __slots__ = ("_limits", "_loaded", "_naive", "_stored")

    def __init__(self, naive: NaiveSpace, limits: Limits) -> None:
        self._naive = naive
        self._limits = limits
        self._loaded: OrderedDict[str, int] = OrderedDict()  # to the end of the log when it was taken up
        self._stored: dict[str, int] = {}  # the highest local_seq whose verdict a restart would find

    def since(self, session: str) -> int:
        """The engine knows the session's commits after this seq from memory, the others from its log."""
        return self._loaded.get(session, self._naive.last_seq)

    def used(self, session: str) -> None:
        """A frame, an acknowledgement: the session is taken up unless it is there, and is now the latest used."""
        self._loaded.setdefault(session, self._naive.last_seq)
        self._loaded.move_to_end(session)

    def opened(self, session: str) -> None:
        """Opening one that is there does not count as using it."""
        self._loaded.setdefault(session, self._naive.last_seq)

    def stored(self, session: str) -> None:
        """All verdicts of the session so far are on the disk, or will be before they leave."""
        self._stored[session] = self._naive.judged.get(session, 0)

    def group_ended(self) -> None:
        """Let go of the least recently used, past the limit. Nothing that was answered is lost with them."""
        while len(self._loaded) > self._limits.cached_sessions:
            session, _ = self._loaded.popitem(last=False)
            self.stored(session)

    def restarted(self) -> None:
        """Memory is gone: a turn is over only as far as the disk knows."""
        self._loaded.clear()
        self._naive.restart(self._stored)


class Disagreement(Exception):
    """The engine and the naive model say different things."""


class Agreement:
    """Compares the engine's answers with the naive model, which then follows the engine."""

    __slots__ = ("_counts", "_limits", "_naive", "kept_from", "memory")

    def __init__(self, naive: NaiveSpace, limits: Limits, counts: Counter[str]) -> None:
        self._naive = naive
        self._limits = limits
        self._counts = counts
        self.memory = SessionMemory(naive, limits)
        self.kept_from = 1  # history before this seq was compacted away

    def on_frame(self, session: str, frame: Frame, outcome: tuple[Verdict, ...] | Exception) -> None:
        """Compare the answer to one frame."""
        naive = self._naive
        self._counts["frames"] += 1
        self.memory.used(session)
        objection = naive.objection(session, frame)
        if isinstance(outcome, Exception):
            self._counts["refused frames"] += 1
            if objection is None and not self._is_compacted_replay(session, frame):
                raise Disagreement(f"the engine refused a frame of {session} without need: {outcome}")
            return
        if objection is not None:
            raise Disagreement(f"the engine took a frame of {session} that is none: {objection}")
        for commit, verdict in zip(frame, outcome, strict=True):
            self._on_verdict(session, commit, verdict)
        if any(isinstance(verdict, Accepted) and not verdict.replayed for verdict in outcome):
            self.memory.stored(session)

    def _is_compacted_replay(self, session: str, frame: Frame) -> bool:
        for commit in frame:
            seq = self._naive.seq_of(session, commit.local_seq)
            if seq is not None and self._is_forgotten(session, commit.local_seq, seq):
                self._counts["acknowledged"] += 1
                return True
        return False

    def _is_forgotten(self, session: str, local_seq: int, seq: int) -> bool:
        return seq < self.kept_from and local_seq <= self._naive.acked.get(session, 0)

    def _on_verdict(self, session: str, commit: Commit, verdict: Verdict) -> None:
        self._counts["commits"] += 1
        judgement = self._naive.judge(session, commit)
        if verdict.local_seq != commit.local_seq:
            raise Disagreement(f"the verdict on {commit.local_seq} names {verdict.local_seq}")
        if isinstance(judgement, AlreadyAccepted):
            self._counts["replayed"] += 1
            lost = lost_results(self._naive.history[judgement.seq - 1].commit)
            if verdict != Accepted(commit.local_seq, judgement.seq, replayed=True, superseded=lost):
                raise Disagreement(f"C10: {session} {commit} was accepted at {judgement.seq}: {verdict}")
        elif commit.results and not judgement:
            self._on_wave(session, commit, verdict)
        elif isinstance(verdict, Accepted):
            if judgement:
                raise Disagreement(f"the engine accepted {session} {commit}: {judgement[0]}")
            seq = self._naive.accept(session, commit)
            if verdict != Accepted(commit.local_seq, seq):
                raise Disagreement(f"{session} {commit} should have seq {seq}: {verdict}")
            self._counts["accepted"] += 1
        else:
            self._on_rejection(session, commit, verdict.rejection, judgement)
            self._naive.refuse(session, commit)
            self._counts["rejected"] += 1

    # ---- waves -----------------------------------------------------------------------------------

    def _on_wave(self, session: str, commit: Commit, verdict: Verdict) -> None:
        """Compare the fate of each result, after those before it, and let the accepted ones enter."""
        naive = self._naive
        refused = dict(verdict.refused)
        lost: set[int] = {
            *refused,
            *(verdict.superseded if isinstance(verdict, Accepted) else range(len(commit.results))),
        }
        if isinstance(verdict, Rejected) and not isinstance(verdict.rejection, Conflict):
            refused = {place: verdict.rejection for place in lost if isinstance(verdict.rejection, RuleRefused)}
        accepted: list[int] = []
        for place, part in enumerate(parts_of(commit)):
            what = f"result {place} of {session} {commit}"
            reasons = naive.judge_result(session, commit, place, accepted)
            self._counts["results"] += 1
            if place not in lost:
                if reasons:
                    raise Disagreement(f"the engine accepted {what}: {reasons[0]}")
                accepted.append(place)
                continue
            self._counts["results left out"] += 1
            answer = "rule" if place in refused else "conflict"
            if reasons and answer not in {reason.answer for reason in reasons}:
                raise Disagreement(f"{what} was not accepted, as a {answer}; the naive model says {reasons[0]}")
            if not reasons:
                written = {op.doc for at in accepted for op in parts_of(commit)[at].operations}
                if not any(self._may_be_stale(commit.branch, read, written) for read in part.reads):
                    raise Disagreement(f"{what} was not accepted without a reason: {verdict}")
                self._counts["results left out beyond the model"] += 1
        if not accepted:
            if isinstance(verdict, Accepted):
                raise Disagreement(f"{session} {commit} was accepted without a result")
            naive.refuse(session, commit)
            return
        seq = naive.accept(session, without_results(commit, lost))
        if not isinstance(verdict, Accepted) or verdict.seq != seq or verdict.replayed:
            raise Disagreement(f"{session} {commit} should have seq {seq}: {verdict}")
        self._counts["waves accepted"] += 1

    def _may_be_stale(self, branch: str, read: Read, written: Collection[DocKey]) -> bool:
        """Whether a read may count as stale: its document, or one of its layers, is not as it was at its basis."""
        at: str | None = branch
        while at is not None:
            if self._naive.written(read.doc, at) > read.seq:
                return True
            at = self._naive.branches[at].parent
        return read.doc in written or bool(read.layers)

    # ---- rejections ------------------------------------------------------------------------------

    def _on_rejection(
        self, session: str, commit: Commit, rejection: Rejection, judgement: tuple[NaiveRefusal, ...]
    ) -> None:
        what = f"{session} {commit} was rejected with {rejection}"
        if judgement and judgement[0].rule == "C5":
            return
        kinds: list[str] = []
        if isinstance(rejection, PreconditionFailed) and self._has_lost_origin(session, commit):
            kinds = ["acknowledged"]
        elif judgement and _answer(rejection) not in {refusal.answer for refusal in judgement}:
            raise Disagreement(f"{what}, the naive model says {judgement[0]}")
        elif isinstance(rejection, Conflict):
            kinds = self._explained(session, commit, rejection, judgement, what)
        if not judgement:
            if not kinds:
                raise Disagreement(f"{what} without a reason")
            self._extra(kinds)

    def _extra(self, kinds: list[str]) -> None:
        self._counts["extra"] += 1
        self._counts.update(set(kinds))

    def _has_lost_origin(self, session: str, commit: Commit) -> bool:
        """Whether it names as its origin a commit that its client has acknowledged and compaction has dropped."""
        for precondition in commit.preconditions:
            if isinstance(precondition, OriginCommitted):
                seq = self._naive.seq_of(session, precondition.local_seq)
                if seq is not None and self._is_forgotten(session, precondition.local_seq, seq):
                    return True
        return False

    def _explained(
        self, session: str, commit: Commit, conflict: Conflict, judgement: tuple[NaiveRefusal, ...], what: str
    ) -> list[str]:
        """The kinds of everything the conflict names beyond the naive model. All of it must be explained."""
        around = self.around(session)
        kinds: list[str] = []
        dead = {refusal.layer for refusal in judgement if refusal.rule == "C4"}
        for layer in dead ^ set(conflict.dead_layers):
            seq = self._naive.seq_of(session, layer)
            if seq is None or not self._is_forgotten(session, layer, seq):
                raise Disagreement(f"C4: {what}; the dead layers are {sorted(dead)}")
            kinds.append("acknowledged")
        if conflict.basis_expired:
            if not any(expired(self._naive, commit.branch, read, around) for read in commit.reads):
                raise Disagreement(f"{what}, but its basis has not expired")
            kinds.append("basis_expired")
        for collision in conflict.collisions:
            kinds += self._explained_collision(session, commit, collision, judgement, around, what)
        named = {(each.doc, each.path, each.depth, each.basis) for each in conflict.collisions if not each.reason}
        for refusal in judgement:
            read = refusal.read
            # All stale reads are named, not the first (a retry would meet the next one otherwise).
            if read is not None and refusal.seq and _address(read) not in named and not conflict.basis_expired:
                raise Disagreement(f"{what}: it does not name {refusal}")
        return kinds

    def _explained_collision(
        self,
        session: str,
        commit: Commit,
        collision: Collision,
        judgement: tuple[NaiveRefusal, ...],
        around: Circumstances,
        what: str,
    ) -> list[str]:
        if collision.reason:
            if not any(refusal.rule == "C7" for refusal in judgement):
                raise Disagreement(f"{what}, but its operations apply")
            return []
        place = (collision.doc, collision.path, collision.depth, collision.basis)
        # Several reads may have one address and basis, but other layers: one that explains it is enough.
        found = {
            explain(self._naive, session, commit.branch, read, collision.seq, around)
            for read in commit.reads
            if _address(read) == place
        } - {None}
        if not found:
            raise Disagreement(f"{what}: nothing explains {collision}")
        if collision.seq >= self.kept_from:
            past = self._naive.history[collision.seq - 1]
            node = part_that_wrote(past.commit, collision.doc).provenance.node
            if (past.session, node) != (collision.session, collision.node):
                raise Disagreement(f"{what}: {collision} was written by {past.session}")
        return [] if TRUE in found else [kind for kind in found if kind is not None][:1]

    def around(self, session: str) -> Circumstances:
        """Return the history that the engine may have dropped by now."""
        own = [past.seq for past in self._naive.history if past.session == session]
        kept = self._limits.session_commits
        forgotten = max(self.memory.since(session), own[-kept - 1] if len(own) > kept else 0)
        return Circumstances(limits=self._limits, forgotten_seq=forgotten, kept_from=self.kept_from)


def _address(read: Read) -> tuple[DocKey, Path, Depth, int]:
    return read.doc, read.path, read.depth, read.seq


def _answer(rejection: Rejection) -> str:
    match rejection:
        case Conflict():
            return "conflict"
        case PreconditionFailed():
            return "precondition"
        case RuleRefused():
            return "rule"
        case _:
            assert_never(rejection)
