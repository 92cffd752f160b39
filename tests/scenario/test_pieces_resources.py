"""Resources: fetched while somebody looks, outside any run, for the input that still holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    Backoff,
    Cell,
    Failed,
    Input,
    Pending,
    Piece,
    Ready,
    Runtime,
    cell,
    computed,
    each,
    given,
    handler,
    resource,
)
from headwater.clock import VirtualClock
from tests.scenario.pieces_kit import alone, at, run


class World:
    """What is outside: calls that wait until somebody answers them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.cancelled: list[str] = []
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self.at_once = 0
        self.most = 0

    async def ask(self, what: str) -> str:
        self.calls.append(what)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting[what] = future
        try:
            return await future
        except asyncio.CancelledError:
            self.cancelled.append(what)
            raise
        finally:
            self.at_once -= 1

    async def asked(self, count: int) -> None:
        """Wait until it was called so often."""
        while len(self.calls) < count:
            await asyncio.sleep(0)

    def answer(self, what: str, text: str) -> None:
        self.waiting[what].set_result(text)

    def fail(self, what: str, error: Exception) -> None:
        self.waiting[what].set_exception(error)


WORLD = World()


@pytest.fixture(autouse=True)
def world() -> World:
    global WORLD  # noqa: PLW0603
    WORLD = World()
    return WORLD


class Weather(Piece):
    city: Cell[str] = cell(default="Rome")

    @resource(city)
    async def report(self, city: str) -> str:
        return await WORLD.ask(city)

    @resource(city, backoff=Backoff.fixed(base_ms=100))
    async def stubborn(self, city: str) -> str:
        return await WORLD.ask(city)

    @resource(city, timeout_ms=500)
    async def hasty(self, city: str) -> str:
        return await WORLD.ask(city)

    @resource(city)
    async def lying(self, city: str) -> int:
        return await WORLD.ask(city)  # type: ignore[return-value]

    @computed
    def headline(self) -> str:
        match self.report.get():
            case Pending(last=None):
                return "..."
            case Pending(last):
                return f"{last}?"
            case Ready(value):
                return value
            case Failed(error, last=last):
                return f"{error} ({last})"

    @handler
    def move(self, city: str) -> str:
        self.city.set(city)
        return self.report.value("nothing")


class Seen:
    """What a look from outside saw."""

    def __init__(self, handle: Any) -> None:
        self.values: list[Any] = []
        self._look = handle.sink(self.values.append)

    async def until(self, value: Any) -> None:
        while not self.values or self.values[-1] != value:
            await asyncio.sleep(0)

    def close(self) -> None:
        self._look.close()


def test_a_resource_is_pending_then_ready_and_keeps_its_last_value(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            await rt.idle()
            assert world.calls == []  # Nobody looks.
            seen, line = Seen(piece.report), Seen(piece.headline)
            await world.asked(1)
            world.answer("Rome", "sun")
            await seen.until(Ready("sun"))
            piece.city.set("Oslo")
            await world.asked(2)
            await seen.until(Pending("sun"))
            world.answer("Oslo", "snow")
            await seen.until(Ready("snow"))
            await line.until("snow")
            assert line.values == ["...", "sun", "sun?", "snow"]
            assert piece.report.value("none") == "snow"
            piece.city.set("Rome")
            await world.asked(3)
            world.fail("Rome", ValueError("no wind"))
            await seen.until(Failed("ValueError: no wind", "snow"))
            assert piece.report.value("none") == "snow"
            assert world.calls == ["Rome", "Oslo", "Rome"]
            seen.close()
            line.close()
            assert errors == []

    run(work)


def test_work_is_cancelled_when_its_input_changes(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            seen = Seen(piece.report)
            await world.asked(1)
            piece.city.set("Oslo")
            await world.asked(2)
            assert world.cancelled == ["Rome"]
            world.answer("Oslo", "snow")
            await seen.until(Ready("snow"))
            seen.close()
            assert errors == []

    run(work)


def test_work_is_cancelled_when_nobody_looks_any_more_and_begins_again_for_the_next(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            seen = Seen(piece.headline)
            await world.asked(1)
            seen.close()
            while not world.cancelled:
                await asyncio.sleep(0)
            await rt.idle()
            assert world.calls == ["Rome"]
            again = Seen(piece.headline)
            await world.asked(2)
            world.answer("Rome", "sun")
            await again.until("sun")
            again.close()
            once_more = Seen(piece.headline)
            await once_more.until("sun")
            assert len(world.calls) == 2  # What is there is not fetched again.
            once_more.close()
            assert errors == []

    run(work)


async def passed(rt: Runtime, clock: VirtualClock, ms: float) -> None:
    for _ in range(30):
        await asyncio.sleep(0)
    clock.advance(round(ms * 1_000))
    rt.wake()
    for _ in range(30):
        await asyncio.sleep(0)


def test_a_failure_is_tried_again_after_its_backoff(world: World) -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            seen = Seen(piece.stubborn)
            for attempt in range(1, 4):
                await world.asked(attempt)
                world.fail("Rome", ValueError(f"{attempt}"))
                await passed(rt, clock, 99)
                assert len(world.calls) == attempt
                await passed(rt, clock, 1)
            await world.asked(4)
            world.fail("Rome", ValueError("the last"))
            await seen.until(Failed("ValueError: the last", None))
            await passed(rt, clock, 10_000)
            assert len(world.calls) == 4
            piece.city.set("Oslo")
            await world.asked(5)
            world.fail("Oslo", ValueError("once"))
            for _ in range(20):
                await asyncio.sleep(0)
            await passed(rt, clock, 100)
            await world.asked(6)
            world.answer("Oslo", "snow")
            await seen.until(Ready("snow"))
            seen.close()
            assert errors == []

    run(work)


def test_what_takes_too_long_has_failed(world: World) -> None:
    async def work() -> None:
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            seen = Seen(piece.hasty)
            await world.asked(1)
            await passed(rt, clock, 499)
            assert seen.values == [Pending()]
            await passed(rt, clock, 1)
            await seen.until(Failed("TimeoutError: it took longer than 500 ms", None))
            assert world.cancelled == ["Rome"]
            seen.close()
            assert errors == []

    run(work)


def test_what_does_not_fit_has_failed(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = await rt.space("s").open(Weather, "w")
            seen = Seen(piece.lying)
            await world.asked(1)
            world.answer("Rome", "no number")
            while not isinstance(seen.values[-1], Failed):
                await asyncio.sleep(0)
            assert "expected int" in seen.values[-1].error
            seen.close()

    run(work)


def test_a_handler_reads_what_is_known(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            assert await piece.move.send("Rome") == "nothing"
            seen = Seen(piece.report)
            await world.asked(len(world.calls) + 1 if not world.waiting else 1)
            world.answer("Rome", "sun")
            await seen.until(Ready("sun"))
            assert await piece.move.send("Oslo") == "sun"
            seen.close()
            assert errors == []

    run(work)


class Item(Piece):
    city: Input[str] = given()

    @resource(city, limit=2)
    async def report(self, city: str) -> str:
        return await WORLD.ask(city)


class Many(Piece):
    cities: Cell[Mapping[str, str]] = cell(default={})

    @each(cities)
    def items(self, city: Cell[str]) -> Item:
        return Item(city=city)


def test_at_most_so_many_are_fetched_at_once(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            cities = {f"c{number}": f"city {number}" for number in range(7)}
            piece = await rt.space("s").open(Many, "m", setup=lambda m: m.cities.set(cities))
            looks = {key: Seen(item.report) for key, item in piece.items.get().items()}
            for number in range(7):
                await world.asked(min(7, number + 1))
                world.answer(world.calls[number], f"{world.calls[number]} fine")
            for key, look in looks.items():
                await look.until(Ready(f"{cities[key]} fine"))
                look.close()
            assert world.most == 2
            assert errors == []

    run(work)


# ---- several runtimes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["embedded", "websocket"])
def test_of_several_runtimes_one_does_the_work(place: str, world: World, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            pieces = [await site.runtime().space("s").open(Weather, "w") for _ in range(3)]
            looks = [Seen(piece.report) for piece in pieces]
            await world.asked(1)
            await site.settled()
            world.answer("Rome", "sun")
            for look in looks:
                await look.until(Ready("sun"))
            assert world.calls == ["Rome"]
            pieces[1].city.set("Oslo")
            await world.asked(2)
            await site.settled()
            world.answer("Oslo", "snow")
            for look in looks:
                await look.until(Ready("snow"))
                look.close()
            assert world.calls == ["Rome", "Oslo"]
            assert [str(each.error) for each in site.errors] == []

    run(work)


def test_the_work_passes_to_another_runtime_when_the_first_stops_looking(world: World, tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            pieces = [await site.runtime().space("s").open(Weather, "w") for _ in range(2)]
            first = Seen(pieces[0].report)
            await world.asked(1)
            await site.settled()
            second = Seen(pieces[1].report)
            await site.settled()
            assert len(world.calls) == 1
            first.close()
            await world.asked(2)
            world.answer("Rome", "sun")
            await second.until(Ready("sun"))
            assert world.cancelled == ["Rome"]
            second.close()
            assert site.errors == []

    run(work)


def test_the_work_passes_to_another_runtime_when_the_first_is_closed(world: World, tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            closing = site.runtime()
            first = Seen((await closing.space("s").open(Weather, "w")).report)
            await world.asked(1)
            await closing.close()
            site.runtimes.remove(closing)
            assert world.cancelled == ["Rome"]
            second = Seen((await site.runtime().space("s").open(Weather, "w")).report)
            async with asyncio.timeout(10):  # and not when the claim of the first is over
                await world.asked(2)
            world.answer("Rome", "sun")
            await second.until(Ready("sun"))
            assert first.values == [Pending()]
            second.close()
            assert site.errors == []

    run(work)


def test_a_cancellation_that_nobody_asked_for_is_a_failure(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            seen = Seen(piece.report)
            await world.asked(1)
            world.waiting["Rome"].cancel()
            await seen.until(Failed("CancelledError: something that it awaited was cancelled"))
            assert world.calls == ["Rome"]
            seen.close()
            assert errors == []

    run(work)


def test_a_result_for_an_input_that_changed_meanwhile_is_dropped(world: World, tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            piece = await site.runtime().space("s").open(Weather, "w")
            other = site.runtime().space("s").piece(Weather, "w")
            seen = Seen(piece.report)
            await world.asked(1)
            await other.move.send("Oslo")  # The first runtime may not have heard of it.
            if not world.waiting["Rome"].done():
                world.answer("Rome", "sun")
            await world.asked(2)
            world.answer("Oslo", "snow")
            await seen.until(Ready("snow"))
            await site.settled()
            assert seen.values[-1] == Ready("snow")  # What was shown of the other before its verdict is taken back.
            seen.close()

    run(work)


def test_what_was_fetched_is_there_for_the_next_runtime(world: World, tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            piece = await site.runtime().space("s").open(Weather, "w")
            seen = Seen(piece.report)
            await world.asked(1)
            world.answer("Rome", "sun")
            await seen.until(Ready("sun"))
            seen.close()
            await site.settled()
        async with at("embedded", tmp_path) as site:
            piece = await site.runtime().space("s").open(Weather, "w")
            again = Seen(piece.report)
            await again.until(Ready("sun"))
            await site.settled()
            assert world.calls == ["Rome"]
            again.close()

    run(work)


def test_closing_a_runtime_ends_the_work(world: World) -> None:
    async def work() -> None:
        async with alone() as (rt, errors):
            piece = await rt.space("s").open(Weather, "w")
            seen = Seen(piece.report)
            await world.asked(1)
            assert seen.values == [Pending()]
        assert world.cancelled == ["Rome"]
        assert errors == []

    run(work)
