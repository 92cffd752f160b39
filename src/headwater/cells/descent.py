"""Going down a stored path by the types that are declared along it, for whoever names a place by its path.

Only what has a name can be gone to: an entry of a Mapping, a field of a record. It reads nothing.
"""

from __future__ import annotations

from typing import Any

from headwater.cells.objects import JsonCodec, MappingCodec
from headwater.cells.records import RecordCodec
from headwater.cells.typecodec import TypeCodec
from headwater.data.path import Path, lookup, path_text
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError

__all__ = ["Astray", "descend", "reached"]


class Astray(AuthoringError):
    """Links that lead nowhere."""


def descend(codec: TypeCodec[Any], path: Path) -> TypeCodec[Any]:
    """The codec of what is at a path below what another codec is for."""
    for at, step in enumerate(path):
        below = _below(codec, step)
        if below is None:
            raise AuthoringError(f"there is no {path_text(path[: at + 1])} in {codec.expected}: name a key or a field")
        codec = below
    return codec


def reached(value: MaybeValue, path: Path) -> int:
    """How many steps lead to something that is stored."""
    for steps, each in enumerate(path):
        value = lookup(value, (each,))
        if value is ABSENT:
            return steps
    return len(path)


def _below(codec: TypeCodec[Any], step: str | int) -> TypeCodec[Any] | None:
    if isinstance(codec, JsonCodec):
        return codec
    if type(step) is not str:
        return None
    if isinstance(codec, MappingCodec):
        return codec.element
    if isinstance(codec, RecordCodec):
        return next((field.codec for field in codec.fields if field.stored == step), None)
    return None
