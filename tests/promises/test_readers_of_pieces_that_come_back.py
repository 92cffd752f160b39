"""A piece that reads a row or a piece elsewhere never keeps a value of one that left, and follows the one that comes
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headwater import (
    Cell,
    HandlerFailed,
    Input,
    Piece,
    Runtime,
    Space,
    UpstreamFailedError,
    cell,
    computed,
    each,
    given,
    handler,
)


class Card(Piece, name="back.Card"):
    title: Cell[str] = given()
    note: Cell[str] = cell(default="")

    @computed
    def loud(self) -> str:
        return self.title.get().upper()


class Board(Piece, name="back.Board"):
    titles: Cell[Mapping[str, str]] = cell(default={"a": "a"})

    @each(titles)
    def cards(self, title: Cell[str]) -> Card:
        return Card(title=title)

    @handler
    def take(self) -> None:
        self.titles.key("a").delete()

    @handler
    def put(self, title: str) -> None:
        self.titles.key("a").set(title)


class Outside(Piece, name="back.Outside"):
    loud: Input[str] = given()
    kept: Cell[str] = cell(default="")

    @computed
    def shown(self) -> str:
        return f"shown {self.loud.get()}"

    @handler
    def keep(self) -> str:
        self.kept.set(self.shown.get())
        return self.shown.get()


async def boards(rt: Runtime) -> tuple[Space, Board, Outside]:
    space = rt.space("s")
    board = await space.open(Board, "b")
    card = (await board.cards.pull())["a"]
    return space, board, await space.open(Outside(loud=card.loud), "o")


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "named"])
@pytest.mark.parametrize("is_settled", [True, False], ids=["settled", "at once"])
def test_a_handler_commits_the_value_of_a_row_that_came_back(*, is_open: bool, is_settled: bool) -> None:
    async def work() -> None:
        async with Runtime() as rt:
            space, board, outside = await boards(rt)
            if not is_open:
                await space.stop(outside)
            assert await outside.shown.pull() == "shown A"
            await rt.settled()
            await board.take.send()
            if is_settled:
                await rt.settled()
            await board.put.send("z")
            assert await outside.keep.send() == "shown Z"
            assert await outside.kept.pull() == "shown Z"
            assert await outside.shown.pull() == "shown Z"

    asyncio.run(work())


def test_a_sink_below_a_reader_of_a_row_follows_the_row_that_came_back() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            _, board, outside = await boards(rt)
            seen: list[str] = []
            outside.shown.sink(seen.append)
            await rt.settled()
            for title in "zy":
                await board.take.send()
                await rt.settled()
                with pytest.raises(UpstreamFailedError, match="has ended"):
                    await outside.shown.pull()
                with pytest.raises(HandlerFailed, match="has ended"):
                    await outside.keep.send()
                await board.put.send(title)
                await rt.settled()
            assert seen == ["shown A", "shown Z", "shown Y"]

    asyncio.run(work())


class Source(Piece, name="back.Source"):
    n: Cell[int] = cell(default=1)
    tens: Cell[int] = cell(default=0)

    @computed
    def double(self) -> int:
        return self.n.get() * 2

    @computed(writes=(tens,))
    def units(self) -> int:
        self.tens.set(self.n.get() * 10)
        return 0


class Reader(Piece, name="back.Reader"):
    double: Input[int] = given()
    tens: Input[int] = given()

    @computed
    def total(self) -> int:
        return self.double.get() + self.tens.get()

    @handler
    def ask(self) -> int:
        return self.total.get()


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "named"])
@pytest.mark.parametrize("is_looked_at", [True, False], ids=["with a sink", "without a sink"])
def test_a_reader_of_a_piece_that_was_deleted_and_opened_again_follows_the_new_piece(
    *, is_open: bool, is_looked_at: bool
) -> None:
    async def work() -> None:
        async with Runtime() as rt:
            errors: list[Any] = []
            rt.on_error(errors.append)
            space = rt.space("s")
            source = await space.open(Source, "p", setup=lambda source: source.n.set(5))
            reader = await space.open(Reader(double=source.double, tens=source.tens), "r")
            if not is_open:
                await space.stop(reader)
            assert await reader.ask.send() == 60
            seen: list[int] = []
            if is_looked_at:
                reader.total.sink(seen.append)
            await rt.settled()
            await space.delete(source)
            await rt.settled()
            assert await reader.ask.send() == 12
            source = await space.open(Source, "p")
            for n in (7, 8):
                source.n.set(n)
                await rt.settled()
                assert await reader.ask.send() == n * 12
                assert not is_looked_at or seen[-1] == n * 12
            assert errors == []

    asyncio.run(work())
