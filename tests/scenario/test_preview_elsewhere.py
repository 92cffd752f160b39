"""What a node read of another space is asked there, by a preview as by a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Input, Piece, cell, computed, given
from tests.scenario.pieces_kit import run
from tests.scenario.preview_kit import previewed, shadow_of
from tests.scenario.resume_kit import process


class Source(Piece, name="away.Source"):
    n: Cell[int] = cell(default=1)
    aside: Cell[int] = cell(default=0)


class Reader(Piece, name="away.Reader"):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


async def _read(folder: Path) -> set[str]:
    async with process(folder) as one:
        source: Any = await one.rt.space("away").open(Source, "s")
        await one.space.open(Reader(n=source.n), "r")
        await one.space.piece(Reader, "r").twice.pull()
        await one.settled()
        return one.taken()


async def _written(folder: Path, name: str, value: int) -> None:
    async with process(folder) as other:
        source: Any = other.rt.space("away").piece(Source, "s")
        await other.rt.space("away").transact(lambda: getattr(source, name).set(value))


def test_a_preview_asks_the_space_that_was_read(tmp_path: Path) -> None:
    async def story() -> None:
        assert await _read(tmp_path) == {"r:twice"}
        await _read(tmp_path)
        (twice,) = (await previewed(tmp_path)).nodes
        assert (twice.node, twice.fate) == ("r:twice", "clean")
        await _written(tmp_path, "aside", 5)
        (twice,) = (await previewed(tmp_path)).nodes
        assert twice.fate == "clean"
        report = await shadow_of(tmp_path)
        assert (report.ok, report.checked) == (True, 1)
        assert await _read(tmp_path) == set()
        await _written(tmp_path, "n", 7)
        (twice,) = (await previewed(tmp_path)).nodes
        assert (twice.fate, twice.details) == ("rerun", ("away",))
        assert (await shadow_of(tmp_path)).not_clean == 1
        assert await _read(tmp_path) == {"r:twice"}

    run(story)


def _taxed(factor: int) -> tuple[type[Piece], type[Piece]]:
    """A piece that derives something, and one that derives something else of that; the first in versions."""

    class Taxed(Piece, name="away.Taxed"):
        n: Cell[int] = cell(default=1)

        @computed
        def cost(self) -> int:
            return factor * self.n.get()

    class Bill(Piece, name="away.Bill"):
        cost: Input[int] = given()

        @computed
        def twice(self) -> int:
            return 2 * self.cost.get()

    return Taxed, Bill


async def _billed(folder: Path, classes: tuple[type[Piece], type[Piece]]) -> set[str]:
    """A start: a piece of another space is read here, and what that makes of it in a third one."""
    taxed_class, bill_class = classes
    async with process(folder) as one:
        taxed: Any = await one.rt.space("away").open(taxed_class, "t")
        bill: Any = await one.space.open(bill_class(cost=taxed.cost), "b")  # type: ignore[call-arg]
        third: Any = await one.rt.space("third").open(bill_class(cost=bill.twice), "c")  # type: ignore[call-arg]
        await third.twice.pull()
        await one.settled()
        return one.taken()


@pytest.mark.parametrize("chosen", [None, "shop", "third"])
def test_a_preview_follows_readers_into_other_spaces(tmp_path: Path, chosen: str | None) -> None:
    nodes = {("away", "t:cost"): "rerun", ("shop", "b:twice"): "may", ("third", "c:twice"): "may"}
    expected = {at: fate for at, fate in nodes.items() if chosen in (None, at[0])}

    async def story() -> None:
        first = _taxed(2)
        await _billed(tmp_path, first)
        found = await previewed(tmp_path, chosen)
        assert {(each.space, each.node): each.fate for each in found.nodes} == dict.fromkeys(expected, "clean")
        second = _taxed(3)
        found = await previewed(tmp_path, chosen)
        assert {(each.space, each.node): each.fate for each in found.nodes} == expected
        whys = {each.node: each.details for each in found.of("may")}
        assert whys.get("b:twice", ("away/space:t:cost",)) == ("away/space:t:cost",)
        assert await _billed(tmp_path, second) == {"away/t:cost", "b:twice", "third/c:twice"}

    run(story)
