"""A piece whose input leads into a row that is gone: after a restart it gets the same error as without one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, GoneError, Input, Piece, Runtime, UpstreamFailedError, cell, computed, each, given


class Card(Piece, name="inputs.Card"):
    title: Input[str] = given()
    note: Cell[str] = cell(default="-")

    @computed
    def loud(self) -> str:
        return self.title.get().upper()


class Board(Piece, name="inputs.Board"):
    titles: Cell[Mapping[str, str]] = cell(default={})

    @each(titles)
    def cards(self, title: Input[str]) -> Card:
        return Card(title=title)


class Label(Piece, name="inputs.Label"):
    loud: Input[str] = given()
    note: Input[str] = given()

    @computed
    def text(self) -> str:
        return f"{self.loud.get()} {self.note.get()}"


async def _made(rt: Runtime) -> tuple[Board, Any]:
    space = rt.space("s")
    board = await space.open(Board, "b", setup=lambda board: board.titles.set({"a": "tea"}))
    card = board.cards.get()["a"]
    label = await space.open(Label(loud=card.loud, note=card.note), "l")
    assert await label.text.pull() == "TEA -"
    return board, label


async def _check_that_it_is_gone(label: Any) -> None:
    with pytest.raises(UpstreamFailedError, match="GoneError"):
        await label.text.pull()
    for handle in (label.loud, label.note):
        with pytest.raises(GoneError):
            await handle.pull()


async def _check_that_it_comes_back(board: Board, label: Any) -> None:
    board.titles.key("a").set("milk")
    assert await label.text.pull() == "MILK -"


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("leaves", ["without a restart", "after a restart", "before a restart"])
def test_reader_of_a_row_that_left_gets_an_error(leaves: str, is_open: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            rt.on_error(lambda _: None)
            board, label = await _made(rt)
            if leaves != "after a restart":
                board.titles.key("a").delete()
            if leaves == "without a restart":
                await _check_that_it_is_gone(label)
                await _check_that_it_comes_back(board, label)
                return
        async with headwater.open(tmp_path) as rt:
            rt.on_error(lambda _: None)
            space = rt.space("s")
            board = await space.open(Board, "b") if is_open else space.piece(Board, "b")
            label = await space.open(Label, "l")
            if leaves == "after a restart":
                assert await label.text.pull() == "TEA -"
                board.titles.key("a").delete()
            await _check_that_it_is_gone(label)
            await _check_that_it_comes_back(board, label)

    headwater.run(work)
