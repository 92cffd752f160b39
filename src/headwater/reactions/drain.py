"""A worker that claims targets that are due and has their records delivered.

Reactions of a lane share slots, which are filled again as targets finish; a slow reaction delays only its own lane. The
drain does not poll: the answer to a claim says when there may be more to claim, one timer waits for that time, and
`notify` announces new records. A lost lease cancels the delivery under it. The space decides which targets are due.

`LeaseRenewal` renews all leases in one message, three times in the duration of a lease. A lease that was not renewed
for its whole duration counts as lost, by a timer: another worker may hold it. The duration is counted by this process's
clock from the time of the question, so that a lease expires here before it expires in the space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from msgspec.structs import astuple

from headwater.clock import Clock
from headwater.errors import AuthoringError, HeadwaterError
from headwater.protocol.reactions import (
    Claim,
    Claimed,
    Delivering,
    Delivers,
    Finished,
    Grant,
    Hold,
    LeasesRenewed,
    Outcome,
    RenewLeases,
    Subscribe,
    Subscribed,
)
from headwater.reactions.limits import DEFAULT_DRAIN_LIMITS, DrainLimits
from headwater.reactions.port import (
    DEFAULT_LANE,
    Deliverable,
    TargetSource,
    declaration,
)
from headwater.reactions.target_delivery import OutcomeReporter, TargetDelivery
from headwater.reactions.traces import Late, OnTrace, Unheard


class LeaseRenewal:
    """The leases that the targets of one drain are worked on under."""

    __slots__ = ("_checks", "_ends", "_held", "_lease_us", "_limits", "_source", "_task", "_timer")

    def __init__(self, source: TargetSource, lease_us: int, limits: DrainLimits = DEFAULT_DRAIN_LIMITS) -> None:
        self._source = source
        self._lease_us = lease_us
        self._limits = limits
        self._held: dict[Hold, Callable[[], object]] = {}  # called when the lease is lost
        self._ends: dict[Hold, float] = {}  # when each expires, by the loop's clock
        self._task: asyncio.Task[None] | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None  # for the first expiry, or an earlier one that was renewed since

    def __len__(self) -> int:
        return len(self._held)

    def add(self, hold: Hold, asked_at: float, on_lost: Callable[[], object]) -> None:
        """Keep the lease of a target that was claimed by a question of that time, or was given after it."""
        self._held[hold] = on_lost
        self._ends[hold] = asked_at + self._lease_us / 1e6
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(self._ends[hold], self._expire)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="renewing leases")

    def remove(self, hold: Hold) -> None:
        self._held.pop(hold, None)
        self._ends.pop(hold, None)

    def renew_now(self, hold: Hold) -> None:
        """Ask at once whether a lease is still held."""
        loop = asyncio.get_running_loop()
        if hold in self._held:
            task = loop.create_task(self._renew((hold,), loop.time()), name=f"asking whose {hold.key} is")
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def confirm(self, holds: Sequence[Hold]) -> set[Hold] | None:
        """Renew leases and return those still held, for a whole duration from now. None if no answer came."""
        lost: set[Hold] = set()
        for at in range(0, len(holds), self._limits.leases_at_once):
            answer = await self._ask(tuple(holds[at : at + self._limits.leases_at_once]))
            if answer is None:
                return None
            lost.update(answer.lost)
        return set(holds) - lost

    async def _ask(self, holds: tuple[Hold, ...]) -> LeasesRenewed | None:
        try:
            question = RenewLeases(0, holds, self._lease_us)
            answer = await asyncio.wait_for(self._source.ask(question), self._lease_us / 3e6)
        except (HeadwaterError, TimeoutError):
            return None
        assert isinstance(answer, LeasesRenewed)
        return answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._held:
            await asyncio.sleep(self._lease_us / 3e6)
            asked_at = loop.time()
            holds = tuple(self._held)
            for at in range(0, len(holds), self._limits.leases_at_once):
                await self._renew(holds[at : at + self._limits.leases_at_once], asked_at)

    def _expire(self) -> None:
        """Lose the leases that are over, and set the timer for the next expiry."""
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        for hold in [hold for hold, ends in self._ends.items() if ends <= now]:
            self._lose(hold)
        if self._ends and self._timer is None:
            self._timer = loop.call_at(min(self._ends.values()), self._expire)

    async def _renew(self, holds: tuple[Hold, ...], asked_at: float) -> None:
        answer = await self._ask(holds)
        if answer is None:
            return  # The next round asks again, until the leases expire.
        lost = set(answer.lost)
        for hold in holds:
            if hold in lost:
                self._lose(hold)
            elif hold in self._held:
                self._ends[hold] = asked_at + self._lease_us / 1e6

    def _lose(self, hold: Hold) -> None:
        on_lost = self._held.get(hold)
        self.remove(hold)
        if on_lost is not None:
            on_lost()

    def stop(self) -> None:
        for task in (*self._checks, *((self._task,) if self._task is not None else ())):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()
        self._ends.clear()


class Contact:
    """A source of targets, with the time of the last question that was answered.

    A message that arrives after an answer was sent after the question of that answer. The time of the question is
    therefore the latest time by this process's clock that is certainly before the message.
    """

    __slots__ = ("_source", "heard_at")

    def __init__(self, source: TargetSource) -> None:
        self._source = source
        self.heard_at = -inf  # time of that question by the loop's clock

    async def ask(self, question: Delivers) -> Delivering:
        asked_at = asyncio.get_running_loop().time()
        answer = await self._source.ask(question)
        self.heard_at = max(self.heard_at, asked_at)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much a worker does at once, and the duration of its leases."""

    slots: int = 16  # targets delivered at once in a lane that `lanes` does not name
    lanes: Mapping[str, int] = field(default_factory=dict)
    records: int = 64  # of one target, claimed at once
    lease_ms: int = 30_000
    grace_ms: int = 10_000  # time for running deliveries when the worker stops

    def __post_init__(self) -> None:
        numbers = {"slots": self.slots, "records": self.records, "lease_ms": self.lease_ms, **self.lanes}
        for name, number in numbers.items():
            if type(number) is not int or number < 1:
                raise AuthoringError(f"Pace({name}={number!r}): write how many, 1 or more")


class _Lane:
    """Reactions that share slots."""

    __slots__ = ("busy", "claiming", "failures", "is_open", "name", "next_at", "reactions", "records", "slots")

    def __init__(self, name: str, slots: int) -> None:
        self.name = name
        self.slots = slots
        self.reactions: list[str] = []
        self.records = 1
        self.busy = 0  # slots in use
        self.next_at: float | None = None  # when there may be a target to claim, by the loop's clock
        self.claiming = False
        self.is_open = False  # the space knows of free slots and may give targets without a claim
        self.failures = 0


class Drain:
    """One worker. Any number of workers can share the targets of a space."""

    __slots__ = (
        "_claims",
        "_clock",
        "_lane_of",
        "_lanes",
        "_leases",
        "_leaves_open",
        "_limits",
        "_on_trace",
        "_pace",
        "_random",
        "_reactions",
        "_reporter",
        "_running",
        "_source",
        "_stopping",
        "_tasks",
        "_timer",
        "is_terse",
        "worker",
    )

    def __init__(
        self,
        source: TargetSource,
        reactions: Iterable[Deliverable],
        *,
        clock: Clock,
        worker: str,
        pace: Pace | None = None,
        on_trace: OnTrace | None = None,
        is_terse: bool = False,
        leaves_open: bool = False,
        limits: DrainLimits = DEFAULT_DRAIN_LIMITS,
    ) -> None:
        """Create a worker; `start` begins to claim.

        `is_terse` leaves out traces of deliveries that succeed, which are most of them. `leaves_open` tells the space
        about free slots: a commit can then give a target to this worker, and the owner of the source calls
        `accept_given`.
        """
        self._leaves_open = leaves_open
        self._limits = limits
        self.worker = worker
        self.is_terse = is_terse
        self._source = source = Contact(source)
        self._clock = clock
        self._random = clock.randomness(f"worker {worker}")
        self._pace = pace or Pace()
        self._on_trace = on_trace or _ignore
        self._reactions = {each.name: each for each in reactions}
        self._lanes: dict[str, _Lane] = {}
        self._lane_of: dict[str, _Lane] = {}
        for each in self._reactions.values():
            self._assign_lane(each)
        self._leases = LeaseRenewal(source, self._pace.lease_ms * 1_000, limits)
        self._reporter = OutcomeReporter(source, self._random, self._on_reported, self._on_unreported, limits)
        self._tasks: set[asyncio.Task[None]] = set()  # deliveries
        self._running: dict[tuple[str, str], tuple[TargetDelivery, Hold]] = {}  # the latest delivery of each target
        self._claims: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    def _assign_lane(self, reaction: Deliverable) -> None:
        name = reaction.lane or DEFAULT_LANE
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name, self._pace.lanes.get(name, self._pace.slots))
        lane.reactions.append(reaction.name)
        lane.records = max(lane.records, self._pace.records, reaction.batch)
        self._lane_of[reaction.name] = lane

    # ---- beginning and ending ----------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe to all topics and begin to claim. Raises HeadwaterError if the space does not answer, or
        refuses.
        """
        for each in self._reactions.values():
            await subscribe(self._source, each)
        self.notify()

    def serve(self, reaction: Deliverable) -> None:
        """Claim for one more reaction, whose subscription exists. A reaction of the same name is replaced."""
        is_new = reaction.name not in self._reactions
        self._reactions[reaction.name] = reaction
        if is_new:
            self._assign_lane(reaction)
            self.notify()

    def serves(self, name: str) -> bool:
        return name in self._reactions

    async def stop(self, *, is_heard: bool = True) -> None:
        """Stop claiming, let running deliveries finish for `Pace.grace_ms`, and give the other targets back.

        `is_heard` says that the space still listens and has to be told that no slot is free any more.
        """
        self._stopping = True
        self._set_timer()
        for work, _ in self._running.values():
            work.stop()
        for lane in self._lanes.values():
            if lane.is_open and is_heard:
                task = self._spawn(self._claim(lane), f"closing {lane.name}", self._claims)
                assert not task.done()
        grace_s = self._pace.grace_ms / 1_000
        await self._wait_for(self._claims, min(grace_s, self._limits.answer_s))  # Late grants are given back.
        await self._wait_for(self._tasks, grace_s)
        for task in tuple(self._tasks):
            task.cancel()
        await self._wait_for(self._tasks, min(grace_s, self._limits.answer_s))
        self.kill()

    async def _wait_for(self, tasks: set[asyncio.Task[None]], within_s: float) -> None:
        if tasks:
            await asyncio.wait(tuple(tasks), timeout=within_s)
        for task in tuple(self._claims):
            task.cancel()

    def kill(self) -> None:
        """End at once, as a process that dies: report nothing."""
        self._stopping = True
        self._set_timer()
        self._leases.stop()
        self._reporter.stop()
        for task in (*self._tasks, *self._claims):
            task.cancel()

    @property
    def is_busy(self) -> bool:
        """Return whether a delivery, a claim or a report is under way."""
        return bool(self._tasks or self._claims) or bool(len(self._reporter))

    # ---- claiming ----------------------------------------------------------------------------------

    def notify(self) -> None:
        """Claim in every lane: there may be new targets."""
        now = asyncio.get_running_loop().time()
        for lane in self._lanes.values():
            lane.next_at = now
        self._claim_due_lanes()

    def _claim_due_lanes(self) -> None:
        """Claim for every lane with a free slot and a due time that has come, and set the timer for the others."""
        now = asyncio.get_running_loop().time()
        for lane in self._lanes.values():
            is_due = lane.next_at is not None and lane.next_at <= now
            if is_due and lane.busy < lane.slots and not lane.claiming and not self._stopping:
                lane.claiming = True
                lane.next_at = None
                task = self._spawn(self._claim(lane), f"claiming for {lane.name}", self._claims)
                assert not task.done()
        self._set_timer()

    def _set_timer(self) -> None:
        """Set the one timer to the earliest due time of a lane with a free slot."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moments = [
            lane.next_at
            for lane in self._lanes.values()
            if lane.next_at is not None and lane.busy < lane.slots and not lane.claiming
        ]
        # fault drain.timer_not_armed: if False:
        if moments and not self._stopping:
            self._timer = asyncio.get_running_loop().call_at(min(moments), self._claim_due_lanes)

    async def _claim(self, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        question = Claim(
            0,
            self.worker,
            tuple(lane.reactions),
            0 if self._stopping else max(0, lane.slots - lane.busy),
            lane.records,
            self._pace.lease_ms * 1_000,
            lane.name if self._leaves_open else "",
        )
        lane.is_open = self._leaves_open and not self._stopping
        try:
            answer = await self._source.ask(question)
        except HeadwaterError:
            wait_us = self._limits.asks.delay_us(lane.failures, self._random)
            lane.failures += 1
            self._note_due(lane, loop.time() + wait_us / 1e6)
        else:
            assert isinstance(answer, Claimed)
            lane.failures = 0
            if answer.next_us is not None:
                self._note_due(lane, loop.time() + answer.next_us / 1e6)
            self._start_grants(answer.grants, asked_at)
        finally:
            lane.claiming = False
        if not self._stopping:
            self._claim_due_lanes()

    def accept_given(self, grants: Iterable[Grant], ago_us: int) -> None:
        """Accept targets that a commit gave to this worker because it had free slots.

        `ago_us` is how long the commit was before its message. The message may have been on its way for long, for
        example while the process stood still, so that the lease is counted from the last question that was answered
        before it.
        """
        # A target of a reaction that this worker does not serve is left to its lease.
        known = [grant for grant in grants if grant.hold.reaction in self._lane_of]
        # fault drain.lease_counted_from_arrival: self._start_grants(known, asyncio.get_running_loop().time())
        self._start_grants(known, self._source.heard_at - ago_us / 1e6)

    def _start_grants(self, grants: Sequence[Grant], since: float) -> None:
        """Start deliveries. If the leases may be old, confirm them first, so that no record is delivered that another
        worker has delivered.
        """
        if asyncio.get_running_loop().time() - since < self._pace.lease_ms / 3e3:
            for grant in grants:
                self._start_grant(self._lane_of[grant.hold.reaction], grant, since)
        elif grants:
            task = self._spawn(self._start_if_held(grants), f"asking whose {grants[0].hold.key} is", self._tasks)
            assert not task.done()

    async def _start_if_held(self, grants: Sequence[Grant]) -> None:
        asked_at = asyncio.get_running_loop().time()
        held = await self._leases.confirm([grant.hold for grant in grants])
        for grant in grants:
            if held is None:  # No answer: report that the target was not started, so that another worker can have it.
                task = self._spawn(self._give_back(grant), f"giving {grant.hold.key} back", self._tasks)
                assert not task.done()
            elif grant.hold in held:
                self._start_grant(self._lane_of[grant.hold.reaction], grant, asked_at)

    def _start_grant(self, lane: _Lane, grant: Grant, since: float) -> None:
        """Start a delivery; give the target back if the worker stops or no slot is free."""
        if self._stopping or lane.busy >= lane.slots:
            task = self._spawn(self._give_back(grant), f"giving {grant.hold.key} back", self._tasks)
            assert not task.done()
        else:
            self._deliver(lane, grant, since)

    async def _give_back(self, grant: Grant) -> None:
        """Report a target that arrived too late to be started."""
        await self._reporter.report(Outcome(grant.hold))

    def _note_due(self, lane: _Lane, at: float) -> None:
        lane.next_at = at if lane.next_at is None else min(lane.next_at, at)

    # ---- delivering --------------------------------------------------------------------------------

    def _deliver(self, lane: _Lane, grant: Grant, asked_at: float) -> None:
        reaction = self._reactions[grant.hold.reaction]
        lane.busy += 1
        work = TargetDelivery(
            reaction,
            grant,
            self._reporter,
            self._clock,
            self._random,
            self._on_trace,
            self._limits,
            is_terse=self.is_terse,
        )
        target = (grant.hold.reaction, grant.hold.key)
        before = self._running.get(target)
        if before is not None and not self._reporter.is_reporting(before[1]):
            self._leases.renew_now(before[1])  # It is about to end, or an operator took the target.
        task = self._spawn(work.run(), f"{grant.hold.reaction} for {grant.hold.key}", self._tasks)
        self._running[target] = (work, grant.hold)
        self._leases.add(grant.hold, asked_at, lambda: work.lose_lease(task))

        def on_done(_: object) -> None:
            if work.left is None:
                lane.busy -= 1
            else:  # The thread is not free: its slot stays in use.
                work.left.add_done_callback(self._free_slot_later(lane))
            if self._running.get(target) == (work, grant.hold):
                del self._running[target]
            self._leases.remove(grant.hold)
            if not self._stopping:
                self._claim_due_lanes()

        task.add_done_callback(on_done)

    def _free_slot_later(self, lane: _Lane) -> Callable[[object], None]:
        """Return a callback for a reaction that goes on in a thread; called in that thread, it frees the slot."""
        loop = asyncio.get_running_loop()

        def free_slot() -> None:
            lane.busy -= 1
            if not self._stopping:
                self._claim_due_lanes()

        def on_thread_end(_: object) -> None:
            with suppress(RuntimeError):  # The loop is closed, and the worker with it.
                loop.call_soon_threadsafe(free_slot)

        return on_thread_end

    def _spawn(self, work: Coroutine[Any, Any, None], name: str, among: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        among.add(task)
        task.add_done_callback(among.discard)
        return task

    def _on_reported(self, told: tuple[Outcome, ...], answer: Finished) -> None:
        """Handle the answer to a report: forget the deliveries, and note when their lanes may have more."""
        for outcome in told:
            target = (outcome.hold.reaction, outcome.hold.key)
            known = self._running.get(target)
            if known is not None and known[1] == outcome.hold:
                del self._running[target]  # The delivery ends in a moment: its lease needs no check.
        for hold in answer.late:
            self._on_trace(Late(reaction=hold.reaction, key=hold.key))
        if answer.next_us is not None:
            at = asyncio.get_running_loop().time() + answer.next_us / 1e6
            for lane in {self._lane_of[outcome.hold.reaction] for outcome in told}:
                self._note_due(lane, at)
            if not self._stopping:
                self._claim_due_lanes()

    def _on_unreported(self, hold: Hold, why: str) -> None:
        self._on_trace(Unheard(reaction=hold.reaction, key=hold.key, error=why))


async def subscribe(source: TargetSource, each: Deliverable) -> None:
    """Subscribe a reaction to its topic. Raises HeadwaterError if the space does not answer, or refuses."""
    answer = await source.ask(Subscribe(0, *astuple(declaration(each))))
    assert isinstance(answer, Subscribed)


def _ignore(_: object) -> None:
    """Ignore traces when there is no listener."""
