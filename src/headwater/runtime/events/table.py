"""The table of events: every event that was sent here, from sending to outcome.

An event without an outcome is always in the table; of the others the last ones are kept. The table is for inspection
and decides nothing. No event leaves it without an outcome.

`delivery.EventDelivery` makes the rows, classifies outcomes and reports them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from headwater.runtime.writing.states import WriteState

__all__ = ["EventOutcome", "EventTable", "IntentRow"]


class EventOutcome(StrEnum):
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
    waits: str = ""  # the nodes that have to run, or the plain writes to be made, before it is tried
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

    def keep(self, row: IntentRow) -> None:
        """Keep the row of an event that has an outcome."""
        self._ended.append(row)

    def rows(self, living: Iterable[IntentRow]) -> tuple[IntentRow, ...]:
        """Return the rows of all events, those with an outcome first."""
        return (*self._ended, *living)
