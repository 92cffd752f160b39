"""The result of a node that fails later, or that the engine refuses, is no result of the node's present inputs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater import Cell, Piece, Runtime, cell, computed, handler
from headwater.engine import Limits
from headwater.errors import UpstreamFailedError
from headwater.runtime import LocalDirectory
from headwater.testing import Simulation, simulated
from tests.scenario.pieces_kit import run


class Tenfold(Piece, name="aid.Tenfold"):
    n: Cell[int] = cell(default=0)

    @computed
    def tenfold(self) -> int:
        if self.n.get() == 3:
            raise ValueError("three")
        return self.n.get() * 10

    @handler
    def put(self, n: int) -> None:
        self.n.set(n)


@simulated(seeds=2, faults=())
async def test_result_of_an_earlier_run_is_not_sent_when_its_failed_node_is_stopped(sim: Simulation) -> None:
    ann, bob = sim.runtime("ann"), sim.runtime("bob")
    space = ann.space("s")
    piece, other = [await space.open(Tenfold, name) for name in ("piece", "other")]
    for each in (piece, other):
        await each.put.send(1)
        await each.tenfold.pull()
    await sim.settle()
    channel = ann.channel("s")
    assert channel is not None
    other.n.set(2)
    await other.tenfold.pull()
    while not channel.replica.tier.is_under_way():
        await asyncio.sleep(0)
    piece.n.set(2)
    assert await piece.tenfold.pull() == 20
    piece.n.set(3)
    with pytest.raises(UpstreamFailedError):
        await piece.tenfold.pull()
    await space.stop(piece)
    await sim.settle()
    for runtime in (ann, bob):
        assert await runtime.cell("s", "piece:n", int).pull() == 3
        assert await runtime.cell("s", "piece:tenfold", int).pull() == 10, "20 is no result of 3, and was never sent"


class Copies(Piece, name="aid.Copies"):
    n: Cell[int] = cell(default=1)

    @computed
    def texts(self) -> tuple[str, ...]:
        return ("z" * 1_000,) * self.n.get()


def test_node_whose_result_was_refused_is_not_clean_after_restart(tmp_path: Path) -> None:
    limits = Limits(commit_bytes=10_000)

    async def work() -> None:
        for expected in ("", "20 copies are too long for a commit", "and again"):
            async with LocalDirectory(tmp_path, limits=limits) as data, Runtime(data, identity="one") as rt:
                rt.on_error(lambda _: None)
                piece = await rt.space("s").open(Copies, "c")
                await piece.texts.pull()
                await rt.durable()
                if expected:
                    with pytest.raises(UpstreamFailedError, match="over the limit"):
                        await piece.texts.pull()
                piece.n.set(20)
                await rt.durable()

    run(work)
