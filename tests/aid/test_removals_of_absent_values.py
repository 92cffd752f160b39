"""The removal of an absent value is a write: the commit lands in its place among the writes of its runtime.

Bob, who has not seen what Ann writes, takes it away and writes it again. His last write stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from headwater import Cell, Model, Piece, cell, handler
from headwater.testing import Simulation, simulated

SPACE = "shelf"
ROUNDS = 20


class Card(Model):
    count: int = 5
    tags: frozenset[str] = frozenset()


class Shelf(Piece, name="aid.Removals"):
    tags: Cell[frozenset[str]] = cell(default=frozenset())
    rows: Cell[Mapping[str, int]] = cell(default={})
    number: Cell[int] = cell(default=5)
    lines: Cell[tuple[int, ...]] = cell(default=(1, 2))
    marks: Cell[frozenset[str]] = cell(default=frozenset({"old"}))
    card: Cell[Card] = cell(default=Card())

    @handler
    def do(self, what: str) -> None:
        ACTS[what](self)


ACTS: dict[str, Callable[[Shelf], None]] = {
    "tag": lambda shelf: shelf.tags.add("x"),
    "untag": lambda shelf: shelf.tags.discard("x"),
    "put": lambda shelf: shelf.rows.key("x").set(2),
    "count": lambda shelf: shelf.rows.key("x").increment(2),
    "take": lambda shelf: shelf.rows.key("x").delete(),
    "mark card": lambda shelf: shelf.card.at(lambda card: card.tags).add("x"),
    "unmark card": lambda shelf: shelf.card.at(lambda card: card.tags).discard("x"),
}
PAIRS = [("untag", "tag"), ("take", "put"), ("take", "count"), ("unmark card", "mark card")]


def values(shelf: Shelf) -> tuple[object, ...]:
    return shelf.tags.get(), dict(shelf.rows.get()), shelf.card.get()


@pytest.mark.parametrize(("away", "again"), PAIRS)
@pytest.mark.parametrize("how", ["handler", "plain"])
@simulated(seeds=6, faults=("delay",))
async def test_value_that_is_written_after_its_removal_stays(sim: Simulation, how: str, away: str, again: str) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    await sim.settle()
    if how == "handler":
        await asyncio.gather(ann.do.send(again), bob.do.send(away), bob.do.send(again))
    else:
        ACTS[again](ann)
        ACTS[away](bob)
        ACTS[again](bob)
    await sim.settle()
    assert "x" in bob.tags.get() or "x" in bob.rows.get() or "x" in bob.card.get().tags
    assert values(ann) == values(bob)


@pytest.mark.parametrize(("away", "again"), PAIRS)
@simulated(seeds=3, faults=("delay",))
async def test_value_that_the_sender_of_a_removal_has_not_seen_is_removed(
    sim: Simulation, away: str, again: str
) -> None:
    """Ann's write is acknowledged, and in one of the rounds Bob has not heard of it when his removal is made."""
    space = sim.runtime("bob").space(SPACE)
    for number in range(ROUNDS):
        ann = await sim.runtime("ann").space(SPACE).open(Shelf, f"s{number}")
        bob = await space.open(Shelf, f"s{number}")
        await sim.settle()
        before = values(bob)
        await ann.do.send(again)
        is_unseen = values(bob) == before
        await space.transact(ACTS[away], bob)
        await sim.settle()
        assert values(ann) == values(bob) == before
        if is_unseen:
            return
    raise AssertionError(f"in {ROUNDS} rounds Bob had always heard of what Ann wrote")


@pytest.mark.parametrize(("away", "again"), PAIRS)
@simulated(seeds=3, faults=())
async def test_value_that_is_written_while_the_sender_of_a_removal_has_no_connection_is_removed(
    sim: Simulation, away: str, again: str
) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    await sim.settle()
    before = values(bob)
    with sim.offline("bob"):
        await ann.do.send(again)
        removed = asyncio.ensure_future(bob.do.send(away))
        await sim.advance(seconds=0.01)
    await removed
    await sim.settle()
    assert values(ann) == values(bob) == before


@simulated(seeds=3, faults=())
async def test_intents_that_land_after_a_deletion_start_from_the_default(sim: Simulation) -> None:
    ann = await sim.runtime("ann").space(SPACE).open(Shelf, "s")
    bob = await sim.runtime("bob").space(SPACE).open(Shelf, "s")
    ann.number.set(70)
    ann.lines.set((8, 9))
    ann.marks.set(frozenset({"other"}))
    ann.card.at(lambda card: card.count).set(70)
    await sim.settle()
    with sim.offline("bob"):
        for each in (ann.number, ann.lines, ann.marks, ann.card.at(lambda card: card.count)):
            each.delete()
        bob.number.increment()
        bob.lines.push(3)
        bob.marks.add("new")
        bob.card.at(lambda card: card.count).increment()
        await sim.advance(seconds=1)
    await sim.settle()
    for shelf in (ann, bob):
        assert (shelf.number.get(), shelf.lines.get(), shelf.card.get()) == (6, (1, 2, 3), Card(count=6))
        assert shelf.marks.get() == {"old", "new"}
