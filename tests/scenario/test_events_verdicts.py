"""The meaning of each kind of verdict for an event: retried, refused for good, or left alone while offline."""

from __future__ import annotations

import asyncio

import pytest

from headwater import Cell, CommitConvergenceError, Piece, Policy, RuleRefusedError, cell, handler
from headwater.testing import Simulation, simulated
from tests.scenario.events_kit import Front, forbidden

SHORT = Policy(retry_window_ms=2_000)


class Desk(Piece, name="verdicts.Desk"):
    lines: Cell[tuple[str, ...]] = cell(default=())

    @handler
    def add(self, text: str) -> int:
        self.lines.push(text)
        return len(self.lines.get())


@simulated(seeds=5, faults=())
async def test_stale_commit_is_retried_and_its_conflicts_are_counted(sim: Simulation) -> None:
    rt = sim.runtime("ann", policy=SHORT)
    desk = await rt.space("s").open(Desk, "d")
    with Front(sim) as front:
        front.reject("add", 3)
        assert await desk.add.send("x") == 1
        assert front.rejected["add"] == 3
    (row,) = rt.intents()
    assert (row.state, row.attempts, row.conflicts) == ("landed", 4, 3)
    assert "the rival's handler" in row.winner


@simulated(seeds=5, faults=())
async def test_refused_commit_is_not_retried(sim: Simulation) -> None:
    rt = sim.runtime("ann", policy=SHORT)
    desk = await rt.space("s").open(Desk, "d")
    with Front(sim) as front:
        front.reject("add", 1, forbidden)
        with pytest.raises(RuleRefusedError):
            await desk.add.send("x")
        assert front.judged["add"] == 1
    (row,) = rt.intents()
    assert (row.state, row.attempts, row.conflicts) == ("failed", 1, 0)
    assert await desk.lines.pull() == ()
    assert await desk.add.send("y") == 1


@simulated(seeds=5, faults=())
async def test_conflicts_longer_than_the_window_fail_the_event(sim: Simulation) -> None:
    rt = sim.runtime("ann", policy=SHORT)
    desk = await rt.space("s").open(Desk, "d")
    with Front(sim) as front:
        front.reject("add", 1_000_000)
        sent = asyncio.ensure_future(desk.add.send("x"))
        await sim.advance(seconds=30)
        with pytest.raises(CommitConvergenceError):
            await sent


@simulated(seeds=5, faults=())
async def test_time_without_a_connection_does_not_count_for_the_window(sim: Simulation) -> None:
    rt = sim.runtime("ann", policy=SHORT)
    desk = await rt.space("s").open(Desk, "d")
    with Front(sim) as front:
        front.reject("add", 3)
        sent = asyncio.ensure_future(desk.add.send("x"))
        while not front.rejected["add"]:
            await sim.advance(seconds=0.001)
        with sim.offline("ann"):
            await sim.advance(seconds=600)
        await sim.advance(seconds=10)
        assert await sent == 1
        assert front.rejected["add"] == 3


@simulated(seeds=5, faults=())
async def test_event_made_again_after_a_reconnection_counts_no_conflict(sim: Simulation) -> None:
    """Its commit never left: no other writer was in the way."""
    rt = sim.runtime("ann", policy=SHORT)
    desk = await rt.space("s").open(Desk, "d")
    await sim.settle()
    with sim.offline("ann"):
        sent = asyncio.ensure_future(desk.add.send("a"))
        await sim.advance(seconds=60)
    assert await sent == 1
    (row,) = rt.intents()
    assert (row.state, row.conflicts) == ("landed", 0)
    assert await desk.lines.pull() == ("a",)
