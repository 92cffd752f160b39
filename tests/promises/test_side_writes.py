"""A reader of a cell demands the computeds and materializers that write it, and nothing else keeps them running."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Input, Piece, cell, child, computed, given, handler, materializer
from headwater.testing import Simulation, simulated
from tests.scenario.pieces_kit import run

SPACE = "shop"
RUNS: list[str] = []


class Reader(Piece, name="promises.SideReader"):
    tenfold: Input[int] = given()

    @computed
    def next(self) -> int:
        return self.tenfold.get() + 1

    @handler
    def read(self) -> int:
        return self.tenfold.get()


class Side(Piece, name="promises.Side"):
    source: Cell[int] = cell(default=1)
    tenfold: Cell[int] = cell(default=0)
    hundredfold: Cell[int] = cell(default=0)

    @computed(writes=(tenfold,))
    def writer(self) -> int:
        RUNS.append("writer")
        self.tenfold.set(self.source.get() * 10)
        return self.source.get()

    @materializer(envelope=(hundredfold,))
    def posted(self) -> None:
        RUNS.append("posted")
        self.hundredfold.set(self.source.get() * 100)

    @computed
    def next(self) -> int:
        return self.tenfold.get() + 1

    @child
    def reader(self) -> Reader:
        return Reader(tenfold=self.tenfold)

    @handler
    def read(self) -> tuple[int, int]:
        return self.tenfold.get(), self.hundredfold.get()


async def _pull_of_cell(side: Side) -> int:
    return await side.tenfold.pull()


async def _pull_of_reader(side: Side) -> int:
    return await side.next.pull() - 1


async def _pull_of_child(side: Side) -> int:
    return await (await side.reader.pull()).next.pull() - 1


async def _handler(side: Side) -> int:
    return (await side.read.send())[0]


async def _handler_of_child(side: Side) -> int:
    return await (await side.reader.pull()).read.send()


LOOKS = [_pull_of_cell, _pull_of_reader, _pull_of_child, _handler, _handler_of_child]


@pytest.mark.parametrize("look", LOOKS)
@simulated(seeds=2)
async def test_a_reader_of_a_cell_demands_the_computed_that_writes_it(
    sim: Simulation, look: Callable[[Side], Coroutine[Any, Any, int]]
) -> None:
    rt = sim.runtime("ann")
    side = await rt.space(SPACE).open(Side, "side")
    await sim.settle()
    assert await look(side) == 10
    side.source.set(4)
    assert await look(side) == 40


@simulated(seeds=2)
async def test_a_computed_with_declared_writes_stops_running_when_its_last_look_ends(sim: Simulation) -> None:
    rt = sim.runtime("ann")
    side = await rt.space(SPACE).open(Side, "side")
    seen: list[int] = []
    sink = side.tenfold.sink(seen.append)
    await sim.settle()
    side.source.set(2)
    await sim.settle()
    assert seen == [10, 20]
    sink.close()
    RUNS.clear()
    side.source.set(3)
    await sim.settle()
    assert set(RUNS) == {"posted"}


@simulated(seeds=2)
async def test_reading_a_cell_of_a_piece_that_is_not_open_runs_the_nodes_that_write_it(sim: Simulation) -> None:
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    await ann.space(SPACE).open(Side, "side")
    await sim.settle()
    await ann.space(SPACE).stop(ann.space(SPACE).piece(Side, "side"))
    named = bob.space(SPACE).piece(Side, "side")
    named.source.set(5)
    assert await named.read.send() == (50, 500)
    named.source.set(6)
    assert (await named.tenfold.pull(), await named.hundredfold.pull()) == (60, 600)


@simulated(seeds=2)
async def test_an_observer_of_a_stopped_piece_still_demands_the_writers(sim: Simulation) -> None:
    space = sim.runtime("ann").space(SPACE)
    side = await space.open(Side, "side")
    seen: list[tuple[str, int]] = []
    side.tenfold.sink(lambda n: seen.append(("ten", n)))
    side.hundredfold.sink(lambda n: seen.append(("hundred", n)))
    await sim.settle()
    await space.stop(side)
    side.source.set(7)
    await sim.settle()
    assert {("ten", 70), ("hundred", 700)} <= set(seen)


def test_a_resumed_reader_of_a_cell_has_the_nodes_that_write_it_registered(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            side = await rt.space(SPACE).open(Side, "side")
            assert await side.next.pull() == 11
            await rt.durable()
            await rt.space(SPACE).stop(side)
            side.source.set(5)
            assert await side.next.pull() == 51
        async with headwater.open(tmp_path) as rt:
            named = rt.space(SPACE).piece(Side, "side")
            named.source.set(6)
            assert await named.next.pull() == 61
            assert await named.read.send() == (60, 600)

    run(work)


class Own(Piece, name="promises.OwnMaterializer"):
    mine: Cell[int] = cell(default=0, scope="user")
    shadow: Cell[int] = cell(default=0, scope="user")
    here: Cell[int] = cell(default=0, scope="session")
    echo: Cell[int] = cell(default=0, scope="session")

    @materializer(envelope=(shadow,), scope="user")
    def of_user(self) -> None:
        RUNS.append(f"user {self.mine.get()}")
        self.shadow.set(self.mine.get() + 100)

    @materializer(envelope=(echo,), scope="session")
    def of_session(self) -> None:
        RUNS.append("session")
        self.echo.set(self.here.get() + 1_000)


@simulated(seeds=2)
async def test_a_materializer_of_a_user_or_session_runs_for_each_open_scope(sim: Simulation) -> None:
    rt = sim.runtime("owner")
    ann = await rt.space(SPACE, user="ann").open(Own, "own")
    bob = await rt.space(SPACE, user="bob").open(Own, "own")
    await sim.settle()
    assert [ann.shadow.get(), bob.shadow.get(), ann.echo.get()] == [100, 100, 1_000]
    ann.mine.set(1)
    ann.here.set(1)
    bob.mine.set(2)
    await sim.settle()
    assert [ann.shadow.get(), bob.shadow.get(), ann.echo.get()] == [101, 102, 1_001]
    await rt.space(SPACE, user="bob").stop(bob)
    RUNS.clear()
    bob.mine.set(3)
    ann.mine.set(4)
    await sim.settle()
    assert set(RUNS) == {"user 4"}
    assert ann.shadow.get() == 104
