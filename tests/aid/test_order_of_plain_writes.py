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
from headwater import Cell, Piece, Refused, cell, handler
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

    @handler
    def file(self) -> str:
        self.log.push(self.note.get())
        return self.note.get()

    @handler
    def check(self) -> None:
        if not self.note.get():
            raise Refused("there is no note")


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
            if how == "handler":
                assert await bobs.file.send() == "mine"
            elif how == "transaction":
                assert await space.transact(bobs.note.get) == "mine"
            else:
                await bobs.check.send()

    asyncio.run(work())
