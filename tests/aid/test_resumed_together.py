"""A piece that comes back shows results of one state only: never a mix of results from before and after a write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Piece, Runtime, cell, computed, effect
from headwater.runtime import LocalDirectory
from tests.scenario.pieces_kit import run

shown: list[tuple[int, ...]] = []


class Pair(Piece, name="aid.Pair"):
    x: Cell[int] = cell(default=0)
    zero: Cell[int] = cell(default=0)

    @computed
    def clean(self) -> int:
        return self.zero.get()

    @computed
    def a(self) -> int:
        return self.x.get() + self.clean.get()

    @computed
    def b(self) -> int:
        return self.x.get()

    @computed
    def c(self) -> int:
        return self.b.get()

    @effect
    def show(self) -> None:
        shown.append((self.a.get(), self.c.get()))


class Difference(Piece, name="aid.Difference"):
    """Its difference is `x - x` on two ways of different length: always 0."""

    x: Cell[int] = cell(default=0)
    zero: Cell[int] = cell(default=0)

    @computed
    def clean(self) -> int:
        return self.zero.get()

    @computed
    def a(self) -> int:
        return self.x.get() + self.clean.get()

    @computed
    def b(self) -> int:
        return self.x.get()

    @computed
    def c(self) -> int:
        return self.b.get()

    @computed
    def d(self) -> int:
        return self.c.get()

    @computed
    def difference(self) -> int:
        return self.a.get() - self.d.get()

    @effect
    def show(self) -> None:
        shown.append((self.difference.get(),))


CASES: dict[type[Piece], set[tuple[int, ...]]] = {Pair: {(5, 5)}, Difference: {(0,)}}
"""For each class what its effect may show after x was set to 5."""


async def closed(data: LocalDirectory, cls: type[Piece]) -> None:
    """Have the piece p open once, until all of it is clean and stored."""
    shown.clear()
    async with Runtime(data, identity="one") as rt:
        await rt.space("s").open(cls, "p")
        await rt.settled()
    shown.clear()


@pytest.mark.parametrize("cls", CASES)
def test_piece_shows_one_state_after_another_process_wrote_its_inputs(tmp_path: Path, cls: type[Piece]) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            await closed(data, cls)
            async with Runtime(data) as other:
                other.cell("s", "p:x", int).set(5)
                await other.durable()
            async with Runtime(data, identity="one") as rt:
                await rt.space("s").open(cls, "another")
                await rt.settled()
                shown.clear()
                p: Any = await rt.space("s").open(cls, "p")
                await rt.settled()
                assert await p.c.pull() == 5
                assert set(shown) <= CASES[cls]

    run(work)


@pytest.mark.parametrize("cls", CASES)
def test_piece_shows_one_state_after_a_write_before_it_was_opened_again(tmp_path: Path, cls: type[Piece]) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            await closed(data, cls)
            async with Runtime(data, identity="one") as rt:
                rt.cell("s", "p:x", int).set(5)
                p: Any = await rt.space("s").open(cls, "p")
                await rt.settled()
                assert await p.c.pull() == 5
                assert set(shown) <= CASES[cls]

    run(work)


@pytest.mark.parametrize("cls", CASES)
def test_sleeping_piece_shows_one_state_after_a_write_and_a_pull(tmp_path: Path, cls: type[Piece]) -> None:
    async def work() -> None:
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            await closed(data, cls)
            async with Runtime(data, identity="one") as rt:
                p: Any = await rt.space("s").open(cls, "p")
                await rt.settled()
                assert not shown
                p.x.set(5)
                assert await p.a.pull() == 5
                await rt.settled()
                assert await p.c.pull() == 5
                assert set(shown) <= CASES[cls]

    run(work)
