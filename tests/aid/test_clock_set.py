"""The wall clock is set back, or ahead and back: whatever waits for a moment goes on by monotonic time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater import Backoff, Cell, Piece, Topic, cell, handler, reaction, topic
from headwater.clock import SteadyWall, VirtualClock
from headwater.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, TopicRecord
from headwater.protocol.reactions import Claim, Claimed, Subscribe
from headwater.testing import Simulation, simulated

HOUR_S = 3_600
SECOND_US = 1_000_000


class Office(Piece, name="aid.Office"):
    rung: Cell[int] = cell(default=0)
    ticks: Cell[int] = cell(default=0)
    tried: Cell[int] = cell(default=0)
    sent: Topic[str] = topic()

    @handler
    def wait(self) -> None:
        self.ring.post_at(timedelta(seconds=60))

    @handler
    def ring(self) -> None:
        self.rung.increment()

    @handler(every_ms=60_000)
    def tick(self) -> None:
        self.ticks.increment()

    @handler
    def mail(self) -> None:
        self.sent.emit("letter")

    @handler
    def delivered(self, attempt: int) -> None:
        self.tried.set(attempt)

    @reaction(
        on=sent, then=delivered, max_retries=5, backoff=Backoff.exponential(base_ms=30_000, max_ms=60_000, jitter=0.0)
    )
    async def post(self, letter: str) -> int:
        attempts.append(letter)
        if len(attempts) < 2:
            raise ConnectionError("nobody there")
        return len(attempts)


attempts: list[str] = []


def set_back(sim: Simulation) -> None:
    sim.set_wall_clock(seconds=-HOUR_S)


@simulated(seeds=3)
async def test_post_at_and_every_ms_go_on_after_the_clock_was_set_back(sim: Simulation) -> None:
    office = await sim.runtime("ann").space("s").open(Office, "one")
    await sim.settle()
    begun = await office.ticks.pull()
    await office.wait.send()
    set_back(sim)
    await sim.advance(seconds=61)
    await sim.settle()
    assert (await office.rung.pull(), await office.ticks.pull()) == (1, begun + 1)


@simulated(seeds=3)
async def test_post_at_and_every_ms_go_on_after_the_clock_was_set_ahead_for_a_minute_and_back(sim: Simulation) -> None:
    office = await sim.runtime("ann").space("s").open(Office, "one")
    sim.set_wall_clock(seconds=HOUR_S)
    await sim.advance(seconds=60)
    sim.set_wall_clock(seconds=-HOUR_S)
    await sim.settle()
    begun = await office.ticks.pull()
    await office.wait.send()
    assert await office.rung.pull() == 0
    await sim.advance(seconds=61)
    await sim.settle()
    assert (await office.rung.pull(), await office.ticks.pull()) == (1, begun + 1)


@simulated(seeds=3, faults=())
async def test_retries_go_on_after_the_clock_was_set_back(sim: Simulation) -> None:
    attempts.clear()
    office = await sim.runtime("ann").space("s").open(Office, "one")
    await office.mail.send()
    await sim.advance(seconds=1)
    assert len(attempts) == 1
    set_back(sim)
    await sim.advance(seconds=60)
    assert len(attempts) == 2
    assert await office.tried.pull() == 2


def test_leases_run_out_after_the_clock_was_set_back() -> None:
    clock = VirtualClock()
    engine = Engine(SqliteStore(":memory:"), clock=clock)
    engine.open_session("s")
    engine.deliver(Subscribe(1, "work", "jobs"))
    engine.submit("s", Commit(1, records=(TopicRecord("jobs", "job", None),)))

    def claims(worker: str) -> bool:
        answer = engine.deliver(Claim(1, worker, ("work",), lease_us=10 * SECOND_US))
        return isinstance(answer, Claimed) and len(answer.grants) == 1

    assert claims("ann")
    clock.set_wall_clock(-HOUR_S * SECOND_US)
    clock.advance(9 * SECOND_US)
    assert not claims("bob")
    clock.advance(2 * SECOND_US)
    assert claims("bob")


@pytest.mark.parametrize("ahead_s", [2, HOUR_S, 365 * 24 * HOUR_S])
def test_clock_that_is_ahead_for_a_moment_does_not_count(ahead_s: int) -> None:
    clock = VirtualClock()
    begun = clock.now_us()
    clock.set_wall_clock(ahead_s * SECOND_US)
    assert clock.now_us() == begun
    clock.advance(5 * SECOND_US)
    assert clock.now_us() == begun + 5 * SECOND_US
    clock.set_wall_clock(-ahead_s * SECOND_US)
    assert clock.now_us() == begun + 5 * SECOND_US


def test_clock_that_stays_ahead_counts_after_a_while() -> None:
    clock = VirtualClock()
    begun = clock.now_us()
    clock.set_wall_clock(HOUR_S * SECOND_US)
    assert clock.now_us() == begun
    clock.advance(SteadyWall.LASTS_US)
    assert clock.now_us() == begun + SteadyWall.LASTS_US + HOUR_S * SECOND_US
