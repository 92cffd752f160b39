"""Receipts: the record that an event was handled, and its outcome, so that each event is handled exactly once (I11).

Every handling creates the receipt document of its event in its own commit, under the condition that the document never
existed. That condition refuses a second handling for good, after a restart, from another runtime or another machine,
also if it would write nothing; its sender gets the outcome of the first. Retries of one handling do not collide: a
rejected commit never created the document. The receipt names the pieces that the handling launched.

The outcome is in the receipt, readable for all readers of the space, unless the handler read documents of one user or
session, or a space that not every user may read. Then the outcome is in a document beside the receipt, in the scope of
that user or session, if there is one that can ask for it.

`Retention` deletes receipts after a fixed time, some at a time, as part of handling events. A deleted receipt still
counts: its event is refused as expired and never handled again. Receipts sort by the send time of their events; those
with ids given by callers come first and contain the time at which they were left. A sweep examines one page, continues
where the last sweep ended, and follows every so many handlings, so that receipts are not left faster than they are
swept. Outcomes in the scope of a user or a session are swept separately, by the runtimes that handle events of that
user or session, and by the process that left them when their time is over: no further event of a closed session is
handled. `Retention` handles no event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model
from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.patch import Patch
from headwater.data.value import ABSENT, Absent, MaybeValue, Value
from headwater.errors import EventExpiredError, HandlerFailed, HeadwaterError, LoadError, Refused
from headwater.protocol.messages import Answer, Query, State
from headwater.replica.document import NOT_HERE
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.events.event import Storage
from headwater.runtime.events.event_rows import minted

if TYPE_CHECKING:
    from headwater.replica.transaction import Transaction
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events


PREFIX: Final = "$result:"


class Receipt(Model):
    """The record that an event was handled, with its outcome."""

    at_us: int
    result: Json = None
    launched: tuple[str, ...] = ()  # pieces that began with it
    refused: str | None = None  # of a stored event: the reason of its handler
    failed: str | None = None  # of a stored event: why it is not handled any more
    kept: str | None = None  # if set, the outcome is in a second receipt in this scope: "user" or "session"


class HandledBefore(Exception):
    """An event was handled before; carries the outcome for its sender. Never leaves this package."""

    def __init__(self, answer: Any, failure: HeadwaterError | None) -> None:
        super().__init__("it was handled before")
        # fault receipts.answer_forgotten: self.answer = None
        self.answer = answer
        self.failure = failure


def place(id: str, scope: str = SPACE_SCOPE) -> DocKey:
    """Return the key of an event's receipt. Receipts sort by the send times of their events."""
    return DocKey(scope, f"{PREFIX}{id}")


def scope_of(event: Event, kept: str | None) -> str:
    """Return the scope of the receipt with the outcome."""
    match kept:
        case "user":
            return f"user:{event.user}"
        case "session":
            return f"session:{event.session}"
        case _:
            return SPACE_SCOPE


def narrowest(scopes: Iterable[str]) -> str | None:
    """Return the narrowest scope among those of documents: "user", "session", or None for the whole space.

    "user" comes before "session": the session may be another one tomorrow, and both belong to the same user.
    """
    kinds = {scope.partition(":")[0] for scope in scopes}
    return "user" if "user" in kinds else "session" if "session" in kinds else None


def leave(events: Events, transaction: Transaction, delivery: EventDelivery, result: Value) -> None:
    """Add the receipts of an event, and of the events that it replaced, to the handler's transaction."""
    attempt = delivery.attempt
    launched: tuple[str, ...] = ()
    if attempt is not None and attempt.launched:
        launched = tuple([instance.id for instance, _ in attempt.launched])
    raw: Any = result
    _write(events, transaction, delivery, Receipt(at_us=_now(events), result=raw, launched=launched))


def leave_failure(events: Events, transaction: Transaction, delivery: EventDelivery, failure: BaseException) -> None:
    """Add the receipt of a stored event that is refused or failed for good to a transaction of its own."""
    said = str(failure)
    if isinstance(failure, Refused):
        receipt = Receipt(at_us=_now(events), refused=failure.reason)
    else:
        receipt = Receipt(at_us=_now(events), failed=f"{type(failure).__name__}: {said}")
    # fault receipts.failure_not_written: transaction.handled.append(delivery.event.row_id)
    _write(events, transaction, delivery, receipt)


def leave_refusal(events: Events, transaction: Transaction, id: str, refused: Refused) -> None:
    """Add the receipt of a refused event of which only the id is known."""
    transaction.create(place(id), _encode(Receipt(at_us=_now(events), refused=refused.reason)))


def _write(events: Events, transaction: Transaction, delivery: EventDelivery, receipt: Receipt) -> None:
    """Create the receipts of an event and of the events that it replaced, and end their rows of this space."""
    event, attempt = delivery.event, delivery.attempt
    is_kept = events.channel(event.instance.space.name) is not None
    if not is_kept and not event.is_known:
        return  # Without an engine no second handling is possible, unless the sender gave the event an id.
    whole = mark = _encode(receipt)
    kept = None if attempt is None else attempt.kept
    # A space without an engine has no other readers.
    scope = scope_of(event, kept) if kept is not None and is_kept and _says_something(receipt) else SPACE_SCOPE
    if scope != SPACE_SCOPE:
        mark = _encode(_mark(receipt, kept))
    for each in (delivery, *delivery.absorbed):
        # I11: of all commits that handle one event, in any process, only the first one can create this document.
        # fault receipts.not_written:
        transaction.create(place(each.id), mark)
        # For other events no sender can ask for the outcome later.
        # fault receipts.not_written: if False:
        if scope != SPACE_SCOPE and each.event.is_named and _may_answer(delivery):
            transaction.create(place(each.id, scope), whole)
        if each.storage is Storage.STORED and each.stored_in == each.instance.space.name:
            # fault receipts.handled_event_stays_stored:
            transaction.handled.append(each.event.row_id)


def _encode(receipt: Receipt) -> Value:
    """Encode a receipt. Its codec checks the texts of a failure; the other fields are values already."""
    if receipt.refused is not None or receipt.failed is not None:
        return codec_for(Receipt).encode(receipt)
    result: Any = receipt.result
    raw: Value = {
        "at_us": receipt.at_us,
        "result": result,
        "launched": receipt.launched,
        "refused": None,
        "failed": None,
        "kept": receipt.kept,
    }
    return raw


def _says_something(receipt: Receipt) -> bool:
    return (receipt.result, receipt.refused, receipt.failed) != (None, None, None)


def _may_answer(delivery: EventDelivery) -> bool:
    """Return True if the outcome is left in a scope of its sender's.

    A runtime that read a document of a narrow scope may write there. One that read another space perhaps may not; then
    the commit is refused, and made again without the outcome (`mute`).
    """
    event, attempt = delivery.event, delivery.attempt
    if attempt is None or not attempt.is_of_elsewhere:
        return True
    return delivery.leaves_answer and bool(event.user or event.session)


def mute(delivery: EventDelivery) -> bool:
    """Leave the answer in the sender's scope out of the next attempt. Return False if there was none.

    Called when a commit was refused: a connection is not told which user it belongs to, and may not write documents of
    another user, whose event it handles.
    """
    attempt = delivery.attempt
    is_of_elsewhere = attempt is not None and attempt.is_of_elsewhere
    has_answer = is_of_elsewhere and delivery.event.is_named and delivery.leaves_answer
    delivery.leaves_answer = delivery.leaves_answer and not has_answer
    return has_answer


def _mark(receipt: Receipt, kept: str | None) -> Receipt:
    """Return the receipt for all readers of the space, without the outcome."""
    refused = None if receipt.refused is None else ""
    failed = None if receipt.failed is None else ""
    return Receipt(at_us=receipt.at_us, launched=receipt.launched, refused=refused, failed=failed, kept=kept)


def _now(events: Events) -> int:
    return events.core.clock.now_us()


def may_be_handled(delivery: EventDelivery) -> bool:
    """Return True if an event may have been handled before. Only then its receipt is queried."""
    return delivery.event.is_known or delivery.is_stored


async def check(events: Events, delivery: EventDelivery) -> None:
    """Raise `HandledBefore` with the outcome if the event was handled before."""
    if may_be_handled(delivery):
        await answered(events, delivery, is_certain=False)


async def answered(events: Events, delivery: EventDelivery, *, is_certain: bool = True) -> None:
    """Raise `HandledBefore` with the outcome of an event that was handled before."""
    event = delivery.event
    value = await _stored(events, event, SPACE_SCOPE)
    if isinstance(value, Absent):
        if not is_certain:
            return
        kept = "was handled so long ago that its result is not kept"
        raise HandledBefore(None, EventExpiredError(f"{event.stream}: event {event.id} {kept}"))
    receipt: Receipt = codec_for(Receipt).decode(value)
    if receipt.kept is not None:
        receipt = await _kept(events, event, receipt.kept)
    failure: HeadwaterError | None = None
    if receipt.refused is not None:
        failure = Refused(receipt.refused)
    elif receipt.failed is not None:
        failure = HandlerFailed(f"{event.stream} failed before: {receipt.failed}")
    raw: Any = receipt.result
    answer = None if failure is not None else event.instance.schema.signature(event.member).result.decode(raw)
    raise HandledBefore(answer, failure)


async def _kept(events: Events, event: Event, kept: str) -> Receipt:
    """Return the receipt in the scope of the user or the session."""
    try:
        value = await _stored(events, event, scope_of(event, kept))
    except LoadError:
        value = ABSENT
    if isinstance(value, Absent):
        whose = (
            f"was handled; its result is visible only to the {kept} for which it was handled, or is not kept any more"
        )
        raise HandledBefore(None, EventExpiredError(f"{event.stream}: event {event.id} {whose}"))
    found: Receipt = codec_for(Receipt).decode(value)
    return found


async def _stored(events: Events, event: Event, scope: str) -> MaybeValue:
    """Return a receipt as stored now. The shown documents may not contain yet the receipt that refused a commit."""
    doc = place(event.id, scope)
    channel = events.channel(event.instance.space.name)
    if channel is None:
        document = event.instance.space.document(doc.id, doc.scope)
        await events.core.loaded(document)
        return ABSENT if document.value is NOT_HERE else document.value
    answer = await channel.driver.answer_of(Query(0, doc.scope, doc.id))
    return answer.documents[0].get()


Swept = tuple[str, str]
"""A space, and a scope of it."""
TIMED: Final = f"{PREFIX}000000000000-~"
"""The first key of receipts that sort by time. Those with ids given by callers, which contain no time, come before."""


class Retention:
    """Deletes old receipts in the spaces of one runtime."""

    __slots__ = ("_after", "_behind", "_events", "_landed", "_left", "_policy", "_random", "_sweeping")

    def __init__(self, events: Events) -> None:
        self._events = events
        self._policy = events.policy
        self._random = events.core.clock.randomness(f"receipts {events.origin}")
        self._landed: dict[Swept, int] = {}  # handlings since the last sweep
        self._after: dict[Swept, str] = {}  # where the last sweep of receipts with given ids ended
        self._behind: dict[Swept, str] = {}  # the last deleted receipt of those that sort by time
        self._sweeping: set[Swept] = set()
        # Narrow scopes with receipts of this process, ordered by the time of the first one since the last sweep.
        self._left: dict[Swept, int] = {}

    @property
    def tracked(self) -> tuple[list[Swept], list[Swept]]:
        """The scopes whose handlings are counted, and the narrow ones with receipts to be deleted later."""
        return list(self._landed), list(self._left)

    def landed(self, delivery: EventDelivery) -> None:
        """Count a handling. Every `sweep_every` of them start a sweep; counting begins at a random number."""
        event, attempt = delivery.event, delivery.attempt
        kept = None if attempt is None else attempt.kept
        space = event.instance.space.name
        self._count((space, SPACE_SCOPE))
        is_narrow = kept is not None and event.is_named
        if not (is_narrow or self._left):
            return
        now_us = self._events.core.clock.now_us()
        if is_narrow:
            narrow = (space, scope_of(event, kept))
            self._count(narrow)
            self._note(narrow, now_us)
        for swept in self._over(now_us):
            self._begin(swept)

    def _count(self, swept: Swept) -> None:
        policy = self._policy
        count = self._landed.pop(swept, None)
        if count is None:
            count = self._random.randrange(policy.sweep_every)
            if len(self._landed) >= policy.sweep_scopes:
                oldest = next(iter(self._landed))
                del self._landed[oldest]
                self._after.pop(oldest, None)
                self._behind.pop(oldest, None)
        self._landed[swept] = count + 1
        if count + 1 >= policy.sweep_every and self._may_begin(swept):
            self._landed[swept] = 0
            self._begin(swept)

    def _note(self, narrow: Swept, at_us: int) -> None:
        """Remember a narrow scope with a receipt that has to be deleted later."""
        self._left.setdefault(narrow, at_us)
        if len(self._left) > self._policy.sweep_scopes:
            del self._left[next(iter(self._left))]

    def _over(self, now_us: int) -> list[Swept]:
        """Return some of the narrow scopes whose first receipt has expired."""
        oldest_us = self._oldest_us
        found: list[Swept] = []
        for narrow, at_us in tuple(islice(self._left.items(), RUNTIME_LIMITS.swept_scopes)):
            if at_us >= oldest_us:
                break
            del self._left[narrow]
            if self._may_begin(narrow):
                found.append(narrow)
            else:
                self._note(narrow, now_us)  # Later: it does not delay the scopes behind it.
        return found

    def _may_begin(self, swept: Swept) -> bool:
        channel = self._events.channel(swept[0])
        return swept not in self._sweeping and channel is not None and channel.is_up()

    def _begin(self, swept: Swept) -> None:
        self._sweeping.add(swept)
        self._events.tasks.begin(self._sweep(swept), f"receipts of {swept[0]}")

    async def _sweep(self, swept: Swept) -> None:
        is_narrow, is_left = swept[1] != SPACE_SCOPE, True
        try:
            is_left = await self._sweep_given(swept)
            while is_narrow and swept in self._after:  # No further event of the scope may start a sweep.
                is_left |= await self._sweep_given(swept)
            is_left |= await self._sweep_timed(swept)
        except HeadwaterError:
            return  # The connection is lost, or this user has no right: another sweep follows.
        finally:
            self._sweeping.discard(swept)
            if is_narrow:
                self._behind.pop(swept, None)
                if is_left:
                    self._note(swept, self._events.core.clock.now_us())

    async def _sweep_given(self, swept: Swept) -> bool:
        """Sweep the next receipts with given ids, cyclically. Return True if some of them are younger."""
        found: list[DocKey] = []
        is_left, after = False, self._after.pop(swept, PREFIX)
        for _ in range(RUNTIME_LIMITS.receipt_pages):
            answer = await self._page(swept, after, lambda first: first.doc.id < TIMED)
            for state in answer.documents:
                if state.doc.id < TIMED and _left_us(state.get()) < self._oldest_us:
                    found.append(state.doc)
                else:
                    is_left |= state.doc.id < TIMED
            after = PREFIX if answer.next is None or answer.next >= TIMED else answer.next
            if answer.documents or after == PREFIX:
                break  # Otherwise the page contains only deleted receipts.
        await self._delete(swept[0], found)
        if after != PREFIX:
            self._after[swept] = after
        return is_left

    async def _sweep_timed(self, swept: Swept) -> bool:
        """Sweep the next receipts that sort by time. Return True if there is a younger one."""
        found: list[DocKey] = []
        is_left, after = False, self._behind.get(swept, TIMED)
        for _ in range(RUNTIME_LIMITS.receipt_pages):
            answer = await self._page(swept, after, lambda first: self._may_be_over(first.doc.id))
            for state in answer.documents:
                id = state.doc.id
                if not self._may_be_over(id):
                    is_left |= id.startswith(PREFIX)
                    break  # All that come after it are younger.
                is_old = _left_us(state.get()) < self._oldest_us
                is_left |= not is_old
                if is_old:
                    found.append(state.doc)
                if not is_left:
                    after = id
            if not answer.documents and answer.next is not None:
                after = answer.next  # The page contains only deleted receipts.
            else:
                break
        await self._delete(swept[0], found)
        self._behind[swept] = after
        return is_left

    @property
    def _oldest_us(self) -> int:
        return self._events.core.clock.now_us() - round(self._policy.retention_ms * 1_000)

    def _may_be_over(self, id: str) -> bool:
        """Return True if a key is of a receipt whose event was sent before the retention time."""
        return id.startswith(PREFIX) and minted(id.removeprefix(PREFIX)) < self._oldest_us

    async def _page(self, swept: Swept, after: str, is_wanted: Callable[[State], bool]) -> Answer:
        """Return a page of receipts, or only its first one if that is not wanted: then no other one on the page is."""
        channel = self._events.channel(swept[0])
        assert channel is not None
        first = await channel.driver.query(Query(0, swept[1], after=after, limit=1))
        if first.documents and not is_wanted(first.documents[0]):
            return first
        return await channel.driver.query(Query(0, swept[1], after=after, limit=self._policy.sweep_page))

    async def _delete(self, space: str, old: list[DocKey]) -> None:
        if not old:
            return
        events = self._events
        core, local = events.core, events.core.space(space)
        documents = [local.document(doc.id, doc.scope) for doc in old]
        for document in documents:
            core.load(document)
        await core.observers.until(
            lambda: all(each.value is not NOT_HERE or core.why_not(each) is not None for each in documents)
        )

        def delete() -> None:
            run = core.current.run
            assert run is not None
            for document in documents:
                if document.value is not NOT_HERE:
                    run.tracker.write(run, document, Patch("remove", ()))

        try:
            await events.transactions.transact(local, delete)
        finally:
            for document in documents:
                local.release_if_unread(document)


def _left_us(receipt: MaybeValue) -> int:
    at = receipt.get("at_us") if isinstance(receipt, Mapping) else None
    return at if isinstance(at, int) else 0
