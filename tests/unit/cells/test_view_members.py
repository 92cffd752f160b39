"""What a view, or a default, reads of something that could have been of another type, and of what is not stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headwater.cells.cell import Cell
from headwater.cells.model import Model
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AbsentError, InvalidValueError
from tests.unit.cells.handle_kit import Hand


class Inner(Model):
    a: int = 0


class Cat(Model):
    name: str
    legs: int = 4
    inner: Inner = Inner(a=7)


class Bird(Model):
    name: str
    legs: int = 2
    inner: Inner = Inner()


class Stone(Model):
    legs: int


class Outer(Model):
    inner: Inner = Inner(a=5)
    note: str = ""


Pet = Cat | Bird


def seen_of(hand: Hand, look: Callable[[], object]) -> list[object]:
    def attempt() -> object:
        try:
            return look()
        except (AbsentError, InvalidValueError) as error:
            return type(error)

    return hand.seen(attempt)


def store(hand: Hand, cell: Cell[Any], raw: MaybeValue) -> None:
    hand.spaces["shop"].replica.write_whole(cell.document, raw, ())
    hand.settle()


def test_a_view_of_a_union_reads_the_tag_and_not_the_keys() -> None:
    hand = Hand()
    pet = hand.cell(Pet, id="pet")
    store(hand, pet, {"$type": "Cat", "name": "x"})
    seen = seen_of(hand, lambda: isinstance(pet.view(), Cat))
    store(hand, pet, {"$type": "Cat", "name": "y", "legs": 3})
    assert seen == [True]
    store(hand, pet, {"$type": "Bird", "name": "y", "legs": 3})
    assert seen == [True, False]
    store(hand, pet, {"$type": "Fish", "name": "y", "legs": 3})
    assert seen == [True, False, InvalidValueError]
    store(hand, pet, {"$type": "Cat", "name": "y", "legs": 3})
    assert seen[-1:] == [True]
    store(hand, pet, 5)
    assert seen[-1:] == [InvalidValueError]


def test_a_view_of_a_union_without_a_tag_reads_all_that_could_tell() -> None:
    hand = Hand()
    pet = hand.cell(Pet | Stone, id="pet")
    store(hand, pet, {"legs": 1})
    seen = seen_of(hand, lambda: isinstance(pet.view(), Stone))
    store(hand, pet, {"legs": 1, "name": "x"})
    assert seen[0] is True
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"$type": "Cat", "name": "x"}, {"$type": "Bird", "name": "x"}),
        ({"$type": "Cat", "name": "x", "inner": {}}, {"$type": "Bird", "name": "x", "inner": {}}),
        ({"$type": "Cat", "name": "x"}, {"$type": "Fish", "name": "x"}),
        ({"$type": "Fish", "name": "x"}, {"$type": "Bird", "name": "x"}),
        (ABSENT, {"$type": "Bird", "name": "x"}),
        ({"$type": "Bird", "name": "x"}, ABSENT),
        ({"$type": "Bird", "name": "x"}, 5),
    ],
)
@pytest.mark.parametrize("default", [ABSENT, Cat(name="d", inner=Inner(a=7))])
def test_a_default_below_a_union_is_what_the_stored_member_implies(
    before: MaybeValue, after: MaybeValue, default: object
) -> None:
    hand = Hand()
    pet = hand.cell(Pet, id="pet", default=default)
    store(hand, pet, before)
    legs, a = pet.at(lambda each: each.legs), pet.at(lambda each: each.inner.a)
    looks: list[Callable[[], object]] = [lambda: legs.get(-1), lambda: a.get(-1), legs.exists, a.exists]
    seen = [seen_of(hand, look) for look in looks]
    store(hand, pet, after)
    assert [each[-1] for each in seen] == [look() for look in looks]


@pytest.mark.parametrize("after", [5, ABSENT, {"inner": {}}, {"inner": {"a": 3}}, {"inner": 5}])
@pytest.mark.parametrize("default", [ABSENT, Outer(inner=Inner(a=9))])
def test_a_view_of_a_field_that_is_not_stored_notices_what_takes_its_default_away(
    after: MaybeValue, default: object
) -> None:
    hand = Hand()
    outer = hand.cell(Outer, id="outer", default=default)
    store(hand, outer, {"note": "n"})
    seen = seen_of(hand, lambda: outer.view().inner.a)
    assert seen == [5]
    store(hand, outer, {"note": "n", "more": 1})
    assert seen == [5]  # Other fields may come and go.
    store(hand, outer, after)
    hand.effect(lambda: None)
    again = seen_of(hand, lambda: outer.view().inner.a)
    assert seen[-1] == again[-1]


def test_other_keys_may_come_and_go_where_one_was_looked_for() -> None:
    hand = Hand()
    cell = hand.cell(Mapping[str, int], {"p": 1}, id="cell", default={"x": 1})
    seen = seen_of(hand, lambda: cell.view().get("x"))
    cell.key("q").set(2)
    hand.settle()
    assert seen == [None]
    cell.delete()
    hand.settle()
    assert seen == [None, 1]
