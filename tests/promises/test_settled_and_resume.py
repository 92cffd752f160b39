"""`settled` waits for lanes, a restart counts its clean nodes, and `Policy.unobserved` stores no runs of a space."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater import AuthoringError, Cell, Piece, Policy, Runtime, cell, computed, handler
from tests.scenario.pieces_kit import run

RUNS: list[str] = []


class Tally(Piece, name="promises.Tally"):
    n: Cell[int] = cell(default=0)

    @computed
    def double(self) -> int:
        RUNS.append(self.ctx.name)
        return self.n.get() * 2

    @handler
    def up(self) -> None:
        self.n.set(self.n.get() + 1)


def test_settled_waits_for_events_that_wait_for_their_turn(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            tally = await rt.space("s", user="ann").open(Tally, "t")
            await rt.settled()
            for _ in range(50):
                tally.up.post()
            await rt.settled()
            assert tally.n.get() == 50

    run(work)


async def _pulled(rt: Runtime, space: str) -> int:
    tally = await rt.space(space, user="ann").open(Tally, space)
    return await tally.double.pull()


def test_a_runtime_counts_the_nodes_that_are_clean_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        for expected in (0, 1):
            async with headwater.open(tmp_path) as rt:
                assert await _pulled(rt, "s") == 0
                await rt.durable()
                assert rt.resume_counts["clean"] == expected

    run(work)


def test_nodes_of_an_unobserved_space_run_at_each_start(tmp_path: Path) -> None:
    async def work() -> None:
        policy = Policy(unobserved=("scratch",))
        for expected in (["kept", "scratch"], ["scratch"]):
            RUNS.clear()
            async with headwater.open(tmp_path, policy=policy) as rt:
                for space in ("kept", "scratch"):
                    await _pulled(rt, space)
                await rt.durable()
            assert expected == RUNS

    run(work)


def test_a_policy_says_how_spaces_are_named() -> None:
    with pytest.raises(AuthoringError, match=r"unobserved='scratch'.*write the names of spaces"):
        Policy(unobserved="scratch")
