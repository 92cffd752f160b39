"""Paths: their text form, and looking things up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from headwater.data.address import Link
from headwater.data.limits import ValueLimits
from headwater.data.path import Path, check_path, parse_path, path_text, starts_with
from headwater.data.value import ABSENT, Value, lookup
from headwater.errors import InvalidValueError
from tests.unit.data.generators import paths


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("cards", 3, "title"), "/cards/3/title"),
        (("cards", "3"), '/cards/"3"'),
        (("",), "/"),
        (("", ""), "//"),
        (("a/b", "c~d", "~1"), "/a~1b/c~0d/~01"),
        (('"',), '/"""'),
        (('"3"',), '/""3""'),
        (("007", "-1", "٣"), "/007/-1/٣"),
        ((0,), "/0"),
    ],
)
def test_a_path_is_written_as_a_pointer_and_read_back(path: Path, text: str) -> None:
    assert path_text(path) == text
    assert parse_path(text) == path
    assert [type(step) for step in parse_path(text)] == [type(step) for step in path]


@given(paths)
def test_every_path_survives_its_text_form(path: Path) -> None:
    assert parse_path(path_text(path)) == path


def test_a_quote_that_is_not_closed_is_part_of_the_key() -> None:
    assert parse_path('/"abc') == ('"abc',)
    assert parse_path('/abc"') == ('abc"',)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cards/3", "path 'cards/3' does not begin with '/': write it like /cards/3/title"),
        ("/a~b", "path '/a~b' has a bare '~' at character 2: write '~0' for '~'"),
        ("/a~", "path '/a~' has a bare '~' at character 2: write '~0' for '~'"),
        ("/9007199254740992", "step 0 of a path is 9007199254740992: the largest index is 9007199254740991"),
        ("/" + "9" * 5000, "step 0 of a path is 9007199254740992: the largest index is 9007199254740991"),
    ],
)
def test_text_that_is_no_path_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse_path(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            ("a", -1),
            "step 1 of a path is -1: count from the start of the array; negative indexes depend on its length",
        ),
        ((2**53,), "step 0 of a path is 9007199254740992: the largest index is 9007199254740991"),
        ((0, 1, True), "step 2 of a path is True: a step is a text key or an integer index"),
        ((1.0,), "step 0 of a path is 1.0: a step is a text key or an integer index"),
        ((None,), "step 0 of a path is None: a step is a text key or an integer index"),
        ((10**5000,), "step 0 of a path is <int>: the largest index is 9007199254740991"),
        (
            ("a", "b\ud800"),
            "step 1 of a path has the lone surrogate \\ud800 at character 1: "
            "decode the text correctly, or drop the character",
        ),
        (
            ("12345678", "éééé0"),
            "step 1 of a path is 9 bytes long, the limit for a key is 8: "
            "use a shorter key and keep the text in the value",
        ),
        ("abc", "a path is 'abc': write a tuple of keys and indexes, like ('cards', 3)"),
        (5, "a path is 5: write a tuple of keys and indexes, like ('cards', 3)"),
        ((0,) * 5, "a path has 5 steps, the limit is 4: keep deep parts in documents of their own"),
    ],
)
def test_a_foreign_path_is_checked_step_by_step(path: Any, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        check_path(path, ValueLimits(depth=4, key_bytes=8))
    assert str(refused.value) == message


def test_a_good_foreign_path_becomes_a_tuple() -> None:
    assert check_path(["a", 0, "é"]) == ("a", 0, "é")
    path = ("a", 1)
    assert check_path(path) is path


def test_a_path_starts_with_itself_and_with_what_is_above() -> None:
    assert starts_with(("a", 1), ())
    assert starts_with(("a", 1), ("a",))
    assert starts_with(("a", 1), ("a", 1))
    assert not starts_with(("a",), ("a", 1))
    assert not starts_with(("a", 1), ("a", "1"))
    assert not starts_with(("b", 1), ("a",))


DOC: Value = {"a": ({"x": None}, "text"), "link": Link(None, "space", "other"), "0": "key"}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ((), DOC),
        (("a", 0, "x"), None),
        (("a", 1), "text"),
        (("0",), "key"),
        ((0,), ABSENT),
        (("a", 2), ABSENT),
        (("a", -1), ABSENT),
        (("a", "0"), ABSENT),
        (("a", 1, 0), ABSENT),
        (("a", 0, "y"), ABSENT),
        (("a", 0, "x", "y"), ABSENT),
        (("link", "id"), ABSENT),
        (("nowhere", "at", "all"), ABSENT),
    ],
)
def test_looking_up_finds_what_is_there_and_never_follows_a_link(path: Path, found: object) -> None:
    assert lookup(DOC, path) is found


def test_there_is_nothing_in_an_absent_document() -> None:
    assert lookup(ABSENT, ()) is ABSENT
    assert lookup(ABSENT, ("a",)) is ABSENT
    assert not ABSENT
    assert repr(ABSENT) == "ABSENT"
