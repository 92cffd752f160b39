from collections.abc import Mapping

import headwater
from headwater import Cell, Input, Piece, between, cell, child, computed, each, fold, given, handler


class Card(headwater.Model):
    title: str
    rank: str
    column: str = "todo"
    points: int = 1


class CardView(Piece):
    card: Cell[Card] = given()
    search: Input[str] = given()
    notes: Cell[tuple[str, ...]] = cell(default=())  # its own; kept under the child's key

    @computed
    def is_found(self) -> bool:
        return bool(self.search.get()) and self.search.get() in self.card.at(lambda card: card.title).get()

    @handler
    def rename(self, title: str) -> None:
        self.card.at(lambda card: card.title).set(title)


class Board(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})
    search: Cell[str] = cell(default="")

    @each(cards, order=lambda card: card.rank)
    def views(self, card: Cell[Card]) -> CardView:
        return CardView(card=card, search=self.search)

    points = fold(
        cards,
        by=lambda card: card.column,
        start=0,
        add=lambda total, card: total + card.points,
        remove=lambda total, card: total - card.points,
    )

    @handler
    def add(self, title: str, after: str | None = None) -> str:
        key = self.ctx.new_id()
        self.cards.key(key).set(Card(title=title, rank=between(after, None)))
        return key

    @handler
    def move(self, key: str, left: str | None, right: str | None) -> None:
        self.cards.key(key).at(lambda card: card.rank).set(between(left, right))

async def main() -> None:
    async with headwater.open("./data") as rt:
        board = await rt.space("team", user="ann").open(Board, "main")
        tea = await board.add.send("Tea")
        milk = await board.add.send("Milk", board.cards.key(tea).get().rank)
        await rt.settled()

        views = board.views.get()
        assert list(views) == [tea, milk]
        await views[milk].rename.send("Oat milk")
        board.search.set("milk")
        assert [await view.is_found.pull() for view in views.values()] == [False, True]
        assert await board.points.pull() == {"todo": 2}

        await board.move.send(tea, board.cards.key(milk).get().rank, None)
        await rt.settled()
        assert list(board.views.get()) == [milk, tea]


headwater.run(main)

class Small(Piece):
    cards: Input[Mapping[str, Card]] = given()

    @computed
    def text(self) -> str:
        return f"{len(self.cards.get())} cards"


class Empty(Piece):
    @computed
    def text(self) -> str:
        return "nothing here yet"


class Summary(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})

    @child
    def shown(self) -> Small | Empty:
        return Small(cards=self.cards) if self.cards.get() else Empty()

    @handler
    def add(self, title: str) -> None:
        self.cards.key(self.ctx.new_id()).set(Card(title=title, rank="m"))


async def one_child() -> None:
    async with headwater.open("./data") as rt:
        summary = await rt.space("team", user="ann").open(Summary, "summary")
        await rt.settled()
        assert await summary.shown.get().text.pull() == "nothing here yet"
        await summary.add.send("Tea")
        await rt.settled()
        assert await summary.shown.get().text.pull() == "1 cards"


headwater.run(one_child)
