import headwater
from headwater import AuthoringError, Cell, Piece, cell, computed, handler


class Cart(Piece, name="shop.Cart"):
    lines: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def count(self) -> int:
        return len(self.lines.get())

    @handler
    def add(self, sku: str) -> None:
        self.lines.push(sku)


async def before() -> None:
    async with headwater.open("./data") as rt:
        cart = await rt.space("shop", user="ann").open(Cart, "ann")
        await cart.add.send("tea")


headwater.run(before)

class Basket(Piece, name="shop.Basket", was="shop.Cart"):  # the class has another name, too
    items: Cell[tuple[str, ...]] = cell(default=(), was="lines")

    @computed
    def count(self) -> int:
        return len(self.items.get())

    @handler
    def add(self, sku: str) -> None:
        self.items.push(sku)


async def renamed() -> None:
    async with headwater.open("./data") as rt:
        basket = await rt.space("shop", user="ann").open(Basket, "ann")
        assert basket.items.get() == ("tea",)
        assert await basket.count.pull() == 1


headwater.run(renamed)

class Till(Piece, name="shop.Till"):
    cents: Cell[int] = cell(default=0)


async def another() -> None:
    async with headwater.open("./data") as rt:
        try:
            await rt.space("shop", user="ann").open(Till, "ann")
        except AuthoringError as error:
            assert "was=" in str(error)
        else:
            raise AssertionError("two classes under one name")


headwater.run(another)

async def removed() -> None:
    async with headwater.open("./data") as rt:
        shop = rt.space("shop", user="ann")
        basket = await shop.open(Basket, "ann")
        await shop.delete(basket)
        assert (await shop.find(Basket)).items == ()


headwater.run(removed)
