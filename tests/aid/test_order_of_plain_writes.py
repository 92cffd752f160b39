"""Writes of one runtime to one document land in the order in which they were made, also if some are made again.

Transactions and handlers that come later read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

import headwater
from headwater import Cell, Piece, Refused, cell, computed, handler
from headwater.runtime import Space
from headwater.testing import Simulation, simulated


def put_b(number: int, rows: Mapping[str, int]) -> Mapping[str, int]:
    return {**rows, "b": number}


class Table(Piece):
    rows: Cell[Mapping[str, int]] = cell(default={})

    @handler
    def put(self, n: int) -> None:
        self.rows.set({"b": n})


@pytest.mark.parametrize(
    "writes",
    [["set", "key"], ["key", "handler"], ["set", "key", "update"], ["key", "set", "key"]],
    ids=lambda writes: " then ".join(writes),
)
@simulated(faults=(), seeds=12)
async def test_last_write_to_a_key_wins_if_earlier_ones_are_made_again(sim: Simulation, writes: list[str]) -> None:
    ann, bob = [await sim.runtime(user).space("s", user=user).open(Table, "t") for user in ("ann", "bob")]
    ann.rows.set({"b": 0})
    await sim.settle()
    bob.rows.set({"a": 0})  # It removes b. Writes of Ann that replace b are rejected if they arrive later.
    for number, write in enumerate(writes, 1):
        match write:
            case "set":
                ann.rows.set({"b": number})
            case "key":
                ann.rows.key("b").set(number)
            case "update":
                ann.rows.update(partial(put_b, number))
            case _:
                await ann.put.send(number)
    await sim.settle()
    assert (await bob.rows.pull()).get("b") in (None, len(writes))


class Number(Piece):
    n: Cell[int] = cell(default=2)


@simulated(faults=(), seeds=3)
async def test_writes_after_an_update_are_shown_once_and_in_order(sim: Simulation) -> None:
    number = await sim.runtime("ann").space("s", user="ann").open(Number, "n")
    await sim.settle()
    shown: list[int] = []
    number.n.sink(shown.append)
    await sim.settle()
    number.n.update(lambda was: was + 2)
    number.n.set(0)
    number.n.set(3)
    await sim.settle()
    assert shown == [2, 3]


class Desk(Piece, name="aid.Desk"):
    size: Cell[int] = cell(default=0)
    note: Cell[str] = cell(default="", scope="user")
    log: Cell[tuple[str, ...]] = cell(default=())
    drawers: Cell[Mapping[str, int]] = cell(default={})

    @computed(debounce_ms=1)
    def label(self) -> str:
        return f"size {self.size.get()}"

    @handler
    def file(self) -> str:
        self.log.push(self.note.get())
        return self.note.get()

    @handler
    def check(self) -> None:
        if not self.note.get():
            raise Refused("there is no note")

    def open_drawer(self) -> bool:
        self.drawers.key("opened").increment()
        return "size 5" in self.drawers.get()


@pytest.mark.parametrize("how", ["handler", "transaction", "refusal"])
def test_value_that_was_written_before_is_read_also_if_its_document_had_to_arrive(tmp_path: Path, how: str) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            anns = await rt.space("s", user="ann").open(Desk, "d")
            await rt.settled()
            await rt.durable()
            space = rt.space("s", user="bob")
            bobs = space.piece(Desk, "d")
            bobs.note.set("mine")  # The document is not here yet: the write waits for it.
            await anns.size.pull()
            await check_note(space, bobs, "mine", how)

    asyncio.run(work())


@pytest.mark.parametrize("how", ["handler", "transaction", "refusal"])
@simulated(faults=(), seeds=3)
async def test_value_that_was_written_before_is_read_also_if_its_write_waits(sim: Simulation, how: str) -> None:
    space = sim.runtime("ann").space("s", user="ann")
    desk = await space.open(Desk, "d")
    assert await desk.label.pull() == "size 0"
    desk.size.set(5)
    desk.note.update(lambda _: desk.label.get())  # The label is stale for a moment: the write waits for it.
    await check_note(space, desk, "size 5", how)


@simulated(faults=("delay",), seeds=3)
async def test_transactions_that_begin_in_every_turn_of_the_loop_follow_an_earlier_write(sim: Simulation) -> None:
    """Also one that begins between the moment at which the write has its turn and the moment at which it is made."""
    space = sim.runtime("ann").space("s", user="ann")
    desk = await space.open(Desk, "d")
    assert await desk.label.pull() == "size 0"
    desk.size.set(5)
    desk.drawers.update(lambda drawers: {**drawers, desk.label.get(): 0})
    opening: list[asyncio.Future[bool]] = []
    while not desk.drawers.get():
        opening.append(asyncio.ensure_future(space.transact(desk.open_drawer)))
        await asyncio.sleep(0)  # With slow messages, a turn of the loop may take a moment.
    assert all(await asyncio.gather(*opening))
    assert await desk.drawers.pull() == {"size 5": 0, "opened": len(opening)}


async def check_note(space: Space, desk: Desk, note: str, how: str) -> None:
    if how == "handler":
        assert await desk.file.send() == note
    elif how == "transaction":
        assert await space.transact(desk.note.get) == note
    else:
        await desk.check.send()
