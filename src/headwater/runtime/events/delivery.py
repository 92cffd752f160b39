"""`EventDelivery`: the way of one event through its states, from its request to its end.

A delivery is a write (`runtime.writing.attempt.RetriedWrite`) whose function is a handler. Its states and transitions
are those of `runtime.writing.states.TABLE`; the writer of its space takes it through its attempts. `Events.handle`
gives the delivery at the front of each lane its turn, in the pass. It is prepared first: its target is loaded, and the
rights and the receipt of a stored event are looked at. An attempt that is refused by a handler that read undecided
values is repeated once they are decided.

A rejected event returns to its position in the lane before any other event is called. Pieces and events that an attempt
launched are started when its commit is made and stopped when the commit is rejected. An event that was handled before
is not a failure: its sender gets the outcome of the first handling. Every caller that awaits an event is answered. A
refusal is for the sender alone; the error channel receives a refusal that no caller awaits, and every defect of the
program.

`check_right` limits an event that was taken up from the store to the rights of its sender. The writers of a space can
store any event in it, for any handler of any space, and the runtime that takes the event up has other rights than these
writers. Events that the application itself stored were checked where they came from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.handle import Input
from headwater.data.address import doc_text
from headwater.data.path import path_text
from headwater.data.trace import EventAttempted, EventRejected
from headwater.data.value import ABSENT
from headwater.engine.admission.access import ACCESS, right_in
from headwater.errors import (
    AccessError,
    CommitConvergenceError,
    EventExpiredError,
    HandlerFailed,
    NotSettlingError,
    PreconditionFailedError,
    Refused,
    RuleRefusedError,
    SessionExpiredError,
    describe_failure,
)
from headwater.protocol.verdict import Rejection, RuleRefused
from headwater.replica.document import NOT_HERE
from headwater.runtime.core.demand import Demand
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.tracker import UNDECIDED, is_fresh
from headwater.runtime.events import receipts
from headwater.runtime.events.attempt import Defect, HandlerAttempt, HandlerTracker, advice, call_handler, noted
from headwater.runtime.events.deleted_target import Away, Gone
from headwater.runtime.events.event import Barred, Storage
from headwater.runtime.events.table import STATES, EventOutcome, IntentRow
from headwater.runtime.pieces.links import RIGHT_FOR
from headwater.runtime.writing.attempt import AttemptOutcome, RetriedWrite, classify
from headwater.runtime.writing.states import Happened, WriteState
from headwater.scheduler.node import CLEAN, Node

if TYPE_CHECKING:
    from headwater.pieces.signature import Signature
    from headwater.replica.document import Document
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.core.core import Core
    from headwater.runtime.events.durable import StoringWrite
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events
    from headwater.runtime.events.lane import Lane
    from headwater.runtime.events.lineage import Origin
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView


ORIGIN_COMMITTED: Final = "origin_committed"
ENTITY_ABSENT: Final = "entity_absent"
ACCESS_RULE: Final = "access"


_LOUD: Final = (HandlerFailed, CommitConvergenceError, NotSettlingError, RuleRefusedError)
"""Failures that are reported to the error channel even if a caller awaits the event."""
_QUIET: Final = (
    EventOutcome.WITHDRAWN,
    EventOutcome.DROPPED,
    EventOutcome.HANDLED_BEFORE,
    EventOutcome.LEFT,
    EventOutcome.CLOSED,
)
"""Outcomes that are not reported to the error channel."""


async def check_right(core: Core, event: Event) -> None:
    """Raise `AccessError` if the user that stored an event may not send it to its handler."""
    if not event.principal:
        return
    local = event.instance.space
    document = local.document(ACCESS.id, ACCESS.scope)
    try:
        await core.loaded(document)
        value = ABSENT if document.value is NOT_HERE else document.value
        if right_in(value, event.principal) < RIGHT_FOR[event.member.allow]:
            raise AccessError(
                f"{event.principal!r} stored an event for {event.stream}, and may not send one: ask an owner of "
                f"{local.name}"
            )
    finally:
        local.release_if_unread(document)


class EventDelivery(RetriedWrite):
    """One event on its way. Its fields change; `event` does not, except when it comes due."""

    __slots__ = (
        "_events",
        "_raw",
        "absorbed",
        "advice",
        "answer",
        "arguments",
        "attempt",
        "awaiting",
        "barred",
        "brought",
        "calls",
        "decided",
        "errand",
        "event",
        "failure",
        "follows",
        "id",
        "instance",
        "lane",
        "leaves_answer",
        "origin",
        "outcome",
        "signature",
        "stamp",
        "storage",
        "stored_in",
        "storing_write",
        "stream",
        "view",
        "waits",
    )

    insists = False  # a node that its handler reads is registered again when the handler is called again

    def __init__(self, events: Events, event: Event, stored_in: str = "") -> None:
        super().__init__(event.retries, node=event.stream, who=event.stream, is_limited=True)
        self._events = events
        self._raw: Any = None  # the stored form of the handler's result
        self.event = event
        self.id = event.id
        self.stream = event.stream
        self.instance: PieceInstance = event.instance
        self.lane: Lane = events.no_lane  # the lane of its space, once it is sent
        self.stamp = 0  # its place in the send order of this runtime; 0: it was not sent yet
        self.storage = Storage.STORED if stored_in else Storage.NOWHERE
        self.stored_in = stored_in  # the space of the store
        self.storing_write: StoringWrite | None = (
            None  # the write that stores it, if it is to be durable: its handling needs that
        )
        self.origin: Origin | None = None  # the attempt that posted it
        self.attempt: HandlerAttempt | None = None  # its own attempt under way, or the last one
        self.absorbed: list[EventDelivery] = []  # coalesced events that end with it
        self.awaiting: list[asyncio.Future[Any]] = []  # futures of callers of `send`
        self.calls = 0  # calls of its handler, including those that were stopped
        self.decided: EventOutcome | None = None  # its outcome, if that is known before it is recorded
        self.barred = Barred.NONE
        self.leaves_answer = True  # False: no outcome is written into the sender's scope
        self.follows: tuple[EventDelivery, ...] = ()  # events of other spaces whose undecided commits its attempt read
        self.waits = ""  # the nodes or plain writes that come before it, while it is parked
        self.brought: dict[Document, None] = {}  # documents that were requested ahead of its handler
        self.advice = ""
        self.view: ScopedView | None = None  # the view of its piece for its sender, once it is prepared
        self.signature: Signature | None = None  # of its handler, from then on
        self.arguments: dict[str, Any] = {}
        self.errand: asyncio.Future[None] | None = None  # a conversation with the engine that it waits for
        self.answer: Any = None
        self.failure: BaseException | None = None
        self.outcome: EventOutcome | None = None

    # ---- properties of the event ---------------------------------------------------------------------

    @property
    def is_stored(self) -> bool:
        return self.storage is Storage.STORED

    def mark_stored(self, space: str) -> None:
        """Record that a row of a space remembers it until it is handled."""
        self.storage, self.stored_in = Storage.STORED, space

    @property
    def is_withdrawn(self) -> bool:
        return self.decided is EventOutcome.WITHDRAWN

    @property
    def is_dropped(self) -> bool:
        """True if the attempt that posted it did not land."""
        return self.decided is EventOutcome.DROPPED

    @property
    def is_awaited(self) -> bool:
        """True if a caller awaits its outcome."""
        for told in self.awaiting:
            if not told.done():
                return True
        return any(each.is_awaited for each in self.absorbed) if self.absorbed else False

    @property
    def may_coalesce(self) -> bool:
        """True if a later one may be handled in its place, and it in an earlier one's. Nothing of it may be undone."""
        event = self.event
        if self.origin is not None or event.delivers is not None:  # A result moves the position of its own target.
            return False
        return not (self.is_stored or event.is_durable or self.is_withdrawn or event.is_known)

    @property
    def is_away(self) -> bool:
        """True if it waits for a verdict or for other sessions, and not for a run in this process."""
        return self.state in (WriteState.SENT, WriteState.BACKING_OFF, WriteState.HELD)

    # ---- its turn ------------------------------------------------------------------------------------

    def has_turn(self) -> bool:
        write = self.storing_write
        if self.lane.front is not self or (write is not None and not write.is_made):
            return False
        return not (self.follows and self._is_behind())

    def _is_behind(self) -> bool:
        """Return whether an earlier event of another space, on which its last attempt stood, is to be made again first.

        Of two events that are rejected together the one that was sent first has its turn first, across spaces, too. An
        event waits only for earlier ones, so that no two wait for each other.
        """
        # fault+ across.made_again_too_early: return False
        if self.event.instance.space.ended is not None:
            return False
        return any(each.stamp < self.stamp and self._events.is_waiting(each) for each in self.follows)

    # ---- preparation ---------------------------------------------------------------------------------

    def is_quick(self) -> bool:
        """Return True if it can be prepared without a question to the engine."""
        event, events = self.event, self._events
        instance = event.instance
        if event.principal or event.is_taken or event.member.reads:
            return False
        if not events.records.is_checked(instance):
            return False
        if event.is_known and events.channel(instance.space.name) is None:
            return False
        return events.is_prepared(instance) and not instance.is_asleep

    def prepare_quickly(self) -> None:
        """Decode its arguments, and find the view of its piece for its sender."""
        self._check_age()
        event = self.event
        self.view = event.instance.view("session", event.user, event.session)
        self.signature = event.instance.schema.signature(event.member)
        self.arguments = self.signature.decode(event.payload)

    async def prepare(self) -> None:
        """Load the target, and look at the rights and at the receipt of an event that was stored."""
        event, events = self.event, self._events
        instance = event.instance
        self._check_age()
        await events.records.check(instance)
        await instance.start_effects_asleep()
        try:
            await check_right(events.core, event)
        except AccessError:
            if instance.space.ended is None:  # Otherwise this runtime may not read the space.
                self.barred = Barred.SENDER
            raise
        if events.before_handling is not None:
            await events.before_handling(instance)
        if event.is_taken or (event.is_known and events.channel(instance.space.name) is None):
            await receipts.check(events, self)
        self.prepare_quickly()
        assert self.view is not None
        await self._prefetch(self.view)

    def _check_age(self) -> None:
        """Raise `EventExpiredError` if it is unknown by now whether an event was handled.

        An event that was kept all the time, in a store or in an outbox, is tried: if it was handled, admission says so.
        """
        event, events = self.event, self._events
        if not event.is_known or self.is_stored or event.is_taken:
            return
        kept_ms = events.policy.retention_ms
        oldest_us = events.core.clock.now_us() - round(kept_ms * 1_000)
        if 0 < event.minted_us < oldest_us:
            raise EventExpiredError(
                f"{event.stream}: event {event.id} was sent more than {kept_ms / 3.6e6:g} hours ago, and whether it "
                "was handled is not known any more: look, and send a new one"
            )

    async def _prefetch(self, view: ScopedView) -> None:
        """Have the declared reads of a handler arrive and run together, before it is called for the first time."""
        core = self._events.core
        reads: list[Any] = [view.handle(each) for each in self.event.member.reads]
        documents = [each.document for each in reads if isinstance(each, Input)]
        absent = [each for each in documents if each.value is NOT_HERE and not each.writers]
        await core.loaded(*absent)
        stale = tuple(each for each in documents if each.writers and not is_fresh(each, core.scheduler))
        if stale:
            self.parked(stale)
            demand = self.demands[stale] = Demand(core, self.who, stale, insists=False)
            await core.observers.until(demand.is_over)
            error = demand.error()
            if error is not None:
                raise error

    # ---- one attempt ---------------------------------------------------------------------------------

    def call(self, transaction: Transaction) -> None:
        """Call the handler in a transaction."""
        events, event, lane = self._events, self.event, self.lane
        core, space = events.core, event.instance.space
        replica = space.replica
        attempt = self._begin_attempt()
        view, arguments = self.view, self.arguments
        assert view is not None
        tracker = HandlerTracker(events, self, replica, transaction, lane)
        try:
            try:
                raw = core.call_in(replica, transaction, partial(call_handler, events, self, view, arguments), tracker)
            except Exception:
                # It may have refused because of a value that is about to be replaced.
                core.plain_writes.check_turn(space, transaction, tracker.wrote)
                raise
            core.plain_writes.check_turn(space, transaction, tracker.wrote)
            if transaction.waits:
                core.check_decidable(transaction.waits)
        except BaseException:
            attempt.stood_on = tracker.undecided()
            self.follows = events.makers_of(tracker.elsewhere, tracker.undecided_elsewhere())
            raise
        self._raw = raw
        attempt.seen = noted(transaction)
        self.follows = events.makers_of(tracker.elsewhere, transaction.waits)
        lane.leave(self)
        if lane.front is None and core.observers.is_awaited():
            core.request_tick()  # `idle` may hold now; without a connection no message would check it.

    def _begin_attempt(self) -> HandlerAttempt:
        """Begin an attempt, and end everything that the last one launched."""
        if self.attempt is not None:
            self._events.lineage.failed(self.attempt)
        if self.last is not None:
            self.advice = advice(self)
        self.waits, self.next_us = "", 0
        self.calls += 1
        self.attempt = HandlerAttempt(self)
        return self.attempt

    def parked(self, documents: Sequence[Document]) -> None:
        """Record for the table of events which nodes have to run before it, and the time at which they may."""
        core = self._events.core
        gates, graph = core.scheduler.gates, core.scheduler.graph
        writers = {each: None for document in documents for each in document.writers if isinstance(each, Node)}
        behind = {each: None for writer in writers for each in (writer, *graph.above(writer)) if each.status != CLEAN}
        times = {node: gates.eligible_at(node) for node in behind}
        now_us = core.clock.monotonic_us()
        gated = [node for node in behind if times[node] > now_us]
        self.next_us = min((times[node] for node in gated), default=0)
        self.waits = ", ".join(node.id for node in (gated or list(behind))[: RUNTIME_LIMITS.awaited_names])

    def behind(self, documents: Sequence[Document]) -> None:
        """Record for the table of events which documents earlier plain writes are still to write."""
        names = ", ".join(doc_text(each.key) for each in documents[: RUNTIME_LIMITS.awaited_names])
        self.waits = f"earlier plain writes to {names}"

    # ---- its commit ----------------------------------------------------------------------------------

    def made(self, transaction: Transaction) -> None:
        event, events, attempt = self.event, self._events, self.attempt
        trace = events.trace
        if trace is not None:
            trace.emit(EventAttempted(event.stream, event.id, self.attempts, self.backoff_us / 1_000))
        assert attempt is not None
        if self.state is WriteState.SENT and attempt.seen is not None:
            layer = event.instance.space.replica.pending.get(transaction.local_seq)
            if layer is not None:
                self.lane.undecided.add(layer, transaction)
            self.lane.made[transaction.local_seq] = self
        events.lineage.made(attempt, transaction)

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        event, events, attempt = self.event, self._events, self.attempt
        lineage, lane = events.lineage, self.lane
        assert attempt is not None
        lane.undecided.remove(layer)
        lane.made.pop(layer.local_seq, None)
        if rejection is None:
            # fault+ receipts.written_after_verdict: core = self._events.core
            # fault+ receipts.written_after_verdict: note = core.cell("s", "receipt", str)
            # fault+ receipts.written_after_verdict: core.afterwards(lambda: note.set(event.id))
            lineage.confirmed(attempt)
            on_declared = events.on_declared
            if layer.commit.declared and on_declared is not None:
                on_declared(event.instance, layer.commit)
            return
        lineage.failed(attempt)
        outcome = classify(rejection, layer.local_seq)
        is_refused = isinstance(rejection, RuleRefused) and rejection.rule == ACCESS_RULE
        self.barred = Barred.RUNTIME if is_refused else Barred.NONE
        is_tried_again = outcome in (AttemptOutcome.STALE, AttemptOutcome.UNSENT) and not self.is_dropped
        trace = events.trace
        if trace is not None:
            trace.emit(EventRejected(event.stream, event.id, self.attempts, outcome.value, is_tried_again))
        if self.is_over:
            return
        if self.is_dropped:
            # I10: the attempt that posted it did not land. It is not tried again.
            events.core.afterwards(lambda: events.finish(self, EventOutcome.DROPPED))
        elif is_tried_again:
            lane.requeue(self)

    def landed(self) -> None:
        """Decode the result of the handler, and end the event: its commit is durable."""
        instance = self.event.instance
        instance.is_made = True
        assert self.signature is not None
        self.answer = self.signature.result.decode(self._raw)
        self._events.finish(self, EventOutcome.LANDED)

    def failed(self, error: BaseException) -> None:
        """Handle an error of an attempt, or a commit that was refused for good."""
        events = self._events
        if isinstance(error, (Refused, Defect)) and self.state is WriteState.RUNNING:
            if self._was_wrong():
                return
            failure: BaseException = error
            if isinstance(error, Defect):
                failure = HandlerFailed(f"{self.stream} failed: {describe_failure(error.error)}")
                failure.__cause__ = error.error
            events.conclude(self, failure, lambda: receipts.check(events, self))
        elif isinstance(error, RuleRefusedError) and self._goes_without_answer():
            return
        else:
            self.advice = advice(self)
            events.conclude(self, error, lambda: self._judge(error))

    async def _judge(self, error: BaseException) -> None:
        """Find out the meaning of a failure. Raises HandledBefore if the event was handled, by any runtime."""
        if isinstance(error, PreconditionFailedError):
            if error.precondition == ORIGIN_COMMITTED:
                await self._events.durable_events.accepted(self)  # Raises the error if it could not be stored.
                self.decided = EventOutcome.DROPPED
            elif error.precondition == ENTITY_ABSENT:
                await receipts.answered(self._events, self)

    def _goes_without_answer(self) -> bool:
        """Try again without the answer in its sender's scope, if it was refused for that. Return True if it is."""
        if self.barred is not Barred.RUNTIME or self.is_dropped or not receipts.mute(self):
            return False
        self.barred = Barred.NONE
        self.take(Happened.REJECTED)
        self.take(Happened.USEFUL)
        self.lane.requeue(self)
        self._events.core.request_tick()
        return True

    def _was_wrong(self) -> bool:
        """Return whether a refusal was based on undecided commits. It is then repeated once they are decided.

        The shown documents include commits without a verdict, and a refusal writes nothing that the engine would judge.
        So a refusal counts only if every commit that it read is decided, in the order in which events were sent.
        """
        # fault+ events.refusal_not_doubted: return False
        lane, attempt, core = self.lane, self.attempt, self._events.core
        assert attempt is not None
        layers, attempt.stood_on = attempt.stood_on, []

        def is_decided() -> bool:
            is_over = self.event.instance.space.ended is not None  # No verdict will arrive any more.
            return is_over or (lane.is_first(self) and not any(layer.fate in UNDECIDED for layer in layers))

        def decided() -> None:
            if self.state is WriteState.BACKING_OFF:
                self.take(Happened.USEFUL)
                core.request_tick()

        if is_decided():  # The verdicts at the moment of the refusal count.
            return False
        self.take(Happened.UNDECIDED)  # It waits for verdicts of other commits, which arrive, however late.
        core.observers.when(lambda: self.state is not WriteState.BACKING_OFF or is_decided(), decided)
        return True

    def release(self) -> None:
        """Release everything that its attempts held: its handler is not called again."""
        if self.attempt is not None:
            self._events.lineage.failed(self.attempt)  # Does nothing if the attempt landed.
        self.end_demands()
        if self.brought:
            self._events.transactions.release_if_unread(self.brought)
            self.brought.clear()
        self.view = None

    # ---- its outcome ---------------------------------------------------------------------------------

    def classify_error(self, error: BaseException) -> EventOutcome:
        """Return the outcome of an event whose handling raised an error."""
        if self.is_dropped:
            return EventOutcome.DROPPED
        if isinstance(error, asyncio.CancelledError):
            is_untouched = not self.calls and self.storage is Storage.NOWHERE
            return EventOutcome.WITHDRAWN if self.is_withdrawn and is_untouched else EventOutcome.CLOSED
        if isinstance(error, Away):
            return EventOutcome.LEFT
        is_forbidden = self.barred is Barred.SENDER
        return EventOutcome.REFUSED if is_forbidden or isinstance(error, Refused) else EventOutcome.FAILED

    def answer_callers(self, end: EventOutcome) -> None:
        """Answer every caller that awaits it, and report failures that need it to the error channel."""
        failure = self.failure
        if end is EventOutcome.CLOSED:
            failure = SessionExpiredError(
                f"the runtime was closed while {self.stream} was handled: open another one, and look"
            )
        elif end in (EventOutcome.WITHDRAWN, EventOutcome.DROPPED):
            failure = Refused(f"{self.stream} was {end.value} before it was handled")
        is_awaited = self.is_awaited
        for each in (self, *self.absorbed):
            awaiting, each.awaiting = each.awaiting, []
            for told in awaiting:
                if not told.done() and failure is None:
                    told.set_result(self.answer)
                elif not told.done() and failure is not None:
                    told.set_exception(failure)
        if not isinstance(failure, Exception) or end in _QUIET:
            return
        if isinstance(failure, Gone) and self.event.period is not None:
            return  # It has no sender, and each further period would report the same.
        if isinstance(failure, _LOUD) or not is_awaited:
            cause = failure.__cause__ if isinstance(failure, HandlerFailed) else failure
            self._events.core.report(self.stream, cause if isinstance(cause, Exception) else failure)

    def failure_kind(self) -> str:
        """Return the kind of failure of an event that is not tried again, for traces."""
        match self.failure:
            case CommitConvergenceError():
                return "convergence"
            case PreconditionFailedError():
                return "permanent"
            case RuleRefusedError():
                return "terminal"
            case _:
                return "permanent" if self.is_dropped else ""

    def row(self, now_us: int, wall_us: int) -> IntentRow:
        """Return its row in the table of events, as it is now."""
        event, end, failure = self.event, self.outcome, self.failure
        collision = None if self.last is None else self.collision()
        return IntentRow(
            id=event.id,
            stream=event.stream,
            user=event.user,
            state=STATES[self.state] if end is None else str(end),
            sent_us=event.minted_us,
            attempts=self.attempts,
            conflicts=self.conflicts,
            next_try_us=wall_us + self.next_us - now_us if self.next_us and end is None else None,
            due_us=event.due_us or None,
            conflict="" if collision is None else f"{doc_text(collision.doc)}#{path_text(collision.path)}",
            winner="" if collision is None else _who(collision.session, collision.node),
            waits=self.waits if end is None else "",
            advice=self.advice,
            error="" if failure is None else f"{type(failure).__name__}: {failure}",
            ended_us=None if end is None else wall_us,
            origin="" if self.origin is None else self.origin.event,
        )


def _who(session: str, node: str) -> str:
    return f"{session} ({node})" if node else session
