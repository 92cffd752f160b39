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
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.cells.codec import codec_for
from headwater.cells.model import Json, Model
from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.patch import Patch
from headwater.data.value import ABSENT, Absent, MaybeValue, Value
from headwater.errors import EventExpiredError, HandlerFailed, HeadwaterError, LoadError, Refused
from headwater.protocol.messages import Answer, Query, State
from headwater.replica.document import NOT_HERE
from headwater.runtime.events.event_rows import minted

if TYPE_CHECKING:
    from headwater.replica.transaction import Transaction
    from headwater.runtime.core.policy import Policy
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.events.event import Event
    from headwater.runtime.pieces.registry import PieceRegistry


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


def leave(pieces: PieceRegistry, transaction: Transaction, delivery: EventDelivery, result: Value) -> None:
    """Inside the handler's transaction: that it was handled, with whatever it is handled in the place of."""
    attempt = delivery.attempt
    launched = () if attempt is None else tuple(instance.id for instance, _ in attempt.launched)
    raw: Any = result
    _write(pieces, transaction, delivery, Receipt(at_us=_now(pieces), result=raw, launched=launched))


def leave_failure(
    pieces: PieceRegistry, transaction: Transaction, delivery: EventDelivery, failure: BaseException
) -> None:
    """In a transaction of its own: that a stored event came to another end, and is not taken up again."""
    said = str(failure)
    if isinstance(failure, Refused):
        receipt = Receipt(at_us=_now(pieces), refused=failure.reason)
    else:
        receipt = Receipt(at_us=_now(pieces), failed=f"{type(failure).__name__}: {said}")
    # fault receipts.failure_not_written: transaction.handled.append(delivery.event.row_id)
    _write(pieces, transaction, delivery, receipt)


def leave_refusal(pieces: PieceRegistry, transaction: Transaction, id: str, refused: Refused) -> None:
    """The same of an event that is known by its id alone: it cannot be handled any more, by anybody."""
    transaction.create(place(id), _encode(Receipt(at_us=_now(pieces), refused=refused.reason)))


def _write(pieces: PieceRegistry, transaction: Transaction, delivery: EventDelivery, receipt: Receipt) -> None:
    event, attempt = delivery.event, delivery.attempt
    is_kept = pieces.channel(event.instance.space.name) is not None
    if not is_kept and not event.is_known:
        return  # The space is nowhere but here: nobody can have the same event, unless its sender gave it an id.
    whole = mark = _encode(receipt)
    kept = None if attempt is None else attempt.kept
    # What is nowhere but here is read by nobody else.
    scope = scope_of(event, kept) if is_kept and _says_something(receipt) else SPACE_SCOPE
    if scope != SPACE_SCOPE:
        mark = _encode(_mark(receipt, kept))
    for each in (delivery, *delivery.absorbed):
        # I11: of all commits that handle one event, whoever makes them, the first one creates this.
        # fault receipts.not_written:
        transaction.create(place(each.id), mark)
        # Otherwise nobody asks what came of it, and nothing has to be kept for an answer.
        # fault receipts.not_written: if False:
        if scope != SPACE_SCOPE and each.event.is_named and _may_answer(delivery):
            transaction.create(place(each.id, scope), whole)
        if each.is_stored and each.stored_in == each.instance.space.name:
            # fault receipts.handled_event_stays_stored:
            transaction.handled.append(each.event.row_id)


def _encode(receipt: Receipt) -> Value:
    """Encode a receipt. Its codec checks the texts of a failure; the other fields are values already."""
    if receipt.refused is not None or receipt.failed is not None:
        return codec_for(Receipt).encode(receipt)
    raw: Any = {field: getattr(receipt, field) for field in Receipt.__struct_fields__}
    return cast(Value, raw)


def _says_something(receipt: Receipt) -> bool:
    return (receipt.result, receipt.refused, receipt.failed) != (None, None, None)


def _may_answer(delivery: EventDelivery) -> bool:
    """Whether what came of it is left in a scope of its sender's: whoever could read something narrow can write beside
    it; who read another space may perhaps not, which is found out by trying."""
    event, attempt = delivery.event, delivery.attempt
    if attempt is None or not attempt.is_of_elsewhere:
        return True
    return delivery.leaves_answer and bool(event.user or event.session)


def mute(delivery: EventDelivery) -> bool:
    """Its commit was refused. Whether it may be tried again without the answer in its sender's scope.

    A connection is not told whose it is: one that handles what another user sent may not write there.
    """
    attempt = delivery.attempt
    is_of_elsewhere = attempt is not None and attempt.is_of_elsewhere
    has_answer = is_of_elsewhere and delivery.event.is_named and delivery.leaves_answer
    delivery.leaves_answer = delivery.leaves_answer and not has_answer
    return has_answer


def _mark(receipt: Receipt, kept: str | None) -> Receipt:
    """That an event was handled, for everybody, without what came of it."""
    refused = None if receipt.refused is None else ""
    failed = None if receipt.failed is None else ""
    return Receipt(at_us=receipt.at_us, launched=receipt.launched, refused=refused, failed=failed, kept=kept)


def _now(pieces: PieceRegistry) -> int:
    return pieces.core.clock.now_us()


def may_be_handled(delivery: EventDelivery) -> bool:
    """Whether an event may have been handled before: only then its receipt is asked for."""
    return delivery.event.is_known or delivery.is_stored


async def check(pieces: PieceRegistry, delivery: EventDelivery) -> None:
    """Raise what came of an event if it was handled before."""
    if may_be_handled(delivery):
        await answered(pieces, delivery, is_certain=False)


async def answered(pieces: PieceRegistry, delivery: EventDelivery, *, is_certain: bool = True) -> None:
    """Raise what came of an event that was handled before."""
    event = delivery.event
    value = await _stored(pieces, event, SPACE_SCOPE)
    if isinstance(value, Absent):
        if not is_certain:
            return
        kept = "was handled so long ago that its result is not kept"
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
    answer = None if failure is not None else event.instance.schema.signature(event.member).result.decode(raw)
    raise HandledBefore(answer, failure)


async def _kept(pieces: PieceRegistry, event: Event, kept: str) -> Receipt:
    """What came of an event that stood on something which is one user's or one session's alone."""
    try:
        value = await _stored(pieces, event, scope_of(event, kept))
    except LoadError:
        value = ABSENT
    if isinstance(value, Absent):
        whose = (
            f"was handled; its result is visible only to the {kept} for which it was handled, or is not kept any more"
        )
        raise HandledBefore(None, EventExpiredError(f"{event.stream}: event {event.id} {whose}"))
    found: Receipt = codec_for(Receipt).decode(value)
    return found


async def _stored(pieces: PieceRegistry, event: Event, scope: str) -> MaybeValue:
    """The receipt as it is stored now. What is watched here may not show yet what a commit was refused for."""
    doc = place(event.id, scope)
    channel = pieces.channel(event.instance.space.name)
    if channel is None:
        document = event.instance.space.document(doc.id, doc.scope)
        await pieces.core.loaded(document)
        return ABSENT if document.value is NOT_HERE else document.value
    answer = await channel.driver.answer_of(Query(0, doc.scope, doc.id))
    return answer.documents[0].get()


Swept = tuple[str, str]
"""A space, and a scope of it."""
PAGES: Final = 10
"""How many pages at most, of which all but the last have nothing but what was deleted, which is still counted."""
TIMED: Final = f"{PREFIX}000000000000-~"
"""Behind those whose ids callers gave, which do not say when: from here on they sort by time."""
AT_ONCE: Final = 8
"""Scopes whose time is over that one handling is followed by a sweep of."""


class Retention:
    """The receipts of the spaces of one runtime."""

    __slots__ = ("_after", "_behind", "_landed", "_left", "_pieces", "_policy", "_random", "_sweeping")

    def __init__(self, pieces: PieceRegistry, policy: Policy, origin: str) -> None:
        self._pieces = pieces
        self._policy = policy
        self._random = pieces.core.clock.randomness(f"receipts {origin}")
        self._landed: dict[Swept, int] = {}  # handlings since the last sweep
        self._after: dict[Swept, str] = {}  # where the last one ended, among those whose ids callers gave
        self._behind: dict[Swept, str] = {}  # of those that sort by time, all up to this one are deleted
        self._sweeping: set[Swept] = set()
        # Narrow scopes in which this process left something, by when it first did since it was swept: that rises.
        self._left: dict[Swept, int] = {}

    @property
    def tracked(self) -> tuple[list[Swept], list[Swept]]:
        """The scopes whose handlings are counted, and the narrow ones with receipts to be deleted later."""
        return list(self._landed), list(self._left)

    def landed(self, delivery: EventDelivery) -> None:
        """It was handled. Every so many are followed by a sweep, also if no process handles so many."""
        event, attempt = delivery.event, delivery.attempt
        kept = None if attempt is None else attempt.kept
        space = event.instance.space.name
        self._count((space, SPACE_SCOPE))
        is_narrow = kept is not None and event.is_named
        if not (is_narrow or self._left):
            return
        now_us = self._pieces.core.clock.now_us()
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
        """Something was left in a narrow scope, which is to go in its time."""
        self._left.setdefault(narrow, at_us)
        if len(self._left) > self._policy.sweep_scopes:
            del self._left[next(iter(self._left))]

    def _over(self, now_us: int) -> list[Swept]:
        """Some of the narrow scopes in which the time of what was left is over."""
        oldest_us = self._oldest_us
        found: list[Swept] = []
        for narrow, at_us in tuple(islice(self._left.items(), AT_ONCE)):
            if at_us >= oldest_us:
                break
            del self._left[narrow]
            if self._may_begin(narrow):
                found.append(narrow)
            else:
                self._note(narrow, now_us)  # Another time: others are not kept waiting.
        return found

    def _may_begin(self, swept: Swept) -> bool:
        channel = self._pieces.channel(swept[0])
        return swept not in self._sweeping and channel is not None and channel.is_up()

    def _begin(self, swept: Swept) -> None:
        self._sweeping.add(swept)
        self._pieces.tasks.begin(self._sweep(swept), f"receipts of {swept[0]}")

    async def _sweep(self, swept: Swept) -> None:
        is_narrow, is_left = swept[1] != SPACE_SCOPE, True
        try:
            is_left = await self._sweep_given(swept)
            while is_narrow and swept in self._after:  # Nobody may come back to it.
                is_left |= await self._sweep_given(swept)
            is_left |= await self._sweep_timed(swept)
        except HeadwaterError:
            return  # The connection is gone, or this user may not: another sweep follows.
        finally:
            self._sweeping.discard(swept)
            if is_narrow:
                self._behind.pop(swept, None)
                if is_left:
                    self._note(swept, self._pieces.core.clock.now_us())

    async def _sweep_given(self, swept: Swept) -> bool:
        """Some of those whose ids callers gave, round and round. Answers whether there are younger ones among them."""
        found: list[DocKey] = []
        is_left, after = False, self._after.pop(swept, PREFIX)
        for _ in range(PAGES):
            answer = await self._page(swept, after, lambda first: first.doc.id < TIMED)
            for state in answer.documents:
                if state.doc.id < TIMED and _left_us(state.get()) < self._oldest_us:
                    found.append(state.doc)
                else:
                    is_left |= state.doc.id < TIMED
            after = PREFIX if answer.next is None or answer.next >= TIMED else answer.next
            if answer.documents or after == PREFIX:
                break  # Otherwise there is nothing on that page but what was deleted.
        await self._delete(swept[0], found)
        if after != PREFIX:
            self._after[swept] = after
        return is_left

    async def _sweep_timed(self, swept: Swept) -> bool:
        """The next of those that sort by time. Answers whether there is a younger one."""
        found: list[DocKey] = []
        is_left, after = False, self._behind.get(swept, TIMED)
        for _ in range(PAGES):
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
                after = answer.next  # There is nothing on that page but what was deleted.
            else:
                break
        await self._delete(swept[0], found)
        self._behind[swept] = after
        return is_left

    @property
    def _oldest_us(self) -> int:
        return self._pieces.core.clock.now_us() - round(self._policy.retention_ms * 1_000)

    def _may_be_over(self, id: str) -> bool:
        """Whether it is the receipt of an event that was sent as long ago as receipts are kept."""
        return id.startswith(PREFIX) and minted(id.removeprefix(PREFIX)) < self._oldest_us

    async def _page(self, swept: Swept, after: str, is_wanted: Callable[[State], bool]) -> Answer:
        """A page of receipts. Nearly always the first is not wanted, and so none of them is: then that one alone."""
        channel = self._pieces.channel(swept[0])
        assert channel is not None
        first = await channel.driver.query(Query(0, swept[1], after=after, limit=1))
        if first.documents and not is_wanted(first.documents[0]):
            return first
        return await channel.driver.query(Query(0, swept[1], after=after, limit=self._policy.sweep_page))

    async def _delete(self, space: str, old: list[DocKey]) -> None:
        if not old:
            return
        pieces = self._pieces
        core, local = pieces.core, pieces.core.space(space)
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
            await pieces.transactions.transact(local, delete)
        finally:
            for document in documents:
                local.release_if_unread(document)


def _left_us(receipt: MaybeValue) -> int:
    at = receipt.get("at_us") if isinstance(receipt, Mapping) else None
    return at if isinstance(at, int) else 0
