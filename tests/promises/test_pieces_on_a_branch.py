"""A program opens pieces on a branch, and what it wrote there comes to main with a merge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import AuthoringError, Cell, HeadwaterError, Piece, cell, computed, each, fold, given, handler
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


class Line(Piece, name="promises.BranchLine"):
    cents: Cell[int] = given()

    @computed
    def double(self) -> int:
        return self.cents.get() * 2


class Basket(Piece, name="promises.BranchBasket"):
    prices: Cell[Mapping[str, int]] = cell(default={})

    @each(prices)
    def lines(self, cents: Cell[int]) -> Line:
        return Line(cents=cents)

    total = fold(prices, start=0, add=lambda sum_, cents: sum_ + cents, remove=lambda sum_, cents: sum_ - cents)


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


async def _basket(folder: Path, new: Mapping[str, int], branches: Mapping[str, str] | None = None) -> object:
    async with headwater.open(folder, branches=branches) as rt:
        basket = await rt.space(SPACE, user="ann").open(Basket, "ann")
        for key, cents in new.items():
            basket.prices.key(key).set(cents)
        await rt.settled()
        doubles = {key: await line.double.pull() for key, line in (await basket.lines.pull()).items()}
        return await basket.total.pull(), doubles


def test_derived_values_do_not_collide_and_are_derived_again_after_a_merge(tmp_path: Path) -> None:
    async def work() -> None:
        await _basket(tmp_path, {"tea": 1})
        _branch("new", tmp_path)
        await _basket(tmp_path, {"milk": 50}, {SPACE: BRANCH})
        assert await _basket(tmp_path, {"oats": 7}) == (8, {"tea": 2, "oats": 14})
        _branch("merge", tmp_path)
        merged = (58, {"tea": 2, "oats": 14, "milk": 100})
        assert await _basket(tmp_path, {}) == merged
        assert await _basket(tmp_path, {}) == merged  # as it was stored

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
