"""How declared types are stored, and the sentences about what does not fit."""

from __future__ import annotations

import enum
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as factory
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar

import msgspec
import pytest

from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model, field
from headwater.data.address import Link
from headwater.data.value import MAX_INT
from headwater.errors import AuthoringError, InvalidValueError
from tests.unit.cells.kinds import Box, Card, Disc, Level, Line, Point, State, Tree

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
T = TypeVar("T")
UserId = NewType("UserId", str)


class Wrapped(Model, Generic[T]):
    inner: T


class Circle(Model, tag="circle", tag_field="kind"):
    radius: int


class Strict(Model, forbid_unknown_fields=True):
    a: int


class Positive(Model):
    n: Annotated[int, msgspec.Meta(ge=1)]

    def __post_init__(self) -> None:
        if self.n == 13:
            raise ValueError("thirteen")


# ---- stored forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "value", "raw"),
    [
        (str, "tea", "tea"),
        (int, 3, 3),
        (float, 0.5, 0.5),
        (bool, True, True),
        (type(None), None, None),
        (bytes, b"x", b"x"),
        (Optional[int], None, None),  # noqa: UP045  # the older spelling is a type of its own
        (int | str | None, "x", "x"),
        (UserId, "ann", "ann"),
        (Annotated[str, "a note"], "x", "x"),
        (Literal["a", 1, True, None], True, True),
        (State, State.DONE, "done"),
        (Level, Level.HIGH, 2),
        (Link, Link(id="cart"), Link(id="cart")),
        (tuple[int, ...], (1, 2), (1, 2)),
        (tuple[int, str], (1, "x"), (1, "x")),
        (tuple[()], (), ()),
        (frozenset[str], frozenset("cab"), ("a", "b", "c")),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (Mapping[int, str], {-7: "x"}, {"-7": "x"}),
        (Mapping[State, int], {State.OPEN: 1}, {"open": 1}),
        (Mapping[Level, int], {Level.LOW: 1}, {"1": 1}),
        (Mapping[uuid.UUID, int], {ID: 1}, {str(ID): 1}),
        (Mapping[date, int], {date(2026, 1, 2): 1}, {"2026-01-02": 1}),
        (date, date(2026, 1, 2), "2026-01-02"),
        (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
        (datetime, datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:00:00.000000Z"),
        (datetime, datetime.max.replace(tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
        (datetime, datetime.min.replace(tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
        (timedelta, timedelta(days=1, seconds=2, microseconds=3), "P1DT2.000003S"),
        (timedelta, timedelta(seconds=-1), "-P0DT1.000000S"),
        (timedelta, timedelta.max, "P999999999DT86399.999999S"),
        (timedelta, timedelta.min, "-P999999999DT0.000000S"),
        (Decimal, Decimal("1.50"), "1.50"),
        (uuid.UUID, ID, str(ID)),
        (Line, Line(sku="tea", cents=3), {"sku": "tea", "cents": 3, "qty": 1}),
        (Point, Point(1, 2), {"x": 1, "vertical": 2}),
        (Tree, Tree(name="r"), {"label": "r", "kids": ()}),
        (Wrapped[int], Wrapped(inner=3), {"inner": 3}),
        (Disc | Box, Disc(radius=1.0), {"radius": 1.0, "$type": "Disc"}),
        (Disc | None, Disc(radius=1.0), {"radius": 1.0}),
        (Circle, Circle(radius=1), {"kind": "circle", "radius": 1}),
        (Circle | Box, Circle(radius=1), {"kind": "circle", "radius": 1}),
        (Literal["auto"] | date, "auto", "auto"),
        (Literal["auto"] | date, date(2026, 1, 2), "2026-01-02"),
    ],
    ids=lambda part: "a set" if isinstance(part, frozenset) else str(part),
)
def test_a_value_is_stored_in_this_form_and_read_back(type_: Any, value: object, raw: object) -> None:
    codec = codec_for(type_)
    stored = codec.encode(value)
    assert stored == raw
    assert type(stored) is type(raw)
    assert codec.decode(stored) == value
    assert type(codec.decode(stored)) is type(value) or isinstance(value, dict)


@pytest.mark.parametrize("type_", [str, int, float, bool, bytes, int | None, Literal["a", "b"], Link, UserId])
def test_scalars_are_plain_so_that_a_handle_returns_what_is_stored(type_: Any) -> None:
    assert codec_for(type_).plain


@pytest.mark.parametrize("type_", [State, datetime, Line, tuple[int, ...], Mapping[str, int], Json, date | None])
def test_whatever_has_another_form_in_the_program_is_not_plain(type_: Any) -> None:
    assert not codec_for(type_).plain


def test_one_number_has_one_meaning_whether_it_was_written_as_int_or_float() -> None:
    line = codec_for(Line).decode({"sku": "x", "cents": 3.0, "qty": 1})
    assert (line.cents, type(line.cents)) == (3, int)
    assert type(codec_for(Disc).decode({"radius": 1}).radius) is float
    assert codec_for(Level).decode(2.0) is Level.HIGH
    assert codec_for(Literal[1]).decode(1.0) == 1


def test_the_same_type_has_one_codec() -> None:
    assert codec_for(tuple[Line, ...]) is codec_for(tuple[Line, ...])


def test_a_type_that_is_refused_leaves_nothing_behind() -> None:
    class Half(Model):
        good: int
        bad: list[int]

    for _ in range(2):
        with pytest.raises(AuthoringError, match="bad"):
            codec_for(Half)


def test_subclasses_of_scalars_are_stored_as_what_they_stand_for() -> None:
    class Name(str):
        __slots__ = ()

    assert type(codec_for(str).encode(Name("x"))) is str
    assert type(codec_for(int).encode(Level.LOW)) is int


def test_a_field_that_is_not_stored_has_its_default() -> None:
    assert codec_for(Line).decode({"sku": "x", "cents": 1}) == Line(sku="x", cents=1, qty=1)
    assert codec_for(Point).decode({"x": 1}) == Point(1)
    assert codec_for(Tree).decode({"label": "x"}) == Tree(name="x")


def test_a_union_reads_what_was_stored_before_it_was_one() -> None:
    assert codec_for(Disc | Box).decode({"radius": 1.0}) == Disc(radius=1.0)
    assert codec_for(Disc | Box).decode({"width": 1.0}) == Box(width=1.0)


def test_the_other_class_of_a_union_inherits_nothing_from_the_one_before() -> None:
    merged = codec_for(Disc | Box).merge({"radius": 1.0, "$type": "Disc", "later": 1}, Box(width=2.0))
    assert merged == {"width": 2.0, "height": 1.0, "$type": "Box"}


def test_decoded_mappings_cannot_be_written_to() -> None:
    stored: tuple[tuple[Any, Any], ...] = (
        (Mapping[str, int], {"a": 1}),
        (Mapping[str, Line], {}),
        (Json, {"a": {"b": 1}}),
    )
    for type_, raw in stored:
        decoded: Any = codec_for(type_).decode(raw)
        with pytest.raises(TypeError):
            decoded["a"] = 2
    nested: Any = codec_for(Json).decode({"a": {"b": (1, {"c": 2})}})
    assert nested == {"a": {"b": (1, {"c": 2})}}
    with pytest.raises(TypeError):
        nested["a"]["b"][1]["c"] = 3


def test_a_decoded_mapping_knows_which_keys_it_cannot_have() -> None:
    cards = codec_for(Mapping[int, Line]).decode({"7": {"sku": "x", "cents": 1}})
    assert 7 in cards
    assert "7" not in cards
    assert list(cards) == [7]
    with pytest.raises(KeyError):
        cards["7"]


def test_a_set_that_gained_an_element_is_one_element_longer() -> None:
    codec = codec_for(frozenset[str])
    assert codec.merge(("z", "a"), frozenset("abz")) == ("z", "a", "b")
    assert codec.merge(("z", "a", "b"), frozenset("ab")) == ("a", "b")


def test_json_takes_what_json_is_and_copies_it() -> None:
    given = {"a": [1, {"b": b"x"}]}
    raw = codec_for(Json).encode(given)
    given["a"].append(2)
    assert raw == {"a": (1, {"b": b"x"})}


# ---- types that are refused -------------------------------------------------------------------------------


@dataclass
class Mutable:
    x: int


class Plain(msgspec.Struct):
    x: int


class Array(Model, array_like=True):
    x: int


class Pair(NamedTuple):
    x: int


class Ratio(enum.Enum):
    HALF = 0.5


class Twin:
    class Disc(Model):
        y: int


@pytest.mark.parametrize(
    ("type_", "sentence"),
    [
        (list[int], r"list\[int\] .* changed in place.* Write tuple\[int, ...\]"),
        (list, r"Write tuple\[str, ...\]"),
        (Sequence[Line], r"Write tuple\[Line, ...\]"),
        (dict[str, Line], r"Write Mapping\[str, Line\]"),
        (set[str], r"Write frozenset\[str\]"),
        (bytearray, r"Write bytes"),
        (Mutable, r"Write @dataclass\(frozen=True\) above class Mutable"),
        (Plain, r"Write class Plain\(headwater.Model\)"),
        (Array, r"Write a Model without array_like=True"),
        (Pair, r"Write class Pair\(headwater.Model\)"),
        (tuple, r"does not say what it holds. Write tuple\[str, ...\]"),
        (Mapping, r"Write Mapping\[str, int\]"),
        (typing.Mapping, r"Write Mapping\[str, int\]"),
        (typing.Tuple, r"Write tuple\[str, ...\]"),  # noqa: UP006
        (frozenset, r"Write frozenset\[str\]"),
        (Any, r"Any cannot .* Write headwater.Json"),
        (object, r"Write headwater.Json"),
        (T, r"it stands for another type"),
        ("Line", r"a name that was not looked up"),
        (Ratio, r"Write str or int values"),
        (complex, r"complex cannot .* Write a headwater.Model"),
        (Callable[[], int], r"values of this type cannot be stored"),
        (Literal[b"x"], r"Write an Enum"),
        (Mapping[float, int], r"keys are stored as text, and float has no one text form"),
        (Mapping[Line, int], r"keys are stored as text, and Line"),
        (frozenset[Mapping[str, int]], r"cannot be in a set. Write tuple\[Mapping\[str, int\], ...\]"),
        (datetime | str, r"datetime \| str cannot be told apart .* both text. Put one of them into a Model"),
        (tuple[int, ...] | frozenset[int], r"both an array"),
        (Line | Mapping[str, int], r"both an object"),
        (Literal["2026-01-02"] | date, r"also the stored form of a date. Choose another literal"),
        (Disc | Twin.Disc, r"have the tag 'Disc': write class Disc\(Model, tag='...'\)"),
        (tuple[list[int], ...], r"list\[int\] cannot"),
    ],
    ids=str,
)
def test_a_type_is_refused_with_what_to_write_instead(type_: Any, sentence: str) -> None:
    with pytest.raises(AuthoringError, match=sentence):
        codec_for(type_)


def test_a_refused_field_is_named() -> None:
    class Outer(Model):
        inner: tuple[list[int], ...]

    with pytest.raises(AuthoringError, match=r"^Outer.inner: list\[int\] cannot be"):
        codec_for(Outer)


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    class Local(Model):
        x: int

    class Uses(Model):
        local: tuple[Local, ...]

    with pytest.raises(AuthoringError, match=r"the annotation of Uses.local cannot be resolved: name 'Local'"):
        codec_for(Uses)


def test_a_former_name_is_a_name() -> None:
    with pytest.raises(AuthoringError, match=r"field\(was=''\) names no field"):
        field(was="")


# ---- values that are refused ------------------------------------------------------------------------------


def card(**changes: Any) -> Card:
    fields: dict[str, Any] = {
        "title": "t",
        "column": "c",
        "rank": "r",
        "points": 1,
        "weight": 0.5,
        "done": False,
        "state": State.OPEN,
        "owner": None,
    }
    return Card(**{**fields, **changes})


@pytest.mark.parametrize(
    ("type_", "value", "path", "sentence"),
    [
        (int, "3", (), r"^at the root: expected int, found '3' \(str\): write a value of the declared type$"),
        (int, True, (), r"expected int, found True \(bool\): write int"),
        (int, 2**60, (), r"2\*\*53"),
        (float, float("nan"), (), r"nan"),
        (str, "\ud800", (), r"surrogate"),
        (bytes, bytearray(b"x"), (), r"write bytes"),
        (State, "open", (), r"write State\(...\) of it"),
        (Literal["a", "b"], "c", (), r"expected Literal\['a', 'b'\], found 'c'"),
        (Literal[1], True, (), r"found True \(bool\)"),
        (datetime, datetime(2026, 1, 1), (), r"aware datetime.*give it a zone"),  # noqa: DTZ001
        (datetime, datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), (), r"no form in UTC"),
        (date, datetime(2026, 1, 1, tzinfo=UTC), (), r"expected date"),
        (Decimal, Decimal("NaN"), (), r"expected a finite Decimal"),
        (tuple[int, ...], [1], (), r"write tuple\(...\) of it"),
        (tuple[int, ...], (1, "x"), (1,), r"^at /1: expected int, found 'x'"),
        (tuple[int, str], (1,), (), r"expected tuple\[int, str\]"),
        (tuple[int, str], (1, 2), (1,), r"at /1: expected str"),
        (frozenset[int], {1}, (), r"write frozenset\(...\) of it"),
        (Mapping[str, int], {"a": "x"}, ("a",), r"at /a: expected int"),
        (Mapping[str, int], {3: 1}, (), r"a key: expected str, found 3"),
        (Mapping[str, int], [("a", 1)], (), r"expected Mapping\[str, int\]"),
        (Line, {"sku": "x"}, (), r"write Line\(...\)"),
        (tuple[Card, ...], (card(), card(points="x")), (1, "points"), r"at /1/points: expected int, found 'x'"),
        (Mapping[str, Card], {"k": card(owner=3)}, ("k", "owner"), r"expected str \| None, found 3"),
        (Tree, Tree(name="r", kids=(Tree(name=3),)), ("kids", 0, "label"), r"at /kids/0/label"),  # type: ignore[arg-type]
        (Positive, Positive(n=0), ("n",), r"expected `int` >= 1"),
        (Json, {"a": (1, {2, 3})}, ("a", 1), r"at /a/1: a set is not a value"),
        (Disc | Box, Line(sku="x", cents=1), (), r"expected Disc \| Box"),
    ],
    ids=str,
)
def test_a_value_is_refused_with_the_path_and_what_was_expected(
    type_: Any, value: Any, path: tuple[str | int, ...], sentence: str
) -> None:
    codec = codec_for(type_)
    with pytest.raises(InvalidValueError, match=sentence) as refused:
        codec.encode(value)
    assert refused.value.path == path
    with pytest.raises(InvalidValueError) as refused:
        codec.merge(None, value, at=("here",))
    assert refused.value.path == ("here", *path)


@pytest.mark.parametrize(
    ("type_", "raw", "path", "sentence"),
    [
        (int, "3", (), r"^stored at the root: expected int, found a string, '3': write it anew, or read it as"),
        (State, "lost", (), r"add it to State, or write it anew"),
        (datetime, "2026-01-01T00:00:00", (), r"expected datetime"),
        (timedelta, "1 day", (), r"expected timedelta"),
        (Decimal, "NaN", (), r"expected Decimal"),
        (uuid.UUID, "x", (), r"expected UUID"),
        (tuple[Line, ...], ({"sku": "x", "cents": 1}, {"sku": 3, "cents": 1}), (1, "sku"), r"stored at /1/sku"),
        (Line, {"sku": "x"}, (), r"the field 'cents' of Line is missing: give Line.cents a default"),
        (Line, Link(id="x"), (), r"expected Line, found a link"),
        (Strict, {"a": 1, "b": 2}, (), r"forbids unknown fields, and 'b' is stored"),
        (Positive, {"n": 13}, (), r"Positive cannot be made of it: thirteen"),
        (Positive, {"n": 0}, ("n",), r"expected `int` >= 1"),
        (Disc | Box, {"radius": 1.0, "$type": "Sphere"}, (), r"import the class that it names"),
        (Disc | Box, {"other": 1.0}, (), r"expected Disc \| Box"),
        (Disc | None, "x", (), r"expected Disc \| None"),
    ],
    ids=str,
)
def test_what_is_stored_is_checked_where_it_is_read(
    type_: Any, raw: Any, path: tuple[str | int, ...], sentence: str
) -> None:
    with pytest.raises(InvalidValueError, match=sentence) as refused:
        codec_for(type_).decode(raw)
    assert refused.value.path == path


def test_a_misfit_in_a_mapping_is_found_when_the_entry_is_looked_at() -> None:
    cards = codec_for(Mapping[str, Line]).decode({"good": {"sku": "x", "cents": 1}, "bad": {"sku": "x"}})
    assert cards["good"].cents == 1
    with pytest.raises(InvalidValueError, match="stored at /bad: the field 'cents'"):
        cards["bad"]
    numbers = codec_for(Mapping[int, int]).decode({"x": 1})
    with pytest.raises(InvalidValueError, match="expected int as a key, found 'x'"):
        list(numbers)


def test_a_value_may_be_as_deep_as_any_and_no_deeper() -> None:
    tree = Tree(name="leaf")
    for _ in range(40):
        tree = Tree(name="n", kids=(tree,))
    with pytest.raises(InvalidValueError, match="nested more than 64 deep: keep deep parts in cells of their own"):
        codec_for(Tree).encode(tree)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidValueError, match="nested more than 64 deep"):
        codec_for(Json).encode(endless)


def test_a_subclass_of_a_model_would_lose_its_fields_and_is_refused() -> None:
    class Gift(Line):
        card: str = ""

    with pytest.raises(InvalidValueError, match=r"write Line \| Gift where it is declared"):
        codec_for(Line).encode(Gift(sku="x", cents=1))


def test_the_largest_integers_fit() -> None:
    assert codec_for(int).encode(MAX_INT) == MAX_INT
    assert codec_for(int).encode(-MAX_INT) == -MAX_INT


@dataclass(frozen=True)
class Crate(Generic[T]):
    one: T
    many: tuple[T, ...] = ()
    rest: Mapping[str, T | None] = factory(default_factory=dict)


def test_a_generic_dataclass_is_a_value_of_the_type_that_it_is_given() -> None:
    codec = codec_for(Crate[Decimal])
    value = Crate(Decimal(1), (Decimal(2),), {"a": None, "b": Decimal(3)})
    raw: Any = codec.encode(value)
    assert raw == {"one": "1", "many": ("2",), "rest": {"a": None, "b": "3"}}
    assert codec.decode(raw) == value
    with pytest.raises(InvalidValueError, match="at /many/0: expected int"):
        codec_for(Crate[int]).encode(Crate(1, ("x",)))  # type: ignore[arg-type]
    with pytest.raises(AuthoringError, match=r"Crate\.one: .* stands for another type"):
        codec_for(Crate)
