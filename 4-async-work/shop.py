import asyncio
from datetime import UTC, datetime, timedelta

import headwater
from headwater import Backoff, Cell, Failed, Pending, Piece, Ready, Resource, cell, computed, handler, resource

PRICES = {"tea": 450}


async def price_of(sku: str) -> int:
    await asyncio.sleep(0)  # stands for a request
    return PRICES[sku]


class Offer(Piece):
    sku: Cell[str] = cell(default="tea")

    @resource(sku, timeout_ms=5_000, limit=4, backoff=Backoff.exponential(base_ms=10, max_ms=50))
    async def price(self, sku: str) -> int:
        return await price_of(sku)

    @computed
    def text(self) -> str:
        match self.price.get():
            case Ready(cents):
                return f"{cents} cents"
            case Pending(last):
                return "asking..." if last is None else f"{last} cents, asking again"
            case Failed(error):
                return f"not known: {error}"

    @handler
    def choose(self, sku: str) -> None:
        self.sku.set(sku)


async def until(price: Resource[int], kind: type) -> object:
    async for state in price.watch():
        if isinstance(state, kind):
            return state
    return None


async def main() -> None:
    async with headwater.open("./data") as rt:
        offer = await rt.space("shop", user="ann").open(Offer, "tea")
        assert await until(offer.price, Ready) == Ready(450)
        assert await offer.text.pull() == "450 cents"
        await offer.choose.send("gold")
        failed = await until(offer.price, Failed)
        assert isinstance(failed, Failed) and "KeyError" in failed.error


headwater.run(main)

class Poll(Piece):
    closes: Cell[datetime] = cell(default=datetime.max.replace(tzinfo=UTC))

    @computed
    def is_open(self) -> bool:
        return not self.ctx.past(self.closes.get())

    @handler
    def close_in(self, seconds: float) -> None:
        self.closes.set(self.ctx.now() + timedelta(seconds=seconds))


async def deadline() -> None:
    async with headwater.open("./data") as rt:
        poll = await rt.space("shop", user="ann").open(Poll, "poll")
        await poll.close_in.send(0.05)
        async for is_open in poll.is_open.watch():
            if not is_open:
                break


headwater.run(deadline)

async def from_a_thread() -> None:
    async with headwater.open("./data") as rt:
        offer = await rt.space("shop", user="ann").open(Offer, "tea")
        await asyncio.to_thread(rt.call, lambda: offer.sku.set("tea"))
        await rt.durable()
        assert offer.sku.get() == "tea"


headwater.run(from_a_thread)
