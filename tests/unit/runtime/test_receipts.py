"""A receipt that was read before it was written, and arrives late, does not let its event be handled twice."""

from __future__ import annotations

import asyncio

import headwater
from headwater import Cell, Piece, cell, handler
from headwater.runtime.events.event import given_id
from headwater.runtime.events.receipts import PREFIX
from headwater.testing import Simulation, simulated


class Till(Piece, name="receipts.late.Till"):
    taken: Cell[tuple[int, ...]] = cell(default=())

    @handler
    def take(self, cents: int) -> str:
        self.taken.push(cents)
        return self.ctx.new_id()


@simulated(seeds=40)
async def test_whoever_is_second_gets_the_first_ones_result_however_news_travel(sim: Simulation) -> None:
    runtimes = [sim.runtime(user) for user in ("ann", "bob", "cy")]
    tills = [rt.space("shop", user="x", session="s").piece(Till, "one") for rt in runtimes]
    await asyncio.gather(*(till.taken.pull() for till in tills))
    for number in range(4):
        key = f"k{number}"
        receipt = f"{PREFIX}{given_id('x', 's', key, 'shop/one:take')}"
        for rt in runtimes:  # What is known of it here is that it is not there, and news of it may come late.
            await rt.cell("shop", receipt, headwater.Json, default=None).pull()
        ends = await asyncio.gather(*(till.take.options(id=key).send(5) for till in tills))
        assert len(set(ends)) == 1
    await sim.settle()
    assert await tills[0].taken.pull() == (5,) * 4
