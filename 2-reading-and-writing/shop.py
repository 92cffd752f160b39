from collections.abc import Mapping

import headwater
from headwater import AbsentError, Cell, NotReadyError, Piece, Refused, cell, computed, handler


class Card(headwater.Model):
    title: str
    votes: int = 0
    tags: frozenset[str] = frozenset()


class Board(Piece):
    title: Cell[str] = cell(default="Ours")
    cards: Cell[Mapping[str, Card]] = cell(default={})
    log: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def votes(self) -> int:
        return sum(card.votes for card in self.cards.get().values())

    @handler
    def add(self, title: str) -> str:
        key = self.ctx.new_id()  # the same in every attempt of this event
        self.cards.key(key).set(Card(title=title))
        self.log.push(f"{self.ctx.user} added {title}", keep=100)
        return key

    @handler
    def vote(self, key: str) -> None:
        card = self.cards.key(key)
        if not card.exists():
            raise Refused("somebody removed this card")
        card.at(lambda card: card.votes).increment(1)

    @handler
    def rename(self, key: str, title: str) -> None:
        self.cards.key(key).at(lambda card: card.title).set(title)

async def main() -> None:
    async with headwater.open("./data") as rt:
        team = rt.space("team", user="ann")
        board = await team.open(Board, "main")
        tea, milk = await board.add.send("Tea"), await board.add.send("Milk")
        await board.vote.send(tea)
        await board.rename.send(milk, "Oat milk")

        # From outside a run: pull() brings up to date and returns, get() is what is visible now.
        assert await board.votes.pull() == 1
        assert board.cards.key(milk).get().title == "Oat milk"
        assert board.cards.key("nothing").get(None) is None
        try:
            board.cards.key("nothing").get()
        except AbsentError:
            pass

        # A write outside a run is a transaction of its own; update() reads and replaces.
        board.title.set("Groceries")
        board.title.update(str.upper)
        await rt.durable()
        assert board.title.get() == "GROCERIES"

        # Several writes in one transaction. It is called again if what it read has changed meanwhile.
        def swap() -> None:
            one, two = board.cards.key(tea).get(), board.cards.key(milk).get()
            board.cards.key(tea).set(two)
            board.cards.key(milk).set(one)

        await team.transact(swap)
        assert board.cards.key(tea).get().title == "Oat milk"


headwater.run(main)

async def watch() -> None:
    async with headwater.open("./data") as rt:
        board = await rt.space("team", user="ann").open(Board, "main")
        seen: list[str] = []
        look = board.title.sink(seen.append)
        await rt.idle()
        board.title.set("Ours again")
        await rt.idle()
        look.close()
        assert seen == ["GROCERIES", "Ours again"]
        async for title in board.title.watch():
            assert title == "Ours again"
            break


headwater.run(watch)

async def mistakes() -> None:
    async with headwater.open("./data") as rt:
        board = rt.space("team").piece(Board, "main")
        try:
            print(f"the title is {board.title}")
        except headwater.AuthoringError as error:
            assert ".get()" in str(error)
        try:
            rt.space("team").piece(Board, "other").votes.get()
        except NotReadyError as error:
            assert "pull()" in str(error)


headwater.run(mistakes)
