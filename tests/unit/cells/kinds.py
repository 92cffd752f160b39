"""Types for the tests of cells, and strategies for their values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Literal
from uuid import UUID

from hypothesis import strategies as st

from headwater.cells.model import Json, Model, field
from headwater.data.address import Link
from headwater.data.value import MAX_INT


class State(enum.Enum):
    OPEN = "open"
    DONE = "done"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Line(Model):
    sku: str
    cents: int
    qty: int = 1


class Card(Model):
    """Ten fields, all of which msgspec can decode by itself."""

    title: str
    column: str
    rank: str
    points: int
    weight: float
    done: bool
    state: State
    owner: str | None
    size: Literal["s", "m", "l"] = "m"
    version: int = 1


class Disc(Model):
    radius: float


class Box(Model):
    width: float
    height: float = 1.0


@dataclass(frozen=True)
class Point:
    x: int
    y: int = dataclass_field(default=0, metadata={"was": "vertical"})


class Tree(Model):
    name: str = field(was="label")
    kids: tuple[Tree, ...] = ()


class Everything(Model):
    line: Line
    lines: tuple[Line, ...]
    cards: Mapping[str, Card]
    by_level: Mapping[Level, int]
    by_number: Mapping[int, str]
    by_id: Mapping[UUID, date]
    shape: Disc | Box | None
    shapes: tuple[Disc | Box, ...]
    pair: tuple[int, Line]
    tags: frozenset[str]
    discs: frozenset[Disc]
    when: datetime
    day: date
    span: timedelta
    price: Decimal
    id: UUID
    data: bytes
    point: Point
    tree: Tree
    link: Link | None
    mode: Literal["auto"] | int | timedelta
    loose: Json
    renamed: str = field(default="", was="before")


texts = st.text(st.characters(codec="utf-8"), max_size=5)
ints = st.integers(-MAX_INT, MAX_INT)
floats = st.floats(allow_nan=False, allow_infinity=False)
lines = st.builds(Line, sku=texts, cents=ints, qty=ints)
cards = st.builds(
    Card,
    title=texts,
    column=texts,
    rank=texts,
    points=ints,
    weight=floats,
    done=st.booleans(),
    state=st.sampled_from(State),
    owner=st.none() | texts,
    size=st.sampled_from(("s", "m", "l")),
    version=ints,
)
discs = st.builds(Disc, radius=floats)
boxes = st.builds(Box, width=floats, height=floats)
trees = st.recursive(
    st.builds(Tree, name=texts),
    lambda kids: st.builds(Tree, name=texts, kids=st.lists(kids, max_size=3).map(tuple)),
    max_leaves=6,
)
json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | ints | floats | texts,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
moments = st.datetimes(timezones=st.just(UTC)) | st.datetimes(
    datetime(1, 1, 3),  # noqa: DTZ001  # hypothesis adds the zone
    datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.sampled_from((timezone(timedelta(hours=14)), timezone(timedelta(hours=-12, minutes=-30)))),
)
decimals = st.decimals(allow_nan=False, allow_infinity=False)


def tuples(of: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(of, max_size=4).map(tuple)


everything = st.builds(
    Everything,
    line=lines,
    lines=tuples(lines),
    cards=st.dictionaries(texts, cards, max_size=3),
    by_level=st.dictionaries(st.sampled_from(Level), ints),
    by_number=st.dictionaries(ints, texts, max_size=3),
    by_id=st.dictionaries(st.uuids(), st.dates(), max_size=3),
    shape=st.none() | discs | boxes,
    shapes=tuples(discs | boxes),
    pair=st.tuples(ints, lines),
    tags=st.frozensets(texts, max_size=4),
    discs=st.frozensets(discs, max_size=3),
    when=moments,
    day=st.dates(),
    span=st.timedeltas(),
    price=decimals,
    id=st.uuids(),
    data=st.binary(max_size=5),
    point=st.builds(Point, x=ints, y=ints),
    tree=trees,
    link=st.none() | st.just(Link(id="cart", path=("lines", 3))),
    mode=st.just("auto") | ints | st.timedeltas(),
    loose=json_values,
    renamed=texts,
)
