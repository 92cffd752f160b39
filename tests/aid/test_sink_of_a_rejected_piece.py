"""A sink on a piece stays when the commit that makes the piece is rejected and made again: nothing was deleted."""

from __future__ import annotations

import asyncio

from headwater import Cell, Piece, cell, computed, handler
from headwater.testing import Simulation, simulated

SPACE = "desk"


class Counter(Piece, name="aid.RejectedPiece"):
    n: Cell[int] = cell(default=1)

    @computed
    def double(self) -> int:
        return self.n.get() * 2

    @handler
    def add(self) -> int:
        self.n.set(self.n.get() + 1)
        return self.double.get()


@simulated(seeds=20, faults=("delay", "drop"))
async def test_sink_stays_when_the_event_that_makes_the_piece_is_tried_again(sim: Simulation) -> None:
    ann = sim.runtime("ann").space(SPACE).piece(Counter, "c")
    there = sim.runtime("bob").space(SPACE)
    bob = there.piece(Counter, "c")
    shown: list[int] = []
    looking = ann.n.sink(shown.append)
    await asyncio.gather(there.transact(lambda: bob.n.set(5)), ann.add.send())
    await sim.settle()
    assert looking.ended is None
    assert shown[-1] in (5, 6)
