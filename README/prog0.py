import headwater
from headwater import Cell, Piece, Refused, cell, computed, effect, handler


class Line(headwater.Model):
    sku: str
    cents: int
    qty: int = 1


class Cart(Piece):
    lines: Cell[tuple[Line, ...]] = cell(default=())

    @computed
    def total(self) -> int:  # runs when somebody looks and a line has changed, not before
        return sum(line.cents * line.qty for line in self.lines.get())

    @effect
    def show(self) -> None:
        print("total", self.total.get())

    @handler
    def add(self, line: Line) -> None:
        self.lines.push(line)  # an intent: merges with what others push

    @handler
    def checkout(self) -> int:
        total = self.total.get()  # fresh: what it depends on ran before this could commit
        if total == 0:
            raise Refused("the cart is empty")  # the sender gets it; nothing is written
        self.lines.set(())
        return total


async def main() -> None:
    async with headwater.open("./data") as rt:  # one SQLite file per space
        shop = rt.space("shop", user="ann")
        cart = await shop.open(Cart, "ann")  # made on first use
        await cart.add.send(Line(sku="tea", cents=450))  # resolves when the write is durable
        assert await cart.total.pull() == 450
        assert await cart.checkout.send() == 450


if __name__ == "__main__":
    headwater.run(main)
