"""A reader of a child sees what its keepers make of it, also if the piece at the top is only named or was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Input, Piece, UpstreamFailedError, cell, child, computed, each, given


class Leaf(Piece, name="rows.Leaf"):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


class Row(Piece, name="rows.Row"):
    n: Cell[int] = given()
    other: Input[int] = given()

    @child
    def leaf(self) -> Leaf | None:
        n = self.n.get()
        return None if n == 0 else Leaf(n=self.n) if n < 10 else Leaf(n=self.other)


class Board(Piece, name="rows.Board"):
    numbers: Cell[Mapping[str, int]] = cell(default={"a": 1, "b": 2})
    other: Cell[int] = cell(default=100)

    @each(numbers)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n, other=self.other)


class Label(Piece, name="rows.Label"):
    twice: Input[int] = given()

    @computed
    def text(self) -> str:
        return f"{self.twice.get()}"


async def _text_of(label: Label) -> str:
    try:
        return await label.text.pull()
    except UpstreamFailedError as error:
        return type(error.__cause__).__name__


@pytest.mark.parametrize("top", ["open", "named", "stopped", "resumed and stopped"])
def test_reader_of_a_child_of_a_row_sees_what_its_keepers_make(top: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            await rt.space("s").open(Board, "b")
        async with headwater.open(tmp_path) as rt:
            rt.on_error(lambda _: None)
            space = rt.space("s")
            board = space.piece(Board, "b") if top == "named" else await space.open(Board, "b")
            row: Any = (await board.rows.pull())["a"]
            leaf = await row.leaf.pull()
            label = await space.open(Label(twice=leaf.twice), "l")
            shown: list[str] = []
            label.text.sink(shown.append)
            await rt.settled()
            if "stopped" in top:
                await space.stop(board)
                await rt.settled()
            found = []
            for n in (5, 12, 0, 3, None, 4):
                if n is None:
                    board.numbers.key("a").delete()
                else:
                    board.numbers.key("a").set(n)
                await rt.settled()
                found.append(await _text_of(label))
                if n == 12:
                    board.other.set(7)
                    await rt.settled()
                    found.append(await _text_of(label))
            assert found == ["10", "200", "14", "GoneError", "6", "GoneError", "8"]
            assert shown == ["2", "10", "200", "14", "6", "8"]

    headwater.run(work)
