"""A shared kanban board. The position of a card is in the card: a move is one write, a card is never in two columns."""

from __future__ import annotations

from collections.abc import Mapping

import headwater
from headwater import (
    Cell,
    Computed,
    Each,
    Handler,
    Input,
    Piece,
    Refused,
    between,
    cell,
    computed,
    each,
    fold,
    given,
    handler,
)


class Card(headwater.Model):
    id: str
    title: str
    column: str
    rank: str
    points: int = 1
    done: bool = False


class CardView(Piece):
    card: Cell[Card] = given()  # a Cell is writable, an Input is not
    selected: Input[str | None] = given()
    on_archive: Handler[[str], None] = given()

    @computed(scope="user")
    def highlighted(self) -> bool:
        return self.selected.get() == self.card.get().id

    @computed
    def label(self) -> str:
        card = self.card.get()
        return f"{card.title} ({card.points})"

    @handler
    def rename(self, title: str) -> None:
        self.card.at(lambda c: c.title).set(title)  # typed, and conflicts only with another rename

    @handler
    def archive(self) -> None:
        self.on_archive.post(self.card.get().id)  # a follow-up: lives and dies with this commit


class Board(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})
    columns: Cell[tuple[str, ...]] = cell(default=("todo", "doing", "done"))
    selected: Cell[str | None] = cell(default=None, scope="user")
    search: Cell[str] = cell(default="", scope="session")

    @handler
    def archive(self, card_id: str) -> None:
        self.cards.key(card_id).delete()

    @each(cards, order=lambda c: (c.column, c.rank))
    def views(self, card: Cell[Card]) -> CardView:
        return CardView(card=card, selected=self.selected, on_archive=self.archive)

    points = fold(
        cards, by=lambda c: c.column, start=0, add=lambda n, c: n + c.points, remove=lambda n, c: n - c.points
    )

    @computed(scope="session")
    def visible(self) -> tuple[str, ...]:
        wanted = self.search.get().lower()
        return tuple(key for key, card in self.cards.view().items() if wanted in card.title.lower())

    @handler
    def add(self, column: str, title: str) -> str:
        if column not in self.columns.get():
            raise Refused(f"no column {column!r}")
        card_id = self.ctx.new_id()  # the same in every retry
        rank = self.ctx.now().isoformat()  # reads no other card, so that two adds never collide
        self.cards.key(card_id).set(Card(id=card_id, title=title, column=column, rank=rank))
        return card_id

    @handler
    def move(self, card_id: str, column: str, after: str | None, before: str | None) -> None:
        card = self.cards.key(card_id)
        if not card.exists():
            raise Refused("somebody archived this card")
        card.at(lambda c: c.column).set(column)  # one commit: a card is never in two columns
        card.at(lambda c: c.rank).set(between(after, before))

    @handler
    def select(self, card_id: str | None) -> None:
        self.selected.set(card_id)  # the sender's own document

    @handler
    def finish(self, column: str) -> int:
        n = 0
        for card_id, card in self.cards.get().items():
            if card.column == column and not card.done:
                self.cards.key(card_id).at(lambda c: c.done).set(True)
                n += 1
        return n


def show(board: Board) -> None:
    views: Each[str, CardView] = board.views
    totals: Computed[Mapping[str, int]] = board.points
    print([v.label.get() for v in views.get().values()], totals.get())


async def main() -> None:
    async with headwater.open("./data") as rt:
        board = await rt.space("team", user="ann").open(Board, "main")
        first = await board.add.send("todo", "Write the guide")
        await board.move.send(first, "doing", after=None, before=None)
        print(await board.views.get()[first].label.pull())
