"""What is due again and again is done once per period in all, however many runtimes have the piece open."""

from __future__ import annotations

from headwater import Cell, Piece, cell, handler
from headwater.testing import Simulation, simulated

EVERY_MS = 60_000


class Clockwork(Piece, name="periods.Clockwork"):
    ticks: Cell[tuple[str, ...]] = cell(default=())
    late: Cell[int] = cell(default=0)

    @handler(every_ms=EVERY_MS)
    def tick(self) -> None:
        self.ticks.push(self.ctx.now().isoformat())

    @handler(every_ms=EVERY_MS, catch_up=False)
    def tock(self) -> None:
        self.late.increment()


@simulated(seeds=30, faults=("delay", "drop"))
async def test_two_runtimes_do_it_once_a_period(sim: Simulation) -> None:
    one = await sim.runtime("ann").space("s").open(Clockwork, "c")
    await sim.runtime("bob").space("s").open(Clockwork, "c")
    await sim.settle()
    begun = len(await one.ticks.pull())
    assert begun == 1  # the period that it is
    for _ in range(5):
        await sim.advance(seconds=EVERY_MS / 1_000)
    await sim.settle()
    assert len(await one.ticks.pull()) == begun + 5
    assert await one.late.pull() == 5  # without catching up, the first begins with the next period


@simulated(seeds=20)
async def test_what_was_missed_while_nobody_was_there_is_one(sim: Simulation) -> None:
    rt = sim.runtime("ann")
    piece = await rt.space("s").open(Clockwork, "c")
    await sim.settle()
    await rt.space("s").stop(piece)
    await sim.advance(seconds=10 * EVERY_MS / 1_000)
    assert len(await piece.ticks.pull()) == 1
    piece = await rt.space("s").open(Clockwork, "c")
    await sim.settle()
    assert len(await piece.ticks.pull()) == 2


@simulated(seeds=20)
async def test_a_restart_in_a_period_does_not_do_it_again(sim: Simulation) -> None:
    await sim.runtime("ann").space("s").open(Clockwork, "c")
    await sim.settle()
    await sim.crash("ann")
    piece = await sim.runtime("ann").space("s").open(Clockwork, "c")
    await sim.settle()
    assert len(await piece.ticks.pull()) == 1
