"""Pieces that the tests of simulations use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import headwater
from headwater import (
    Cell,
    Input,
    Pending,
    Piece,
    Ready,
    Topic,
    cell,
    computed,
    each,
    effect,
    given,
    handler,
    resource,
    topic,
)


class Sale(headwater.Model):
    sku: str
    cents: int


class Row(Piece):
    sale: Input[Sale] = given()
    sold: Topic[str] = topic()

    @computed
    def label(self) -> str:
        return f"{self.sale.get().sku}: {self.sale.get().cents}"

    @handler
    def sell(self) -> None:
        self.sold.emit(self.sale.get().sku)


class Shop(Piece):
    sales: Cell[tuple[Sale, ...]] = cell(default=())
    prices: Cell[Mapping[str, Sale]] = cell(default={})
    stock: Cell[int] = cell(default=10)
    mine: Cell[str] = cell(default="", scope="user")
    sold: Topic[Sale] = topic()

    @computed
    def total(self) -> int:
        return sum(sale.cents for sale in self.sales.get())

    @computed
    def taxed(self) -> int:
        return self.total.get() * 119 // 100

    @each(prices)
    def rows(self, price: Cell[Sale]) -> Row:
        return Row(sale=price)

    @effect
    def shown(self) -> None:
        self.total.get()

    @resource(stock)
    async def weather(self, stock: int) -> str:
        await asyncio.sleep(1)
        return f"sunny with {stock}"

    @handler
    def sell(self, sku: str, cents: int) -> int:
        left = self.stock.get()
        self.stock.set(left - 1)  # Read and written: two of these collide.
        self.sales.push(Sale(sku=sku, cents=cents))
        self.sold.emit(Sale(sku=sku, cents=cents))
        return left

    @handler
    def note(self, text: str) -> None:
        self.mine.set(f"{self.ctx.user}: {text}")

    @handler
    def price(self, sku: str, cents: int) -> None:
        self.prices.key(sku).set(Sale(sku=sku, cents=cents))


def is_ready(state: object) -> bool:
    return isinstance(state, Ready) and not isinstance(state, Pending)


class Forgetful(Piece):
    """Not idempotent: what it computes is different each time."""

    n: Cell[int] = cell(default=0)

    @computed
    def drifting(self) -> int:
        _RUNS.append(1)
        return self.n.get() + len(_RUNS)


_RUNS: list[int] = []
