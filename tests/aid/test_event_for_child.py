"""An event for a child whose key left and came back meanwhile is handled by the child that is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import headwater
from headwater import Cell, Piece, cell, computed, each, given, handler


class Card(Piece, name="child_event.Card"):
    title: Cell[str] = given()
    note: Cell[str] = cell(default="")

    @computed
    def length(self) -> int:
        return len(self.title.get()) + len(self.note.get())

    @computed
    def wanted(self) -> int:
        return self.length.get() + 1

    @handler
    def write(self, note: str) -> None:
        self.note.set(f"{note} {self.wanted.get()}")


class Board(Piece, name="child_event.Board"):
    titles: Cell[Mapping[str, str]] = cell(default={"a": "tea"})

    @each(titles)
    def cards(self, title: Cell[str]) -> Card:
        return Card(title=title)

    @computed
    def lengths(self) -> int:
        return sum(card.length.get() for card in self.cards.get().values())

    @handler
    def replace(self, note: str) -> None:
        """Remove a key, and have it brought back before an event for its child is handled."""
        self.bring_back.post()
        self.cards.get()["a"].write.post(note)
        self.titles.key("a").delete()

    @handler
    def bring_back(self) -> int:
        lengths = self.lengths.get()  # It waits until the child is gone.
        self.titles.key("a").set("milk")
        return lengths


def test_event_for_a_child_whose_key_left_and_came_back_is_handled(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            rt.on_error(failures.append)
            board = await rt.space("s", user="ann").open(Board, "b")
            assert await board.lengths.pull() == 3
            await board.replace.send("now")
            await rt.settled()
            await rt.durable()
            assert await board.cards.get()["a"].note.pull() == "now 5"
            assert await board.lengths.pull() == len("milk") + len("now 5")

    asyncio.run(main())
    assert failures == []
