"""A deleted piece leaves no derived value. If another runtime deletes it twice, its values come back where it is open.

The second deletion changes nothing that a node of the piece reads. It removes the output of the node, which counts as a
change of that node (I1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headwater import Cell, Piece, cell, computed, each, effect, fold, given, handler
from headwater.clock import VirtualClock
from headwater.testing import Simulation, simulated


class Row(Piece, name="twice.Row"):
    number: Cell[int] = given()

    @computed
    def double(self) -> int:
        return self.number.get() * 2

    @effect
    def keep(self) -> None:
        self.double.get()


class Sheet(Piece, name="twice.Sheet"):
    factor: Cell[int] = cell(default=1)
    numbers: Cell[Mapping[str, int]] = cell(default={"a": 3})

    @computed
    def tens(self) -> int:
        return self.factor.get() * 10

    @computed
    def hundreds(self) -> int:
        return self.tens.get() * 10

    @each(numbers)
    def rows(self, number: Cell[int]) -> Row:
        return Row(number=number)

    @each(numbers)
    def plus(self, number: Cell[int]) -> int:
        return number.get() + 1

    total = fold(numbers, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @effect
    def keep(self) -> None:
        _ = self.hundreds.get(), self.plus.get(), self.total.get()

    @handler
    def put(self, factor: int, number: int) -> None:
        self.factor.set(factor)
        self.numbers.key("a").set(number)


def shown(sheet: Sheet) -> tuple[Any, ...]:
    doubles = [row.double.get() for row in sheet.rows.get().values()]
    return sheet.tens.get(), sheet.hundreds.get(), dict(sheet.plus.get()), sheet.total.get(), doubles


DEFAULTS = (10, 100, {"a": 4}, 3, [6])


@simulated(seeds=60, faults=("delay", "drop"))
async def test_derived_values_of_an_open_piece_come_back_after_each_deletion(sim: Simulation) -> None:
    """With an even seed the other runtime has opened the piece clean, without a run."""
    ann = sim.runtime("ann").space("s")
    sheet = await ann.open(Sheet, "p")
    await sheet.put.send(5, 8)
    other = await sim.runtime("bob").space("s").open(Sheet, "p")
    await sim.settle()
    if sim.seed % 2 == 0:
        await ann.stop(sheet)
        await sim.crash("bob")
        other = await sim.runtime("bob").space("s").open(Sheet, "p")
        await sim.settle()
    for _ in range(3):
        await ann.delete(ann.piece(Sheet, "p"))
        await sim.settle()
        assert shown(other) == DEFAULTS
    await other.put.send(2, 1)
    await sim.settle()
    assert shown(other) == (20, 200, {"a": 2}, 1, [2])


@simulated(seeds=60, faults=("delay", "drop"))
async def test_derived_values_come_back_if_deletions_meet_results_that_are_on_their_way(sim: Simulation) -> None:
    draws = VirtualClock(seed=sim.seed).randomness("moments")
    ann = sim.runtime("ann").space("s")
    sheet = await ann.open(Sheet, "p")
    await sheet.put.send(5, 8)
    other = await sim.runtime("bob").space("s").open(Sheet, "p")
    for _ in range(draws.randint(2, 5)):
        await asyncio.sleep(draws.random() * draws.choice((0.001, 0.01, 0.1)))
        await ann.delete(ann.piece(Sheet, "p"))
    await sim.settle()
    assert shown(other) == DEFAULTS


class Tally(Piece, name="twice.Tally"):
    n: Cell[int] = cell(default=1)

    @computed
    def double(self) -> int:
        return self.n.get() * 2

    @computed
    def more(self) -> int:
        return self.double.get() + 1

    @handler
    def add(self) -> None:
        self.n.increment(1)


@simulated(seeds=3, faults=("delay",))
async def test_results_on_their_way_do_not_stay_when_their_piece_is_deleted(sim: Simulation) -> None:
    ann, bob = sim.runtime("ann").space("s"), sim.runtime("bob")
    tally = await ann.open(Tally, "t")
    await tally.add.send()
    assert await tally.double.pull() == 4
    tally.add.post()
    assert await tally.more.pull() in (5, 7)
    await ann.delete(tally)
    await sim.settle()
    members = ("n", "double", "more")
    assert [await bob.cell("s", f"t:{each}", int, default=-1).pull() for each in members] == [-1, -1, -1]
