"""Values, paths and patches for the tests of the data layer: seeded loops for volume, strategies for laws.

A loop over `random.Random` tries a hundred thousand values in seconds and repeats from its seed. Hypothesis
tries fewer, and shrinks what fails.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from hypothesis import strategies as st

from headwater.data.address import Depth, Link
from headwater.data.patch import KINDS, Patch
from headwater.data.path import Path
from headwater.data.value import ABSENT, MAX_INT, MaybeValue, Value, lookup

# Few keys, so that random documents and random paths meet; the last ones need care in some encoding.
KEYS = (
    "a",
    "b",
    "c",
    "items",
    "3",
    "$bytes",
    "$link",
    "$$x",
    "",
    "a/b",
    "~1",
    '"',
    "é",
    "\ufb33",
    "\U0001f600",
)
_TEXTS = ("", "x", "plain", "$bytes", 'q"\\/', "\b\f\n\r\t\x00\x1f\x7f", "\u2028\u20ac", "\U0001f602", "דּ")
_FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    1e-6,
    1e-7,
    9.99e20,
    1e21,
    1e22,
    5e-324,
    1.7976931348623157e308,
    2.0**53,
)
_INTS = (0, 1, -1, 2, 127, 128, -33, 2**31, MAX_INT, -MAX_INT)


def random_number(rng: random.Random) -> int | float:
    choice = rng.randrange(8)
    if choice == 0:
        return rng.choice(_FLOATS)
    if choice == 1:
        return rng.choice(_INTS)
    if choice == 2:
        return rng.randint(-MAX_INT, MAX_INT)
    if choice == 3:
        return round(rng.uniform(-1000, 1000), 2)
    if choice == 4:
        return rng.uniform(1, 10) * 10.0 ** rng.randint(-30, 30)
    if choice == 5:
        return random_double(rng)
    return rng.randint(-3, 3)


def random_double(rng: random.Random) -> float:
    """Any finite double, by its bits."""
    while True:
        (number,) = struct.unpack("<d", rng.randbytes(8))
        if number - number == 0:
            return float(number)


def random_text(rng: random.Random) -> str:
    choice = rng.randrange(4)
    if choice == 0:
        return rng.choice(_TEXTS)
    if choice == 1:
        return "".join([chr(rng.choice((rng.randrange(0x20, 0x7F), rng.randrange(0xE000, 0x11000)))) for _ in "12"])
    return rng.choice(("red", "green", "blue"))


def random_key(rng: random.Random) -> str:
    return rng.choice(KEYS) if rng.random() < 0.9 else random_text(rng)


def random_link(rng: random.Random) -> Link:
    path = tuple([rng.choice((rng.randrange(5), random_key(rng))) for _ in range(rng.randrange(3))])
    return Link(
        rng.choice((None, "shop")),
        rng.choice(("space", "user:ann", "session:1")),
        rng.choice(("cart", "x/y#z")),
        path,
    )


def random_scalar(rng: random.Random, *, json_only: bool = False) -> Value:
    choice = rng.randrange(8)
    if choice < 3:
        return random_number(rng)
    if choice < 5:
        return random_text(rng)
    if choice == 5:
        return rng.choice((None, True, False))
    if choice == 6 or json_only:
        return rng.choice((0, 1, True, False, 1.0))
    return rng.choice((rng.randbytes(rng.randrange(4)), random_link(rng)))


def random_value(rng: random.Random, depth: int = 3, *, json_only: bool = False) -> Value:
    choice = rng.randrange(10)
    if depth == 0 or choice < 4:
        return random_scalar(rng, json_only=json_only)
    count = rng.randrange(5)
    if choice < 8:
        keys = [random_key(rng) for _ in range(count)]
        return {key: random_value(rng, depth - 1, json_only=json_only) for key in keys}
    return tuple([random_value(rng, depth - 1, json_only=json_only) for _ in range(count)])


def random_container(rng: random.Random, depth: int = 3, *, json_only: bool = False) -> Value:
    """A value that is mostly a container, so that there is something to patch."""
    for _ in range(6):
        value = random_value(rng, depth, json_only=json_only)
        if type(value) in (dict, tuple) and value:
            return value
    return {}


def mutated(rng: random.Random, value: Value, *, json_only: bool = False) -> Value:
    """A value that shares much with `value` and differs somewhere, most of the time."""
    if rng.random() < 0.15 or (type(value) is not dict and type(value) is not tuple):
        return random_value(rng, 2, json_only=json_only)
    if type(value) is dict:
        copy = dict(value)
        for key in list(copy):
            choice = rng.random()
            if choice < 0.2:
                del copy[key]
            elif choice < 0.5:
                copy[key] = mutated(rng, copy[key], json_only=json_only)
        if rng.random() < 0.4:
            copy[random_key(rng)] = random_value(rng, 1, json_only=json_only)
        return copy
    items = list(value)
    start = rng.randrange(len(items) + 1)
    stop = rng.randint(start, len(items))
    items[start:stop] = [random_value(rng, 1, json_only=json_only) for _ in range(rng.randrange(3))]
    return tuple(items)


def all_paths(value: MaybeValue, path: Path = ()) -> Iterator[Path]:
    """Every path of the value, and one below each place that does not exist."""
    if value is ABSENT:
        return
    yield path
    if type(value) is dict:
        for key, item in value.items():
            yield from all_paths(item, (*path, key))
        yield (*path, "nowhere")
    elif type(value) is tuple:
        for index, item in enumerate(value):
            yield from all_paths(item, (*path, index))
        yield (*path, len(value))
    else:
        yield (*path, "nowhere")


def random_path(rng: random.Random, value: MaybeValue) -> Path:
    """A path that mostly exists in the value, or ends one step beside it."""
    path: Path = ()
    while rng.random() < 0.8:
        if type(value) is dict:
            key = rng.choice(tuple(value)) if value and rng.random() < 0.75 else random_key(rng)
            path, value = (*path, key), value.get(key, ABSENT)
        elif type(value) is tuple:
            index = rng.randrange(len(value) + 1)
            path, value = (*path, index), value[index] if index < len(value) else ABSENT
        elif rng.random() < 0.2:
            path, value = (*path, "nowhere"), ABSENT
        else:
            break
    return path


def path_to(rng: random.Random, value: MaybeValue, kinds: tuple[type, ...]) -> Path:
    """A path to something of one of the types, mostly; or any path."""
    fitting = [path for path in all_paths(value) if type(lookup(value, path)) in kinds]
    return rng.choice(fitting) if fitting and rng.random() < 0.8 else random_path(rng, value)


def random_patch(rng: random.Random, value: MaybeValue) -> Patch:
    """A patch of any kind. It mostly fits the value."""
    kind = rng.choice(KINDS)
    if kind in ("replace", "add", "remove"):
        arg = None if kind == "remove" else random_value(rng, 1)
        return Patch(kind, random_path(rng, value), arg)
    if kind == "increment":
        return Patch(kind, path_to(rng, value, (int, float)), rng.choice((0, 1, -2, 0.5, 1e308, MAX_INT)))
    path = path_to(rng, value, (tuple,))
    array = lookup(value, path)
    inside = array if isinstance(array, tuple) and array else (None,)
    items = tuple([random_value(rng, 1) for _ in range(rng.randrange(3))])
    if kind == "splice":
        index = rng.randint(0, len(inside))
        return Patch(kind, path, (index, rng.randint(0, len(inside) - index), items))
    if kind == "append":
        return Patch(kind, path, (items, rng.choice((None, None, 0, 1, 3))))
    return Patch(kind, path, rng.choice((*inside, random_value(rng, 1))))


def all_reads(before: MaybeValue, after: MaybeValue) -> list[tuple[Path, Depth]]:
    """Every read that could be made of either value."""
    paths = {*all_paths(before), *all_paths(after), ()}
    return [(path, depth) for path in paths for depth in Depth]


texts = st.text(max_size=12)
paths = st.lists(st.one_of(texts, st.integers(0, 2**53 - 1)), max_size=5).map(tuple)
names = st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20)
spaces = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
scopes = st.one_of(st.just("space"), names.map("user:{}".format), names.map("session:{}".format))
links = st.builds(Link, st.none() | spaces, scopes, names, paths)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-MAX_INT, MAX_INT),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.binary(max_size=8),
    links,
)
keys = st.one_of(texts, texts.map("${}".format))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4).map(tuple), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)
