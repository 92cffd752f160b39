import headwater
from headwater import Cell, Piece, cell, field, handler


class Card(headwater.Model):
    title: str
    votes: int = 0


class Board(Piece, name="team.Board"):
    card: Cell[Card] = cell(default=Card(title=""))

    @handler
    def rename(self, title: str) -> None:
        self.card.at(lambda card: card.title).set(title)


async def first() -> None:
    async with headwater.open("./data") as rt:
        board = await rt.space("team", user="ann").open(Board, "main")
        board.card.set(Card(title="Tea", votes=3))
        await rt.durable()


headwater.run(first)

class Card2(headwater.Model):
    title: str
    votes: int = 0
    colour: str = "white"


class Board2(Piece, name="team.Board"):
    card: Cell[Card2] = cell(default=Card2(title=""))

    @handler
    def paint(self, colour: str) -> None:
        self.card.at(lambda card: card.colour).set(colour)


async def added() -> None:
    async with headwater.open("./data") as rt:
        board = await rt.space("team", user="ann").open(Board2, "main")
        assert await board.card.pull() == Card2(title="Tea", votes=3, colour="white")
        await board.paint.send("red")


headwater.run(added)

async def older() -> None:
    async with headwater.open("./data") as rt:
        board = await rt.space("team", user="ann").open(Board, "main")
        await board.rename.send("Green tea")
        board.card.set(Card(title="Green tea", votes=4))
        await rt.durable()
    async with headwater.open("./data") as rt:
        newer = await rt.space("team", user="ann").open(Board2, "main")
        assert await newer.card.pull() == Card2(title="Green tea", votes=4, colour="red")


headwater.run(older)

class Card3(headwater.Model):
    text: str = field(was="title")
    votes: int = 0
    colour: str = "white"


class Board3(Piece, name="team.Board"):
    card: Cell[Card3] = cell(default=Card3(text=""))


async def renamed() -> None:
    async with headwater.open("./data") as rt:
        board = await rt.space("team", user="ann").open(Board3, "main")
        assert (await board.card.pull()).text == "Green tea"


headwater.run(renamed)
