"""Random workloads for reactions: workers die, a desk does not answer, an engine starts again, clocks are skewed.

Whatever happens: each target sees its records in order and at least once, what lands with a commit lands once, nothing
is lost, and once the faults end nothing is stuck past its bound. `./dev test` plays a hundredth, `./dev sim` all.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from headwater.backoff import Backoff
from headwater.clock import Random, VirtualClock
from headwater.engine import Engine
from headwater.engine.verify import verify_store
from headwater.errors import StorageError
from headwater.protocol.commit import Delivered, LeaseHeld, TopicRecord
from headwater.protocol.reactions import Claim, Claimed, Delivering, Delivers, Grant, QueryDrained, lease_name
from headwater.protocol.verdict import Accepted
from headwater.runtime import Batch, Drain, LeaseLostError, Pace
from tests.counts import seldom
from tests.unit.engine.delivery_kit import World
from tests.unit.reactions.kit import EngineDesk, Story, Stub, played

KEYS = ("a", "b", "c", "d")
EMITTING_MS = 2_000
LEASE_MS = 500
BOUND_MS = 60_000
"""Within this, once nothing goes wrong any more, everything is delivered: leases, backoffs and slow handlers add up."""


class Skewed:
    """The clock of another machine: it shows another time, and passes as fast."""

    def __init__(self, clock: VirtualClock, by_us: int) -> None:
        self._clock = clock
        self._by_us = by_us

    def now_us(self) -> int:
        return self._clock.now_us() + self._by_us

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    def randomness(self, label: str) -> Random:
        return self._clock.randomness(label)

    def new_token(self, nbytes: int = 16) -> str:
        return self._clock.new_token(nbytes)


class FlakyDesk(EngineDesk):
    """Loses questions and answers."""

    def __init__(self, world: World, draws: Random) -> None:
        super().__init__(world)
        self._draws = draws
        self.loses = 0.1
        self.is_gone = False  # with its worker
        self._arrives_at = 0.0  # the last thing that is on its way to the worker

    async def ask(self, question: Delivers) -> Delivering:
        await asyncio.sleep(self._draws.random() * 0.05)
        if self._draws.random() < self.loses:
            raise StorageError("the question was lost (planted)")
        answer = self.world.engine.deliver(question)
        if isinstance(question, Claim) and isinstance(answer, Claimed) and not self.is_gone:
            self.world.engine.delivery.idle_workers.register(
                self, question, question.limit - len(answer.grants) if question.lane else 0
            )
        await self._arrives()
        if self._draws.random() < self.loses:
            raise StorageError("the answer was lost (planted)")
        return answer

    async def _arrives(self) -> None:
        """A moment later; or after a while, as where a process stands still. Nothing overtakes what was sent before."""
        loop = asyncio.get_running_loop()
        way_s = self._draws.random() * (0.05 if self._draws.random() < 0.97 else 3 * LEASE_MS / 1_000)
        self._arrives_at = max(self._arrives_at + 1e-5, loop.time() + way_s)
        await asyncio.sleep(self._arrives_at - loop.time())

    async def tell(self, drain: Drain, grants: list[Grant]) -> None:
        """What a commit gave arrives, or not at all. For how long it was on its way nobody knows."""
        await self._arrives()
        if self._draws.random() >= self.loses and not self.is_gone:
            drain.accept_given(grants, 0)


@dataclass
class Seen:
    """What handlers saw, in the order of time."""

    emitted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    done: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    landed: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def begins(self, reaction: str, key: str, number: int) -> None:
        before = [each for each in self.emitted[key] if each < number]
        missing = [each for each in before if each not in self.done[reaction, key]]
        if missing:
            self.wrong.append(f"{reaction} for {key} began {number} before {missing} were delivered")


class Chaos:
    """One seed."""

    def __init__(self, story: Story, seed: int) -> None:
        self.story = story
        self.draws = VirtualClock(seed=seed).randomness("chaos")
        self.seen = Seen()
        self.desks: list[FlakyDesk] = []
        self.of_desk: dict[object, Drain] = {}
        self.told: set[asyncio.Task[None]] = set()
        self.given = 0
        self.names = 0

    def stub(self, name: str) -> Stub:
        chaos, seen = self, self.seen

        async def does(batch: Batch) -> None:
            seen.begins(name, batch.hold.key, batch.records[0].payload)
            first, position = batch.records[0], chaos.story.world.targets(name)[batch.hold.key].position
            if (first.seq, first.ordinal) <= position:
                seen.wrong.append(f"{name} for {batch.hold.key} began {first.payload} after it was acknowledged")
            await asyncio.sleep(chaos.draws.choice((0, 0, 0.01, 0.2, 1.2)))
            if chaos.draws.random() < 0.15:
                raise ConnectionError("nobody there (planted)")
            if name != "lands":
                seen.done[name, batch.hold.key].update(record.payload for record in batch.records)

        async def land(batch: Batch, _: object) -> None:
            """Sometimes nobody can stop it any more, as with a thread, or a process that stood still for a while."""
            if chaos.draws.random() < 0.3:
                await asyncio.shield(asyncio.get_running_loop().create_task(late(batch)))
            else:
                await commit(batch)

        async def late(batch: Batch) -> None:
            await asyncio.sleep(chaos.draws.random() * 3 * LEASE_MS / 1_000)
            await commit(batch)

        async def commit(batch: Batch) -> None:
            record, hold = batch.records[0], batch.hold
            verdict = chaos.story.world.commit(
                preconditions=(LeaseHeld(lease_name(hold.reaction, hold.key), hold.token),),
                delivered=(Delivered(hold.reaction, hold.key, record.seq, record.ordinal, not batch.is_last),),
            )
            if not isinstance(verdict, Accepted):
                raise LeaseLostError
            seen.landed[hold.key, record.payload] += 1
            seen.done[name, hold.key].add(record.payload)

        return self.story.stub(
            does,
            name=name,
            batch=3 if name == "batch" else 1,
            lane="slow" if name == "lands" else "",
            backoff=Backoff.exponential(base_ms=20, max_ms=500, jitter=0.5),
            on_exhausted="never",
            lands=name == "lands",
            landing=land,
        )

    async def worker(self) -> None:
        self.names += 1
        desk = FlakyDesk(self.story.world, self.draws)
        self.desks.append(desk)
        drain = Drain(
            desk,
            [self.stub(name) for name in ("plain", "batch", "lands")],
            clock=Skewed(self.story.clock, self.draws.randrange(-(10**9), 10**9)),
            worker=f"w{self.names}",
            pace=_pace(self.draws),
            leaves_open=self.draws.random() < 0.7,
        )
        self.of_desk[desk] = drain
        self.story.drains.append(drain)
        drain.notify()  # Subscribed already.

    def emit(self) -> None:
        key = self.draws.choice(KEYS)
        numbers = [sum(map(len, self.seen.emitted.values())) + n for n in range(self.draws.choice((1, 1, 3)))]
        records = [TopicRecord("orders", key, number) for number in numbers]
        verdict = self.story.world.commit(*records)
        assert isinstance(verdict, Accepted)
        self.seen.emitted[key] += numbers
        given, is_more = self.story.world.engine.delivery.idle_workers.take_given()
        for by, what in given.items():
            assert isinstance(by, FlakyDesk)
            self.given += 1
            task = asyncio.get_running_loop().create_task(by.tell(self.of_desk[by], what.grants))
            self.told.add(task)
            task.add_done_callback(self.told.discard)
        alone = [self.of_desk[by] for by in given if isinstance(by, FlakyDesk)] if len(given) == 1 else []
        for drain in self.story.drains:
            if (is_more or drain not in alone) and self.draws.random() < 0.8:  # A notification is lost sometimes.
                drain.notify()

    async def run(self) -> None:
        world = self.story.world
        for name in ("plain", "batch", "lands"):
            world.subscribe(name, lane="slow" if name == "lands" else "default")
        for _ in range(3):
            await self.worker()
        loop = asyncio.get_running_loop()
        until = loop.time() + EMITTING_MS / 1_000
        while loop.time() < until:
            await asyncio.sleep(self.draws.random() * 0.15)
            self.emit()
            chance = self.draws.random()
            if chance < 0.08 and self.story.drains:
                dead = self.story.drains.pop(self.draws.randrange(len(self.story.drains)))
                dead.kill()
                for desk in [desk for desk in self.desks if self.of_desk[desk] is dead]:
                    desk.is_gone = True
                    if self.draws.random() < 0.5:  # Or nobody has noticed yet: it is given what it cannot hear of.
                        world.engine.delivery.idle_workers.drop(desk)
                await self.worker()
            elif chance < 0.12:
                world.engine = Engine(world.store, clock=world.clock)  # It starts again: what it had in memory is gone.
            elif chance < 0.16:
                for desk in self.desks:
                    desk.loses = self.draws.choice((0.0, 0.1, 0.9))
        for desk in self.desks:
            desk.loses = 0.0
        for drain in self.story.drains:
            drain.notify()
        await self._drained()

    async def _drained(self) -> None:
        waited_ms = 0
        while waited_ms < BOUND_MS:
            answer = self.story.world.engine.deliver(QueryDrained(0))
            if answer.is_drained:  # type: ignore[union-attr]
                return
            await self.story.passes(100)
            waited_ms += 100
        self.seen.wrong.append(f"not everything is delivered after {BOUND_MS} ms: {self.story.world.targets('plain')}")

    def checked(self) -> list[str]:
        seen, wrong = self.seen, list(self.seen.wrong)
        for name in ("plain", "batch", "lands"):
            for key, numbers in seen.emitted.items():
                lost = [number for number in numbers if number not in seen.done[name, key]]
                if lost:
                    wrong.append(f"{name} for {key} lost {lost}")
        wrong += [f"{each} landed {times} times" for each, times in seen.landed.items() if times != 1]
        report = verify_store(self.story.world.store)
        return wrong if report.ok else [*wrong, str(report.violation)]


def _pace(draws: Random) -> Pace:
    return Pace(slots=draws.choice((1, 2, 8)), records=draws.choice((1, 3, 10)), lease_ms=LEASE_MS)


def run(seed: int) -> list[str]:
    found: list[str] = []

    async def story(s: Story) -> None:
        chaos = Chaos(s, seed)
        await chaos.run()
        found.extend(chaos.checked())

    played(story, World(clock=VirtualClock(seed=seed)))
    return found


@pytest.mark.random
def test_in_order_at_least_once_and_nothing_is_lost_or_stuck() -> None:
    for seed in range(seldom(2_000)):
        assert run(seed) == [], f"seed {seed}"
