"""The patches that lead from one value to another.

`diff` compares states, not intents: it never guesses an append or an increment, and it never emits an indexed insert or
removal. `aligned` gives the order of keys that those patches make, and `ordered_diff` makes any order. `changed_fields`
finds the fields that a writer changed, and `field_patches` writes them into another value. Invariants: applying the
patches in order to `before` gives a value equal to `after`; equal values give no patch of `diff`; shared parts are
skipped without a look inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import eq, is_

from headwater.data.patch import Patch, apply
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, Value, equal, lookup, same, size_of

__all__ = ["aligned", "all_fields", "changed_fields", "diff", "diff_at", "field_patches", "ordered_diff"]


Inside = Callable[[Path], bool]
"""True if an index inside the array at a path means the same element wherever the patches are applied."""


def diff(before: MaybeValue, after: MaybeValue, may_cut: Inside = lambda _: True) -> tuple[Patch, ...]:
    """Patches that turn `before` into `after`: objects by key, arrays by element or by one splice.

    An array of which `may_cut` says no is replaced as a whole: applied to another array, the place of an element
    would be another element's.
    """
    if before is after:
        return ()
    if after is ABSENT:
        return (Patch("remove", (), None),)
    if before is ABSENT:
        return (Patch("add", (), after),)
    if type(after) is not dict and type(after) is not tuple:
        return () if equal(before, after) else (Patch("replace", (), after),)
    patches: list[Patch] = []
    _compare(before, after, (), patches, may_cut)
    return tuple(patches)


def diff_at(
    before: MaybeValue, after: MaybeValue, places: Iterable[Path], may_cut: Inside = lambda _: True
) -> tuple[Patch, ...]:
    """Return `diff` of two values that differ only at or below some places. Keys beside these are not looked at.

    The patches may come in another order, and make the same order of keys.
    """
    if type(before) is not dict or type(after) is not dict:
        return diff(before, after, may_cut)
    patches: list[Patch] = []
    _compare_at(before, after, list(places), (), patches, may_cut)
    return tuple(patches)


def _compare_at(
    before: Value, after: Value, places: list[Path], path: Path, patches: list[Patch], may_cut: Inside
) -> None:
    depth = len(path)
    below: dict[str, list[Path]] = {}
    for place in places:
        step = place[depth] if len(place) > depth else None
        if type(step) is not str or type(before) is not dict or type(after) is not dict:
            _compare(before, after, path, patches, may_cut)
            return
        below.setdefault(step, []).append(place)
    assert type(before) is dict
    assert type(after) is dict
    added: dict[str, None] = {}
    for key, further in below.items():
        old, item = before.get(key, ABSENT), after.get(key, ABSENT)
        if item is ABSENT:
            if old is not ABSENT:
                patches.append(Patch("remove", (*path, key), None))
        elif old is ABSENT:
            added[key] = None
        else:
            _compare_at(old, item, further, (*path, key), patches, may_cut)
    for key in _in_order(added, after):
        patches.append(Patch("add", (*path, key), after[key]))


def _in_order(added: dict[str, None], after: dict[str, Value]) -> Iterable[str]:
    """Return new keys of an object in its order. New keys come last in it, so that few others are passed."""
    if len(added) < 2:
        return added
    found: list[str] = []
    for key in reversed(after):
        if key in added:
            found.append(key)
            if len(found) == len(added):
                break
    return reversed(found)


def ordered_diff(before: MaybeValue, after: MaybeValue) -> tuple[Patch, ...]:
    """Patches that turn `before` into `after` with its order of keys: a key that has to be behind others is removed and
    added again.
    """
    # fault+ diff.order_of_results_lost: return diff(before, after)
    if (type(after) is not dict and type(after) is not tuple) or same(aligned(before, after), after):
        return diff(before, after)
    moves = tuple(_moves(before, after, ()))
    made = _applied(before, moves)
    patches = (*moves, *diff(made, after))
    if same(_applied(before, patches), after):
        return patches
    return (Patch("remove", (), None), Patch("add", (), after))  # Elements of an array have keys in another order.


def _moves(before: MaybeValue, after: MaybeValue, path: Path) -> Iterator[Patch]:
    """Yield the removals of the keys that do not come in the same order, from the first such key on."""
    if before is after or type(before) is not dict or type(after) is not dict:
        return
    places = {key: place for place, key in enumerate(before)}
    last, stays = -1, True
    for key in after:
        place = places.get(key)
        stays = stays and place is not None and place > last
        if stays and place is not None:
            last = place
            yield from _moves(before[key], after[key], (*path, key))
        elif place is not None:
            yield Patch("remove", (*path, key), None)


def _applied(value: MaybeValue, patches: Iterable[Patch]) -> MaybeValue:
    for patch in patches:
        value, _ = apply(value, patch)
    return value


def _compare(before: Value, after: Value, path: Path, patches: list[Patch], may_cut: Inside) -> None:
    if before is after:
        return
    if type(before) is dict and type(after) is dict:
        _compare_objects(before, after, path, patches, may_cut)
    elif type(before) is tuple and type(after) is tuple and may_cut(path):
        _compare_arrays(before, after, path, patches, may_cut)
    elif not equal(before, after):
        patches.append(Patch("replace", path, after))


def _compare_objects(
    before: dict[str, Value], after: dict[str, Value], path: Path, patches: list[Patch], may_cut: Inside
) -> None:
    if len(before) > len(after) or before.keys() != after.keys():
        for key in before:
            if key not in after:
                patches.append(Patch("remove", (*path, key), None))
    for key, item in after.items():
        old = before.get(key, ABSENT)
        if old is item:
            continue  # Most of a large object is shared with the version before: its path is not even made.
        if old is ABSENT:
            patches.append(Patch("add", (*path, key), item))
        else:
            _compare(old, item, (*path, key), patches, may_cut)


def _compare_arrays(
    before: tuple[Value, ...], after: tuple[Value, ...], path: Path, patches: list[Patch], may_cut: Inside
) -> None:
    if len(before) == len(after):
        for index, item in enumerate(after):
            if before[index] is not item:
                _compare(before[index], item, (*path, index), patches, may_cut)
        return
    start, stop = _common_ends(before, after)
    middle = after[start : len(after) - stop]
    arg: Value = (start, len(before) - start - stop, middle)
    if size_of(arg) < size_of(after):
        patches.append(Patch("splice", path, arg))
    else:
        patches.append(Patch("replace", path, after))


def _common_ends(before: tuple[Value, ...], after: tuple[Value, ...]) -> tuple[int, int]:
    """How many elements two arrays share at their start, and then at their end."""
    most = min(len(before), len(after))
    start = 0
    while start < most and equal(before[start], after[start]):
        start += 1
    stop = 0
    while stop < most - start and equal(before[-1 - stop], after[-1 - stop]):
        stop += 1
    return start, stop


def changed_fields(seen: MaybeValue, wanted: Value, at: Path = ()) -> Iterator[Path]:
    """Yield the places that have to be written to make `wanted` of `seen`: objects by key, other values as a whole."""
    if type(seen) is not dict or type(wanted) is not dict:
        yield at
        return
    yield from ((*at, key) for key in seen if key not in wanted)
    for key, item in wanted.items():
        if not equal(old := seen.get(key, ABSENT), item):
            yield from changed_fields(old, item, (*at, key))


def all_fields(value: MaybeValue, at: Path = ()) -> Iterator[Path]:
    """Yield the places of all values that are no objects."""
    if type(value) is dict:
        for key, item in value.items():
            yield from all_fields(item, (*at, key))
    elif value is not ABSENT:
        yield at


def field_patches(wanted: Value, places: Iterable[Path], now: MaybeValue) -> tuple[Patch, ...]:
    """Patches that put what `wanted` has at some places into `now`, also where that is equal or nothing is there.

    Where either value has no object above a place, the outermost such part is replaced as a whole.
    """
    if not _are_objects(wanted, now, ()):
        return (Patch("add", (), wanted),)
    patches: dict[Path, Patch] = {}
    for place in sorted(places, key=len):
        at = next((above for above in _prefixes(place) if not _are_objects(wanted, now, above)), place)
        if not any(above in patches for above in (*_prefixes(at), at)):
            item = lookup(wanted, at)
            # fault diff.removals_without_effect_left_out: if item is ABSENT is lookup(now, at): continue
            patches[at] = Patch("remove", at) if item is ABSENT else Patch("add", at, item)
            # A commit has an object by its fields, and leaves those out that are equal and not written themselves.
            # fault diff.equal_objects_left_out: inner = ()
            inner = all_fields(item, at) if type(item) is dict and type(lookup(now, at)) is dict else ()
            for field in inner:
                value = lookup(wanted, field)
                assert value is not ABSENT
                patches[field] = Patch("add", field, value)
    return tuple(patches.values())


def _prefixes(path: Path) -> list[Path]:
    """Return the places above a path, the outermost first."""
    return [path[:length] for length in range(len(path))]


def _are_objects(wanted: Value, now: MaybeValue, at: Path) -> bool:
    return type(lookup(wanted, at)) is dict and type(lookup(now, at)) is dict


def aligned(before: MaybeValue, after: Value) -> Value:
    """`after` as the patches of `diff` make it of `before`; `before` itself if they are equal.

    A patch adds a key behind those that are there: keys that stay keep their order, and new ones follow in the order of
    `after`. So the value that a writer is shown is the one that everybody else makes of its patches.
    """
    # fault+ diff.order_of_writer_kept: return after
    if before is after:
        return after
    if type(before) is dict and type(after) is dict:
        return _aligned_objects(before, after)
    if type(before) is tuple and type(after) is tuple:
        return _aligned_arrays(before, after)
    return after if before is ABSENT or not equal(before, after) else before


def _aligned_objects(before: dict[str, Value], after: dict[str, Value]) -> dict[str, Value]:
    made: dict[str, Value] = {}
    is_equal = len(before) == len(after)
    for key, item in after.items():
        old = before.get(key, ABSENT)
        made[key] = new = item if old is item or old is ABSENT else aligned(old, item)
        is_equal = is_equal and new is old
    if is_equal:
        return before
    kept = [key for key in before if key in made]
    if all(map(eq, kept, made)):
        return made
    return {**{key: made[key] for key in kept}, **made}


def _aligned_arrays(before: tuple[Value, ...], after: tuple[Value, ...]) -> tuple[Value, ...]:
    if len(before) == len(after):
        made = tuple(map(aligned, before, after))
        return before if all(map(is_, before, made)) else made
    start, stop = _common_ends(before, after)
    return (*before[:start], *after[start : len(after) - stop], *before[len(before) - stop :])
