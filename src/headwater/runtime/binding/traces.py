"""What the trace says of the end of an event that is not tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.trace import EventAttempted, EventEnded, EventRejected
from headwater.errors import CommitConvergenceError, PreconditionFailedError, RuleRefusedError

if TYPE_CHECKING:
    from headwater.runtime.binding.events import Event

__all__ = ["EventAttempted", "EventEnded", "EventRejected", "terminal_of"]


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
