"""What both type checkers have to accept, beside the programs of the guide. Never run: its types are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import headwater
from headwater import (
    Backoff,
    Cell,
    Child,
    Computed,
    Delivery,
    Each,
    Failed,
    Handler,
    Input,
    Link,
    Member,
    Pending,
    Piece,
    Ready,
    Resource,
    Topic,
    cell,
    child,
    computed,
    each,
    effect,
    fold,
    given,
    handler,
    link,
    materializer,
    reaction,
    resource,
    topic,
)
from headwater.testing import Simulation, simulated


class Row(headwater.Model):
    id: str
    cents: int
    note: str = headwater.field(default="", was="remark")


class RowView(Piece):
    row: Cell[Row] = given()
    rate: Input[float] = given()
    on_gone: Handler[[str], None] = given()

    @computed
    def cost(self) -> float:
        return self.row.get().cents * self.rate.get()

    @handler
    def note(self, text: str) -> None:
        self.row.at(lambda row: row.note).set(text)

    @handler
    def drop(self) -> None:
        self.on_gone.post(self.row.get().id)


class Sheet(Piece, name="sheets.Sheet", was="old.Sheet"):
    rows: Cell[Mapping[str, Row]] = cell(default={})
    order: Cell[tuple[Row, ...]] = cell(default=())
    tags: Cell[frozenset[str]] = cell(default=frozenset())
    rate: Cell[int] = cell(default=1, was="factor")
    seen: Cell[int] = cell(default=0, scope="user")
    best: Cell[Link[Cell[Row]] | None] = cell(default=None)
    done: Topic[Row] = topic(key=lambda row: row.id)

    @handler
    def gone(self, id: str) -> None:
        self.rows.key(id).delete()

    @each(rows, order=lambda row: row.cents)
    def views(self, row: Cell[Row]) -> RowView:
        return RowView(row=row, rate=self.rate, on_gone=self.gone)

    @each(order, key=lambda row: row.id)
    def lengths(self, row: Cell[Row]) -> int | None:
        return len(row.get().note) or None

    @child
    def chosen(self) -> RowView:
        return RowView(row=self.rows.key("a"), rate=self.rate, on_gone=self.gone)

    total = fold(rows, start=0, add=lambda n, row: n + row.cents, remove=lambda n, row: n - row.cents)
    by_note = fold(rows, by=lambda row: row.note, start=0, add=lambda n, row: n + 1, remove=lambda n, row: n - 1)

    @computed(scope="session", debounce_ms=10)
    def found(self) -> tuple[str, ...]:
        return tuple(key for key, row in self.rows.view().items() if row.note)

    @computed(writes=(rate,))
    def tuned(self) -> int:
        self.rate.set(2)
        return self.rate.get()

    @materializer(envelope=(rows,))
    def filled(self) -> int:
        return len(self.rows.get())

    @resource(rate, timeout_ms=500, backoff=Backoff.fixed(base_ms=10))
    async def quote(self, rate: int) -> str:
        return str(rate)

    @effect
    def show(self) -> None:
        match self.quote.get():
            case Ready(value):
                print(value.upper())
            case Failed(error):
                print(error.upper())
            case Pending():
                print(self.quote.value("nothing").upper())

    @handler(allow="reader", retries=0)
    def add(self, row: Row, *, twice: bool = False) -> str:
        self.order.push(row, keep=10)
        self.tags.add("new")
        self.tags.discard("old")
        self.rate.increment()
        self.rows.key(row.id).set(row)
        self.best.set(link(self.rows.key(row.id)))
        self.done.emit(row)
        return self.ctx.new_id()

    @handler(every_ms=1_000)
    def sweep(self) -> None:
        best = self.best.get()
        if best is not None:
            print(self.ctx.follow(best).get().cents)

    @handler
    def noted(self, length: int) -> None: ...

    @reaction(on=done, then=noted, max_retries=2, on_exhausted="park")
    async def tell(self, row: Row, delivery: Delivery) -> int:
        return len(row.note) + delivery.attempt

    @reaction(on=done, batch=10, lane="slow", priority=1, since="beginning")
    async def many(self, rows: tuple[Row, ...]) -> None: ...

    @reaction(on=done, errors={KeyError: "permanent", OSError: Backoff.fixed(base_ms=5)}, budget_ms=1_000)
    def in_a_thread(self, row: Row, delivery: Delivery) -> None: ...

    @reaction(on=done)
    async def log(self, row: Row) -> None:
        print(row.id)


def name(piece: Sheet) -> tuple[Member[int], Member[Mapping[str, RowView]]]:
    views: Each[str, RowView] = piece.views
    chosen: Child[RowView] = piece.chosen
    total: Computed[int] = piece.total
    groups: Computed[Mapping[str, int]] = piece.by_note
    quote: Resource[str] = piece.quote
    as_float: Input[float] = piece.rate
    print(views.get()["a"].cost.get(), chosen.get().row.get().cents, total.get() + 1, groups.get()["x"] + 1)
    print(quote.value(None), as_float.get())
    return Sheet.total, Sheet.views


def faster(sheet: Sheet, by: int) -> int:
    sheet.rate.increment(by)
    return sheet.rate.get()


async def main() -> None:
    async with headwater.open("./data") as rt:
        space = rt.space("sheets", user="ann", session="s")
        sheet = await space.open(Sheet, "a", setup=lambda sheet: sheet.rate.set(3))
        row = Row(id="a", cents=3)
        print((await sheet.add.send(row, twice=True)).upper())
        await sheet.add.options(id="k", retries=0, durable=True).send(row)
        sheet.gone.post("a").withdraw()
        sheet.gone.post_at(timedelta(hours=1), "a")
        sheet.gone.post_at(datetime(2030, 1, 1, tzinfo=UTC), "a")
        async for value in sheet.total.watch():
            print(value + 1)
        page = await space.find(Sheet, limit=10)
        print([each.rate.get() + 1 for each in page.items], page.next)
        await space.create(RowView(row=sheet.rows.key("a"), rate=sheet.rate, on_gone=sheet.gone), "view")
        print(await space.transact(faster, sheet, 1) + 1)
        sheet.total.sink(print).close()
        await space.stop(sheet)
        await space.delete(sheet)
        rt.on_error(lambda error: print(error)).close()
    rt = await headwater.connect("wss://example.org", token="t")
    await rt.close()


@simulated(seeds=3)
async def test_it(sim: Simulation) -> None:
    await sim.settle()


@simulated()
async def test_more(sim: Simulation, k: int) -> None:
    print(sim.seed + k)


class TestThem:
    @simulated(faults=("drop",))
    async def test_method(self, sim: Simulation, k: int) -> None:
        print(self, sim.seed + k)


def run_tests() -> None:
    test_it()
    test_more(3)
    TestThem().test_method(3)


if __name__ == "__main__":
    headwater.run(main)
