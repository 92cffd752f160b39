"""`each` at random: after every step the children are those that a naive reading of the source would make."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import (
    AbsentError,
    Cell,
    Input,
    Model,
    NotReadyError,
    Piece,
    cell,
    computed,
    each,
    effect,
    given,
    handler,
)
from tests.counts import scaled
from tests.scenario.pieces_kit import Site, alone, at, node_count, run


class Card(Model):
    id: str
    rank: int = 0
    title: str = ""


class View(Piece):
    card: Cell[Card] = given()
    mark: Input[str] = given()
    note: Cell[str] = cell(default="")

    @computed
    def label(self) -> str:
        return f"{self.card.get().title}{self.mark.get()}"

    @handler
    def rename(self, title: str) -> None:
        self.card.at(lambda c: c.title).set(title)


class Special(Piece):
    card: Cell[Card] = given()
    note: Cell[str] = cell(default="")

    @computed
    def label(self) -> str:
        return f"special {self.card.get().title}"


class Board(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})
    row: Cell[tuple[Card, ...]] = cell(default=())
    mark: Cell[str] = cell(default="!")

    @each(cards, order=lambda card: card.rank)
    def views(self, card: Cell[Card]) -> View | Special | None:
        match card.at(lambda c: c.rank).get() % 4:
            case 0:
                return None
            case 1:
                return Special(card=card)
            case _:
                return View(card=card, mark=self.mark)

    @each(row, key=lambda card: card.id)
    def line(self, card: Cell[Card]) -> View:
        return View(card=card, mark=self.mark)

    @each(row, key=lambda card: card.id)
    def ranks(self, card: Cell[Card]) -> int | None:
        rank = card.get().rank
        return rank if rank % 3 else None

    @computed
    def labels(self) -> tuple[str, ...]:
        views: Mapping[str, Any] = self.views.get()
        return tuple(view.label.get() for view in views.values())

    @computed
    def line_labels(self) -> tuple[str, ...]:
        return tuple(view.label.get() for view in self.line.get().values())

    @effect
    def show(self) -> None:
        self.labels.get()
        self.line_labels.get()
        self.ranks.get()


def naive(board: Board) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, int], list[str]]:
    mark = board.mark.get()
    labels, keys = [], []
    for key, card in sorted(board.cards.get().items(), key=lambda entry: (entry[1].rank, entry[0])):
        if card.rank % 4:
            keys.append(key)
            labels.append(f"special {card.title}" if card.rank % 4 == 1 else f"{card.title}{mark}")
    row = board.row.get()
    ranks = {card.id: card.rank for card in row if card.rank % 3}
    return tuple(labels), tuple(f"{card.title}{mark}" for card in row), ranks, keys


def check(board: Board) -> None:
    labels, line, ranks, keys = naive(board)
    assert board.labels.get() == labels
    assert board.line_labels.get() == line
    assert dict(board.ranks.get()) == ranks
    assert list(board.ranks.get()) == list(ranks)
    assert list(board.views.get()) == keys
    assert list(board.line.get()) == [card.id for card in board.row.get()]


def change(random: Random, board: Board) -> None:
    key = random.choice("abcdef")
    card = Card(id=key, rank=random.randrange(12), title=f"t{random.randrange(100)}")
    row = list(board.row.get())
    match random.randrange(9):
        case 0 | 1:
            board.cards.key(key).set(card)
        case 2:
            board.cards.key(key).delete()
        case 3:
            if key in board.cards.get():
                board.cards.key(key).at(lambda c: c.rank).set(random.randrange(12))
        case 4:
            board.mark.set(random.choice("!?."))
        case 5:
            if key not in [each.id for each in row]:
                row.insert(random.randrange(len(row) + 1), card)
                board.row.set(tuple(row))
        case 6:
            random.shuffle(row)
            board.row.set(tuple(row[: random.randrange(len(row) + 1)]) if random.random() < 0.3 else tuple(row))
        case 7:
            board.row.set(tuple(card if each.id == key else each for each in row))
        case _:
            if row:
                chosen = random.choice(row).id
                try:
                    view = board.line.get().get(chosen)
                except NotReadyError:  # A key is there twice for a moment, or a row has not been made yet.
                    view = None
                if view is not None:
                    with suppress(AbsentError):  # Somebody else has taken it out.
                        view.card.at(lambda c: c.title).set(card.title)


@pytest.mark.random
def test_children_are_those_of_a_naive_reading_after_every_step() -> None:
    async def work(seed: int) -> None:
        random = Random(seed)
        async with alone() as (rt, errors):
            board = await rt.space("s").open(Board, "b")
            for _ in range(50):
                for _ in range(random.randrange(1, 4)):
                    change(random, board)
                await rt.idle()
                check(board)
            nodes = node_count(rt)
            board.cards.set({})
            board.row.set(())
            await rt.idle()
            check(board)
            assert node_count(rt) <= nodes
            assert not [node for node in rt.graph().nodes if node.id.endswith(" row")]
            assert [str(each.error) for each in errors] == []

    for seed in range(scaled(100)):
        run(lambda seed=seed: work(seed))  # type: ignore[misc]


async def agreed(site: Site, boards: list[Board]) -> bool:
    """Wait until all see the same. False: two have put an element with the same key into the tuple."""
    for name in ("cards", "row", "mark", "labels"):
        await site.agreed(*(getattr(board, name) for board in boards))
    ids = [card.id for card in boards[0].row.get()]
    if len(set(ids)) < len(ids):
        return False
    await site.agreed(*(board.line_labels for board in boards))
    return True


@pytest.mark.random
def test_two_runtimes_that_change_one_board_end_with_the_same_children(tmp_path: Path) -> None:
    async def work(seed: int) -> None:
        random = Random(seed)
        async with at("embedded", tmp_path / str(seed)) as site:
            boards = [await site.runtime().space("s").open(Board, "b") for _ in range(2)]
            for _ in range(15):
                for board in boards:
                    for _ in range(random.randrange(3)):
                        change(random, board)
                for _ in range(random.randrange(4)):
                    await asyncio.sleep(0)
            if not await agreed(site, boards):
                return
            await site.holds(check, boards)

    for seed in range(scaled(60)):
        run(lambda seed=seed: work(seed), too_long_s=60)  # type: ignore[misc]


def test_people_who_edit_neighbours_in_a_tuple_lose_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            cards = tuple(Card(id=f"c{number}") for number in range(8))
            boards = [
                await site.runtime().space("s").open(Board, "b", setup=lambda b: b.row.set(cards)) for _ in range(3)
            ]
            for rt in site.runtimes:
                await rt.settled()
            sends = []
            for number in range(8):
                view = boards[number % 3].line.get()[f"c{number}"]
                sends.append(view.rename.send(f"title {number}"))
            sends.append(boards[0].line.get()["c3"].rename.send("title 3"))
            await asyncio.gather(*sends)
            boards[1].line.get()["c0"].card.delete()
            assert await agreed(site, boards)
            assert [card.title for card in boards[2].row.get()] == [f"title {number}" for number in range(1, 8)]
            assert [str(each.error) for each in site.errors] == []

    run(work, too_long_s=60)


def test_children_are_there_again_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        cards = {key: Card(id=key, rank=number * 2 + 2, title=key) for number, key in enumerate("abcde")}
        async with at("embedded", tmp_path) as site:
            board = await site.runtime().space("s").open(Board, "b", setup=lambda b: b.cards.set(cards))
            views: Mapping[str, Any] = board.views.get()
            views["a"].note.set("kept")
            before = (list(views), await board.labels.pull())
        async with at("embedded", tmp_path) as site:
            board = await site.runtime().space("s").open(Board, "b")
            views = board.views.get()
            again: Any = views["a"]
            assert (list(views), await board.labels.pull()) == before
            assert await again.note.pull() == "kept"
            assert site.errors == []

    run(work)
