"""The inputs of a piece: whether two are the same, and how they are written down.

A handle is written down as a link to where it leads, so that a piece can be opened again without its maker. What leads
nowhere, a callback, is written down as the handler that it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.handle import Input
from headwater.data.address import address_text
from headwater.data.value import Value, freeze
from headwater.errors import AuthoringError
from headwater.pieces.handles import Handler
from headwater.runtime.binding.narrow import Narrow

if TYPE_CHECKING:
    from headwater.pieces.piece import Piece
    from headwater.runtime.core import Core

HANDLER: Final = "handler "
"""What a callback begins with where it is written down."""


def same_inputs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two makings of a piece pass the same handles."""
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, Narrow):
        return one.same(other)
    if isinstance(one, Input) and isinstance(other, Input):
        return type(one) is type(other) and one.document is other.document and one.path == other.path
    if isinstance(one, Handler) and isinstance(other, Handler):
        return one.same(other)
    return False


def described(core: Core, piece: Piece) -> Value:
    """What is stored of a child: its class, and where its inputs lead."""
    return freeze({"class": type(piece).__outline__.name, "inputs": written(core, piece.__inputs__)})


def written(core: Core, inputs: Mapping[str, Any]) -> Value:
    """Inputs as they are stored."""
    return freeze({name: _written(core, value) for name, value in sorted(inputs.items())})


def _written(core: Core, value: Any) -> Value:
    if _core_of(value) is not core:
        raise AuthoringError(f"{value!r} is of another runtime: give a piece handles of the runtime that it runs in")
    if isinstance(value, Input):
        return place_of(core, value)
    if isinstance(value, Handler):
        return f"{HANDLER}{value.sends.place(value.member)}"
    return repr(value)


def _core_of(value: Any) -> object:
    """The runtime that a handle is of."""
    if isinstance(value, Input):
        return value._host
    if isinstance(value, Handler):
        return value.sends.core
    return value.core if isinstance(value, Narrow) else None


def place_of(core: Core, handle: Input[Any]) -> str:
    """Where a handle leads, as text."""
    key = handle.document.key
    return address_text(key.scope, key.id, handle.path, space=core.space_of(handle.document).name)
