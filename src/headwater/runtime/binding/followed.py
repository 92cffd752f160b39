"""A space that is followed for the pieces of it that sleep here: which those are, and how far its log was looked at.

Owns the record. Asks nobody, and decides nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.protocol.observations import WholePiece

if TYPE_CHECKING:
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.at_once import Loads
    from headwater.runtime.binding.home import Home
    from headwater.runtime.space import LocalSpace


@dataclass(slots=True, eq=False)
class Followed:
    """One space: which of its pieces sleep here, and how far the log was looked through for them."""

    local: LocalSpace
    channel: Attached
    through: int = 0
    newest: int = 0  # a commit that wrote what nodes read
    wholes: dict[str, WholePiece] | None = None  # those that were not opened here yet
    homes: dict[str, Home] = field(default_factory=dict)
    waking: int = 0  # how much of what was written is being looked at
    is_looking: bool = False
    task: asyncio.Task[None] | None = None  # what looks through it
    places: list[str] = field(default_factory=list)  # the pieces that were clean, one behind the other,
    order: dict[str, int] = field(default_factory=dict)  # and where each of them is
    ahead: int = 0  # pieces whose cells are asked for before they are opened; less than none: never again
    roused: dict[str, bool] = field(default_factory=dict)  # whose effects are here; False: they are on their way
    loads: Loads | None = None  # what is about to be asked for
    asked: asyncio.Future[int | None] | None = None  # where the log ends: the question that is about to be sent

    @property
    def last(self) -> int:
        """The last commit that is known here."""
        replica = self.local.replica
        return max([self.newest, replica.confirmed.seq, *(layer.seq for layer in replica.pending.live())])

    def is_quiet(self) -> bool:
        """Everything that is known here to be written was looked at, or nobody can be asked."""
        if self.waking:
            return False
        if not self.homes or not self.channel.is_up():
            return True
        return self.through >= self.last and not self.local.replica.pending.waiting()
