"""The table of intents: every event that was sent here, from its sending to its end. Nothing leaves it silently.

What has no end is always in it; of those with an end the last ones are kept. It is made for looking at, and decides
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from headwater.data.address import doc_text
from headwater.data.path import path_text
from headwater.runtime.effort import Stage

if TYPE_CHECKING:
    from headwater.runtime.binding.events import Event

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


STATES: dict[Stage, str] = {stage: stage.value for stage in Stage}
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

    def ended(self, event: Event, now_us: int, wall_us: int) -> None:
        """It has its end: this is how it is remembered."""
        self._ended.append(row_of(event, now_us, wall_us))

    def note(self, row: IntentRow) -> None:
        """Something has its end that was never in hand here."""
        self._ended.append(row)

    def rows(self, living: Iterable[Event], now_us: int, wall_us: int) -> tuple[IntentRow, ...]:
        """All of them, those with an end first."""
        return (*self._ended, *(row_of(event, now_us, wall_us) for event in living))


def row_of(event: Event, now_us: int, wall_us: int) -> IntentRow:
    effort = event.effort
    collision = effort.collision()
    failure = event.failure
    return IntentRow(
        id=event.id,
        stream=event.stream,
        user=event.user,
        state=STATES[effort.stage] if event.end is None else event.end.value,
        sent_us=event.minted_us,
        attempts=effort.attempts,
        conflicts=effort.conflicts,
        next_try_us=wall_us + effort.next_us - now_us if effort.next_us and event.end is None else None,
        due_us=event.due_us or None,
        conflict="" if collision is None else f"{doc_text(collision.doc)}#{path_text(collision.path)}",
        winner="" if collision is None else _who(collision.session, collision.node),
        waits=event.waits if event.end is None else "",
        advice=event.advice,
        error="" if failure is None else f"{type(failure).__name__}: {failure}",
        ended_us=None if event.end is None else wall_us,
        origin="" if event.origin is None else event.origin.event,
    )


def _who(session: str, node: str) -> str:
    return f"{session} ({node})" if node else session
