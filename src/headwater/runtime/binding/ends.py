"""Ends of events: which one it is, and who is told. Everybody who awaits an event is answered.

A refusal is for the sender alone; if nobody awaits it, and of every defect of the program, the error channel hears.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headwater.errors import (
    CommitConvergenceError,
    HandlerFailed,
    NotSettlingError,
    PreconditionFailedError,
    Refused,
    RuleRefusedError,
    SessionExpiredError,
)
from headwater.runtime.binding.gone import Away, Gone
from headwater.runtime.binding.intents import End

if TYPE_CHECKING:
    from headwater.runtime.binding.events import Event
    from headwater.runtime.core import Core

_LOUD: Final = (HandlerFailed, CommitConvergenceError, NotSettlingError, RuleRefusedError)
"""Ends that somebody is told of, even if the sender is, too."""
_QUIET: Final = (End.WITHDRAWN, End.DROPPED, End.HANDLED_BEFORE, End.LEFT, End.CLOSED)
"""Ends that nobody is told of who did not ask."""


def end_of(event: Event, error: BaseException) -> End:
    """How an event ended whose handling raised."""
    if event.is_dropped:
        return End.DROPPED
    if isinstance(error, asyncio.CancelledError):
        is_untouched = not (event.is_dispatched or event.is_left or event.is_stored)
        return End.WITHDRAWN if event.is_withdrawn and is_untouched else End.CLOSED
    if isinstance(error, Away):
        return End.LEFT
    return End.REFUSED if isinstance(error, Refused) else End.FAILED


def tell(core: Core, event: Event, end: End) -> None:
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
    if isinstance(failure, Gone) and event.period is not None:
        return  # Nobody sent it, and the next period says the same.
    if isinstance(failure, _LOUD) or not is_awaited:
        cause = failure.__cause__ if isinstance(failure, HandlerFailed) else failure
        core.report(event.stream, cause if isinstance(cause, Exception) else failure)


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
