"""A sink, a watch and a handle of a row or a piece that is gone say so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import (
    AbsentError,
    Cell,
    GoneError,
    Input,
    Piece,
    Refused,
    Runtime,
    cell,
    computed,
    each,
    effect,
    given,
    handler,
    materializer,
)
from headwater.runtime import LocalDirectory
from headwater.testing import Simulation, simulated
from tests.aid.serving import SPACE, Pad, page, place, serving


class Card(Piece, name="gone.Card"):
    title: Cell[str] = given()
    note: Cell[str] = cell(default="")

    @computed
    def loud(self) -> str:
        return self.title.get().upper()

    @handler
    def write(self, note: str) -> None:
        self.note.set(note)


class Board(Piece, name="gone.Board"):
    titles: Cell[Mapping[str, str]] = cell(default={})
    others: Cell[Mapping[str, str]] = cell(default={"a": "other"})
    is_other: Cell[bool] = cell(default=False)

    @each(titles)
    def cards(self, title: Cell[str]) -> Card | None:
        if title.get() == "hidden":
            return None
        return Card(title=self.others.key("a") if self.is_other.get() else title)

    @computed
    def count(self) -> int:
        return len(self.titles.get())

    @handler
    def put(self, key: str, title: str) -> None:
        self.titles.key(key).set(title)


@asynccontextmanager
async def open_board() -> AsyncIterator[tuple[Runtime, Board, list[BaseException]]]:
    errors: list[BaseException] = []
    async with Runtime() as rt:
        rt.on_error(errors.append)
        yield (
            rt,
            await rt.space("s").open(Board, "b", setup=lambda board: board.titles.set({"a": "a", "b": "b"})),
            errors,
        )


def hide(board: Board) -> None:
    board.titles.key("a").set("hidden")


def remove(board: Board) -> None:
    board.titles.key("a").delete()


@pytest.mark.parametrize("leave", [remove, hide])
def test_sinks_of_a_row_that_left_end_and_say_so(leave: Callable[[Board], None]) -> None:
    async def work() -> None:
        async with open_board() as (rt, board, errors):
            card = board.cards.get()["a"]
            seen: list[str] = []
            loud, note = card.loud.sink(seen.append), card.note.sink(seen.append)
            await rt.settled()
            assert (sorted(seen), loud.ended, note.ended) == (["", "A"], None, None)
            leave(board)
            await rt.settled()
            for look in (loud, note):
                assert isinstance(look.ended, GoneError)
            assert [type(each) for each in errors] == [GoneError, GoneError]
            board.titles.key("a").set("z")
            await rt.settled()
            assert sorted(seen) == ["", "A"]
            card.loud.sink(seen.append)  # The key is back: the card is there again.
            await rt.settled()
            assert seen[-1] == "Z"

    headwater.run(work)


def test_watch_of_a_row_that_left_raises() -> None:
    async def work() -> None:
        async with open_board() as (_, board, errors):
            card = board.cards.get()["a"]
            seen: list[str] = []

            async def watch() -> None:
                async for value in card.loud.watch():
                    seen.append(value)
                    remove(board)

            with pytest.raises(GoneError, match="'b/cards/a' of s> has ended"):
                await asyncio.wait_for(watch(), 10)
            assert (seen, errors) == (["A"], [])

    headwater.run(work)


def test_handles_of_a_row_that_left_raise() -> None:
    async def work() -> None:
        async with open_board() as (rt, board, _):
            card = board.cards.get()["a"]
            loud, note, write = card.loud, card.note, card.write
            remove(board)
            await rt.settled()
            for use in (lambda: card.loud, lambda: card.note, lambda: card.write):
                with pytest.raises(GoneError):
                    use()
            kept: Any
            for kept in (loud, note):
                with pytest.raises(GoneError):
                    await kept.pull()
            with pytest.raises(Refused, match="its piece is gone"):
                await write.send("lost")

    headwater.run(work)


def test_sink_of_a_row_that_keeps_another_child_follows_it() -> None:
    async def work() -> None:
        async with open_board() as (rt, board, errors):
            seen: list[str] = []
            look = board.cards.get()["a"].loud.sink(seen.append)
            await rt.settled()
            board.is_other.set(True)
            await rt.settled()
            board.others.key("a").set("changed")
            await rt.settled()
            assert (seen, look.ended, errors) == (["A", "OTHER", "CHANGED"], None, [])

    headwater.run(work)


def test_sinks_of_a_deleted_piece_and_of_its_rows_end() -> None:
    async def work() -> None:
        async with open_board() as (rt, board, _):
            card = board.cards.get()["a"]
            seen: list[object] = []
            looks = [each.sink(seen.append) for each in (board.count, board.is_other, card.loud, card.note)]
            await rt.settled()
            assert len(seen) == 4
            await rt.space("s").delete(board)
            await rt.settled()
            assert len(seen) == 4
            for look in looks:
                assert isinstance(look.ended, GoneError)

    headwater.run(work)


@simulated(seeds=5, faults=("delay",))
async def test_sinks_of_a_piece_that_another_runtime_deletes_end(sim: Simulation) -> None:
    """A runtime that has the piece open itself goes on with it, as a new one."""
    ann, bob, eve = (sim.runtime(name).space("s") for name in ("ann", "bob", "eve"))
    board = await ann.open(Board, "b")
    await board.put.send("a", "a")
    open_at_eve = await eve.open(Board, "b")
    await sim.settle()
    shown: list[int] = []
    count = bob.piece(Board, "b").count.sink(ignore)
    kept = open_at_eve.count.sink(shown.append)
    await sim.settle()
    await ann.delete(board)
    await sim.settle()
    assert isinstance(count.ended, GoneError)
    assert (shown, kept.ended) == ([1, 0], None)


def ignore(_: object) -> None:
    """A sink that does nothing."""


@simulated(seeds=3, faults=("delay",))
async def test_sink_on_a_piece_that_was_stopped_ends_when_another_runtime_deletes_it(sim: Simulation) -> None:
    ann, bob = (sim.runtime(name).space("desk", user="") for name in ("ann", "bob"))
    here, there = await ann.open(Board, "b"), await bob.open(Board, "b")
    await sim.settle()
    sinks = [here.titles.sink(lambda _: None), here.count.sink(lambda _: None)]
    await sim.settle()
    await ann.stop(here)
    await sim.settle()
    await bob.delete(there)
    await sim.settle()
    assert [type(sink.ended) for sink in sinks] == [GoneError, GoneError]


def test_page_is_told_that_the_piece_of_a_watched_member_was_deleted(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as server, page(server) as ann:
            await ann.say(type="look", id=100, place=place("loud"))
            await ann.hear(id=100, type="shown")
            space = server.application().runtime.space(SPACE)
            await space.delete(space.piece(Pad, "main"))
            assert "was deleted" in (await ann.hear(id=100, type="failed"))["error"]

    headwater.run(work)


class Counter(Piece, name="gone.Counter"):
    n: Cell[int] = cell(default=0)

    @computed
    def double(self) -> int:
        return self.n.get() * 2


def test_sink_on_a_piece_that_slept_and_was_stopped_ends_when_another_runtime_deletes_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path) as data:
            async with Runtime(data) as rt:
                counter = await rt.space("s").open(Counter, "c")
                assert await counter.double.pull() == 0
            async with Runtime(data) as ann, Runtime(data) as bob:
                errors: list[BaseException] = []
                ann.on_error(errors.append)
                counter = await ann.space("s").open(Counter, "c")
                assert ann.graph().nodes == ()  # It sleeps.
                seen: list[object] = []
                look = counter.n.sink(seen.append)
                await ann.settled()
                await ann.space("s").stop(counter)
                await ann.settled()
                await bob.space("s").delete(bob.space("s").piece(Counter, "c"))
                async with asyncio.timeout(10):
                    await ann.until(lambda: look.ended is not None)
                assert "was deleted" in str(look.ended)
                assert (seen, errors) == ([0], [look.ended])

    headwater.run(work)


class Reader(Piece, name="gone.Reader"):
    double: Input[int] = given()

    @effect
    def show(self) -> None:
        self.double.get()


def test_sink_on_an_input_of_a_deleted_piece_is_not_told_the_same_value_again() -> None:
    async def story() -> None:
        async with Runtime() as rt:
            space = rt.space("s")
            counter = await space.open(Counter, "c")
            reader = await space.open(Reader(double=counter.double), "r")
            await rt.settled()
            seen: list[int] = []
            counter.double.sink(seen.append)
            await rt.settled()
            await space.delete(reader)
            await rt.settled()
            assert seen == [0]
            counter.n.set(1)
            await rt.settled()
            assert seen == [0, 2]

    asyncio.run(story())


class Meter(Piece, name="gone.Meter"):
    counts: Cell[tuple[int, ...]] = cell(default=(1,))

    @computed
    def count(self) -> int:
        return sum(self.counts.get())


class Gauge(Piece, name="gone.Gauge"):
    """Reads a meter of another space, and writes what follows from it."""

    meter: Input[int] = given()
    level: Cell[int] = cell(default=0)
    written: Cell[int] = cell(default=0)

    @computed
    def total(self) -> int:
        return self.meter.get() + self.level.get()

    @computed
    def double(self) -> int:
        return self.total.get() * 2

    @materializer(envelope=(written,))
    def write(self) -> None:
        self.written.set(self.double.get() + self.total.get())


@simulated(faults=("delay", "drop"), seeds=10)
async def test_computeds_over_another_space_do_not_fail_when_another_program_deletes_their_piece(
    sim: Simulation,
) -> None:
    gauges = []
    errors: list[BaseException] = []
    for name in ("ann", "bob", "cy"):
        sim.runtime(name).on_error(errors.append)
        meter = await sim.runtime(name).space("two").open(Meter, "m")
        gauges.append(await sim.runtime(name).space("one").open(Gauge(meter=meter.count), "g"))
    await sim.settle()
    await sim.runtime("cy").space("one").delete(gauges[2])
    await sim.settle()
    assert (await gauges[0].written.pull(), [each for each in errors if isinstance(each, AbsentError)]) == (3, [])
