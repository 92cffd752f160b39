"""What `at(lambda card: card.title)` may name, and what it is told otherwise."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model
from headwater.cells.selector import PathSelector, step
from headwater.errors import AuthoringError
from tests.unit.cells.kinds import Box, Card, Disc, Level, Line, Point, Tree

KEY = "k"


class Address(Model):
    city: str
    path: str = ""  # named like something a recorder could have


class Person(Model):
    name: str
    home: Address | None
    point: Point
    tree: Tree
    cards: Mapping[str, Card]
    by_level: Mapping[Level, Line]
    shape: Disc | Box
    lines: tuple[Line, ...]
    loose: Json


PERSON = codec_for(Person)


@pytest.mark.parametrize(
    ("fn", "path", "expected"),
    [
        (lambda p: p, (), "Person"),
        (lambda p: p.name, ("name",), "str"),
        (lambda p: p.home.city, ("home", "city"), "str"),
        (lambda p: p.home.path, ("home", "path"), "str"),
        (lambda p: p.point.y, ("point", "vertical"), "int"),
        (lambda p: p.tree.name, ("tree", "label"), "str"),
        (lambda p: p.cards["a/b"].title, ("cards", "a/b", "title"), "str"),
        (lambda p: p.cards[KEY], ("cards", "k"), "Card"),
        (lambda p: p.by_level[Level.HIGH].cents, ("by_level", "2", "cents"), "int"),
        (lambda p: p.shape.radius, ("shape", "radius"), "float"),
        (lambda p: p.loose["a"]["b"], ("loose", "a", "b"), "Json"),
        (lambda p: p.lines, ("lines",), "tuple[Line, ...]"),
        (operator.attrgetter("home.city"), ("home", "city"), "str"),
    ],
)
def test_a_function_leads_to_a_place_and_a_type(
    fn: Callable[[Any], object], path: tuple[str, ...], expected: str
) -> None:
    found = PathSelector().select(PERSON, fn)
    assert (found.path, found.codec.expected) == (path, expected)


@pytest.mark.parametrize(
    ("fn", "sentence"),
    [
        (lambda p: p.nmae, r"Person has no field 'nmae': name a field, one of name, home"),
        (lambda p: p.name.upper, r"str has no field 'upper': it has no parts"),
        (lambda p: p.lines[0], r"has no keys: an element cannot be named by its index"),
        (lambda p: p["name"], r"Person has no keys: name a field"),
        (lambda p: p.cards.a, r"has no field 'a': name a key"),
        (lambda p: p.cards[3], r"3 is not a valid key here: expected str"),
        (lambda p: p.by_level["x"], r"'x' is not a valid key here: expected Level"),
        (lambda p: p.name + "x", r"used arithmetic: at\(\) takes a function that only names fields and keys"),
        (lambda p: 1 + p.point.x, r"used arithmetic"),
        (lambda p: -p.point.x, r"used arithmetic"),
        (lambda p: p.name(), r"used a call"),
        (lambda p: p.home and p.name, r"used truth"),
        (lambda p: not p.name, r"used truth"),
        (lambda p: p.name if p.point else p.home, r"used truth"),
        (lambda p: [*p.lines], r"used iteration or unpacking"),
        (lambda p: len(p.lines), r"used len\(\)"),
        (lambda p: "x" in p.cards, r"used in"),
        (lambda p: p.name == "x", r"used a comparison"),
        (lambda p: p.point.x < 3, r"used a comparison"),
        (lambda p: f"{p.name}", r"used formatting"),
        (lambda p: int(p.point.x), r"used a conversion to a number"),
        (lambda p: setattr(p, "name", 3), r"used an assignment"),
        (lambda p: {p.name: 1}, r"used a comparison"),
        (lambda p: "name", r"returned 'name', which names no field or key"),
        (lambda p: (p.name, p.home), r"which names no field or key"),
        (lambda p: None, r"returned None, which names no field or key"),
    ],
)
def test_a_function_that_does_more_is_told_what_it_may_do(fn: Callable[[Any], object], sentence: str) -> None:
    with pytest.raises(AuthoringError, match=sentence):
        PathSelector().select(PERSON, fn)


def test_a_field_that_differs_between_the_classes_of_a_union_is_ambiguous() -> None:
    class A(Model):
        n: int
        same: str

    class B(Model):
        n: str
        same: str

    codec = codec_for(A | B)
    assert PathSelector().select(codec, lambda c: c.same).path == ("same",)
    with pytest.raises(AuthoringError, match=r"'n' is not the same in all classes of A \| B"):
        PathSelector().select(codec, lambda c: c.n)


def test_a_key_leads_into_a_mapping() -> None:
    assert step(codec_for(Mapping[Level, Line]), Level.LOW) == (("1",), codec_for(Line))
    assert step(codec_for(Json), "a").path == ("a",)
    with pytest.raises(AuthoringError, match="Line has no keys: name a field, one of sku, cents, qty"):
        step(codec_for(Line), "sku")


@contextmanager
def recorded() -> Iterator[list[str]]:
    """The functions of this file that are called, by name."""
    called: list[str] = []

    def heard(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == __file__:
            called.append(frame.f_code.co_name)

    sys.setprofile(heard)
    try:
        yield called
    finally:
        sys.setprofile(None)


def test_the_same_code_runs_once() -> None:
    selector, found = PathSelector(), set()
    with recorded() as called:
        for _ in range(10):
            found.add(selector.select(PERSON, lambda p: p.home.city))
    assert len(found) == 1
    assert called.count("<lambda>") == 1


def test_code_that_depends_on_more_than_its_parameter_runs_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = PathSelector()

    def by_closure(key: str) -> Any:
        return selector.select(PERSON, lambda p: p.cards[key]).path

    def by_default(key: str) -> Any:
        def card(p: Any, key: str = key) -> Any:
            return p.cards[key]

        return selector.select(PERSON, card).path

    def by_global() -> Any:
        return selector.select(PERSON, lambda p: p.cards[KEY]).path

    with recorded() as called:
        assert [by_closure(k) for k in "abc"] == [by_default(k) for k in "abc"] == [("cards", k) for k in "abc"]
        assert by_global() == ("cards", "k")
        monkeypatch.setitem(globals(), "KEY", "other")
        assert by_global() == ("cards", "other")
    assert (called.count("<lambda>"), called.count("card")) == (5, 3)


def test_the_same_code_on_another_type_is_another_place() -> None:
    selector = PathSelector()

    def name(p: Any) -> Any:
        return p.name

    assert selector.select(PERSON, name).path == ("name",)
    assert selector.select(codec_for(Tree), name).path == ("label",)


def test_what_is_remembered_is_bounded() -> None:
    selector = PathSelector(most=8)
    functions: list[Any] = [eval(compile(f"lambda c: c['k{number}']", __file__, "eval")) for number in range(100)]
    with recorded() as called:
        for number, function in enumerate(functions):
            assert selector.select(codec_for(Json), function).path == (f"k{number}",)
        assert called.count("<lambda>") == 100
        for function in functions:
            selector.select(codec_for(Json), function)
    assert called.count("<lambda>") >= 192
