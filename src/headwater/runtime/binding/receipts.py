"""Receipts: that an event was handled, and what came of it, so that it is handled once in all (I11).

Every handling creates the result document of its event in its own commit, under the condition that it was never there.
A second handling, after a restart, from another runtime or another machine, is refused for good by that, also if it
would have written nothing, and its sender gets what the first one answered. Own retries never collide: what lost was
never there. The receipt names the pieces that the handling launched. Receipts are kept for so long, and deleted some at
a time; a deleted one still counts, so that its event is refused as expired and never handled again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model
from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.value import ABSENT, Absent, MaybeValue, Value
from headwater.errors import EventExpiredError, HandlerFailed, HeadwaterError, LoadError, Refused
from headwater.protocol.messages import Query
from headwater.replica.document import NOT_HERE

if TYPE_CHECKING:
    from headwater.replica.transaction import Transaction
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.pieces import Pieces

PREFIX: Final = "$result:"


class Receipt(Model):
    """That an event was handled, and how that ended."""

    at_us: int
    result: Json = None
    launched: tuple[str, ...] = ()  # pieces that began with it
    refused: str | None = None  # of a stored event: its handler said no
    failed: str | None = None  # of a stored event: why it is not handled any more


class HandledBefore(Exception):
    """An event was handled before: what its sender gets. Never leaves this package."""

    def __init__(self, answer: Any, failure: HeadwaterError | None) -> None:
        super().__init__("it was handled before")
        self.answer = answer
        self.failure = failure


def place(id: str) -> DocKey:
    """Where the receipt of an event is. They sort by the time at which their events were sent."""
    return DocKey(SPACE_SCOPE, f"{PREFIX}{id}")


def leave(pieces: Pieces, transaction: Transaction, event: Event, result: Value) -> None:
    """Inside the handler's transaction: that it was handled, with whatever it is handled in the place of."""
    attempt = event.attempt
    launched = () if attempt is None else tuple(home.id for home, _ in attempt.launched)
    raw: Any = result
    _write(pieces, transaction, event, Receipt(at_us=_now(pieces), result=raw, launched=launched))


def leave_failure(pieces: Pieces, transaction: Transaction, event: Event, failure: BaseException) -> None:
    """In a transaction of its own: that a stored event came to another end, and is not taken up again."""
    said = str(failure)
    if isinstance(failure, Refused):
        receipt = Receipt(at_us=_now(pieces), refused=failure.reason)
    else:
        receipt = Receipt(at_us=_now(pieces), failed=f"{type(failure).__name__}: {said}")
    _write(pieces, transaction, event, receipt)


def _write(pieces: Pieces, transaction: Transaction, event: Event, receipt: Receipt) -> None:
    if pieces.runtime.channel(event.home.space.name) is None and not event.is_known:
        return  # The space is nowhere but here: nobody can have the same event, unless its sender gave it an id.
    encoded: Any = codec_for(Receipt).encode(receipt)
    for each in (event, *event.absorbed):
        # I11: of all commits that handle one event, whoever makes them, the first one creates this.
        transaction.create(place(each.id), encoded)
        if each.is_stored and each.stored_in == each.home.space.name:
            transaction.handled.append(each.row_id)


def _now(pieces: Pieces) -> int:
    return pieces.core.clock.now_us()


async def check(pieces: Pieces, event: Event) -> None:
    """Raise what came of an event if it was handled before. Only one that may have been is asked for."""
    if event.is_known or event.is_stored:
        await answered(pieces, event, is_certain=False)


async def answered(pieces: Pieces, event: Event, *, is_certain: bool = True) -> None:
    """Raise what came of an event that was handled before."""
    value = await _stored(pieces, event)
    if isinstance(value, Absent):
        if not is_certain:
            return
        kept = "was handled so long ago that what came of it is not kept"
        raise HandledBefore(None, EventExpiredError(f"{event.stream}: event {event.id} {kept}"))
    receipt: Receipt = codec_for(Receipt).decode(value)
    failure: HeadwaterError | None = None
    if receipt.refused is not None:
        failure = Refused(receipt.refused)
    elif receipt.failed is not None:
        failure = HandlerFailed(f"{event.stream} failed before: {receipt.failed}")
    raw: Any = receipt.result
    answer = None if failure is not None else event.home.outline.signature(event.member).result.decode(raw)
    raise HandledBefore(answer, failure)


async def _stored(pieces: Pieces, event: Event) -> MaybeValue:
    """The receipt as it is stored now. What is watched here may not show yet what a commit was refused for."""
    doc = place(event.id)
    channel = pieces.runtime.channel(event.home.space.name)
    if channel is None:
        document = event.home.space.document(doc.id, doc.scope)
        await pieces.core.loaded(document)
        return ABSENT if document.value is NOT_HERE else document.value
    driver = channel.driver
    while True:  # Until a connection lasts for as long as an answer takes; a driver that is over raises.
        line = driver.reconnects
        try:
            answer = await driver.query(Query(0, doc.scope, doc.id))
        except LoadError:
            if driver.reconnects == line and channel.is_up():
                raise  # It was no matter of the connection.
            await driver.opened()
        else:
            return answer.documents[0].get()
