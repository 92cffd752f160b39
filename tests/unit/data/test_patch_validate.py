"""Patches that come from elsewhere are checked before anybody believes them."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.data.address import Link
from headwater.data.codec import record_decoder, record_encoder
from headwater.data.limits import ValueLimits
from headwater.data.patch import Patch, append, increment, remove, replace, splice, validate_patch
from headwater.errors import InvalidValueError


def test_lists_from_the_wire_become_tuples() -> None:
    assert validate_patch(["replace", ["a", 0], [1, [2]]]) == Patch("replace", ("a", 0), (1, (2,)))
    assert validate_patch(("splice", ["a"], [0, 1, [[2]]])) == Patch("splice", ("a",), (0, 1, ((2,),)))
    assert validate_patch(("append", ("a",), [[{"x": []}], None])) == Patch("append", ("a",), (({"x": ()},), None))
    assert type(validate_patch(["remove", [], None])) is Patch


def test_a_patch_is_an_array_on_the_wire() -> None:
    patch = append(("log",), [{"to": Link(None, "space", "x")}], keep=5)
    data = record_encoder().encode(patch)
    assert data[0] == 0x93
    assert validate_patch(record_decoder(Patch).decode(data)) == patch


def test_a_short_patch_on_the_wire_has_no_argument() -> None:
    data = record_encoder().encode(("remove", ("a",)))
    assert validate_patch(record_decoder(Patch).decode(data)) == remove(("a",))


KINDS_TEXT = "replace, add, remove, splice, append, add_unique, add_sorted, remove_value, increment"

REFUSED: list[tuple[Any, str]] = [
    (("put", (), 1), f"'put' is not a kind of patch: use one of {KINDS_TEXT}"),
    (([], (), 1), f"[] is not a kind of patch: use one of {KINDS_TEXT}"),
    (("replace", ()), "('replace', ()) is not a patch: write (kind, path, arg)"),
    (5, "5 is not a patch: write (kind, path, arg)"),
    ("abc", "'abc' is not a patch: write (kind, path, arg)"),
    (("replace", "abc", 1), "a path is 'abc': write a tuple of keys and indexes, like ('cards', 3)"),
    (("replace", (-1,), 1), "step 0 of a path is -1: count from the start of the array; "
     "negative indexes depend on its length"),
    (("replace", ("a",), [float("nan")]), "nan at /a/0 is not a JSON number: "
     "store None, or leave the key out"),
    (("add", (), {1: 2}), "the object at the root has the key 1 of type int: "
     "keys are strings, so write str(key)"),
    (("remove", ("a",), 1), "remove at /a cannot use 1: it takes no argument, so write None"),
    (("splice", (), None), "splice at the root cannot use None: write (index, delete_count, items)"),
    (("splice", (), (0, 0)), "splice at the root cannot use (0, 0): write (index, delete_count, items)"),
    (
        ("splice", ("a",), (-1, 0, ())),
        "splice at /a cannot use (-1, 0, ()): index and delete_count are integers of at least 0",
    ),
    (
        ("splice", ("a",), (0, True, ())),
        "splice at /a cannot use (0, True, ()): index and delete_count are integers of at least 0",
    ),
    (("splice", ("a",), (0, 0, "ab")), "splice at /a cannot use 'ab': items is a list or tuple"),
    (("append", ("a",), (1,)), "append at /a cannot use (1,): write (items, keep), where keep may be None"),
    (("append", ("a",), ({}, None)), "append at /a cannot use {}: items is a list or tuple"),
    (
        ("append", ("a",), ((), -1)),
        "append at /a cannot use ((), -1): keep is None or an integer of at least 0",
    ),
    (("append", ("a",), ([{"x": {1}}], None)), "a set at /a/0/x is not a value: store a sorted list"),
    (("add_unique", ("a",), {"x": {1}}), "a set at /a/-/x is not a value: store a sorted list"),
    (("remove_value", ("a",), {1}), "a set at /a/- is not a value: store a sorted list"),
    (("increment", ("a",), True), "increment at /a cannot use True: it takes an int or a float"),
    (("increment", ("a",), "1"), "increment at /a cannot use '1': it takes an int or a float"),
    (("increment", ("a",), None), "increment at /a cannot use None: it takes an int or a float"),
    (
        ("increment", ("a",), float("inf")),
        "inf at /a is not a JSON number: store None, or leave the key out",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "message"), REFUSED)
def test_a_malformed_patch_is_refused_with_what_to_write(patch: Any, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        validate_patch(patch)
    assert str(refused.value) == message


def test_the_constructors_check_and_freeze() -> None:
    items: list[object] = [1]
    patch = append(["log"], [items])
    items.append(2)
    assert patch == Patch("append", ("log",), (((1,),), None))
    assert increment(("n",)) == Patch("increment", ("n",), 1)
    assert splice(("l",), 0, 1) == Patch("splice", ("l",), (0, 1, ()))
    with pytest.raises(InvalidValueError, match="a set at /x"):
        replace(("x",), {1})
    with pytest.raises(InvalidValueError, match="a path is 'x'"):
        remove("x")


def test_the_place_of_a_patch_counts_towards_the_depth_of_the_document() -> None:
    limits = ValueLimits(depth=3)
    deep = ("a", "b")
    assert validate_patch(("replace", deep, ()), limits)
    assert validate_patch(("append", deep, ((1,), None)), limits)
    assert validate_patch(("add_unique", deep, 1), limits)
    refused: list[tuple[object, ...]] = [
        ("replace", deep, ((),)),
        ("add", deep, {"x": {}}),
        ("append", deep, (((),), None)),
        ("splice", deep, (0, 0, ((),))),
        ("add_unique", deep, ()),
    ]
    for patch in refused:
        with pytest.raises(InvalidValueError, match="is nested more than 3 deep"):
            validate_patch(patch, limits)
    with pytest.raises(InvalidValueError, match="a path has 4 steps, the limit is 3"):
        validate_patch(("remove", ("a",) * 4, None), limits)
