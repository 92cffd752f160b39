"""Receipts: that an event was handled, and what came of it, so that it is handled once in all (I11).

Every handling creates the result document of its event in its own commit, under the condition that it was never there.
A second handling, after a restart, from another runtime or another machine, is refused for good by that, also if it
would have written nothing, and its sender gets what the first one answered. Own retries never collide: what lost was
never there. The receipt names the pieces that the handling launched. What came of it is in the receipt, for everybody
who may read the space, unless the handler stood on something that is one user's or one session's, or on a space that
not everybody may read: then it is in a document beside it, which is theirs alone, if anybody can ask for it. Receipts
are kept for so long, and deleted some at a time; a deleted one still counts, so that its event is refused as expired
and never handled again.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    kept: str | None = None  # whose alone the rest of this is, which is beside it: the "user"'s or the "session"'s


class HandledBefore(Exception):
    """An event was handled before: what its sender gets. Never leaves this package."""

    def __init__(self, answer: Any, failure: HeadwaterError | None) -> None:
        super().__init__("it was handled before")
        # fault receipts.answer_forgotten: self.answer = None
        self.answer = answer
        self.failure = failure


def place(id: str, scope: str = SPACE_SCOPE) -> DocKey:
    """Where the receipt of an event is. They sort by the time at which their events were sent."""
    return DocKey(scope, f"{PREFIX}{id}")


def scope_of(event: Event, kept: str | None) -> str:
    """The scope that what came of it is kept in."""
    match kept:
        case "user":
            return f"user:{event.user}"
        case "session":
            return f"session:{event.session}"
        case _:
            return SPACE_SCOPE


def narrowest(scopes: Iterable[str]) -> str | None:
    """Whose alone something is that stands on documents of these scopes: the user's before one of their sessions'.

    A session may be another one tomorrow, and both are the same person's.
    """
    kinds = {scope.partition(":")[0] for scope in scopes}
    return "user" if "user" in kinds else "session" if "session" in kinds else None


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
    # fault receipts.failure_not_written: transaction.handled.append(event.row_id)
    _write(pieces, transaction, event, receipt)


def leave_refusal(pieces: Pieces, transaction: Transaction, id: str, refused: Refused) -> None:
    """The same of an event that is known by its id alone: it cannot be handled any more, by anybody."""
    encoded: Any = codec_for(Receipt).encode(Receipt(at_us=_now(pieces), refused=refused.reason))
    transaction.create(place(id), encoded)


def _write(pieces: Pieces, transaction: Transaction, event: Event, receipt: Receipt) -> None:
    is_kept = pieces.runtime.channel(event.home.space.name) is not None
    if not is_kept and not event.is_known:
        return  # The space is nowhere but here: nobody can have the same event, unless its sender gave it an id.
    whole: Any = codec_for(Receipt).encode(receipt)
    mark = whole
    # What is nowhere but here is read by nobody else.
    scope = scope_of(event, event.kept) if is_kept and _says_something(receipt) else SPACE_SCOPE
    if scope != SPACE_SCOPE:
        mark = codec_for(Receipt).encode(_mark(receipt, event.kept))
    for each in (event, *event.absorbed):
        # I11: of all commits that handle one event, whoever makes them, the first one creates this.
        # fault receipts.not_written:
        transaction.create(place(each.id), mark)
        # Otherwise nobody asks what came of it, and nothing has to be kept for an answer.
        # fault receipts.not_written: if False:
        if scope != SPACE_SCOPE and each.is_named and _may_answer(event):
            transaction.create(place(each.id, scope), whole)
        if each.is_stored and each.stored_in == each.home.space.name:
            # fault receipts.handled_event_stays_stored:
            transaction.handled.append(each.row_id)


def _says_something(receipt: Receipt) -> bool:
    return (receipt.result, receipt.refused, receipt.failed) != (None, None, None)


def _may_answer(event: Event) -> bool:
    """Whether what came of it is left in a scope of its sender's: whoever could read something narrow can write beside
    it; who read another space may perhaps not, which is found out by trying."""
    return not event.is_of_elsewhere or (not event.is_mute and bool(event.user or event.session))


def mute(event: Event) -> bool:
    """Its commit was refused. Whether it may be tried again without the answer in its sender's scope.

    A connection is not told whose it is: one that handles what another user sent may not write there.
    """
    has_answer = event.is_of_elsewhere and event.is_named and not event.is_mute
    event.is_mute = event.is_mute or has_answer
    return has_answer


def _mark(receipt: Receipt, kept: str | None) -> Receipt:
    """That an event was handled, for everybody, without what came of it."""
    refused = None if receipt.refused is None else ""
    failed = None if receipt.failed is None else ""
    return Receipt(at_us=receipt.at_us, launched=receipt.launched, refused=refused, failed=failed, kept=kept)


def _now(pieces: Pieces) -> int:
    return pieces.core.clock.now_us()


async def check(pieces: Pieces, event: Event) -> None:
    """Raise what came of an event if it was handled before. Only one that may have been is asked for."""
    if event.is_known or event.is_stored:
        await answered(pieces, event, is_certain=False)


async def answered(pieces: Pieces, event: Event, *, is_certain: bool = True) -> None:
    """Raise what came of an event that was handled before."""
    value = await _stored(pieces, event, SPACE_SCOPE)
    if isinstance(value, Absent):
        if not is_certain:
            return
        kept = "was handled so long ago that what came of it is not kept"
        raise HandledBefore(None, EventExpiredError(f"{event.stream}: event {event.id} {kept}"))
    receipt: Receipt = codec_for(Receipt).decode(value)
    if receipt.kept is not None:
        receipt = await _kept(pieces, event, receipt.kept)
    failure: HeadwaterError | None = None
    if receipt.refused is not None:
        failure = Refused(receipt.refused)
    elif receipt.failed is not None:
        failure = HandlerFailed(f"{event.stream} failed before: {receipt.failed}")
    raw: Any = receipt.result
    answer = None if failure is not None else event.home.outline.signature(event.member).result.decode(raw)
    raise HandledBefore(answer, failure)


async def _kept(pieces: Pieces, event: Event, kept: str) -> Receipt:
    """What came of an event that stood on something which is one user's or one session's alone."""
    try:
        value = await _stored(pieces, event, scope_of(event, kept))
    except LoadError:
        value = ABSENT
    if isinstance(value, Absent):
        whose = f"was handled, and what came of it is for the {kept} alone for whom that was, or is not kept any more"
        raise HandledBefore(None, EventExpiredError(f"{event.stream}: event {event.id} {whose}"))
    found: Receipt = codec_for(Receipt).decode(value)
    return found


async def _stored(pieces: Pieces, event: Event, scope: str) -> MaybeValue:
    """The receipt as it is stored now. What is watched here may not show yet what a commit was refused for."""
    doc = place(event.id, scope)
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
