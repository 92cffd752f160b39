"""Walks down a stored path beside the declared types.

`descend` finds the codec at a path: of an entry of a Mapping or a field of a record. `fill` finds the value that a
place reads as when nothing is stored there: the default of the cell or of a field on the way. A write below an implied
value has to store that value first; a write below a place that is neither stored nor implied is refused.
`deciding_places` names the places whose content decides that value, and `known_places` those that a written value
determines. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from headwater.cells.codec_base import CELL_LIMITS, Mismatch, TypeCodec
from headwater.cells.containers import JsonCodec, MappingCodec
from headwater.cells.records import Field, RecordCodec
from headwater.cells.unions import UnionCodec
from headwater.data.address import Depth
from headwater.data.path import Path, path_text
from headwater.data.value import ABSENT, MaybeValue, Value, equal, lookup
from headwater.errors import AuthoringError

__all__ = [
    "BrokenLinkError",
    "Filled",
    "Root",
    "count_stored_steps",
    "deciding_places",
    "descend",
    "fill",
    "is_required",
    "known_places",
]


class BrokenLinkError(AuthoringError):
    """Links that lead nowhere."""


def descend(codec: TypeCodec[Any], path: Path) -> TypeCodec[Any]:
    """Return the codec at a path below the place of another codec."""
    for at, step in enumerate(path):
        below = _codec_below(codec, step)
        if below is None:
            raise AuthoringError(f"there is no {path_text(path[: at + 1])} in {codec.expected}: name a key or a field")
        codec = below
    return codec


def count_stored_steps(value: MaybeValue, path: Path) -> int:
    """How many steps lead to something that is stored."""
    for steps, each in enumerate(path):
        value = lookup(value, (each,))
        if value is ABSENT:
            return steps
    return len(path)


def _codec_below(codec: TypeCodec[Any], step: str | int) -> TypeCodec[Any] | None:
    if isinstance(codec, JsonCodec):
        return codec
    if type(step) is not str:
        return None
    if isinstance(codec, MappingCodec):
        return codec.element
    if isinstance(codec, RecordCodec):
        return next((field.codec for field in codec.fields if field.stored == step), None)
    return None


class Root(NamedTuple):
    """The cell of a handle: its type, its default, and where it begins."""

    codec: TypeCodec[Any]
    default: MaybeValue
    path: Path = ()


class Filled(NamedTuple):
    """The value of a place, stored or implied; the values to store before it can be written; and how far the path
    leads.
    """

    value: MaybeValue
    puts: tuple[tuple[Path, Value], ...]
    reached: int


def fill(root: Root, raw: MaybeValue, path: Path) -> Filled:
    """Go down from the root of a cell, whose stored value is `raw`. Paths in the answer begin there."""
    codec: TypeCodec[Any] | None = root.codec
    implied = root.default
    puts: list[tuple[Path, Value]] = []
    at = raw
    for depth in range(len(path) + 1):
        if at is ABSENT:
            if implied is ABSENT and depth < len(path) and isinstance(codec, MappingCodec):
                implied = {}  # A Mapping is made by its first key, as a tuple is by its first element.
            if implied is ABSENT:
                return Filled(ABSENT, tuple(puts), depth)
            at = implied
            puts.append((path[:depth], at))
        if depth < len(path):
            codec, field = _below(codec, at, path[depth])
            at = lookup(at, path[depth : depth + 1])
            implied = _default_of(field, path[: depth + 1]) if at is ABSENT else ABSENT
    return Filled(at, tuple(puts), len(path))


def deciding_places(root: Root, raw: MaybeValue, path: Path) -> list[tuple[Path, Depth]]:
    """Return the places that decide the value of an unstored place, and the depth of each.

    Nothing is at the place itself, and nothing may be there afterwards: a change decides whether it is implied, because
    a value above it appears, vanishes or becomes another member of its union.
    """
    implied: list[MaybeValue] = [root.default]  # at each step of the way, if nothing were stored there
    codec: TypeCodec[Any] | None = root.codec
    places: list[tuple[Path, Depth]] = []
    may_be_any = False  # a value that is not stored may come as any member of a union
    at = raw
    for depth, step in enumerate(path):
        if isinstance(codec, UnionCodec):
            if at is ABSENT:
                may_be_any = True
            else:
                places += [(path[:depth] + place, much) for place, much in codec.deciding(at)]
        codec, field = _below(codec, at, step)
        at = lookup(at, (step,))
        implied.append(_default_of(field, path[: depth + 1]))
    missing = next(depth for depth in range(len(path) + 1) if lookup(raw, path[:depth]) is ABSENT)
    now = fill(root, raw, path).value
    if missing and any(not _same(lookup(implied[depth], path[depth:]), now) for depth in range(missing)):
        places.append((path[: missing - 1], Depth.SHAPE))  # If that vanishes, something else is implied, or nothing.
    if may_be_any or (not missing and now is not ABSENT) or any(each is not ABSENT for each in implied[missing + 1 :]):
        places.append((path[:missing], Depth.SHAPE))  # If it appears, its missing parts have a default, or are absent.
    return places


def _default_of(field: Field | None, path: Path) -> MaybeValue:
    return ABSENT if field is None or field.default is None else field.codec.encode(field.default(), path)


def _same(one: MaybeValue, other: MaybeValue) -> bool:
    return one is other or (one is not ABSENT and other is not ABSENT and equal(one, other))


def is_required(root: Root, raw: MaybeValue, path: Path) -> bool:
    """Whether a place is a field without a default: a record without it is no record."""
    field = _field_at(root, raw, path)
    return field is not None and field.default is None


def own_default(root: Root, raw: MaybeValue, path: Path) -> MaybeValue:
    """Return the default of the cell or field at a place. ABSENT: none, as for a key of a Mapping."""
    return _default_of(_field_at(root, raw, path), path) if path else root.default


def _field_at(root: Root, raw: MaybeValue, path: Path) -> Field | None:
    """Return the field that the last step of a path names, in a cell whose value is `raw`."""
    codec: TypeCodec[Any] | None = root.codec
    field: Field | None = None
    for depth, step in enumerate(path):
        codec, field = _below(codec, lookup(raw, path[:depth]), step)
    return field


def _below(codec: TypeCodec[Any] | None, at: MaybeValue, step: str | int) -> tuple[TypeCodec[Any] | None, Field | None]:
    """The type one step further down, and the field that the step names, if it does."""
    if isinstance(codec, UnionCodec):
        if at is ABSENT:  # Any of its classes may come: the first that has such a field tells.
            found = [_below(each, at, step) for each in codec.members if isinstance(each, RecordCodec)]
            return next((each for each in found if each[1] is not None), (None, None))
        codec = _member(codec, at)
    if isinstance(codec, RecordCodec):
        for field in codec.fields:
            if field.stored == step:
                return field.codec, field
    elif isinstance(codec, MappingCodec):
        return codec.element, None
    elif isinstance(codec, JsonCodec):
        return codec, None
    return None, None


def known_places(codec: TypeCodec[Any], raw: Value, path: Path) -> list[tuple[Path, Depth]]:
    """The places that a value of a type decides, and how much of them: fields that the type does not know are not among
    them. Of a Mapping also which keys there are. More than there are if there are many, never fewer."""
    found = list(islice(_known(codec, raw, path), CELL_LIMITS.known_places + 1))
    return found if len(found) <= CELL_LIMITS.known_places else [(path, Depth.DEEP)]


def _known(codec: TypeCodec[Any] | None, raw: MaybeValue, path: Path) -> Iterator[tuple[Path, Depth]]:
    if isinstance(codec, UnionCodec) and len(codec.records) < 2 and raw is not ABSENT:
        codec = _member(codec, raw)
    if type(raw) is not dict or not isinstance(codec, (RecordCodec, MappingCodec, JsonCodec)):
        yield path, Depth.DEEP
        return
    if not isinstance(codec, RecordCodec) or not codec.keeps or not codec.fields:
        yield path, Depth.SHAPE
    stored = [field.stored for field in codec.fields] if isinstance(codec, RecordCodec) else list(raw)
    for step in stored:
        # A field that was deleted is not stored, and has its default.
        yield from _known(_below(codec, raw, step)[0], raw.get(step, ABSENT), (*path, step))


def _member(codec: UnionCodec, raw: Value) -> TypeCodec[Any] | None:
    try:
        return codec.member(raw)
    except Mismatch:
        return None  # The stored value has no type that is known here.
