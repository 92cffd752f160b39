"""Room: how many bytes of documents one answer may hold, looked at while they are collected.

Sizes are about what a message needs for the values, and never far less. Also counts what was collected since it last
left, so that many answers that are made together do not wait for each other in memory. Never decides what becomes of a
peer whose answer has no room.
"""

from __future__ import annotations

from typing import Final

from headwater.data.patch import Patch
from headwater.data.value import size_of
from headwater.errors import LimitError
from headwater.protocol.messages import State

SMALL: Final = 256  # bytes of a change that is not worth counting: how many there may be is bounded as well


class Room:
    """The room of one answer at a time."""

    __slots__ = ("_held", "_left", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._held = 0

    def begin(self) -> None:
        """Collect another answer."""
        self._left = self._limit

    def take(self, size: int) -> None:
        """So many bytes more. LimitError: there is no room for them, and this answer cannot be made."""
        self._left -= size
        self._held += size
        if self._left < 0:
            raise LimitError(
                f"the documents of one answer are over {self._limit} bytes, which is the limit. "
                "Ask for fewer or smaller documents at once."
            )

    def of(self, state: State) -> State:
        """The same document, counted."""
        self.take(size_of(state.value))
        return state

    def is_spent(self) -> bool:
        """Whether as much was collected, since this was last said, as one answer may hold. Then it leaves first."""
        if self._held < self._limit:
            return False
        self._held = 0
        return True


def size_of_patches(patches: tuple[Patch, ...]) -> int:
    """About how many bytes a message needs for them."""
    return sum([8 + 8 * len(patch.path) + size_of(patch.arg) for patch in patches])
