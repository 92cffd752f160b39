"""A piece that is stopped takes no results of other pieces with it: no data changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater import Cell, Input, Piece, cell, computed, given
from headwater.testing import Simulation, simulated


class Source(Piece, name="aid.stopped.Source"):
    n: Cell[int] = cell(default=1)

    @computed
    def double(self) -> int:
        return self.n.get() * 2


class Reader(Piece, name="aid.stopped.Reader"):
    of: Input[int] = given()

    @computed
    def more(self) -> int:
        return self.of.get() + 1


@pytest.mark.parametrize("is_reader_stopped", [False, True])
def test_result_is_stored_although_the_piece_that_it_read_is_stopped_before_it_is_sent(is_reader_stopped: bool) -> None:
    @simulated(seeds=2, faults=())
    async def story(sim: Simulation) -> None:
        ann = sim.runtime("ann")
        space = ann.space("s")
        source: Any = await space.open(Source, "source")
        reader: Any = await space.open(Reader(of=source.double), "reader")
        other: Any = await space.open(Source, "other")
        assert (await reader.more.pull(), await other.double.pull()) == (3, 2)
        await sim.settle()
        channel = ann.channel("s")
        assert channel is not None
        other.n.set(2)
        await other.double.pull()
        while not channel.replica.tier.is_under_way():
            await asyncio.sleep(0)
        source.n.set(5)
        assert await reader.more.pull() == 11
        await space.stop(source)
        if is_reader_stopped:
            await space.stop(reader)
        await sim.settle()
        assert await sim.runtime("bob").cell("s", "reader:more", int).pull() == 11
        runs = sim.runs(Reader.more)
        await sim.crash("ann")
        space = sim.runtime("ann").space("s")
        source = await space.open(Source, "source")
        reader = await space.open(Reader(of=source.double), "reader")
        assert await reader.more.pull() == 11
        assert sim.runs(Reader.more) == runs, "it was clean"

    story()
