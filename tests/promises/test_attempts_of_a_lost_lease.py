"""An attempt of a worker that lost its lease is passed to `on_attempt` once."""

from __future__ import annotations

import asyncio

from headwater import Piece, Topic, handler, reaction, topic
from headwater.testing import Simulation, simulated


class Bell(Piece, name="lease.Bell"):
    rung: Topic[int] = topic()

    @handler
    def ring(self, number: int) -> None:
        self.rung.emit(number)

    @reaction(on=rung)
    async def hear(self, number: int) -> None:
        calls.append(number)
        if len(calls) == 1:  # The first worker.
            began.set()
            await goes_on.wait()
            if is_failing:
                raise ValueError("it did not ring")


calls: list[int] = []
began, goes_on = asyncio.Event(), asyncio.Event()
is_failing = False


async def told(sim: Simulation, end_after_s: float, *, fails: bool) -> tuple[list[str], list[str]]:
    """Let a worker lose its connection during an attempt that ends after some seconds; the lease lasts 30 seconds.

    Return the outcomes that the worker was told, and those of the worker that had the record after it.
    """
    global began, goes_on, is_failing
    calls.clear()
    began, goes_on, is_failing = asyncio.Event(), asyncio.Event(), fails
    first: list[str] = []
    second: list[str] = []
    ann = sim.runtime("ann")
    ann.reactions.on_attempt(lambda attempt: first.append(attempt.how))
    bell = await ann.space("s").open(Bell, "b")
    await bell.ring.send(1)
    await began.wait()
    bob = sim.runtime("bob")
    bob.reactions.on_attempt(lambda attempt: second.append(attempt.how))
    bob.space("s")
    with sim.offline("ann"):
        await sim.advance(seconds=end_after_s)
        goes_on.set()
        await sim.advance(seconds=90 - end_after_s)
    await sim.advance(seconds=30)
    await sim.settle()
    return first, second


@simulated(seeds=5, faults=("delay",))
async def test_attempt_that_ends_after_its_lease_is_told_once(sim: Simulation) -> None:
    assert await told(sim, 60, fails=False) == (["lost"], ["delivered"])


@simulated(seeds=5, faults=("delay",))
async def test_attempt_that_is_reported_after_its_lease_is_told_once(sim: Simulation) -> None:
    assert await told(sim, 5, fails=False) == (["lost"], ["delivered"])


@simulated(seeds=5, faults=("delay",))
async def test_failure_that_is_reported_after_its_lease_is_told_once(sim: Simulation) -> None:
    assert await told(sim, 5, fails=True) == (["lost"], ["delivered"])
