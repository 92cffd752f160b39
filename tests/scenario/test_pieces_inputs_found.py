"""What a piece was given is found again by its record, by every kind of member, in a runtime that knows nothing yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import (
    Cell,
    Input,
    Piece,
    Ready,
    cell,
    computed,
    each,
    fold,
    given,
    materializer,
    resource,
)
from tests.scenario.pieces_kit import at, run


class Owner(Piece):
    rows: Cell[Mapping[str, int]] = cell(default={"a": 1, "b": 2})
    numbers: Cell[tuple[int, ...]] = cell(default=(3, 4))
    word: Cell[str] = cell(default="tea")
    copy: Cell[str] = cell(default="")


class Kid(Piece):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()


class Middle(Piece):
    """Passes on what it was given, so that two records lead to it."""

    rows: Input[Mapping[str, int]] = given()


class Taker(Piece):
    rows: Input[Mapping[str, int]] = given()
    numbers: Input[tuple[int, ...]] = given()
    word: Input[str] = given()
    copy: Cell[str] = given()
    total = fold(rows, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @each(rows)
    def kids(self, row: Input[int]) -> Kid:
        return Kid(n=row)

    @each(numbers, key=lambda n: n)
    def squares(self, n: Input[int]) -> int:
        return n.get() * n.get()

    @resource(word)
    async def shouted(self, word: str) -> str:
        return word.upper()

    @computed
    def count(self) -> int:
        return len(self.rows.get())

    @materializer(envelope=(copy,))
    def copied(self) -> int:
        self.copy.set(self.word.get())
        return 1


async def look(taker: Any) -> list[Any]:
    kids = await taker.kids.pull()
    shouted = None
    async for shouted in taker.shouted.watch():
        if isinstance(shouted, Ready):
            break
    return [
        {key: await kid.twice.pull() for key, kid in kids.items()},
        dict(await taker.squares.pull()),
        await taker.total.pull(),
        await taker.count.pull(),
        shouted,
    ]


@pytest.mark.parametrize("way", ["open", "piece"])
@pytest.mark.parametrize("place", ["embedded", "websocket"])
def test_a_piece_that_was_given_handles_works_in_a_runtime_that_knows_nothing_yet(
    place: str, way: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with at(place, tmp_path) as site:
            space = site.runtime().space("s")
            owner = await space.open(Owner, "owner")
            middle = await space.open(Middle(rows=owner.rows), "middle")
            await space.open(Taker(rows=middle.rows, numbers=owner.numbers, word=owner.word, copy=owner.copy), "taker")
            await site.settled()
            await site.runtimes.pop().close()
            space = site.runtime().space("s")
            taker: Any = await space.open(Taker, "taker") if way == "open" else space.piece(Taker, "taker")
            expected = [{"a": 2, "b": 4}, {3: 9, 4: 16}, 3, 2, Ready("TEA")]
            assert await look(taker) == expected
            if way == "open":
                await site.settled()
                assert await space.piece(Owner, "owner").copy.pull() == "tea"
            assert site.errors == []

    run(work)
