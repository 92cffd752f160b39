"""What a node read of another space is asked there, by a preview as by a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import Cell, Input, Piece, cell, computed, given
from tests.scenario.preview_kit import previewed, shadow_of
from tests.scenario.resume_kit import process
from tests.unit.binding.kit import run


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
