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

__all__ = ["End", "IntentRow", "Table"]


class End(Enum):
    """How an event ended."""

    LANDED = "landed"  # its handling is durable
    HANDLED_BEFORE = "handled before"  # so was another handling of the same event; this one changed nothing
    REFUSED = "refused"  # its handler said no
    FAILED = "failed"
    WITHDRAWN = "withdrawn"
    DROPPED = "dropped"  # what sent it did not land
    STORED = "stored"  # it is due later, and handled by whoever has it then
    COALESCED = "coalesced"  # a later one of the same kind was handled in its place
    LEFT = "left"  # it cannot be handled here any more, and stays in the store for whoever can
    CLOSED = "closed"  # the runtime was closed before its end: a stored one is handled later, by whoever takes it up


STATES: dict[WriteState, str] = {state: state.value for state in WriteState}
"""What the table calls what has no end."""


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
    due_us: int | None = None  # when it was to be handled, if that was said
    conflict: str = ""  # the address that it last lost
    winner: str = ""  # to whom
    waits: str = ""  # what has to run, or to come, before it is tried
    advice: str = ""  # what to write so that it would not have lost it
    error: str = ""
    ended_us: int | None = None
    origin: str = ""  # the event whose handler sent it

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Table:
    """What can be looked at."""

    __slots__ = ("_ended",)

    def __init__(self, kept: int) -> None:
        self._ended: deque[IntentRow] = deque(maxlen=kept)

    def ended(self, event: EventDelivery, now_us: int, wall_us: int) -> None:
        """It has its end: this is how it is remembered."""
        self._ended.append(row_of(event, now_us, wall_us))

    def note(self, row: IntentRow) -> None:
        """Something has its end that was never in hand here."""
        self._ended.append(row)

    def rows(self, living: Iterable[EventDelivery], now_us: int, wall_us: int) -> tuple[IntentRow, ...]:
        """All of them, those with an end first."""
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
"""Ends that somebody is told of, even if the sender is, too."""
_QUIET: Final = (End.WITHDRAWN, End.DROPPED, End.HANDLED_BEFORE, End.LEFT, End.CLOSED)
"""Ends that nobody is told of who did not ask."""


def end_of(event: EventDelivery, error: BaseException) -> End:
    """How an event ended whose handling raised."""
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
    """Answer everybody who awaits it, and tell the error channel what is for everybody to know."""
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
        return  # Nobody sent it, and the next period says the same.
    if isinstance(failure, _LOUD) or not is_awaited:
        cause = failure.__cause__ if isinstance(failure, HandlerFailed) else failure
        core.report(event.stream, cause if isinstance(cause, Exception) else failure)


def terminal_of(event: EventDelivery) -> str:
    """The kind of end of an event that is not tried again."""
    match event.failure:
        case CommitConvergenceError():
            return "convergence"
        case PreconditionFailedError():
            return "permanent"
        case RuleRefusedError():
            return "terminal"
        case _:
            return "permanent" if event.is_dropped else ""
