"""Events of one runtime land in the order in which they were sent, if one touches what the other writes.

Ann sends two events without waiting. Bob's write makes the first one a conflict, so that it is handled again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import pytest

from headwater import Cell, Model, Piece, Refused, cell, handler
from headwater.testing import Simulation, simulated

SPACE = "hall"


class Card(Model):
    title: str = "t"
    votes: int = 0


class Auction(Piece, name="aid.Auction"):
    best: Cell[int] = cell(default=0)
    is_over: Cell[bool] = cell(default=False)
    count: Cell[int] = cell(default=0)
    marker: Cell[int] = cell(default=0)
    rows: Cell[Mapping[str, int]] = cell(default={})
    card: Cell[Card] = cell(default=Card())

    @handler
    def bid(self, cents: int) -> None:
        if self.is_over.get():
            raise Refused("it is over")
        if cents > self.best.get():
            self.best.set(cents)

    @handler
    def close(self) -> None:
        self.is_over.set(True)

    @handler
    def look(self) -> int:
        return self.count.get()

    @handler
    def add(self, by: int) -> None:
        self.count.increment(by)

    @handler
    def put(self, number: int) -> None:
        self.rows.key("a").set(number)

    @handler
    def mark(self, number: int) -> None:
        self.marker.set(number)

    @handler
    def do(self, what: str, *, reads: bool) -> None:
        if reads:
            self.marker.get()
        ACTS[what](self)


ACTS: dict[str, Callable[[Auction], None]] = {
    "empty the rows": lambda auction: auction.rows.set({}),
    "delete the rows": lambda auction: auction.rows.delete(),
    "put a row": lambda auction: auction.rows.key("a").set(7),
    "set the card": lambda auction: auction.card.set(Card()),
    "delete the card": lambda auction: auction.card.delete(),
    "vote": lambda auction: auction.card.at(lambda card: card.votes).set(7),
}
EQUAL = [
    ("empty the rows", "put a row"),
    ("delete the rows", "put a row"),
    ("set the card", "vote"),
    ("delete the card", "vote"),
]


async def opened(sim: Simulation) -> tuple[Auction, Auction]:
    ann = await sim.runtime("ann").space(SPACE).open(Auction, "a")
    bob = await sim.runtime("bob").space(SPACE).open(Auction, "a")
    await sim.settle()
    return ann, bob


@simulated(seeds=12, faults=("delay",))
async def test_event_is_not_refused_because_of_a_later_one(sim: Simulation) -> None:
    ann, bob = await opened(sim)
    bobs = asyncio.ensure_future(bob.bid.send(10))
    await asyncio.gather(ann.bid.send(20), ann.close.send())
    with contextlib.suppress(Refused):  # It may arrive after Ann's second event.
        await bobs
    await sim.settle()
    assert (await bob.best.pull(), await bob.is_over.pull()) == (20, True)


@simulated(seeds=12, faults=("delay",))
async def test_event_that_only_reads_does_not_see_a_later_one(sim: Simulation) -> None:
    ann, bob = await opened(sim)
    _, seen, _ = await asyncio.gather(bob.add.send(1), ann.look.send(), ann.add.send(100))
    assert seen < 100


@pytest.mark.parametrize(("first", "second"), EQUAL)
@simulated(seeds=12, faults=("delay",))
async def test_write_after_an_equal_one_that_is_made_again_stays(sim: Simulation, first: str, second: str) -> None:
    ann, bob = await opened(sim)
    await ann.do.send("empty the rows", reads=False)  # Stored, and equal to the default.
    await ann.do.send("set the card", reads=False)
    await sim.settle()
    await asyncio.gather(bob.mark.send(1), ann.do.send(first, reads=True), ann.do.send(second, reads=False))
    await sim.settle()
    shown = (await bob.rows.pull()).get("a", 0) + (await bob.card.pull()).votes
    assert shown == 7


@simulated(seeds=12, faults=("delay",))
async def test_handlers_that_set_a_key_which_another_runtime_deletes_keep_their_order(sim: Simulation) -> None:
    ann, bob = await opened(sim)
    await ann.do.send("put a row", reads=False)
    await sim.settle()
    with sim.offline("ann"):
        await bob.do.send("delete the rows", reads=False)
        sent = [asyncio.ensure_future(ann.put.send(number)) for number in (1, 2)]
        await sim.advance(seconds=1)
    await asyncio.gather(*sent)
    await sim.settle()
    assert await bob.rows.pull() == {"a": 2}
