"""`link(handle)`: a value that can be stored, and points at a cell or a piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headwater.cells.handle import Input
from headwater.data import link as links
from headwater.errors import AuthoringError
from headwater.pieces.piece import Piece

__all__ = ["Link", "link"]

T = TypeVar("T")

T_co = TypeVar("T_co", covariant=True)

if TYPE_CHECKING:

    class Link(links.Link, Generic[T_co]):
        """A value that points at a piece or a cell; store it in a Model or a cell, follow it with ctx.follow."""

    def link(target: T, /) -> Link[T]: ...

else:
    Link = links.Link

    def link(target: Any, /) -> Link:
        """What `ctx.follow` makes the handle or the piece of again. It names its space: it can be stored anywhere."""
        if isinstance(target, Piece) and target.__bound__ is not None:
            return target.__bound__.link()
        if isinstance(target, Input):
            return target.link()
        raise AuthoringError(f"link({target!r}): write link(piece) or link(piece.cell)")
