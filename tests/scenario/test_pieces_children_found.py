"""Children that were stored as a link or as what a piece was given, or kept, are found through their keepers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater import Cell, Input, Link, Piece, Policy, cell, child, computed, each, fold, given, link
from headwater.errors import GoneError, UpstreamFailedError
from tests.scenario.pieces_kit import alone, at, run


class Grain(Piece):
    n: Input[int] = given()

    @computed
    def half(self) -> int:
        return self.n.get() // 2


class Leaf(Piece):
    n: Cell[int] = given()
    extra: Cell[int] = cell(default=5)

    @computed
    def sum(self) -> int:
        return self.n.get() * 100 + self.extra.get()

    @child
    def grain(self) -> Grain:
        return Grain(n=self.sum)


class Book(Piece):
    numbers: Cell[Mapping[str, int]] = cell(default={"a/b:c %ü": 1, "b": 2})
    total = fold(numbers, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)

    @each(numbers)
    def leaves(self, n: Cell[int]) -> Leaf:
        return Leaf(n=n)


class Looker(Piece):
    target: Cell[Link[Any] | None] = cell(default=None)
    given: Input[int] = given()

    @computed
    def far(self) -> int:
        found = self.target.get()
        return 0 if found is None else int(self.ctx.follow(found).get())

    @computed
    def more(self) -> int:
        return self.given.get() + 1


KEY = "a/b:c %ü"


async def children(book: Any) -> tuple[Any, Any]:
    """A leaf, and what is in it."""
    leaf = (await book.leaves.pull())[KEY]
    return leaf, await leaf.grain.pull()


@pytest.mark.parametrize("is_open", [False, True], ids=["named", "open"])
def test_a_child_is_found_again_by_a_link_and_by_what_was_given(tmp_path: Path, is_open: bool) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            space = site.runtime().space("s")
            leaf, grain = await children(await space.open(Book, "b"))
            for name, handle in (("one", leaf.sum), ("two", grain.half), ("three", leaf.extra)):
                looker: Any = Looker(given=handle)
                await space.open(looker, name, setup=lambda p, h=handle: p.target.set(link(h)))  # type: ignore[misc]
            await site.settled()
        async with at("embedded", tmp_path) as site:
            space = site.runtime().space("s")
            lookers: list[Any] = [space.piece(Looker, name) for name in ("one", "two", "three")]
            assert [await each.far.pull() for each in lookers] == [105, 52, 5]
            assert [await each.more.pull() for each in lookers] == [106, 53, 6]
            book: Any = await space.open(Book, "b") if is_open else space.piece(Book, "b")
            book.numbers.key(KEY).set(7)
            await site.settled()
            assert [await each.far.pull() for each in lookers] == [705, 352, 5]
            assert [await each.more.pull() for each in lookers] == [706, 353, 6]
            assert site.errors == []

    run(work)


def test_a_child_whose_element_is_gone_is_found_by_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            space = site.runtime().space("s")
            book: Any = await space.open(Book, "b")
            leaf, _ = await children(book)
            looker: Any = Looker(given=leaf.sum)
            await space.open(looker, "l", setup=lambda p: p.target.set(link(leaf.sum)))
            book.numbers.key(KEY).delete()
            await site.settled()
            with pytest.raises(GoneError, match="has ended: its key left"):
                _ = leaf.sum
        async with at("embedded", tmp_path) as site:
            found: Any = site.runtime().space("s").piece(Looker, "l")
            with pytest.raises(UpstreamFailedError, match="any more: its key left, or its parent is gone"):
                await found.far.pull()

    run(work)


@pytest.mark.parametrize("how", ["rest", "stop"])
def test_a_child_that_somebody_has_is_right_after_its_piece_was_let_go(how: str) -> None:
    async def work() -> None:
        async with alone(policy=Policy(named_pieces=1)) as (rt, errors):
            space = rt.space("s")
            book: Any = space.piece(Book, "b")
            if how == "stop":
                await space.open(Book, "b")
            leaf, grain = await children(book)
            kept = grain.half
            looker: Any = Looker(given=leaf.sum)
            looker = await space.open(looker, "l", setup=lambda p: p.target.set(link(grain.half)))
            for turn in (1, 2, 3):
                book.numbers.key(KEY).set(turn)
                if how == "stop":
                    await space.stop(book)
                for number in range(10):
                    await space.piece(Book, f"o{turn}{number}").total.pull()
                await rt.idle()
                assert [await leaf.sum.pull(), await leaf.extra.pull()] == [turn * 100 + 5, 5]
                assert [await grain.half.pull(), await kept.pull()] == [turn * 50 + 2] * 2
                assert [await looker.more.pull(), await looker.far.pull()] == [turn * 100 + 6, turn * 50 + 2]
            assert errors == []

    run(work)
