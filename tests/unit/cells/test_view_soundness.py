"""Whatever a view handed out, its reads would have noticed any change that makes it hand out something else."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model
from headwater.cells.view import open_view
from headwater.data.address import Depth
from headwater.data.change import changed_touches, overlaps
from headwater.data.path import Path
from headwater.data.value import Value
from tests.counts import scaled
from tests.unit.cells.kinds import Box, Disc


class Leaf(Model):
    n: int = 0
    shape: Disc | Box | None = None


class Node(Model):
    name: str = ""
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()
    by_key: Mapping[str, Leaf] = {}
    numbers: tuple[int, ...] = ()
    loose: Json = None


CODEC = codec_for(Mapping[str, Node])
KEYS = ("a", "b")


def random_leaf(rng: random.Random) -> Value:
    shapes: tuple[Value, ...] = (
        None,
        {"radius": float(rng.randrange(2)), "$type": "Disc"},
        {"width": float(rng.randrange(2)), "height": 1.0, "$type": "Box"},
    )
    return {"n": rng.randrange(2), "shape": rng.choice(shapes)} if rng.random() < 0.8 else {}


def random_json(rng: random.Random) -> Value:
    match rng.randrange(4):
        case 0:
            return {rng.choice(KEYS): rng.randrange(2) for _ in range(rng.randrange(3))}
        case 1:
            return tuple(rng.randrange(2) for _ in range(rng.randrange(3)))
        case _:
            return rng.choice((None, 0, 1, "x"))


def random_node(rng: random.Random) -> Value:
    fields: dict[str, Value] = {
        "name": rng.choice(KEYS),
        "leaf": rng.choice((None, random_leaf(rng))),
        "leaves": tuple(random_leaf(rng) for _ in range(rng.randrange(3))),
        "by_key": {key: random_leaf(rng) for key in KEYS if rng.random() < 0.5},
        "numbers": tuple(rng.randrange(2) for _ in range(rng.randrange(3))),
        "loose": random_json(rng),
    }
    return {name: value for name, value in fields.items() if rng.random() < 0.8}


def random_nodes(rng: random.Random) -> dict[str, Value]:
    return {key: random_node(rng) for key in KEYS if rng.random() < 0.7}


def changed(nodes: dict[str, Value], rng: random.Random) -> Value:
    """The same with something else somewhere: a node comes, goes, or has one field changed."""
    after: dict[str, Any] = dict(nodes)
    key = rng.choice(KEYS)
    if key in after and rng.random() < 0.8:
        fresh: Any = random_node(rng)
        name = rng.choice(("name", "leaf", "leaves", "by_key", "numbers", "loose"))
        after[key] = {k: v for k, v in after[key].items() if k != name} | {k: v for k, v in fresh.items() if k == name}
    elif key in after:
        del after[key]
    else:
        after[key] = random_node(rng)
    return after


def kind(part: Any) -> str:
    """What can be told about something without looking inside it."""
    if part is None or isinstance(part, int | str | float):
        return repr(part)
    return str(part.__class__.__name__)


STEPS: dict[str, Callable[[Any, random.Random], Any]] = {
    "key": lambda part, rng: part[rng.choice(KEYS)],
    "get": lambda part, rng: part.get(rng.choice(KEYS)),
    "in": lambda part, rng: rng.choice(KEYS) in part,
    "index": lambda part, rng: part[rng.randrange(-2, 3)],
    "slice": lambda part, rng: part[rng.randrange(-2, 3) :],
    "len": lambda part, rng: len(part),
    "list": lambda part, rng: [each for each in part],  # noqa: C416  # list() would ask for the length
    "values": lambda part, rng: list(part.values()),
    "items": lambda part, rng: [value for _, value in sorted(part.items(), key=lambda item: str(item[0]))],
    "field": lambda part, rng: getattr(part, rng.choice(("name", "leaf", "leaves", "by_key", "numbers", "loose"))),
    "leaf field": lambda part, rng: getattr(part, rng.choice(("n", "shape", "radius", "width"))),
    "equal": lambda part, rng: part == rng.choice((Leaf(), {}, (), Disc(radius=1.0))),
}


USUAL = (("key", "values"), ("field",), ("index", "leaf field", "key", "list"), ("leaf field", "index"))
"""What applies at each depth; other steps are tried now and then."""


def look(view: Any, rng: random.Random) -> list[str]:
    """A random walk through a view, and all it told. What does not apply is told, too, by the error's class."""
    told: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 3))):  # Few, because what one walk reads hides what another forgets.
        part = view
        for depth in range(4):
            name = rng.choice(USUAL[depth] if rng.random() < 0.8 else tuple(STEPS))
            seed = rng.randrange(2**32)
            try:
                part = STEPS[name](part, random.Random(seed))
            except (KeyError, IndexError, TypeError, AttributeError) as error:
                told.append(type(error).__name__)
                continue
            if isinstance(part, list | tuple) and type(part) in (list, tuple):
                told.append(f"{name} {[kind(each) for each in part]}")
                part = part[0] if part else None
            else:
                told.append(f"{name} {kind(part)}")
    return told


@pytest.mark.random
def test_a_change_that_shows_is_always_among_the_reads() -> None:
    shown = 0
    for seed in range(scaled(40_000)):
        rng = random.Random(seed)
        before = random_nodes(rng)
        after = changed(before, rng)
        walk = rng.randrange(2**32)
        reads: list[tuple[Path, Depth]] = []
        told = look(
            open_view(CODEC, before, (), lambda path, depth, to=reads: to.append((path, depth))), random.Random(walk)
        )
        told_after = look(open_view(CODEC, after, (), lambda path, depth: None), random.Random(walk))
        if told == told_after:
            continue
        shown += 1
        touches = changed_touches(before, after)
        noticed = any(overlaps(touch, path, depth) for touch in touches for path, depth in reads)
        assert noticed, (seed, told, told_after, touches, reads)
    assert shown > scaled(40_000) // 50  # The walks do meet the changes.
