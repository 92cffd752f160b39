"""Durable events: stored before they are handled, and removed from the store with their outcome.

`Storing`: an event whose sender asks for durability is in the store of the space, or in the outbox of the sender's
machine, before its handling can be committed; if the process dies, the runtime that takes the event up finds it there.
An event that is due later is in the outbox until it is in the store. The row is removed in the commit with the receipt
if both are in one space, otherwise by a second commit, which can be repeated. A stored event that is refused or fails
for good leaves a receipt that says so, and is not taken up again. An event that failed only because the runtime that
took it up may not read or write its documents stays for another runtime with that right.

`Keeping` is the commit that stores one event before it is handled. The handling does not wait for its verdict, and
depends on it: both are commits of one session, in order, and the handling is accepted only if the storing was. So a
durable event delays no other event, also without a connection. A storing commit that never left this process is made
again, and the handling after it. It reads nothing, so that it never loses a conflict.

`Waiting` holds the events that an outbox contains from an earlier process. Each is sent again as soon as it can be
handled here. They were accepted when they were sent, and are not refused now, however many they are. An event waits
while its class is not imported, or its piece is part of a piece that is not open here; it is examined again after a
piece was opened, and from time to time. Waiting events are listed in the table of events and stay in the outbox,
whatever happens. Nothing in this module calls a handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import (
    AccessError,
    EventExpiredError,
    HeadwaterError,
    LoadError,
    PreconditionFailedError,
    Refused,
    RuleRefusedError,
    SessionExpiredError,
)
from headwater.protocol.commit import event_id_of
from headwater.protocol.verdict import Rejection, RuleRefused
from headwater.runtime.events import event_rows, receipts
from headwater.runtime.events.event_rows import Unavailable
from headwater.runtime.events.lineage import Origin, Status
from headwater.runtime.events.table import STATES, End, IntentRow
from headwater.runtime.writing.attempt import Outcome, RetriedWrite, Stage, classify

if TYPE_CHECKING:
    from headwater.protocol.commit import SentEvent
    from headwater.protocol.messages import StoredEvent
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.core.core import Core
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events
    from headwater.runtime.events.outbox import Outbox


PATIENCE_US: Final = (1_000_000, 60_000_000)
"""When they are looked at again: soon after a piece was opened, then less often."""


class Waiting:
    """What was sent the last time and cannot be handled here yet."""

    __slots__ = ("_cancel", "_events", "_is_looking", "_left", "_patience_us", "_pieces")

    def __init__(self, events: Events) -> None:
        self._events = events
        self._pieces = events.pieces
        self._left: dict[str, tuple[str, SentEvent, str]] = {}  # by row, in the order of their sending: space, row, why
        self._cancel: Callable[[], None] | None = None
        self._patience_us = PATIENCE_US[0]
        self._is_looking = False  # it is looked once everything has settled

    def take(self, rows: Iterable[tuple[str, SentEvent]]) -> None:
        """Have them handled, in the order of their sending. What cannot be is told, once, and waits."""
        self._left = {row.id: (space, row, "") for space, row in rows}
        self._look()
        for space, row, why in self._left.values():
            self._pieces.core.report(f"the outbox, of space {space}", Unavailable(f"{row.stream} waits: {why}"))

    def opened(self) -> None:
        """A piece runs here from now on: it and its children are known once what it reads has come."""
        if self._left and not self._is_looking:
            self._is_looking = True
            core = self._pieces.core
            core.afterwards(lambda: core.observers.when(core.is_settled, self._settled))

    def _settled(self) -> None:
        self._is_looking = False
        self._patience_us = PATIENCE_US[0]
        self._look()

    def _look(self) -> None:
        """Send what can be sent, and look at the rest again."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._left = {
            id: (space, row, why)
            for id, (space, row, _) in self._left.items()
            if (why := self._started(row)) is not None
        }
        if self._left:
            core = self._pieces.core
            at_us = core.clock.monotonic_us() + self._patience_us
            self._cancel = core.scheduler.gates.alarm(at_us, self._look)
            self._patience_us = min(2 * self._patience_us, PATIENCE_US[1])

    def _started(self, row: SentEvent) -> str | None:
        """Have one handled. Answers why it cannot be, yet."""
        pieces = self._pieces
        if self._events.find(event_id_of(row.id, row.payload)) is not None:
            return "it was sent again meanwhile, and has no end yet"
        try:
            event = event_rows.read(pieces, row.id, row.stream, row.payload, row.due_us, "")
        except Unavailable as error:
            return str(error)
        if event.is_own:  # The window that it was sent from ended with its process: this one is in its place.
            event.session = pieces.sessions.of(event.instance.space.name, event.user)
        event.is_late = bool(event.due_us)
        self._events.resume(event)
        return None

    def rows(self) -> tuple[IntentRow, ...]:
        """As the table of intents shows them."""
        return tuple(
            IntentRow(
                id=event_id_of(row.id, row.payload),
                stream=row.stream,
                user="",
                state=STATES[Stage.PARKED],
                sent_us=event_rows.minted(row.id),
                error=why,
            )
            for _, row, why in self._left.values()
        )


EVENT_ID_RULE: Final = "event_id"


class Keeping:
    """The storing of one event, on its way."""

    __slots__ = ("_core", "_event", "is_there", "origin", "write")

    def __init__(self, core: Core, event: Event) -> None:
        self._core = core
        self._event = event
        self.write = RetriedWrite(hooks=self, is_sure=True)
        self.origin = Origin(event.id, event.instance.space.name, event.user, event.session)
        self.is_there = False  # it was refused because the row is there already

    @property
    def is_made(self) -> bool:
        """Whether its commit is shown here, or was accepted."""
        return self.origin.status in (Status.PENDING, Status.CONFIRMED)

    @property
    def is_over(self) -> bool:
        """Whether it has its verdict."""
        return self.origin.status in (Status.CONFIRMED, Status.FAILED)

    def fail(self) -> None:
        """It is not stored, and never will be."""
        self.origin.status = Status.FAILED
        self._event.is_stored = False
        self._core.observers.check_conditions()

    # ---- hooks of its write --------------------------------------------------------------------------

    async def wait_for_lane(self) -> None:
        """It was sent, and waits for nobody."""

    def made(self, transaction: Transaction) -> None:
        event = self._event
        if self.origin.status is Status.OPEN:
            self.origin.status, self.origin.local_seq = Status.PENDING, transaction.local_seq
            event.is_stored, event.stored_in = True, event.instance.space.name
            self._core.observers.check_conditions()

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        outcome = classify(rejection, layer.local_seq)
        if outcome is Outcome.SUCCESS:
            self.origin.status = Status.CONFIRMED
        elif outcome in (Outcome.STALE, Outcome.UNSENT):
            # What stands on it fell with it, and waits until it is made again, under another number.
            self.origin.status, self.origin.local_seq = Status.OPEN, 0
        else:
            self.is_there = isinstance(rejection, RuleRefused) and rejection.rule == EVENT_ID_RULE
            self.fail()


class _Withdrawn(Exception):
    """It is not to be stored any more. Never leaves this module."""


class Storing:
    """What is stored of the events of one runtime."""

    __slots__ = ("_pieces", "_under_way", "outbox", "waiting")

    def __init__(self, events: Events) -> None:
        self._pieces = events.pieces
        self._under_way: dict[Event, asyncio.Task[None]] = {}
        self.outbox: Outbox | None = None
        self.waiting = Waiting(events)  # what an outbox holds and cannot be handled here yet

    def accept(self, event: Event, *, is_later: bool = False) -> None:
        """Begin to store it, if it is to be stored; what is due later always is. StorageError: the outbox cannot."""
        if event.is_stored or event.origin is not None or event.period is not None or event.delivers is not None:
            return  # The result of a reaction: whoever has the target next makes it again.
        if self.outbox is not None and not event.is_taken:
            self.outbox.put(event.instance.space.name, event_rows.row(event))
        # What an outbox keeps is as durable as it can be before it is handled; what is due later is not handled here.
        if event.is_durable and (self.outbox is None or is_later):
            event.keeping = keeping = Keeping(self._pieces.core, event)
            task = self._pieces.tasks.spawn(self._store(event, keeping), f"storing {event.stream}")
            self._under_way[event] = task
            task.add_done_callback(lambda _: self._stored(event))

    def use(self, outbox: Outbox) -> None:
        """Keep what is sent in a file, and send what is in it: the program ended before it had its end."""
        self.outbox = outbox
        # fault outbox.not_sent_again:
        self.waiting.take(outbox.rows())

    def _stored(self, event: Event) -> None:
        """Nobody stores it any more."""
        self._under_way.pop(event, None)
        if event.keeping is not None and not event.keeping.is_over:
            event.keeping.fail()

    async def _store(self, event: Event, keeping: Keeping) -> None:
        space = event.instance.space.name
        try:
            if event.is_withdrawn:
                return

            def store(transaction: Transaction) -> None:
                if event.is_withdrawn:
                    raise _Withdrawn
                event.is_left = True
                transaction.events.append(event_rows.row(event))

            await self.commit(space, store, keeping.write)
        except _Withdrawn:
            return  # Before there was room for one more commit: nothing of it is anywhere.
        except HeadwaterError as error:
            if keeping.is_there and event.is_taken:
                event.is_stored, event.stored_in = True, space  # The last time, and nobody heard it.
            else:
                event.failure = error

    async def accepted(self, event: Event) -> None:
        """Wait until it is stored, if it is to be. Raises why it could not be."""
        task = self._under_way.get(event)
        if task is not None:
            event.write.stage = Stage.LOADING
            await asyncio.shield(task)
        if event.keeping is not None and event.failure is not None:
            raise event.failure

    async def made(self, event: Event) -> None:
        """Wait until the commit that stores it is made, if it is to be stored. Raises why it could not be."""
        keeping = event.keeping
        if keeping is None or keeping.is_made:
            return
        await self._pieces.core.observers.until(lambda: keeping.is_made or keeping.is_over)
        if not keeping.is_made:
            await self.accepted(event)
            raise asyncio.CancelledError  # It was withdrawn before, or nothing is stored here any more.

    async def commit(self, space: str, body: Any, write: RetriedWrite | None = None) -> None:
        """A commit of its own, which reads nothing."""
        channel = self._pieces.channel(space)
        assert channel is not None

        def attempt(transaction: Transaction) -> None:
            body(transaction)

        await channel.land(attempt, node="events", write=write)

    async def ended(self, event: Event, end: End) -> None:
        """Have what is stored of it go with its end."""
        if end in (End.LEFT, End.CLOSED) or _is_unknown(event.failure):
            return  # Whoever takes it up finds out.
        if event.is_taken and event.is_stored and is_barred(event):
            return  # It stays for somebody who may: this runtime's rights are not its sender's.
        if end is not End.DROPPED:
            for each in (event, *event.absorbed):
                task = self._under_way.get(each)
                if task is not None:
                    await asyncio.shield(task)  # What is not stored yet cannot be removed.
                if each.is_stored:
                    await self._remove(each, end)
        if self.outbox is not None:
            for each in (event, *event.absorbed):
                self.outbox.remove(each.row_id)

    def forget(self, event: Event) -> None:
        """It was taken back before anything was done for it."""
        if self.outbox is not None:
            self.outbox.remove(event.row_id)

    async def _remove(self, event: Event, end: End) -> None:
        # fault+ events.row_elsewhere_stays: return
        is_here = event.stored_in == event.instance.space.name
        if end is End.LANDED and is_here:
            return  # Its row went with its commit.
        if end is End.HANDLED_BEFORE and is_here and not event.row:
            return  # It went with the commit of whoever was first.
        # Whoever may not send it leaves no receipt: its id is of their choice, and may be that of somebody's event.
        if end in (End.REFUSED, End.FAILED, End.WITHDRAWN) and not event.is_forbidden:
            withdrawn = Refused(f"{event.stream} was withdrawn before it was handled")
            failure = withdrawn if end is End.WITHDRAWN else event.failure or withdrawn
            if await self._bury(event, failure) and is_here:
                return
        await self.remove_row(event.row_id, event.stored_in)

    async def refuse_row(self, row: StoredEvent, stored_in: str, refused: Refused) -> None:
        """The end of a stored event that nobody can handle any more: its receipt says so, and its row is removed."""
        space, id = row.stream.partition("/")[0], event_id_of(row.id, row.payload)

        def write(transaction: Transaction) -> None:
            receipts.leave_refusal(self._pieces, transaction, id, refused)
            if space == stored_in:
                transaction.handled.append(row.id)

        try:
            await self.commit(space, write)
            if space == stored_in:
                return
        except PreconditionFailedError:
            pass  # Somebody handled it meanwhile, and that counts. Its row may be removed again.
        await self.remove_row(row.id, stored_in)

    async def remove_row(self, row: str, stored_in: str) -> None:
        """Remove what is stored of an event that is over."""
        # I11: the receipt is there, so that this may be done twice, or not at all.
        await self.commit(stored_in, lambda transaction: transaction.handled.append(row))

    async def _bury(self, event: Event, failure: BaseException) -> bool:
        """Leave the receipt of an event that is not handled. False: somebody handled it meanwhile, and that counts."""

        def write(transaction: Transaction) -> None:
            receipts.leave_failure(self._pieces, transaction, event, failure)

        while True:
            try:
                await self.commit(event.instance.space.name, write)
            except PreconditionFailedError:
                return False
            except RuleRefusedError:
                if not receipts.mute(event):  # Once: then there is nothing left to leave out.
                    raise
            else:
                return True


def is_barred(event: Event) -> bool:
    """Whether it failed for what this runtime may not, or could not, read or write, and not by itself."""
    failure = event.failure
    if event.is_barred or (isinstance(failure, AccessError) and not event.is_forbidden):
        return True
    return isinstance(failure, LoadError) or isinstance(getattr(failure, "__cause__", None), LoadError)


def _is_unknown(failure: BaseException | None) -> bool:
    """Whether nobody knows what became of it."""
    return isinstance(failure, (SessionExpiredError, asyncio.CancelledError)) and not isinstance(
        failure, EventExpiredError
    )
