import headwater
from headwater import Cell, Piece, Refused, cell, computed, effect, handler


class Line(headwater.Model):  # a value: typed, frozen
    sku: str
    cents: int
    qty: int = 1


class Cart(Piece):
    lines: Cell[tuple[Line, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(line.cents * line.qty for line in self.lines.get())

    @effect
    def show(self) -> None:
        print("total", self.total.get())

    @handler
    def add(self, line: Line) -> None:
        if line.qty < 1:
            raise Refused("one at least")
        self.lines.push(line)

async def main() -> None:
    async with headwater.open("./data") as rt:
        shop = rt.space("shop", user="ann")
        cart = await shop.open(Cart, "ann")
        await cart.add.send(Line(sku="tea", cents=450, qty=2))
        assert await cart.total.pull() == 900
        try:
            await cart.add.send(Line(sku="tea", cents=450, qty=0))
        except Refused as refused:
            print("no:", refused.reason)


headwater.run(main)

async def again() -> None:
    async with headwater.open("./data") as rt:
        cart = rt.space("shop").piece(Cart, "ann")  # a handle; it starts nothing
        assert await cart.total.pull() == 900


headwater.run(again)

async def start(rt: headwater.Runtime) -> None:
    await rt.space("shop").open(Cart, "ann")
