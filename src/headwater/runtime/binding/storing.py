"""Storing: an event that is to be durable is stored before anything else happens, and what is stored goes with its end.

A sender that asks for it has its event in the store of the space, or in the outbox of its own machine, before its
handling can land; if the process dies, whoever takes it up finds it there. What is due later is in the outbox until it
is in the store. The row goes with the receipt, in one commit, where
both are in one space; otherwise by a second commit, which can be repeated. A stored event that is refused or fails for
good leaves a receipt that says so, and is not taken up again; one that failed only because whoever took it up may not
read or write what it needs stays for somebody who may. It never calls a handler.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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
from headwater.runtime.binding import receipts, stored
from headwater.runtime.binding.intents import End
from headwater.runtime.binding.keeping import Keeping
from headwater.runtime.binding.waiting import Waiting
from headwater.runtime.effort import Effort, Stage

if TYPE_CHECKING:
    from headwater.protocol.messages import StoredEvent
    from headwater.replica.transaction import Transaction
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.pieces import Pieces
    from headwater.runtime.outbox import Outbox


class _Withdrawn(Exception):
    """It is not to be stored any more. Never leaves this module."""


class Storing:
    """What is stored of the events of one runtime."""

    __slots__ = ("_pieces", "_under_way", "outbox", "waiting")

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._under_way: dict[Event, asyncio.Task[None]] = {}
        self.outbox: Outbox | None = None
        self.waiting = Waiting(pieces)  # what an outbox holds and cannot be handled here yet

    def accept(self, event: Event, *, is_later: bool = False) -> None:
        """Begin to store it, if it is to be stored; what is due later always is. StorageError: the outbox cannot."""
        if event.is_stored or event.origin is not None or event.period is not None or event.delivers is not None:
            return  # The result of a reaction: whoever has the target next makes it again.
        if self.outbox is not None and not event.is_taken:
            self.outbox.put(event.home.space.name, stored.row(event))
        # What an outbox keeps is as durable as it can be before it is handled; what is due later is not handled here.
        if event.is_durable and (self.outbox is None or is_later):
            event.keeping = keeping = Keeping(self._pieces.core, event)
            task = self._pieces.runtime.tasks.spawn(self._store(event, keeping), f"storing {event.stream}")
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
        space = event.home.space.name
        try:
            if event.is_withdrawn:
                return

            def store(transaction: Transaction) -> None:
                if event.is_withdrawn:
                    raise _Withdrawn
                event.is_left = True
                transaction.events.append(stored.row(event))

            await self.commit(space, store, keeping.effort)
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
            event.effort.stage = Stage.LOADING
            await asyncio.shield(task)
        if event.keeping is not None and event.failure is not None:
            raise event.failure

    async def made(self, event: Event) -> None:
        """Wait until the commit that stores it is made, if it is to be stored. Raises why it could not be."""
        keeping = event.keeping
        if keeping is None or keeping.is_made:
            return
        await self._pieces.core.observing.until(lambda: keeping.is_made or keeping.is_over)
        if not keeping.is_made:
            await self.accepted(event)
            raise asyncio.CancelledError  # It was withdrawn before, or nothing is stored here any more.

    async def commit(self, space: str, write: Any, effort: Effort | None = None) -> None:
        """A commit of its own, which reads nothing."""
        channel = self._pieces.runtime.channel(space)
        assert channel is not None

        def attempt(transaction: Transaction) -> None:
            write(transaction)

        await channel.land(attempt, node="events", effort=effort)

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
        is_here = event.stored_in == event.home.space.name
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
        space, id = row.stream.partition("/")[0], stored.id_of(row.id, row.payload)

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
                await self.commit(event.home.space.name, write)
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
