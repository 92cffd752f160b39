"""Patches that lead from one value to another."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given

from headwater.data.codec import encode
from headwater.data.diff import aligned, all_fields, changed_fields, diff, diff_at, field_patches, ordered_diff
from headwater.data.patch import Patch, PatchError, apply, validate_patch
from headwater.data.value import ABSENT, MaybeValue, equal, lookup, same
from tests.counts import scaled
from tests.unit.data.generators import all_paths, mutated, random_container, values


def applied(value: MaybeValue, patches: tuple[Patch, ...]) -> MaybeValue:
    for patch in patches:
        value = apply(value, patch)[0]
    return value


@pytest.mark.parametrize(
    ("before", "after", "patches"),
    [
        (1, 1.0, []),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": 1}, {"a": True}, [("replace", ("a",), True)]),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "y": 3}}, [("replace", ("a", "y"), 3)]),
        ({"a": 1}, {"b": 1}, [("remove", ("a",), None), ("add", ("b",), 1)]),
        (("a", "b", "c"), ("a", "x", "c"), [("replace", (1,), "x")]),
        (({"x": 1}, 2), ({"x": 3}, 2), [("replace", (0, "x"), 3)]),
        (("aa", "bb", "cc"), ("aa", "cc"), [("splice", (), (1, 1, ()))]),
        (("aa", "bb", "cc"), ("aa", "zz", "bb", "cc"), [("splice", (), (1, 0, ("zz",)))]),
        (("aa", "bb"), ("aa", "bb", "cc"), [("splice", (), (2, 0, ("cc",)))]),
        (("aa", "aa"), ("aa", "aa", "aa"), [("splice", (), (2, 0, ("aa",)))]),
        ({"l": ("aa", "bb", "cc")}, {"l": ()}, [("replace", ("l",), ())]),
        ({"l": (1, 2, 3)}, {"l": (4,)}, [("replace", ("l",), (4,))]),
        ({"a": ()}, {"a": {}}, [("replace", ("a",), {})]),
        (ABSENT, {"a": 1}, [("add", (), {"a": 1})]),
        ({"a": 1}, ABSENT, [("remove", (), None)]),
        (ABSENT, ABSENT, []),
        (None, (), [("replace", (), ())]),
    ],
)
def test_a_difference_becomes_the_expected_patches(before: Any, after: Any, patches: list[Any]) -> None:
    found = diff(before, after)
    assert [tuple(patch) for patch in found] == patches
    assert equal(applied(before, found), after)


@given(values, values)
def test_applying_a_diff_gives_the_other_value(before: Any, after: Any) -> None:
    patches = diff(before, after)
    assert equal(applied(before, patches), after)
    assert (patches == ()) == equal(before, after)


@given(values, values)
def test_applying_an_ordered_diff_gives_the_other_value_with_its_order_of_keys(before: Any, after: Any) -> None:
    patches = ordered_diff(before, after)
    assert same(applied(before, patches), after)
    assert (patches == ()) == same(before, after)


@pytest.mark.parametrize(
    ("before", "after", "patches"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 3, "a": 1}, [("remove", ("a",), None), ("add", ("a",), 1)]),
        ({"a": 1, "b": 2}, {"a": 1, "c": 3}, [("remove", ("b",), None), ("add", ("c",), 3)]),
        (
            {"x": {"a": 1, "b": 2}, "y": 3},
            {"x": {"b": 2, "a": 1}, "y": 4},
            [("remove", ("x", "a"), None), ("add", ("x", "a"), 1), ("replace", ("y",), 4)],
        ),
        (({"a": 1, "b": 2},), ({"b": 2, "a": 1},), [("remove", (), None), ("add", (), ({"b": 2, "a": 1},))]),
    ],
)
def test_an_ordered_difference_moves_the_keys_that_come_later(before: Any, after: Any, patches: list[Any]) -> None:
    assert [tuple(patch) for patch in ordered_diff(before, after)] == patches


@pytest.mark.random
def test_diffs_of_related_values_apply_and_stay_small() -> None:
    rng = random.Random(8)
    for number in range(scaled(60_000)):
        before = random_container(rng)
        after = mutated(rng, before)
        patches = diff(before, after)
        case = (number, before, after, patches)
        assert equal(applied(before, patches), after), case
        assert (patches == ()) == equal(before, after), case
        assert same(applied(before, ordered_diff(before, after)), after), case
        for patch in patches:
            assert equal(validate_patch(patch).arg, patch.arg), case
            assert patch.kind in ("add", "replace", "remove", "splice"), case
            at_element = bool(patch.path) and type(patch.path[-1]) is int
            assert not (at_element and patch.kind in ("add", "remove")), case
            if patch.kind == "splice":
                whole = lookup(after, patch.path)
                assert len(encode(patch.arg)) <= len(encode(whole)) + 16, case  # type: ignore[arg-type]


def shuffled(rng: random.Random, value: Any) -> Any:
    """The same value with the keys of each object in a random order."""
    if isinstance(value, dict):
        keys = rng.sample(list(value), len(value))
        return {key: shuffled(rng, value[key]) for key in keys}
    return tuple(shuffled(rng, item) for item in value) if isinstance(value, tuple) else value


@pytest.mark.random
@pytest.mark.parametrize("may_cut", [True, False])
def test_aligned_value_is_the_one_that_the_patches_make(may_cut: bool) -> None:
    for seed in range(scaled(3_000)):
        rng = random.Random(seed)
        before = random_container(rng)
        after = shuffled(rng, mutated(rng, before) if rng.random() < 0.8 else before)
        made = aligned(before, after)
        assert equal(made, after), seed
        assert same(made, applied(before, diff(before, made, lambda _: may_cut))), seed
        assert not equal(before, after) or made is before, seed


def test_each_changed_leaf_costs_one_patch() -> None:
    before: Any = {str(key): {"n": key, "t": ("x", key)} for key in range(100)}
    after = {**before, "7": {"n": 7, "t": ("x", 0)}, "8": {"n": 0, "t": before["8"]["t"]}}
    assert diff(before, after) == (Patch("replace", ("7", "t", 1), 0), Patch("replace", ("8", "n"), 0))


def endless() -> Any:
    """A part that nobody can look into and come back: it holds itself."""
    part: dict[str, Any] = {}
    part["me"] = (part,)
    return part


def test_shared_parts_are_skipped_without_a_look() -> None:
    part = endless()
    assert diff({"x": part, "y": (part, 1)}, {"x": part, "y": (part, 2)}) == (Patch("replace", ("y", 1), 2),)
    assert diff(part, part) == ()


@pytest.mark.parametrize(
    ("places", "made"),
    [
        ([], {"a": 5, "b": {"x": 1, "y": 6}, "d": 7}),
        ([("a",)], {"a": 1, "b": {"x": 1, "y": 6}, "d": 7}),
        ([("b", "y")], {"a": 5, "b": {"x": 1, "y": 2}, "d": 7}),
        ([("d",)], {"a": 5, "b": {"x": 1, "y": 6}}),
        ([("b", "y", 0), ("a", "z")], {"a": 1, "b": {"x": 1, "y": 2}, "d": 7}),
        ([()], {"a": 1, "b": {"x": 1, "y": 2}}),
    ],
)
def test_fields_are_written_into_another_value(places: Any, made: Any) -> None:
    seen: Any = {"a": 1, "b": {"x": 0, "y": 2}, "c": 3}
    wanted: Any = {"a": 1, "b": {"x": 1, "y": 2}}
    now: Any = {"a": 5, "b": {"x": 0, "y": 6}, "c": 3, "d": 7}
    assert applied(now, field_patches(wanted, [*changed_fields(seen, wanted), *places], now)) == made


def test_equal_fields_and_absences_are_written_as_well() -> None:
    wanted: Any = {"a": 1}
    assert field_patches(wanted, [("a",), ("b",)], wanted) == (Patch("add", ("a",), 1), Patch("remove", ("b",)))


def test_equal_object_is_written_by_its_fields() -> None:
    wanted: Any = {"a": {"x": 1, "y": {"z": 2}}}
    fields = (Patch("add", ("a", "x"), 1), Patch("add", ("a", "y", "z"), 2))
    assert field_patches(wanted, [("a",)], wanted) == (Patch("add", ("a",), {"x": 1, "y": {"z": 2}}), *fields)


@pytest.mark.parametrize("now", [{"d": 7}, {"b": 5, "d": 7}])
def test_part_is_written_as_a_whole_where_there_is_no_object_now(now: Any) -> None:
    wanted: Any = {"b": {"x": 1, "y": 2}}
    assert applied(now, field_patches(wanted, [("b", "x"), ("b", "z")], now)) == {**wanted, "d": 7}


@pytest.mark.parametrize("now", [ABSENT, 5, ()])
def test_value_that_is_no_object_is_replaced_as_a_whole(now: Any) -> None:
    assert field_patches({"a": 1}, [], now) == (Patch("add", (), {"a": 1}),)


def test_all_fields_are_the_places_of_values_that_are_no_objects() -> None:
    assert list(all_fields({"a": 1, "b": {"x": (1,), "y": {}}})) == [("a",), ("b", "x")]


@pytest.mark.random
def test_diff_at_written_places_makes_the_same_as_the_diff_of_everything() -> None:
    for seed in range(scaled(20_000)):
        rng = random.Random(seed)
        before = random_container(rng, 3)
        after: MaybeValue = before
        places = []
        for _ in range(rng.randint(1, 4)):
            path = tuple(step for step in rng.choice(list(all_paths(after))) if isinstance(step, str))
            if isinstance(lookup(after, path), dict) and rng.random() < 0.5:
                path = (*path, rng.choice("abc"))
            if path:
                is_removed = rng.random() < 0.3
                patch = Patch("remove", path) if is_removed else Patch("add", path, random_container(rng, 2))
                try:
                    after = apply(after, patch)[0]
                except PatchError:
                    continue
                places.append(path)
        made = applied(before, diff_at(before, after, places))
        assert same(made, applied(before, diff(before, after))), seed
        assert equal(made, after), seed
