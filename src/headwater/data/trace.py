"""The one trace: events of components, as typed records.

Tests assert on it, commands print it, people read it; no decision reads it (P10). Nodes are named by their ids, so that
a trace of one run can be compared with that of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

E = TypeVar("E", bound="TraceEvent")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that happened to a node."""

    node: str


@dataclass(frozen=True, slots=True)
class Registered(TraceEvent):
    """The node was registered."""

    kind: str


@dataclass(frozen=True, slots=True)
class Removed(TraceEvent):
    """The node was removed."""


@dataclass(frozen=True, slots=True)
class Invalidated(TraceEvent):
    """A value that it read differs."""

    address: str
    writer: str


@dataclass(frozen=True, slots=True)
class RunStarted(TraceEvent):
    """An attempt begins."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Suspended(TraceEvent):
    """The attempt was dropped: something that it reads must run or arrive first."""

    waits_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ran(TraceEvent):
    """A run was completed. `local_seq` 0: it changed nothing."""

    local_seq: int


@dataclass(frozen=True, slots=True)
class RunFailed(TraceEvent):
    """A run was completed by raising."""

    error: str


@dataclass(frozen=True, slots=True)
class RunSkipped(TraceEvent):
    """Its turn came and it did not run."""

    why: str


@dataclass(frozen=True, slots=True)
class Parked(TraceEvent):
    """It waits for a moment."""

    until_us: int


@dataclass(frozen=True, slots=True)
class RunRejected(TraceEvent):
    """The engine did not accept its commit."""

    local_seq: int
    why: str


@dataclass(frozen=True, slots=True)
class Demanded(TraceEvent):
    """It became live."""


@dataclass(frozen=True, slots=True)
class Exhausted(TraceEvent):
    """It ran as often as a pass allows and is still invalid."""

    runs: int


@dataclass(frozen=True, slots=True)
class PassEnded(TraceEvent):
    """No node: `node` is empty."""

    runs: int
    iterations: int


@dataclass(frozen=True, slots=True)
class EventQueued(TraceEvent):
    """An event got its place in the lane of its space. `node` is the handler, as in all records of events."""

    event: str


@dataclass(frozen=True, slots=True)
class HandlerCalled(TraceEvent):
    """The function of a handler is called for an event, for the `call`-th time."""

    event: str
    call: int


@dataclass(frozen=True, slots=True)
class EventAttempted(TraceEvent):
    """A handler's commit was made. `backoff_ms` is how long its attempts were put off so far."""

    event: str
    attempt: int
    backoff_ms: float


@dataclass(frozen=True, slots=True)
class EventRejected(TraceEvent):
    """The commit of an event was rejected. `outcome` is the consequence; with `backing_off` it is tried again."""

    event: str
    attempt: int
    outcome: str
    backing_off: bool


@dataclass(frozen=True, slots=True)
class EventDecided(TraceEvent):
    """Its handler is not called any more: the event gave up its place before its end was written down."""

    event: str


@dataclass(frozen=True, slots=True)
class EventEnded(TraceEvent):
    """It has its end. `terminal` says which kind of end one that failed came to: permanent, convergence or terminal."""

    event: str
    attempts: int
    end: str
    backoff_ms: float
    terminal: str = ""


class Trace(Protocol):
    """Where components report."""

    def emit(self, event: TraceEvent) -> None: ...


class Recorder:
    """Keeps the newest events."""

    __slots__ = ("events",)

    def __init__(self, entries: int) -> None:
        self.events: deque[TraceEvent] = deque(maxlen=entries)

    def emit(self, event: TraceEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if type(event) is kind]

    def runs(self) -> list[str]:
        """Who completed a run, in order."""
        return [event.node for event in self.events if isinstance(event, (Ran, RunFailed))]

    def __iter__(self) -> Iterator[TraceEvent]:
        return iter(self.events)
