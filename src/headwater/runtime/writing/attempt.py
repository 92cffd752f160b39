"""One write over all its attempts: their number, the first conflict, the last conflict, and the current stage.

`classify` is the one place that maps a verdict to its meaning for the writer. A `RetriedWrite` is told of every attempt
and of every verdict at the moment it is received, before anything else happens; a caller that has to act at these
moments passes `WriteHooks`. A `RetriedWrite` never waits and never retries by itself.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from headwater.protocol.verdict import Collision, Conflict, PreconditionFailed, Rejection, RuleRefused

if TYPE_CHECKING:
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction

__all__ = ["Outcome", "RetriedWrite", "Stage", "WriteHooks", "classify"]

SESSION_GONE: Final = "session_gone"


class Outcome(Enum):
    """The meaning of a verdict for the writer."""

    SUCCESS = "success"
    STALE = "stale basis"  # another writer was faster: worth another attempt on the current state
    UNSENT = "unsent"  # the commit never left this process: made again, without a conflict
    PERMANENT = "permanent"  # a precondition is false for good: no retry
    TERMINAL = "terminal"  # a rule forbids it: no retry, and the failure is reported
    OTHER = "other"  # unknown whether it landed: no retry, and the failure is reported


def classify(rejection: Rejection | None, own: int) -> Outcome:
    """Return the outcome of commit `own` of a session after this verdict."""
    match rejection:
        case None:
            return Outcome.SUCCESS
        case Conflict(dead_layers=dead):
            return Outcome.UNSENT if dead == (own,) else Outcome.STALE
        case PreconditionFailed():
            return Outcome.PERMANENT
        case RuleRefused(rule=rule):
            return Outcome.OTHER if rule == SESSION_GONE else Outcome.TERMINAL
        case _:
            assert_never(rejection)


class Stage(Enum):
    """The current stage of a write."""

    QUEUED = "queued"  # waits for its turn
    RUNNING = "running"
    PARKED = "parked"  # waits until a node that it reads has run, or for its time
    LOADING = "loading"  # waits for a document that it reads
    SENT = "sent"  # committed here, without a verdict
    HELD = "held"  # waits for room: too many commits have no verdict
    BACKING_OFF = "backing off"  # met a conflict, and waits until a retry is useful
    ENDED = "ended"


class WriteHooks(Protocol):
    """Callbacks for every attempt of a write."""

    async def wait_for_lane(self) -> None:
        """Wait until the write may be tried. Nothing is awaited between this call and the attempt."""

    def made(self, transaction: Transaction) -> None:
        """Called after an attempt was committed here. If it was refused at once, `settled` was called before."""

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        """Called with the verdict at the moment it is received."""


class RetriedWrite:
    """One write, over all its attempts."""

    __slots__ = (
        "attempts",
        "backoff_us",
        "began_us",
        "conflicts",
        "hooks",
        "is_sure",
        "last",
        "next_us",
        "retries",
        "stage",
    )

    def __init__(self, retries: int | None = None, hooks: WriteHooks | None = None, *, is_sure: bool = False) -> None:
        self.retries = retries  # 0: not retried after a conflict; otherwise the window bounds retries
        self.hooks = hooks
        self.is_sure = is_sure  # it reads nothing, so no other writer can be faster
        self.attempts = 0  # commits made for this write
        self.conflicts = 0  # commits of these that lost against another writer
        self.began_us: int | None = None  # time of the first conflict, on the clock of connected time
        self.next_us = 0  # time of the next attempt, if known; 0: not known
        self.backoff_us = 0  # total delay of its attempts so far
        self.last: Conflict | None = None
        self.stage = Stage.QUEUED

    async def wait_for_lane(self) -> None:
        if self.hooks is not None:
            await self.hooks.wait_for_lane()

    def made(self, transaction: Transaction) -> None:
        if self.stage is Stage.RUNNING:
            self.stage = Stage.SENT
        if self.hooks is not None:
            self.hooks.made(transaction)

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        if classify(rejection, layer.local_seq) is Outcome.STALE:
            assert isinstance(rejection, Conflict)
            self.conflicts += 1
            self.last = rejection
        if rejection is not None:
            self.stage = Stage.BACKING_OFF
        if self.hooks is not None:
            self.hooks.settled(layer, rejection)

    def delayed(self, now_us: int, delay_us: int) -> None:
        """Record that the next attempt is made after a delay at the earliest."""
        self.next_us = now_us + delay_us
        self.backoff_us += delay_us

    def collision(self) -> Collision | None:
        """Return the address that the write last lost, and the winner."""
        return self.last.collisions[0] if self.last is not None and self.last.collisions else None
