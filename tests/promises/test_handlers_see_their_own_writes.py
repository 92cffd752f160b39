"""A handler or transaction that reads a derived value after writing one of its inputs gets the value for its writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

import headwater
from headwater import (
    AuthoringError,
    Cell,
    HandlerFailed,
    Input,
    Piece,
    Refused,
    Runtime,
    UpstreamFailedError,
    cell,
    child,
    computed,
    each,
    fold,
    given,
    handler,
    materializer,
)
from headwater.testing import Simulation, simulated
from tests.scenario.pieces_kit import run


class Row(Piece):
    n: Cell[int] = given()
    note: Cell[str] = cell(default="")

    @computed
    def twice(self) -> int:
        return self.n.get() * 2

    @handler
    def write(self, text: str) -> None:
        self.note.set(text)


class Large(Piece):
    @computed
    def name(self) -> str:
        return "large"


class Small(Piece):
    x: Input[int] = given()

    @computed
    def name(self) -> str:
        return f"small {self.x.get()}"


class Table(Piece):
    x: Cell[int] = cell(default=1)
    side: Cell[int] = cell(default=0)
    notes: Cell[Mapping[str, int]] = cell(default={})
    rows: Cell[Mapping[str, int]] = cell(default={"a": 1})

    @computed
    def double(self) -> int:
        return self.x.get() * 2

    @computed
    def quadruple(self) -> int:
        return self.double.get() * 2

    @computed
    def inverse(self) -> float:
        return 1 / self.x.get()

    @computed(writes=(side,))
    def writer(self) -> int:
        self.side.set(self.x.get() + 100)
        return 0

    @materializer(envelope=(notes,))
    def noting(self) -> None:
        self.notes.key("x").set(self.x.get())

    @each(rows)
    def children(self, n: Cell[int]) -> Row:
        return Row(n=n)

    @each(rows, order=lambda n: -n)
    def values(self, n: Cell[int]) -> int:
        return n.get() + 1

    total = fold(rows, start=0, add=lambda a, b: a + b, remove=lambda a, b: a - b)

    @child
    def kind(self) -> Small | Large:
        return Small(x=self.x) if self.x.get() < 10 else Large()

    @computed
    def sum_of_children(self) -> int:
        return sum(each.twice.get() for each in self.children.get().values())

    @handler
    def set_x(self, x: int) -> tuple[int, int, int, int]:
        self.double.get()
        self.x.set(x)
        return self.double.get(), self.quadruple.get(), self.side.get(), self.notes.key("x").get()

    @handler
    def set_twice(self) -> tuple[int, int]:
        self.x.set(5)
        first = self.quadruple.get()
        self.x.set(6)
        return first, self.quadruple.get()

    @handler
    def replace_row(self) -> tuple[Mapping[str, int], int, int, tuple[str, ...]]:
        self.rows.key("b").set(7)
        self.rows.key("a").delete()
        names = tuple(self.children.get())
        return dict(self.values.get()), self.total.get(), self.sum_of_children.get(), names

    @handler
    def start_row(self, key: str) -> int:
        self.rows.key(key).set(4)
        row = self.children.get()[key]
        row.note.set("begun")
        row.write.post("written")
        return row.twice.get()

    @handler
    def describe(self, x: int) -> str:
        self.x.set(x)
        return self.kind.get().name.get()

    @handler
    def divide(self) -> float:
        self.x.set(0)
        return self.inverse.get()

    @handler
    def refuse_large(self, x: int) -> None:
        self.x.set(x)
        if self.quadruple.get() > 100:
            raise Refused("too large")


async def opened(rt: Runtime, *, is_open: bool) -> Table:
    space = rt.space("s", user="ann")
    return await space.open(Table, "t") if is_open else space.piece(Table, "t")


@pytest.mark.parametrize("is_open", [True, False])
def test_computeds_side_writes_and_materialized_cells_follow_own_writes(tmp_path: Path, is_open: bool) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await opened(rt, is_open=is_open)
            assert await table.set_x.send(5) == (10, 20, 105, 5)
            assert await table.set_twice.send() == (20, 24)
            assert await table.quadruple.pull() == 24

    run(work)


@pytest.mark.parametrize("is_open", [True, False])
def test_rows_folds_and_children_follow_own_writes(tmp_path: Path, is_open: bool) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await opened(rt, is_open=is_open)
            assert await table.replace_row.send() == ({"b": 8}, 7, 14, ("b",))
            assert (await table.values.pull(), await table.total.pull()) == ({"b": 8}, 7)
            assert await table.describe.send(3) == "small 3"
            assert await table.describe.send(30) == "large"
            assert await table.describe.send(4) == "small 4"

    run(work)


@pytest.mark.parametrize("is_open", [True, False])
def test_child_of_a_new_key_takes_writes_and_events_at_once(tmp_path: Path, is_open: bool) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await opened(rt, is_open=is_open)
            assert await table.start_row.send("b") == 8
            await rt.settled()
            row = (await table.children.pull())["b"]
            assert (await row.note.pull(), await row.twice.pull()) == ("written", 8)

    run(work)


def test_failure_on_own_writes_is_the_failure_of_the_handler(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await opened(rt, is_open=True)
            with pytest.raises(HandlerFailed, match="inverse could not be computed: ZeroDivisionError"):
                await table.divide.send()
            assert await table.inverse.pull() == 1
            assert table.x.get() == 1

    run(work)


def test_refusal_after_own_writes_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            table = await opened(rt, is_open=True)
            with pytest.raises(Refused, match="too large"):
                await table.refuse_large.send(50)
            await table.refuse_large.send(20)
            assert await table.quadruple.pull() == 80

    run(work)


def test_transaction_and_plain_update_see_own_writes(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s", user="ann")
            table = await space.open(Table, "t")

            def change() -> int:
                table.x.set(9)
                return table.quadruple.get()

            assert await space.transact(change) == 36

            def fail() -> float:
                table.x.set(0)
                return table.inverse.get()

            with pytest.raises(UpstreamFailedError):
                await space.transact(fail)
            assert table.x.get() == 9

    run(work)


class Mixed(Piece):
    """Cells that the handler and nodes write, in two spaces."""

    x: Cell[int] = cell(default=1)
    side: Cell[int] = cell(default=0)
    notes: Cell[Mapping[str, int]] = cell(default={})
    rows: Cell[Mapping[str, int]] = cell(default={})

    @computed(writes=(side,))
    def writer(self) -> int:
        self.side.set(self.x.get() + 100)
        return 0

    @materializer(envelope=(notes,))
    def noting(self) -> None:
        self.notes.key("x").set(self.x.get())

    @computed
    def double(self) -> int:
        return self.x.get() * 2

    @each(rows)
    def posting(self, n: Cell[int]) -> int:
        self.set_x.post(n.get())
        return n.get()

    @handler
    def set_x(self, x: int) -> None:
        self.x.set(x)

    @handler
    def write_beside_nodes(self) -> tuple[int, Mapping[str, int], int, Mapping[str, int]]:
        self.notes.key("h").set(1)
        self.x.set(8)
        noted = self.notes.key("x").get()
        first = dict(self.notes.get())
        self.rows.set({})
        return noted, first, self.side.get(), dict(self.notes.get())

    @handler
    def add_posting_row(self) -> Mapping[str, int]:
        self.rows.key("a").set(9)
        return dict(self.posting.get())


class Outside(Piece):
    """A piece of another space with members of the same names."""

    x: Input[int] = given()
    notes: Cell[Mapping[str, int]] = cell(default={"there": 1})

    @computed
    def double(self) -> int:
        return self.x.get() * 100

    @materializer(envelope=(notes,))
    def noting(self) -> None:
        self.notes.key("x").set(self.x.get())


class Both(Piece):
    x: Cell[int] = cell(default=1)
    notes: Cell[Mapping[str, int]] = cell(default={"here": 1})
    other: Input[int] = given()
    other_notes: Input[Mapping[str, int]] = given()

    @computed
    def double(self) -> int:
        return self.x.get() * 2

    @handler
    def go(self) -> tuple[int, int, int]:
        self.x.set(5)
        return self.double.get(), self.other.get(), self.double.get()

    @handler
    def note(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        self.x.set(6)
        self.notes.key("y").set(7)
        return dict(self.notes.get()), dict(self.other_notes.get())


def test_cells_that_handler_and_nodes_write_show_the_writes_of_both(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            piece = await rt.space("s", user="ann").open(Mixed, "p")
            both = {"h": 1, "x": 8}
            assert await piece.write_beside_nodes.send() == (8, both, 108, both)
            await rt.settled()
            assert (await piece.notes.pull(), await piece.side.pull()) == (both, 108)

    run(work)


def test_rows_of_new_keys_send_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            piece = await rt.space("s", user="ann").open(Mixed, "p")
            with pytest.raises(HandlerFailed, match="could not be computed"):
                await piece.add_posting_row.send()
            assert (piece.x.get(), piece.rows.get()) == (1, {})

    run(work)


def test_results_of_two_spaces_are_told_apart(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            here, there = rt.space("s", user="ann"), rt.space("o", user="ann")
            x = here.piece(Both, "p").x
            outside = await there.open(Outside(x=x), "p")
            both = await here.open(Both(other=outside.double, other_notes=outside.notes), "p")
            assert await both.go.send() == (10, 500, 10)
            assert await both.note.send() == ({"here": 1, "y": 7}, {"there": 1, "x": 6})
            await rt.settled()
            assert (both.notes.get(), outside.notes.get()) == ({"here": 1, "y": 7}, {"there": 1, "x": 6})

    run(work)


class Writing(Piece):
    x: Cell[int] = cell(default=1)
    other: Cell[int] = cell(default=0)

    @computed
    def wrong(self) -> int:
        if self.x.get() > 1:
            self.other.set(1)
        return self.x.get()

    @handler
    def go(self) -> int:
        self.x.set(2)
        return self.wrong.get()


def test_computed_writes_nothing_undeclared_on_the_view_of_a_handler(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            piece = await rt.space("s", user="ann").open(Writing, "p")
            assert await piece.wrong.pull() == 1
            with pytest.raises(HandlerFailed, match="which it did not declare") as caught:
                await piece.go.send()
            assert isinstance(caught.value.__cause__, UpstreamFailedError | AuthoringError)
            assert (piece.x.get(), piece.other.get()) == (1, 0)

    run(work)


class Chain(Piece):
    x: Cell[int] = cell(default=0)
    length: Cell[int] = cell(default=400)

    @computed
    def before(self) -> int:
        name = int(self.ctx.name)
        return self.x.get() if name == 0 else self.ctx.space.piece(Chain, str(name - 1)).before.get() + 1

    @handler
    def go(self) -> tuple[int, int]:
        last = self.ctx.space.piece(Chain, "400")
        shown = last.before.get()
        self.x.set(1_000)
        return shown, last.before.get()


def test_long_chain_is_computed_on_the_view_of_a_handler(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            first = await rt.space("s", user="ann").open(Chain, "0")
            assert await first.go.send() == (400, 1_400)

    run(work)


class Seats(Piece):
    taken: Cell[Mapping[str, str]] = cell(default={})
    seats: Cell[int] = cell(default=1)

    @computed
    def is_overbooked(self) -> bool:
        return len(self.taken.get()) > self.seats.get()

    @handler
    def take(self, who: str) -> None:
        self.taken.key(who).set(who)
        if self.is_overbooked.get():
            raise Refused("it is full")


@simulated(faults=("delay",), seeds=12)
async def test_reads_behind_a_computed_on_own_writes_are_checked(sim: Simulation) -> None:
    """Two handlers that each see one seat taken do not both land: the read of the other one's key is in the commit."""
    spaces = [sim.runtime(user).space("s", user=user) for user in ("ann", "bob")]
    ann, bob = [await space.open(Seats, "p") for space in spaces]
    await sim.settle()
    answers = await asyncio.gather(ann.take.send("ann"), bob.take.send("bob"), return_exceptions=True)
    assert [type(each) for each in answers if each is not None] == [Refused]
    await sim.settle()
    assert len(ann.taken.get()) == 1
