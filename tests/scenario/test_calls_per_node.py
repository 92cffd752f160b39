"""How often the functions of an author are called: once per node on a change, however the value is asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Computed, Piece, Space, cell, computed, handler
from headwater.protocol.messages import Transact, Watch
from headwater.runtime import LocalDirectory, Runtime
from tests.scenario.pieces_kit import alone, run
from tests.scenario.wire_kit import Wire

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


class Diamond(Piece):
    """`total` reads `left` and `right`, and both read `start`."""

    start: Cell[int] = cell(default=1)
    wide: Cell[bool] = cell(default=True)

    @computed
    def left(self) -> int:
        CALLS.append("left")
        return self.start.get() + 1

    @computed
    def right(self) -> int:
        CALLS.append("right")
        return self.start.get() + 2

    @computed
    def total(self) -> int:
        CALLS.append("total")
        return self.left.get() + self.right.get()

    @computed
    def doubled(self) -> int:
        CALLS.append("doubled")
        return self.total.get() + self.left.get()

    @computed
    def chosen(self) -> int:
        CALLS.append("chosen")
        return self.left.get() + (self.right.get() if self.wide.get() else 0)

    @handler
    def ask(self) -> int:
        return self.doubled.get()


def test_pull_after_a_change_calls_each_function_once() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            diamond = await rt.space("s").open(Diamond, "d")
            assert await diamond.doubled.pull() == 7
            assert sorted(CALLS) == ["doubled", "left", "right", "total"]
            for start in (5, 6):
                CALLS.clear()
                diamond.start.set(start)
                assert await diamond.doubled.pull() == 3 * start + 4
                assert sorted(CALLS) == ["doubled", "left", "right", "total"]

    run(work)


def test_handler_after_a_change_calls_each_function_once() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            diamond = await rt.space("s").open(Diamond, "d")
            assert await diamond.ask.send() == 7
            CALLS.clear()
            diamond.start.set(5)
            assert await diamond.ask.send() == 19
            assert sorted(CALLS) == ["doubled", "left", "right", "total"]

    run(work)


def test_pull_does_not_call_a_function_whose_value_is_not_read_any_more() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            diamond = await rt.space("s").open(Diamond, "d")
            assert await diamond.chosen.pull() == 5
            CALLS.clear()

            def narrow() -> None:
                diamond.wide.set(False)
                diamond.start.set(5)

            await rt.space("s").transact(narrow)
            assert await diamond.chosen.pull() == 6
            assert sorted(CALLS) == ["chosen", "left"]

    run(work)


def test_why_names_the_change_that_a_nested_run_made() -> None:
    """I8: `total` was marked by `left` before its run and by `right` during it. Both are causes of the run."""

    async def work() -> None:
        async with alone() as (rt, _):
            diamond = await rt.space("s").open(Diamond, "d")
            await diamond.total.pull()
            diamond.start.set(5)
            await diamond.total.pull()
            shown = str(rt.why("s/d:total"))
            assert "left" in shown
            assert "right" in shown

    run(work)


class Link(Piece):
    """One piece of a chain: its value is the sum over itself and the pieces behind it."""

    points: Cell[int] = cell(default=1)
    behind: Cell[str] = cell(default="")
    is_ring: Cell[bool] = cell(default=False)

    @computed
    def total(self) -> int:
        CALLS.append("total")
        name = self.behind.get()
        if not name:
            return self.points.get()
        there: Computed[int] = self.ctx.space.piece(Link, name).total
        if self.is_ring.get():
            return max(self.points.get(), there.get(0))
        return self.points.get() + there.get()


async def make_chain(space: Space, length: int, is_ring: bool) -> None:
    """Store a chain of pieces from `p0` on, none of which is open."""

    def make() -> None:
        for number in range(length):
            piece = space.piece(Link, f"p{number}")
            last = "p0" if is_ring else ""
            piece.behind.set(f"p{number + 1}" if number + 1 < length else last)
            piece.is_ring.set(is_ring)

    await space.transact(make)


@pytest.mark.parametrize("is_ring", [False, True], ids=["line", "ring"])
def test_calls_to_discover_a_chain_of_pieces_grow_with_its_length(tmp_path: Path, is_ring: bool) -> None:
    """Each piece is found by the run of the one before, and its documents have to be fetched."""

    async def discovered(length: int) -> int:
        async with headwater.open(tmp_path / str(length)) as rt:
            space = rt.space("s")
            await make_chain(space, length, is_ring)
            await rt.idle()
            CALLS.clear()
            steps = rt.scheduler.search_steps
            assert await space.piece(Link, "p0").total.pull() == (1 if is_ring else length)
            assert rt.scheduler.search_steps - steps <= 10 * length
            return len(CALLS)

    async def work() -> None:
        assert await discovered(20) <= 20 * 2
        assert await discovered(80) <= 80 * 2

    run(work)


@pytest.mark.parametrize("is_together", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("is_ring", [False, True], ids=["line", "ring"])
def test_work_to_open_and_close_looks_at_a_chain_of_pieces_grows_with_its_length(
    tmp_path: Path, is_ring: bool, is_together: bool
) -> None:
    async def looked_at(length: int) -> int:
        async with headwater.open(tmp_path / str(length)) as rt:
            space = rt.space("s")
            await make_chain(space, length, is_ring)
            await rt.idle()
            before = rt.scheduler.graph_steps
            first = space.piece(Link, "p0").total.sink(lambda _: None)
            await rt.settled()
            looks = [space.piece(Link, f"p{number}").total.sink(lambda _: None) for number in range(length)]
            for look in [first, *looks]:
                if not is_together:
                    await asyncio.sleep(0)  # The demand that was withdrawn takes effect in a tick of its own.
                look.close()
            await rt.settled()
            return rt.scheduler.graph_steps - before

    async def work() -> None:
        # About nine for each piece; how many ticks there are in between depends on the engine's thread.
        assert await looked_at(20) <= 20 * 16
        assert await looked_at(160) <= 160 * 16

    run(work)


def test_first_values_of_a_piece_in_a_directory_call_each_function_once(tmp_path: Path) -> None:
    """The documents that the code names are fetched together, before the first function is called."""

    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            diamond = await rt.space("s").open(Diamond, "d")
            assert await diamond.doubled.pull() == 7
            assert sorted(CALLS) == ["doubled", "left", "right", "total"]

    run(work)


def wide(name: str, width: int) -> type[Any]:
    """Make a class of pieces: a cell, computeds that read it, and `total`, which reads those by names it builds."""

    def member(number: int) -> Any:
        def plus(self: Any) -> int:
            CALLS.append(f"c{number}")
            value: int = self.start.get() + number
            return value

        return computed(plus)

    def total(self: Any) -> int:
        CALLS.append("total")
        return sum(getattr(self, f"c{number}").get() for number in range(width))

    def few(self: Any) -> int:
        CALLS.append("few")
        value: int = self.c1.get() + self.c2.get() + self.c3.get()
        return value

    members: dict[str, Any] = {f"c{number}": member(number) for number in range(width)}
    members.update(start=cell(default=1), total=computed(total), few=computed(few))
    members["__annotations__"] = {"start": Cell[int]}
    make: Any = type
    made: type[Any] = make(name, (Piece,), members, name=f"tests.calls.{name}")
    return made


Narrow = wide("Narrow", 20)
Wide = wide("Wide", 100)


def test_first_values_of_an_opened_piece_call_each_function_once_whatever_its_code_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            piece = await rt.space("s").open(Wide, "w")
            assert await piece.total.pull() == 100 + sum(range(100))
            assert len(CALLS) == 101
            assert set(Counter(CALLS).values()) == {1}

    run(work)


def test_first_value_of_a_small_piece_that_is_only_named_calls_each_function_at_most_twice(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            piece = rt.space("s").piece(Narrow, "n")
            assert await piece.total.pull() == 20 + sum(range(20))
            assert max(Counter(CALLS).values()) <= 2

    run(work)


def test_value_of_a_large_piece_that_is_only_named_fetches_what_its_code_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            wire = Wire(data)
            async with Runtime(wire) as rt:
                assert await rt.space("s").piece(Wide, "w").few.pull() == 9
                assert max(Counter(CALLS).values()) <= 2
                watches = [message for _, message in wire.sent if isinstance(message, Watch)]
                assert sum(len(each.selectors) for each in watches) < 10

    run(work)


def test_large_piece_that_is_only_named_is_fetched_with_the_second_document_that_is_missing(tmp_path: Path) -> None:
    async def work() -> None:
        async with headwater.open(tmp_path) as rt:
            piece = rt.space("s").piece(Wide, "w")
            assert await piece.total.pull() == 100 + sum(range(100))
            assert max(Counter(CALLS).values()) <= 3

    run(work)


Widest = wide("Widest", 500)


def test_a_thousand_changes_without_awaiting_any_are_few_waves_and_their_last_values_are_durable(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            wire = Wire(data)
            async with Runtime(wire) as rt:
                piece = await rt.space("s").open(Widest, "w")
                look = piece.total.sink(lambda _: None)
                await rt.durable()
                wire.sent.clear()
                for number in range(1, 1_001):
                    piece.start.set(number)
                await rt.durable()
                frames = [message for _, message in wire.sent if isinstance(message, Transact)]
                assert len([commit for frame in frames for commit in frame.commits if commit.results]) <= 30
                look.close()
        async with headwater.open(tmp_path) as rt:
            CALLS.clear()
            piece = await rt.space("s").open(Widest, "w")
            assert await piece.total.pull() == 500 * 1_000 + sum(range(500))
            assert CALLS == []

    run(work)
