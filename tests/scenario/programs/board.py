"""The second program of the design: a board that people share."""

from collections.abc import Mapping
from datetime import UTC, datetime

import headwater
from headwater import Cell, Input, Piece, Refused, between, cell, computed, each, fold, given, handler


class Card(headwater.Model):
    title: str
    column: str
    rank: str  # its place is in the card, so that a move is one small write
    points: int = 1


class CardView(Piece):
    card: Cell[Card] = given()  # handles passed in by the maker; an Input reads, a Cell also writes
    selected: Input[str | None] = given()

    @handler
    def rename(self, title: str) -> None:
        self.card.at(lambda c: c.title).set(title)  # a typed path; collides only with another rename


class Board(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})
    selected: Cell[str | None] = cell(default=None, scope="user")
    search: Cell[str] = cell(default="", scope="session")
    frozen_from: Cell[datetime] = cell(default=datetime.max.replace(tzinfo=UTC))

    @each(cards, order=lambda c: c.rank)
    def views(self, card: Cell[Card]) -> CardView:  # one child per key; a changed card runs its own nodes only
        return CardView(card=card, selected=self.selected)

    points = fold(
        cards,
        by=lambda c: c.column,
        start=0,  # O(1) for one changed card
        add=lambda n, c: n + c.points,
        remove=lambda n, c: n - c.points,
    )

    @computed(scope="session")  # reads its own scope and wider ones
    def found(self) -> tuple[str, ...]:
        return tuple(k for k, c in self.cards.view().items() if self.search.get() in c.title)

    @handler(allow="reader")
    def move(self, card_id: str, column: str, left: str | None, right: str | None) -> None:
        if self.ctx.past(self.frozen_from.get()):
            raise Refused("the board is frozen")
        card = self.cards.key(card_id)
        if not card.exists():
            raise Refused("somebody deleted this card")
        card.at(lambda c: c.column).set(column)
        card.at(lambda c: c.rank).set(between(left, right))

    @handler(every_ms=3_600_000)  # once an hour in all, however many runtimes
    def sweep(self) -> None:
        for key, card in self.cards.get().items():
            if card.column == "bin":
                self.cards.key(key).delete()
