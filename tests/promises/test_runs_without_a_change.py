"""What shows its readers no other value runs none of them, now or after a restart."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

import pytest

import headwater
from headwater import Cell, Input, Model, Piece, Runtime, Space, cell, computed, each, effect, given, handler
from tests.scenario.pieces_kit import run

RUNS: list[str] = []


class Card(Model):
    title: str = "new"
    votes: int = 0


class Board(Piece, name="promises.Unchanged"):
    size: Cell[int] = cell(default=1)
    card: Cell[Card] = cell(default=Card())
    counts: Cell[Mapping[str, int]] = cell(default={"a": 1})
    pairs: Cell[Mapping[str, Mapping[str, int]]] = cell(default={"x": {}, "y": {"a": 1, "b": 2}})

    @computed
    def whole(self) -> int:
        RUNS.append("whole")
        return self.size.get()

    @computed
    def title(self) -> str:
        RUNS.append("title")
        return self.card.at(lambda card: card.title).get()

    @computed
    def one(self) -> tuple[int, bool]:
        RUNS.append("one")
        return self.counts.key("a").get(0), self.counts.key("c").exists()

    @computed
    def order(self) -> tuple[str, ...]:
        RUNS.append("order")
        return (*self.pairs.view(), *self.pairs.key("y").view())

    @effect
    def show(self) -> None:
        RUNS.append("show")
        self.whole.get(), self.title.get(), self.one.get(), self.order.get()

    @handler
    def vote(self) -> None:
        self.card.set(Card(votes=7))

    @handler
    def turn(self) -> None:
        self.pairs.set({"y": {"b": 2, "a": 1}, "x": {}})


class Outside(Piece, name="promises.UnchangedOutside"):
    size: Input[int] = given()

    @effect
    def show(self) -> None:
        RUNS.append("outside")
        self.size.get()


WRITES = [
    lambda board: board.size.set(1),
    lambda board: board.card.set(Card()),
    lambda board: board.card.set(Card(votes=3)),
    lambda board: board.counts.set({"a": 1}),
    lambda board: board.pairs.set({"y": {"b": 2, "a": 1}, "x": {}}),
    lambda board: board.pairs.key("y").set({"b": 2, "a": 1}),
    lambda board: board.turn.send(),
]
NAMES = [
    "the default",
    "a default Model",
    "another field",
    "a default Mapping",
    "a default Mapping in another order",
    "a key of a default in another order",
    "a default Mapping in another order by a handler",
]


@pytest.mark.parametrize("write", WRITES, ids=NAMES)
def test_the_first_write_of_a_cell_runs_no_reader_that_sees_the_same_value(write: object, tmp_path: Path) -> None:
    async def work() -> None:
        assert callable(write)
        async with headwater.open(tmp_path) as rt:
            board = await rt.space("s", user="ann").open(Board, "b")
            seen: list[object] = []
            board.size.sink(seen.append)
            board.pairs.sink(seen.append)
            board.pairs.key("y").sink(seen.append)
            await rt.idle()
            RUNS.clear()
            seen.clear()
            made = write(board)
            if inspect.isawaitable(made):
                await made
            await rt.settled()
            await rt.idle()
            await rt.durable()
            assert (RUNS, seen) == ([], [])
        async with headwater.open(tmp_path) as rt:
            board = await rt.space("s", user="ann").open(Board, "b")
            assert [await each.pull() for each in (board.whole, board.title, board.one)] == [1, "new", (1, False)]
            assert await board.order.pull() == ("x", "y", "a", "b")
            await rt.idle()
            assert RUNS == []

    run(work)


def test_a_write_that_keeps_the_field_of_a_node_leaves_the_node_clean_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            board = await rt.space("s", user="ann").open(Board, "b")
            await rt.idle()
            board.card.set(Card(votes=1))
            RUNS.clear()
            await board.vote.send()
            await rt.idle()
            await rt.durable()
            assert RUNS == []
        async with headwater.open(tmp_path) as rt:
            board = await rt.space("s", user="ann").open(Board, "b")
            assert await board.title.pull() == "new"
            await rt.idle()
            assert RUNS == []

    run(work)


class Labels(Piece, name="promises.UnchangedLabels"):
    tags: Cell[frozenset[str]] = cell(default=frozenset({"b", "c"}))

    @computed
    def listed(self) -> tuple[str, ...]:
        RUNS.append("listed")
        return tuple(sorted(self.tags.get()))

    @handler
    def renew(self, tag: str) -> None:
        self.tags.discard(tag)
        self.tags.add(tag)


@pytest.mark.parametrize("tag", ["a", "b", "c"])
def test_a_set_that_loses_and_gains_the_same_element_is_no_other_value(tag: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            labels = await rt.space("s", user="ann").open(Labels, "l")
            labels.tags.set(frozenset({"b", "c"}))
            for each in ("a", "c"):
                await labels.renew.send(each)
            seen: list[object] = []
            labels.tags.sink(seen.append)
            labels.listed.sink(seen.append)
            await rt.idle()
            RUNS.clear()
            seen.clear()
            await labels.renew.send(tag)
            await rt.settled()
            await rt.durable()
            assert (RUNS, seen) == ([], [])
        async with headwater.open(tmp_path) as rt:
            labels = await rt.space("s", user="ann").open(Labels, "l")
            assert await labels.listed.pull() == ("a", "b", "c")
            assert RUNS == []

    run(work)


def test_a_piece_that_stops_runs_no_reader(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("s", user="ann")
            board = await space.open(Board, "b")
            await space.open(Outside(size=board.whole), "o")
            seen: list[str] = []
            board.title.sink(seen.append)
            await rt.idle()
            RUNS.clear()
            await space.stop(board)
            await rt.idle()
            assert (RUNS, seen) == ([], ["new"])

    run(work)


class Row(Piece, name="promises.UnchangedRow"):
    count: Input[int] = given()

    @computed
    def twice(self) -> int:
        RUNS.append("twice")
        return 2 * self.count.get()

    @effect
    def show(self) -> None:
        RUNS.append("row")
        self.twice.get()


class Table(Piece, name="promises.UnchangedTable"):
    counts: Cell[Mapping[str, int]] = cell(default={"a": 1, "b": 2})
    others: Cell[Mapping[str, int]] = cell(default={"a": 100})
    is_other: Cell[bool] = cell(default=False)

    @each(counts)
    def rows(self, count: Cell[int]) -> Row:
        return Row(count=self.others.key("a") if self.is_other.get() else count)


async def tables(rt: Runtime) -> tuple[Space, Table, list[int]]:
    """Open a table, and outside of it an effect and a sink on one row."""
    space = rt.space("s", user="ann")
    table = await space.open(Table, "t")
    row = (await table.rows.pull())["a"]
    await space.open(Outside(size=row.twice), "o")
    seen: list[int] = []
    row.twice.sink(seen.append)
    await rt.settled()
    RUNS.clear()
    return space, table, seen


def test_a_piece_that_stops_runs_no_reader_of_its_rows() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            space, table, seen = await tables(rt)
            await space.stop(table)
            await rt.settled()
            assert (RUNS, seen) == ([], [2])
            table.counts.key("a").set(5)
            await rt.settled()
            assert (sorted(RUNS), seen) == (["outside", "twice"], [2, 10])
            table = await space.open(Table, "t")
            await rt.settled()
            table.counts.key("a").set(6)
            RUNS.clear()
            await rt.settled()
            assert (sorted(RUNS), seen) == (["outside", "row", "twice"], [2, 10, 12])

    run(work)


def test_readers_of_rows_of_a_piece_that_stopped_follow_a_row_that_keeps_another_child() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            space, table, seen = await tables(rt)
            await space.stop(table)
            table.is_other.set(True)
            await rt.settled()
            assert seen == [2, 200]

    run(work)
