"""A program opens pieces on a branch, and what it wrote there comes to main with a merge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import AuthoringError, Cell, HeadwaterError, Piece, cell, computed, handler
from tests.scenario.pieces_kit import run

SPACE, BRANCH = "shop", "sale"


class Price(Piece, name="promises.BranchPrice"):
    cents: Cell[int] = cell(default=100)

    @computed
    def double(self) -> int:
        return self.cents.get() * 2

    @handler
    def add(self, cents: int) -> None:
        self.cents.set(self.cents.get() + cents)


def _branch(action: str, folder: Path) -> None:
    command = [sys.executable, "-m", "headwater.cli", "branch", action, str(folder), SPACE, BRANCH]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


async def _added(folder: Path, cents: int, branches: Mapping[str, str] | None = None) -> int:
    async with headwater.open(folder, branches=branches) as rt:
        price = await rt.space(SPACE, user="ann").open(Price, "tea")
        await price.add.send(cents)
        return await price.double.pull()


def test_pieces_on_a_branch_are_apart_until_it_is_merged(tmp_path: Path) -> None:
    async def work() -> None:
        assert await _added(tmp_path, 1) == 202
        _branch("new", tmp_path)
        assert await _added(tmp_path, 10, {SPACE: BRANCH}) == 222
        assert await _added(tmp_path, 0) == 202
        _branch("merge", tmp_path)
        assert await _added(tmp_path, 0) == 222

    run(work)


def test_a_branch_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        await _added(tmp_path, 1)
        with pytest.raises(HeadwaterError, match="elsewhere"):
            await _added(tmp_path, 1, {SPACE: "elsewhere"})

    run(work)


@pytest.mark.parametrize("wrong", ["sale", {"shop": 1}, ["shop"]])
def test_branches_are_named_by_space(wrong: Any, tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(AuthoringError, match="write the branch of each space"):
            await headwater.open(tmp_path, branches=wrong)

    run(work)
