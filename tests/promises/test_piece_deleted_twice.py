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


class Diary(Piece, name="promises.deleted.Diary"):
    pages: Cell[tuple[str, ...]] = cell(default=())
    title: Cell[str] = cell(default="")
    mood: Cell[str] = cell(default="", scope="user")

    @computed
    def count(self) -> int:
        return len(self.pages.get())

    @handler
    def write(self, text: str) -> int:
        self.pages.push(text)
        return self.count.get()


@simulated(seeds=20, faults=("delay",))
async def test_documents_that_are_made_while_their_piece_is_deleted_do_not_stay(sim: Simulation) -> None:
    """An event and a plain write land before the deletion, during it, or after it. Only after it they are kept."""
    ann, bob = sim.runtime("ann").space("s"), sim.runtime("bob").space("s")
    diary = await ann.open(Diary, "d")
    await sim.settle()
    named = bob.piece(Diary, "d")
    await named.title.pull()

    async def act() -> None:
        await asyncio.sleep(sim.seed / 1_000)
        named.title.set("mine")
        await named.write.send("one")

    await asyncio.gather(ann.delete(diary), act())
    await sim.settle()
    is_there = bool((await ann.find(Diary)).items)
    again = ann.piece(Diary, "d")
    assert await again.pages.pull() == (("one",) if is_there else ())
    assert await again.count.pull() == int(is_there)
    if not is_there:
        assert await again.title.pull() in (
            "",
            "mine",
        )  # A plain write makes no piece, and may land after the deletion.


class Chain(Piece, name="promises.deleted.Chain"):
    pages: Cell[tuple[str, ...]] = cell(default=())
    marks: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def first(self) -> int:
        return len(self.marks.get()) * 0

    @computed
    def second(self) -> int:
        return self.first.get() + 1

    @computed
    def third(self) -> int:
        return self.second.get() + 1

    @effect
    def keep(self) -> None:
        self.first.get()

    @handler
    def write(self, text: str) -> int:
        self.pages.push(text)
        return self.third.get()


@simulated(seeds=10, faults=("delay", "drop"))
async def test_computeds_that_an_event_demands_do_not_fail_when_their_piece_is_deleted(sim: Simulation) -> None:
    """The deletion removes the results of all of them. One that was found clean, and did not run, runs first."""
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    failures: list[str] = []
    for rt in (ann, bob):
        rt.on_error(lambda error: failures.append(str(error)))
    chain = await ann.space("s").open(Chain, "c")
    await bob.space("s").open(Chain, "c")
    sent = asyncio.create_task(chain.write.send("one"))
    await asyncio.sleep(sim.seed % 7 / 200)
    await ann.space("s").delete(chain)
    assert await sent == 2
    await sim.settle()
    assert [each for each in failures if "connection" not in each] == []


@simulated(seeds=20, faults=("delay",))
async def test_event_of_a_program_that_only_names_a_piece_makes_it_again_while_it_is_deleted(sim: Simulation) -> None:
    """The record goes while the program asks who runs the piece. Nobody does then."""
    ann, bob = sim.runtime("ann").space("s"), sim.runtime("bob").space("s")
    chain = await ann.open(Chain, "c")
    await sim.settle()
    named = bob.piece(Chain, "c")
    await named.pages.pull()

    async def delete() -> None:
        await asyncio.sleep(sim.seed / 1_000)
        await ann.delete(chain)

    deleting = asyncio.create_task(delete())
    assert await named.write.send("one") == 2
    await deleting
    assert await named.third.pull() == 2
