"""Taking up stored events: those that are due, and those whose sender is gone.

A runtime reads the stored events of its spaces when it connects, when another session has stored some, and when one is
due. An event that is due and was not handled for a while is handled here, if its class is imported and, for a child,
its piece is open; otherwise it is parked, and examined again from time to time. An event whose piece is gone is
refused. Several runtimes may take up the same event: receipts let one commit be accepted. There is one timer per space,
for the earliest due time, and no other polling. Events that exceeded the limit are read when others have ended.

`Principals` determines the user that stored an event, that user's rights, and the user that it is handled for. A writer
of a space can store any event in it: for any handler of any space, for any user, under any id. Such an event is handled
as an event of its writer and of no other user. Events that the application stored were checked where they came from,
and events that the connection's own user stored are handled with that user's rights. A connection is not told which
user it belongs to; documents of one user are readable for that user only, so this is determined by a query, once per
connection. `Principals` takes nothing up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from headwater.data.address import check_scope, is_space_name
from headwater.data.ids import derive
from headwater.data.value import ABSENT, MAX_INT
from headwater.engine.admission.access import ACCESS, Right, right_in
from headwater.errors import AccessError, BacklogFullError, HeadwaterError, InvalidValueError, LoadError
from headwater.protocol.commit import event_id_of
from headwater.protocol.messages import Query, StoredEvent, StoredEvents
from headwater.runtime.channel.sessions import beside
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.events import event_rows
from headwater.runtime.events.deleted_target import Gone, is_gone
from headwater.runtime.events.event import EventSource, stranger_id
from headwater.runtime.events.event_rows import Unavailable
from headwater.runtime.events.table import STATES, EventOutcome, IntentRow
from headwater.runtime.writing.states import WriteState

if TYPE_CHECKING:
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events
    from headwater.runtime.writing.space_channel import SpaceChannel


class Principals:
    """The users that stored the events of one space, and their rights."""

    __slots__ = ("_channel", "_events", "_is_everybody", "_line", "_own", "_rights", "_space")

    def __init__(self, events: Events, space: str, channel: SpaceChannel) -> None:
        self._events = events
        self._space = space
        self._channel = channel
        self._line = -1  # the connection that the next two fields are known for
        self._is_everybody: bool | None = None  # it may read the documents of all users; None: it was not asked yet
        self._own = ""  # the user of the connection, if that is known
        self._rights: dict[tuple[str, str], Right | None] = {}  # by space and user, as of the last reading

    def begin(self) -> None:
        """Forget the rights: they are queried again in each reading of the stored events."""
        self._rights.clear()

    async def find_out(self, row: StoredEvent) -> None:
        """Query the user of the connection and the right of the user that stored an event. May raise LoadError."""
        line = self._channel.driver.reconnects
        if line != self._line:
            self._line, self._is_everybody, self._own = line, None, ""
        if not row.principal:
            return
        if self._is_everybody is None:
            self._is_everybody = await self._may_read(self._events.core.clock.new_token())
        if not (self._is_everybody or self._own) and await self._may_read(row.principal):
            self._own = row.principal
        await self._ask_right(row)

    async def _may_read(self, name: str) -> bool:
        """Return True if this connection may read the documents of a user."""
        try:
            scope = check_scope(f"user:{name}")
        except InvalidValueError:
            return False
        try:
            await self._channel.driver.query(Query(0, scope, limit=1))
        except LoadError as error:
            if error.code != "access":
                raise  # Any other error does not tell whose connection this is.
            return False
        return True

    async def _ask_right(self, row: StoredEvent) -> None:
        """Query the sender's right in another space, if that is open here. No space is opened for a stranger."""
        space = row.stream.partition("/")[0]
        if self._is_believed(row) or space == self._space or (space, row.principal) in self._rights:
            return
        channel = self._events.channel(space) if is_space_name(space) else None
        if channel is None:
            return
        self._rights[space, row.principal] = None
        line = self._channel.driver.reconnects
        try:
            answer = await channel.driver.query(Query(0, ACCESS.scope, ACCESS.id))
        except HeadwaterError:
            if self._channel.driver.reconnects != line:
                raise
            return  # This connection may not read the rights.
        access = answer.documents[0].get()
        if access is not ABSENT:  # A space without owners belongs to its first writer; no stranger's event may be that.
            self._rights[space, row.principal] = right_in(access, row.principal)

    def _is_believed(self, row: StoredEvent) -> bool:
        return not row.principal or row.principal == self._own

    def right_of(self, row: StoredEvent) -> Right | None:
        """Return the right of an event's sender in the space of its handler. None: it is not known here."""
        space = row.stream.partition("/")[0]
        if self._is_believed(row) or space == self._space:
            return (
                Right.OWN
            )  # It could be stored here; `delivery.check_right` checks the handler's `allow=` before the call.
        return self._rights.get((space, row.principal))

    def id_of(self, row: StoredEvent) -> str:
        """Return the id of an event. A sender without the right to write cannot choose the id of another event."""
        said = event_id_of(row.id, row.payload)
        right = self.right_of(row)
        is_stranger = right is not None and right < Right.WRITE
        return stranger_id(row.principal, said, row.stream) if is_stranger else said

    def may_leave_receipt(self, row: StoredEvent) -> bool:
        """Return True if a receipt of the event may be written into the space of its handler."""
        right = self.right_of(row)
        return right is not None and right >= Right.WRITE

    def believe(self, event: Event, row: StoredEvent) -> Event:
        """Return the event with the user and the session that it is handled for.

        The event of a stranger gets the session in which it was stored, or one that no program has: the names of
        sessions are known to other users.
        """
        id = self.id_of(row)
        event = replace(event, id=id, principal=row.principal, row="" if id == row.id else row.id)
        if self._is_believed(row):
            return event
        session = event.session
        if session not in (row.session, beside(row.session, event.user)):
            session = beside(row.session, session)
        # An event that names another user, such as a follow-up of an event that was taken up, is handled for a user
        # that does not exist: it reads no documents of the user that stored it, nor of the user that it names.
        is_own = event.user in ("", row.principal)
        user = row.principal if is_own else derive("nobody", row.principal, event.user)
        return replace(event, session=session, user=user)


EventPlace = tuple[int, str]
"""The position of a stored event: the seq of its commit, then its id."""


class StoredEventPickup:
    """Takes up the stored events of all spaces of one runtime."""

    __slots__ = ("_events", "_kept", "_random", "_spaces")

    def __init__(self, events: Events) -> None:
        self._events = events
        self._random = events.core.clock.randomness(f"taking up {events.origin}")
        self._spaces: dict[str, SpacePickup] = {}
        self._kept: dict[EventDelivery, Callable[[], None]] = {}  # due later, in spaces without an engine

    def attend(self, channel: SpaceChannel) -> None:
        """Begin to read the stored events of a space that was opened."""
        space = channel.driver.session.space
        # fault events.not_taken_over: if False:
        if space not in self._spaces:
            self._spaces[space] = SpacePickup(self._events, space, channel)

    def later(self, delivery: EventDelivery) -> None:
        """Note the due time of an event that is due later."""
        event, origin = delivery.event, delivery.origin
        space = event.instance.space.name if origin is None else origin.space
        attending = self._spaces.get(space)
        if attending is not None:
            attending.look_at(event.due_us)
            return
        core = self._events.core
        limit = self._events.policy.in_hand
        if len(self._kept) >= limit:
            raise BacklogFullError(
                f"{limit} events are due later in spaces that are kept nowhere but here: wait for some"
            )

        def due() -> None:
            self._kept.pop(delivery, None)
            self._events.come_due(delivery)

        wait_us = event.due_us - core.clock.now_us()
        self._kept[delivery] = core.scheduler.gates.alarm(core.clock.monotonic_us() + wait_us, due)

    def again(self, space: str) -> None:
        """Read the stored events of a space after the grace period, because one of them was left there."""
        attending = self._spaces.get(space)
        if attending is not None:
            grace_us = round(self._events.policy.grace_ms * 1_000)
            attending.look_at(self._events.core.clock.now_us() + grace_us)

    def opened(self, space: str) -> None:
        """Read parked events again, because a piece was opened that they may be for."""
        self._events.durable_events.replay.opened()
        attending = self._spaces.get(space)
        if attending is not None:
            attending.opened()

    def ended(self, delivery: EventDelivery) -> None:
        """Note that an event has an outcome. If it was taken up, there is room for another one."""
        attending = self._spaces.get(delivery.stored_in) if delivery.event.is_taken else None
        if attending is not None:
            attending.ended(delivery)

    def withdrawn(self, delivery: EventDelivery) -> None:
        """Cancel the due time of an event that was withdrawn."""
        cancel = self._kept.pop(delivery, None)
        if cancel is not None:
            cancel()

    def parked(self) -> tuple[tuple[StoredEvent, str], ...]:
        """Return the stored events that cannot be handled here, each with the reason."""
        return tuple(each for attending in self._spaces.values() for each in attending.parked.values())

    def rows(self) -> tuple[IntentRow, ...]:
        """Return the parked events as rows of the table of events."""
        return tuple(
            IntentRow(
                id=event_id_of(row.id, row.payload),
                stream=row.stream,
                user=row.principal,
                state=STATES[WriteState.PARKED],
                sent_us=row.stored_us,
                next_try_us=attending.next_look_us,
                due_us=row.due_us or None,
                error=why,
            )
            for attending in self._spaces.values()
            for row, why in attending.parked.values()
        )

    def spread_us(self) -> int:
        return self._random.randrange(RUNTIME_LIMITS.pickup_spread_us)


class SpacePickup:
    """Takes up the stored events of one space."""

    __slots__ = (
        "_at_us",
        "_cancel",
        "_channel",
        "_events",
        "_failed",
        "_in_hand",
        "_is_looking",
        "_is_refusing",
        "_left_off",
        "_line",
        "_patience_us",
        "_principals",
        "_room_at",
        "_space",
        "parked",
    )

    def __init__(self, events: Events, space: str, channel: SpaceChannel) -> None:
        self._events = events
        self._space = space
        self._channel = channel
        self._at_us = MAX_INT  # the next reading, by the wall clock
        self._cancel: Callable[[], None] | None = None
        self._is_looking = False
        self._is_refusing = False
        self._left_off: EventPlace | None = None  # the last event before there was no more room
        self._room_at = 0  # there is room again if so few are in hand
        self._line = -1  # the connection of the last notification
        self._patience_us = RUNTIME_LIMITS.parked_first_us
        self._principals = Principals(events, space, channel)
        self._in_hand: set[str] = set()  # rows of events that were taken up and have no outcome
        self._failed: dict[str, EventDelivery] = {}  # by row: events with an outcome here whose row stays
        self.parked: dict[str, tuple[StoredEvent, str]] = {}
        channel.driver.session.queries.watch_events(self._heard)

    @property
    def _grace_us(self) -> int:
        return round(self._events.policy.grace_ms * 1_000)

    @property
    def next_look_us(self) -> int | None:
        """The next reading, by the wall clock. None: after the next notification."""
        return self._at_us if self._at_us < MAX_INT else None

    def _heard(self, newest: int | LoadError) -> None:
        """Handle the engine's notification that events are stored; the first one on a connection counts all of them."""
        if isinstance(newest, LoadError) or not newest:
            return  # A runtime without the right to write the space handles none of its events.
        line, self._line = self._line, self._channel.driver.reconnects
        if line != self._line:
            self._failed.clear()
            self._left_off = None
        wait_us = self._grace_us if line == self._line else 0
        self.look_at(self._events.core.clock.now_us() + wait_us)

    def opened(self) -> None:
        self._patience_us = RUNTIME_LIMITS.parked_first_us
        if self.parked:
            self.look_at(self._events.core.clock.now_us() + self._patience_us)

    def ended(self, delivery: EventDelivery) -> None:
        """Note the outcome of an event that was taken up. Others are read once half of those in hand have one."""
        row_id, end = delivery.event.row_id, delivery.outcome
        self._in_hand.discard(row_id)
        if end in (EventOutcome.REFUSED, EventOutcome.FAILED, EventOutcome.HANDLED_BEFORE):
            self._failed[row_id] = delivery
            if len(self._failed) > RUNTIME_LIMITS.failed_events:
                del self._failed[next(iter(self._failed))]
        if end in (EventOutcome.LEFT, EventOutcome.HANDLED_BEFORE):
            # Another reading finds out whether its child is gone, or its row.
            wait_us = RUNTIME_LIMITS.parked_first_us if end is EventOutcome.LEFT else self._grace_us
            self.look_at(self._events.core.clock.now_us() + wait_us)
        if self._left_off is not None and len(self._in_hand) <= self._room_at:
            self.look_at(self._events.core.clock.now_us())

    def look_at(self, at_us: int) -> None:
        """Read the stored events at a moment of the wall clock, or before."""
        if at_us >= self._at_us:
            return
        core = self._events.core
        if self._cancel is not None:
            self._cancel()
        self._at_us = at_us
        wait_us = max(0, at_us - core.clock.now_us())
        self._cancel = core.scheduler.gates.alarm(core.clock.monotonic_us() + wait_us, self._look)

    def _look(self) -> None:
        self._at_us, self._cancel = MAX_INT, None
        if self._is_looking:
            self.look_at(self._events.core.clock.now_us() + RUNTIME_LIMITS.reread_us)
        elif self._channel.is_up():  # Otherwise the first notification of the next connection starts a reading.
            self._is_looking = True
            self._events.tasks.begin(self._read(), f"stored events of {self._space}")

    async def _read(self) -> None:
        """Read the stored events, and take up those that may be handled, as long as there is room."""
        now_us = self._events.core.clock.now_us()
        self._principals.begin()
        is_rest = self._left_off is not None
        after, self._left_off = self._left_off or (0, ""), None
        if not is_rest:
            self.parked.clear()
        next_us, is_full = MAX_INT, False
        try:
            while True:
                page = await self._page(now_us, after)
                for row in page.events:
                    await self._principals.find_out(row)
                for row in page.events:
                    at_us = self._take(row, now_us)
                    if at_us is None:
                        self._left_off, self._room_at, is_full = after, len(self._in_hand) // 2, True
                        break
                    next_us, after = min(next_us, at_us), (row.seq, row.id)
                if is_full or page.next is None:
                    break
                after = page.next
            if page.next_due_us is not None:
                next_us = min(next_us, page.next_due_us + self._events.pickup.spread_us())
        except HeadwaterError as error:
            # A lost connection: the next one is notified again. No right to read: nothing is retried. Any other error
            # of the engine may pass.
            if self._channel.is_up() and not (isinstance(error, LoadError) and error.code == "access"):
                self.look_at(now_us + RUNTIME_LIMITS.parked_longest_us)
            return
        finally:
            self._is_looking = False
        if is_rest and not is_full:
            next_us = now_us  # Events before this position may have come due meanwhile.
        if is_full:
            # Outcomes of events in hand make room and start a reading. Without any, it is read again soon.
            next_us = min(
                next_us, now_us + (RUNTIME_LIMITS.parked_longest_us if self._in_hand else RUNTIME_LIMITS.reread_us)
            )
        if self.parked:
            next_us = min(next_us, now_us + self._patience_us)
            self._patience_us = min(2 * self._patience_us, RUNTIME_LIMITS.parked_longest_us)
        if next_us < MAX_INT:
            self.look_at(next_us)
        if self.parked and not self._is_refusing:
            self._is_refusing = True
            self._events.tasks.begin(self._refuse_gone(), f"events of {self._space} whose pieces are gone")

    async def _page(self, due_by_us: int, after: EventPlace) -> StoredEvents:
        return await self._channel.driver.stored_events(
            due_by_us=due_by_us, after=after, limit=RUNTIME_LIMITS.stored_events_page
        )

    def _take(self, row: StoredEvent, now_us: int) -> int | None:
        """Take an event up if it may be handled. Return the time of its next check; None: there is no room for it."""
        events = self._events
        tried = self._failed.get(row.id)
        if tried is not None and tried.outcome is EventOutcome.HANDLED_BEFORE:
            self._remove(row)
            return MAX_INT
        if tried is not None:
            # Its row could not be removed after it failed here: another runtime may be able to handle it.
            self._park(row, f"it failed here: {tried.failure}")
            return MAX_INT
        # The sender of an immediate event handles it, for the grace period. A scheduled event has no handler yet.
        free_us = row.due_us if row.due_us > row.stored_us else row.stored_us + self._grace_us
        known = events.find(self._principals.id_of(row))
        if known is not None:
            return MAX_INT if known.event.row_id == row.id else now_us + self._grace_us
        if free_us > now_us:
            return free_us
        if len(self._in_hand) >= RUNTIME_LIMITS.taken_events:
            return None
        right = self._principals.right_of(row)
        if right is None:
            self._park(
                row, f"it is for another space, of which this runtime does not know whether {row.principal!r} may"
            )
            return MAX_INT
        if right < Right.READ:
            self._forbid(row)
            return MAX_INT
        try:
            event = event_rows.read(
                events.pieces, events.core, row.id, row.stream, row.payload, row.due_us, EventSource.STORE
            )
            self._in_hand.add(row.id)
            events.start(events.deliver(self._principals.believe(event, row), self._space))
        except Unavailable as error:
            self._park(row, str(error))
        except BacklogFullError:
            self._in_hand.discard(row.id)
            return None
        return MAX_INT

    def _forbid(self, row: StoredEvent) -> None:
        """Remove and report an event whose sender has no right in the space of its handler."""
        error = AccessError(f"{row.principal!r} stored an event for {row.stream}, and has no right there")
        self._events.core.report(row.stream, error)
        durable_events = self._events.durable_events
        self._events.tasks.begin(durable_events.remove_row(row.id, self._space), f"removing {row.stream}")

    def _remove(self, row: StoredEvent) -> None:
        """Remove the row of an event that was handled before and stored once more afterwards."""
        del self._failed[row.id]
        durable_events = self._events.durable_events
        self._events.tasks.begin(durable_events.remove_row(row.id, self._space), f"removing {row.stream}")

    async def _refuse_gone(self) -> None:
        """Refuse the parked events whose pieces were deleted or whose children left."""
        events, gone = self._events, dict[tuple[str, str], bool]()
        try:
            for row, _ in tuple(self.parked.values()):
                cls = event_rows.class_of(row.payload)
                piece = row.stream.rpartition(":")[0], cls
                is_asked = row.id not in self._failed and self._principals.may_leave_receipt(row)
                if not is_asked or not gone.get(piece, len(gone) < RUNTIME_LIMITS.taken_events):
                    continue
                try:
                    if piece not in gone:
                        gone[piece] = await is_gone(events.pieces, events.core, events.channel, row.stream, cls)
                    if gone[piece]:
                        await self._refuse(row)
                        self.look_at(events.core.clock.now_us())  # Others can be parked now.
                except HeadwaterError:
                    gone[piece] = False  # This runtime may not read the record, or not write the receipt.
        finally:
            self._is_refusing = False

    async def _refuse(self, row: StoredEvent) -> None:
        """Refuse one stored event: leave a receipt, remove the row, and report it."""
        core, refused = self._events.core, Gone(row.stream)
        await self._events.durable_events.refuse_row(row, self._space, refused)
        self.parked.pop(row.id, None)
        core.report(row.stream, refused)
        self._events.note(
            IntentRow(
                id=event_id_of(row.id, row.payload),
                stream=row.stream,
                user=row.principal,
                state=EventOutcome.REFUSED.value,
                sent_us=row.stored_us,
                due_us=row.due_us or None,
                error=f"Gone: {refused.reason}",
                ended_us=core.clock.now_us(),
            )
        )

    def _park(self, row: StoredEvent, why: str) -> None:
        """Leave an event in the store. Only its id and the class of its piece are remembered here."""
        if len(self.parked) < RUNTIME_LIMITS.parked_events:
            said = event_id_of(row.id, row.payload)
            kept = {"cls": event_rows.class_of(row.payload), **({} if said == row.id else {"id": said})}
            self.parked[row.id] = (msgspec.structs.replace(row, payload=kept), why)
