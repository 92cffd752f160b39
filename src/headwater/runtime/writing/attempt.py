"""`RetriedWrite`: one write over all its attempts, from its request to its end.

`classify` is the one place that maps a verdict to its meaning for the writer. A `RetriedWrite` is data and callbacks:
its writer (`retry.Writer`) takes it through its attempts, and calls it at every step. It is in one `State`, which
changes as the table in `states` says. It never waits and never retries by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, assert_never

from headwater.protocol.verdict import Collision, Conflict, PreconditionFailed, Rejection, RuleRefused
from headwater.runtime.writing.states import TABLE, Happened, ImpossibleTransitionError, WriteState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.replica.document import Document
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.core.demand import Demand

__all__ = ["AttemptOutcome", "FunctionWrite", "RetriedWrite", "classify"]

SESSION_GONE: Final = "session_gone"
T = TypeVar("T")


class AttemptOutcome(Enum):
    """The meaning of a verdict for the writer."""

    SUCCESS = "success"
    STALE = "stale basis"  # another writer was faster: worth another attempt on the current state
    UNSENT = "unsent"  # the commit never left this process: made again, without a conflict
    PERMANENT = "permanent"  # a precondition is false for good: no retry
    TERMINAL = "terminal"  # a rule forbids it: no retry, and the failure is reported
    OTHER = "other"  # unknown whether it landed: no retry, and the failure is reported


def classify(rejection: Rejection | None, own: int) -> AttemptOutcome:
    """Return the outcome of commit `own` of a session after this verdict."""
    match rejection:
        case None:
            return AttemptOutcome.SUCCESS
        case Conflict(dead_layers=dead):
            return AttemptOutcome.UNSENT if dead == (own,) else AttemptOutcome.STALE
        case PreconditionFailed():
            return AttemptOutcome.PERMANENT
        case RuleRefused(rule=rule):
            return AttemptOutcome.OTHER if rule == SESSION_GONE else AttemptOutcome.TERMINAL
        case _:
            assert_never(rejection)


class RetriedWrite:
    """One write, over all its attempts. A subclass says what an attempt does and what follows from its end."""

    __slots__ = (
        "attempts",
        "backoff_us",
        "began_us",
        "conflicts",
        "demands",
        "is_limited",
        "last",
        "loaded",
        "next_us",
        "node",
        "own",
        "requeue",
        "retries",
        "state",
        "who",
    )

    insists = True  # it is an error if a node that computes a value that it waits for is removed meanwhile

    def __init__(self, retries: int | None = None, *, node: str = "", who: str = "a write", is_limited: bool = False):
        self.retries = retries  # 0: not retried after a conflict; otherwise the window bounds retries
        self.node = node  # who commits it
        self.who = who  # its name in messages
        self.is_limited = is_limited  # its first attempt counts against the limit of those in flight
        self.state = WriteState.QUEUED
        self.attempts = 0  # commits made for this write
        self.conflicts = 0  # commits of these that lost against another writer
        self.began_us: int | None = None  # time of the first conflict, on the clock of connected time
        self.next_us = 0  # time of the next attempt, if known; 0: not known
        self.backoff_us = 0  # total delay of its attempts so far
        self.last: Conflict | None = None
        self.own = 0  # the number of its last commit
        self.demands: dict[tuple[Document, ...], Demand] = {}  # values that its attempts found stale
        self.loaded: dict[Document, None] = {}  # documents that were fetched for it
        self.requeue: Callable[[RetriedWrite], object] = _nothing  # set by its writer: looks at its turn again

    def take(self, happened: Happened) -> None:
        """Change the state as the table says."""
        found = TABLE.get((self.state, happened))
        if found is None:
            raise ImpossibleTransitionError(f"{happened.value!r} happened to a write that is {self.state.value}")
        self.state = found.state

    @property
    def is_over(self) -> bool:
        """True if it is called no more."""
        return self.state is WriteState.ENDED or self.state is WriteState.STORING

    # ---- what a subclass says ------------------------------------------------------------------------

    def has_turn(self) -> bool:
        """Return whether it may be tried now."""
        return True

    def call(self, transaction: Transaction) -> None:
        """Make one attempt in a transaction."""
        raise NotImplementedError

    def made(self, transaction: Transaction) -> None:
        """Called after an attempt was committed here. If it was refused at once, `settled` was called before."""

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        """Called with the verdict at the moment it is received, before anything else happens."""

    def parked(self, documents: Sequence[Document]) -> None:
        """Called when it begins to wait for stale documents."""

    def behind(self, documents: Sequence[Document]) -> None:
        """Called when it begins to wait for earlier plain writes to documents."""

    def landed(self) -> None:
        """Called when its commit is durable. It ends itself (`Happened.OVER`)."""
        self.take(Happened.OVER)

    def failed(self, error: BaseException) -> None:
        """Called when an attempt raised an error that is no reason to wait, or the write failed for good."""
        self.take(Happened.OVER)

    # ---- called by the writer ------------------------------------------------------------------------

    def heard(self, layer: Layer, rejection: Rejection | None) -> AttemptOutcome:
        """Take in the verdict of an attempt."""
        outcome = classify(rejection, layer.local_seq)
        self.own = layer.local_seq
        if outcome is AttemptOutcome.STALE:
            assert isinstance(rejection, Conflict)
            self.conflicts += 1
            self.last = rejection
        if not self.is_over and outcome in (AttemptOutcome.STALE, AttemptOutcome.UNSENT):
            self.take(Happened.REJECTED)
        self.settled(layer, rejection)
        return outcome

    def end_demands(self) -> None:
        """Release everything that was demanded for its attempts."""
        for demand in self.demands.values():
            demand.end()
        self.demands.clear()

    def delayed(self, now_us: int, delay_us: int) -> None:
        """Record that the next attempt is made after a delay at the earliest."""
        self.next_us = now_us + delay_us
        self.backoff_us += delay_us

    def collision(self) -> Collision | None:
        """Return the address that the write last lost, and the winner."""
        return self.last.collisions[0] if self.last is not None and self.last.collisions else None


class FunctionWrite(RetriedWrite, Generic[T]):
    """A function that is called in a transaction, and the future of its result."""

    __slots__ = ("_attempt", "_on_over", "_result", "future")

    def __init__(
        self,
        attempt: Callable[[Transaction], T],
        *,
        node: str = "",
        who: str = "a transaction",
        retries: int | None = None,
        on_over: Callable[[BaseException | None], object] | None = None,
    ) -> None:
        super().__init__(retries, node=node, who=who)
        self._attempt = attempt
        self._on_over = on_over
        self._result: Any = None
        self.future: asyncio.Future[T] | None = None  # None: no coroutine awaits it

    def call(self, transaction: Transaction) -> None:
        self._result = self._attempt(transaction)

    def landed(self) -> None:
        self.take(Happened.OVER)
        if self.future is not None and not self.future.done():
            self.future.set_result(self._result)
        if self._on_over is not None:
            self._on_over(None)

    def failed(self, error: BaseException) -> None:
        self.take(Happened.OVER)
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
        if self._on_over is not None:
            self._on_over(error)


def _nothing(_: RetriedWrite) -> None:
    """Do nothing: the write has no writer yet."""
