"""`why` of a node that came back without a run tells of its last run, in a process before this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Piece, cell, computed, effect
from headwater.cli.app import run as command
from headwater.errors import AuthoringError
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import SPACE, Shop, filled, process
from tests.scenario.test_preview import Blind


async def _first(folder: Path) -> None:
    async with process(folder) as first:
        shop = await first.open()
        await filled(shop)
        await shop.put.send("k1", 5)
        await first.settled()


def test_the_runtime_tells_cause_and_commits_of_the_run_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        await _first(tmp_path)
        async with process(tmp_path) as again:
            shop = await again.open()
            assert await shop.total.pull() == 18
            told = again.rt.why("shop/a:total")
            assert (told.runs, told.steps) == (0, ())
            last = told.remembered
            assert last is not None
            assert last.cause is not None
            assert last.cause[0].id == "a:sub"
            assert 0 < last.changed_at <= last.verified_at
            assert "it has not run here: it was resumed" in str(told)
            assert "caused by\n    space:a:sub" in str(told)
            assert told.as_json()["remembered"]["cause"] == "space:a:sub"
            record = again.rt.graph().node("shop/a:total")
            assert (record.runs, record.as_of > 0, record.opaque) == (0, True, "")
            await shop.put.send("k1", 6)
            await again.settled()
            told = again.rt.why("shop/a:total")
            assert (told.runs, told.remembered) == (1, None)
            assert told.steps[0].cause.address == "space:a:sub"
            assert "it has not run" not in str(told)

    run(story)


def test_of_a_node_whose_piece_sleeps_the_runtime_says_that_it_does(tmp_path: Path) -> None:
    class Meter(Piece, name="why.Meter"):
        units: Cell[int] = cell(default=2)

        @computed
        def cost(self) -> int:
            return 3 * self.units.get()

        @effect
        def show(self) -> None:
            self.cost.get()

    async def story() -> None:
        for _ in range(2):
            async with process(tmp_path) as one:
                meter: Any = await one.open("m", Meter)
        async with process(tmp_path) as one:
            meter = await one.open("m", Meter)
            assert one.counts["asleep"] == 1
            for name, kind in (("cost", "computation"), ("show", "effect")):
                told = one.rt.why(f"{SPACE}/m:{name}")
                assert (told.kind, told.status, told.runs, told.remembered) == (kind, "asleep", 0, None)
                assert told.asleep_since == told.as_json()["asleep_since"] > 0
                assert "its piece sleeps" in str(told)
            for name in ("nothing", "units"):
                with pytest.raises(AuthoringError, match="there is no node"):
                    one.rt.why(f"{SPACE}/m:{name}")
            assert await meter.cost.pull() == 6
            told = one.rt.why(f"{SPACE}/m:cost")
            assert (told.status, told.asleep_since, told.remembered is None) == ("clean", 0, False)
            meter.units.set(4)
            await one.settled()
            assert one.rt.why(f"{SPACE}/m:cost").runs == 1

    run(story)


def test_a_member_is_explained_by_its_handle_asleep_and_awake(tmp_path: Path) -> None:
    class Scale(Piece, name="why.Scale"):
        grams: Cell[int] = cell(default=2)

        @computed
        def cost(self) -> int:
            return 3 * self.grams.get()

        @computed(scope="user")
        def mine(self) -> int:
            return self.cost.get()

        @effect
        def show(self) -> None:
            self.mine.get()

    async def story() -> None:
        async with process(tmp_path, identity="one") as one:
            scale: Any = await one.open("s", Scale)
            for member in (scale.cost, scale.mine, scale.show):
                assert one.rt.why(member).runs == 1
        async with process(tmp_path, identity="one") as one:
            scale = await one.open("s", Scale)
            assert one.counts["asleep"] == 1
            for member in (scale.cost, scale.mine, scale.show):
                told = one.rt.why(member)
                assert (told.status, told.runs, told.asleep_since > 0) == ("asleep", 0, True)
            await scale.cost.pull()
            assert one.rt.why(scale.cost).remembered is not None
            scale.grams.set(4)
            await one.settled()
            told = one.rt.why(scale.cost)
            assert (told.runs, told.steps[0].cause.address) == (1, "space:s:grams")
            wrong: list[Any] = [scale.grams, scale, None]
            for other in wrong:
                with pytest.raises(AuthoringError, match="no node computes that: name a member that is computed"):
                    one.rt.why(other)

    run(story)


@pytest.mark.parametrize("is_here", [True, False])
def test_what_made_a_sleeping_piece_run_again_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_here: bool
) -> None:
    class Gauge(Piece, name="why.Gauge"):
        units: Cell[int] = cell(default=2)

        @computed
        def cost(self) -> int:
            return 3 * self.units.get()

    async def story() -> None:
        async with process(tmp_path) as one:
            gauge: Any = await one.open("g", Gauge)
            assert await gauge.cost.pull() == 6
        async with process(tmp_path) as one:
            gauge = one.space.piece(Gauge, "g") if not is_here else await one.open("g", Gauge)
            await one.space.transact(lambda: gauge.units.set(4))
            if not is_here:
                gauge = await one.open("g", Gauge)
            assert await gauge.cost.pull() == 12
            await one.settled()
            assert one.taken() == {"g:cost"}

    run(story)
    assert command(["why", str(tmp_path), SPACE, "g.cost"]) == 0
    assert "last run: because of space:g:units, seq" in capsys.readouterr().out


def test_the_command_tells_it_of_a_run_that_changed_nothing_and_of_an_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        await _first(tmp_path)
        async with process(tmp_path) as other:  # The sum is the same: the log knows nothing of that run.
            shop = await other.open()
            await other.rt.space(SPACE).transact(lambda: _swap(shop))
            await other.settled()

    def _swap(shop: Any) -> None:
        shop.items.key("k0").set(3)
        shop.items.key("k2").set(1)

    run(story)
    assert command(["why", str(tmp_path), SPACE, "a.sub"]) == 0
    out = capsys.readouterr().out
    assert "last run: because of space:a:items" in out
    assert "its reads were current at seq" in out
    assert command(["why", str(tmp_path), SPACE, "a.show"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("last run: because of ")
    assert command(["why", str(tmp_path), SPACE, "a.nothing"]) == 1
    capsys.readouterr()

    async def written() -> None:
        async with process(tmp_path) as other:
            await other.space.piece(Shop, "a").put.send("k9", 9)

    run(written)
    assert command(["why", str(tmp_path), SPACE, "a.sub"]) == 0
    assert "space:a:items was written since, at seq" in capsys.readouterr().out


def test_what_nobody_can_know_says_why_in_the_graph_and_in_the_counts(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as first:
            assert await (await first.open("b", Blind)).seen.pull() == 1  # type: ignore[attr-defined]
        async with process(tmp_path) as again:
            blind: Any = await again.open("b", Blind)
            assert await blind.seen.pull() == 1
            assert again.taken() == {"b:seen"}
            assert "FILE" in again.rt.graph().node("shop/b:seen").opaque
            (reason,) = [each for each in again.counts if each.startswith("its code has no fingerprint")]
            assert "FILE" in reason

    run(story)
