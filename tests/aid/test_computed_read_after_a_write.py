"""A handler that reads a computed after it wrote the computed's source is called again if somebody else wrote that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headwater import Cell, Piece, Refused, cell, computed, handler
from headwater.testing import Simulation, simulated


class Seats(Piece):
    taken: Cell[Mapping[str, str]] = cell(default={})

    @computed
    def is_full(self) -> bool:
        return bool(self.taken.key("seat").get())

    @handler
    def take(self, who: str) -> None:
        self.taken.key("seat").set(who)
        if self.is_full.get():  # as it was before this handler began
            raise Refused("it is taken")


@simulated(faults=(), seeds=12)
async def test_computed_that_a_handler_reads_after_writing_its_source_is_fresh(sim: Simulation) -> None:
    spaces = [sim.runtime(user).space("s", user=user) for user in ("ann", "bob")]
    ann, bob = [await space.open(Seats, "p") for space in spaces]
    ann.taken.key("seat").set("")
    await sim.settle()
    answers = await asyncio.gather(ann.take.send("ann"), bob.take.send("bob"), return_exceptions=True)
    assert [type(each) for each in answers if each is not None] == [Refused]
