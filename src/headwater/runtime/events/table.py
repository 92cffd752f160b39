"""The table of events: every event that was sent here, from sending to outcome, and the reporting of outcomes.

An event without an outcome is always in the table; of the others the last ones are kept. The table is for inspection
and decides nothing. No event leaves it without an outcome.

`end_of` classifies an outcome and `tell` reports it: every caller that awaits the event is answered. A refusal is for
the sender alone. The error channel is told of a refusal that no caller awaits, and of every defect of the program.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from headwater.data.address import doc_text
from headwater.data.path import path_text
from headwater.errors import (
    CommitConvergenceError,
    HandlerFailed,
    NotSettlingError,
    PreconditionFailedError,
    Refused,
    RuleRefusedError,
    SessionExpiredError,
)
from headwater.runtime.events.deleted_target import Away, Gone
from headwater.runtime.events.event import Barred, Storage
from headwater.runtime.writing.states import WriteState

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.events.delivery import EventDelivery

__all__ = ["End", "EventTable", "IntentRow"]


class End(Enum):
    """How an event ended."""

    LANDED = "landed"  # its handling is durable
    HANDLED_BEFORE = "handled before"  # another handling of the same event is durable; this one changed nothing
    REFUSED = "refused"  # its handler raised Refused
    FAILED = "failed"
    WITHDRAWN = "withdrawn"
    DROPPED = "dropped"  # the commit of the handler that posted it was rejected
    STORED = "stored"  # it is due later, and any runtime may handle it then
    COALESCED = "coalesced"  # a later one of the same kind was handled in its place
    LEFT = "left"  # it cannot be handled here any more, and stays in the store for another runtime
    CLOSED = "closed"  # the runtime was closed before its outcome; a stored event is handled later


STATES: dict[WriteState, str] = {state: state.value for state in WriteState}
"""The text of the table for each state of an event without an outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentRow:
    """One event, as it is now. Times are microseconds since 1970."""

    id: str
    stream: str
    user: str
    state: str
    sent_us: int
    attempts: int = 0
    conflicts: int = 0
    next_try_us: int | None = None  # when it is tried again at the earliest
    due_us: int | None = None  # the time for which it was posted, if one was given
    conflict: str = ""  # the address that it last lost
    winner: str = ""  # the session that won
    waits: str = ""  # the nodes that have to run before it is tried
    advice: str = ""  # a narrower read or write that would not have collided
    error: str = ""
    ended_us: int | None = None
    origin: str = ""  # the event whose handler sent it

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class EventTable:
    """The last events with an outcome, and the rows of all events, for inspection."""

    __slots__ = ("_ended",)

    def __init__(self, kept: int) -> None:
        self._ended: deque[IntentRow] = deque(maxlen=kept)

    def ended(self, event: EventDelivery, now_us: int, wall_us: int) -> None:
        """Keep the row of an event that has an outcome."""
        self._ended.append(row_of(event, now_us, wall_us))

    def note(self, row: IntentRow) -> None:
        """Keep the row of a stored event that was ended here without being handled here."""
        self._ended.append(row)

    def rows(self, living: Iterable[EventDelivery], now_us: int, wall_us: int) -> tuple[IntentRow, ...]:
        """Return the rows of all events, those with an outcome first."""
        return (*self._ended, *(row_of(event, now_us, wall_us) for event in living))


def row_of(delivery: EventDelivery, now_us: int, wall_us: int) -> IntentRow:
    event, end, failure = delivery.event, delivery.end, delivery.failure
    collision = delivery.collision()
    return IntentRow(
        id=event.id,
        stream=event.stream,
        user=event.user,
        state=STATES[delivery.state] if end is None else end.value,
        sent_us=event.minted_us,
        attempts=delivery.attempts,
        conflicts=delivery.conflicts,
        next_try_us=wall_us + delivery.next_us - now_us if delivery.next_us and end is None else None,
        due_us=event.due_us or None,
        conflict="" if collision is None else f"{doc_text(collision.doc)}#{path_text(collision.path)}",
        winner="" if collision is None else _who(collision.session, collision.node),
        waits=delivery.waits if end is None else "",
        advice=delivery.advice,
        error="" if failure is None else f"{type(failure).__name__}: {failure}",
        ended_us=None if end is None else wall_us,
        origin="" if delivery.origin is None else delivery.origin.event,
    )


def _who(session: str, node: str) -> str:
    return f"{session} ({node})" if node else session


_LOUD: Final = (HandlerFailed, CommitConvergenceError, NotSettlingError, RuleRefusedError)
"""Failures that are reported to the error channel even if a caller awaits the event."""
_QUIET: Final = (End.WITHDRAWN, End.DROPPED, End.HANDLED_BEFORE, End.LEFT, End.CLOSED)
"""Outcomes that are not reported to the error channel."""


def end_of(event: EventDelivery, error: BaseException) -> End:
    """Return the outcome of an event whose handling raised an error."""
    if event.is_dropped:
        return End.DROPPED
    if isinstance(error, asyncio.CancelledError):
        is_untouched = not event.calls and event.storage is Storage.NOWHERE
        return End.WITHDRAWN if event.is_withdrawn and is_untouched else End.CLOSED
    if isinstance(error, Away):
        return End.LEFT
    is_forbidden = event.barred is Barred.SENDER
    return End.REFUSED if is_forbidden or isinstance(error, Refused) else End.FAILED


def tell(core: Core, event: EventDelivery, end: End) -> None:
    """Answer every caller that awaits the event, and report failures that need it to the error channel."""
    failure = event.failure
    if end is End.CLOSED:
        failure = SessionExpiredError(
            f"the runtime was closed while {event.stream} was handled: open another one, and look"
        )
    elif end in (End.WITHDRAWN, End.DROPPED):
        failure = Refused(f"{event.stream} was {end.value} before it was handled")
    is_awaited = event.is_awaited
    for each in (event, *event.absorbed):
        awaiting, each.awaiting = each.awaiting, []
        for told in awaiting:
            if not told.done() and failure is None:
                told.set_result(event.answer)
            elif not told.done() and failure is not None:
                told.set_exception(failure)
    if not isinstance(failure, Exception) or end in _QUIET:
        return
    if isinstance(failure, Gone) and event.event.period is not None:
        return  # It has no sender, and each further period would report the same.
    if isinstance(failure, _LOUD) or not is_awaited:
        cause = failure.__cause__ if isinstance(failure, HandlerFailed) else failure
        core.report(event.stream, cause if isinstance(cause, Exception) else failure)


def terminal_of(event: EventDelivery) -> str:
    """Return the kind of failure of an event that is not tried again, for traces."""
    match event.failure:
        case CommitConvergenceError():
            return "convergence"
        case PreconditionFailedError():
            return "permanent"
        case RuleRefusedError():
            return "terminal"
        case _:
            return "permanent" if event.is_dropped else ""
