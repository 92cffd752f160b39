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
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.data.address import check_scope, is_space_name
from headwater.data.ids import derive
from headwater.data.value import ABSENT, MAX_INT
from headwater.engine.admission.access import ACCESS, Right, right_in
from headwater.errors import AccessError, BacklogFullError, HeadwaterError, InvalidValueError, LoadError
from headwater.protocol.commit import event_id_of
from headwater.protocol.messages import Query, StoredEvent, StoredEvents
from headwater.runtime.channel.sessions import beside
from headwater.runtime.events import event_rows
from headwater.runtime.events.deleted_target import Gone, is_gone
from headwater.runtime.events.event import EventSource, stranger_id
from headwater.runtime.events.event_rows import Unavailable
from headwater.runtime.events.table import STATES, End, IntentRow
from headwater.runtime.writing.states import WriteState

if TYPE_CHECKING:
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.writing.space_channel import SpaceChannel


class Principals:
    """Those who stored the events of one space."""

    __slots__ = ("_channel", "_is_everybody", "_line", "_own", "_pieces", "_rights", "_space")

    def __init__(self, pieces: PieceRegistry, space: str, channel: SpaceChannel) -> None:
        self._pieces = pieces
        self._space = space
        self._channel = channel
        self._line = -1  # the connection that this was found out on
        self._is_everybody: bool | None = None  # it may read what is anybody's; None: it was not asked yet
        self._own = ""  # the name that it has, if that is known
        self._rights: dict[tuple[str, str], Right | None] = {}  # by space and user, as of the last look

    def begin(self) -> None:
        """Rights are asked for anew with each look."""
        self._rights.clear()

    async def find_out(self, row: StoredEvent) -> None:
        """Ask what has to be known of whoever stored it. LoadError: the connection was lost meanwhile."""
        line = self._channel.driver.reconnects
        if line != self._line:
            self._line, self._is_everybody, self._own = line, None, ""
        if not row.principal:
            return
        if self._is_everybody is None:
            self._is_everybody = await self._may_read(self._pieces.core.clock.new_token())
        if not (self._is_everybody or self._own) and await self._may_read(row.principal):
            self._own = row.principal
        await self._ask_right(row)

    async def _may_read(self, name: str) -> bool:
        """Whether what is one user's alone is answered here."""
        try:
            scope = check_scope(f"user:{name}")
        except InvalidValueError:
            return False
        try:
            await self._channel.driver.query(Query(0, scope, limit=1))
        except LoadError as error:
            if error.code != "access":
                raise  # Whatever else it was, it says nothing about whose connection this is.
            return False
        return True

    async def _ask_right(self, row: StoredEvent) -> None:
        """What they may do in another space, if this runtime takes part in that one. It opens none for a stranger."""
        space = row.stream.partition("/")[0]
        if self._is_believed(row) or space == self._space or (space, row.principal) in self._rights:
            return
        channel = self._pieces.channel(space) if is_space_name(space) else None
        if channel is None:
            return
        self._rights[space, row.principal] = None
        line = self._channel.driver.reconnects
        try:
            answer = await channel.driver.query(Query(0, ACCESS.scope, ACCESS.id))
        except HeadwaterError:
            if self._channel.driver.reconnects != line:
                raise
            return  # It may not be asked.
        access = answer.documents[0].get()
        if access is not ABSENT:  # Otherwise the space is the first writer's, who is not to be made one by a stranger.
            self._rights[space, row.principal] = right_in(access, row.principal)

    def _is_believed(self, row: StoredEvent) -> bool:
        return not row.principal or row.principal == self._own

    def right_of(self, row: StoredEvent) -> Right | None:
        """What whoever stored an event may do where it is handled. None: that is not known here."""
        space = row.stream.partition("/")[0]
        if self._is_believed(row) or space == self._space:
            return Right.OWN  # They could store it here; what its handler asks for is looked at before it is called.
        return self._rights.get((space, row.principal))

    def id_of(self, row: StoredEvent) -> str:
        """The id of the event. Whoever may not write where it is handled cannot choose that of somebody else's."""
        said = event_id_of(row.id, row.payload)
        right = self.right_of(row)
        is_stranger = right is not None and right < Right.WRITE
        return stranger_id(row.principal, said, row.stream) if is_stranger else said

    def may_leave_receipt(self, row: StoredEvent) -> bool:
        """Whether what becomes of it may be written down where it would be handled."""
        right = self.right_of(row)
        return right is not None and right >= Right.WRITE

    def believe(self, event: Event, row: StoredEvent) -> Event:
        """Say for whom it is handled.

        A stranger is in the session in which they stored it, or in one that nobody has: sessions are known to others.
        """
        id = self.id_of(row)
        event = replace(event, id=id, principal=row.principal, row="" if id == row.id else row.id)
        if self._is_believed(row):
            return event
        session = event.session
        if session not in (row.session, beside(row.session, event.user)):
            session = beside(row.session, session)
        # What was sent for another user, as the follow-up of an event that was taken up for them, is nobody's here: it
        # reads nothing of the one who stored it for them, nor of the one it names.
        is_own = event.user in ("", row.principal)
        user = row.principal if is_own else derive("nobody", row.principal, event.user)
        return replace(event, session=session, user=user)


EventPlace = tuple[int, str]
"""Where an event is among the others: the seq of its commit, then its id."""
PAGE: Final = 100
TAKEN: Final = 256
"""Events of one space that were taken up and have no end. Further ones are left in the store for now."""
FAILED: Final = 4_096
"""Events of one space that failed here and stay there, of which that is known. An older one is tried again."""
PARKED: Final = 4_096
"""Events of one space that cannot be handled here, and are known. Those behind them come when some are gone."""
AGAIN_US: Final = 1_000_000
"""When it was to be looked at while it was, how long until it is looked at again."""
PARKED_US: Final = (1_000_000, 60_000_000)
"""When those are looked at again that could not be handled here: soon after a piece was opened, then less often."""
SPREAD_US: Final = 50_000
"""Over how long runtimes spread that wait for the same moment."""


class StoredEventPickup:
    """What one runtime takes up."""

    __slots__ = ("_events", "_kept", "_pieces", "_random", "_spaces")

    def __init__(self, events: Events) -> None:
        self._events = events
        self._pieces = events.pieces
        self._random = events.pieces.core.clock.randomness(f"taking up {events.origin}")
        self._spaces: dict[str, SpacePickup] = {}
        self._kept: dict[EventDelivery, Callable[[], None]] = {}  # due later, of spaces that are nowhere but here

    def attend(self, channel: SpaceChannel) -> None:
        """A space is opened: hear of what is stored in it."""
        space = channel.driver.session.space
        # fault events.not_taken_over: if False:
        if space not in self._spaces:
            self._spaces[space] = SpacePickup(self._events, space, channel)

    def later(self, delivery: EventDelivery) -> None:
        """It is due later."""
        event, origin = delivery.event, delivery.origin
        space = event.instance.space.name if origin is None else origin.space
        attending = self._spaces.get(space)
        if attending is not None:
            attending.look_at(event.due_us)
            return
        core = self._pieces.core
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
        """Something stored was left there: it is looked at when it was left alone for a while."""
        attending = self._spaces.get(space)
        if attending is not None:
            grace_us = round(self._events.policy.grace_ms * 1_000)
            attending.look_at(self._pieces.core.clock.now_us() + grace_us)

    def opened(self, space: str) -> None:
        """A piece runs here from now on: its events, and those of its children, can be handled."""
        self._events.durable_events.replay.opened()
        attending = self._spaces.get(space)
        if attending is not None:
            attending.opened()

    def ended(self, delivery: EventDelivery) -> None:
        """It has its end here. If it was taken up, there is room for another one."""
        attending = self._spaces.get(delivery.stored_in) if delivery.event.is_taken else None
        if attending is not None:
            attending.ended(delivery)

    def withdrawn(self, delivery: EventDelivery) -> None:
        """It is not due any more."""
        cancel = self._kept.pop(delivery, None)
        if cancel is not None:
            cancel()

    def parked(self) -> tuple[tuple[StoredEvent, str], ...]:
        """Stored events that cannot be handled here, and why."""
        return tuple(each for attending in self._spaces.values() for each in attending.parked.values())

    def rows(self) -> tuple[IntentRow, ...]:
        """As the table of intents shows those."""
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
        return self._random.randrange(SPREAD_US)


class SpacePickup:
    """The stored events of one space."""

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
        "_pieces",
        "_principals",
        "_room_at",
        "_space",
        "parked",
    )

    def __init__(self, events: Events, space: str, channel: SpaceChannel) -> None:
        self._events = events
        self._pieces = events.pieces
        self._space = space
        self._channel = channel
        self._at_us = MAX_INT  # when it is looked next, by the wall clock
        self._cancel: Callable[[], None] | None = None
        self._is_looking = False
        self._is_refusing = False
        self._left_off: EventPlace | None = None  # behind it there was no room for more
        self._room_at = 0  # when so few of them are in hand, there is room again
        self._line = -1  # the connection on which it was told what there is
        self._patience_us = PARKED_US[0]
        self._principals = Principals(events.pieces, space, channel)
        self._in_hand: set[str] = set()  # rows that were taken up and have no end
        self._failed: dict[str, EventDelivery] = {}  # those that had one here that did not remove their row
        self.parked: dict[str, tuple[StoredEvent, str]] = {}
        channel.driver.session.queries.watch_events(self._heard)

    @property
    def _grace_us(self) -> int:
        return round(self._events.policy.grace_ms * 1_000)

    @property
    def next_look_us(self) -> int | None:
        """When it is looked next, by the wall clock. None: when something is heard."""
        return self._at_us if self._at_us < MAX_INT else None

    def _heard(self, newest: int | LoadError) -> None:
        """Something is stored, by whomever; the first time on each connection, what there is."""
        if isinstance(newest, LoadError) or not newest:
            return  # Whoever may not write the space handles nothing of it.
        line, self._line = self._line, self._channel.driver.reconnects
        if line != self._line:
            self._failed.clear()
            self._left_off = None
        wait_us = self._grace_us if line == self._line else 0
        self.look_at(self._pieces.core.clock.now_us() + wait_us)

    def opened(self) -> None:
        self._patience_us = PARKED_US[0]
        if self.parked:
            self.look_at(self._pieces.core.clock.now_us() + self._patience_us)

    def ended(self, delivery: EventDelivery) -> None:
        """One that was taken up has its end. Half of them at a time make room for others."""
        row_id, end = delivery.event.row_id, delivery.end
        self._in_hand.discard(row_id)
        if end in (End.REFUSED, End.FAILED, End.HANDLED_BEFORE):
            self._failed[row_id] = delivery
            if len(self._failed) > FAILED:
                del self._failed[next(iter(self._failed))]
        if end in (End.LEFT, End.HANDLED_BEFORE):
            # It is to be found out what became of its child, or whether its row is gone.
            wait_us = PARKED_US[0] if end is End.LEFT else self._grace_us
            self.look_at(self._pieces.core.clock.now_us() + wait_us)
        if self._left_off is not None and len(self._in_hand) <= self._room_at:
            self.look_at(self._pieces.core.clock.now_us())

    def look_at(self, at_us: int) -> None:
        """Look at a moment of the wall clock, or before."""
        if at_us >= self._at_us:
            return
        core = self._pieces.core
        if self._cancel is not None:
            self._cancel()
        self._at_us = at_us
        wait_us = max(0, at_us - core.clock.now_us())
        self._cancel = core.scheduler.gates.alarm(core.clock.monotonic_us() + wait_us, self._look)

    def _look(self) -> None:
        self._at_us, self._cancel = MAX_INT, None
        if self._is_looking:
            self.look_at(self._pieces.core.clock.now_us() + AGAIN_US)
        elif self._channel.is_up():  # Otherwise the next connection asks for it.
            self._is_looking = True
            self._pieces.tasks.begin(self._read(), f"stored events of {self._space}")

    async def _read(self) -> None:
        """Read them, and take up what may be, as long as there is room for more."""
        now_us = self._pieces.core.clock.now_us()
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
            # The connection is gone, or it may not be asked: the next one is told again what there is. Whatever else
            # kept the engine from answering may pass.
            if self._channel.is_up() and not (isinstance(error, LoadError) and error.code == "access"):
                self.look_at(now_us + PARKED_US[1])
            return
        finally:
            self._is_looking = False
        if is_rest and not is_full:
            next_us = now_us  # What is stored before that may have come due meanwhile.
        if is_full:
            # Those in hand make room, and say so. If they are none of ours, it is looked at again.
            next_us = min(next_us, now_us + (PARKED_US[1] if self._in_hand else AGAIN_US))
        if self.parked:
            next_us = min(next_us, now_us + self._patience_us)
            self._patience_us = min(2 * self._patience_us, PARKED_US[1])
        if next_us < MAX_INT:
            self.look_at(next_us)
        if self.parked and not self._is_refusing:
            self._is_refusing = True
            self._pieces.tasks.begin(self._refuse_gone(), f"events of {self._space} whose pieces are gone")

    async def _page(self, due_by_us: int, after: EventPlace) -> StoredEvents:
        return await self._channel.driver.stored_events(due_by_us=due_by_us, after=after, limit=PAGE)

    def _take(self, row: StoredEvent, now_us: int) -> int | None:
        """Take one up, if it may be. Answers when it may be looked at again; None: there is no room for it."""
        events = self._events
        tried = self._failed.get(row.id)
        if tried is not None and tried.end is End.HANDLED_BEFORE:
            self._remove(row)
            return MAX_INT
        if tried is not None:
            # It was tried here, and its row could not be removed: somebody else may have more luck.
            self._park(row, f"it failed here: {tried.failure}")
            return MAX_INT
        # Somebody has in hand what was to be handled at once. What was due later was handed to nobody.
        free_us = row.due_us if row.due_us > row.stored_us else row.stored_us + self._grace_us
        known = events.find(self._principals.id_of(row))
        if known is not None:
            return MAX_INT if known.event.row_id == row.id else now_us + self._grace_us
        if free_us > now_us:
            return free_us
        if len(self._in_hand) >= TAKEN:
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
            event = event_rows.read(self._pieces, row.id, row.stream, row.payload, row.due_us, EventSource.STORE)
            self._in_hand.add(row.id)
            events.start(events.deliver(self._principals.believe(event, row), self._space))
        except Unavailable as error:
            self._park(row, str(error))
        except BacklogFullError:
            self._in_hand.discard(row.id)
            return None
        return MAX_INT

    def _forbid(self, row: StoredEvent) -> None:
        """Whoever stored it has no right at all there. Nothing of it is left, and it is told."""
        error = AccessError(f"{row.principal!r} stored an event for {row.stream}, and has no right there")
        self._pieces.core.report(row.stream, error)
        durable_events = self._events.durable_events
        self._pieces.tasks.begin(durable_events.remove_row(row.id, self._space), f"removing {row.stream}")

    def _remove(self, row: StoredEvent) -> None:
        """It was handled before, and is there all the same: it was stored once more afterwards."""
        del self._failed[row.id]
        durable_events = self._events.durable_events
        self._pieces.tasks.begin(durable_events.remove_row(row.id, self._space), f"removing {row.stream}")

    async def _refuse_gone(self) -> None:
        """What waits for a piece that was deleted, or for a child whose key left, waits for nothing."""
        gone = dict[tuple[str, str], bool]()
        try:
            for row, _ in tuple(self.parked.values()):
                cls = event_rows.class_of(row.payload)
                piece = row.stream.rpartition(":")[0], cls
                is_asked = row.id not in self._failed and self._principals.may_leave_receipt(row)
                if not is_asked or not gone.get(piece, len(gone) < TAKEN):
                    continue
                try:
                    if piece not in gone:
                        gone[piece] = await is_gone(self._pieces, row.stream, cls)
                    if gone[piece]:
                        await self._refuse(row)
                        self.look_at(self._pieces.core.clock.now_us())  # There is room for others to be parked.
                except HeadwaterError:
                    gone[piece] = False  # Whoever may not ask, or not write there, cannot say it.
        finally:
            self._is_refusing = False

    async def _refuse(self, row: StoredEvent) -> None:
        """It has its end, and is not taken up any more."""
        pieces, refused = self._pieces, Gone(row.stream)
        await self._events.durable_events.refuse_row(row, self._space, refused)
        self.parked.pop(row.id, None)
        pieces.core.report(row.stream, refused)
        self._events.note(
            IntentRow(
                id=event_id_of(row.id, row.payload),
                stream=row.stream,
                user=row.principal,
                state=End.REFUSED.value,
                sent_us=row.stored_us,
                due_us=row.due_us or None,
                error=f"Gone: {refused.reason}",
                ended_us=pieces.core.clock.now_us(),
            )
        )

    def _park(self, row: StoredEvent, why: str) -> None:
        """It stays where it is; of what is said in it, only its id and the class of its piece are kept here."""
        if len(self.parked) < PARKED:
            said = event_id_of(row.id, row.payload)
            kept = {"cls": event_rows.class_of(row.payload), **({} if said == row.id else {"id": said})}
            self.parked[row.id] = (msgspec.structs.replace(row, payload=kept), why)
