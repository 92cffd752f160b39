"""The states of one write, and the table of its transitions.

A write is a handler's event, a `transact`, a plain write that met a conflict, or the storing of an event. It is in one
`State`, and changes it only as `TABLE` says. Every state in which a write waits has exactly one wake-up: a callback or
a timer, which is the effect that the table names. docs/decisions/0039-one-event-machine.md shows the table;
tests compare it with this one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class WriteState(StrEnum):
    """The state of a write."""

    QUEUED = "queued"  # waits for its turn
    LOADING = "loading"  # waits for documents that it reads, or for answers of the engine
    PARKED = "parked"  # waits until nodes that it reads have run, or until earlier plain writes are made
    HELD = "held"  # waits for room: too many commits have no verdict
    RUNNING = "running"
    SENT = "sent"  # committed here, without a verdict
    BACKING_OFF = "backing off"  # lost against another writer, or read values that are not decided
    STORING = "storing"  # called no more: its outcome, or its stored form, is being written
    ENDED = "ended"


class Happened(StrEnum):
    """The inputs of the table."""

    TURN = "turn"
    NO_ROOM = "no room"
    ROOM = "room"
    MISSING = "missing"
    ARRIVED = "arrived"
    STALE = "stale"
    FRESH = "fresh"
    COMMITTED = "committed"
    UNDECIDED = "undecided"
    REJECTED = "rejected"
    USEFUL = "useful"
    DECIDED = "decided"
    OVER = "over"


class Transition(NamedTuple):
    """The next state, and the effect of the transition."""

    state: WriteState
    effect: str


class ImpossibleTransitionError(Exception):
    """Something happened that the table does not have: a bug of Headwater."""


_WAITING: Final = (
    WriteState.QUEUED,
    WriteState.LOADING,
    WriteState.PARKED,
    WriteState.HELD,
    WriteState.RUNNING,
    WriteState.SENT,
    WriteState.BACKING_OFF,
)
TABLE: Final[dict[tuple[WriteState, Happened], Transition]] = {
    (WriteState.QUEUED, Happened.TURN): Transition(WriteState.RUNNING, "call its function in a transaction"),
    (WriteState.QUEUED, Happened.NO_ROOM): Transition(WriteState.HELD, "wake it when a verdict makes room"),
    (WriteState.QUEUED, Happened.MISSING): Transition(WriteState.LOADING, "ask, and wake it with the answer"),
    (WriteState.HELD, Happened.ROOM): Transition(WriteState.QUEUED, "look at its turn again"),
    (WriteState.LOADING, Happened.ARRIVED): Transition(WriteState.QUEUED, "look at its turn again"),
    (WriteState.RUNNING, Happened.MISSING): Transition(
        WriteState.LOADING, "drop the attempt, fetch the documents, wake it when they are here"
    ),
    (WriteState.RUNNING, Happened.STALE): Transition(
        WriteState.PARKED, "drop the attempt, demand the values, wake it when they are fresh"
    ),
    (WriteState.RUNNING, Happened.UNDECIDED): Transition(
        WriteState.BACKING_OFF, "drop the attempt, wake it when the values that it read are decided"
    ),
    (WriteState.RUNNING, Happened.COMMITTED): Transition(WriteState.SENT, "send the commit, its verdict wakes it"),
    (WriteState.PARKED, Happened.FRESH): Transition(WriteState.QUEUED, "look at its turn again"),
    (WriteState.SENT, Happened.REJECTED): Transition(
        WriteState.BACKING_OFF, "back to its place in the order, wake it when a retry is useful"
    ),
    (WriteState.BACKING_OFF, Happened.USEFUL): Transition(WriteState.QUEUED, "look at its turn again"),
    **{
        (state, Happened.DECIDED): Transition(WriteState.STORING, "write its outcome, wake it when that is stored")
        for state in _WAITING
    },
    **{
        (state, Happened.OVER): Transition(WriteState.ENDED, "tell every caller that awaits it")
        for state in (*_WAITING, WriteState.STORING)
    },
}
