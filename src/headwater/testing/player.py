"""Plays the steps of a schedule on an engine and on the naive model, and compares what they say.

Owns what a step does on both sides. Never draws anything: the same steps give the same result. A step that
makes no sense at its place (because a schedule was shortened) is left out on both sides. A difference is a
`Disagreement`, raised at once, so that nothing is compared after the two have parted.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from headwater.clock import VirtualClock
from headwater.engine import Engine
from headwater.engine.store.port import Store
from headwater.engine.verify import NaiveSpace, verify_store
from headwater.errors import HeadwaterError
from headwater.protocol.commit import Frame
from headwater.protocol.verdict import Verdict
from headwater.testing.agreement import Agreement, Disagreement
from headwater.testing.looking import Looking
from headwater.testing.merging import compare_merge
from headwater.testing.observing import ObservedModel
from headwater.testing.schedules import (
    Acknowledge,
    Compact,
    DeleteBranch,
    Fork,
    Look,
    MergeBranch,
    Profile,
    Restart,
    Step,
    Submit,
    TakeLease,
)
from headwater.testing.sim_oracle import merge_session


class Player:
    """One engine and one naive model, fed with the same steps."""

    __slots__ = ("_agreement", "_clock", "_counts", "_observed", "_profile", "_store", "engine", "naive")

    def __init__(self, store: Store, profile: Profile, clock: VirtualClock, counts: Counter[str]) -> None:
        self._store = store
        self._profile = profile
        self._clock = clock
        self._counts = counts
        self.naive = NaiveSpace()
        self._agreement = Agreement(self.naive, profile.limits, counts)
        self._observed = ObservedModel(self.naive, counts)
        self.engine = Engine(store, clock=clock, limits=profile.limits)
        for key in "pqrs"[: profile.sessions]:
            self.engine.open_session(key)
            self._agreement.remembering.opened(key)
            self._agreement.remembering.group_ended()

    def do(self, step: Step) -> list[tuple[Verdict, ...] | None]:
        """Play one step. For a Submit: the verdicts of each frame, None where it was no frame."""
        self._clock.advance(1_000)
        try:
            return self._do(step)
        except HeadwaterError as error:
            raise Disagreement(f"{step} made the engine raise {_told(error)}") from error

    def _do(self, step: Step) -> list[tuple[Verdict, ...] | None]:
        naive = self.naive
        match step:
            case Submit(batch):
                return self._submit(batch)
            case Restart(clean):
                if clean:
                    self.engine.drop_caches()
                self.engine = Engine(self._store, clock=self._clock, limits=self._profile.limits)
                self._agreement.remembering.restarted()
            case Fork(name, parent, at):
                self._fork(name, parent, at)
            case DeleteBranch(name):
                if self._is_child(name) and not any(naive.branches[each].parent == name for each in self._live()):
                    self.engine.delete_branch(name)
                    naive.delete_branch(name)
                    self._observed.forget(name)
            case MergeBranch(name):
                if self._is_child(name):
                    self._merge(name)
            case Compact(before):
                self._agreement.kept_from = self.engine.compact(before)
            case Acknowledge(session, local_seq):
                self.engine.acknowledge(session, local_seq)
                self._agreement.remembering.used(session)
                if local_seq > naive.acked.get(session, 0):
                    naive.acknowledge(session, local_seq)
                    self._agreement.remembering.stored(session)
            case TakeLease(name):
                lease = self.engine.acquire_lease(name, "holder", 1)
                if lease is not None:
                    naive.leases[name] = lease.token
            case Look(at):
                Looking(self.engine, naive, self._counts).at(self._kept(at))
                self._observed.compare(self.engine)
            case _:
                assert_never(step)
        return []

    def close(self) -> None:
        self._store.close()

    def _submit(self, batch: tuple[tuple[str, Frame], ...]) -> list[tuple[Verdict, ...] | None]:
        runs = {
            at: (frame[0].branch, self._observed.runs(session, frame))
            for at, (session, frame) in enumerate(batch)
            if frame
        }
        outcomes = self.engine.submit_group(batch, observed=runs)
        for at, ((session, frame), outcome) in enumerate(zip(batch, outcomes, strict=True)):
            quiet = runs[at][1][0] if at in runs else None
            fresh = quiet is not None and self._observed.would_keep(frame[0].branch, quiet)
            self._agreement.on_frame(session, frame, outcome)
            if at in runs and not isinstance(outcome, Exception):
                self._observed.judged(self.engine, frame[0].branch, runs[at][1], outcome, fresh)
        self._agreement.remembering.group_ended()
        if self.engine.last_seq != self.naive.last_seq:
            raise Disagreement(f"the log ends at {self.engine.last_seq}, not at {self.naive.last_seq}")
        return [None if isinstance(outcome, Exception) else outcome for outcome in outcomes]

    # ---- branches --------------------------------------------------------------------------------

    def _merge(self, name: str) -> None:
        """Merges are commits of a session like others, except that nobody sends them."""
        session, before = merge_session(name), self.naive.last_seq
        self._agreement.remembering.opened(session)
        compare_merge(self.engine, self.naive, name, self._agreement.around(session))
        if self.naive.last_seq > before:
            self._observed.forget(name)
            self._agreement.remembering.stored(session)
            self._agreement.remembering.group_ended()

    def _live(self) -> list[str]:
        return [name for name in self.naive.branches if name not in self.naive.deleted]

    def _is_child(self, name: str) -> bool:
        return name in self._live() and self.naive.branches[name].parent is not None

    def _kept(self, at: int) -> int:
        """A moment that can still be read."""
        return min(max(at, self._agreement.kept_from - 1), self.naive.last_seq)

    def _fork(self, name: str, parent: str, at: int) -> None:
        naive = self.naive
        if name in naive.branches or parent not in self._live():
            return
        at = self._kept(max(at, naive.branches[parent].fork_seq))
        self.engine.fork(name, parent=parent, at=at)
        naive.fork(name, parent, at)

    def verify_history(self) -> None:
        """The history oracle reads what was stored, and finds nothing."""
        report = verify_store(self._store)
        if report.violation is not None:
            raise Disagreement(f"the history oracle says {report.violation}")
        kept = self.naive.last_seq - self._agreement.kept_from + 1
        if report.commits != kept:
            raise Disagreement(f"the history oracle saw {report.commits} commits of {kept}")
        self._counts["verified"] += report.commits


def _told(error: BaseException) -> str:
    """The error, and what it came from: a failed recovery hides why there was one."""
    told = f"{type(error).__name__}: {error}"
    return f"{told} (after {_told(error.__context__)})" if error.__context__ is not None else told
