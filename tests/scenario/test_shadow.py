"""Nodes that claim to be clean are run in the shadow: a node that would have written another value is found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Input, Piece, cell, child, computed, each, effect, fold, given, materializer
from headwater.data.value import ABSENT
from tests.scenario.pieces_kit import run
from tests.scenario.preview_kit import content, shadow_of
from tests.scenario.resume_kit import SPACE, Shop, filled, process
from tests.scenario.test_resume import ALL, OldCounter

OUTSIDE = "HEADWATER_TEST_OUTSIDE"
"""What no fingerprint can tell: it is read from outside while the program runs."""


SHOWN = "HEADWATER_TEST_SHOWN"


def outside() -> int:
    return int(os.environ[OUTSIDE])


class Leaf(Piece, name="shadow.Leaf"):
    n: Input[int] = given()

    @computed
    def weighed(self) -> int:
        return self.n.get() * outside()


class Leaky(Piece, name="shadow.Leaky"):
    n: Cell[int] = cell(default=1)
    side: Cell[int] = cell(default=0)
    board: Cell[Mapping[str, int]] = cell(default={})
    items: Cell[Mapping[str, int]] = cell(default={"a": 1, "b": 2})

    @computed
    def plain(self) -> int:
        return self.n.get() + 1

    @computed
    def leaks(self) -> Mapping[str, int]:
        return {"same": 7, "other": self.n.get() + outside()}

    @computed
    def on_top(self) -> int:
        return self.leaks.get()["other"]

    @computed(writes=(side,))
    def beside(self) -> int:
        self.side.set(outside())
        return 0

    @materializer(envelope=(board,))
    def posted(self) -> int:
        self.board.key("out").set(outside())
        return 0

    @each(items)
    def leaves(self, n: Cell[int]) -> Leaf:
        return Leaf(n=n)

    @child
    def only(self) -> Leaf:
        return Leaf(n=self.n)

    total = fold(items, start=0, add=lambda n, x: n + x * outside(), remove=lambda n, x: n - x * outside())

    @computed
    def fails(self) -> int:
        return 1 // (2 - outside())

    @effect
    def show(self) -> None:
        os.environ[SHOWN] += "."
        self.on_top.get(), self.beside.get(), self.total.get(), self.plain.get(), self.fails.get()
        for leaf in self.leaves.get().values():
            leaf.weighed.get()
        self.only.get().weighed.get()


async def _leaky(folder: Path) -> None:
    async with process(folder) as first:
        await first.open("x", Leaky)
        await first.settled()
        assert not first.errors


@pytest.fixture(autouse=True)
def one_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTSIDE, "1")
    monkeypatch.setenv(SHOWN, "")


def test_of_a_program_without_a_leak_nothing_comes_out_differently(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as first:
            await filled(await first.open())
            await first.settled()
        before = content(tmp_path)
        report = await shadow_of(tmp_path)
        assert (report.ok, report.undecided) == (True, {})
        assert (report.checked, report.effects, report.not_clean) == (ALL - 3, 3, 0)
        assert content(tmp_path) == before

    run(story)


def test_what_no_fingerprint_knows_is_found_with_node_path_and_both_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        await _leaky(tmp_path)
        before, shown = content(tmp_path), os.environ[SHOWN]
        assert (await shadow_of(tmp_path)).ok
        monkeypatch.setenv(OUTSIDE, "2")
        report = await shadow_of(tmp_path)
        found = {(each.node, each.address): (each.stored, each.new, each.error) for each in report.findings}
        assert found == {
            ("x:leaks", "space:x:leaks#/other"): (2, 3, ""),
            ("x:beside", "space:x:side"): (1, 2, ""),
            ("x:posted", "space:x:board#/out"): (1, 2, ""),
            ("x/leaves/a:weighed", "space:x/leaves/a:weighed"): (1, 2, ""),
            ("x/leaves/b:weighed", "space:x/leaves/b:weighed"): (2, 4, ""),
            ("x/only/:weighed", "space:x/only/:weighed"): (1, 2, ""),
            ("x:total", "space:x:total"): (3, 6, ""),
            ("x:fails", ""): (ABSENT, ABSENT, "ZeroDivisionError: integer division or modulo by zero"),
        }
        assert not report.undecided
        assert report.effects == 1
        assert (content(tmp_path), os.environ[SHOWN]) == (before, shown), "nothing is written, and no effect is run"

    run(story)


def test_what_runs_at_a_start_anyway_is_left_to_that(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as first:
            await filled(await first.open())
            await first.settled()
        async with process(tmp_path) as other:
            shop = other.space.piece(Shop, "a")
            await shop.put.send("k1", 20)
            await shop.put.send("k9", 9)
            await shop.drop.send("k0")
        report = await shadow_of(tmp_path)
        assert report.ok, report.findings
        assert report.not_clean >= 8
        assert report.checked + len(report.undecided) + report.effects + report.not_clean >= ALL - 2

    run(story)


def test_a_value_that_somebody_wrote_over_is_not_clean(tmp_path: Path) -> None:
    """Whoever replaces a result leaves nothing to be clean about: that is no finding."""

    async def story() -> None:
        await _leaky(tmp_path)
        async with process(tmp_path) as other:
            cell: Any = other.rt.cell(SPACE, "x:plain", int)
            await other.rt.space(SPACE).transact(lambda: cell.set(99))
        report = await shadow_of(tmp_path)
        assert report.ok
        assert report.not_clean == 2  # It, and the effect that shows it.

    run(story)


def test_a_node_whose_code_changed_is_not_clean(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as first:
            assert await (await first.open("c", OldCounter)).total.pull() == 1
        report = await shadow_of(tmp_path)  # The class of that name that was imported last is the new one.
        assert report.ok, report.findings
        assert report.not_clean == 1

    run(story)
