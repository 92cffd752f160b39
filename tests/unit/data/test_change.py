"""Overlap of writes with reads, and that no write escapes it."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given

from headwater.data.address import Depth
from headwater.data.change import changed_touches, overlaps
from headwater.data.patch import KINDS, PatchError, Touch, apply, footprint
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from tests.counts import scaled
from tests.unit.data.generators import all_reads, mutated, random_container, random_patch, values

DEEP, SHAPE = Depth.DEEP, Depth.SHAPE


@pytest.mark.parametrize(
    ("touch", "read", "deep", "shape"),
    [
        (Touch(("a",), False), ("a",), True, True),
        (Touch(("a",), False), ("a", "b", "c"), True, True),
        (Touch((), False), ("a",), True, True),
        (Touch((), True), (), True, True),
        (Touch(("a", "b"), False), ("a",), True, False),
        (Touch(("a", "b"), True), ("a",), True, True),
        (Touch(("a", "b", "c"), True), ("a",), True, False),
        (Touch(("a",), True), (), True, True),
        (Touch(("a",), False), (), True, False),
        (Touch(("a", "b"), True), ("a", "c"), False, False),
        (Touch(("a", 1), True), ("a", "1"), False, False),
        (Touch(("a", 1), True), ("b",), False, False),
        (Touch(("l",), False), ("l", 3), True, True),
        (Touch(("l", 4), True), ("l", 3), False, False),
        (Touch(("l", 4), True), ("l",), True, True),
    ],
)
def test_a_read_meets_the_writes_it_could_see(touch: Touch, read: Path, deep: bool, shape: bool) -> None:
    assert overlaps(touch, read, DEEP) is deep
    assert overlaps(touch, read, SHAPE) is shape


def test_disjoint_keys_of_one_container_do_not_collide() -> None:
    touches = [Touch(("map", str(number)), True) for number in range(10)]
    for number, touch in enumerate(touches):
        met = [other for other in range(10) if overlaps(touch, ("map", str(other)), DEEP)]
        assert met == [number]


@pytest.mark.parametrize(
    ("before", "after", "touches"),
    [
        ({"a": 1}, {"a": 1.0}, set()),
        ({"a": 1}, {"a": True}, {(("a",), False)}),
        ({"a": 1}, {"b": 1}, {(("a",), True), (("b",), True)}),
        ((1, 2, 3), (1, 9), {((1,), False), ((2,), True)}),
        ({"a": {"b": (1,)}}, {"a": {"b": (1, 2)}}, {(("a", "b", 1), True)}),
        ({"a": {}}, {"a": ()}, {(("a",), False)}),
        (ABSENT, None, {((), True)}),
        ({}, ABSENT, {((), True)}),
        (ABSENT, ABSENT, set()),
        (1, 2, {((), False)}),
    ],
)
def test_the_true_differences_of_two_values_are_found(before: Any, after: Any, touches: set[Any]) -> None:
    found = changed_touches(before, after)
    assert set(found) == touches
    assert len(found) == len(touches)


def seen(value: MaybeValue, path: Path, depth: Depth) -> MaybeValue:
    """What a read sees: the definition that overlap must cover."""
    found = lookup(value, path)
    if depth is DEEP:
        return found
    if isinstance(found, dict):
        return ("keys", dict.fromkeys(found))
    return ("length", len(found)) if isinstance(found, tuple) else found


@given(values, values)
def test_the_true_differences_cover_every_read_that_sees_one(before: Any, after: Any) -> None:
    touches = changed_touches(before, after)
    assert bool(touches) != equal(before, after)
    for path, depth in all_reads(before, after):
        if not equal(seen(before, path, depth), seen(after, path, depth)):
            assert any(overlaps(touch, path, depth) for touch in touches), (path, depth)


@pytest.mark.random
def test_what_a_patch_touches_covers_all_that_it_changed() -> None:
    """C2: over-approximated, never under-approximated, for every kind and every read."""
    rng = random.Random(2)
    applied_kinds = dict.fromkeys(KINDS, 0)
    for number in range(scaled(60_000)):
        before: MaybeValue = ABSENT if rng.random() < 0.02 else random_container(rng)
        patch = random_patch(rng, before)
        try:
            after, touched = apply(before, patch)
        except PatchError:
            continue
        case = (number, before, patch, after, touched)
        assert (not touched) == equal(before, after), case
        if not touched:
            assert after is before, case
            continue
        applied_kinds[patch.kind] += 1
        differences = changed_touches(before, after)
        may_touch = footprint(patch)
        for path, depth in all_reads(before, after):
            met = any(overlaps(touch, path, depth) for touch in touched)
            if any(overlaps(touch, path, depth) for touch in differences):
                assert met, (path, depth, case)
            if not equal(seen(before, path, depth), seen(after, path, depth)):
                assert met, (path, depth, case)
            if met:
                assert overlaps(may_touch, path, depth), (path, depth, case)
    assert number < 1000 or min(applied_kinds.values()) > 20, applied_kinds


@pytest.mark.random
def test_a_patch_never_mutates_what_it_was_given() -> None:
    rng = random.Random(3)
    for number in range(scaled(20_000)):
        before = random_container(rng)
        text = repr(before)
        patch = random_patch(rng, before)
        with contextlib.suppress(PatchError):
            apply(before, patch)
        assert repr(before) == text, (number, patch)


@pytest.mark.random
def test_independent_mutations_are_covered_as_well() -> None:
    rng = random.Random(4)
    for number in range(scaled(10_000)):
        before = random_container(rng)
        after = mutated(rng, before)
        touches = changed_touches(before, after)
        for path, depth in all_reads(before, after):
            if not equal(seen(before, path, depth), seen(after, path, depth)):
                assert any(overlaps(touch, path, depth) for touch in touches), (number, path, depth)
