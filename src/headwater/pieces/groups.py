"""What the groups of a `fold` are, from its `by=`: the type that decides how they are stored as keys.

A function that says what it returns is believed. One that only names a field, as most do, is run on a recorder instead
of an element: the field's type is that of the groups. Of any other nobody knows before it has been called, and its
groups are taken for texts. Never calls an author's function with data.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

from headwater.cells.arrays import TupleCodec
from headwater.cells.codec import codec_for
from headwater.cells.entries import KeyCodec
from headwater.cells.objects import MappingCodec
from headwater.cells.scalars import FloatCodec
from headwater.cells.selector import Selector
from headwater.cells.typecodec import TypeCodec
from headwater.data.text import shown
from headwater.errors import AuthoringError
from headwater.pieces.annotations import annotations_of

_KEYS = (str, int, enum.Enum, date, Decimal)
"""What can be a key. A datetime is a date, too."""


def by_group(by: Callable[..., Any], source: TypeCodec[Any], kind: TypeCodec[Any]) -> TypeCodec[Any]:
    """How a fold by groups is stored whose annotation does not say it: what it goes over, and what it adds up to."""
    found = _returned(by) or _named(by, source)
    keys = found if found is not None and _is_key(found) else codec_for(str)
    return MappingCodec(KeyCodec(keys), kind)


def _is_key(codec: TypeCodec[Any]) -> bool:
    return codec.kinds == {str} or (codec.kinds <= {int, float} and not isinstance(codec, FloatCodec))


def _returned(by: Callable[..., Any]) -> TypeCodec[Any] | None:
    """What it says that it returns."""
    try:
        if "return" not in annotations_of(by):
            return None
        return codec_for(typing.get_type_hints(by)["return"])
    except (AttributeError, AuthoringError, NameError, TypeError):
        return None


def _named(by: Callable[..., Any], source: TypeCodec[Any]) -> TypeCodec[Any] | None:
    """The type of the field that it names, if it does nothing else."""
    if not isinstance(source, (TupleCodec, MappingCodec)):
        return None
    try:
        return Selector().select(source.element, by).codec
    except Exception:  # It does more than to name something. What it does with an element is seen when it has one.
        return None


def instead(name: str, group: object, kind: str) -> str:
    """What to write if a group is of another type than it was taken for."""
    if isinstance(group, _KEYS) and not isinstance(group, bool):
        return f"{name}: Computed[Mapping[{type(group).__name__}, {kind}]] = fold(...)"
    return f"by= so that it answers a text, an int, an enum or a date, and not {shown(group)}"
