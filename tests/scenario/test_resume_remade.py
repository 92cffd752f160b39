"""A piece that another runtime deletes or makes anew is another one to whoever has it: asleep, awake and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Input, Piece, cell, computed, effect, given, handler
from headwater.protocol.observations import AffectedNodes, QueryAffectedNodes
from headwater.runtime import LocalDirectory
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import Process, process
from tests.scenario.wire_kit import Wire, without_clean_pieces


class Counter(Piece, name="remade.Counter"):
    n: Cell[int] = cell(default=1)
    never: Cell[int] = cell(default=7)

    @computed
    def tens(self) -> int:
        return self.n.get() * 10

    @effect
    def show(self) -> None:
        self.tens.get()

    @effect
    def hello(self) -> None:
        self.never.get()

    @handler
    def put(self, n: int) -> None:
        self.n.set(n)


class Rates(Piece, name="remade.Rates"):
    rate: Cell[int] = cell(default=2)


class Bill(Piece, name="remade.Bill"):
    n: Cell[int] = cell(default=1)
    rate: Input[int] = given()

    @computed
    def cost(self) -> int:
        return self.n.get() * self.rate.get()

    @effect
    def show(self) -> None:
        self.cost.get()


def _put(made: Counter, n: int) -> None:
    made.n.set(n)


async def _made(folder: Path, *, is_asleep: bool = True) -> None:
    async with (
        LocalDirectory(folder, synchronous="OFF") as data,
        process(data if is_asleep else Wire(data, without_clean_pieces), identity="one") as first,
    ):
        await first.space.open(Counter, "p", setup=lambda made: _put(made, 5))
        await first.settled()


@asynccontextmanager
async def _two(folder: Path) -> AsyncIterator[tuple[Process, Process]]:
    """The same process again, and another one beside it."""
    async with (
        LocalDirectory(folder, synchronous="OFF") as data,
        process(data, identity="one") as one,
        process(data, identity="two") as two,
    ):
        yield one, two


async def _again(one: Process, is_asleep: bool) -> Counter:
    made = await one.space.open(Counter, "p")
    assert one.counts["asleep"] == int(is_asleep)
    await one.settled()
    assert (one.taken(), one.counts["clean"]) == (set(), 0 if is_asleep else 3)
    return made


async def _deleted(two: Process) -> None:
    await two.space.delete(two.space.piece(Counter, "p"))
    await two.settled()


async def _sent(two: Process) -> None:
    await _deleted(two)
    await two.space.piece(Counter, "p").put.send(9)
    await two.settled()


async def _opened(two: Process) -> None:
    await _deleted(two)
    await two.space.open(Counter, "p", setup=lambda made: _put(made, 7))
    await two.settled()


async def _has(one: Process, tens: int) -> None:
    """Everything that the other one wrote has come here."""
    piece = one.space.piece(Counter, "p")
    await one.rt.until(lambda: piece.n.get() == tens // 10)
    await one.settled()


@pytest.mark.parametrize("is_asleep", [True, False])
@pytest.mark.parametrize(("how", "tens"), [(_deleted, 10), (_sent, 90), (_opened, 70)])
class TestByAnother:
    def test_its_effects_show_what_it_is_then_and_what_is_written_later(
        self, tmp_path: Path, is_asleep: bool, how: Any, tens: int
    ) -> None:
        async def story() -> None:
            await _made(tmp_path, is_asleep=is_asleep)
            async with _two(tmp_path) as (one, two):
                made = await _again(one, is_asleep)
                await how(two)
                await one.rt.until(lambda: "p:show" in one.runs)
                await _has(one, tens)
                assert "p:show" in one.taken()
                assert await made.tens.pull() == tens
                await one.settled()
                one.taken()
                piece = two.space.piece(Counter, "p")
                await two.space.transact(lambda: piece.n.set(11))
                await two.settled()
                await _has(one, 110)
                await one.rt.until(lambda: "p:show" in one.runs)
                assert await made.tens.pull() == 110
                assert not one.errors

        run(story)

    def test_after_a_restart_what_was_not_shown_of_it_is_shown(
        self, tmp_path: Path, is_asleep: bool, how: Any, tens: int
    ) -> None:
        async def story() -> None:
            await _made(tmp_path, is_asleep=is_asleep)
            async with _two(tmp_path) as (one, two):
                await _again(one, is_asleep)
                await how(two)
                await one.rt.until(lambda: "p:show" in one.runs)
                await one.settled()
                shown = "p:hello" in one.taken()
                assert shown is is_asleep, "nothing that it reads was written"
            async with _two(tmp_path) as (one, _):
                await one.space.open(Counter, "p")
                await one.settled()
                assert one.counts["asleep"] == 0
                assert ("p:hello" in one.taken()) is not shown or how is _deleted
            async with _two(tmp_path) as (one, two):
                await one.space.open(Counter, "p")
                await one.settled()
                # Whoever makes a piece of a name of which something was known is not believed of all of it.
                assert one.counts["asleep"] == int(how is not _deleted)
                assert one.taken() == set()
                await two.space.transact(lambda: two.space.piece(Counter, "p").never.set(9))
                await one.rt.until(lambda: "p:hello" in one.runs)
                assert (await one.space.open(Counter, "p")).n.get() * 10 == (10 if how is _deleted else tens)

        run(story)


def test_a_piece_that_is_opened_while_a_write_to_it_is_looked_at_hears_of_that(tmp_path: Path) -> None:
    async def bill(one: Process, rates: Rates) -> Bill:
        return await one.space.open(Bill(rate=rates.rate), "b")

    def write(two: Process) -> None:
        two.space.piece(Bill, "b").n.set(3)
        two.space.piece(Counter, "p").n.set(6)

    async def story() -> None:
        await _made(tmp_path)
        async with LocalDirectory(tmp_path, synchronous="OFF") as data, process(data, identity="one") as first:
            await bill(first, await first.space.open(Rates, "r"))
            await first.settled()
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            wire = Wire(data)
            async with process(wire, identity="one") as one, process(data, identity="two") as two:
                await _again(one, is_asleep=True)
                rates = await one.space.open(Rates, "r")
                wire.hold(lambda message: isinstance(message, AffectedNodes), alone=True)
                await two.space.transact(lambda: write(two))
                await wire.holding.wait()
                opening = asyncio.create_task(bill(one, rates))
                await wire.has_sent(lambda message: isinstance(message, QueryAffectedNodes) and message.piece == "b")
                wire.let_go()
                await opening
                await one.settled()
                assert "b:show" in one.taken()

    run(story)
