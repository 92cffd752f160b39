"""One write, however often it is tried: how often that was, since when, against what, and what its end will be.

`classify` is the one place that says what a verdict means for whoever wrote. An effort is told of every attempt and of
every verdict the moment it is heard, before anything else happens; whoever has something to do then gives it a
`WriteHooks`. It never waits and never tries anything by itself.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from headwater.protocol.verdict import Collision, Conflict, PreconditionFailed, Rejection, RuleRefused

if TYPE_CHECKING:
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction

__all__ = ["Outcome", "Stage", "WriteAttempt", "WriteHooks", "classify"]

SESSION_GONE: Final = "session_gone"


class Outcome(Enum):
    """What a verdict means."""

    SUCCESS = "success"
    STALE = "stale basis"  # somebody was faster: worth another attempt on what is there now
    UNSENT = "unsent"  # it never left this process: made again, and nobody was in the way
    PERMANENT = "permanent"  # a precondition is false for good: never again
    TERMINAL = "terminal"  # a rule forbids it: never again, and somebody should know
    OTHER = "other"  # nobody knows whether it landed: never again, loudly


def classify(rejection: Rejection | None, own: int) -> Outcome:
    """What becomes of commit `own` of a session after this verdict."""
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
    """How far an effort is."""

    QUEUED = "queued"  # for its turn
    RUNNING = "running"
    PARKED = "parked"  # on what it reads: something has to run, or its time has to come
    LOADING = "loading"  # what it reads is on its way
    SENT = "sent"  # committed here, without a verdict
    HELD = "held"  # so many commits have no verdict that there is no room for one more
    BACKING_OFF = "backing off"  # it met a conflict, and waits until trying again is useful
    ENDED = "ended"


class WriteHooks(Protocol):
    """Whoever has something to do with every attempt of an effort."""

    async def turn(self) -> None:
        """Wait until it may be tried. Nothing is awaited between this and the attempt."""

    def made(self, transaction: Transaction) -> None:
        """An attempt was committed here. If it was refused at once, `settled` was called before."""

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        """Its verdict, in the moment it is heard."""


class WriteAttempt:
    """One write on its way."""

    __slots__ = (
        "attempts",
        "backoff_us",
        "began_us",
        "conflicts",
        "course",
        "is_sure",
        "last",
        "next_us",
        "retries",
        "stage",
    )

    def __init__(self, retries: int | None = None, course: WriteHooks | None = None, *, is_sure: bool = False) -> None:
        self.retries = retries  # how often it is tried again at most; None: as long as there is time
        self.course = course
        self.is_sure = is_sure  # it reads nothing: nobody can be faster
        self.attempts = 0  # commits that were made for it
        self.conflicts = 0  # those among them that somebody was faster than
        self.began_us: int | None = None  # when the first conflict was heard of, by the time with a connection
        self.next_us = 0  # when it is tried again, as far as that is known; 0: it is not
        self.backoff_us = 0  # how long its attempts were put off, so far
        self.last: Conflict | None = None
        self.stage = Stage.QUEUED

    async def turn(self) -> None:
        if self.course is not None:
            await self.course.turn()

    def made(self, transaction: Transaction) -> None:
        if self.stage is Stage.RUNNING:
            self.stage = Stage.SENT
        if self.course is not None:
            self.course.made(transaction)

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        if classify(rejection, layer.local_seq) is Outcome.STALE:
            assert isinstance(rejection, Conflict)
            self.conflicts += 1
            self.last = rejection
        if rejection is not None:
            self.stage = Stage.BACKING_OFF
        if self.course is not None:
            self.course.settled(layer, rejection)

    def delayed(self, now_us: int, delay_us: int) -> None:
        """It is tried again after a delay at the earliest."""
        self.next_us = now_us + delay_us
        self.backoff_us += delay_us

    def collision(self) -> Collision | None:
        """The address that it last lost, and to whom."""
        return self.last.collisions[0] if self.last is not None and self.last.collisions else None
