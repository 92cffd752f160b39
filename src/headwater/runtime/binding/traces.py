"""What the trace says of events: each attempt, each rejection with what is done about it, and each end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.data.trace import TraceEvent
from headwater.errors import CommitConvergenceError, PreconditionFailedError, RuleRefusedError

if TYPE_CHECKING:
    from headwater.runtime.binding.events import Event

__all__ = ["EventAttempted", "EventEnded", "EventRejected", "terminal_of"]


@dataclass(frozen=True, slots=True)
class EventAttempted(TraceEvent):
    """A handler's commit was made. `node` is the handler; `backoff_ms` is how long its attempts were put off so far."""

    event: str
    attempt: int
    backoff_ms: float


@dataclass(frozen=True, slots=True)
class EventRejected(TraceEvent):
    """It was not accepted. `outcome` says what that means; `backing_off` that it is tried again."""

    event: str
    attempt: int
    outcome: str
    backing_off: bool


@dataclass(frozen=True, slots=True)
class EventEnded(TraceEvent):
    """It has its end. `terminal` says which kind of end one that failed came to: permanent, convergence or terminal."""

    event: str
    attempts: int
    end: str
    backoff_ms: float
    terminal: str = ""


def terminal_of(event: Event) -> str:
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
