"""Each kind of patch: what it does, what it touches, and when it does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.data.address import Link
from headwater.data.limits import ValueLimits
from headwater.data.patch import (
    DESCRIPTORS,
    KINDS,
    Patch,
    PatchError,
    Touch,
    add,
    add_sorted,
    add_unique,
    append,
    apply,
    increment,
    remove,
    remove_value,
    replace,
    splice,
)
from headwater.data.value import ABSENT, MAX_INT, MaybeValue, equal, freeze

DOC = freeze({"o": {"x": 1, "y": {"z": "deep"}}, "l": [1, True, 1.0, "1"], "n": 5, "s": "text", "e": []})


def at(*path: str | int, keyset: bool = False) -> tuple[Touch, ...]:
    return (Touch(path, keyset),)


def changed(path: tuple[str | int, ...], value: object) -> MaybeValue:
    """DOC with one place replaced, the slow way."""

    def put(node: Any, steps: tuple[str | int, ...]) -> Any:
        if not steps:
            return value
        if isinstance(node, dict):
            return {**node, steps[0]: put(node.get(steps[0]), steps[1:])}
        items = list(node)
        items[steps[0]] = put(items[steps[0]], steps[1:])  # type: ignore[index]
        return tuple(items)

    return freeze(put(DOC, path))


def without(*path: str) -> MaybeValue:
    document: Any = freeze(DOC)
    node = document
    for step in path[:-1]:
        node = node[step]
    del node[path[-1]]
    return freeze(document)


APPLIES: list[tuple[str, MaybeValue, Patch, MaybeValue, tuple[Touch, ...]]] = [
    ("replace a leaf", DOC, replace(("o", "x"), 2), changed(("o", "x"), 2), at("o", "x")),
    ("replace an element", DOC, replace(("l", 1), 9), changed(("l", 1), 9), at("l", 1)),
    ("replace the document", DOC, replace((), 1), 1, at()),
    ("replace an absent document", ABSENT, replace((), None), None, at(keyset=True)),
    ("replace 1 by true", DOC, replace(("o", "x"), True), changed(("o", "x"), True), at("o", "x")),
    ("add a new key", DOC, add(("o", "new"), []), changed(("o", "new"), []), at("o", "new", keyset=True)),
    ("add over a key", DOC, add(("o", "x"), []), changed(("o", "x"), []), at("o", "x")),
    ("add the document", ABSENT, add((), {}), {}, at(keyset=True)),
    ("add over the document", DOC, add((), {}), {}, at()),
    ("remove a key", DOC, remove(("o", "y")), without("o", "y"), at("o", "y", keyset=True)),
    ("remove the document", DOC, remove(()), ABSENT, at(keyset=True)),
    ("splice", DOC, splice(("l",), 1, 2, ["new"]), changed(("l",), [1, "new", "1"]), at("l")),
    ("splice tells true from 1", (1, 2), splice((), 0, 1, [True]), (True, 2), at()),
    ("keep tells true from 1", (1, 1), append((), [True], keep=2), (1, True), at()),
    ("splice at the end", DOC, splice(("l",), 4, 0, [0]), changed(("l",), [1, True, 1.0, "1", 0]), at("l")),
    ("splice the root", (1, 2), splice((), 0, 1), (2,), at()),
    (
        "append",
        DOC,
        append(("l",), [7, 8]),
        changed(("l",), [1, True, 1.0, "1", 7, 8]),
        at("l", 4, keyset=True) + at("l", 5, keyset=True),
    ),
    ("append and keep", DOC, append(("l",), [7, 8], keep=3), changed(("l",), ["1", 7, 8]), at("l")),
    ("append and keep all", DOC, append(("e",), [7], keep=3), changed(("e",), [7]), at("e", 0, keyset=True)),
    ("append and keep none", DOC, append(("l",), [7], keep=0), changed(("l",), []), at("l")),
    ("append nothing but keep", DOC, append(("l",), [], keep=1), changed(("l",), ["1"]), at("l")),
    ("append creates", DOC, append(("a",), [7]), changed(("a",), [7]), at("a", keyset=True)),
    ("append nothing creates", DOC, append(("a",), []), changed(("a",), []), at("a", keyset=True)),
    ("append creates and keeps", DOC, append(("a",), [7, 8], 1), changed(("a",), [8]), at("a", keyset=True)),
    ("append creates the document", ABSENT, append((), [7]), (7,), at(keyset=True)),
    (
        "add_unique",
        DOC,
        add_unique(("l",), 2),
        changed(("l",), [1, True, 1.0, "1", 2]),
        at("l", 4, keyset=True),
    ),
    ("add_unique tells false from 0", (0,), add_unique((), False), (0, False), at(1, keyset=True)),
    ("add_unique creates", DOC, add_unique(("a",), {}), changed(("a",), [{}]), at("a", keyset=True)),
    ("add_unique creates the document", ABSENT, add_unique((), 1), (1,), at(keyset=True)),
    ("add_sorted", ("a", "c"), add_sorted((), "b"), ("a", "b", "c"), at()),
    ("add_sorted at the end", {"l": ("a",)}, add_sorted(("l",), "b"), {"l": ("a", "b")}, at("l")),
    ("add_sorted creates", DOC, add_sorted(("a",), {}), changed(("a",), [{}]), at("a", keyset=True)),
    ("remove_value takes all", DOC, remove_value(("l",), 1), changed(("l",), [True, "1"]), at("l")),
    ("increment", DOC, increment(("n",)), changed(("n",), 6), at("n")),
    ("increment down", DOC, increment(("n",), -7), changed(("n",), -2), at("n")),
    ("increment by a float", DOC, increment(("n",), 0.5), changed(("n",), 5.5), at("n")),
    ("increment an element", (1,), increment((0,), 2), (3,), at(0)),
    ("increment creates", DOC, increment(("c",), 3), changed(("c",), 3), at("c", keyset=True)),
    ("increment by 0 creates", DOC, increment(("c",), 0), changed(("c",), 0), at("c", keyset=True)),
    ("increment creates the document", ABSENT, increment((), 3), 3, at(keyset=True)),
    ("increment to the limit", MAX_INT - 1, increment(()), MAX_INT, at()),
]


@pytest.mark.parametrize(
    ("before", "patch", "after", "touched"), [case[1:] for case in APPLIES], ids=[case[0] for case in APPLIES]
)
def test_a_patch_applies_and_says_what_it_touched(
    before: MaybeValue, patch: Patch, after: MaybeValue, touched: tuple[Touch, ...]
) -> None:
    value, places = apply(before, patch)
    assert equal(value, after)
    assert places == touched
    assert all(type(touch.keyset) is bool for touch in places)


NO_CHANGE = [
    replace(("o", "x"), 1),
    replace(("o", "x"), 1.0),
    replace(("o",), {"y": {"z": "deep"}, "x": 1.0}),
    replace(("l", 1), True),
    replace((), DOC),
    add(("s",), "text"),
    add((), DOC),
    splice(("l",), 2, 0),
    splice(("l",), 0, 2, [1.0, True]),
    append(("l",), []),
    append(("l",), [], keep=4),
    append(("e",), [], keep=0),
    add_unique(("l",), 1.0),
    add_unique(("l",), True),
    add_sorted(("l",), True),
    remove_value(("l",), 2),
    remove_value(("l",), False),
    remove_value(("absent",), 1),
    increment(("n",), 0),
]


@pytest.mark.parametrize("patch", NO_CHANGE, ids=str)
def test_a_patch_that_changes_nothing_returns_the_same_object(patch: Patch) -> None:
    assert apply(DOC, patch) == (DOC, ())
    assert apply(DOC, patch)[0] is DOC


def test_more_patches_that_change_nothing() -> None:
    ring = ("x", "x")
    assert apply(ring, append((), ["x"], keep=2))[0] is ring
    assert apply(ABSENT, remove_value((), 1)) == (ABSENT, ())
    assert apply(1e300, increment((), 1)) == (1e300, ())


@pytest.mark.parametrize("path", [("o", "no"), ("no", "x"), ("s", "x"), ("no",)])
def test_taking_away_where_nothing_is_changes_nothing(path: tuple[str, ...]) -> None:
    for patch in (remove(path), remove_value(path, 1)):
        assert apply(DOC, patch) == (DOC, ())
        assert apply(ABSENT, patch) == (ABSENT, ())
    assert apply(ABSENT, remove(())) == (ABSENT, ())


REFUSED: list[tuple[MaybeValue, Patch, str, tuple[str | int, ...]]] = [
    (DOC, replace(("o", "no"), 1), "there is nothing to replace: use add to create it", ("o", "no")),
    (
        DOC,
        add(("no", "x"), 1),
        "there is nothing here to hold the rest of the path: write this part first",
        ("no",),
    ),
    (
        ABSENT,
        add(("x",), 1),
        "there is nothing here to hold the rest of the path: write this part first",
        (),
    ),
    (DOC, add(("s", "x"), 1), "a string holds nothing: replace it with a container first", ("s",)),
    (None, add(("x",), 1), "null holds nothing: replace it with a container first", ()),
    (b"", increment(()), "a bytes value cannot be incremented: it takes a number", ()),
    (
        Link(None, "space", "x"),
        add(("id",), 1),
        "a link holds nothing: replace it with a container first",
        (),
    ),
    (DOC, append((), [1]), "append works on an array, and an object is here", ()),
    (DOC, increment(("l",)), "an array cannot be incremented: it takes a number", ("l",)),
    (DOC, replace(("l", "x"), 1), "an array has no key 'x': use an integer index", ("l",)),
    (DOC, replace(("o", 0), 1), "an object has no index 0: use a text key", ("o",)),
    (DOC, replace(("l", 4), 1), "the array has 4 elements, so it has no element 4", ("l", 4)),
    (DOC, replace(("l", 4, "x"), 1), "the array has 4 elements, so it has no element 4", ("l", 4)),
    (DOC, append(("l", 4), [1]), "the array has 4 elements, so it has no element 4", ("l", 4)),
    (DOC, remove_value(("l", 4), 1), "the array has 4 elements, so it has no element 4", ("l", 4)),
    (DOC, add(("l", 0), 1), "add does not work on an element of an array: use splice or replace", ("l", 0)),
    (
        DOC,
        remove(("l", 0)),
        "remove does not work on an element of an array: use splice or replace",
        ("l", 0),
    ),
    (DOC, splice(("no",), 0, 0), "there is no array to splice: use append or add to create it", ("no",)),
    (DOC, splice(("l",), 5, 0), "the array has 4 elements, so 0 cannot be taken out at 5", ("l",)),
    (DOC, splice(("l",), 3, 2), "the array has 4 elements, so 2 cannot be taken out at 3", ("l",)),
    (DOC, splice(("o",), 0, 0), "splice works on an array, and an object is here", ("o",)),
    (DOC, append(("s",), [1]), "append works on an array, and a string is here", ("s",)),
    (DOC, add_unique(("n",), 1), "add_unique works on an array, and a number is here", ("n",)),
    (DOC, add_sorted(("o",), 1), "add_sorted works on an array, and an object is here", ("o",)),
    (DOC, remove_value(("o",), 1), "remove_value works on an array, and an object is here", ("o",)),
    (DOC, increment(("s",)), "a string cannot be incremented: it takes a number", ("s",)),
    (DOC, increment(("l", 1)), "a boolean cannot be incremented: it takes a number", ("l", 1)),
    (MAX_INT, increment(()), "the sum is beyond 2**53 - 1 and would lose digits", ()),
    (-MAX_INT, increment((), -1), "the sum is beyond 2**53 - 1 and would lose digits", ()),
    (1.7e308, increment((), 1.7e308), "the sum is not a finite number", ()),
]


@pytest.mark.parametrize(("before", "patch", "reason", "path"), REFUSED)
def test_a_patch_that_does_not_fit_says_why_and_where(
    before: MaybeValue, patch: Patch, reason: str, path: tuple[str | int, ...]
) -> None:
    with pytest.raises(PatchError) as refused:
        apply(before, patch)
    assert refused.value.reason == reason
    assert refused.value.path == path


def test_the_text_of_a_patch_error_names_the_place() -> None:
    assert str(PatchError("no", ("a", 1))) == "no (at /a/1)"
    assert str(PatchError("no", ())) == "no (at the root)"


def test_a_container_does_not_grow_past_its_limit() -> None:
    limits = ValueLimits(container_items=2)
    full = freeze({"a": 1, "l": [1, 2]})
    for patch, path in (
        (add(("b",), 1), ()),
        (increment(("b",)), ()),
        (append(("l",), [3]), ("l",)),
        (add_unique(("l",), 3), ("l",)),
        (add_sorted(("l",), 3), ("l",)),
        (splice(("l",), 0, 0, [3]), ("l",)),
    ):
        with pytest.raises(PatchError) as refused:
            apply(full, patch, limits)
        assert refused.value.reason == "the container would have 3 items, the limit is 2"
        assert refused.value.path == path
    assert apply(full, add(("a",), 2), limits)[1]
    assert apply(full, remove(("a",)), limits)[1]
    assert apply(full, append(("l",), [3], keep=2), limits)[1]


def test_only_the_containers_on_the_path_are_copied() -> None:
    before: Any = freeze({"a": {"b": [{"c": 1}, {"d": 2}], "e": {}}, "f": {}})
    kept = freeze(before)
    after: Any = apply(before, replace(("a", "b", 0, "c"), 2))[0]
    assert equal(before, kept)
    assert after["f"] is before["f"]
    assert after["a"]["e"] is before["a"]["e"]
    assert after["a"]["b"][1] is before["a"]["b"][1]
    for path in ((), ("a",), ("a", "b"), ("a", "b", 0)):
        old, new = before, after
        for step in path:
            old, new = old[step], new[step]
        assert old is not new


def test_every_kind_has_one_descriptor() -> None:
    assert tuple(DESCRIPTORS) == KINDS
    assert [DESCRIPTORS[kind].kind for kind in KINDS] == list(KINDS)
    assert KINDS == (
        "replace",
        "add",
        "remove",
        "splice",
        "append",
        "add_unique",
        "add_sorted",
        "remove_value",
        "increment",
    )
