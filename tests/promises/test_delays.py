"""Debounce and throttle of effects and sinks: set where they are declared, and changed while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import AuthoringError, Cell, Piece, Runtime, cell, computed, each, effect, given, handler
from headwater.clock import VirtualClock
from headwater.errors import NotSettlingError
from tests.scenario.pieces_kit import alone, run, turns

SHOWN: list[int] = []
SLOW_US = 200_000


class Dial(Piece, name="promises.Dial"):
    n: Cell[int] = cell(default=0)

    @effect
    def show(self) -> None:
        SHOWN.append(self.n.get())

    @computed(throttle_ms=60_000)
    def rarely(self) -> int:
        return self.n.get()

    @handler
    def turn(self, n: int) -> None:
        self.n.set(n)


class SlowDial(Piece, name="promises.SlowDial"):
    n: Cell[int] = cell(default=0)

    @effect(auto_debounce=False)
    def show(self) -> None:
        CLOCK[0].advance(SLOW_US)
        SHOWN.append(self.n.get())


CLOCK: list[VirtualClock] = []


async def _set(rt: Runtime, clock: VirtualClock, dial: Any, n: int) -> None:
    dial.n.set(n)
    await turns(rt, clock, 0)


def test_an_effect_is_slowed_down_and_let_go_while_it_runs() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=1)
        async with alone(clock) as (rt, _):
            dial = await rt.space("s").open(Dial, "d")
            await turns(rt, clock, 1_000)
            SHOWN.clear()
            dial.show.set_delays(debounce_ms=500)
            await _set(rt, clock, dial, 1)
            await turns(rt, clock, 400)
            await _set(rt, clock, dial, 2)
            await turns(rt, clock, 400)
            assert SHOWN == []
            await turns(rt, clock, 200)
            assert SHOWN == [2]
            dial.show.set_delays(debounce_ms=0)
            await _set(rt, clock, dial, 3)
            assert SHOWN == [2, 3]

    run(work)


def test_a_throttle_that_is_set_later_counts_from_the_last_run() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=1)
        async with alone(clock) as (rt, _):
            dial = rt.space("s").piece(Dial, "d")
            told: list[int] = []
            sink = dial.n.sink(told.append)
            await turns(rt, clock, 0)
            await turns(rt, clock, 600)
            sink.set_delays(throttle_ms=1_000)
            await _set(rt, clock, dial, 1)
            assert told == [0]
            await turns(rt, clock, 300)
            assert told == [0]
            await turns(rt, clock, 200)
            assert told == [0, 1]
            sink.close()
            sink.set_delays(throttle_ms=0)  # Nothing is left to delay.

    run(work)


def test_a_sink_is_declared_with_its_delays() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=1)
        async with alone(clock) as (rt, _):
            dial = rt.space("s").piece(Dial, "d")
            told: list[int] = []
            dial.n.sink(told.append, debounce_ms=200)
            await turns(rt, clock, 300)
            for n in (1, 2):
                await _set(rt, clock, dial, n)
            assert told == [0]
            await turns(rt, clock, 300)
            assert told == [0, 2]

    run(work)


def test_slow_effects_and_sinks_opt_out_of_the_automatic_debounce() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=1)
        CLOCK[:] = [clock]
        async with alone(clock) as (rt, _):
            dial = await rt.space("s").open(SlowDial, "d")
            told: list[int] = []

            def slow(n: int) -> None:
                told.append(n)

            dial.n.sink(slow, auto_debounce=False)
            SHOWN.clear()
            for n in range(1, 8):
                await _set(rt, clock, dial, n)
            assert SHOWN[-7:] == list(range(1, 8))
            assert told[-7:] == list(range(1, 8))

    run(work)


def test_a_pull_of_a_value_that_a_delay_holds_back_ends_after_the_window_and_names_it() -> None:
    async def work() -> None:
        clock = VirtualClock(seed=1)
        async with alone(clock) as (rt, _):
            dial = rt.space("s").piece(Dial, "d")
            look = dial.rarely.sink(lambda _: None)
            assert await dial.rarely.pull() == 0
            dial.n.set(2)
            pulled = asyncio.create_task(dial.rarely.pull())
            waited = 0
            while not pulled.done():
                assert waited < 40_000
                await asyncio.sleep(0)
                clock.advance(50_000)
                rt.wake()
                waited += 50
            assert waited >= 29_000
            with pytest.raises(NotSettlingError, match=r"did not settle in 30 s: look at s/d:rarely \(its delay holds"):
                await pulled
            look.close()

    run(work)


@pytest.mark.parametrize("options", [{"debounce_ms": -1}, {"throttle_ms": "soon"}, {"auto_debounce": 1}])
def test_a_wrong_delay_is_refused_where_it_is_set(options: dict[str, Any]) -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            dial = await rt.space("s").open(Dial, "d")
            with pytest.raises(AuthoringError, match=next(iter(options))):
                dial.show.set_delays(**options)
            with pytest.raises(AuthoringError, match=next(iter(options))):
                dial.n.sink(print, **options)

    run(work)


class Rows(Piece, name="promises.DelayedRows"):
    values: Cell[Mapping[str, int]] = cell(default={"a": 0})

    @each(values)
    def dials(self, n: Cell[int]) -> Row:
        return Row(n=n)

    @handler
    def turn(self, n: int) -> None:
        self.values.key("a").set(n)


class Row(Piece, name="promises.DelayedRow"):
    n: Cell[int] = given()

    @effect
    def show(self) -> None:
        SHOWN.append(self.n.get())


@pytest.mark.parametrize("by_event", [False, True], ids=["plain write", "event"])
@pytest.mark.parametrize("is_row", [False, True], ids=["piece", "row"])
def test_an_effect_that_sleeps_after_a_restart_is_slowed_down_from_its_first_run(
    tmp_path: Path, *, by_event: bool, is_row: bool
) -> None:
    async def work() -> None:
        cls: Any = Rows if is_row else Dial
        async with headwater.open(tmp_path) as rt:
            await rt.space("s").open(cls, "d")
            await rt.settled()
        SHOWN.clear()
        async with headwater.open(tmp_path) as rt:
            piece: Any = await rt.space("s").open(cls, "d")
            shown = (await piece.dials.pull())["a"].show if is_row else piece.show
            shown.set_delays(debounce_ms=600_000)
            for n in (1, 2):
                if by_event:
                    await piece.turn.send(n)
                elif is_row:
                    piece.values.key("a").set(n)
                else:
                    piece.n.set(n)
                await rt.idle()
                assert SHOWN == []
            shown.set_delays(debounce_ms=0)
            await rt.until(lambda: bool(SHOWN))
            assert SHOWN == [2]

    run(work)
