"""Mistakes that a type checker has to find, each on the line that says who does: `# both`, `# mypy` or `# pyright`.

Never run. A line without such a word must not have an error.
"""

from __future__ import annotations

from collections.abc import Mapping

import headwater
from headwater import (
    Cell,
    Handler,
    Input,
    Piece,
    Topic,
    cell,
    computed,
    each,
    fold,
    given,
    handler,
    reaction,
    resource,
    topic,
)
from headwater.testing import Simulation, simulated


class Row(headwater.Model):
    id: str
    cents: int = 0


class View(Piece):
    row: Cell[Row] = given()
    rate: Input[float] = given()
    on_gone: Handler[[str], None] = given()


class Sheet(Piece):
    rows: Cell[Mapping[str, Row]] = cell(default={})
    order: Cell[tuple[Row, ...]] = cell(default=())
    tags: Cell[frozenset[str]] = cell(default=frozenset())
    rate: Cell[int] = cell(default=1)
    flag: Cell[bool] = cell(default=False)
    wrong: Cell[int] = cell(default="one")  # both
    scoped: Cell[int] = cell(default=0, scope="planet")  # both
    done: Topic[Row] = topic()

    @computed
    def total(self) -> int:
        return sum(row.cents for row in self.rows.get().values())

    @computed(scope="planet")  # both
    def elsewhere(self) -> int:
        return 1

    @handler
    def gone(self, id: str) -> None: ...

    @handler
    def add(self, row: Row) -> str:
        self.rate.set("two")  # both
        self.total.set(3)  # both
        self.rate.push(1)  # both
        self.order.push("row")  # both
        self.tags.add(3)  # both
        self.tags.increment()  # both
        self.rate.increment("a")  # both
        self.rate.key("a")  # both
        self.rows.key(3)  # both
        self.rows.key("a").set(3)  # both
        self.rows.key("a").at(lambda row: row.sents)  # both
        self.rows.key("a").at(lambda row: row.cents).set("a")  # both
        self.rate.update(lambda rate: "a")  # both
        self.done.emit("row")  # both
        self.rate = 3  # both
        self.total = 3  # both
        if self.flag:  # pyright
            pass
        if self.rate == 3:  # mypy
            pass
        row.cents = 4  # both
        self.misspelt.get()  # both
        self.ctx.usr  # both
        self.ctx.launch(3)  # both
        self.gone.post(3)  # both
        self.gone.post()  # both
        return 3  # both

    @each(order)  # both
    def views(self, row: Cell[Row]) -> View:
        return View(row=row, rate=self.rate, on_gone=self.gone)

    @each(rows)  # both
    def other(self, row: Cell[int]) -> View:
        return View(row=self.rows.key("a"), rate=self.rate, on_gone=self.gone)

    @resource(rate)  # both
    async def quote(self, rate: str) -> str:
        return rate

    @reaction(on=rate)  # both
    async def on_rate(self, rate: int) -> None: ...

    @reaction(on=done)  # both
    async def on_done(self, row: int) -> None: ...

    @reaction(on=done, then=gone)  # both
    async def then_gone(self, row: Row) -> int:
        return 3

    added = fold(rows, start=0, add=lambda n, row: "a", remove=lambda n, row: n)  # both

    @handler(every_ms=10)  # both
    def sweep(self, row: Row) -> None: ...


async def main(sheet: Sheet, row: Row) -> None:
    sheet.add.send(row)  # both
    await sheet.add.send()  # both
    await sheet.add.send("row")  # both
    await sheet.add.send(row, retries=0)  # both
    (await sheet.add.send(row)).missing  # both
    Sheet.total.get()  # both
    Sheet(rate=3)  # both
    View(row=sheet.rows.key("a"))  # both
    View(row=row, rate=sheet.rate, on_gone=sheet.gone)  # both
    View(row=sheet.order, rate=sheet.rate, on_gone=sheet.gone)  # both
    View(row=sheet.rows.key("a"), rate=sheet.rate, on_gone=sheet.add)  # both
    floats: Cell[float] = sheet.rate  # both
    Row(cents=3)  # both
    Row(id=3)  # both
    async with headwater.open("data") as rt:
        await rt.space("a").open(View, "a")  # both
        await rt.space("a").open(Sheet)  # both
        rt.space(3)  # both
    print(floats)


@simulated()  # both
def not_async(sim: Simulation) -> None: ...


@simulated()  # both
async def takes_nothing() -> None: ...


@simulated(seeds="many")  # both
async def many(sim: Simulation) -> None: ...
