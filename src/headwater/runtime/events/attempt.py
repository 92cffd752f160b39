"""Handling of one event: attempts, the hooks of its write, and the rights of a stored event's sender.

`Attempting` runs the handler in one transaction per attempt, on fresh values, until a commit is accepted or the event
fails for good. An attempt that reads a stale value is dropped; the missing nodes run or the missing documents arrive,
and the handler is called again (I4). A refusal by a handler that read undecided values is repeated once they are
decided. Besides the handler's writes, the transaction carries the receipt of the event, the events it posts, and the
condition under which the commit may be accepted. The writer decides when a rejected commit is tried again.

`EventHooks` connects an event with the writer: its turns, and the actions that follow a verdict at once. A rejected
event returns to its position in the lane before any other event is dispatched. Pieces and events that an attempt
launched are started when its commit is made and stopped when the commit is rejected. An event that was handled before
is not a failure: its sender gets the outcome of the first handling. `EventHooks` decides no delay.

`check_right` limits an event that was taken up from the store to the rights of its sender. The writers of a space can
store any event in it, for any handler of any space, and the runtime that takes the event up has other rights than these
writers. Events that the application itself stored were checked where they came from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.cells.handle import Input
from headwater.data.trace import EventAttempted, EventRejected, HandlerCalled
from headwater.data.value import ABSENT, Value
from headwater.engine.admission.access import ACCESS, right_in
from headwater.errors import (
    AccessError,
    EventExpiredError,
    HandlerFailed,
    PreconditionFailedError,
    Refused,
    RuleRefusedError,
    describe_failure,
)
from headwater.protocol.commit import LeaseHeld
from headwater.protocol.reactions import lease_name
from headwater.protocol.verdict import Rejection, RuleRefused
from headwater.replica.document import NOT_HERE
from headwater.runtime.core.demand import Demand
from headwater.runtime.core.tracker import UNDECIDED, Missing, Overtaking, Stale, is_fresh
from headwater.runtime.events import deleted_target, event_rows, periodic, receipts
from headwater.runtime.events.conflict_advice import advice, noted
from headwater.runtime.events.deleted_target import Away
from headwater.runtime.events.handler_tracker import HandlerTracker
from headwater.runtime.events.lineage import Origin
from headwater.runtime.events.receipts import HandledBefore
from headwater.runtime.pieces.context import EventContext
from headwater.runtime.pieces.links import RIGHT_FOR
from headwater.runtime.writing.attempt import Outcome, Stage, classify
from headwater.scheduler.node import CLEAN, Node

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events
    from headwater.runtime.events.lane import Lane
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView

__all__ = ["EventHooks", "HandledBefore", "land", "parked", "prefetch"]


async def check_right(pieces: PieceRegistry, event: Event) -> None:
    """AccessError: whoever stored it may not send it to that handler."""
    if not event.principal:
        return
    local = event.instance.space
    document = local.document(ACCESS.id, ACCESS.scope)
    try:
        await pieces.core.loaded(document)
        value = ABSENT if document.value is NOT_HERE else document.value
        if right_in(value, event.principal) < RIGHT_FOR[event.member.allow]:
            raise AccessError(
                f"{event.principal!r} stored an event for {event.stream}, and may not send one: ask an owner of "
                f"{local.name}"
            )
    finally:
        local.let_be(document)


ORIGIN_COMMITTED: Final = "origin_committed"
ENTITY_ABSENT: Final = "entity_absent"
ACCESS_RULE: Final = "access"
SHOWN: Final = 3
"""Nodes that are named of those that an event waits for."""


class EventHooks:
    """The `WriteHooks` of one event."""

    __slots__ = ("_event", "_events", "_lane")

    def __init__(self, events: Events, lane: Lane, event: Event) -> None:
        self._events = events
        self._lane = lane
        self._event = event

    async def wait_for_lane(self) -> None:
        event, keeping = self._event, self._event.keeping
        await self._lane.wait_for_turn(event)
        while True:
            if keeping is not None and not keeping.is_made:
                await self._events.storing.made(event)
            elif self._is_behind():
                await self._events.until_made(lambda: not self._is_behind())
            else:
                return
            await self._lane.wait_for_turn(event)

    def _is_behind(self) -> bool:
        """Whether an earlier event of another space, on which its last attempt stood, is to be made again before it.

        Of two events that are rejected together the one that was sent first has its turn first, across spaces, too. An
        event waits only for earlier ones, so that no two wait for each other.
        """
        # fault across.made_again_too_early: return False
        event = self._event
        if not event.follows or event.instance.space.ended is not None:
            return False
        return any(each.stamp < event.stamp and self._events.is_waiting(each) for each in event.follows)

    def made(self, transaction: Transaction) -> None:
        event, events = self._event, self._events
        trace = events.trace
        if trace is not None:
            trace.emit(EventAttempted(event.stream, event.id, event.attempts, event.write.backoff_us / 1_000))
        assert event.attempt is not None
        if event.write.stage is Stage.SENT and event.seen is not None:
            layer = event.instance.space.replica.pending.get(transaction.local_seq)
            if layer is not None:
                self._lane.undecided.add(layer, transaction)
            self._lane.made[transaction.local_seq] = event
        events.lineage.made(event.attempt, transaction)
        if events.behind:
            events.pieces.core.request_tick()  # An event of another space may wait for this one.

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        event, lineage, attempt = self._event, self._events.lineage, self._event.attempt
        assert attempt is not None
        self._lane.undecided.remove(layer)
        self._lane.made.pop(layer.local_seq, None)
        if rejection is None:
            # fault+ receipts.written_after_verdict: core = self._events.pieces.core
            # fault+ receipts.written_after_verdict: note = core.cell("s", "receipt", str)
            # fault+ receipts.written_after_verdict: core.afterwards(lambda: note.set(event.id))
            lineage.confirmed(attempt)
            on_declared = self._events.on_declared
            if layer.commit.declared and on_declared is not None:
                on_declared(event.instance, layer.commit)
            return
        lineage.failed(attempt)
        outcome = classify(rejection, layer.local_seq)
        event.is_barred = isinstance(rejection, RuleRefused) and rejection.rule == ACCESS_RULE
        trace = self._events.trace
        if trace is not None:
            is_tried_again = outcome in (Outcome.STALE, Outcome.UNSENT) and not event.is_dropped
            trace.emit(EventRejected(event.stream, event.id, event.attempts, outcome.value, is_tried_again))
        if event.is_dropped and event.task is not None:
            event.task.cancel()  # I10: whoever posted it did not land. It is not tried again.
        elif outcome in (Outcome.STALE, Outcome.UNSENT):
            self._lane.come_back(event)

    async def judge(self, error: Exception) -> None:
        """What a failed attempt means. Raises HandledBefore if the event was handled, by whomever."""
        if isinstance(error, PreconditionFailedError):
            if error.precondition == ORIGIN_COMMITTED:
                await self._events.storing.accepted(self._event)  # Raises why it could not be stored, if it was that.
                self._event.is_dropped = True
            elif error.precondition == ENTITY_ABSENT:
                await receipts.answered(self._events.pieces, self._event)


async def land(pieces: PieceRegistry, event: Event, attempt: Callable[[Transaction], Value]) -> Value:
    """Have an attempt made until it is durable, wherever its space is kept."""
    channel = pieces.channel(event.instance.space.name)
    if channel is not None:
        made = await channel.land(attempt, node=event.stream, write=event.write)
    else:
        made = await _land_here(pieces, event, attempt)
    pieces.core.request_tick()
    return made


async def _land_here(pieces: PieceRegistry, event: Event, attempt: Callable[[Transaction], Value]) -> Value:
    """In a space that is nowhere but here nobody is faster, and what is committed stays."""
    core, write, replica = pieces.core, event.write, event.instance.space.replica
    while True:
        await write.wait_for_lane()
        write.stage = Stage.RUNNING
        transaction = replica.begin(node=event.stream)
        try:
            made = attempt(transaction)
        except Missing as missing:
            replica.drop(transaction)
            await core.loaded(*missing.documents)
            continue
        except BaseException:
            replica.drop(transaction)
            raise
        write.attempts += 1
        core.plain_writes.commit(replica, transaction, write.settled)
        write.made(transaction)
        core.request_tick()
        await pieces.transactions.await_verdicts()
        return made


async def prefetch(events: Events, event: Event, view: ScopedView, held: list[Demand]) -> None:
    """Have what a handler says it reads arrive and run together, before it is called for the first time."""
    reads: list[Any] = [view.handle(each) for each in event.member.reads]
    documents = [each.document for each in reads if isinstance(each, Input)]
    core = events.pieces.core
    for document in documents:
        if document.value is NOT_HERE and not document.writers:
            core.load(document)
    for document in documents:
        if document.value is NOT_HERE and not document.writers:
            await core.loaded(document)
    stale = [each for each in documents if each.writers and not is_fresh(each, core.scheduler)]
    if stale:
        await parked(events, event, stale, held)


async def parked(events: Events, event: Event, stale: Sequence[Document], held: list[Demand]) -> None:
    """Hold the event until what it reads is fresh. The table says what has to run before, and when that may."""
    core, write = events.pieces.core, event.write
    gates, graph = core.scheduler.gates, core.scheduler.graph
    writers = {each: None for document in stale for each in document.writers if isinstance(each, Node)}
    behind = {each: None for writer in writers for each in (writer, *graph.above(writer)) if each.status != CLEAN}
    times = {node: gates.eligible_at(node) for node in behind}
    now_us = core.clock.monotonic_us()
    gated = [node for node in behind if times[node] > now_us]
    write.stage = Stage.PARKED
    write.next_us = min((times[node] for node in gated), default=0)
    event.waits = ", ".join(node.id for node in (gated or list(behind))[:SHOWN])
    try:
        demand = Demand(core, event.stream, stale, insists=False)
        held.append(demand)
        await demand.wait()
    finally:
        write.next_us, event.waits = 0, ""


class Defect(Exception):
    """A handler raised something that is no refusal. Never leaves this module."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Attempting:
    """Handles the events of one space."""

    __slots__ = ("_events", "_lane", "_pieces")

    def __init__(self, events: Events, lane: Lane) -> None:
        self._events = events
        self._lane = lane
        self._pieces = events.pieces

    async def run(self, event: Event) -> Any:
        """Have an event handled until it is durable, and answer what the handler returned."""
        if event.is_taken and event.is_stored:
            return await self._run_or_leave(event)
        return await self._run(event)

    async def _run_or_leave(self, event: Event) -> Any:
        """One that was taken up is left in the store if it waits for what nobody can fetch: it holds up nobody here.

        Away: there is no connection, and it has not been handled.
        """
        channels = [self._pieces.channel(space) for space in (event.instance.space.name, event.stored_in)]
        here = channels[0]
        assert here is not None

        def is_stuck() -> bool:
            return event.write.stage is Stage.LOADING and not any(
                each is not None and each.is_up() for each in channels
            )

        handled = asyncio.ensure_future(self._run(event))
        try:
            while not handled.done() and self._lane.is_waiting(event):  # Afterwards it is in nobody's way.
                wait = here.driver.until(lambda: is_stuck() or not self._lane.is_waiting(event))
                heard = asyncio.ensure_future(wait)
                try:
                    await asyncio.wait((handled, heard), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await _stopped(heard)
                if not heard.cancelled() and heard.exception() is not None:
                    break  # Nothing is heard any more, which the event is told itself.
                if not handled.done() and self._lane.is_waiting(event) and is_stuck():
                    raise Away(f"{event.stream} waits for a connection: a runtime that has one may handle it")
            return await handled
        finally:
            await _stopped(handled)

    async def _run(self, event: Event) -> Any:
        pieces, home = self._pieces, event.instance
        self._check_age(event)
        signature = home.schema.signature(event.member)
        event.write.stage = Stage.LOADING
        await pieces.records.check(home)
        await pieces.node_source.start_effects(home)
        try:
            await check_right(pieces, event)
        except AccessError:
            event.is_forbidden = home.space.ended is None  # Otherwise it is this runtime that may not.
            raise
        if self._events.before_handling is not None:
            await self._events.before_handling(home)
        if event.is_taken or (event.is_known and pieces.channel(home.space.name) is None):
            await receipts.check(pieces, event)
        view = home.view("session", event.user, event.session)
        arguments = signature.decode(event.payload)
        held: list[Demand] = []
        try:
            await prefetch(self._events, event, view, held)
            raw = await self._land(event, view, arguments, held)
        finally:
            if event.attempt is not None:
                self._events.lineage.failed(event.attempt)  # Unless it landed: then this is nothing.
            for demand in held:
                demand.end()
            pieces.prefetch.let_be(event.brought)
            event.brought.clear()
        home.is_made = True
        return signature.result.decode(raw)

    def _check_age(self, event: Event) -> None:
        """Of an event that is older than receipts are kept nobody knows any more whether it was handled.

        One that was kept all the time, in a store or in an outbox, is tried: if it was handled, admission says so.
        """
        kept_ms = self._events.policy.retention_ms
        oldest_us = self._pieces.core.clock.now_us() - round(kept_ms * 1_000)
        if event.is_known and not (event.is_stored or event.is_taken) and 0 < event.minted_us < oldest_us:
            raise EventExpiredError(
                f"{event.stream}: event {event.id} was sent more than {kept_ms / 3.6e6:g} hours ago, and whether it "
                "was handled is not known any more: look, and send a new one"
            )

    async def _land(self, event: Event, view: ScopedView, arguments: dict[str, Any], held: list[Demand]) -> Value:
        pieces = self._pieces
        hooks = event.write.hooks = EventHooks(self._events, self._lane, event)

        def attempt(transaction: Transaction) -> Value:
            return self._called(event, view, arguments, transaction)

        while True:
            try:
                return await land(pieces, event, attempt)
            except Stale as stale:
                await parked(self._events, event, stale.documents, held)
            except Overtaking as overtaking:
                event.write.stage = Stage.PARKED
                await pieces.core.plain_writes.wait_for_turn(overtaking.documents)
            except Refused:
                if not await self._was_wrong(event):
                    self._events.decided(event)  # Whatever its receipt says.
                    await receipts.check(pieces, event)
                    raise
            except Defect as defect:
                if not await self._was_wrong(event):
                    self._events.decided(event)
                    await receipts.check(pieces, event)
                    raise HandlerFailed(f"{event.stream} failed: {describe_failure(defect.error)}") from defect.error
            except Exception as error:
                if isinstance(error, RuleRefusedError) and self._goes_without_answer(event):
                    continue
                event.advice = advice(event)
                await hooks.judge(error)
                raise

    def _goes_without_answer(self, event: Event) -> bool:
        """Whether it is tried again without the answer that it was to leave in its sender's scope."""
        if not event.is_barred or event.is_dropped or not receipts.mute(event):
            return False
        event.is_barred = False
        self._lane.come_back(event)
        return True

    async def _was_wrong(self, event: Event) -> bool:
        """True if a refusal was based on undecided commits; returns after they are decided.

        The shown documents include commits without a verdict, and a refusal writes nothing that the engine would judge.
        So a refusal counts only if every commit that it read is decided, in the order in which events were sent.
        """
        # fault+ events.refusal_not_doubted: return False
        lane = self._lane
        layers, event.stood_on = event.stood_on, []

        def is_decided() -> bool:
            is_over = event.instance.space.ended is not None  # Nothing will be heard any more.
            return is_over or (lane.is_first(event) and not any(layer.fate in UNDECIDED for layer in layers))

        if is_decided():  # In the very moment of the no: what is decided later may be decided otherwise.
            return False
        event.write.stage = Stage.BACKING_OFF  # It waits for others' verdicts: they come, however late.
        await self._pieces.core.observers.until(is_decided)
        return True

    def _called(self, event: Event, view: ScopedView, arguments: dict[str, Any], transaction: Transaction) -> Value:
        core, space = self._pieces.core, event.instance.space
        replica = space.replica
        tracker = HandlerTracker(self._events, event, replica, transaction, self._lane)

        def attempt() -> Value:
            return call_handler(self._events, event, view, arguments)

        self._begin_attempt(event)
        try:
            try:
                result: Value = core.call_in(replica, transaction, attempt, tracker)
            except Exception:
                # It may have refused because of a value that is about to be replaced.
                core.plain_writes.check_turn(space, transaction, tracker.wrote)
                raise
            core.plain_writes.check_turn(space, transaction, tracker.wrote)
        except BaseException:
            event.stood_on = tracker.undecided()
            event.follows = self._events.makers_of(tracker.elsewhere, tracker.undecided_elsewhere())
            raise
        event.seen = noted(transaction)
        event.follows = self._events.makers_of(tracker.elsewhere, transaction.waits)
        self._lane.leave(event)
        if self._lane.front is None and core.observers.is_awaited():
            core.request_tick()  # `idle` may hold now, and without a connection nothing else would look.
        return result

    def _begin_attempt(self, event: Event) -> None:
        """What the last attempt left behind was never there."""
        if event.attempt is not None:
            self._events.lineage.failed(event.attempt)
        if event.write.last is not None:
            event.advice = advice(event)
        event.attempt = Origin(event.id, event.instance.space.name, event.user, event.session)
        event.kept, event.is_of_elsewhere = None, False
        event.calls += 1
        event.is_dispatched = True


async def _stopped(task: asyncio.Future[Any]) -> None:
    """It goes no further, and whatever it said was heard."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


def call_handler(events: Events, event: Event, view: ScopedView, arguments: dict[str, Any]) -> Value:
    """Call the handler once, in the transaction that is open."""
    trace = events.trace
    if trace is not None:
        trace.emit(HandlerCalled(event.stream, event.id, event.calls))
    core = events.pieces.core
    home = event.instance
    deleted_target.check(event)
    if event.period is not None and periodic.is_over(core, event):
        return None
    view = view.kept_now()
    events.current = (event, EventContext(view, event, event.launched))
    try:
        home.pieces.records.keep(home)
        made = event.member.fn(view.piece, **arguments)
        result = view.instance.schema.signature(event.member).encode_result(made)
        _sign(events, event, result)
        return result
    except Refused:
        _note_kept(events, event)
        raise
    except (Exception, asyncio.CancelledError, GeneratorExit) as error:
        _note_kept(events, event)
        raise Defect(error) from error  # Whatever else an author's function raises is a defect, and cancels nobody.
    finally:
        events.current = None


def _sign(events: Events, event: Event, result: Value) -> None:
    """Add conditions, receipt and posted events to the transaction."""
    run = events.pieces.core.current.run
    assert run is not None
    transaction, attempt = run.transaction, event.attempt
    assert transaction is not None
    assert attempt is not None
    for origin in (event.origin, None if event.keeping is None else event.keeping.origin):
        condition = None if origin is None else origin.condition(event.instance.space.name)
        if condition is not None:
            transaction.preconditions.append(condition)
    if event.delivers is not None:
        hold, delivered = event.delivers
        transaction.preconditions.append(LeaseHeld(lease_name(hold.reaction, hold.key), hold.token))
        transaction.delivered.append(delivered)
    _note_kept(events, event)
    receipts.leave(events.pieces, transaction, event, result)
    event_rows.store(events.pieces, transaction, attempt)


def _note_kept(events: Events, event: Event) -> None:
    """Set `event.kept` from the scopes that the handler read and wrote.

    A computed has the scope of its inputs, so that direct reads suffice. A read of another space restricts the outcome
    to the sender, unless all users may read that space: readers of this space may have no right there.
    """
    # fault+ receipts.answer_for_everybody: return
    core, here = events.pieces.core, event.instance.space.replica
    run = core.current.run
    assert run is not None
    tracker = cast(HandlerTracker, run.tracker)
    kept = receipts.narrowest(document.key.scope for document in (*tracker.documents_read, *tracker.wrote))
    others = {each.home: each for each in tracker.documents_read if each.home is not here and core.name_of(each.home)}
    event.is_of_elsewhere = kept != "user" and not all(map(events.pieces.link_access.is_for_all, others.values()))
    event.kept = ("user" if event.user else "session") if event.is_of_elsewhere else kept
