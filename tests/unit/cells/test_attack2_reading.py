"""What a second outside attack found about reads: whoever saw something is woken when it would see something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headwater.cells.cell import Cell
from headwater.cells.model import Model
from headwater.data.address import Link
from headwater.data.value import MaybeValue
from headwater.errors import AbsentError, InvalidValueError
from tests.unit.cells.handle_kit import Hand

Nested = Mapping[str, Mapping[str, int]]


class Cat(Model):
    name: str
    legs: int = 4


class Bird(Model):
    name: str
    legs: int = 2


def store(hand: Hand, cell: Cell[Any], raw: MaybeValue) -> None:
    """As another program, of another version, wrote it."""
    hand.spaces["shop"].replica.write_whole(cell.document, raw, ())
    hand.settle()


@pytest.mark.parametrize(
    "look",
    [
        lambda cell: cell.key("q").key("r").get(0),
        lambda cell: cell.key("q").exists(),
        lambda cell: "q" in cell.view(),
    ],
    ids=["get", "exists", "view"],
)
def test_whoever_saw_nothing_wakes_when_a_link_leads_to_something(look: Callable[[Cell[Any]], object]) -> None:
    hand = Hand()
    cell, target = hand.cell(Nested, {}, id="cell"), hand.cell(Nested, {"q": {"r": 2}}, id="target")
    seen = hand.seen(lambda: look(cell))
    hand.core.cell("shop", "cell", Link).set(target.link())
    hand.settle()
    assert seen[-1] == look(cell)
    assert len(seen) == 2


def test_whoever_saw_nothing_behind_a_link_wakes_when_that_becomes_a_link_itself() -> None:
    hand = Hand()
    first = hand.cell(int, id="first")
    middle = hand.cell(Mapping[str, int], {}, id="middle")
    last = hand.cell(Mapping[str, int], {"p": 5}, id="last")
    hand.core.cell("shop", "first", Link).set(middle.key("p").link())
    seen = hand.seen(lambda: first.get(0))
    hand.core.cell("shop", "middle", Link).set(last.link())
    hand.settle()
    assert first.get(0) == 5
    assert seen == [0, 5]


def test_a_view_of_something_that_fits_no_type_of_a_union_wakes_its_reader_when_it_does() -> None:
    hand = Hand()
    cell = hand.cell(int | None, id="cell")
    store(hand, cell, "no number")
    seen: list[object] = []

    def look() -> None:
        try:
            seen.append(cell.view())
        except InvalidValueError:
            seen.append("unfit")

    hand.effect(look)
    hand.settle()
    store(hand, cell, 7)
    assert seen == ["unfit", 7]


def test_whoever_looked_for_a_key_in_a_view_wakes_when_all_of_it_vanishes() -> None:
    hand = Hand()
    cell = hand.cell(Mapping[str, int], {"p": 1}, id="cell")
    seen: list[object] = []

    def look() -> None:
        try:
            seen.append("x" in cell.view())
        except AbsentError:
            seen.append("absent")

    hand.effect(look)
    hand.settle()
    cell.delete()
    hand.settle()
    assert seen == [False, "absent"]


def test_a_default_that_depends_on_the_class_wakes_its_reader_when_that_is_another() -> None:
    hand = Hand()
    pet = hand.cell(Cat | Bird, id="pet")
    store(hand, pet, {"$type": "Cat", "name": "x"})  # from before there was a field `legs`
    legs: Cell[int] = pet.at(lambda each: each.legs)
    seen = hand.seen(legs.get)
    store(hand, pet, {"$type": "Bird", "name": "x"})
    assert legs.get() == 2
    assert seen == [4, 2]
