"""Runs of pieces: what `ctx` says, time that is read like data, declared side writes, plain methods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater import (
    AuthoringError,
    Cell,
    HandlerFailed,
    Piece,
    Policy,
    UpstreamFailedError,
    cell,
    computed,
    effect,
    handler,
    materializer,
)
from headwater.clock import VirtualClock
from tests.scenario.pieces_kit import Ranned, alone, at, live_objects, node_count, run, turns

START = datetime(2026, 1, 1, tzinfo=UTC)
SHOWN: list[object] = []


class Clocked(Piece):
    due: Cell[datetime] = cell(default=START + timedelta(seconds=5))
    names: Cell[tuple[str, ...]] = cell(default=())

    @computed
    def is_due(self) -> bool:
        return self.ctx.past(self.due.get())

    @computed
    def minute(self) -> datetime:
        return self.ctx.now(every_ms=60_000)

    @computed
    def twice(self) -> tuple[datetime, datetime]:
        return (self.ctx.now(), self.ctx.now())

    @effect
    def show(self) -> None:
        SHOWN.append(self.is_due.get())

    @handler
    def note(self) -> tuple[str, str, str, str, bool]:
        ctx = self.ctx
        return (ctx.user, ctx.session, ctx.name, ctx.space.name, ctx.now() == ctx.now())

    @handler
    def is_late(self) -> bool:
        return self.ctx.past(self.due.get())


def test_a_moment_and_a_step_wake_their_readers() -> None:
    async def work() -> None:
        SHOWN.clear()
        clock = VirtualClock()
        async with alone(clock) as (rt, errors):
            piece = await rt.space("s").open(Clocked, "c")
            look = piece.minute.sink(SHOWN.append)
            await rt.idle()
            assert SHOWN == [False, START]
            await turns(rt, clock, 4_999)
            assert SHOWN == [False, START]
            assert await piece.is_late.send() is False
            await turns(rt, clock, 1)
            assert SHOWN == [False, START, True]
            assert await piece.is_late.send() is True
            await turns(rt, clock, 55_000)
            assert SHOWN[-1] == START + timedelta(minutes=1)
            one, other = await piece.twice.pull()
            assert one == other
            look.close()
            assert errors == []

    run(work)


def test_a_handler_knows_who_sent_its_event() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = rt.space("s", user="ann", session="s1").piece(Clocked, "c")
            assert await piece.note.send() == ("ann", "s1", "c", "s", True)
            other = rt.space("s", user="bob", session="s2").piece(Clocked, "c")
            assert (await other.note.send())[:2] == ("bob", "s2")

    run(work)


# ---- writes ------------------------------------------------------------------------------------------------


class Writer(Piece):
    n: Cell[int] = cell(default=1)
    last: Cell[int] = cell(default=0)
    big: Cell[Mapping[str, int]] = cell(default={})
    other: Cell[int] = cell(default=0)

    @computed(writes=(last,))
    def doubled(self) -> int:
        self.last.set(self.n.get())
        return self.n.get() * 2

    @computed
    def undeclared(self) -> int:
        self.other.set(1)
        return 1

    @materializer(envelope=(big,))
    def spread(self) -> None:
        for number in range(self.n.get()):
            self.big.key(f"k{number}").set(number)

    @computed
    def helped(self) -> int:
        return self.plus(1)

    @computed
    def misread(self) -> int:
        return 1 if self.n else 0

    def plus(self, by: int) -> int:
        return self.n.get() + by

    @handler
    def grow(self) -> int:
        self.n.set(self.plus(1))
        return self.plus(0)

    @handler
    def elsewhere(self) -> None:
        self.ctx.space.cell("free", int).set(5)

    @handler
    def hides(self) -> None:
        self.total = 3


@pytest.mark.parametrize("place", ["detached", "embedded"])
def test_declared_side_writes_and_envelopes_are_written(place: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            rt = site.runtime()
            piece = await rt.space("s").open(Writer, "w")
            assert await piece.doubled.pull() == 2
            assert await piece.last.pull() == 1
            assert await piece.grow.send() == 2
            assert await piece.doubled.pull() == 4
            assert await piece.helped.pull() == 3
            await rt.settled()
            await rt.durable()
            assert await piece.last.pull() == 2
            assert await piece.big.pull() == {"k0": 0, "k1": 1}
            assert site.errors == []

    run(work)


def test_what_is_not_declared_is_refused() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = rt.space("s").piece(Writer, "w")
            with pytest.raises(UpstreamFailedError, match="did not declare"):
                await piece.undeclared.pull()
            with pytest.raises(UpstreamFailedError, match=r"write \.get\(\)"):
                await piece.misread.pull()
            with pytest.raises(HandlerFailed, match="holds no state"):
                await piece.hides.send()
            await piece.elsewhere.send()
            assert await rt.cell("s", "free", int).pull() == 5

    run(work)


def test_a_transaction_outside_writes_several_cells_of_a_piece() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            space = rt.space("s")
            piece = space.piece(Writer, "w")

            def both(by: int) -> int:
                piece.n.set(piece.n.get() + by)
                piece.other.set(by)
                return piece.n.get()

            assert await space.transact(both, 5) == 6
            assert (piece.n.get(), piece.other.get()) == (6, 5)

    run(work)


# ---- who may use it ----------------------------------------------------------------------------------------


def test_a_piece_of_another_runtime_cannot_be_used_inside_a_run(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            one = site.runtime().space("s").piece(Writer, "w")
            other = site.runtime()
            await one.n.pull()
            with pytest.raises(AuthoringError, match="another runtime"):
                await other.space("s").transact(lambda: one.n.get())

    run(work)


def test_a_piece_belongs_to_the_thread_of_its_runtime() -> None:
    async def work() -> None:
        async with alone() as (rt, _):
            piece = rt.space("s").piece(Writer, "w")
            piece.n.set(3)
            with pytest.raises(AuthoringError, match=r"rt\.call\(fn\)"):
                await asyncio.to_thread(piece.n.get)
            with pytest.raises(AuthoringError, match=r"rt\.call\(fn\)"):
                await asyncio.to_thread(piece.grow.post)
            assert await asyncio.to_thread(rt.call, piece.n.get) == 3
            await asyncio.to_thread(rt.call, piece.grow.post)
            await rt.durable()
            assert piece.n.get() == 4

    run(work)


def test_sessions_that_come_and_go_leave_nothing_in_a_piece() -> None:
    async def work() -> None:
        async with alone(policy=Policy(intents_kept=0)) as (rt, errors):
            piece = await rt.space("s").open(Writer, "w")

            async def grow(first: int, count: int) -> None:
                for number in range(first, first + count):
                    assert await rt.space("s", user=f"u{number}", session=f"s{number}").piece(Writer, "w").grow.send()

            await grow(0, 20)
            before = live_objects()
            await grow(20, 60)
            more = live_objects() - before
            assert {name: count for name, count in more.items() if count >= 30} == {}
            assert piece.n.get() == 81
            assert errors == []

    run(work)


def test_opening_for_another_user_runs_its_effects_for_both() -> None:
    async def work() -> None:
        SHOWN.clear()
        async with alone() as (rt, errors):
            ran = Ranned(rt)
            one = await rt.space("s", user="ann", session="a").open(Clocked, "c")
            two = await rt.space("s", user="bob", session="b").open(Clocked, "c")
            again = await rt.space("s", user="bob", session="b").open(Clocked, "c")
            assert again is two
            assert one is not two
            assert len(SHOWN) == 2
            assert ran.taken().of(":is_due") == 1
            await rt.space("s").stop(one)
            assert node_count(rt) == 0
            assert errors == []

    run(work)
