"""A piece that is known to be clean as a whole is opened asleep: what is wanted of it, or was met, comes back alone."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Piece, cell, computed, each, effect, handler
from headwater.engine import Limits
from headwater.protocol.observations import AffectedNodes, Observations, Observed, QueryObservations
from headwater.runtime import LocalDirectory
from tests.counts import scaled
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import SPACE, Process, observed, process, wired


class Sheet(Piece, name="asleep.Sheet"):
    cells: Cell[Mapping[str, int]] = cell(default={})
    rate: Cell[int] = cell(default=2)
    unread: Cell[int] = cell(default=0)

    @each(cells)
    def priced(self, n: Cell[int]) -> int:
        return n.get() * self.rate.get()

    @computed
    def first(self) -> int:
        return self.cells.key("k0").get(0) + self.rate.get()

    @computed
    def twice(self) -> int:
        return 2 * self.first.get()

    @effect
    def show(self) -> None:
        self.twice.get()

    @handler
    def put(self, key: str, n: int) -> None:
        self.cells.key(key).set(n)

    @handler
    def touch(self) -> None:
        self.unread.increment(1)

    @handler
    def look(self, n: int) -> int:
        self.cells.key("k0").set(n)
        return self.twice.get()


class NewSheet(Piece, name="asleep.Sheet"):
    cells: Cell[Mapping[str, int]] = cell(default={})
    rate: Cell[int] = cell(default=2)
    unread: Cell[int] = cell(default=0)

    @each(cells)
    def priced(self, n: Cell[int]) -> int:
        return n.get() * self.rate.get()

    @computed
    def first(self) -> int:
        return self.cells.key("k0").get(0) + self.rate.get() + 100

    @computed
    def twice(self) -> int:
        return 2 * self.first.get()

    @effect
    def show(self) -> None:
        self.twice.get()


class SameSheet(Piece, name="asleep.Sheet"):
    cells: Cell[Mapping[str, int]] = cell(default={})
    rate: Cell[int] = cell(default=2)
    unread: Cell[int] = cell(default=0)

    @computed
    def first(self) -> int:
        return self.rate.get() + self.cells.key("k0").get(0)

    @computed
    def twice(self) -> int:
        return 2 * self.first.get()

    @effect
    def show(self) -> None:
        self.twice.get()


async def _known(one: Process) -> list[Observed]:
    channel = one.rt.channel(SPACE)
    assert channel is not None
    page = await channel.driver.look(QueryObservations(0, limit=1_000))
    assert isinstance(page, Observations)
    return list(page.observed)


async def _made(folder: Path, count: int = 3) -> None:
    limits, elements = Limits(watches=100_000), {f"k{n}": n for n in range(count)}
    async with LocalDirectory(folder, synchronous="OFF", limits=limits) as data, process(data, identity="one") as first:
        await first.space.open(Sheet, "s", setup=lambda made: made.cells.set(elements))
        await first.settled()


async def _asleep(one: Process, cls: type[Piece] = Sheet) -> Sheet:
    made = await one.open("s", cls)
    assert one.counts["asleep"] == 1
    return made  # type: ignore[return-value]


class TestAsleep:
    def test_nothing_runs_and_what_is_pulled_comes_back_alone(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, identity="one") as again:
                sheet = await _asleep(again)
                assert (again.taken(), dict(sheet.cells.get())) == (set(), {"k0": 0, "k1": 1, "k2": 2})
                assert await sheet.twice.pull() == 4
                assert (again.taken(), again.counts["clean"]) == (set(), 2), "and who makes what it reads"
                assert dict(await sheet.priced.pull()) == {"k0": 0, "k1": 2, "k2": 4}
                assert again.taken() == set()
                assert not again.errors

        run(story)

    def test_a_change_runs_what_reads_it_and_nothing_else_comes_back(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, identity="one") as again:
                sheet = await _asleep(again)
                sheet.cells.key("k1").set(10)
                await again.settled()
                assert again.taken() == {"s:priced/k1 row"}
                assert again.counts["woken"] == 0
                sheet.cells.key("k0").set(10)
                await again.settled()
                assert again.taken() == {"s:priced/k0 row", "s:first", "s:twice", "s:show"}
                assert again.counts["woken"] == 0
                sheet.unread.set(5)
                await again.settled()
                assert again.taken() == set()
                assert await sheet.twice.pull() == 24

        run(story)

    def test_others_wake_it_too_and_so_does_what_they_wrote_while_it_was_away(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path) as other:
                await other.space.piece(Sheet, "s").put.send("k2", 7)
                await other.space.piece(Sheet, "s").touch.send()
            async with LocalDirectory(tmp_path, synchronous="OFF") as data, process(data, identity="one") as again:
                sheet = await _asleep(again)
                assert again.taken() == {"s:priced/k2 row"}
                async with process(data) as other:
                    await other.space.piece(Sheet, "s").put.send("k1", 9)
                    seq = other.space.seq
                await again.rt.settled(through=seq, space=SPACE)
                await again.settled()
                assert again.taken() == {"s:priced/k1 row"}
                assert dict(await sheet.priced.pull()) == {"k0": 0, "k1": 18, "k2": 14}

        run(story)

    def test_elements_that_come_and_leave_bring_their_rows(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, identity="one") as again:
                sheet = await _asleep(again)
                sheet.cells.key("k9").set(9)
                await again.settled()
                assert again.taken() == {"s:priced", "s:priced/k9 row"}
                sheet.cells.key("k0").delete()
                await again.settled()
                assert again.taken() == {"s:priced", "s:first"}, "what it makes of nothing is the same"
                assert again.counts["woken"] == 0
                assert dict(sheet.priced.get()) == {"k1": 2, "k2": 4, "k9": 18}
            assert not [each for each in await observed(tmp_path) if each.node.child.endswith("k0")]

        run(story)

    def test_a_handler_reads_what_its_own_write_made_of_it(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, identity="one") as again:
                sheet = await _asleep(again)
                assert await sheet.look.send(5) == 14
                assert await sheet.twice.pull() == 14
                sheet.rate.set(3)
                assert await sheet.look.send(6) == 18
                await again.settled()
                assert await sheet.twice.pull() == 18

        run(story)

    def test_it_sleeps_again_after_it_was_woken_and_closed(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            for n in range(3):
                async with process(tmp_path, identity="one") as again:
                    sheet = await _asleep(again)
                    assert again.taken() == set()
                    sheet.cells.key("k1").set(100 + n)
                    await again.settled()
                    assert again.taken() == {"s:priced/k1 row"}

        run(story)


class TestNotAsleep:
    def test_of_a_process_that_was_killed_nothing_is_said(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path / "a")
            async with (
                LocalDirectory(tmp_path / "a", synchronous="OFF") as data,
                process(data, identity="one") as killed,
            ):
                sheet = await _asleep(killed)
                sheet.cells.key("k9").set(9)
                await killed.settled()
                shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("*lock*"))
            async with process(tmp_path / "b", identity="one") as again:
                await again.open("s", Sheet)
                assert again.counts["asleep"] == 0, "its rows are other ones, and nobody said that all are known"
                assert again.taken() <= {"s:show"}

        run(story)

    def test_a_member_that_does_something_else_runs_with_those_who_read_another_value(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, identity="one") as again:
                sheet: Any = await again.open("s", NewSheet)
                assert again.counts["asleep"] == 0
                assert again.taken() == {"s:first", "s:twice", "s:show"}, "not the rows, which do what they did"
                assert await sheet.twice.pull() == 204
            async with process(tmp_path, identity="one") as again:
                await again.open("s", NewSheet)
                assert (again.taken(), again.counts["asleep"]) == (set(), 1)
                assert {each.node.generation for each in await _known(again)} == {2}

        run(story)

    def test_a_member_that_does_the_same_in_another_way_runs_alone_and_one_that_is_gone_is_forgotten(
        self, tmp_path: Path
    ) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, identity="one") as again:
                await again.open("s", SameSheet)
                assert again.taken() == {"s:first"}
            names = {each.node.member for each in await observed(tmp_path)}
            assert names == {"first", "twice", "show"}

        run(story)

    def test_another_runtime_shows_its_own_effects(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with LocalDirectory(tmp_path, synchronous="OFF") as data, process(data, identity="two") as other:
                await other.open("s", Sheet)
                assert other.taken() == {"s:show"}

        run(story)

    def test_opened_for_a_second_user_all_of_it_is_here(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, identity="one") as again:
                await _asleep(again)
                await again.rt.space(SPACE, user="bob").open(Sheet, "s")
                await again.settled()
                assert again.counts["woken"] == 1
                assert again.taken() == {"s:show"}, "for whom nothing is known"

        run(story)

    def test_nothing_is_asked_with_observing_off(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with process(tmp_path, observe=False, identity="one") as again:
                await again.open("s", Sheet)
                assert not again.counts

        run(story)


def test_a_piece_that_is_stopped_while_its_nodes_are_looked_up_keeps_no_other_piece_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path, identity="one") as first:
            for name in ("s", "t"):
                await first.space.open(Sheet, name)
            await first.settled()
        async with wired(tmp_path, identity="one") as (again, wire):
            stopped, other = await again.open("s", Sheet), await again.open("t", Sheet)
            assert again.counts["asleep"] == 2
            # The first answer names the nodes that read the written cell, the second one the readers of their results.
            answers = itertools.count(1)
            wire.hold(lambda message: isinstance(message, AffectedNodes) and next(answers) == 2)
            stopped.rate.set(3)
            await wire.holding.wait()
            stopping = asyncio.create_task(again.space.stop(stopped))
            await asyncio.sleep(0)  # The piece is closed before the answer arrives.
            wire.let_go()
            await stopping
            other.rate.set(4)
            await again.settled()
            assert "t:show" in again.taken()

    run(story)


@pytest.mark.random
def test_what_opening_costs_does_not_depend_on_how_many_nodes_there_are(tmp_path: Path) -> None:
    """Nodes that are registered, documents that are watched and questions that are asked, for each size."""
    costs = []

    async def story(count: int) -> None:
        folder = tmp_path / str(count)
        await _made(folder, count)
        async with wired(folder, identity="one") as (again, wire):
            sheet = await _asleep(again)
            assert await sheet.first.pull() == 2
            sheet.cells.key("k0").set(1)
            await again.settled()
            assert again.taken() == {"s:priced/k0 row", "s:first", "s:twice", "s:show"}
            costs.append((len(again.rt.scheduler.nodes()), len(wire.watched(SPACE))))

    for count in (100, max(1_000, scaled(10_000))):
        run(lambda count=count: story(count), too_long_s=300)  # type: ignore[misc]
    assert costs[0] == costs[1]
    assert max(costs[0]) < 16
