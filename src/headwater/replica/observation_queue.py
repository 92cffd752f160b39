"""The queue of observations of runs that the session has still to send to the engine.

The observation of a run that wrote a value travels with its commit, also when the commit is replayed. The observation
of a run that changed nothing waits for the next frame, so that it costs no message and no store transaction of its own;
`Session.tell_runs` sends it without a frame if many wait or a caller asks. An observation that a lost connection takes
with it is not sent again: its node is unknown to the engine, and runs again. Decides nothing about nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.value import MAX_INT
from headwater.protocol.messages import Transact
from headwater.protocol.observations import ForeignRead, Layers, Observation
from headwater.replica.limits import DEFAULT_REPLICA_LIMITS, ReplicaLimits

Cause = int | tuple[DocKey, Path] | None


class ObservationQueue:
    """The observations of one session. While `is_on` is False, none are recorded."""

    __slots__ = ("_limits", "_made", "_noted", "_order", "is_on")

    def __init__(self, limits: ReplicaLimits = DEFAULT_REPLICA_LIMITS) -> None:
        self._limits = limits
        self.is_on = False
        self._order = 0  # the number of the last recorded run
        self._made: dict[int, Observation] = {}  # by `local_seq` of a commit without a verdict
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
        """Record the run that made the commit `local_seq`, before the commit is sent."""
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
        """Record a run that changed nothing. Its reads saw the confirmed state at `seq`, and `layers`, one for each."""
        if self.is_on:
            self._order += 1
            under = layers if any(layers) else ()
            self._wait(Observation(about, footprint, self._order, 0, seq, under, failed, cause, foreign, took_us))

    def gone(self, about: bytes, seq: int) -> None:
        """Record that a node does not exist any more as of `seq`; all nodes of a piece, if `about` names no member."""
        if self.is_on:
            self._order += 1
            self._wait(Observation(about, b"", self._order, 0, seq, gone=True))

    def _wait(self, run: Observation) -> None:
        if len(self._noted) >= self._limits.noted_waiting:
            # Without a connection none are taken; a dropped one counts as never made.
            del self._noted[: self._limits.noted_runs]
        self._noted.append(run)

    # ---- sending ---------------------------------------------------------------------------------

    @property
    def are_many(self) -> bool:
        return len(self._noted) >= self._limits.noted_runs

    def taken(self, before: int = MAX_INT) -> tuple[Observation, ...]:
        """Take out the observations that stand on no commit from number `before` on. The caller sends them.

        An observation is sent after every commit that it stands on: the engine could not resolve the number earlier.
        """
        noted = [run for run in self._noted if _last_of(run) < before]
        self._noted = [] if len(noted) == len(self._noted) else [run for run in self._noted if _last_of(run) >= before]
        return tuple(noted)

    def with_frame(self, frame: Transact, *, again: bool = False) -> Transact:
        """Add the observations of a frame's commits and, unless the frame is sent again, those that wait for one."""
        noted = () if again else self.taken(frame.commits[0].local_seq)
        runs = [self._made[commit.local_seq] for commit in frame.commits if commit.local_seq in self._made]
        return msgspec.structs.replace(frame, observations=(*noted, *runs)) if noted or runs else frame

    def ended(self, local_seq: int) -> None:
        """Forget the observation of a commit that has its verdict: the engine has stored or discarded it."""
        if self._made:
            self._made.pop(local_seq, None)

    def only(self, local_seqs: Iterable[int]) -> None:
        """Forget the observations of all commits except these: the others will not be sent any more."""
        if self._made:
            kept = set(local_seqs)
            self._made = {number: run for number, run in self._made.items() if number in kept}


def _last_of(run: Observation) -> int:
    """Return the number of the last own commit that the run stands on; 0 if there is none."""
    return max([span[1] for spans in run.layers for span in spans], default=0)
