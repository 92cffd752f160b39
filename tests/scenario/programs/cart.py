"""The first program of the design: a cart."""

import headwater
from headwater import Backoff, Cell, Delivery, Piece, Refused, Topic, cell, computed, effect, handler, reaction, topic


class Line(headwater.Model):  # a frozen, typed value (msgspec.Struct underneath)
    sku: str
    cents: int
    qty: int = 1


class Order(headwater.Model):
    id: str
    cents: int


async def pay(cents: int, *, key: str) -> str:
    return f"paid {cents} once for {key}"  # stands for a payment provider that knows idempotency keys


class Cart(Piece):
    lines: Cell[tuple[Line, ...]] = cell(default=())
    receipts: Cell[tuple[str, ...]] = cell(default=())
    placed: Topic[Order] = topic()  # durable, leaves the process through reactions only

    @computed
    def total(self) -> int:
        return sum(line.cents * line.qty for line in self.lines.get())

    @effect(debounce_ms=50)
    def show(self) -> None:  # in every runtime that has this piece open; may run again
        print("total", self.total.get())

    @handler
    def add(self, line: Line) -> None:
        self.lines.push(line)  # an intent: merges with other writers, reads nothing

    @handler
    def checkout(self) -> Order:
        total = self.total.get()  # fresh: upstream work ran before this handler did
        if total == 0:
            raise Refused("the cart is empty")  # the sender gets it; nothing is written or retried
        order = Order(id=self.ctx.new_id(), cents=total)  # the same id in every retry of this event
        self.placed.emit(order)
        self.lines.set(())
        return order

    @handler
    def paid(self, receipt: str) -> None:  # runs in the transaction that acknowledges the record: exactly once
        self.receipts.push(receipt)

    @reaction(on=placed, then=paid, max_retries=5, backoff=Backoff.exponential(base_ms=200, max_ms=30_000, jitter=0.5))
    async def charge(self, order: Order, delivery: Delivery) -> str:
        return await pay(order.cents, key=delivery.id)  # at least once, in order, leased, retried, blocked


async def main() -> None:
    async with headwater.open("./data") as rt:  # embedded: one SQLite file per space
        shop = rt.space("shop", user="ann")
        cart = await shop.open(Cart, "ann")  # made on first use, resumed afterwards
        await cart.add.send(Line(sku="tea", cents=450))  # resolves when the write is durable
        assert await cart.total.pull() == 450
        assert (await cart.checkout.send()).cents == 450


if __name__ == "__main__":
    headwater.run(main)
