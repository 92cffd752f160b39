"""The drain: claims targets that are due, has their records delivered, and says what came of it.

Slots of a lane are filled again as targets finish; a slow reaction holds up its own lane only. Nothing is polled: a
claim answers when there may be more, and one timer acts on that, so that a retry and a takeover need no traffic; new
records are told (`notify`). A lease that is lost cancels its handler. What is due is the desk's to say.

Hearing: when a worker last asked something that was answered.

Whatever an engine says on a connection after an answer, it says after the question was asked: that moment is the
worker's own, and the latest of which it is sure. Owns that moment; decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from msgspec.structs import astuple

from headwater.backoff import Backoff
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
    Outcome,
    Subscribe,
    Subscribed,
)
from headwater.reactions.lease_renewal import Holding
from headwater.reactions.port import DEFAULT_LANE, Desk, Reaction, declaration
from headwater.reactions.target_delivery import Finishing, TargetDelivery
from headwater.reactions.traces import Hears, Late, Unheard


class Hearing:
    """A desk, and when it was last heard."""

    __slots__ = ("_desk", "heard_at")

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.heard_at = -inf  # by the loop's clock; when the question was asked, not when the answer came

    async def ask(self, question: Delivers) -> Delivering:
        asked_at = asyncio.get_running_loop().time()
        answer = await self._desk.ask(question)
        self.heard_at = max(self.heard_at, asked_at)
        return answer


AGAIN: Final = Backoff.exponential(base_ms=50, max_ms=5_000, jitter=0.2)
"""After a claim that was not answered."""
ANSWER_S: Final = 1.0
"""How long a worker that stops waits for an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much a worker does at once, and for how long it has what it claims."""

    slots: int = 16  # targets at once, of a lane that is not named below
    lanes: Mapping[str, int] = field(default_factory=dict)
    records: int = 64  # of one target, claimed at once
    lease_ms: int = 30_000
    grace_ms: int = 10_000  # for what runs when the worker is stopped

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
        self.next_at: float | None = None  # when there may be something to claim, by the loop's clock
        self.claiming = False
        self.is_open = False  # room was left open: something may be given without being asked for
        self.failures = 0


class Drain:
    """One worker: as many as wanted may share the targets of a space."""

    __slots__ = (
        "_claims",
        "_clock",
        "_desk",
        "_finishing",
        "_hears",
        "_holding",
        "_lanes",
        "_leaves_open",
        "_of_reaction",
        "_pace",
        "_random",
        "_reactions",
        "_stopping",
        "_tasks",
        "_timer",
        "_works",
        "is_terse",
        "worker",
    )

    def __init__(
        self,
        desk: Desk,
        reactions: Iterable[Reaction],
        *,
        clock: Clock,
        worker: str,
        pace: Pace | None = None,
        hears: Hears | None = None,
        is_terse: bool = False,
        leaves_open: bool = False,
    ) -> None:
        """`is_terse`: of what is delivered nothing is reported, which is most of it.

        `leaves_open`: whoever has the desk is told what a commit gives to a worker with room, and calls `given`.
        """
        self._leaves_open = leaves_open
        self.worker = worker
        self.is_terse = is_terse
        self._desk = desk = Hearing(desk)
        self._clock = clock
        self._random = clock.randomness(f"worker {worker}")
        self._pace = pace or Pace()
        self._hears = hears or _nobody
        self._reactions = {each.name: each for each in reactions}
        self._lanes: dict[str, _Lane] = {}
        self._of_reaction: dict[str, _Lane] = {}
        for each in self._reactions.values():
            self._enter(each)
        self._holding = Holding(desk, self._pace.lease_ms * 1_000)
        self._finishing = Finishing(desk, self._random, self._finished, self._unheard)
        self._tasks: set[asyncio.Task[None]] = set()  # what is being delivered
        self._works: dict[tuple[str, str], tuple[TargetDelivery, Hold]] = {}  # by target, the last one of each
        self._claims: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    def _enter(self, reaction: Reaction) -> None:
        name = reaction.lane or DEFAULT_LANE
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name, self._pace.lanes.get(name, self._pace.slots))
        lane.reactions.append(reaction.name)
        lane.records = max(lane.records, self._pace.records, reaction.batch)
        self._of_reaction[reaction.name] = lane

    # ---- beginning and ending ----------------------------------------------------------------------

    async def start(self) -> None:
        """Subscribe, and begin to claim. HeadwaterError: the desk did not answer, or refuses."""
        for each in self._reactions.values():
            await subscribe(self._desk, each)
        self.notify()

    def serve(self, reaction: Reaction) -> None:
        """Claim for one more, whose subscription is there. One of the same name is replaced."""
        is_new = reaction.name not in self._reactions
        self._reactions[reaction.name] = reaction
        if is_new:
            self._enter(reaction)
            self.notify()

    def serves(self, name: str) -> bool:
        return name in self._reactions

    async def stop(self, *, is_heard: bool = True) -> None:
        """Claim and begin nothing more, let what runs come to its end for a while, and give the rest back.

        `is_heard`: somebody hears that no room is open any more. Otherwise whoever knew of it knows that it is gone.
        """
        self._stopping = True
        self._arm()
        for work, _ in self._works.values():
            work.stop()
        for lane in self._lanes.values():
            if lane.is_open and is_heard:
                task = self._spawn(self._claim(lane), f"closing {lane.name}", self._claims)
                assert not task.done()
        grace_s = self._pace.grace_ms / 1_000
        await self._ended(self._claims, min(grace_s, ANSWER_S))  # What is given now is given back.
        await self._ended(self._tasks, grace_s)
        for task in tuple(self._tasks):
            task.cancel()
        await self._ended(self._tasks, min(grace_s, ANSWER_S))
        self.kill()

    async def _ended(self, tasks: set[asyncio.Task[None]], within_s: float) -> None:
        if tasks:
            await asyncio.wait(tuple(tasks), timeout=within_s)
        for task in tuple(self._claims):
            task.cancel()

    def kill(self) -> None:
        """End at once, as a process does that dies: nothing is said."""
        self._stopping = True
        self._arm()
        self._holding.stop()
        self._finishing.stop()
        for task in (*self._tasks, *self._claims):
            task.cancel()

    @property
    def is_busy(self) -> bool:
        """Whether something is being delivered, claimed or told."""
        return bool(self._tasks or self._claims) or bool(len(self._finishing))

    # ---- claiming ----------------------------------------------------------------------------------

    def notify(self) -> None:
        """There may be something to claim, in any lane."""
        now = asyncio.get_running_loop().time()
        for lane in self._lanes.values():
            lane.next_at = now
        self._look()

    def _look(self) -> None:
        """Claim for every lane that has room and something that may be due; wait for the others."""
        now = asyncio.get_running_loop().time()
        for lane in self._lanes.values():
            is_due = lane.next_at is not None and lane.next_at <= now
            if is_due and lane.busy < lane.slots and not lane.claiming and not self._stopping:
                lane.claiming = True
                lane.next_at = None
                task = self._spawn(self._claim(lane), f"claiming for {lane.name}", self._claims)
                assert not task.done()
        self._arm()

    def _arm(self) -> None:
        """The one timer: for the earliest moment at which a lane with room may have something."""
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
            self._timer = asyncio.get_running_loop().call_at(min(moments), self._look)

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
            answer = await self._desk.ask(question)
        except HeadwaterError:
            wait_us = AGAIN.delay_us(min(lane.failures, 20), self._random)
            lane.failures += 1
            self._due(lane, loop.time() + wait_us / 1e6)
        else:
            assert isinstance(answer, Claimed)
            lane.failures = 0
            if answer.next_us is not None:
                self._due(lane, loop.time() + answer.next_us / 1e6)
            self._received(answer.grants, asked_at)
        finally:
            lane.claiming = False
        if not self._stopping:
            self._look()

    def given(self, grants: Iterable[Grant], ago_us: int) -> None:
        """Targets that a commit gave to this worker, so long before it was told, since it had left room open.

        For how long that was on its way nobody knows: the process may have stood still. It was told after the answer to
        the last question, so that the lease is counted from when that was asked.
        """
        # What is none of its reactions was never asked for, and is somebody's when its lease ends.
        known = [grant for grant in grants if grant.hold.reaction in self._of_reaction]
        # fault drain.lease_counted_from_arrival: self._received(known, asyncio.get_running_loop().time())
        self._received(known, self._desk.heard_at - ago_us / 1e6)

    def _received(self, grants: Sequence[Grant], since: float) -> None:
        """Begin. If they may have been this worker's for long, it is asked first whose they are by now:

        what somebody else has delivered is not begun here.
        """
        if asyncio.get_running_loop().time() - since < self._pace.lease_ms / 3e3:
            for grant in grants:
                self._take(self._of_reaction[grant.hold.reaction], grant, since)
        elif grants:
            task = self._spawn(self._take_if_held(grants), f"asking whose {grants[0].hold.key} is", self._tasks)
            assert not task.done()

    async def _take_if_held(self, grants: Sequence[Grant]) -> None:
        asked_at = asyncio.get_running_loop().time()
        held = await self._holding.still([grant.hold for grant in grants])
        for grant in grants:
            if held is None:  # Nobody answered. Whoever hears later that it is not begun here lets others have it.
                task = self._spawn(self._give_back(grant), f"giving {grant.hold.key} back", self._tasks)
                assert not task.done()
            elif grant.hold in held:
                self._take(self._of_reaction[grant.hold.reaction], grant, asked_at)

    def _take(self, lane: _Lane, grant: Grant, since: float) -> None:
        """Have it delivered; unless the worker stops, or its room was taken while this was on its way."""
        if self._stopping or lane.busy >= lane.slots:
            task = self._spawn(self._give_back(grant), f"giving {grant.hold.key} back", self._tasks)
            assert not task.done()
        else:
            self._deliver(lane, grant, since)

    async def _give_back(self, grant: Grant) -> None:
        """It came when nothing was to be begun any more."""
        await self._finishing.tell(Outcome(grant.hold))

    def _due(self, lane: _Lane, at: float) -> None:
        lane.next_at = at if lane.next_at is None else min(lane.next_at, at)

    # ---- delivering --------------------------------------------------------------------------------

    def _deliver(self, lane: _Lane, grant: Grant, asked_at: float) -> None:
        reaction = self._reactions[grant.hold.reaction]
        lane.busy += 1
        work = TargetDelivery(
            reaction, grant, self._finishing, self._clock, self._random, self._hears, is_terse=self.is_terse
        )
        target = (grant.hold.reaction, grant.hold.key)
        before = self._works.get(target)
        if before is not None and not self._finishing.is_telling(before[1]):
            self._holding.doubt(before[1])  # It is about to end, or an operator took the target away.
        task = self._spawn(work.run(), f"{grant.hold.reaction} for {grant.hold.key}", self._tasks)
        self._works[target] = (work, grant.hold)
        self._holding.hold(grant.hold, asked_at, lambda: work.oust(task))

        def over(_: object) -> None:
            if work.left is None:
                lane.busy -= 1
            else:  # Its thread is not free: nothing is claimed that would have to wait for it.
                work.left.add_done_callback(self._freed(lane))
            if self._works.get(target) == (work, grant.hold):
                del self._works[target]
            self._holding.let_go(grant.hold)
            if not self._stopping:
                self._look()

        task.add_done_callback(over)

    def _freed(self, lane: _Lane) -> Callable[[object], None]:
        """What hung in a thread has come to its end: its slot is free. Called in that thread."""
        loop = asyncio.get_running_loop()

        def free() -> None:
            lane.busy -= 1
            if not self._stopping:
                self._look()

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # The loop is closed: nobody claims any more.
                loop.call_soon_threadsafe(free)

        return ended

    def _spawn(self, work: Coroutine[Any, Any, None], name: str, among: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        among.add(task)
        task.add_done_callback(among.discard)
        return task

    def _finished(self, told: tuple[Outcome, ...], answer: Finished) -> None:
        """What was told was heard; the lanes concerned may have more."""
        for outcome in told:
            target = (outcome.hold.reaction, outcome.hold.key)
            known = self._works.get(target)
            if known is not None and known[1] == outcome.hold:
                del self._works[target]  # It ends in a moment, and is nobody's doubt.
        for hold in answer.late:
            self._hears(Late(reaction=hold.reaction, key=hold.key))
        if answer.next_us is not None:
            at = asyncio.get_running_loop().time() + answer.next_us / 1e6
            for lane in {self._of_reaction[outcome.hold.reaction] for outcome in told}:
                self._due(lane, at)
            if not self._stopping:
                self._look()

    def _unheard(self, hold: Hold, why: str) -> None:
        self._hears(Unheard(reaction=hold.reaction, key=hold.key, error=why))


async def subscribe(desk: Desk, each: Reaction) -> None:
    """Have every record of its topic be for it, from now on. HeadwaterError: the desk did not answer, or refuses."""
    answer = await desk.ask(Subscribe(0, *astuple(declaration(each))))
    assert isinstance(answer, Subscribed)


def _nobody(_: object) -> None:
    """Nobody counts."""
