"""Which right somebody needs, for pages and for commands alike. Who has it is in the access document of a space."""

from __future__ import annotations

from typing import Any, Final

from headwater.cells.cell import Cell
from headwater.cells.descent import Astray
from headwater.cells.handle import Input
from headwater.data.address import SPACE_SCOPE
from headwater.engine.admission.access import Right
from headwater.errors import AccessError
from headwater.pieces.handles import Handler

__all__ = ["RIGHT_FOR", "check_way", "needed", "space_of", "write"]

RIGHT_FOR: Final = {"reader": Right.READ, "writer": Right.WRITE, "owner": Right.OWN}
"""What `allow=` of a handler asks for."""


def needed(handle: Input[Any], user: str, session: str, shared: Right) -> Right:
    """The right that somebody needs at a handle: `shared` in what all share, and none but their own in the rest.

    A piece may have been given the cell of a user: then it is that user's, whoever names the piece.
    """
    scope = handle.document.key.scope
    if scope == SPACE_SCOPE:
        return shared
    return Right.READ if scope in (f"user:{user}", f"session:{session}") else Right.OWN


def space_of(handle: Handler[..., Any]) -> str:
    """The space whose access document says who may send to a handler: its own, whichever piece was given it."""
    return handle.sends.place(handle.member).partition("/")[0]


def check_way(handle: Input[Any], user: str, session: str) -> None:
    """Whether links inside what somebody names lead to what they may see: what its space shares, or their own.

    A link is data, which anybody who may write may have put there, and the serving runtime could follow it anywhere.
    Called whenever something is read or written through the handle: where it leads may change.
    """
    found = handle.leads_to()
    if found is handle.document:
        return
    key = found.key
    is_open = key.scope in (SPACE_SCOPE, f"user:{user}", f"session:{session}")
    if found.home is not handle.document.home or not is_open or key.id.startswith("$"):
        raise AccessError(f"{handle!r} leads to what is not for {user!r}: name the place that the link points at")


def write(handle: Cell[Any], user: str, session: str, kind: str, *arguments: Any) -> None:
    """Inside a transaction: write for somebody through a handle, as far as links lead to what they may see.

    What stands in the cell itself they may replace, if it is a link that does not: nobody could mend it otherwise.
    """
    try:
        check_way(handle, user, session)
    except (AccessError, Astray):
        if kind not in ("set", "delete") or not handle.instead_of_link(*arguments):
            raise
    else:
        getattr(handle, kind)(*arguments)
