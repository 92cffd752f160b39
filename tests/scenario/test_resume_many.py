"""Ten thousand clean nodes come back without a run; a write while no program ran makes its chain run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater import Cell, Input, Piece, cell, computed, each, effect, given, handler
from tests.counts import scaled
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import Process, process

CARDS = max(25, scaled(2_500))
"""Four nodes each."""


class CardView(Piece, name="many.CardView"):
    points: Input[int] = given()

    @computed
    def label(self) -> str:
        return f"{self.points.get()} points"

    @effect
    def show(self) -> None:
        self.label.get()


class Deck(Piece, name="many.Deck"):
    cards: Cell[Mapping[str, int]] = cell(default={})
    unread: Cell[int] = cell(default=0)

    @each(cards)
    def views(self, points: Cell[int]) -> CardView:
        return CardView(points=points)

    @each(cards)
    def doubled(self, points: Cell[int]) -> int:
        return 2 * points.get()

    @computed
    def sum(self) -> int:
        return sum(self.doubled.get().values())

    @handler
    def put(self, key: str, points: int) -> None:
        self.cards.key(key).set(points)

    @handler
    def touch(self) -> None:
        self.unread.increment(1)


async def _looked_at(one: Process) -> Deck:
    deck = await one.space.open(Deck, "d")
    assert await deck.sum.pull() is not None
    await one.settled()
    return deck


@pytest.mark.random
def test_ten_thousand_clean_nodes_run_nothing_and_a_write_runs_its_chain(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as first:
            deck = await first.space.open(Deck, "d")
            await first.rt.space("shop").transact(lambda: deck.cards.set({f"k{n}": n for n in range(CARDS)}))
            await _looked_at(first)
            assert len(first.taken()) == 4 * CARDS + 3
        async with process(tmp_path) as again:
            await _looked_at(again)
            assert again.taken() == set()
            assert again.counts["clean"] == 4 * CARDS + 3
            await again.space.piece(Deck, "d").touch.send()
            assert again.taken() == set()
        async with process(tmp_path) as other:
            await other.space.piece(Deck, "d").put.send("k7", 1_000)
        async with process(tmp_path) as again:
            deck = await _looked_at(again)
            assert again.taken() == {"d/views/k7:label", "d/views/k7:show", "d:doubled/k7 row", "d:sum"}
            assert await deck.sum.pull() == 2 * (sum(range(CARDS)) - 7 + 1_000)
        async with process(tmp_path) as other:
            await other.space.piece(Deck, "d").touch.send()
        async with process(tmp_path) as again:
            await _looked_at(again)
            assert again.taken() == set()

    run(story, too_long_s=300)
