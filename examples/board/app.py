"""A shared kanban board. The place of a card is in the card, so that a move is one small write.

    headwater run examples/board/app.py --insecure-local

Open the printed address in two windows: what one person does, the other sees.
"""

from __future__ import annotations

from collections.abc import Mapping

import headwater
from headwater import Cell, Piece, Refused, between, cell, computed, fold, handler

COLUMNS = ("todo", "doing", "done")


class Card(headwater.Model):
    title: str
    column: str
    rank: str  # its place in the column: a text that sorts
    points: int = 1
    by: str = ""


class Board(Piece, name="board.Board"):
    cards: Cell[Mapping[str, Card]] = cell(default={})
    title: Cell[str] = cell(default="Our board")
    selected: Cell[str | None] = cell(default=None, scope="user")
    search: Cell[str] = cell(default="", scope="session")

    points = fold(
        cards,
        by=lambda card: card.column,
        start=0,
        add=lambda total, card: total + card.points,
        remove=lambda total, card: total - card.points,
    )

    @computed(scope="session")
    def found(self) -> tuple[str, ...]:
        wanted = self.search.get().strip().lower()
        return tuple(key for key, card in self.cards.view().items() if wanted and wanted in card.title.lower())

    @handler
    def add(self, column: str, title: str, points: int = 1) -> str:
        if column not in COLUMNS:
            raise Refused(f"there is no column {column!r}")
        if not title.strip():
            raise Refused("a card needs a title")
        if not 0 < points < 100:
            raise Refused("a card has 1 to 99 points")
        key = self.ctx.new_id()
        # It reads no other card, so that two people's never collide. What is moved behind the last one counts on behind
        # the full stop, and stays before what is added later.
        rank = f"m{self.ctx.now():%y%m%d%H%M%S%f}."
        self.cards.key(key).set(Card(title=title.strip(), column=column, rank=rank, points=points, by=self.ctx.user))
        return key

    @handler
    def move(self, card: str, column: str, after: str | None, before: str | None) -> None:
        """Put a card between two others, named by their ranks."""
        if column not in COLUMNS:
            raise Refused(f"there is no column {column!r}")
        if after is not None and before is not None and after >= before:
            raise Refused("the cards there were moved: look again")
        place = self._there(card)
        place.at(lambda card: card.column).set(column)
        place.at(lambda card: card.rank).set(between(after, before))

    @handler
    def rename(self, card: str, title: str) -> None:
        if not title.strip():
            raise Refused("a card needs a title")
        self._there(card).at(lambda card: card.title).set(title.strip())

    @handler
    def remove(self, card: str) -> None:
        self._there(card).delete()

    @handler
    def select(self, card: str | None) -> None:
        self.selected.set(card)

    def _there(self, key: str) -> Cell[Card]:
        card = self.cards.key(key)
        if not card.exists():
            raise Refused("this card was removed")
        return card


async def start(rt: headwater.Runtime) -> None:
    """What `headwater run` opens: the board is kept by the process that serves it."""
    await rt.space("team").open(Board, "main")
