"""Ids follow from their cause, never collide by construction, and never change."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from headwater.data.ids import ID_LENGTH, derive, event_id, minted_at, minted_id
from headwater.errors import InvalidValueError
from tests.counts import scaled

MINTED_US = 1_700_000_000_123_456


def test_known_ids_stay_what_they_are() -> None:
    """Ids are stored: a change of any of these orphans documents."""
    event = event_id("origin", "clicks", 7, MINTED_US)
    assert event == "01ga4gc208i0-l312o2uud88n2lpfil6q22hjkqlnggc6"
    assert minted_id(event, 0) == "pouddnjtai7kt6u107lu2ddv6m5tcij2"
    assert derive("thing") == "v8muhmrtp7aae1dm02mc30obusuottv1"
    assert derive("thing", "a", 1, b"\x00") == "f8tdkuf6fhb4n0ugv49d7iipb4kmf50i"


def test_an_id_is_short_lower_case_text() -> None:
    assert re.fullmatch(rf"[0-9a-v]{{{ID_LENGTH}}}", derive("x", "y"))
    assert ID_LENGTH == 32


@pytest.mark.parametrize("minted_us", [0, 1, 31, 32, MINTED_US, 32**12 - 1])
def test_an_event_id_carries_its_mint_time(minted_us: int) -> None:
    assert minted_at(event_id("o", "s", 0, minted_us)) == minted_us


def test_event_ids_sort_by_mint_time() -> None:
    rng = random.Random(1)
    times = sorted({rng.randrange(2**55) for _ in range(1000)})
    ids = [event_id(str(rng.random()), "s", 0, time) for time in times]
    assert ids == sorted(ids)


def test_every_part_of_an_event_makes_a_different_id() -> None:
    base = ("o", "s", 1, 5)
    others = [("p", "s", 1, 5), ("o", "t", 1, 5), ("o", "s", 2, 5), ("o", "s", 1, 6)]
    ids = {event_id(*parts).split("-")[1] for parts in [base, *others]}
    assert len(ids) == 5


def test_lists_of_parts_that_look_alike_do_not_meet() -> None:
    lists: list[tuple[Any, ...]] = [
        (), ("",), ("", ""), ("ab",), ("a", "b"), ("a", "", "b"), (b"ab",), (b"a", b"b"), (1,), ("1",),
        (b"1",), (12,), (1, 2), (-1,), ("-1",), ("s1:a",), ("s1:", "a"), (10**30,), ("é",), ("é".encode(),),
    ]  # fmt: skip
    kinds = ("", "event", "result", "s", "s5:event")
    ids = {derive(kind, *parts) for kind in kinds for parts in lists}
    assert len(ids) == len(kinds) * len(lists)
    assert derive("a", "b") != derive("ab")


def test_the_kinds_of_ids_are_separate_domains() -> None:
    event = event_id("o", "s", 0, 0)
    ids = [
        minted_id(event, 0),
        derive("x", event),
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.random
def test_many_ids_do_not_collide() -> None:
    count = scaled(200_000)
    event = event_id("o", "s", 0, MINTED_US)
    ids = {minted_id(event, number) for number in range(count)}
    ids |= {derive("parent", str(number)) for number in range(count)}
    ids |= {derive("parent", number) for number in range(count)}
    assert len(ids) == 3 * count


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("a\ud800", "id part 'a\\ud800' holds a lone surrogate: decode the text correctly"),
        (1.5, "id part 1.5 is a float: use a str, an int or bytes"),
        (True, "id part True is a bool: use a str, an int or bytes"),
        (None, "id part None is a NoneType: use a str, an int or bytes"),
    ],
)
def test_a_part_of_another_type_is_refused(part: Any, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        derive("x", part)
    assert str(refused.value) == message


@pytest.mark.parametrize("minted_us", [-1, 32**12, 1.5, True, None])
def test_an_event_needs_a_mint_time_in_microseconds(minted_us: Any) -> None:
    with pytest.raises(
        InvalidValueError, match=r"an event cannot be minted at .*: use integer microseconds since 1970"
    ):
        event_id("o", "s", 0, minted_us)


@pytest.mark.parametrize(
    "text", ["", "x", "0" * 45, derive("x"), event_id("o", "s", 0, 0) + "\n", "w" * 12 + "-" + "0" * 32, None]
)
def test_the_mint_time_of_something_else_is_refused(text: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"is not an event id: pass the return value of event_id\(\) unchanged"):
        minted_at(text)
