"""Fingerprints of the members of real pieces: a change re-runs what it changes, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.pieces.fingerprints.fingerprint import Fingerprinter
from tests.unit.pieces.fingerprint_kit import program

BOARD = """
from __future__ import annotations
from collections.abc import Mapping
import headwater
from headwater import Cell, Input, Piece, between, cell, computed, each, effect, given, handler
import helpers

class Card(headwater.Model):
    title: str
    rank: str
    def label(self) -> str:
        return self.title.upper()

class CardView(Piece):
    card: Cell[Card] = given()

    @computed
    def label(self) -> str:
        return self.card.get().label()

    @handler
    def rename(self, title: str) -> None:
        self.card.at(lambda c: c.title).set(self.clean(title))

    def clean(self, title: str) -> str:
        return title.strip()

class Board(Piece):
    cards: Cell[Mapping[str, Card]] = cell(default={})

    @each(cards, order=lambda c: c.rank)
    def views(self, card: Cell[Card]) -> CardView:
        return CardView(card=card)

    @computed
    def count(self) -> int:
        return len(self.cards.get()) + 0

    @computed
    def twice(self) -> int:
        return helpers.double(self.count.get())

    @effect
    def show(self) -> None:
        print(self.twice.get(), self.shown())

    def shown(self) -> str:
        return "shown"

    @handler
    def move(self, key: str, left: str | None, right: str | None) -> None:
        self.cards.key(key).at(lambda c: c.rank).set(between(left, right))
"""
OF_CARDS = {"Board.views", "Board.count", "Board.move", "CardView.label", "CardView.rename"}
HELPERS = "def double(n):\n    return n * 2\n"


def digests(board: str = BOARD, helpers: str = HELPERS) -> dict[str, str]:
    with program(helpers=helpers, shop=board) as modules:
        made = Fingerprinter()
        found = {}
        for cls in (modules["shop"].CardView, modules["shop"].Board):
            for member in cls.__schema__:
                fn: Any = getattr(member, "fn", None)
                if fn is not None:
                    one = made.of(fn, owner=cls)
                    assert one.digest is not None, one.why
                    found[f"{cls.__name__}.{member.name}"] = one.digest
        return found


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("get()) + 0", "get()) + 1", {"Board.count"}),
        ('"shown"', '"seen"', {"Board.show"}),
        ("title.strip()", "title.lstrip()", {"CardView.rename"}),
        ("self.twice.get(), ", "self.twice.get() + 1, ", {"Board.show"}),
        ("self.card.get().label()", "self.card.get().label() + '!'", {"CardView.label"}),
        ("class Board(", "# moved\n\nclass Board(", set()),
        ("class CardView(Piece)", "class CardView(Piece, name='shop.View')", {"Board.views"}),
        # `views` takes a card, and `Cell[Card]` is in its annotations; the others name a member that is read as cards.
        ("self.title.upper()", "self.title.lower()", OF_CARDS),
        ("    rank: str\n", "    rank: str\n    points: int = 1\n", OF_CARDS),
        ("cell(default={})", "cell(default={'a': Card(title='a', rank='a')})", {"Board.count", "Board.move"}),
    ],
)
def test_a_change_is_a_change_of_the_members_that_stand_on_it(old: str, new: str, changed: set[str]) -> None:
    assert old in BOARD
    before, after = digests(), digests(BOARD.replace(old, new))
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == changed


def test_a_changed_helper_is_a_change_of_those_who_call_it() -> None:
    before, after = digests(), digests(helpers="def double(n):\n    return n + n\n")
    assert {name for name in before if before[name] != after[name]} == {"Board.twice"}
