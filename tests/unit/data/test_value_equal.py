"""The laws of strict equality."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given

from headwater.data.address import Link
from headwater.data.codec import canonical
from headwater.data.value import ABSENT, Value, equal
from tests.counts import scaled
from tests.unit.data.generators import mutated, random_value, values

SCALARS: list[Value] = [
    None, True, False, 0, 1, 2, 0.5, "", "1", "true", b"", b"1", (), {}, (1,), (True,), {"1": 1}, {"1": True},
    Link(None, "space", "1"), Link("shop", "space", "1"), Link(None, "space", "1", (1,)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), list(product(enumerate(SCALARS), repeat=2)))
def test_values_of_different_kinds_or_content_differ(left: tuple[int, Value], right: tuple[int, Value]) -> None:
    assert equal(left[1], right[1]) is (left[0] == right[0])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (0, -0.0),
        (0.0, -0.0),
        ((1, 2.0), (1.0, 2)),
        ({"a": 1, "b": (2,)}, {"b": (2.0,), "a": 1.0}),
        (Link(None, "space", "x", (1,)), Link(None, "space", "x", (1,))),
        (b"ab", bytes([97, 98])),
        (ABSENT, ABSENT),
    ],
)
def test_one_number_has_two_spellings_and_key_order_does_not_matter(left: Any, right: Any) -> None:
    assert equal(left, right)
    assert equal(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (True, 1),
        (False, 0),
        (True, 1.0),
        ((True,), (1,)),
        ({"a": False}, {"a": 0}),
        ({"a": 1}, {"b": 1}),
        ({"a": None}, {}),
        ({"a": None}, {"b": None}),
        ((), {}),
        ((None,), ()),
        ("a", b"a"),
        (ABSENT, None),
        (None, ABSENT),
        ("x", "y"),
        ({"a": "x"}, {"a": "y"}),
    ],
)
def test_look_alikes_differ(left: Any, right: Any) -> None:
    assert not equal(left, right)
    assert not equal(right, left)


def endless() -> Any:
    """A part that nobody can look into and come back: it holds itself."""
    part: dict[str, Any] = {}
    part["me"] = (part,)
    return part


def test_shared_parts_are_skipped_without_a_look() -> None:
    part = endless()
    assert equal(part, part)
    assert equal({"x": part, "y": 1}, {"y": 1, "x": part})
    assert equal((part, 1), (part, 1.0))
    assert not equal((part, 1), (part, 2))


@given(values, values, values)
def test_equality_is_an_equivalence(a: Any, b: Any, c: Any) -> None:
    assert equal(a, a)
    assert equal(a, b) == equal(b, a)
    assert not (equal(a, b) and equal(b, c)) or equal(a, c)


@pytest.mark.random
def test_values_are_equal_exactly_when_their_canonical_bytes_are() -> None:
    rng = random.Random(5)
    met = {True: 0, False: 0}
    for number in range(scaled(50_000)):
        a = random_value(rng, 2)
        b = mutated(rng, a)
        same = equal(a, b)
        met[same] += 1
        assert same == (canonical(a) == canonical(b)), (number, a, b)
    assert min(met.values()) > sum(met.values()) // 50 - 1
