"""A cell that was renamed without `was=` is noticed when the piece is opened."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, Runtime, cell, each, given, handler


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    caplog.clear()
    return found


class Old(Piece, name="promises.Cart"):
    lines: Cell[tuple[str, ...]] = cell(default=())
    note: Cell[str] = cell(default="")
    mine: Cell[str] = cell(default="", scope="user")

    @handler
    def add(self, sku: str) -> None:
        self.lines.push(sku)
        self.mine.set(sku)


class Renamed(Piece, name="promises.Cart"):
    items: Cell[tuple[str, ...]] = cell(default=())
    ours: Cell[str] = cell(default="", scope="user")


class Claimed(Piece, name="promises.Cart"):
    items: Cell[tuple[str, ...]] = cell(default=(), was="lines")
    ours: Cell[str] = cell(default="", scope="user", was="mine")


async def _open(rt: Runtime, cls: type[Piece]) -> Any:
    return await rt.space("shop", user="ann").open(cls, "ann")


def test_renamed_cell_without_was_warns_at_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            await (await _open(rt, Old)).add.send("tea")
        assert _warnings(caplog) == []
        async with headwater.open(tmp_path) as rt:
            await _open(rt, Renamed)
        lines, mine = _warnings(caplog)  # Nothing was stored under "note".
        assert "'ann' of shop" in lines
        assert "was='lines'" in lines
        assert "was='mine'" in mine

    headwater.run(main)


def test_renamed_cell_with_was_does_not_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            await (await _open(rt, Old)).add.send("tea")
        async with headwater.open(tmp_path) as rt:
            cart = await _open(rt, Claimed)
            assert (cart.items.get(), cart.ours.get()) == (("tea",), "tea")

    headwater.run(main)
    assert _warnings(caplog) == []


class OldRow(Piece, name="promises.Row"):
    n: Cell[int] = given()
    seen: Cell[bool] = cell(default=False)

    @handler
    def see(self) -> None:
        self.seen.set(True)


class Row(Piece, name="promises.Row"):
    n: Cell[int] = given()
    read: Cell[bool] = cell(default=False)


class OldTable(Piece, name="promises.Table"):
    numbers: Cell[Mapping[str, int]] = cell(default={"a": 1})

    @each(numbers)
    def rows(self, n: Cell[int]) -> OldRow:
        return OldRow(n=n)


class Table(Piece, name="promises.Table"):
    numbers: Cell[Mapping[str, int]] = cell(default={"a": 1})

    @each(numbers)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n)


def test_renamed_cell_of_a_child_without_was_warns_at_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await _open(rt, OldTable)
            await table.rows.get()["a"].see.send()
        async with headwater.open(tmp_path) as rt:
            await _open(rt, Table)
        (warning,) = _warnings(caplog)
        assert "was='seen'" in warning

    headwater.run(main)
