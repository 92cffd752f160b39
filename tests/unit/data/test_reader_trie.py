"""Spots: `match` is what comparing before and after at every registered spot would find, and costs far less."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from headwater.data.address import Depth, Link
from headwater.data.patch import (
    Patch,
    PatchError,
    add,
    add_unique,
    append,
    apply,
    increment,
    remove,
    remove_value,
    replace,
    splice,
)
from headwater.data.path import Path
from headwater.data.reader_trie import OBJECT, Spot, TrieNode, detach, match, shape_differs
from headwater.data.value import ABSENT, MaybeValue, freeze, lookup, same
from tests.counts import scaled

LINKS = (Link(id="one"), Link(id="two"))
STEPS: tuple[str | int, ...] = ("a", "b", "c", 0, 1, 2)


def naive(root: TrieNode, before: MaybeValue, after: MaybeValue) -> set[Spot]:
    """The definition: whoever would be shown something else."""
    found = set()
    for spot in root.spots():
        was, now = shown_at(before, spot.path), shown_at(after, spot.path)
        if not same(was, now) if spot.depth is Depth.DEEP else shape_differs(was, now):
            found.add(spot)
    return found


def shown_at(value: MaybeValue, path: Path) -> MaybeValue:
    """What decides what is shown there: the first link on the way, or what is stored."""
    for steps in range(len(path)):
        above = lookup(value, path[:steps])
        if isinstance(above, Link):
            return above
    if path and path[-1] == OBJECT:
        return True if isinstance(lookup(value, path[:-1]), dict) else ABSENT
    return lookup(value, path)


def random_spot(rng: random.Random, most: int = 4) -> Spot:
    path = random_path(rng, most)
    return Spot("doc", (*path, OBJECT) if rng.random() < 0.1 else path, rng.choice((Depth.DEEP, Depth.SHAPE)))


def random_path(rng: random.Random, most: int = 4) -> Path:
    return tuple(rng.choice(STEPS) for _ in range(rng.randrange(most)))


def random_value(rng: random.Random, depth: int = 3) -> MaybeValue:
    choice = rng.randrange(6) if depth else rng.randrange(3)
    if choice < 3:
        return freeze(rng.choice((0, 1, 1.0, True, False, None, "x", -0.0, *LINKS)))
    if choice < 5:
        return freeze({rng.choice("abc"): random_value(rng, depth - 1) for _ in range(rng.randrange(4))})
    return freeze([random_value(rng, depth - 1) for _ in range(rng.randrange(4))])


def random_patch(rng: random.Random) -> Patch:
    path, value = random_path(rng), random_value(rng, 2)
    match rng.randrange(9):
        case 0:
            return append(path, [value])
        case 1:
            return splice(path, rng.randrange(3), rng.randrange(3), [value])
        case 2:
            return increment(path, rng.choice((0, 1)))
        case 3:
            return remove(path)
        case 4:
            return add_unique(path, value)
        case 5:
            return remove_value(path, value)
        case 6:
            return replace(path, value)
        case _:
            return add(path, value)


@pytest.mark.random
def test_match_finds_exactly_the_spots_that_differ_after_every_step() -> None:
    applied = 0
    for seed in range(scaled(3_000)):
        rng = random.Random(seed)
        root = TrieNode()
        value = random_value(rng)
        readers: list[Spot] = []
        for _ in range(25):
            if rng.random() < 0.5 or not readers:
                spot = random_spot(rng)
                if root.find(spot.path, spot.depth) is None:
                    root.attach(spot)
                    readers.append(spot)
            elif rng.random() < 0.3:
                detach(readers.pop(rng.randrange(len(readers))))
            before, touched = value, []
            for _ in range(rng.randint(1, 3)):
                try:
                    value, more = apply(value, random_patch(rng))
                except PatchError:
                    continue
                applied += 1
                touched += [touch.path for touch in more]
            expected = naive(root, before, value)
            assert set(match(root, before, value, None)) == expected, (seed, before, value)
            assert set(match(root, before, value, touched)) == expected, (seed, before, value, touched)
            above = [path[: rng.randrange(len(path) + 1)] for path in touched]
            more_than_enough = [*touched, *above, random_path(rng)]
            rng.shuffle(more_than_enough)
            assert set(match(root, before, value, more_than_enough)) == expected, (seed, before, value, touched)
            assert len(match(root, before, value, more_than_enough)) == len(expected), "a spot was found twice"
    assert applied > scaled(3_000)


@pytest.mark.random
def test_detaching_leaves_a_trie_as_if_the_spot_had_never_been_there() -> None:
    for seed in range(scaled(2_000)):
        rng = random.Random(seed)
        root, spots = TrieNode(), []
        for _ in range(rng.randrange(30)):
            spot = random_spot(rng, 6)
            if root.find(spot.path, spot.depth) is None:
                root.attach(spot)
                spots.append(spot)
        rng.shuffle(spots)
        while spots:
            gone = spots.pop()
            detach(gone)
            detach(gone)
            assert root.find(gone.path, gone.depth) is None
            assert set(root.spots()) == set(spots)
            assert all(root.find(spot.path, spot.depth) is spot for spot in spots)
        assert root.is_empty()


@contextmanager
def counted() -> Iterator[list[int]]:
    """Counts the calls of functions of the product: steps down a value, comparisons, and all others."""
    count = [0]

    def heard(frame: FrameType, event: str, _: object) -> None:
        count[0] += event == "call" and str(frame.f_globals.get("__name__")).startswith("headwater.")

    sys.setprofile(heard)
    try:
        yield count
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("path", [("k0",), ("k0", "leaf")], ids=str)
def test_work_does_not_depend_on_how_many_readers_other_paths_have(path: Path) -> None:
    work = []
    for readers in (10, 10_000):
        root = TrieNode()
        root.attach(Spot("doc", (), Depth.SHAPE))
        for index in range(readers):
            for depth in Depth:
                root.attach(Spot("doc", (f"k{index}", "leaf"), depth))
        value = freeze({f"k{index}": {"leaf": 0} for index in range(readers)})
        after, touched = apply(value, replace(path, {"leaf": 1} if len(path) == 1 else 1))
        with counted() as count:
            found = match(root, value, after, [touch.path for touch in touched])
        assert {spot.path for spot in found} == {("k0", "leaf")}
        work.append(count[0])
    assert work[0] == work[1] > 0


def test_a_place_that_nobody_can_step_into_is_absent_and_not_an_error() -> None:
    root = TrieNode()
    spots = [Spot("doc", path, Depth.DEEP) for path in ((0,), ("a", 0), ("a", "b", "c"), (-1,))]
    for spot in spots:
        root.attach(spot)
    assert match(root, ABSENT, freeze("text"), None) == []
    assert match(root, freeze("text"), freeze({"a": "text"}), None) == []
    assert match(root, ABSENT, freeze(["x"]), None) == [spots[0]]


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": 1}, True),
        ([1, 2], [3, 4], False),
        ([1], [1, 2], True),
        ({}, [], True),
        (1, 2, True),
        (1, 1.0, False),
        (1, True, True),
        (ABSENT, None, True),
        (ABSENT, {}, True),
    ],
)
def test_a_shape_is_keys_length_or_the_leaf_itself(before: object, after: object, differs: bool) -> None:
    was = ABSENT if before is ABSENT else freeze(before)
    now = ABSENT if after is ABSENT else freeze(after)
    assert shape_differs(was, now) is differs
    assert shape_differs(now, was) is differs
