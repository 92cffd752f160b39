"""A sink on an `each` of values shows rows that another runtime adds while the sink is being opened."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headwater import Cell, Piece, cell, computed, each, handler
from headwater.testing import Simulation, simulated

PIECES = 16
STEP_S = 0.000_1  # the network takes 0.1 to 1 ms each way


class Table(Piece):
    rows: Cell[Mapping[str, int]] = cell(default={})

    @each(rows)
    def doubles(self, row: Cell[int]) -> int:
        return row.get() * 2

    @computed
    def total(self) -> int:
        return sum(self.rows.get().values())

    @handler
    def fill(self, a: int, b: int) -> None:
        self.rows.key("a").set(a)
        self.rows.key("b").set(b)


@simulated(seeds=1, faults=())
async def test_sink_on_an_each_does_not_go_deaf_if_the_list_of_rows_arrives_before_the_rows(sim: Simulation) -> None:
    """The child set may be resumed for the sink without a run, and the new list of keys may reach the client before
    the cell that the child set reads. One piece for each moment at which the handler may be sent.
    """
    bob, ann = sim.runtime("bob").space("s"), sim.runtime("ann").space("s")
    tables = [await bob.open(Table, f"p{number}") for number in range(PIECES)]
    await sim.settle()
    shown: list[Mapping[str, int]] = [{}] * PIECES
    for number, table in enumerate(tables):

        def show(value: Mapping[str, int], number: int = number) -> None:
            shown[number] = dict(value)

        ann.piece(Table, f"p{number}").doubles.sink(show)
        await asyncio.sleep(number * STEP_S)
        await table.fill.send(1, 2)
    await sim.settle()
    assert shown == [{"a": 2, "b": 4}] * PIECES


@simulated(seeds=600, faults=("delay", "drop"))
async def test_sink_on_an_each_does_not_go_deaf_while_connections_drop(sim: Simulation) -> None:
    client = sim.runtime("ann").space("s").piece(Table, "p")
    table = await sim.runtime("bob").space("s").open(Table, "p")
    doubles: list[Mapping[str, int]] = []
    totals: list[int] = []

    async def look() -> None:
        await asyncio.sleep(sim.seed % 7 * 0.003)
        client.doubles.sink(lambda value: doubles.append(dict(value)))
        client.total.sink(totals.append)

    await asyncio.gather(look(), table.fill.send(1, 2))
    await sim.settle()
    assert (doubles[-1], totals[-1]) == ({"a": 2, "b": 4}, 3)
