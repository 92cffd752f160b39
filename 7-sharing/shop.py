import headwater
from headwater import Cell, Piece, Refused, cell, computed, handler


class Note(Piece):
    text: Cell[str] = cell(default="")
    likes: Cell[int] = cell(default=0)
    selected: Cell[bool] = cell(default=False, scope="user")  # one for each user
    search: Cell[str] = cell(default="", scope="session")  # one for each window

    @computed(scope="session")  # reads its own scope, and wider ones
    def is_found(self) -> bool:
        return bool(self.search.get()) and self.search.get() in self.text.get()

    @handler
    def write(self, text: str) -> None:
        self.text.set(text)

    @handler(allow="reader")  # also for those who may only read
    def like(self) -> None:
        if not self.ctx.user:
            raise Refused("say who you are")
        self.likes.increment(1)

    @handler(allow="reader")
    def select(self, selected: bool) -> None:
        self.selected.set(selected)  # the sender's own


async def main() -> None:
    async with headwater.open("./data") as rt:
        # A runtime may act for several users, whom the application has authenticated.
        ann = await rt.space("team", user="ann", session="a1").open(Note, "first")
        bob = rt.space("team", user="bob", session="b1").piece(Note, "first")
        await ann.write.send("a note about tea")
        await ann.like.send()
        await bob.like.send()
        await bob.select.send(True)
        bob.search.set("tea")
        assert await ann.likes.pull() == 2  # an intent: both count
        assert (await ann.selected.pull(), await bob.selected.pull()) == (False, True)
        assert (await ann.is_found.pull(), await bob.is_found.pull()) == (False, True)


headwater.run(main)
