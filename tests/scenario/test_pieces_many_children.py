"""A reader of the same member of every child: how often it is begun, what runs for it, and what is asked for ahead.

`./dev sim` tries more children than `./dev test`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater import Cell, Input, Piece, Runtime, cell, child, computed, each, given, handler
from headwater.data.address import DocKey
from headwater.replica import NOT_HERE, Document
from tests.counts import is_exploring
from tests.scenario.pieces_kit import at, run

MOST_ATTEMPTS = 20
"""Of one reader, for each member that it looks at: documents come in three or four parts, 64 of them first."""


CALLS: Counter[str] = Counter()
"""How often handlers were called, those calls included that were stopped."""
MINUTES_S = 300
"""A machine may be slow: what is counted are attempts."""


class Leaf(Piece, name="tests.many.Leaf"):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return self.n.get() * 2


class Row(Piece, name="tests.many.Row"):
    n: Input[int] = given()
    note: Cell[int] = cell(default=3)

    @computed
    def base(self) -> int:
        return self.n.get()

    @computed
    def price(self) -> int:
        return self.base.get() * 2

    @computed
    def failing(self) -> int:
        raise ValueError("nobody asked for it")


class TrieNode(Piece, name="tests.many.TrieNode"):
    n: Input[int] = given()

    @child
    def leaf(self) -> Leaf:
        return Leaf(n=self.n)


class Tree(Piece, name="tests.many.Tree"):
    cells: Cell[Mapping[str, int]] = cell(default={})

    @each(cells)
    def twigs(self, n: Cell[int]) -> TrieNode:
        return TrieNode(n=n)

    @computed
    def leaves(self) -> int:
        return sum(twig.leaf.get().twice.get() for twig in self.twigs.get().values())


class Shop(Piece, name="tests.many.Shop"):
    cells: Cell[Mapping[str, int]] = cell(default={})
    out: Cell[int] = cell(default=0)

    @each(cells)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n)

    @computed
    def total(self) -> int:
        return sum(row.price.get() for row in self.rows.get().values())

    @computed
    def notes(self) -> int:
        return sum(row.note.get() for row in self.rows.get().values())

    @computed
    def first(self) -> int:
        return next(iter(self.rows.get().values())).price.get()

    @computed
    def careful(self) -> int:
        rows = list(self.rows.get().values())
        return rows[0].price.get() if rows[0].n.get() == 0 else rows[1].failing.get()

    @handler
    def add(self) -> int:
        CALLS["add"] += 1
        total = sum(row.price.get() for row in self.rows.get().values())
        self.out.set(total)
        return total

    @handler
    def note(self) -> int:
        CALLS["note"] += 1
        return sum(row.note.get() for row in self.rows.get().values())


async def opened(rt: Runtime, count: int) -> Shop:
    shop = await rt.space("s", user="ann").open(
        Shop, "t", setup=lambda made: made.cells.set({f"k{number}": number for number in range(count)})
    )
    await rt.settled()
    return shop


def attempts(rt: Runtime, id: str) -> int:
    return rt.graph().node(id).attempts


def prices_here(rt: Runtime, count: int) -> list[Document]:
    channel = rt.channel("s")
    assert channel is not None
    documents = [channel.replica.documents.of(DocKey("space", f"t/rows/k{n}:price")) for n in range(count)]
    return [each for each in documents if each.value is not NOT_HERE]


def sum_of(count: int) -> int:
    return sum(range(count))


@pytest.mark.parametrize("count", [100, 400, 1_600] if is_exploring() else [100, 400])
def test_a_computed_that_reads_every_child_is_begun_a_few_times_however_many_there_are(
    tmp_path: Path, count: int
) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            shop = await opened(rt, count)
            assert await shop.total.pull() == sum_of(count) * 2
            parts = [node for node in rt.graph().nodes if node.id.endswith((":price", ":base"))]
            assert len(parts) == 2 * count
            assert {node.runs for node in parts} == {1}
            assert sum(node.attempts for node in parts) <= 2 * count + 2 * MOST_ATTEMPTS
            assert attempts(rt, "s/t:total") <= 2 * MOST_ATTEMPTS
            assert await shop.notes.pull() == 3 * count  # Cells, whose documents are not here either.
            assert attempts(rt, "s/t:notes") <= MOST_ATTEMPTS
            assert site.errors == []

    run(work, MINUTES_S)


@pytest.mark.parametrize("count", [100, 400, 1_600] if is_exploring() else [100, 400])
def test_a_handler_that_reads_every_child_is_called_a_few_times_however_many_there_are(
    tmp_path: Path, count: int
) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            shop = await opened(rt, count)
            CALLS.clear()
            assert await shop.add.send() == sum_of(count) * 2
            assert await shop.note.send() == 3 * count
            assert CALLS["add"] <= 2 * MOST_ATTEMPTS
            assert CALLS["note"] <= MOST_ATTEMPTS
            parts = [node for node in rt.graph().nodes if node.id.endswith((":price", ":base"))]
            assert {node.runs for node in parts} == {1}
            shop.cells.key("k3").set(100)
            assert await shop.add.send() == (sum_of(count) + 97) * 2
            assert site.errors == []

    run(work, MINUTES_S)


@pytest.mark.parametrize("count", [50, 200])
def test_one_that_reads_what_every_child_s_child_computes_is_begun_a_few_times(tmp_path: Path, count: int) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            tree = await rt.space("s").open(
                Tree, "t", setup=lambda made: made.cells.set({f"k{number}": number for number in range(count)})
            )
            await rt.settled()
            assert await tree.leaves.pull() == sum_of(count) * 2
            assert attempts(rt, "s/t:leaves") <= MOST_ATTEMPTS

    run(work, MINUTES_S)


@pytest.mark.parametrize("place", ["detached", "websocket"])
def test_the_same_elsewhere(tmp_path: Path, place: str) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            shop = await opened(rt, 200)
            assert await shop.total.pull() == sum_of(200) * 2
            assert await shop.notes.pull() == 600
            CALLS.clear()
            assert await shop.add.send() == sum_of(200) * 2
            assert CALLS["add"] <= MOST_ATTEMPTS
            assert attempts(rt, "s/t:total") <= 2 * MOST_ATTEMPTS

    run(work, MINUTES_S)


def test_nothing_runs_for_a_child_that_nobody_came_to_read(tmp_path: Path) -> None:
    """I2: what is asked for ahead are documents, and not more of them than a reader is likely to miss next."""

    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            shop = await opened(rt, 300)
            assert await shop.first.pull() == 0
            assert await shop.careful.pull() == 0
            assert len([node for node in rt.graph().nodes if node.id.endswith(":price")]) == 1
            assert not any(node.id.endswith(":failing") for node in rt.graph().nodes)
            assert len(prices_here(rt, 300)) <= 1 + 64
            assert site.errors == []

    run(work)


def test_one_that_is_asked_for_by_its_key_brings_nobody_else_s_documents(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            shop = await opened(rt, 300)
            for number in range(10):
                assert await shop.rows.get()[f"k{number}"].price.pull() == 2 * number
            assert len(prices_here(rt, 300)) == 10

    run(work)


def test_a_later_change_costs_what_changed(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt = site.runtime()
            shop = await opened(rt, 200)
            seen: list[int] = []
            shop.total.sink(seen.append)
            await rt.settled()
            before = sum(node.attempts for node in rt.graph().nodes)
            shop.cells.key("k3").set(10)
            await rt.settled()
            assert seen == [sum_of(200) * 2, (sum_of(200) + 7) * 2]
            assert sum(node.attempts for node in rt.graph().nodes) - before <= 6

    run(work)
