"""Messages about stored events: those that a commit sent and no commit has handled yet.

An event belongs to the branch of the commit that sent it. Whoever may write the space may read them, and be told that
there are more: this is how a runtime takes up what another one left behind. Owns the records; never decides.
"""

from __future__ import annotations

from typing import Any

from headwater.data.limits import ValueLimits
from headwater.data.value import MAX_INT, freeze
from headwater.protocol.message import Message, Number


class QueryEvents(Message, frozen=True, tag="query_events"):
    """Read stored events of the session's branch once, in the order of the log: those due at `due_by_us` or before.

    `after` is the `next` of the page before. For whoever may write the space.
    """

    id: Number
    due_by_us: Number = MAX_INT
    after: tuple[Number, str] = (0, "")
    limit: Number = 100


class WatchEvents(Message, frozen=True, tag="watch_events"):
    """Tell which commit stored the newest event of the session's branch, now and when others store more.

    For whoever may write the space. The last one that was said counts; `on` False: no more of it.
    """

    id: Number
    on: bool = True


class StoredEvent(Message, frozen=True):
    """An event that was stored with the commit at `seq`, made at `stored_us`, and that no commit has handled yet."""

    id: str
    seq: Number
    stream: str
    payload: Any
    due_us: Number
    stored_us: Number
    principal: str = ""  # of the session that sent it; empty: one of this process, or nobody knows
    session: str = ""  # the key of that session; empty: nobody knows


class Events(Message, frozen=True, tag="events"):
    """The events that a query asked for, as of `seq`; `next` continues a page.

    `next_due_us` is when the first of those becomes due that were not asked for. None: there is none.
    """

    id: Number
    seq: Number
    events: tuple[StoredEvent, ...]
    next: tuple[Number, str] | None = None
    next_due_us: Number | None = None


class EventsStored(Message, frozen=True, tag="events_stored"):
    """The newest stored event of the session's branch that others sent is of the commit at `newest`; 0: there is none.

    The answer to `WatchEvents`, where it counts one's own as well, and from then on whenever others stored more.
    """

    id: Number
    newest: Number


def frozen_events(message: Events, limits: ValueLimits) -> Events:
    """The same with every payload checked and frozen. InvalidValueError: no document can hold one of them."""
    events = tuple(
        StoredEvent(e.id, e.seq, e.stream, freeze(e.payload, limits), e.due_us, e.stored_us, e.principal, e.session)
        for e in message.events
    )
    return Events(message.id, message.seq, events, message.next, message.next_due_us)
