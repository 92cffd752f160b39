"""`Event`, the data of one request to a handler, and `Sender`, which sends events to one piece.

An event stays the same however often it is handled. `send` waits for its outcome, and a caller that stops waiting does
not withdraw the event; `post` returns at once. Events are handled elsewhere (`events.py`, `attempt.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.data.value import Value
from headwater.errors import AuthoringError
from headwater.pieces.handles import Intent, Options
from headwater.runtime.core.time_documents import EPOCH
from headwater.runtime.pieces.context import EventHeader
from headwater.runtime.writing.attempt import RetriedWrite, Stage

if TYPE_CHECKING:
    from headwater.pieces.declarations import HandlerMember
    from headwater.protocol.commit import Delivered
    from headwater.protocol.reactions import Hold
    from headwater.replica.document import Document
    from headwater.replica.pending import Layer
    from headwater.runtime.core.core import Core
    from headwater.runtime.events.conflict_advice import Seen
    from headwater.runtime.events.durable import Keeping
    from headwater.runtime.events.events import Events
    from headwater.runtime.events.lineage import Origin
    from headwater.runtime.events.table import End
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView


@dataclass(slots=True, kw_only=True, eq=False)
class Event(EventHeader):
    """One event, however often it is handled."""

    member: HandlerMember
    stream: str  # what messages and traces call its handler
    payload: Value
    is_own: bool = False  # the session is the sending runtime's own, not one that a program named
    write: RetriedWrite
    stamp: int = 0  # its place among all that was sent here; 0: it was not yet
    due_us: int = 0  # when it is to be handled, if not at once
    period: int | None = None  # of a handler that is due again and again: which time it is
    is_known: bool = False  # it may have been handled before: its sender gave it an id, or sends it again
    is_taken: bool = False  # it was stored before, here or elsewhere, and is taken up again
    delivers: tuple[Hold, Delivered] | None = None  # the record of a reaction that is acknowledged with it
    is_late: bool = False  # waited in a store or for its due time; does not recreate a deleted piece
    principal: str = ""  # of one that is taken up: who stored it; empty: one of the application itself
    is_stored: bool = False  # a row of a store remembers it until it is handled
    stored_in: str = ""  # the space of that store
    row: str = ""  # what it is called there, if not by its id: one that its sender gave an id may be stored twice
    is_durable: bool = False  # it is to be stored before anything else happens
    is_left: bool = False  # the commit that stores it was made: others may find it there
    keeping: Keeping | None = None  # what stores it, if it is to be durable: its handling stands on that
    origin: Origin | None = None  # the attempt that posted it
    attempt: Origin | None = None  # its own attempt under way, or the last one
    absorbed: list[Event] = field(default_factory=list)  # those in whose place it is handled, too
    awaiting: list[asyncio.Future[Any]] = field(default_factory=list)  # futures of callers of `send`
    is_withdrawn: bool = False
    is_dropped: bool = False  # what posted it did not land
    is_dispatched: bool = False
    kept: str | None = None  # the scope that the outcome is restricted to: user, session, or None for all readers
    is_of_elsewhere: bool = False  # `kept` is set only because another space was read
    is_mute: bool = False  # no outcome is written into the sender's scope
    is_forbidden: bool = False  # whoever stored it may not send it: it leaves nothing but its place in the store
    is_over: bool = False  # its handler is not called any more, although what is stored of it may still be there
    is_barred: bool = False  # the last commit was refused for access
    calls: int = 0  # of its handler, those included that were stopped
    stood_on: list[Layer] = field(default_factory=list)  # writes without a verdict that its last attempt relied on
    follows: tuple[Event, ...] = ()  # events of other spaces whose undecided commits its last attempt read
    seen: Seen | None = None  # what its last commit had read and written, for advice
    waits: str = ""  # what has to run before it, while it is parked
    brought: dict[Document, None] = field(default_factory=dict)  # documents that were asked for ahead of its handler
    advice: str = ""
    task: asyncio.Task[None] | None = None  # which sees it through, once it has had its turn
    answer: Any = None
    failure: BaseException | None = None
    end: End | None = None

    @property
    def attempts(self) -> int:
        return self.write.attempts

    @property
    def row_id(self) -> str:
        return self.row or self.id

    @property
    def is_named(self) -> bool:
        """Whether its sender may ask what came of it: by an id of its own, or waiting while another one took it up."""
        return bool(self.row) or (self.is_durable and not self.due_us)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody will be told how it ended."""
        return any(not each.done() for each in self.awaiting) or any(each.is_awaited for each in self.absorbed)

    @property
    def may_coalesce(self) -> bool:
        """Whether a later one may be handled in its place, and it in an earlier one's. Nothing of it may still fall."""
        if self.origin is not None or self.delivers is not None:  # A result moves the position of its own target.
            return False
        return not (self.is_stored or self.is_durable or self.is_withdrawn or self.is_known)

    @property
    def is_away(self) -> bool:
        """Whether it waits for others, and nothing here has to run for it."""
        return self.write.stage in (Stage.SENT, Stage.BACKING_OFF, Stage.HELD)

    @property
    def launched(self) -> list[tuple[PieceInstance, bool]]:
        """The pieces that its attempt under way starts."""
        return [] if self.attempt is None else self.attempt.launched


class Sender:
    """Sends to the handlers of one piece, for one user and session."""

    __slots__ = ("_events", "_view")

    def __init__(self, events: Events, view: ScopedView) -> None:
        self._events = events
        self._view = view

    def send(self, member: HandlerMember, payload: Value, options: Options) -> Coroutine[Any, Any, Any]:
        """Make an event for a handler, outside any run. Return a coroutine that ends with the outcome of the event."""
        core = self._view.instance.pieces.core
        if core.current.run is not None:
            raise AuthoringError(f"send() of {member!r} inside a run, which never awaits: write post()")
        core.check_thread()
        return self._events.sent(self._events.event(self._view, member, payload, options))

    def post(self, member: HandlerMember, payload: Value, options: Options) -> Intent:
        return self._posted(member, payload, options, 0)

    def post_at(self, member: HandlerMember, when: datetime | timedelta, payload: Value, options: Options) -> Intent:
        if isinstance(when, timedelta):
            current = self._events.current
            # In a handler, when its own event was sent: a retry says the same moment.
            now_us = self.core.clock.now_us() if current is None else current[0].minted_us
            due_us = now_us + when // timedelta(microseconds=1)
        else:
            due_us = (when.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        if due_us < 0:
            raise AuthoringError(f"post_at({when}) of {member!r} is before 1970: write a moment to come")
        return self._posted(member, payload, options, max(1, due_us))

    def _posted(self, member: HandlerMember, payload: Value, options: Options, due_us: int) -> Intent:
        events, core = self._events, self._view.instance.pieces.core
        core.check_thread()
        if core.current.run is not None and events.current is None:
            raise AuthoringError(f"post() of {member!r}: this run is repeated. Post it in a handler.")
        event = events.event(self._view, member, payload, options, due_us)
        if events.current is not None:
            events.follow_up(event)
        else:
            event = events.start(event)
        return Intent(event.id, lambda: events.withdraw(event))

    @property
    def core(self) -> Core:
        return self._view.instance.pieces.core

    def place(self, member: HandlerMember) -> str:
        return self._view.instance.place(member)

    def seen_by(self, view: ScopedView) -> Sender:
        """The same piece, for the user and the session of another view."""
        return Sender(self._events, view.seen_in(self._view.instance, "session"))

    def same(self, other: object) -> bool:
        """Whether it sends to the same piece for the same user and session."""
        return isinstance(other, Sender) and self._view is other._view
