"""Random documents, patches and reads for schedules: small, so that writers meet often.

Everything is drawn from the source that is handed in, so that a schedule can be repeated from its seed. A drawn patch
or read fits the value that it is drawn for, except where the name says otherwise.
"""

from __future__ import annotations

from typing import Final

from headwater.clock import Random
from headwater.data.address import Depth, DocKey
from headwater.data.patch import (
    Patch,
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
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, Value, lookup

LIST: Final = DocKey("space", "c")
"""A document that is an array itself: elements that move under their readers are the hardest part of C1."""

DOCS: Final = (DocKey("space", "a"), DocKey("space", "b"), LIST, DocKey("user:ann", "a"))
_SCALARS: Final[tuple[Value, ...]] = (0, 1, 2, 3, "a", "b", "c", None, True, 1.5)
_KEYS: Final = ("x", "y", "n", "l", "o")


def scalar(rng: Random) -> Value:
    return rng.choice(_SCALARS)


def array(rng: Random) -> tuple[Value, ...]:
    return tuple([scalar(rng) for _ in range(rng.randrange(5))])


def document(rng: Random, doc: DocKey) -> Value:
    """Mostly an object with a number, an array, an object and scalars; sometimes something plain."""
    roll = rng.random()
    if roll < 0.06 or (doc == LIST and roll < 0.9):
        return array(rng)
    if roll < 0.1:
        return scalar(rng)
    whole: dict[str, Value] = {
        "x": scalar(rng),
        "n": rng.randrange(4),
        "l": array(rng),
        "o": {"x": scalar(rng), "l": array(rng)},
    }
    return {key: item for key, item in whole.items() if rng.random() < 0.85}


def paths_in(value: MaybeValue) -> list[Path]:
    """Every place in a value, the root first."""
    found: list[Path] = []
    stack: list[tuple[Path, MaybeValue]] = [((), value)]
    while stack:
        path, node = stack.pop()
        found.append(path)
        if isinstance(node, dict):
            stack.extend(((*path, key), item) for key, item in node.items())
        elif isinstance(node, tuple):
            stack.extend(((*path, index), item) for index, item in enumerate(node))
    return found


def patches(rng: Random, value: MaybeValue, doc: DocKey) -> tuple[Patch, ...]:
    """One to three patches in a row, or a change and its undoing."""
    if value is not ABSENT and rng.random() < 0.05:
        path = rng.choice(paths_in(value))
        return (replace(path, "changed"), replace(path, lookup(value, path)))
    drawn: list[Patch] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        drawn.append(patch(rng, value, doc))
        value = apply(value, drawn[-1])[0]
    return tuple(drawn)


def patch(rng: Random, value: MaybeValue, doc: DocKey) -> Patch:
    """One patch that applies to the value."""
    if value is ABSENT:
        roll = rng.random()
        if roll < 0.85:
            return add((), document(rng, doc)) if roll < 0.6 else replace((), document(rng, doc))
        return append((), array(rng)) if roll < 0.92 else increment(())
    if rng.random() < 0.05:
        return remove(())
    path = () if doc == LIST and rng.random() < 0.5 else rng.choice(paths_in(value))
    current = lookup(value, path)
    if isinstance(current, dict):
        return _patch_of_object(rng, path, current)
    if isinstance(current, tuple):
        return _patch_of_array(rng, path, current)
    return _patch_of_scalar(rng, path, current)


def misfit(rng: Random, value: MaybeValue) -> Patch:
    """One patch that may not apply at all."""
    path = (*rng.choice(paths_in(value)), *rng.choice(((), (rng.choice(_KEYS),), (rng.randrange(3),))))
    makers = (
        lambda: replace(path, scalar(rng)),
        lambda: remove(path),
        lambda: splice(path, rng.randrange(3), rng.randrange(3), array(rng)),
        lambda: increment(path),
        lambda: append(path, array(rng)),
    )
    return rng.choice(makers)()


def _patch_of_object(rng: Random, path: Path, current: dict[str, Value]) -> Patch:
    key = rng.choice(_KEYS)
    at = (*path, key)
    there = current.get(key, ABSENT)
    roll = rng.random()
    if roll < 0.2:
        other = {**current, key: scalar(rng)}
        return replace(path, other)
    if roll < 0.4 and there is not ABSENT:
        return remove(at)
    if roll < 0.55 and (there is ABSENT or (isinstance(there, int | float) and not isinstance(there, bool))):
        return increment(at, rng.choice((0, 1, 1, 2, -1)))
    if roll < 0.7 and (there is ABSENT or isinstance(there, tuple)):
        return append(at, array(rng), rng.choice((None, None, 2)))
    return add(at, rng.choice((scalar(rng), array(rng), {"x": scalar(rng)})))


def _patch_of_array(rng: Random, path: Path, current: tuple[Value, ...]) -> Patch:
    roll = rng.random()
    if roll < 0.25:
        return append(path, array(rng)[:2])
    if roll < 0.35:
        return append(path, array(rng)[:2], rng.randrange(1, 5))
    if roll < 0.43:
        return add_unique(path, scalar(rng))
    if roll < 0.5:
        return add_sorted(path, scalar(rng))
    if roll < 0.62:
        return remove_value(path, scalar(rng))
    if roll < 0.8:
        start = rng.randrange(len(current) + 1)
        return splice(path, start, rng.randrange(len(current) - start + 1), array(rng)[:2])
    if roll < 0.92 and current:
        return replace((*path, rng.randrange(len(current))), scalar(rng))
    return replace(path, array(rng))


def _patch_of_scalar(rng: Random, path: Path, current: MaybeValue) -> Patch:
    roll = rng.random()
    if roll < 0.3 and isinstance(current, int | float) and not isinstance(current, bool):
        return increment(path, rng.choice((0, 1, 1, 2, -1)))
    if roll < 0.4 and path and isinstance(path[-1], str):
        return remove(path)
    if roll < 0.5 and current is not ABSENT:
        return replace(path, current)  # A write that changes nothing.
    if roll < 0.6:
        return replace(path, rng.choice((array(rng), {"x": scalar(rng)})))
    return replace(path, scalar(rng))


def place(rng: Random, value: MaybeValue) -> tuple[Path, Depth]:
    """An address to read: mostly something that is there, sometimes one step past it."""
    paths = paths_in(value)
    path = rng.choice(paths[1:] or paths) if isinstance(value, tuple) else rng.choice(paths)
    if rng.random() < 0.2:
        path = (*path, rng.choice(_KEYS) if rng.random() < 0.6 else rng.randrange(4))
    return path, rng.choice((Depth.DEEP, Depth.DEEP, Depth.SHAPE))
