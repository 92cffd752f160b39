"""The functions of an author are called once per node, on first use and after a change, in graphs of several shapes.

`test_calls_per_node` has the cases in which documents have to be fetched first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Input, Piece, cell, child, computed, each, given, handler
from headwater.protocol.messages import Watch
from headwater.runtime import LocalDirectory, Runtime
from tests.scenario.pieces_kit import alone, run
from tests.scenario.wire_kit import Wire

CALLS: Counter[str] = Counter()
CARDS = {f"k{number}": number for number in range(20)}


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def counted(name: str, expression: str) -> Any:
    """Make a computed of an expression over `self`. Its code names the members that the expression names."""
    names: dict[str, Any] = {"CALLS": CALLS}
    exec(f"def {name}(self) -> int:\n    CALLS[{name!r}] += 1\n    return {expression}", names)
    return computed(names[name])


def made(name: str, members: dict[str, Any]) -> type[Any]:
    """Make a class of pieces with a cell `start`, and a handler `put` that writes it."""

    def put(self: Any, value: int) -> None:
        self.start.set(value)

    make: Any = type
    handled: Any = handler(put)
    put.__annotations__ = {"value": int, "return": None}
    body = {"start": cell(default=1), "put": handled, **members, "__annotations__": {"start": Cell[int]}}
    found: type[Any] = make(name, (Piece,), body, name=f"tests.author_calls.{name}")
    return found


def diamond() -> type[Any]:
    return made(
        "Diamond",
        {
            "left": counted("left", "self.start.get() + 1"),
            "right": counted("right", "self.start.get() + 2"),
            "last": counted("last", "self.left.get() + self.right.get()"),
        },
    )


def total_of(width: int) -> type[Any]:
    """Make a sum of members. Its code builds their names, so that none of them is known before it runs."""
    members = {f"c{number}": counted(f"c{number}", f"self.start.get() + {number}") for number in range(width)}
    total = counted("last", f"sum(getattr(self, f'c{{number}}').get() for number in range({width}))")
    return made(f"Total{width}", {**members, "last": total})


def chain_of(length: int) -> type[Any]:
    members = {"c0": counted("c0", "self.start.get()")}
    for number in range(1, length):
        members[f"c{number}"] = counted(f"c{number}", f"self.c{number - 1}.get() + 1")
    return made(f"Chain{length}", {**members, "last": counted("last", f"self.c{length - 1}.get() + 1")})


SHAPES = {
    "diamond": (diamond(), 3),
    "sum of 100": (total_of(100), 101),
    "sum of 500": (total_of(500), 501),
    "chain of 50": (chain_of(50), 51),
}


class Leaf(Piece, name="tests.author_calls.Leaf"):
    points: Input[int] = given()
    start: Input[int] = given()

    @computed
    def score(self) -> int:
        CALLS["score"] += 1
        return self.points.get() * self.start.get()


class Rows(Piece, name="tests.author_calls.Rows"):
    """Twenty values of an `each`, and twenty children, below one sum each."""

    start: Cell[int] = cell(default=1)
    cards: Cell[Mapping[str, int]] = cell(default={})

    @each(cards)
    def scaled(self, points: Cell[int]) -> int:
        CALLS["row"] += 1
        return points.get() * self.start.get()

    @each(cards)
    def leaves(self, points: Cell[int]) -> Leaf:
        CALLS["leaf"] += 1
        return Leaf(points=points, start=self.start)

    @child
    def only(self) -> Leaf:
        CALLS["only"] += 1
        return Leaf(points=self.start, start=self.start)

    @computed
    def last(self) -> int:
        CALLS["last"] += 1
        return sum(self.scaled.get().values())

    @computed
    def below(self) -> int:
        CALLS["below"] += 1
        return sum(leaf.score.get() for leaf in self.leaves.get().values())

    @computed
    def alone(self) -> int:
        CALLS["alone"] += 1
        return self.only.get().score.get()


def check_once(nodes: int) -> None:
    assert sum(CALLS.values()) == nodes, [name for name, count in CALLS.items() if count > 1]
    assert set(CALLS.values()) == {1}
    CALLS.clear()


async def story(rt: Runtime, cls: type[Any], nodes: int) -> None:
    space = rt.space("s")
    piece = await space.open(cls, "p")
    value = await piece.last.pull()
    check_once(nodes)
    for start in (5, 6):
        piece.start.set(start)
        assert await piece.last.pull() != value
        check_once(nodes)
        value = await piece.last.pull()
        assert not CALLS
    await piece.put.send(7)
    assert await piece.last.pull() != value
    check_once(nodes)
    seen: list[int] = []
    sink = piece.last.sink(seen.append)
    await rt.idle()
    assert len(seen) == 1
    assert not CALLS
    for start in (8, 9):
        piece.start.set(start)
        await rt.idle()
        check_once(nodes)
    await piece.put.send(10)
    await rt.idle()
    check_once(nodes)
    assert len(seen) == 4
    sink.close()
    other = await space.open(cls, "q")
    other.last.sink(seen.append)
    await rt.idle()
    check_once(nodes)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_function_is_called_once_per_change_without_an_engine(shape: str) -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            await story(rt, *SHAPES[shape])

    run(work)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_function_is_called_once_per_change_in_a_directory(tmp_path: Path, shape: str) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            await story(rt, *SHAPES[shape])

    run(work)


async def rows_story(rt: Runtime, most: int) -> None:
    rows = await rt.space("s").open(Rows, "r", setup=lambda rows: rows.cards.set(CARDS))
    points = sum(CARDS.values())
    assert await rows.last.pull() == points
    assert await rows.below.pull() == points
    assert await rows.alone.pull() == 1
    # The documents of children have to be fetched: their readers may be called once more.
    again = {name: CALLS[name] for name in ("below", "alone")}
    assert max(again.values()) <= most
    assert {"row": 20, "leaf": 20, "only": 1, "score": 21, "last": 1} | again == CALLS
    for start in (2, 3):
        CALLS.clear()
        rows.start.set(start)
        assert await rows.last.pull() == points * start
        assert await rows.below.pull() == points * start
        assert await rows.alone.pull() == start * start
        assert CALLS == {"row": 20, "score": 21, "last": 1, "below": 1, "alone": 1}
    CALLS.clear()
    seen: list[int] = []
    for handle in (rows.last, rows.below, rows.alone):
        handle.sink(seen.append)
    await rt.idle()
    assert not CALLS
    rows.start.set(4)
    await rt.idle()
    assert CALLS == {"row": 20, "score": 21, "last": 1, "below": 1, "alone": 1}
    CALLS.clear()
    rows.cards.key("k20").set(100)
    await rt.settled()
    again = {name: CALLS[name] for name in ("last", "below")}
    # In a directory the row of the new child has to be fetched, and then the documents of the child.
    assert again["last"] <= most
    assert again["below"] <= 2 * most - 1
    assert {"row": 1, "leaf": 1, "score": 1} | again == CALLS


def test_each_function_is_called_once_per_row_and_child_without_an_engine() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            await rows_story(rt, most=1)

    run(work)


def test_each_function_is_called_once_per_row_and_child_in_a_directory(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            await rows_story(rt, most=2)

    run(work)


@pytest.mark.parametrize("shape", ["diamond", "chain of 50"])
def test_piece_that_is_only_named_calls_each_function_at_most_twice(tmp_path: Path, shape: str) -> None:
    """Its documents have to be fetched first."""

    async def work() -> None:
        cls, nodes = SHAPES[shape]
        async with headwater.open(tmp_path) as rt:
            await rt.space("s").piece(cls, "p").last.pull()
            assert len(CALLS) == nodes
            assert max(CALLS.values()) <= 2

    run(work)


def test_second_piece_of_a_class_requests_all_of_its_documents_in_one_message(tmp_path: Path) -> None:
    """With its record, when it is opened: no document is left to request when its values are read."""

    async def work() -> None:
        cls, nodes = SHAPES["diamond"]
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            wire = Wire(data)
            async with Runtime(wire) as rt:
                await rt.space("s").open(cls, "p")
                wire.sent.clear()
                piece = await rt.space("s").open(cls, "q")
                await piece.last.pull()
                watches = [message for _, message in wire.sent if isinstance(message, Watch)]
                assert [len(each.selectors) for each in watches] == [nodes + 2]

    run(work)
