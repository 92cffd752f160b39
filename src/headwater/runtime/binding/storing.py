"""Storing: an event that is to be durable is stored before anything else happens, and what is stored goes with its end.

A sender that asks for it has its event in the store of the space, or in the outbox of its own machine, before it is
dispatched; if the process dies, whoever takes it up finds it there. The row goes with the receipt, in one commit, where
both are in one space; otherwise by a second commit, which can be repeated. A stored event that is refused or fails for
good leaves a receipt that says so, and is not taken up again; one that failed only because whoever took it up may not
read or write what it needs stays for somebody who may. It never calls a handler.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headwater.errors import (
    EventExpiredError,
    HeadwaterError,
    LoadError,
    PreconditionFailedError,
    Refused,
    SessionExpiredError,
)
from headwater.runtime.binding import receipts, stored
from headwater.runtime.binding.intents import End
from headwater.runtime.binding.waiting import Waiting
from headwater.runtime.effort import Stage

if TYPE_CHECKING:
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

    def accept(self, event: Event) -> None:
        """Begin to store it, if it is to be stored. StorageError: the outbox cannot."""
        if event.is_stored or event.is_taken or event.origin is not None or event.period is not None:
            return
        if self.outbox is not None and not event.due_us:
            self.outbox.put(event.home.space.name, stored.row(event))
        elif event.is_durable:
            self._under_way[event] = self._pieces.runtime.tasks.spawn(self._store(event), f"storing {event.stream}")

    def use(self, outbox: Outbox) -> None:
        """Keep what is sent in a file, and send what is in it: the program ended before it had its end."""
        self.outbox = outbox
        self.waiting.take(outbox.rows())

    async def _store(self, event: Event) -> None:
        try:
            space = event.home.space.name
            if event.is_withdrawn:
                return

            def store(transaction: Transaction) -> None:
                if event.is_withdrawn:
                    raise _Withdrawn
                event.is_left = True
                transaction.events.append(stored.row(event))

            await self.commit(space, store)
            event.is_stored, event.stored_in = True, space
        except _Withdrawn:
            return  # While it waited for a connection: nothing of it is anywhere.
        except HeadwaterError as error:
            event.failure = error

    async def accepted(self, event: Event) -> None:
        """Wait until it is stored, if it is to be. Raises why it could not be."""
        task = self._under_way.pop(event, None)
        if task is not None:
            event.effort.stage = Stage.LOADING
            await asyncio.shield(task)
            if event.failure is not None:
                raise event.failure

    async def commit(self, space: str, write: Any) -> None:
        """A commit of its own, which reads nothing."""
        channel = self._pieces.runtime.channel(space)
        assert channel is not None

        def attempt(transaction: Transaction) -> None:
            write(transaction)

        await channel.land(attempt, node="events")

    async def ended(self, event: Event, end: End) -> None:
        """Have what is stored of it go with its end."""
        if end is End.CLOSED or _is_unknown(event.failure):
            return  # Whoever takes it up finds out.
        if event.is_taken and event.is_stored and is_barred(event):
            return  # It stays for somebody who may: this runtime's rights are not its sender's.
        if end is not End.DROPPED:
            for each in (event, *event.absorbed):
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
        is_here = event.stored_in == event.home.space.name
        if end is End.LANDED and is_here:
            return  # Its row went with its commit.
        if end is End.HANDLED_BEFORE and is_here and not event.row:
            return  # It went with the commit of whoever was first.
        if end in (End.REFUSED, End.FAILED, End.WITHDRAWN):
            withdrawn = Refused(f"{event.stream} was withdrawn before it was handled")
            failure = withdrawn if end is End.WITHDRAWN else event.failure or withdrawn
            if await self._bury(event, failure) and is_here:
                return
        # I11: the receipt is there, so that this may be done twice, or not at all.
        await self.commit(event.stored_in, lambda transaction: transaction.handled.append(event.row_id))

    async def _bury(self, event: Event, failure: BaseException) -> bool:
        """Leave the receipt of an event that is not handled. False: somebody handled it meanwhile, and that counts."""

        def write(transaction: Transaction) -> None:
            receipts.leave_failure(self._pieces, transaction, event, failure)

        try:
            await self.commit(event.home.space.name, write)
        except PreconditionFailedError:
            return False
        return True


def is_barred(event: Event) -> bool:
    """Whether it failed for what this runtime may not, or could not, read or write, and not by itself."""
    failure = event.failure
    return (
        event.is_barred or isinstance(failure, LoadError) or isinstance(getattr(failure, "__cause__", None), LoadError)
    )


def _is_unknown(failure: BaseException | None) -> bool:
    """Whether nobody knows what became of it."""
    return isinstance(failure, (SessionExpiredError, asyncio.CancelledError)) and not isinstance(
        failure, EventExpiredError
    )
