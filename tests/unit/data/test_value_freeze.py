"""What `freeze` lets through the door, and what it says when it does not."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import random
import types
from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import msgspec
import pytest
from hypothesis import given

from headwater.data.address import Link
from headwater.data.limits import ValueLimits
from headwater.data.value import ABSENT, MAX_INT, equal, freeze, size_of
from headwater.errors import AuthoringError, InvalidValueError
from tests.counts import scaled
from tests.unit.data.generators import random_value, values

LINK = Link(None, "space", "cart", ("lines", 0))


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Plain(enum.Enum):
    ONE = 1


class Shout(str):
    def __str__(self) -> str:
        return "overridden"


class Odd(int):
    def __int__(self) -> int:
        return 7

    def __index__(self) -> int:
        return 7


class Half(float):
    def __float__(self) -> float:
        return 7.0


@dataclasses.dataclass
class Card:
    title: str


class Line(msgspec.Struct):
    qty: int


class Unprintable:
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        raise RuntimeError("no")


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "scalar", [None, True, False, 0, MAX_INT, -MAX_INT, 1.5, -0.0, "", "é\U0001f600", b"\x00", LINK]
)
def test_a_scalar_passes_as_the_same_object(scalar: Any) -> None:
    assert freeze(scalar) is scalar
    assert freeze([scalar]) == (scalar,)
    assert type(freeze([scalar])[0]) is type(scalar)  # type: ignore[index]


def test_lists_become_tuples_and_mappings_become_fresh_dicts() -> None:
    source = {"a": [1, [2, {"b": ()}]], "c": types.MappingProxyType({"d": 1}), "e": OrderedDict(f=2)}
    frozen = freeze(source)
    assert frozen == {"a": (1, (2, {"b": ()})), "c": {"d": 1}, "e": {"f": 2}}
    assert isinstance(frozen, dict)
    assert type(frozen["c"]) is dict
    assert type(frozen["e"]) is dict


def test_nothing_mutable_is_shared_with_the_caller() -> None:
    inner: dict[str, object] = {"n": 1}
    source = {"list": [inner], "dict": inner}
    frozen = freeze(source)
    inner["n"] = 2
    source["list"].append("more")  # type: ignore[attr-defined]
    source["new"] = 1  # type: ignore[assignment]
    assert frozen == {"list": ({"n": 1},), "dict": {"n": 1}}


def test_subclasses_of_scalars_become_their_exact_base_value() -> None:
    frozen: Any = freeze([Colour.RED, Size.SMALL, Shout("quiet"), Odd(3), Half(0.5), Point(1, 2), {Colour.RED: 1}])
    assert frozen == ("red", 1, "quiet", 3, 0.5, (1, 2), {"red": 1})
    assert [type(item) for item in frozen] == [str, int, str, int, float, tuple, dict]
    assert type(freeze(Colour.RED)) is str
    assert [type(key) for key in frozen[-1]] == [str]


def test_subclasses_of_bytes_become_bytes() -> None:
    class Blob(bytes):
        pass

    assert type(freeze(Blob(b"x"))) is bytes


REFUSED: list[tuple[object, str]] = [
    (float("nan"), "nan at the root is not a JSON number: store None, or leave the key out"),
    ({"a": [0, float("inf")]}, "inf at /a/1 is not a JSON number: store None, or leave the key out"),
    ({"a": -float("inf")}, "-inf at /a is not a JSON number: store None, or leave the key out"),
    (
        {"n": 2**53},
        "the integer at /n is beyond 2**53 - 1 and would lose digits as a JSON number: store it as a string",
    ),
    (
        [-(2**53)],
        "the integer at /0 is beyond 2**53 - 1 and would lose digits as a JSON number: store it as a string",
    ),
    (
        10**5000,
        "the integer at the root is beyond 2**53 - 1 and would lose digits as a JSON number: store it as a string",
    ),
    (
        {"t": ["ok", "ab\ud800"]},
        "the string at /t/1 has the lone surrogate \\ud800 at character 2: decode it correctly, or store bytes",
    ),
    (
        {"t": {"\udfff": 1}},
        "a key of the object at /t has the lone surrogate \\udfff at character 0: decode it correctly, or store bytes",
    ),
    ({"o": {1: 2}}, "the object at /o has the key 1 of type int: keys are strings, so write str(key)"),
    (
        {None: 2},
        "the object at the root has the key None of type NoneType: keys are strings, so write str(key)",
    ),
    (
        {10**5000: 2},
        "the object at the root has the key <int> of type int: keys are strings, so write str(key)",
    ),
    (
        {Unprintable(): 2},
        "the object at the root has the key <Unprintable> of type Unprintable: keys are strings, so write str(key)",
    ),
    ({"s": {1, 2}}, "a set at /s is not a value: store a sorted list"),
    (frozenset(), "a frozenset at the root is not a value: store a sorted list"),
    ({"s": {}.keys()}, "a dict_keys at /s is not a value: store a sorted list"),
    (bytearray(b"x"), "a bytearray at the root is not a value: store bytes(...) of it"),
    (memoryview(b"x"), "a memoryview at the root is not a value: store bytes(...) of it"),
    (
        [decimal.Decimal("1.5")],
        "a Decimal at /0 is not a value: store str(...) of it, or an integer number of the smallest unit",
    ),
    (
        {"at": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)},
        "a datetime at /at is not a value: store its .isoformat(), or integer microseconds",
    ),
    (
        datetime.date(2020, 1, 1),
        "a date at the root is not a value: store its .isoformat(), or integer microseconds",
    ),
    (datetime.timedelta(1), "a timedelta at the root is not a value: store integer microseconds"),
    (Plain.ONE, "a Plain at the root is not a value: store its .value"),
    ({"x": ABSENT}, "an Absent at /x is not a value: remove the key, or store None"),
    (int, "a type at the root is not a value: store an instance's data, not the class"),
    (Card("x"), "a Card at the root is not a value: store a dict of its fields"),
    (Line(1), "a Line at the root is not a value: store a dict of its fields"),
    (len, "a builtin_function_or_method at the root is not a value: store data, not a function"),
    (range(3), "a range at the root is not a value: store list(...) of it"),
    (iter(()), "a tuple_iterator at the root is not a value: store list(...) of it"),
    (
        1j,
        "a complex at the root is not a value: use None, bool, int, float, str, bytes, Link, lists and dicts of them",
    ),
    (
        object(),
        "an object at the root is not a value: use None, bool, int, float, str, bytes, Link, lists and dicts of them",
    ),
]


@pytest.mark.parametrize(("raw", "message"), REFUSED, ids=[str(index) for index in range(len(REFUSED))])
def test_a_bad_value_is_refused_with_its_place_and_what_to_do(raw: object, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        freeze(raw)
    assert str(refused.value) == message
    assert isinstance(refused.value, AuthoringError)


def test_the_error_carries_the_path_to_the_culprit() -> None:
    with pytest.raises(InvalidValueError) as refused:
        freeze({"cards": [{}, {}, {}, {"title": float("nan")}]})
    assert refused.value.path == ("cards", 3, "title")
    assert "at /cards/3/title" in str(refused.value)


def test_the_place_in_the_document_is_part_of_the_path() -> None:
    with pytest.raises(InvalidValueError, match="nan at /board/cards/0 is") as refused:
        freeze([float("nan")], at=("board", "cards"))
    assert refused.value.path == ("board", "cards", 0)


@pytest.mark.parametrize(
    ("attributes", "advice"),
    [
        ({"__index__": lambda self: 1}, "store int(...) of it"),
        ({"__float__": lambda self: 1.0}, "store float(...) of it"),
        ({"tolist": lambda self: []}, "store its .tolist()"),
    ],
)
def test_a_number_or_array_of_another_library_is_told_how_to_convert(
    attributes: dict[str, object], advice: str
) -> None:
    foreign = type("Foreign", (), attributes)()
    with pytest.raises(InvalidValueError) as refused:
        freeze({"x": foreign})
    assert str(refused.value) == f"a Foreign at /x is not a value: {advice}"


def test_a_list_that_contains_itself_is_refused_as_a_cycle() -> None:
    cycle: list[object] = [1]
    cycle.append({"again": cycle})
    with pytest.raises(InvalidValueError) as refused:
        freeze(cycle)
    assert str(refused.value) == (
        "the value contains itself: /1/again is the same list as the root. "
        "Store a link or an id instead of the container"
    )


def test_a_cycle_below_the_root_names_both_ends() -> None:
    inner: dict[str, object] = {}
    inner["self"] = inner
    with pytest.raises(InvalidValueError, match="/x/self is the same dict as /doc/x") as refused:
        freeze({"x": inner}, at=("doc",))
    assert "/doc/x/self" in str(refused.value)


def test_a_cycle_through_a_mapping_of_another_type_is_refused() -> None:
    odd: UserDict[str, object] = UserDict()
    odd["me"] = [odd]
    with pytest.raises(InvalidValueError, match="contains itself: /me/0 is the same UserDict as the root"):
        freeze(odd)


def test_a_wide_cycle_is_refused_quickly() -> None:
    wide: list[object] = []
    wide.extend([wide] * 10_000)
    with pytest.raises(InvalidValueError, match="contains itself"):
        freeze(wide)


def test_a_mapping_that_makes_new_mappings_without_end_is_refused_for_its_depth() -> None:
    class Endless(UserDict[str, object]):
        def items(self) -> Any:
            return [("x", Endless())]

        def __len__(self) -> int:
            return 1

    with pytest.raises(InvalidValueError, match="nested more than 64 deep"):
        freeze(Endless())


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_the_depth_limit_counts_containers_and_the_place_they_go_to() -> None:
    limits = ValueLimits(depth=5)
    freeze(nested(5), limits)
    freeze(nested(3), limits, at=("a", "b"))
    with pytest.raises(InvalidValueError) as refused:
        freeze(nested(6), limits)
    assert str(refused.value) == (
        "the container at /0/0/0/0/0 is nested more than 5 deep: "
        "move the inner part into a document of its own and link to it"
    )
    with pytest.raises(InvalidValueError, match="the container at /a/b/0/0/0 is nested more than 5 deep"):
        freeze(nested(4), limits, at=("a", "b"))


def test_no_recursion_error_escapes_from_very_deep_input() -> None:
    with pytest.raises(InvalidValueError, match="nested more than 64 deep"):
        freeze(nested(100_000))


def test_a_container_past_its_limit_is_refused() -> None:
    limits = ValueLimits(container_items=3)
    freeze({"a": [1, 2, 3]}, limits)
    with pytest.raises(InvalidValueError) as refused:
        freeze({"a": [1, 2, 3, 4]}, limits)
    assert str(refused.value) == ("the container at /a has 4 items, the limit is 3: split it over several documents")
    with pytest.raises(InvalidValueError, match="the container at the root has 4 items"):
        freeze(dict.fromkeys("abcd"), limits)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"t": "12345"}, "the string at /t is 5 bytes long, the limit is 4: split it over several documents"),
        ("ééé", "the string at the root is 6 bytes long, the limit is 4: split it over several documents"),
        ([b"12345"], "the bytes at /0 are 5 long, the limit is 4: split them over several documents"),
        (
            {"o": {"key": 1}},
            "a key of the object at /o is 3 bytes long, the limit is 2: "
            "use a shorter key and keep the text in the value",
        ),
        (
            {"o": {"éé": 1}},
            "a key of the object at /o is 4 bytes long, the limit is 2: "
            "use a shorter key and keep the text in the value",
        ),
    ],
)
def test_long_text_is_refused_by_its_bytes(raw: object, message: str) -> None:
    limits = ValueLimits(string_bytes=4, key_bytes=2)
    assert freeze({"é": ["éé", "1234", b"1234"]}, limits) == {"é": ("éé", "1234", b"1234")}
    with pytest.raises(InvalidValueError) as refused:
        freeze(raw, limits)
    assert str(refused.value) == message


def test_a_value_that_is_large_in_total_is_refused() -> None:
    limits = ValueLimits(total_bytes=1000)
    freeze(["x" * 100] * 9, limits)
    with pytest.raises(InvalidValueError) as refused:
        freeze(["x" * 100] * 10, limits)
    assert str(refused.value) == (
        "the value is larger than 1000 bytes, counted up to the root: split it over several documents"
    )
    with pytest.raises(InvalidValueError, match="larger than 1000 bytes, counted up to /1:"):
        freeze(["x" * 1000, []], limits)


def test_shared_parts_that_would_unfold_without_end_are_refused_in_bounded_time() -> None:
    part: object = ["x"]
    for _ in range(60):
        part = [part, part]
    with pytest.raises(InvalidValueError, match="larger than 100000 bytes"):
        freeze(part, ValueLimits(total_bytes=100_000))


@given(values)
def test_freezing_a_frozen_value_changes_nothing(value: Any) -> None:
    frozen = freeze(value)
    assert equal(frozen, value)
    assert equal(freeze(frozen), frozen)


@pytest.mark.random
def test_the_size_estimate_is_near_the_encoded_size() -> None:
    rng = random.Random(11)
    for _ in range(scaled(20_000)):
        value = random_value(rng)
        encoded = len(msgspec.msgpack.encode(value, enc_hook=lambda link: [str(link)]))
        assert encoded / 4 <= size_of(value) <= 4 * encoded + 16, value
