"""A piece that reads other spaces comes back: what is asked there, and who does not answer."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Input, Json, Piece, cell, computed, given
from headwater.protocol.observations import QueryCurrent
from headwater.runtime import Policy, Runtime
from tests.invariants.i07_kit import Site, embedded, opened, site, written
from tests.scenario.pieces_kit import run
from tests.scenario.wire_kit import Change, Wire, losing, refusing

HERE, STOCK, RATES = "here", "stock", "rates"
WRITTEN = "a value that it read in another space was written"
UNKNOWN = "another space did not say whether it was written"


class Goods(Piece, name="elsewhere.Goods"):
    n: Cell[int] = cell(default=1)
    other: Cell[int] = cell(default=1)

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


class Rates(Piece, name="elsewhere.Rates"):
    rate: Cell[int] = cell(default=3)


class View(Piece, name="elsewhere.View"):
    own: Cell[int] = cell(default=1)
    n: Input[int] = given()
    twice: Input[int] = given()
    rate: Input[int] = given()

    @computed
    def near(self) -> int:
        return self.own.get()

    @computed
    def plain(self) -> int:
        return self.n.get() + self.own.get()

    @computed
    def derived(self) -> int:
        return self.twice.get() + self.near.get()

    @computed
    def priced(self) -> int:
        """Reads the rates only if there is something to be priced."""
        return self.rate.get() if self.own.get() else 0

    @computed
    def all(self) -> int:
        return self.plain.get() + self.derived.get() + self.priced.get()


class Reader(Piece, name="elsewhere.Reader"):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


ALL = {f"{HERE}/v:{name}" for name in ("near", "plain", "derived", "priced", "all")} | {f"{STOCK}/s:twice"}


async def open_view(one: Site) -> Any:
    goods, rates = await opened(one, [(STOCK, Goods, "s"), (RATES, Rates, "r")])
    (view,) = await opened(one, [(HERE, View(n=goods.n, twice=goods.twice, rate=rates.rate), "v")])
    return view


async def total_of(view: Any, one: Site) -> int:
    found: int = await view.all.pull()
    await one.settled()
    return found


async def first_start(folder: Path) -> None:
    async with embedded(folder) as data, site(data) as first:
        view = await open_view(first)
        assert await total_of(view, first) == 2 + 3 + 3
        assert first.taken() == ALL


def sets(space: str, cls: type[Piece], piece: str, name: str, n: int) -> Callable[[Site], Any]:
    async def write(one: Site) -> None:
        found: Any = one.space(space).piece(cls, piece)
        await one.space(space).transact(getattr(found, name).set, n)

    return write


class TestWhatRuns:
    def test_nothing_if_nothing_was_written_anywhere(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data:
                for _ in range(2):
                    async with site(data) as again:
                        assert await total_of(await open_view(again), again) == 8
                        assert again.taken() == set()
                        assert again.counts["clean"] == 6

        run(story)

    def test_nothing_is_stored_in_a_space_that_is_only_read(self, tmp_path: Path) -> None:
        async def story() -> None:
            for ran in (True, False):
                async with embedded(tmp_path) as data, site(data) as one:
                    n = one.rt.cell(STOCK, "n", int, default=1)
                    (view,) = await opened(one, [(HERE, Reader(n=n), "v")])
                    assert await view.twice.pull() == 2
                    await one.settled()
                    assert one.taken() == ({f"{HERE}/v:twice"} if ran else set())
                assert [path.name for path in tmp_path.glob("*.space")] == [f"{HERE}.space"]

        run(story)

    @pytest.mark.parametrize(
        ("space", "piece", "name", "cls", "ran", "total"),
        [
            (STOCK, "s", "n", Goods, {"plain", "derived", "all"}, 6 + 11 + 3),
            (RATES, "r", "rate", Rates, {"priced", "all"}, 2 + 3 + 5),
            (STOCK, "s", "other", Goods, set(), 8),
        ],
    )
    def test_exactly_what_follows_from_a_write_in_another_space(
        self, tmp_path: Path, space: str, piece: str, name: str, cls: type[Piece], ran: set[str], total: int
    ) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data:
                await written(data, sets(space, cls, piece, name, 5))
                async with site(data) as again:
                    assert await total_of(await open_view(again), again) == total
                    assert {each for each in again.taken() if each.startswith(HERE)} == {f"{HERE}/v:{r}" for r in ran}

        run(story)

    def test_what_came_back_is_told_of_the_next_change_elsewhere(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data, site(data) as again:
                view = await open_view(again)
                await total_of(view, again)
                await again.heard(await written(data, sets(STOCK, Goods, "s", "n", 5)))
                assert await total_of(view, again) == 6 + 11 + 3
                assert again.taken() == {f"{HERE}/v:plain", f"{HERE}/v:derived", f"{HERE}/v:all", f"{STOCK}/s:twice"}

        run(story)

    def test_the_question_travels_with_the_reads_of_all_nodes_at_once(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with embedded(tmp_path) as data:
                wire = Wire(data)
                async with site(wire) as again:
                    await total_of(await open_view(again), again)
            asked_for = [space for space, message in wire.sent if isinstance(message, QueryCurrent)]
            assert sorted(asked_for) == [RATES, STOCK], "one per space"

        run(story)


PATIENT = Policy(answer_ms=60_000, connect_ms=300)
"""Waits for an answer of a connected space, however slow the machine is."""


@asynccontextmanager
async def impatient(
    folder: Path, change: Change | None = None, policy: Policy = PATIENT
) -> AsyncIterator[tuple[Site, Wire]]:
    async with embedded(folder) as data:
        wire = Wire(data, change)
        async with Runtime(wire, identity="one", close_s=1, policy=policy) as rt:
            yield Site(rt), wire


class TestWhoDoesNotAnswer:
    def test_a_space_that_cannot_be_reached_leaves_its_readers_unknown(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            async with impatient(tmp_path) as (again, wire):
                wire.absent.add(RATES)
                rt = again.rt
                await rt.cell(STOCK, "s:@", Json).pull()  # That space is connected.
                await rt.cell(HERE, "v:@", Json).pull()  # What it was given is part of what it is.
                view: Any = again.space(HERE).piece(View, "v")
                assert await view.near.pull() == 1, "what does not read there comes back"
                assert await view.derived.pull() == 3
                assert again.taken() == set()
                named = view.priced  # noqa: F841  # It is here, and may not run before that space is.
                await rt.idle()
                assert again.counts[UNKNOWN] == 1
                wire.absent.clear()
                assert await view.priced.pull() == 3
                assert again.taken() == {f"{HERE}/v:priced"}

        run(story)

    def test_an_answer_that_comes_late_leaves_them_unknown(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            late = Policy(answer_ms=3_000, connect_ms=60_000)  # All other answers come before.
            async with impatient(tmp_path, losing(QueryCurrent), late) as (again, _):
                assert await total_of(await open_view(again), again) == 8
                assert again.taken() == {f"{HERE}/v:plain", f"{HERE}/v:derived", f"{HERE}/v:priced"}
                assert again.counts[UNKNOWN] == 3

        run(story)

    def test_who_may_not_ask_runs_each_time(self, tmp_path: Path) -> None:
        async def story() -> None:
            await first_start(tmp_path)
            for _ in range(2):
                async with impatient(tmp_path, refusing(QueryCurrent)) as (again, _):
                    assert await total_of(await open_view(again), again) == 8
                    assert again.taken() == {f"{HERE}/v:plain", f"{HERE}/v:derived", f"{HERE}/v:priced"}

        run(story)


class TestAnotherLog:
    @pytest.mark.parametrize("grown", [False, True])
    def test_a_space_that_was_given_an_older_state_leaves_its_readers_unknown(
        self, tmp_path: Path, grown: bool
    ) -> None:
        """Its numbers may look right: which log it is decides."""

        async def story() -> None:
            folder, backup = tmp_path / "data", tmp_path / "stock.space"
            await first_start(folder)
            shutil.copy(folder / "stock.space", backup)
            async with embedded(folder) as data:
                await written(data, sets(STOCK, Goods, "s", "n", 5))
                async with site(data) as again:
                    assert await total_of(await open_view(again), again) == 20
            shutil.copy(backup, folder / "stock.space")
            async with embedded(folder) as data:
                for n in range(6 if grown else 0):
                    await written(data, sets(STOCK, Goods, "s", "other", 10 + n))
                async with site(data) as again:
                    assert await total_of(await open_view(again), again) == 8
                    assert {f"{HERE}/v:plain", f"{HERE}/v:derived"} <= again.taken()
                    assert again.counts[WRITTEN] == 2

        run(story)
