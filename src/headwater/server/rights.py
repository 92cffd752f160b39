"""Which right somebody needs, for pages and for commands alike. Who has it is in the access document of a space."""

from __future__ import annotations

from typing import Any, Final

from headwater.cells.handle import Input
from headwater.data.address import SPACE_SCOPE
from headwater.engine.access import Right

__all__ = ["RIGHT_FOR", "needed"]

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
