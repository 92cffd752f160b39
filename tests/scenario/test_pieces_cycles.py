"""Computeds that stand on each other say so, and name the way round."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from headwater import (
    AbsentError,
    Cell,
    Computed,
    Input,
    Piece,
    Runtime,
    UpstreamFailedError,
    cell,
    child,
    computed,
    each,
    given,
)
from headwater.clock import VirtualClock
from headwater.errors import NotSettlingError
from tests.scenario.pieces_kit import alone, run


class Ring(Piece):
    n: Cell[int] = cell(default=1)

    @computed
    def first(self) -> int:
        return self.n.get() + self.second.get()

    @computed
    def second(self) -> int:
        return self.third.get()

    @computed
    def third(self) -> int:
        return self.first.get()

    @computed
    def own(self) -> int:
        return self.own.get() + 1

    @computed
    def above(self) -> int:
        return self.first.get()

    @computed
    def patient(self) -> int:
        return min(self.impatient.get(0) + 1, 3)

    @computed
    def impatient(self) -> int:
        return self.patient.get(0)


class Leaf(Piece):
    src: Input[int] = given()

    @computed
    def v(self) -> int:
        return self.src.get() + 1


class Kept(Piece):
    items: Cell[Mapping[str, int]] = cell(default={"a": 1, "b": 2})

    @child
    def leaf(self) -> Leaf:
        return Leaf(src=self.through)

    @computed
    def through(self) -> int:
        return self.leaf.get().v.get()

    @each(items)
    def rows(self, item: Cell[int]) -> int:
        return item.get() + self.total.get()

    @computed
    def total(self) -> int:
        return sum(self.rows.get().values())


def test_computeds_that_read_each_other_name_the_circle() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            ring = await rt.space("s").open(Ring, "r")
            with pytest.raises(UpstreamFailedError) as failed:
                await ring.first.pull()
            assert "because its value depends on itself: " in str(failed.value)
            way = (
                str(failed.value).partition("depends on itself: ")[2].partition(". Let one of them")[0].split(" reads ")
            )
            assert way[0] == way[-1]
            assert sorted(way[1:]) == ["s/r:first", "s/r:second", "s/r:third"]
            assert isinstance(failed.value.__cause__, AbsentError)
            with pytest.raises(UpstreamFailedError, match="depends on itself"):
                await ring.above.pull()
            with pytest.raises(UpstreamFailedError, match=r"itself: s/r:own reads s/r:own\. Let"):
                await ring.own.pull()

    run(work)


class Link(Piece):
    """One of a hundred pieces, each of which reads the next one, and the last one the first one."""

    @computed
    def value(self) -> int:
        after: Computed[int] = self.ctx.space.piece(Link, f"p{(int(self.ctx.name[1:]) + 1) % 100}").value
        return after.get() + 1


def test_error_of_a_long_cycle_names_some_of_its_pieces() -> None:
    """Each of its nodes has the error: with all names in it, a cycle would take memory by the square of its length."""

    async def work() -> None:
        async with alone() as (rt, _):
            with pytest.raises(UpstreamFailedError) as failed:
                await rt.space("s").piece(Link, "p0").value.pull()
            way = str(failed.value).partition("depends on itself: ")[2].partition(". Let one of")[0].split(" reads ")
            assert way[0] == way[-1]
            assert way[8] == "85 more"
            assert len(way) == 17

    run(work)


def test_a_circle_that_says_where_it_begins_is_computed() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            ring = await rt.space("s").open(Ring, "r")
            assert await ring.patient.pull() == 3

    run(work)


def test_what_is_absent_and_in_no_circle_says_what_it_said() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            missing = rt.cell("s", "missing", int)
            out = rt.cell("s", "out", int)
            rt.register(missing.get, id="reads it", output=out)
            with pytest.raises(UpstreamFailedError, match="nothing is at space:missing: write it first"):
                await out.pull()

    run(work)


def test_a_circle_through_a_child_or_the_rows_of_an_each_is_named() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            kept = rt.space("s").piece(Kept, "x")
            with pytest.raises(UpstreamFailedError, match=r"itself: (\S+ reads ){2}\S+\. Let") as failed:
                await kept.through.pull()
            assert {"s/x:through", "s/x/leaf/:v"} <= set(str(failed.value).replace(". Let", " ").split())
            with pytest.raises(UpstreamFailedError, match="depends on itself: ") as failed:
                await kept.total.pull()
            assert "s/x:total" in str(failed.value)
            assert "s/x:rows/" in str(failed.value)

    run(work)


class Sometimes(Piece):
    on: Cell[bool] = cell(default=False)
    source: Cell[int] = cell(default=1)

    @computed
    def x(self) -> int:
        return self.y.get() if self.on.get() else 1

    @computed
    def y(self) -> int:
        return self.x.get() + 1

    @computed(debounce_ms=200)
    def calm(self) -> int:
        return self.source.get() * 10

    @computed
    def below(self) -> int:
        return self.calm.get() + 1


async def passing(rt: Runtime, clock: VirtualClock, pulled: asyncio.Task[int], most_ms: int) -> int:
    """Let time pass until somebody has what they wait for; how much that was."""
    for ms in range(0, most_ms, 50):
        for _ in range(20):
            await asyncio.sleep(0)
        if pulled.done():
            return ms
        clock.advance(50_000)
        rt.wake()
    raise AssertionError("it waits too long")


def test_a_pull_waits_for_what_is_held_back_above_it() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=1)
        async with alone(clock) as (rt, _):
            some = rt.space("s").piece(Sometimes, "s")
            look = some.below.sink(lambda _: None)
            assert await some.below.pull() == 11
            some.source.set(2)
            pulled = asyncio.create_task(some.below.pull())
            assert 150 <= await passing(rt, clock, pulled, 1_000) <= 300
            assert await pulled == 21
            look.close()

    run(work)


def test_a_pull_names_what_does_not_settle_and_is_right_once_it_does() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=1)
        async with alone(clock) as (rt, _):
            some = rt.space("s").piece(Sometimes, "s")
            look = some.y.sink(lambda _: None)
            assert await some.x.pull() == 1
            some.on.set(True)
            pulled = asyncio.create_task(some.x.pull())
            assert 29_000 <= await passing(rt, clock, pulled, 40_000) <= 31_000
            with pytest.raises(NotSettlingError, match=r"did not settle in 30 s: look at .*s/s:(x|y)"):
                await pulled
            some.on.set(False)
            pulled = asyncio.create_task(some.x.pull())
            assert await passing(rt, clock, pulled, 5_000) <= 2_500
            assert await pulled == 1
            assert await some.y.pull() == 2
            look.close()

    run(work)
