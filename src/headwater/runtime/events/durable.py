"""Durable events: stored before they are handled, and removed from the store with their outcome.

`DurableEvents`: an event whose sender asks for durability is in the store of the space, or in the outbox of the
sender's machine, before its handling can be committed; if the process dies, the runtime that takes the event up finds
it there.
An event that is due later is in the outbox until it is in the store. The row is removed in the commit with the receipt
if both are in one space, otherwise by a second commit, which can be repeated. A stored event that is refused or fails
for good leaves a receipt that says so, and is not taken up again. An event that failed only because the runtime that
took it up may not read or write its documents stays for another runtime with that right.

`StoringWrite` is the commit that stores one event before it is handled. The handling does not wait for its verdict, and
depends on it: both are commits of one session, in order, and the handling is accepted only if the storing was. So a
durable event delays no other event, also without a connection. A storing commit that never left this process is made
again, and the handling after it. It reads nothing, so that it never loses a conflict.

`OutboxReplay` holds the events that an outbox contains from an earlier process. Each is sent again as soon as it can be
handled here. They were accepted when they were sent, and are not refused now, however many they are. An event waits
while its class is not imported, or its piece is part of a piece that is not open here; it is examined again after a
piece was opened, and from time to time. Such events are listed in the table of events and stay in the outbox,
whatever happens. Nothing in this module calls a handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import (
    AccessError,
    EventExpiredError,
    LoadError,
    PreconditionFailedError,
    Refused,
    RuleRefusedError,
    SessionExpiredError,
)
from headwater.protocol.commit import event_id_of
from headwater.protocol.verdict import Rejection, RuleRefused
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.events import event_rows, receipts
from headwater.runtime.events.event import Barred, EventSource, Storage
from headwater.runtime.events.event_rows import Unavailable
from headwater.runtime.events.lineage import Origin, Status
from headwater.runtime.events.table import STATES, EventOutcome, IntentRow
from headwater.runtime.writing.attempt import AttemptOutcome, RetriedWrite, classify
from headwater.runtime.writing.states import Happened, WriteState

if TYPE_CHECKING:
    from headwater.protocol.commit import SentEvent
    from headwater.protocol.messages import StoredEvent
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.core.core import Core
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.events.events import Events
    from headwater.runtime.events.outbox import Outbox


class OutboxReplay:
    """Events of an earlier process, from the outbox, that cannot be handled here yet."""

    __slots__ = ("_cancel", "_events", "_is_looking", "_left", "_patience_us")

    def __init__(self, events: Events) -> None:
        self._events = events
        self._left: dict[str, tuple[str, SentEvent, str]] = {}  # by row, in the order of their sending: space, row, why
        self._cancel: Callable[[], None] | None = None
        self._patience_us = RUNTIME_LIMITS.parked_first_us
        self._is_looking = False  # the events are examined once all nodes have settled

    def take(self, rows: Iterable[tuple[str, SentEvent]]) -> None:
        """Start the events in send order. An event that cannot be handled is reported once, and waits."""
        self._left = {row.id: (space, row, "") for space, row in rows}
        self._look()
        for space, row, why in self._left.values():
            self._events.core.report(f"the outbox, of space {space}", Unavailable(f"{row.stream} waits: {why}"))

    def opened(self) -> None:
        """Note that a piece was opened: events for it and its children can be handled once its reads have arrived."""
        if self._left and not self._is_looking:
            self._is_looking = True
            core = self._events.core
            core.afterwards(lambda: core.observers.when(core.is_settled, self._settled))

    def _settled(self) -> None:
        self._is_looking = False
        self._patience_us = RUNTIME_LIMITS.parked_first_us
        self._look()

    def _look(self) -> None:
        """Start the events that can be handled, and set the time at which the others are examined again."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._left = {
            id: (space, row, why)
            for id, (space, row, _) in self._left.items()
            if (why := self._started(row)) is not None
        }
        if self._left:
            core = self._events.core
            at_us = core.clock.monotonic_us() + self._patience_us
            self._cancel = core.scheduler.gates.alarm(at_us, self._look)
            self._patience_us = min(2 * self._patience_us, RUNTIME_LIMITS.parked_longest_us)

    def _started(self, row: SentEvent) -> str | None:
        """Start one event. Return why it cannot be handled yet, or None."""
        if self._events.find(event_id_of(row.id, row.payload)) is not None:
            return "it was sent again meanwhile, and has no end yet"
        try:
            event = event_rows.read(
                self._events.pieces, self._events.core, row.id, row.stream, row.payload, row.due_us, EventSource.OUTBOX
            )
        except Unavailable as error:
            return str(error)
        if event.is_own:  # The session that sent it ended with its process: the session of this process stands for it.
            event = replace(event, session=self._events.sessions.of(event.instance.space.name, event.user))
        self._events.resume(self._events.deliver(event))
        return None

    def rows(self) -> tuple[IntentRow, ...]:
        """Return the waiting events as rows of the table of events."""
        return tuple(
            IntentRow(
                id=event_id_of(row.id, row.payload),
                stream=row.stream,
                user="",
                state=STATES[WriteState.PARKED],
                sent_us=event_rows.minted(row.id),
                error=why,
            )
            for _, row, why in self._left.values()
        )


EVENT_ID_RULE: Final = "event_id"


class StoringWrite(RetriedWrite):
    """The write that stores one event. It reads nothing, so that no other writer can be faster."""

    __slots__ = ("_core", "_delivery", "_on_over", "failure", "is_there", "origin")

    def __init__(self, core: Core, delivery: EventDelivery, on_over: Callable[[], object]) -> None:
        super().__init__(node="events", who=f"storing {delivery.stream}")
        event = delivery.event
        self._core = core
        self._delivery = delivery
        self._on_over = on_over
        self.origin = Origin(event.id, event.instance.space.name, event.user, event.session)
        self.is_there = False  # it was refused because the row is there already
        self.failure: BaseException | None = None

    @property
    def is_made(self) -> bool:
        """True if its commit is shown here, or was accepted."""
        return self.origin.status in (Status.PENDING, Status.CONFIRMED)

    def call(self, transaction: Transaction) -> None:
        delivery = self._delivery
        if delivery.is_withdrawn:
            raise _Withdrawn
        if delivery.storage is Storage.NOWHERE:
            delivery.storage = Storage.LEFT
        transaction.events.append(event_rows.row(delivery.event))

    def made(self, transaction: Transaction) -> None:
        if self.origin.status is Status.OPEN:
            self.origin.status, self.origin.local_seq = Status.PENDING, transaction.local_seq
            self._delivery.mark_stored(self._delivery.instance.space.name)
            self._core.request_tick()  # Its event may have its turn.

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        outcome = classify(rejection, layer.local_seq)
        if outcome is AttemptOutcome.SUCCESS:
            self.origin.status = Status.CONFIRMED
        elif outcome in (AttemptOutcome.STALE, AttemptOutcome.UNSENT):
            # The commits that stand on it are rejected with it, and wait until it is made again, under another number.
            self.origin.status, self.origin.local_seq = Status.OPEN, 0
        else:
            self.is_there = isinstance(rejection, RuleRefused) and rejection.rule == EVENT_ID_RULE
            self._fail()

    def landed(self) -> None:
        self.take(Happened.OVER)
        self._on_over()

    def failed(self, error: BaseException) -> None:
        self.take(Happened.OVER)
        self._fail()
        delivery = self._delivery
        # `_Withdrawn`: the event was withdrawn before there was room for its commit. Nothing of it is stored.
        if self.is_there and delivery.event.is_taken:
            delivery.mark_stored(
                delivery.instance.space.name
            )  # By the earlier process, which did not receive the verdict.
        elif not isinstance(error, _Withdrawn):
            self.failure = delivery.failure = error
        self._on_over()

    def _fail(self) -> None:
        """Record that the event is not stored, and never will be."""
        self.origin.status = Status.FAILED
        if self._delivery.is_stored:
            self._delivery.storage = Storage.LEFT
        self._core.request_tick()


class _Withdrawn(Exception):
    """The event was withdrawn before it was stored. Never leaves this module."""


class DurableEvents:
    """Stores the events of one runtime before they are handled, and removes their rows with their outcomes."""

    __slots__ = ("_events", "_under_way", "outbox", "replay")

    def __init__(self, events: Events) -> None:
        self._events = events
        self._under_way: dict[EventDelivery, StoringWrite] = {}
        self.outbox: Outbox | None = None
        self.replay = OutboxReplay(events)  # events of an earlier process that wait

    def accept(self, delivery: EventDelivery, *, is_later: bool = False) -> None:
        """Begin to store an event that has to be stored. Raise StorageError if the outbox fails."""
        event = delivery.event
        is_follow_up = delivery.origin is not None or delivery.storage is Storage.STORED
        if is_follow_up or event.period is not None or event.delivers is not None:
            return  # The result of a reaction: the runtime that has the target next makes it again.
        if self.outbox is not None and not event.is_taken:
            self.outbox.put(event.instance.space.name, event_rows.row(event))
        # An event in the outbox is durable already. One that is due later may be handled by another runtime, which
        # finds it in the space.
        if event.is_durable and (self.outbox is None or is_later):
            channel = self._events.channel(event.instance.space.name)
            assert channel is not None
            write = StoringWrite(self._events.core, delivery, lambda: self._stored(delivery))
            delivery.storing_write = self._under_way[delivery] = write
            channel.writer.submit_soon(write)

    def use(self, outbox: Outbox) -> None:
        """Keep sent events in a file, and send those that are in it: they had no outcome when the program ended."""
        self.outbox = outbox
        # fault outbox.not_sent_again:
        self.replay.take(outbox.rows())

    def _stored(self, delivery: EventDelivery) -> None:
        """The write that stores an event is over."""
        self._under_way.pop(delivery, None)
        self._events.core.observers.check_conditions()

    async def accepted(self, delivery: EventDelivery) -> None:
        """Wait until an event is stored, if it has to be. Raise the error of the write that failed to store it."""
        await self._events.core.observers.until(lambda: delivery not in self._under_way)
        write = delivery.storing_write
        if write is not None and write.failure is not None:
            raise write.failure

    async def commit(self, space: str, body: Any) -> None:
        """Make a commit that reads nothing, and wait until it is durable."""
        channel = self._events.channel(space)
        assert channel is not None

        def attempt(transaction: Transaction) -> None:
            body(transaction)

        await channel.land(attempt, node="events")

    def is_to_end(self, delivery: EventDelivery, end: EventOutcome) -> bool:
        """Return whether something that is stored of an event has to be removed. False: all of it is gone now."""
        if self._stays(delivery, end):
            return False
        if end is not EventOutcome.DROPPED:
            for each in (delivery, *delivery.absorbed):
                if each in self._under_way or (
                    each.storage is Storage.STORED and not self._went_with_commit(each, end)
                ):
                    return True
        if self.outbox is not None:
            self._remove_from_outbox(delivery)
        return False

    def _stays(self, delivery: EventDelivery, end: EventOutcome) -> bool:
        """Return whether an event stays in its store."""
        if end in (EventOutcome.LEFT, EventOutcome.CLOSED) or _is_unknown(delivery.failure):
            return True  # The runtime that takes it up finds out.
        # It stays for a runtime that may: this runtime's rights are not its sender's.
        return delivery.event.is_taken and delivery.is_stored and is_barred(delivery)

    def _remove_from_outbox(self, delivery: EventDelivery) -> None:
        if self.outbox is not None:
            for each in (delivery, *delivery.absorbed):
                self.outbox.remove(each.event.row_id)

    async def ended(self, delivery: EventDelivery, end: EventOutcome) -> None:
        """Remove every row of an event that has an outcome, in the store and in the outbox."""
        if self._stays(delivery, end):
            return
        if end is not EventOutcome.DROPPED:
            for each in (delivery, *delivery.absorbed):
                # An event that is not stored yet cannot be removed.
                await self._events.core.observers.until(lambda each=each: each not in self._under_way)  # type: ignore[misc]
                if each.is_stored and not self._went_with_commit(each, end):
                    await self._remove(each, end)
        self._remove_from_outbox(delivery)

    def _went_with_commit(self, delivery: EventDelivery, end: EventOutcome) -> bool:
        """Return whether the row of an event was removed by the commit of a handling: its own, or the first one."""
        is_here = delivery.stored_in == delivery.instance.space.name
        return is_here and (
            end is EventOutcome.LANDED or (end is EventOutcome.HANDLED_BEFORE and not delivery.event.row)
        )

    def forget(self, delivery: EventDelivery) -> None:
        """Remove an event from the outbox that was withdrawn before it was handled."""
        if self.outbox is not None:
            self.outbox.remove(delivery.event.row_id)

    async def _remove(self, delivery: EventDelivery, end: EventOutcome) -> None:
        # fault+ events.row_elsewhere_stays: return
        is_here = delivery.stored_in == delivery.instance.space.name
        # A user who may not send it leaves no receipt: its id is of their choice, and may be that of another's event.
        if (
            end in (EventOutcome.REFUSED, EventOutcome.FAILED, EventOutcome.WITHDRAWN)
            and delivery.barred is not Barred.SENDER
        ):
            withdrawn = Refused(f"{delivery.stream} was withdrawn before it was handled")
            failure = withdrawn if end is EventOutcome.WITHDRAWN else delivery.failure or withdrawn
            if await self._bury(delivery, failure) and is_here:
                return
        await self.remove_row(delivery.event.row_id, delivery.stored_in)

    async def refuse_row(self, row: StoredEvent, stored_in: str, refused: Refused) -> None:
        """Refuse a stored event that no runtime can handle any more: leave a receipt and remove the row."""
        space, id = row.stream.partition("/")[0], event_id_of(row.id, row.payload)

        def write(transaction: Transaction) -> None:
            receipts.leave_refusal(self._events, transaction, id, refused)
            if space == stored_in:
                transaction.handled.append(row.id)

        try:
            await self.commit(space, write)
            if space == stored_in:
                return
        except PreconditionFailedError:
            pass  # Another runtime has handled it meanwhile, and that counts. Its row may be removed again.
        await self.remove_row(row.id, stored_in)

    async def remove_row(self, row: str, stored_in: str) -> None:
        """Remove the row of an event that has an outcome."""
        # I11: the receipt is there, so that this may be done twice, or not at all.
        await self.commit(stored_in, lambda transaction: transaction.handled.append(row))

    async def _bury(self, delivery: EventDelivery, failure: BaseException) -> bool:
        """Leave the receipt of an event that is not handled. Return False if another runtime handled it meanwhile."""

        def write(transaction: Transaction) -> None:
            receipts.leave_failure(self._events, transaction, delivery, failure)

        while True:
            try:
                await self.commit(delivery.instance.space.name, write)
            except PreconditionFailedError:
                return False
            except RuleRefusedError:
                if not receipts.mute(delivery):  # Once: then there is nothing left to leave out.
                    raise
            else:
                return True


def is_barred(delivery: EventDelivery) -> bool:
    """Return True if an event failed because this runtime may not, or could not, read or write its documents."""
    failure = delivery.failure
    if delivery.barred is Barred.RUNTIME:
        return True
    if isinstance(failure, AccessError) and delivery.barred is not Barred.SENDER:
        return True
    return isinstance(failure, LoadError) or isinstance(getattr(failure, "__cause__", None), LoadError)


def _is_unknown(failure: BaseException | None) -> bool:
    """Return True if a failure leaves unknown whether the event was handled."""
    return isinstance(failure, (SessionExpiredError, asyncio.CancelledError)) and not isinstance(
        failure, EventExpiredError
    )
