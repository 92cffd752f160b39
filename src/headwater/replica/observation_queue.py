"""What was observed of runs and is on its way to the engine: with the commits they made, or in front of the next frame.

A run that wrote something travels with its commit, also when that is replayed. One that changed nothing waits for the
next frame, so that it costs no message and no store transaction of its own, unless many wait or somebody asks. What a
lost connection takes with it is lost: its node is unknown then, and runs again. Decides nothing about nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.value import MAX_INT
from headwater.protocol.messages import Transact
from headwater.protocol.observations import ForeignRead, Layers, Observation

MOST_NOTED: Final = 512
"""Runs that changed nothing and wait for a frame; with more of them, they leave without one."""

MOST_WAITING: Final = 8 * MOST_NOTED
"""The same, of which the first are dropped when there are more."""

Cause = int | tuple[DocKey, Path] | None


class ObservationQueue:
    """The observations of one session. Until `is_on`, none are made."""

    __slots__ = ("_made", "_noted", "_order", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        self._order = 0  # of the last run
        self._made: dict[int, Observation] = {}  # by the commit that has no verdict yet
        self._noted: list[Observation] = []

    def ran(
        self,
        local_seq: int,
        about: bytes,
        footprint: bytes,
        *,
        failed: str = "",
        cause: Cause = None,
        foreign: tuple[ForeignRead, ...] = (),
        took_us: int = 0,
    ) -> None:
        """A run made the commit with this number, which was not sent yet."""
        if self.is_on:
            self._order += 1
            self._made[local_seq] = Observation(
                about, footprint, self._order, local_seq, 0, (), failed, cause, foreign, took_us
            )

    def noted(
        self,
        about: bytes,
        footprint: bytes,
        seq: int,
        layers: tuple[Layers, ...] = (),
        *,
        failed: str = "",
        cause: Cause = None,
        foreign: tuple[ForeignRead, ...] = (),
        took_us: int = 0,
    ) -> None:
        """A run changed nothing. Its reads saw what was confirmed at a seq, and these layers, one entry for each."""
        if self.is_on:
            self._order += 1
            under = layers if any(layers) else ()
            self._wait(Observation(about, footprint, self._order, 0, seq, under, failed, cause, foreign, took_us))

    def gone(self, about: bytes, seq: int) -> None:
        """A node is no more, as of a seq; or all nodes of a piece, if no member is named."""
        if self.is_on:
            self._order += 1
            self._wait(Observation(about, b"", self._order, 0, seq, gone=True))

    def _wait(self, run: Observation) -> None:
        if len(self._noted) >= MOST_WAITING:
            del self._noted[:MOST_NOTED]  # Without a connection they are not taken: then these are as if never told.
        self._noted.append(run)

    # ---- on their way ----------------------------------------------------------------------------

    @property
    def are_many(self) -> bool:
        return len(self._noted) >= MOST_NOTED

    def taken(self, before: int = MAX_INT) -> tuple[Observation, ...]:
        """What waits for no commit from a number on. Whoever takes it sends it.

        A run that stands on a commit is told behind it: in front of it nobody could know what it stood on.
        """
        noted = [run for run in self._noted if _last_of(run) < before]
        self._noted = [] if len(noted) == len(self._noted) else [run for run in self._noted if _last_of(run) >= before]
        return tuple(noted)

    def with_frame(self, frame: Transact, *, again: bool = False) -> Transact:
        """A frame with what was observed of its commits, and, unless it is sent again, with what waited for one."""
        noted = () if again else self.taken(frame.commits[0].local_seq)
        runs = [self._made[commit.local_seq] for commit in frame.commits if commit.local_seq in self._made]
        return msgspec.structs.replace(frame, observations=(*noted, *runs)) if noted or runs else frame

    def ended(self, local_seq: int) -> None:
        """The commit has its verdict: what was observed of it is stored, or was for nothing."""
        if self._made:
            self._made.pop(local_seq, None)

    def only(self, local_seqs: Iterable[int]) -> None:
        """Commits that are not among these will not be sent any more."""
        if self._made:
            kept = set(local_seqs)
            self._made = {number: run for number, run in self._made.items() if number in kept}


def _last_of(run: Observation) -> int:
    """The last own commit that it stands on; 0: none."""
    return max([span[1] for spans in run.layers for span in spans], default=0)
