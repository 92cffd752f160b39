"""Posting inside a handler: what is sent with the commit that is being made, and with nothing else.

It takes room in its handler's backlog as if it waited there already. Where only the last one counts, a later one of the
same attempt takes the place of an earlier one, which was never sent. It starts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.runtime.binding.intents import End

if TYPE_CHECKING:
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.lanes import Lane
    from headwater.runtime.binding.lineage import Origin


def follow_up(attempt: Origin, event: Event, lane: Lane, backlog: int) -> None:
    """It is sent with the commit of an attempt. BacklogFullError: that posted too much."""
    before = _before(attempt, event)
    if before is not None:
        attempt.posted.remove(before)  # Nothing of it is anywhere.
        before.end = End.COALESCED
    elif not event.due_us:
        posted = sum(1 for each in attempt.posted if each.stream == event.stream and not each.is_withdrawn)
        lane.check_room(event.stream, backlog, posted)
    event.origin = attempt
    attempt.posted.append(event)


def _before(attempt: Origin, event: Event) -> Event | None:
    """One that the same attempt posted, and in whose place this one is sent."""
    if event.member.coalesce is None or event.is_known or event.due_us:
        return None
    same = (
        each
        for each in reversed(attempt.posted)
        if each.stream == event.stream and not (each.is_known or each.due_us or each.is_withdrawn)
    )
    return next(same, None)
