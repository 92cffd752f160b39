"""Mistakes of first programs: the message says what to write."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import AuthoringError, Cell, DirectoryInUseError, Piece, cell, computed
from tests.scenario.pieces_kit import serving


class Shelf(Piece, name="promises.first_steps.Shelf"):
    title: Cell[str] = cell(default="")


def test_open_without_await_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        opening: Any = headwater.open(tmp_path)
        with pytest.raises(AuthoringError, match=r"open\(\.\.\.\)\.space: .* rt = await headwater\.open\(\.\.\.\)"):
            opening.space("shop")
        with pytest.raises(AuthoringError, match=r"async with headwater\.open\(\.\.\.\) as rt"), opening:
            pass
        assert "not awaited yet" in repr(opening)
        async with opening as rt:
            assert rt.space("shop").name == "shop"

    headwater.run(main)


def test_connect_without_await_says_so() -> None:
    opening: Any = headwater.connect("ws://127.0.0.1:1", token="")
    with pytest.raises(AuthoringError, match=r"async with headwater\.connect\(\.\.\.\) as rt"):
        opening.space("shop")
    assert not hasattr(opening, "nonsense")


def test_connect_needs_no_token_of_an_open_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as address, headwater.connect(address) as rt:
            await rt.space("shop", user="ann").open(Shelf, "main")

    headwater.run(main)


def test_second_program_on_a_directory_is_told_to_connect(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path):
            with pytest.raises(DirectoryInUseError, match=r"serves the directory, connect to it with headwater\."):
                await headwater.open(tmp_path)

    headwater.run(main)


def test_type_of_a_computed_that_can_change_in_place_names_another() -> None:
    with pytest.raises(AuthoringError, match=r"the type of a stored value: .* Write Mapping\[str, float\]"):

        class Averages(Piece):
            @computed
            def averages(self) -> dict[str, float]:
                return {}


def test_star_import_does_not_replace_the_builtin_open() -> None:
    names: dict[str, Any] = {}
    exec("from headwater import *", names)
    assert names.get("open", builtins.open) is builtins.open
    assert names["Piece"] is headwater.Piece
    assert callable(headwater.open)
