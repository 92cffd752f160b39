"""A process that comes back runs what changed while it was away, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Input, Piece, UpstreamFailedError, cell, computed, effect, given, handler
from headwater.protocol.messages import Transact
from headwater.protocol.observations import Observations, QueryCleanPieces, QueryNodes, QueryObservations, decode_about
from headwater.runtime import LocalDirectory, Policy, Runtime
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import SPACE, Process, Shop, crashing, filled, observed, process, wired
from tests.scenario.wire_kit import Change, Wire, losing, refusing

ABOUT_NODES = (QueryNodes, QueryObservations, QueryCleanPieces)
"""The questions about what nodes last did."""
ALL = 34
"""The nodes of a shop with three items and three lines."""
KEPT = 14
"""Those among them that keep its children, and what is written elsewhere, with whoever makes what they read."""


Started = Callable[[Path], AbstractAsyncContextManager[Process]]
"""Starts a process that has a directory for itself."""


async def _first(folder: Path, started: Started = process) -> None:
    async with started(folder) as first:
        await filled(await first.open())
        await first.settled()


async def _written_while_down(folder: Path, *events: tuple[str, Any], started: Started = process) -> None:
    """Send to the shop without running it."""
    async with started(folder) as other:
        shop = other.space.piece(Shop, "a")
        for name, arguments in events:
            await getattr(shop, name).send(*arguments)
        assert other.taken() <= {"a:sub", "a:total"}, "a handler needs no more than it reads"


@pytest.fixture(params=["asleep", "awake"])
def is_asleep(request: pytest.FixtureRequest) -> bool:
    """Whether it is known that all of the shop was clean. Otherwise, as after a crash, each node is asked for."""
    is_asleep: bool = request.param == "asleep"
    return is_asleep


@pytest.fixture
def started(is_asleep: bool) -> Started:
    return process if is_asleep else crashing


def _known(is_asleep: bool) -> dict[str, int]:
    return {"asleep": 1, "clean": KEPT} if is_asleep else {"clean": ALL}


class TestWhatRuns:
    def test_a_clean_space_comes_back_without_any_run(self, tmp_path: Path, is_asleep: bool, started: Started) -> None:
        async def story() -> None:
            await _first(tmp_path, started)
            async with started(tmp_path) as again:
                shop = await again.open()
                assert again.taken() == set()
                assert again.counts == _known(is_asleep)
                assert sorted(shop.rows.get()) == ["k0", "k1", "k2"], "children are there"
                assert again.counts == _known(is_asleep)
                assert [await each.pull() for each in (shop.total, shop.costs, shop.sum, shop.posted)] == [
                    12,
                    12,
                    6,
                    12,
                ]
                assert await shop.styled.pull() == "light shop"
                assert sorted(shop.rows.get()) == ["k0", "k1", "k2"]
                assert dict(await shop.prices.pull()) == {"k0": 2, "k1": 3, "k2": 4}
                assert [await note.text.pull() for note in shop.notes.get().values()] == ["l0: 0", "l1: 10", "l2: 20"]
                assert again.taken() == set()
                assert not again.errors

        run(story)

    def test_a_write_while_down_runs_exactly_its_chain(self, tmp_path: Path, started: Started) -> None:
        async def story() -> None:
            await _first(tmp_path, started)
            await _written_while_down(tmp_path, ("put", ("k1", 20)), started=started)
            async with started(tmp_path) as again:
                shop = await again.open()
                assert again.taken() == {
                    "a/rows/k1:cost",
                    "a:costs",
                    "a:posted",
                    "a:prices/k1 row",
                    "a:show",
                    "a:sub",
                    "a:sum",
                    "a:total",
                }
                assert await shop.total.pull() == 2 * (1 + 20 + 3)
                assert await shop.posted.pull() == 48
            async with started(tmp_path) as again:
                await again.open()
                assert again.taken() == set()

        run(story)

    def test_an_unrelated_write_runs_nothing(self, tmp_path: Path, is_asleep: bool, started: Started) -> None:
        async def story() -> None:
            await _first(tmp_path, started)
            await _written_while_down(tmp_path, ("touch", ()), ("touch", ()), started=started)
            async with started(tmp_path) as again:
                await again.open()
                assert again.taken() == set()
                await again.rt.cell(SPACE, "elsewhere", int, default=0).pull()
                assert again.counts == _known(is_asleep)

        run(story)

    def test_elements_that_came_and_left_while_down_run_alone(self, tmp_path: Path, started: Started) -> None:
        async def story() -> None:
            await _first(tmp_path, started)
            await _written_while_down(
                tmp_path, ("put", ("k9", 9)), ("drop", ("k0",)), ("note", ("l1", -1)), started=started
            )
            async with started(tmp_path) as again:
                shop = await again.open()
                ran = again.taken()
                assert {"a:rows/k9 row", "a/rows/k9:cost", "a:notes/l1 row"} <= ran
                untouched = {f"a{part}" for k in ("k1", "k2") for part in (f":rows/{k} row", f"/rows/{k}:cost")}
                assert not ran & (untouched | {"a:notes/l0 row", "a/notes/l0:text", "a:header row"})
                assert sorted(shop.rows.get()) == ["k1", "k2", "k9"]
                assert sorted(shop.notes.get()) == ["l0", "l2"]
                assert await shop.costs.pull() == 2 * (2 + 3 + 9)

        run(story)

    def test_children_that_came_back_live_on(self, tmp_path: Path) -> None:
        """L13: a list whose child set came back clean has children like any other."""

        async def story() -> None:
            await _first(tmp_path)
            async with process(tmp_path) as again:
                shop = await again.open()
                await shop.rows.get()["k2"].double.send()
                await again.settled()
                assert "a/rows/k2:cost" in again.taken()
                assert await shop.costs.pull() == 2 * (1 + 2 + 6)
                await shop.put.send("k7", 1)
                await shop.drop.send("k0")
                await again.settled()
                assert sorted(shop.rows.get()) == ["k1", "k2", "k7"]
                assert await shop.header.get().length.pull() == 4

        run(story)

    def test_a_pull_of_a_piece_that_is_only_named_runs_what_is_dirty_above_it(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path)
            await _written_while_down(tmp_path, ("put", ("k1", 20)))
            async with process(tmp_path) as again:
                shop = again.space.piece(Shop, "a")
                assert await shop.styled.pull() == "light shop"
                assert await shop.header.pull() is not None
                assert again.taken() == set()
                assert await shop.total.pull() == 48
                assert again.taken() == {"a:sub", "a:total"}
                assert await shop.total.pull() == 48
                assert again.taken() == set()

        run(story)

    def test_a_handler_reads_what_is_fresh(self, tmp_path: Path) -> None:
        """I4: what it reads came back, or ran; a change that it has not heard of is in its way."""

        async def story() -> None:
            await _first(tmp_path)
            await _written_while_down(tmp_path, ("put", ("k1", 20)))
            async with process(tmp_path) as again:
                assert await again.space.piece(Shop, "a").check.send() == 48
                assert again.taken() == {"a:sub", "a:total"}
            async with process(tmp_path) as again:
                assert await again.space.piece(Shop, "a").check.send() == 48
                assert again.taken() == set()

        run(story)

    def test_switched_off_nothing_is_told_and_everything_runs(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path, observe=False) as first:
                await filled(await first.open())
                await first.settled()
            assert await observed(tmp_path) == []
            async with process(tmp_path) as again:
                await again.open()
                assert len(again.taken()) == ALL
            assert len(await observed(tmp_path)) == ALL
            async with process(tmp_path, observe=False) as again:
                await again.open()
                assert len(again.taken()) == ALL

        run(story)


class Slow(Piece, name="resume.Slow"):
    n: Cell[int] = cell(default=1)

    @computed
    def half(self) -> int:
        if self.n.get() % 2:
            raise ValueError("odd")
        return self.n.get() // 2

    @computed
    def either(self) -> int:
        try:
            return self.half.get()
        except UpstreamFailedError:
            return -1

    @computed
    def late(self) -> bool:
        return self.ctx.past(datetime(2100, 1, 1, tzinfo=UTC))

    @computed
    def sure(self) -> int:
        return self.n.get()

    @effect
    def show(self) -> None:
        self.either.get(), self.late.get(), self.sure.get()

    @effect(every_start=True)
    def always(self) -> None:
        self.sure.get()

    @effect
    def opened(self) -> Callable[[], None]:
        self.sure.get()
        return lambda: None


class TestWhatIsUnknown:
    def test_what_nobody_can_compare_runs_again(self, tmp_path: Path) -> None:
        """A failure, whoever was shown one, the time, what an effect set up, and who asks for it."""

        async def story() -> None:
            for _ in range(2):
                async with process(tmp_path) as each:
                    await each.open("s", Slow)
                    assert each.taken() >= {"s:half", "s:either", "s:late", "s:always", "s:opened"}
            async with process(tmp_path) as again:
                await again.open("s", Slow)
                assert "s:sure" not in again.taken()

        run(story)

    def test_a_node_that_came_back_is_told_of_a_failure(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as first:
                slow: Any = await first.open("s", Slow)
                await first.rt.space(SPACE).transact(lambda: slow.n.set(4))
                await first.settled()
                assert await slow.either.pull() == 2
            async with process(tmp_path) as again:
                slow = await again.open("s", Slow)
                assert not again.taken() & {"s:half", "s:either"}
                await again.rt.space(SPACE).transact(lambda: slow.n.set(5))
                assert await slow.either.pull() == -1

        run(story)

    def test_effects_come_back_in_the_runtime_that_they_ran_in(self, tmp_path: Path) -> None:
        """Something is shown here: that another runtime has shown it is no reason not to."""

        async def story() -> None:
            effects = {"a:show", "a:read", "a:greet"}
            for expected in (effects, effects, set()):
                identity = None if expected else "kiosk"
                async with LocalDirectory(tmp_path) as data:
                    async with process(data, identity="kiosk") as named:
                        await named.open()
                        if not expected:
                            assert named.taken() & effects == set()
                    async with process(data, identity=identity) as other:
                        shop = await other.open()
                        assert other.taken() & effects == expected
                        await shop.put.send("k", 1)

        run(story)

    def test_other_code_makes_it_run(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as first:
                assert await (await first.open("c", OldCounter)).total.pull() == 1
            async with process(tmp_path) as again:
                assert await again.space.piece(OldCounter, "c").total.pull() == 1
                assert again.taken() == set()
            async with process(tmp_path) as again:
                assert await again.space.piece(NewCounter, "c").total.pull() == 101
                assert "c:total" in again.taken()
            async with process(tmp_path) as again:
                assert await (await again.open("c", NewCounter)).total.pull() == 101

        run(story)

    def test_another_input_makes_it_run(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with process(tmp_path) as first:
                counter: Any = await first.open("c", OldCounter)
                await first.rt.space(SPACE).transact(lambda: counter.other.set(50))
                await first.space.open(Doubled(n=counter.n), "d")
                assert await first.space.piece(Doubled, "d").twice.pull() == 2
            async with process(tmp_path) as again:
                counter = await again.open("c", OldCounter)
                await again.space.open(Doubled(n=counter.other), "d")
                assert await again.space.piece(Doubled, "d").twice.pull() == 100
            async with process(tmp_path) as again:
                await again.open("c", OldCounter)
                assert await again.space.piece(Doubled, "d").twice.pull() == 100

        run(story)


class OldCounter(Piece, name="resume.Counter"):
    n: Cell[int] = cell(default=1)
    other: Cell[int] = cell(default=0)

    @computed
    def total(self) -> int:
        return self.n.get()


class NewCounter(Piece, name="resume.Counter"):
    n: Cell[int] = cell(default=1)
    other: Cell[int] = cell(default=0)

    @computed
    def total(self) -> int:
        return self.n.get() + 100


class Doubled(Piece, name="resume.Doubled"):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()

    @handler
    def nothing(self) -> None:
        """Makes it a piece that somebody may send to."""


class TestThePhase:
    def test_nothing_of_a_piece_runs_before_it_is_known_what_it_did(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path, crashing)
            async with wired(tmp_path) as (again, wire):
                wire.hold(lambda message: isinstance(message, Observations))
                opening = asyncio.ensure_future(again.open())
                await wire.holding.wait()
                for n in range(50):
                    await again.rt.cell("elsewhere", f"nothing {n}", int, default=0).pull()
                assert not opening.done()
                assert again.taken() == set()
                wire.let_go()
                await opening
                assert again.taken() == set()
                assert again.counts == {"clean": ALL}

        run(story)

    def test_a_write_between_the_answer_and_its_use_is_not_missed(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path, crashing)
            async with LocalDirectory(tmp_path) as data, process(data) as other:
                shop = other.space.piece(Shop, "a")
                wire = Wire(data)
                async with process(wire) as again:
                    wire.hold(lambda message: isinstance(message, Observations))
                    opening = asyncio.ensure_future(again.open())
                    await wire.holding.wait()
                    await shop.put.send("k1", 20)
                    wire.let_go()
                    await opening
                    assert {"a:sub", "a:total", "a/rows/k1:cost"} <= again.taken()
                    assert await again.space.piece(Shop, "a").total.pull() == 48

        run(story)

    @pytest.mark.parametrize("change", [refusing(*ABOUT_NODES), losing(*ABOUT_NODES)], ids=["refused", "late"])
    def test_without_an_answer_everything_is_fresh(self, tmp_path: Path, change: Change) -> None:
        async def story() -> None:
            await _first(tmp_path)
            async with wired(tmp_path, change, policy=Policy(answer_ms=50)) as (again, _):
                shop = await again.open()
                assert len(again.taken()) == ALL
                assert await shop.total.pull() == 12
                assert not again.errors

        run(story)

    def test_closing_while_a_piece_is_being_resumed_leaves_nothing_behind(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path)
            async with Runtime(tmp_path) as rt:
                other = Process(rt)
                shop = other.space.piece(Shop, "a")
                shop.total.sink(lambda _: None)
            assert not other.errors
            async with process(tmp_path) as again:
                await again.open()
                assert again.taken() == set()

        run(story)

    def test_a_piece_that_was_let_go_is_asked_for_again(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _first(tmp_path)
            async with process(tmp_path) as again:
                shop = await again.open()
                await again.space.stop(shop)
                again.rt.channel(SPACE).tell_runs()  # type: ignore[union-attr]
                shop = await again.open()
                assert again.taken() == set()
                assert await shop.total.pull() == 12

        run(story)


def test_observation_of_a_run_with_the_same_reads_has_the_same_bytes(tmp_path: Path) -> None:
    """The engine sees with one comparison that nothing but the time of the run changed."""

    async def story() -> None:
        async with wired(tmp_path) as (first, wire):
            shop = await first.open()
            await filled(shop)
            await first.settled()
            wire.sent.clear()
            for n in (5, 6):
                await shop.put.send("k0", n)
                await first.settled()
            told = [each for _, sent in wire.sent if isinstance(sent, Transact) for each in sent.observations]
            totals = [each for each in told if decode_about(each.about).node.member == "total"]
            assert len(totals) == 2
            assert len({(each.about, each.footprint) for each in totals}) == 1

    run(story)
