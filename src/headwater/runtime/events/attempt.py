"""One attempt of an event: one call of its handler, in one transaction.

Besides the handler's writes, the transaction carries the receipt of the event, the events that it posts, and the
conditions under which the commit may be accepted. An attempt that reads a stale value is dropped, and the handler is
called again once the value is fresh (I4); `delivery.EventDelivery` decides when.

`HandlerTracker` is the tracker of that transaction. It prefetches documents for the event, has the handler land after
earlier events that touched the places it writes, and lists the undecided commits that a refusal was based on.

`advice` explains a conflict: the read that was too wide, and the narrower read that would not have collided. A commit
that read all of a document and wrote one part of it loses against a commit that wrote another part. The change of the
winner is determined once it has arrived, by comparing the value that was read with the current one. The advice
influences no decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from headwater.cells.open_run import Run
from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.path import Path, starts_with
from headwater.data.reader_trie import Spot
from headwater.data.trace import HandlerCalled
from headwater.data.value import ABSENT, MaybeValue, Value, equal, lookup
from headwater.errors import Refused
from headwater.protocol.commit import LeaseHeld
from headwater.protocol.reactions import lease_name
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import outside_arrays
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.tracker import UNDECIDED, Missing, Stale, TransactionTracker, may_fall
from headwater.runtime.events import deleted_target, event_rows, periodic, receipts
from headwater.runtime.events.lineage import Origin
from headwater.runtime.events.table import EventOutcome
from headwater.runtime.pieces.links import is_for_all
from headwater.runtime.pieces.ports import HandledEvent
from headwater.runtime.writing.states import Happened
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.replica.pending import Layer
    from headwater.replica.replica import Replica
    from headwater.replica.transaction import Transaction
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.events.events import Events
    from headwater.runtime.events.lane import Lane
    from headwater.runtime.pieces.view import ScopedView

T = TypeVar("T")


class Defect(Exception):
    """A handler raised an error other than `Refused`. Never leaves this package."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class HandlerAttempt(Origin):
    """One attempt of an event, with its reads and writes and with everything that it launched."""

    __slots__ = ("is_of_elsewhere", "kept", "seen", "stood_on")

    def __init__(self, delivery: EventDelivery) -> None:
        event = delivery.event
        super().__init__(event.id, event.instance.space.name, event.user, event.session)
        self.kept: str | None = None  # the scope that the outcome is restricted to: user, session, or None for all
        self.is_of_elsewhere = False  # `kept` is set only because another space was read
        self.stood_on: list[Layer] = []  # writes without a verdict that it relied on, if it was refused
        self.seen: Seen | None = None  # its reads and writes, for advice


def call_handler(events: Events, delivery: EventDelivery, view: ScopedView, arguments: dict[str, Any]) -> Value:
    """Call the handler once, in the transaction that is open."""
    event, attempt, trace = delivery.event, delivery.attempt, events.trace
    assert attempt is not None
    if trace is not None:
        trace.emit(HandlerCalled(event.stream, event.id, delivery.calls))
    core = events.core
    instance = event.instance
    deleted_target.check(event, events.records, is_stored=delivery.is_stored)
    if event.period is not None and periodic.is_handled(core, event):
        return None
    view = view.view_of_successor()
    context = events.contexts.of_event(view, event, attempt.launched)
    events.current, events.handling = HandledEvent(event, context, attempt.launched), delivery
    try:
        events.records.keep(instance)
        made = event.member.fn(view.piece, **arguments)
        assert delivery.signature is not None
        result = delivery.signature.encode_result(made)
        _sign(events, delivery, result)
        return result
    except Refused:
        _note_kept(events, delivery)
        raise
    except (Exception, asyncio.CancelledError, GeneratorExit) as error:
        _note_kept(events, delivery)
        raise Defect(error) from error  # Any other error of an author's function is a defect, also a cancellation.
    finally:
        events.current = events.handling = None


def _sign(events: Events, delivery: EventDelivery, result: Value) -> None:
    """Add conditions, receipt and posted events to the transaction."""
    run = events.core.current.run
    assert run is not None
    event, transaction, attempt = delivery.event, run.transaction, delivery.attempt
    assert transaction is not None
    assert attempt is not None
    for origin in (delivery.origin, None if delivery.storing_write is None else delivery.storing_write.origin):
        condition = None if origin is None else origin.condition(event.instance.space.name)
        if condition is not None:
            transaction.preconditions.append(condition)
    if event.delivers is not None:
        hold, delivered = event.delivers
        transaction.preconditions.append(LeaseHeld(lease_name(hold.reaction, hold.key), hold.token))
        transaction.delivered.append(delivered)
    _note_kept(events, delivery)
    receipts.leave(events, transaction, delivery, result)
    _store_posted(events, transaction, attempt)


def _store_posted(events: Events, transaction: Transaction, attempt: HandlerAttempt) -> None:
    """Add the events that a handler posted to its transaction, whatever space they are for."""
    # fault events.followups_not_stored: if True:
    if events.channel(attempt.space) is None:
        return  # The space has no engine, and stores nothing.
    for delivery in attempt.posted:
        if not delivery.is_withdrawn:
            delivery.mark_stored(attempt.space)
            transaction.events.append(event_rows.row(delivery.event))


def _note_kept(events: Events, delivery: EventDelivery) -> None:
    """Set `HandlerAttempt.kept` from the scopes that the handler read and wrote.

    A computed has the scope of its inputs, so that direct reads suffice. A read of another space restricts the outcome
    to the sender, unless all users may read that space: readers of this space may have no right there.
    """
    # fault+ receipts.answer_for_everybody: return
    core, here, attempt = events.core, delivery.instance.space.replica, delivery.attempt
    assert attempt is not None
    run = core.current.run
    assert run is not None
    tracker = run.tracker
    assert isinstance(tracker, HandlerTracker)
    scopes: set[str] = set()
    others: dict[Replica, Document] = {}
    for document in tracker.documents_read:
        scopes.add(document.key.scope)
        if document.home is not here and core.name_of(document.home):
            others[document.home] = document
    for document in tracker.wrote:
        scopes.add(document.key.scope)
    kept = receipts.narrowest(scopes) if scopes != _ALL else None
    attempt.is_of_elsewhere = kept != "user" and bool(others) and not all(is_for_all(core, e) for e in others.values())
    attempt.kept = ("user" if delivery.event.user else "session") if attempt.is_of_elsewhere else kept


_ALL: Final = {SPACE_SCOPE}


def follow_up(attempt: HandlerAttempt, delivery: EventDelivery, lane: Lane, backlog: int) -> None:
    """Send an event with the commit of an attempt. Raise BacklogFullError if the attempt posted too many."""
    before = _find_replaced(attempt, delivery)
    if before is not None:
        attempt.posted.remove(before)  # It was never sent.
        before.outcome = EventOutcome.COALESCED
        before.take(Happened.OVER)
    elif not delivery.event.due_us:
        posted = sum(1 for each in attempt.posted if each.stream == delivery.stream and not each.is_withdrawn)
        lane.check_room(delivery.stream, backlog, posted)
    delivery.origin = attempt
    attempt.posted.append(delivery)


def _find_replaced(attempt: HandlerAttempt, delivery: EventDelivery) -> EventDelivery | None:
    """Return the event of the same attempt that this one replaces (coalesce)."""
    event = delivery.event
    if event.member.coalesce is None or event.is_known or event.due_us:
        return None
    same = (
        each
        for each in reversed(attempt.posted)
        if each.stream == event.stream and not (each.event.is_known or each.event.due_us or each.is_withdrawn)
    )
    return next(same, None)


# ---- its reads and writes ----------------------------------------


class HandlerTracker(TransactionTracker):
    """The tracker of one attempt of a handler."""

    __slots__ = ("_delivery", "_events", "_lane", "documents_read")

    def __init__(
        self,
        events: Events,
        delivery: EventDelivery,
        home: Replica,
        transaction: Transaction,
        lane: Lane,
    ) -> None:
        core = events.core
        super().__init__(core.scheduler, home, transaction, core.visible)
        self._events = events
        self._delivery = delivery
        self._lane = lane
        self.documents_read: dict[Document, None] = {}

    def check(self) -> None:
        if self._why is None:
            for document in self.postponed:
                self._events.transactions.on_missed(document, self._delivery.brought)
        super().check()

    def missed(self, run: Run, spot: Spot) -> Spot:
        document = spot.document
        assert isinstance(document, Document)
        self.documents_read[document] = None
        return super().missed(run, spot)

    def _run_nested(self, run: Run, target: Node) -> bool:
        return self.call_apart(lambda: self._scheduler.pass_.run_nested(run, target))

    def call_apart(self, act: Callable[[], T]) -> T:
        events = self._events
        # A computed is not part of the handler: it may send no events.
        current, events.current, handling, events.handling = events.current, None, events.handling, None
        try:
            return act()
        finally:
            events.current, events.handling = current, handling

    def undecided(self) -> list[Layer]:
        """Return the commits without a verdict that the attempt has read, directly or through nodes."""
        found: dict[Layer, None] = {}
        seen, waiting = dict(self.documents_read), list(self.documents_read)
        while waiting:
            document = waiting.pop()
            writers = [each for each in document.writers if isinstance(each, Node)]
            if not writers:
                found.update(dict.fromkeys(layer for layer in document.layers if layer.fate in UNDECIDED))
            for spot in (spot for each in writers for spot in each.reads if spot is not None):
                source = cast(Document, spot.document)
                if source not in seen:
                    seen[source] = None
                    waiting.append(source)
        return list(found)

    def _stand_behind(self, document: Document, path: Path) -> None:
        """Have this commit land after earlier ones of this runtime that touched the same place and may be made again.

        Of events those count that read the place or wrote to it; every earlier write to the document that was made
        outside of events counts.
        """
        # fault handlers.earlier_handlers_overtaken: behind = []
        behind = self._lane.undecided.touching(document.key, outside_arrays(path))
        for layer in document.layers:
            is_plain = layer.source is None and layer.local_seq not in self._lane.made
            if is_plain and layer.fate in UNDECIDED and may_fall(layer):
                behind.append(layer)
        if behind:
            self._transaction.stand_behind(document.key, behind)

    def _stop(self, why: BaseException) -> NoReturn:
        for document in _not_here(why):
            self._events.transactions.on_missed(document, self._delivery.brought)
        super()._stop(why)


def _not_here(why: BaseException) -> list[Document]:
    """Return the documents that an attempt stopped for: those that it reads, and those that stale nodes wait for."""
    if isinstance(why, Missing):
        return [*why.documents]
    documents = why.documents if isinstance(why, Stale) else ()
    awaited = [each.loading for document in documents for each in document.writers if isinstance(each, Node)]
    return [each for each in (*documents, *awaited) if each is not None and each.value is NOT_HERE]


# ---- advice ----------------------------------------


class Seen:
    """The deep reads and the writes of one commit, by document."""

    __slots__ = ("read", "written")

    def __init__(self, read: dict[tuple[DocKey, Path], MaybeValue], written: dict[DocKey, list[Path]]) -> None:
        self.read = read
        self.written = written


def noted(transaction: Transaction) -> Seen:
    """Return the reads and writes of a transaction. Values are immutable, so that keeping them costs nothing."""
    read: dict[tuple[DocKey, Path], MaybeValue] = {}
    for doc, path, depth in transaction.read_set():
        document = transaction.documents.get(doc)
        if depth is Depth.DEEP and document is not None and document.confirmed is not NOT_HERE:
            read[doc, path] = lookup(document.confirmed, path)
    written: dict[DocKey, list[Path]] = {}
    for doc, path in transaction.attempted:
        written.setdefault(doc, []).append(path)
    return Seen(read, written)


def advice(delivery: EventDelivery) -> str:
    """Return the change of the handler that would have avoided the last conflict. Empty: none is known."""
    attempt, last = delivery.attempt, delivery.last
    seen = None if attempt is None else attempt.seen
    if seen is None or last is None:
        return delivery.advice
    documents = delivery.instance.space.replica.documents
    for collision in last.collisions:
        was = seen.read.get((collision.doc, collision.path), ABSENT)
        document = documents.get(collision.doc)
        if document is None or document.confirmed is NOT_HERE or not isinstance(was, Mapping):
            continue
        now = lookup(document.confirmed, collision.path)
        changed = _changed(was, now)
        own = {
            path[len(collision.path)]
            for path in seen.written.get(collision.doc, ())
            if starts_with(path, collision.path) and len(path) > len(collision.path)
        }
        if changed:
            return _narrower(_read(collision.doc, collision.path), own, changed)
    for collision in last.collisions:
        if any(starts_with(path, collision.path) for path in seen.written.get(collision.doc, ())):
            what = _read(collision.doc, collision.path)
            return f"{what} was read and written: an intent (push, add, increment) reads nothing, and cannot collide"
    return delivery.advice


def _narrower(what: str, own: set[str | int], changed: set[str | int]) -> str:
    """Return the narrower read or the intent that would not have collided with a change of some keys."""
    if own & changed:
        return f"both wrote {_keys(own & changed)} of {what}: an intent (push, increment) would not have collided"
    widened = f"all of {what} was read, and only {_keys(changed)} changed"
    if own:
        return f"{widened}: read {_narrow(own)} instead of .get()"
    return f"{widened}: read what you need of it with .key(...) or .at(...), instead of .get()"


def _changed(was: Mapping[str, Any], now: MaybeValue) -> set[str | int]:
    if (
        not isinstance(now, Mapping)
        or len(was) > RUNTIME_LIMITS.compared_keys
        or len(now) > RUNTIME_LIMITS.compared_keys
    ):
        return set()
    return {key for key in {*was, *now} if not equal(was.get(key, ABSENT), now.get(key, ABSENT))}


def _read(doc: DocKey, path: Path) -> str:
    return f"{doc.id}{''.join(f'/{step}' for step in path)}"


def _keys(keys: Iterable[str | int]) -> str:
    return ", ".join(repr(key) for key in sorted(keys, key=str)[:3])


def _narrow(keys: Iterable[str | int]) -> str:
    return " and ".join(f".key({key!r})" for key in sorted(keys, key=str)[:3])
