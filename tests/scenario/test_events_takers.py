"""Stored events and whoever takes them up: what one may not do, another may, and what fails holds up nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import BacklogFullError, Cell, HandlerFailed, Piece, Policy, cell, handler
from headwater.clock import VirtualClock
from headwater.data.patch import append
from headwater.data.value import Value, freeze
from headwater.engine import ACCESS
from headwater.protocol.commit import SentEvent
from headwater.runtime import Runtime
from headwater.server import new_key, new_token
from headwater.testing import Simulation
from tests.scenario.events_kit import durable, stored, told
from tests.unit.runtime.kit import address, run, serving

GRACE = Policy(grace_ms=1)


class Box(Piece, name="takers.Box"):
    seen: Cell[tuple[str, ...]] = cell(default=())
    mine: Cell[tuple[str, ...]] = cell(default=(), scope="user")
    ticks: Cell[int] = cell(default=0)

    @handler
    def put(self, text: str) -> str:
        self.seen.push(text)
        return text

    @handler
    def note(self, text: str) -> None:
        self.mine.push(text)

    @handler(allow="owner")
    def secret(self, text: str) -> None:
        self.seen.push(text)

    @handler
    def put_many(self, count: int) -> None:
        for n in range(count):
            self.put.post(str(n))


class Ticking(Piece, name="takers.Ticking"):
    seen: Cell[tuple[str, ...]] = cell(default=())
    ticks: Cell[int] = cell(default=0)

    @handler
    def put(self, text: str) -> str:
        self.seen.push(text)
        return text

    @handler(every_ms=1_000)
    def tick(self) -> None:
        self.ticks.set(self.ticks.get() + 1)


def payload(user: str, **more: Any) -> Value:
    said = {"args": {"text": "x"}, "cls": "takers.Box", "name": "b", "user": user, "session": "gone", "at": 0}
    return freeze({**said, **more})


def test_what_one_runtime_may_not_do_stays_for_one_that_may(tmp_path: Path) -> None:
    new_key(tmp_path)

    def ended(rt: Runtime, count: int) -> Any:
        return rt.until(lambda: sum(row.ended_us is not None for row in rt.intents()) >= count)

    def states(rt: Runtime) -> dict[str, str]:
        return {row.stream: row.state for row in rt.intents()}

    async def work() -> None:
        async with serving(tmp_path, anyone_founds=True) as server:
            where = address(server)
            async with headwater.connect(where, token=new_token(tmp_path, "ann")) as ann:
                await ann.space("s", user="ann").open(Box, "b")
                channel = ann.channel("s")
                assert channel is not None
                await channel.land(lambda made: made.write(ACCESS, append(("writers",), ["will"])), node="grant")
                row = SentEvent("e1", "s/b:note", payload("ann"), 0)
                await channel.land(lambda made: made.events.append(row), node="as if its process had died")
            async with headwater.connect(where, token=new_token(tmp_path, "will"), policy=GRACE) as will:
                channel = (will.space("s", user="will"), will.channel("s"))[1]
                assert channel is not None
                secret = SentEvent("e2", "s/b:secret", payload("ann"), 0)
                await channel.land(lambda made: made.events.append(secret), node="what he may not")
                await ended(will, 2)
                assert states(will) == {"s/b:note": "failed", "s/b:secret": "refused"}
                assert "is not for 'will'" in will.intents()[0].error
            async with headwater.connect(where, token=new_token(tmp_path, "ann"), policy=GRACE) as again:
                box = again.space("s", user="ann").piece(Box, "b")
                await ended(again, 1)
                await again.durable()
                assert states(again) == {"s/b:note": "landed"}  # What nobody may send has its end, and is not there.
                assert await box.mine.pull() == ("x",)
                assert await box.seen.pull() == ()

    run(work)


def test_what_failed_and_cannot_be_removed_takes_no_room_from_what_can_be_handled() -> None:
    async def story(sim: Simulation) -> list[str]:
        box = await sim.runtime("ann").space("s").open(Box, "b")
        eve = sim.runtime("eve")
        eve.space("s")
        await sim.settle()
        channel = eve.channel("s")
        assert channel is not None
        bad = [SentEvent(f"0{n:04}", "s/b:put", payload("eve", id=f"no\n{n}"), 0) for n in range(260)]
        await channel.land(lambda made: made.events.extend(bad), node="receipts that cannot be written")
        good = SentEvent("zz", "s/b:put", payload("eve"), 0)
        await channel.land(lambda made: made.events.append(good), node="one behind them")
        await sim.crash("eve")
        for _ in range(6):
            await sim.advance(seconds=15)
            await sim.settle()
        found = durable(sim, box, "seen")
        return [] if (found, len(stored(sim))) == (("x",), 260) else [f"{found} and {len(stored(sim))} are there"]

    assert told(story) == []


def test_without_a_connection_periods_do_not_pile_up() -> None:
    async def story(sim: Simulation) -> list[str]:
        ann = sim.runtime("ann")
        piece = await ann.space("s").open(Ticking, "b")
        await sim.settle()
        with sim.offline("ann"):
            for _ in range(10):
                await sim.advance(seconds=10)
            in_hand = sum(row.ended_us is None for row in ann.intents())
            piece.put.post("click")
            await sim.advance(seconds=0)
            shown = piece.seen.get()
        await sim.settle()
        before = await piece.ticks.pull()
        await sim.advance(seconds=3)
        await sim.settle()
        after = await piece.ticks.pull()
        wrong = [] if (in_hand, shown) == (1, ("click",)) else [f"{in_hand} are in hand, and {shown} is shown"]
        return wrong if after - before == 3 else [*wrong, f"{before} became {after} in three periods"]

    assert told(story) == []


def test_a_period_makes_no_piece_that_was_deleted() -> None:
    async def story(sim: Simulation) -> list[str]:
        space = sim.runtime("ann").space("s")
        piece = await space.open(Ticking, "b")
        await sim.runtime("bob").space("s").open(Ticking, "b")
        await sim.advance(seconds=2)
        await space.delete(piece)
        for _ in range(3):
            await sim.advance(seconds=2)
            await sim.settle()
        found = (await space.find(Ticking)).items
        return [] if not found else [f"{found} are there again"]

    assert told(story) == []


def test_a_handler_that_posts_too_much_is_told_how_much_it_posted() -> None:
    async def work() -> None:
        async with Runtime(policy=Policy(backlog=10)) as rt:
            box = await rt.space("s").open(Box, "b")
            with pytest.raises(HandlerFailed) as failed:
                await box.put_many.send(11)
            assert isinstance(failed.value.__cause__, BacklogFullError)
            assert "10 events wait for s/b:put with 10 that this handler posted" in str(failed.value.__cause__)

    run(work)


def test_a_clock_that_was_ahead_once_does_not_stop_a_handler_until_that_day(tmp_path: Path) -> None:
    async def ticked(clock: VirtualClock) -> tuple[int, list[str]]:
        errors: list[str] = []
        async with Runtime(tmp_path / "data", clock=clock) as rt:
            rt.on_error(lambda error: errors.append(str(error)))
            piece = await rt.space("s").open(Ticking, "b")
            for _ in range(3):
                clock.advance(1_000_000)
                rt.wake()
                await moments()
                await rt.durable()
            return await piece.ticks.pull(), errors

    async def work() -> None:
        ahead = VirtualClock()
        ahead.advance(86_400_000_000)
        before, errors = await ticked(ahead)
        assert before
        assert errors == []
        after, errors = await ticked(VirtualClock(seed=1))
        assert after - before >= 3
        assert len(errors) == 1
        assert "set the clocks of all machines" in errors[0]

    run(work)


async def moments() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
