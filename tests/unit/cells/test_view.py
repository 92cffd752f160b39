"""A view reports what was learnt from it, neither more nor less."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model, field
from headwater.cells.view import open_view
from headwater.data.address import Depth, Link
from headwater.data.value import Value
from headwater.errors import InvalidValueError
from tests.unit.cells.kinds import Box, Disc, Level, Line, Point, Tree

DEEP, SHAPE = Depth.DEEP, Depth.SHAPE


class Address(Model):
    city: str


class Person(Model):
    name: str = field(was="title")
    age: int = 3
    home: Address | None = None
    lines: tuple[Line, ...] = ()
    point: Point = Point(0)
    whole: str = "a name that views must not take for themselves"

    @property
    def shout(self) -> str:
        return self.name.upper()

    def older(self, by: int) -> int:
        return self.age + by

    @staticmethod
    def kind() -> str:
        return "person"


RAW: dict[str, Value] = {
    "title": "ann",
    "age": 7,
    "home": {"city": "ulm"},
    "lines": ({"sku": "tea", "cents": 1, "qty": 1}, {"sku": "milk", "cents": 2, "qty": 1}),
    "point": {"x": 1, "vertical": 2},
}
PEOPLE: dict[str, Value] = {"ann": RAW, "bob": {"title": "bob", "home": None}}


class Looked:
    """A view and what it reported."""

    def __init__(self, type_: Any, raw: Value, path: tuple[str | int, ...] = ("at",)) -> None:
        self.reads: dict[tuple[tuple[str | int, ...], Depth], None] = {}
        self.view: Any = open_view(codec_for(type_), raw, path, self._touch)

    def _touch(self, path: tuple[str | int, ...], depth: Depth, /) -> None:
        self.reads[path, depth] = None


def people() -> Looked:
    return Looked(Mapping[str, Person], PEOPLE)


@pytest.mark.parametrize(
    ("look", "result", "reads"),
    [
        (lambda v: None, None, []),
        (lambda v: v["ann"].name, "ann", [("ann", SHAPE), ("ann", "title", DEEP)]),
        (lambda v: "ann" in v, True, [("ann", SHAPE)]),
        (lambda v: "eve" in v, False, [("eve", SHAPE)]),
        (lambda v: 3 in v, False, []),
        (lambda v: v.get("eve"), None, [("eve", SHAPE)]),
        (len, 2, [(SHAPE,)]),
        (bool, True, [(SHAPE,)]),
        (list, ["ann", "bob"], [(SHAPE,)]),
        (lambda v: list(v.keys()), ["ann", "bob"], [(SHAPE,)]),
        (lambda v: len(list(v.values())), 2, [(SHAPE,)]),
        (
            lambda v: [k for k, p in v.items() if p.age > 3],
            ["ann"],
            [(SHAPE,), ("ann", "age", DEEP), ("bob", "age", DEEP)],
        ),
        (lambda v: next(iter(v.values())).name, "ann", [(SHAPE,), ("ann", "title", DEEP)]),
        (lambda v: v == {}, False, [(DEEP,)]),
        (repr, "<view of Mapping[str, Person] at /at>", []),
    ],
)
def test_a_mapping_reports_what_was_learnt(look: Callable[[Any], object], result: object, reads: list[Any]) -> None:
    looked = people()
    assert look(looked.view) == result
    assert list(looked.reads) == [(("at", *read[:-1]), read[-1]) for read in reads]


@pytest.mark.parametrize(
    ("look", "result", "reads"),
    [
        (lambda p: p.age, 7, [("age", DEEP)]),
        (lambda p: p.home.city, "ulm", [("home", SHAPE), ("home", "city", DEEP)]),
        (lambda p: p.home is None, False, [("home", SHAPE)]),
        (lambda p: p.point.y, 2, [("point", "vertical", DEEP)]),
        (lambda p: p.lines, None, []),
        (lambda p: p.shout, "ANN", [("title", DEEP)]),
        (lambda p: p.older(by=2), 9, [("age", DEEP)]),
        (lambda p: p.kind(), "person", []),
        (lambda p: p.whole[:6], "a name", [("whole", DEEP)]),
        (lambda p: isinstance(p, Person), True, []),
        (lambda p: p.__class__ is Person, True, []),
        (lambda p: hash(p) == hash(codec_for(Person).decode(RAW)), True, [(DEEP,)]),
        (lambda p: p == codec_for(Person).decode(RAW), True, [(DEEP,)]),
        (repr, "<view of Person at /at>", []),
        (lambda p: len(p.lines), 2, [("lines", SHAPE)]),
        (lambda p: p.lines[0].sku, "tea", [("lines", 0, SHAPE), ("lines", 0, "sku", DEEP)]),
        (lambda p: p.lines[-1].sku, "milk", [("lines", SHAPE), ("lines", 1, "sku", DEEP)]),
        (lambda p: [line.sku for line in p.lines], ["tea", "milk"],
         [("lines", SHAPE), ("lines", 0, "sku", DEEP), ("lines", 1, "sku", DEEP)]),
        (lambda p: [line.cents for line in p.lines[1:]], [2], [("lines", SHAPE), ("lines", 1, "cents", DEEP)]),
    ],
)  # fmt: skip
def test_a_model_reports_what_was_learnt(look: Callable[[Any], Any], result: object, reads: list[Any]) -> None:
    looked = Looked(Person, RAW)
    found = look(looked.view)
    assert result is None or found == result
    assert list(looked.reads) == [(("at", *read[:-1]), read[-1]) for read in reads]


def test_a_key_or_an_index_that_is_not_there_is_learnt_too() -> None:
    looked = people()
    with pytest.raises(KeyError):
        looked.view["eve"]
    assert list(looked.reads) == [(("at", "eve"), SHAPE)]
    lines = Looked(tuple[Line, ...], ())
    with pytest.raises(IndexError, match="index 0 of a view with 0 elements"):
        lines.view[0]
    assert list(lines.reads) == [(("at",), SHAPE)]


def test_a_scalar_is_read_at_once_because_it_has_no_parts() -> None:
    looked = Looked(int, 3)
    assert (looked.view, list(looked.reads)) == (3, [(("at",), DEEP)])
    tags = Looked(frozenset[str], ("a", "b"))
    assert (tags.view, list(tags.reads)) == (frozenset("ab"), [(("at",), DEEP)])


def test_keys_are_those_of_the_program_and_paths_those_of_the_data() -> None:
    looked = Looked(Mapping[Level, int], {"2": 5})
    assert looked.view[Level.HIGH] == 5
    assert list(looked.view) == [Level.HIGH]
    assert list(looked.reads) == [(("at", "2"), DEEP), (("at",), SHAPE)]


def test_json_reads_as_mappings_and_sequences() -> None:
    looked = Looked(Json, {"a": ({"b": 1}, 2)})
    assert looked.view["a"][0]["b"] == 1
    assert list(looked.view["a"])[1] == 2
    assert (("at", "a", 0, "b"), DEEP) in looked.reads
    with pytest.raises(TypeError):
        looked.view["a"] = 3


def test_descending_into_json_tells_of_which_kind_it_is() -> None:
    looked = Looked(Json, {"a": {"b": 1}})
    assert isinstance(looked.view["a"], Mapping)
    assert list(looked.reads) == [(("at",), SHAPE), (("at", "a"), SHAPE)]


def test_a_default_is_looked_at_like_what_is_stored() -> None:
    class Lines(Model):
        lines: tuple[Line, ...] = (Line(sku="tea", cents=1),)

    absent, stored = Looked(Lines, {}), Looked(Lines, codec_for(Lines).encode(Lines()))
    for looked in (absent, stored):
        assert type(looked.view.lines).__name__ == "SequenceView"
        assert looked.reads == {}
        assert looked.view.lines[0].sku == "tea"
    assert absent.reads == stored.reads


def test_a_link_is_handed_out_as_it_is() -> None:
    link = Link(id="elsewhere")
    looked = Looked(Person, {**RAW, "home": link, "lines": (link,)})
    assert looked.view.home is link
    assert looked.view.lines[0] is link
    assert list(looked.reads) == [(("at", "home"), DEEP), (("at", "lines", 0), DEEP)]


def test_the_classes_of_a_union_can_be_matched() -> None:
    looked = Looked(tuple[Disc | Box, ...], ({"radius": 2.0, "$type": "Disc"}, {"width": 1.0, "$type": "Box"}))

    def size(shape: Disc | Box) -> float:
        match shape:
            case Disc(radius=radius):
                return radius
            case Box(width=width, height=height):
                return width * height

    assert [size(shape) for shape in looked.view] == [2.0, 1.0]
    assert (("at", 1, "height"), DEEP) in looked.reads  # its default was read, because it is not stored


def test_a_view_cannot_be_written_to() -> None:
    looked = Looked(Person, RAW)
    with pytest.raises(AttributeError, match=r"written with at\(lambda x: x.name\).set"):
        looked.view.name = "x"
    with pytest.raises(AttributeError, match="Person has no field 'nmae'"):
        _ = looked.view.nmae


def test_a_view_can_be_stored_and_is_then_read_as_a_whole() -> None:
    looked = people()
    raw = codec_for(Person).encode(looked.view["ann"])
    assert raw == {**RAW, "whole": Person.__struct_defaults__[-1]}
    assert (("at", "ann"), DEEP) in looked.reads
    assert codec_for(Json).encode(Looked(Json, {"a": (1,)}).view) == {"a": (1,)}
    assert codec_for(tuple[Line, ...]).encode(looked.view["ann"].lines) == RAW["lines"]
    assert codec_for(Mapping[str, Person]).encode(looked.view).keys() == PEOPLE.keys()  # type: ignore[union-attr]


def test_properties_that_remember_run_on_the_view() -> None:
    class Doubled(Model, dict=True):
        n: int

        @functools.cached_property
        def twice(self) -> int:
            return self.n * 2

    looked = Looked(Doubled, {"n": 4})
    assert looked.view.twice == 8
    assert list(looked.reads) == [(("at", "n"), DEEP)]


def test_what_does_not_fit_is_found_where_it_is_touched() -> None:
    looked = Looked(Mapping[str, Person], {"ann": {"title": 3}, "bob": 4})
    assert looked.view["ann"].age == 3
    with pytest.raises(InvalidValueError, match="stored at /at/ann/title: expected str"):
        _ = looked.view["ann"].name
    with pytest.raises(InvalidValueError, match="stored at /at/bob: expected Person, found a number"):
        looked.view["bob"]
    tree = Looked(Tree, {})
    with pytest.raises(InvalidValueError, match="stored at /at: the field 'label' of Tree is missing"):
        _ = tree.view.name
    assert list(tree.reads) == [(("at", "label"), DEEP)]  # So that its appearance wakes whoever failed for it.
    with pytest.raises(InvalidValueError, match=r"expected tuple\[int, int\]"):
        Looked(tuple[int, int], (1,)).view[0]
