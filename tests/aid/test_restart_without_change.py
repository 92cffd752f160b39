"""A restart without a change runs no node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from headwater import Cell, Input, Piece, Runtime, cell, computed, each, effect, fold, given, handler, materializer
from headwater.runtime import LocalDirectory
from tests.scenario.pieces_kit import run

ran: list[str] = []


class Source(Piece, name="aid.restart.Source"):
    x: Cell[int] = cell(default=0)

    @computed
    def c(self) -> int:
        ran.append("source c")
        return self.x.get() + 1


class Reader(Piece, name="aid.restart.Reader"):
    """Demands a computed that reads its input, and has another one that reads both."""

    i: Input[int] = given()

    @computed
    def a(self) -> int:
        ran.append("a")
        return self.i.get()

    @computed
    def both(self) -> int:
        ran.append("both")
        return self.a.get() + self.i.get()

    @effect
    def show(self) -> None:
        ran.append("show")
        self.a.get()


class Named(Piece, name="aid.restart.Named"):
    i: Input[int] = given()
    rows: Cell[Mapping[str, int]] = cell(default={"a": 1})

    @each(rows)
    def double(self, row: Cell[int]) -> int:
        ran.append("double")
        return row.get() * 2

    total = fold(rows, start=0, add=lambda t, n: ran.append("total") or t + n, remove=lambda t, n: t - n)  # type: ignore[func-returns-value]

    @computed
    def c(self) -> int:
        ran.append("c")
        return self.i.get()


class Rows(Piece, name="aid.restart.Rows"):
    """Its effect reads its input, and an `each` with a row."""

    i: Input[int] = given()
    rows: Cell[Mapping[str, int]] = cell(default={})

    @each(rows)
    def values(self, row: Cell[int]) -> int:
        ran.append("values")
        return self.i.get()

    @effect
    def show(self) -> None:
        ran.append("show")
        self.i.get(), self.values.get()


class Items(Piece, name="aid.restart.Items"):
    items: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def count(self) -> int:
        ran.append("count")
        return len(self.items.get())

    @handler
    def begin(self) -> None:
        self.items.set((1,))

    @handler
    def push_and_reset(self) -> None:
        self.items.push(2, 3)
        self.items.set((1,))


class Words(Piece, name="aid.restart.Words"):
    """Its materializer reads the cell that it writes, for each user."""

    text: Cell[str] = cell(default="tea")
    words: Cell[Mapping[str, int]] = cell(default={}, scope="user")

    @materializer(envelope=(words,), scope="user")
    def index(self) -> None:
        ran.append("index")
        self.words.set({**self.words.get(), self.text.get(): 1})

    @computed(scope="user")
    def count(self) -> int:
        ran.append("count")
        return len(self.words.get())


class Entry(Piece, name="aid.restart.Entry"):
    element: Cell[int] = given()

    @computed
    def half(self) -> int:
        ran.append(f"half of {self.ctx.name}")
        return self.element.get() // 2

    @computed
    def result(self) -> int:
        ran.append(f"result of {self.ctx.name}")
        return self.half.get() + 1


class Entries(Piece, name="aid.restart.Entries"):
    """Its materializer reads its rows by two ways, and each way has children of its own."""

    rows: Cell[Mapping[str, int]] = cell(default={})
    written: Cell[int] = cell(default=0)

    @each(rows)
    def some(self, element: Cell[int]) -> Entry:
        return Entry(element=element)

    @each(rows)
    def others(self, element: Cell[int]) -> Entry:
        return Entry(element=element)

    @each(rows)
    def values(self, element: Cell[int]) -> int:
        return element.get()

    @computed
    def first(self) -> int:
        return sum(each.half.get() for each in self.some.get().values())

    @computed
    def second(self) -> int:
        return sum(each.result.get() for each in self.others.get().values())

    @computed
    def third(self) -> int:
        return self.first.get() + sum(self.values.get().values())

    @materializer(envelope=(written,))
    def write(self) -> int:
        self.written.set(min(self.first.get(), self.third.get()))
        return self.second.get()


async def processes(folder: Path, *steps: Callable[[Runtime], Awaitable[object]]) -> None:
    """Run each step in a runtime of its own. Keep what ran in the last one."""
    for step in steps:
        async with LocalDirectory(folder, synchronous="OFF") as data, Runtime(data, identity="one") as rt:
            ran.clear()
            await step(rt)
            await rt.settled()


async def pulled(piece: Any, *members: str) -> None:
    for member in members:
        await getattr(piece, member).pull()


def test_computed_that_reads_another_space_and_a_demanded_computed_does_not_run_after_restart(tmp_path: Path) -> None:
    async def step(rt: Runtime) -> None:
        source: Any = await rt.space("one").open(Source, "source")
        reader: Any = await rt.space("two").open(Reader(i=source.c), "reader")
        await rt.settled()
        await pulled(reader, "a", "both")

    run(lambda: processes(tmp_path, step, step))
    assert ran == []


async def host(rt: Runtime) -> None:
    """Open a piece with an input."""
    source: Any = await rt.space("one").open(Source, "source")
    await pulled(await rt.space("one").open(Named(i=source.c), "named"), "double", "total", "c")


async def visit(rt: Runtime) -> None:
    """Pull the same piece, and open nothing."""
    await pulled(rt.space("one").piece(Named, "named"), "double", "total", "c")


def test_piece_that_is_only_named_and_has_inputs_does_not_run_after_restart(tmp_path: Path) -> None:
    run(lambda: processes(tmp_path, host, visit))
    assert ran == []


def test_piece_with_inputs_does_not_run_after_another_process_named_it(tmp_path: Path) -> None:
    run(lambda: processes(tmp_path, host, visit, host))
    assert ran == []


def test_each_of_a_piece_that_wakes_while_the_each_is_registered_does_not_run_after_restart(tmp_path: Path) -> None:
    async def opened(rt: Runtime) -> Any:
        source: Any = await rt.space("one").open(Source, "source")
        return await rt.space("one").open(Rows(i=source.c), "rows")

    async def first(rt: Runtime) -> None:
        rows = await opened(rt)
        await rt.settled()
        await rt.space("one").transact(lambda: rows.rows.set({"a": 2}))
        await rt.settled()
        await pulled(rows, "values")

    run(lambda: processes(tmp_path, first, opened))
    assert ran == []


def test_computed_does_not_run_after_writes_of_a_handler_that_cancelled_each_other(tmp_path: Path) -> None:
    async def first(rt: Runtime) -> None:
        items: Any = await rt.space("one").open(Items, "items")
        await items.begin.send()
        await pulled(items, "count")
        ran.clear()
        await items.push_and_reset.send()
        await pulled(items, "count")
        assert ran == []

    async def second(rt: Runtime) -> None:
        await pulled(await rt.space("one").open(Items, "items"), "count")

    run(lambda: processes(tmp_path, first, second))
    assert ran == []


def test_materializer_of_a_further_user_that_reads_its_own_output_does_not_run_after_restart(tmp_path: Path) -> None:
    async def opened(rt: Runtime) -> None:
        for user in ("ann", "bob"):
            await pulled(await rt.space("one", user=user).open(Words, "words"), "count")
            await rt.settled()

    run(lambda: processes(tmp_path, opened, opened))
    assert ran == []


def test_computed_of_a_child_whose_row_is_judged_twice_does_not_run_after_restart(tmp_path: Path) -> None:
    """Waking the piece made a second child for the row, after the observation of the first child's node was used up."""

    async def write(rt: Runtime) -> None:
        entries: Any = await rt.space("one").open(Entries, "entries")
        entries.rows.set({"a": 4})
        await rt.settled()
        await pulled(entries, "first", "second", "values", "third", "write")

    async def open_again(rt: Runtime) -> None:
        await rt.space("one").open(Entries, "entries")

    run(lambda: processes(tmp_path, write, open_again))
    assert ran == []
