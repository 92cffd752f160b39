"""`Events`: all events of one runtime, from sending to outcome. Composes the parts of this folder.

The events of a space are handled in send order; an event that waits delays the events behind it. `handle` is called in
each pass: it gives the event at the front of each lane its turn. Every event gets an outcome, which is reported to all
callers that await the event, and to the error channel if no caller does or if the program has a defect. An event that
waits has no task: a callback wakes it (`delivery`). Conversations with the engine before the first attempt of a stored
event, and after its end, are the errands of a delivery.

`follow_up` posts an event inside a handler: the event is sent with the commit of the attempt, and only with it. It
counts against the backlog of its handler as if it were queued already. With `coalesce="last"`, a later post of the same
attempt replaces an earlier one, which then was never sent. `follow_up` starts nothing.

A full backlog makes `send` wait for room, in the order of the calls, unless the caller said `wait=False`; `post` is
refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.data.address import doc_text
from headwater.data.ids import event_id
from headwater.data.trace import EventDecided, EventEnded, EventQueued
from headwater.data.value import Value
from headwater.errors import (
    AuthoringError,
    BacklogFullError,
    HandlerFailed,
    HeadwaterError,
    PreconditionFailedError,
    Refused,
    SessionExpiredError,
    cut_frames,
)
from headwater.pieces.declarations import TopicMember
from headwater.pieces.handles import Handler, Intent
from headwater.protocol.commit import TopicRecord
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.time_documents import EPOCH
from headwater.runtime.events import periodic, receipts
from headwater.runtime.events.attempt import follow_up
from headwater.runtime.events.deleted_target import Away
from headwater.runtime.events.delivery import EventDelivery
from headwater.runtime.events.durable import DurableEvents
from headwater.runtime.events.event import Event, EventSource, Storage, make_event
from headwater.runtime.events.lane import Lane
from headwater.runtime.events.lineage import Lineage, Origin, Status
from headwater.runtime.events.pickup import StoredEventPickup
from headwater.runtime.events.receipts import HandledBefore, Retention
from headwater.runtime.events.table import EventOutcome, EventTable, IntentRow
from headwater.runtime.pieces.classes import topic_name
from headwater.runtime.pieces.instance import PieceInstance
from headwater.runtime.writing.states import Happened, WriteState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from headwater.cells.runtime_port import Stream, Topic
    from headwater.data.trace import Trace
    from headwater.pieces.declarations import HandlerMember
    from headwater.pieces.handles import Options
    from headwater.pieces.piece import Context
    from headwater.protocol.commit import Commit
    from headwater.replica.document import Document
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.policy import Policy
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.events.context import Contexts
    from headwater.runtime.pieces.ports import HandledEvent
    from headwater.runtime.pieces.records import Records
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView
    from headwater.runtime.writing.space_channel import SpaceChannel
    from headwater.runtime.writing.transactions import Transactions


class Events:
    """All events of one runtime. Started by `Sender`, called in each pass by `handle`."""

    __slots__ = (
        "_lanes",
        "_live",
        "_outside",
        "_stamps",
        "_table",
        "before_handling",
        "channel",
        "contexts",
        "core",
        "current",
        "durable_events",
        "handling",
        "is_prepared",
        "lineage",
        "no_lane",
        "on_declared",
        "on_emitted",
        "origin",
        "pickup",
        "pieces",
        "policy",
        "records",
        "retention",
        "sessions",
        "tasks",
        "trace",
        "transactions",
    )

    contexts: Contexts  # Set by the composition of a runtime: links, which contexts follow, use this part.

    def __init__(
        self,
        pieces: PieceRegistry,
        core: Core,
        *,
        records: Records,
        tasks: Tasks,
        policy: Policy,
        channel: Callable[[str], SpaceChannel | None],
        transactions: Transactions,
        sessions: UserSessions,
        origin: str,
    ) -> None:
        self.pieces = pieces
        self.core = core
        self.records = records
        self.tasks = tasks
        self.policy = policy
        self.channel = channel  # returns the channel of a space by its name; None: the space has no engine
        self.transactions = transactions
        self.sessions = sessions
        self.origin = origin  # part of the ids of this runtime's events
        # Called with the target before an event is handled, unless the target is prepared, with each record of a
        # declared topic that a handler emits, and with each landed commit that declares reactions. The composition of
        # a runtime sets them.
        self.is_prepared: Callable[[PieceInstance], bool] = lambda _: True
        self.before_handling: Callable[[PieceInstance], Awaitable[None]] | None = None
        self.on_emitted: Callable[[PieceInstance, str, Transaction], None] | None = None
        self.on_declared: Callable[[PieceInstance, Commit], None] | None = None
        self._lanes: dict[str, Lane] = {}  # by space: lanes with an event that has no outcome
        self.no_lane = Lane("", core.request_tick)  # of events that were not sent yet
        self._live: dict[str, EventDelivery] = {}  # by id, in send order: events without an outcome
        self._outside: dict[str, deque[tuple[EventDelivery, asyncio.Future[Any]]]] = {}  # by handler
        self._stamps = 0
        self._table = EventTable(self.policy.intents_kept)
        self.current: HandledEvent | None = None  # the event whose handler is being called
        self.handling: EventDelivery | None = None  # its delivery
        self.lineage = Lineage(start=self._follow, drop=self._drop, keep=self._keep, stop=pieces.unlaunch)
        self.durable_events = DurableEvents(self)
        self.pickup = StoredEventPickup(self)
        self.retention = Retention(self)
        self.trace: Trace | None = None  # the trace that records events, if one is attached
        core.scheduler.traced.append(self)
        core.handle_events = self.handle
        tasks.on_close.append(self._close)

    # ---- the port of pieces ------------------------------------------------------------------------

    def make_handle(self, view: ScopedView, member: HandlerMember) -> Handler[Any, Any]:
        """Return the handle of a handler, which sends events for the user and session of a view."""
        return Handler(Sender(self, view), member, view.instance.schema.signature(member))

    def context(self, view: ScopedView) -> Context:
        """Return the value of `ctx` for a view: of the event whose handler is being called, or of a node."""
        return self.contexts.of_view(view, self.current)

    def start_periods(self, instance: PieceInstance) -> list[asyncio.Task[None]]:
        """Start sending the events of the periodic handlers of an open piece."""
        return periodic.begin(self.core, self.tasks, self._send_periodic, instance)

    def _send_periodic(self, event: Event) -> Callable[[], bool]:
        delivery = self.start(self.deliver(event))
        return lambda: delivery.outcome is not None

    def retry_parked(self, space: str) -> None:
        """Retry stored events of a space that could not be handled here, because a piece of it was opened."""
        self.pickup.opened(space)

    # ---- sending -----------------------------------------------------------------------------------

    def event(
        self, view: ScopedView, member: HandlerMember, payload: Value, options: Options, due_us: int = 0
    ) -> Event:
        """Make an event, with the caller's id or one of its own."""
        parent = None if self.handling is None else self.handling.event
        return make_event(
            view,
            member,
            payload,
            options,
            due_us,
            parent=parent,
            minted_us=self.core.clock.now_us(),
            is_kept=self.channel(view.instance.space.name) is not None,
            sessions=self.sessions,
            new_id=self._new_id,
        )

    def _new_id(self, stream: str, minted_us: int) -> str:
        """Return the id of the next event. In a handler it follows from the attempt."""
        if self.handling is None:
            return event_id(self.origin, stream, self.next_stamp(), minted_us)
        attempt = self.handling.attempt
        assert attempt is not None
        parent = self.handling.event
        cause = f"{parent.id} {self.origin} {self.handling.calls}"
        # fault lineage.followups_keep_ids: id = event_id(parent.id, stream, attempt.minted, 0)
        id = event_id(cause, stream, attempt.minted, minted_us)
        attempt.minted += 1
        return id

    def deliver(self, event: Event, stored_in: str = "") -> EventDelivery:
        """Return the delivery of an event, which is not sent yet."""
        return EventDelivery(self, event, stored_in)

    def next_stamp(self) -> int:
        """Return the next number of the send order."""
        self._stamps += 1
        return self._stamps

    async def sent(self, delivery: EventDelivery, *, is_waiting: bool = True) -> Any:
        """Have an event handled, and wait for its outcome. A caller that stops waiting does not withdraw it.

        `is_waiting`: if too many events of its handler wait, it is sent when there is room.
        """
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            self._admit(delivery, told, is_waiting=is_waiting)
            return await told
        except HeadwaterError as error:
            cut_frames(error)
            raise

    def _admit(self, delivery: EventDelivery, told: asyncio.Future[Any], *, is_waiting: bool) -> None:
        """Start a delivery, or have it wait for room behind the senders that wait already. `told` gets its outcome."""
        waiting = self._outside.get(delivery.stream) if is_waiting else None
        if waiting is None:
            try:
                self.start(delivery).awaiting.append(told)
            except BacklogFullError:
                # fault events.send_is_refused: if True:
                if not is_waiting:
                    raise
                self._outside[delivery.stream] = deque([(delivery, told)])
        else:
            waiting.append((delivery, told))

    def _admit_senders(self) -> None:
        """Start the deliveries of senders that wait for room, as far as there is room."""
        for stream, waiting in tuple(self._outside.items()):
            while waiting:
                delivery, told = waiting[0]
                try:
                    if not told.done():  # A caller that stopped waiting sends no event.
                        self.start(delivery).awaiting.append(told)
                except BacklogFullError:
                    break
                except HeadwaterError as error:  # The outbox cannot keep it.
                    told.set_exception(error)
                waiting.popleft()
            if not waiting:
                del self._outside[stream]

    def follow_up(self, delivery: EventDelivery) -> None:
        """Post an event in a handler: it is sent with the commit of the open attempt."""
        assert self.handling is not None
        attempt = self.handling.attempt
        assert attempt is not None
        follow_up(attempt, delivery, self._lane(delivery.instance.space.name), self.policy.backlog)
        self._name_endless_chain(delivery.event)

    def _name_endless_chain(self, event: Event) -> None:
        """Report a chain of events that post each other once it is as long as no chain that ends."""
        if event.generation == RUNTIME_LIMITS.event_generations:
            chain = " -> ".join((*event.chain, event.stream))
            error = HeadwaterError(
                f"{event.generation} events were posted one by the handler of the other, the last of them {chain}: "
                "end the chain, or post the next one later with post_at()"
            )
            self.core.report(event.stream, error)

    def start(self, delivery: EventDelivery) -> EventDelivery:
        """Queue an event behind those of its space that were sent before it.

        Return its delivery; that of the first one, if the same event is sent a second time.
        """
        known = self._live.get(delivery.id)
        if known is not None:
            return known
        if delivery.event.due_us and self._is_later(delivery):
            return self._put_off(delivery)
        if len(self._live) >= self.policy.in_hand:
            raise BacklogFullError(
                f"{len(self._live)} events wait to be handled here, which is the limit, and {delivery.stream} would be "
                "one more: await some of them first"
            )
        lane = self._lane(delivery.instance.space.name)
        before = None if delivery.event.member.coalesce is None else self._before(lane, delivery)
        if before is None:
            lane.check_room(delivery.stream, self.policy.backlog)
        self._begin(delivery)
        if before is not None:
            delivery.absorbed = [*before.absorbed, before]
            before.absorbed = []
            self._end(before, EventOutcome.COALESCED, told=False)
        self._enter(lane, delivery)
        return delivery

    def resume(self, delivery: EventDelivery) -> None:
        """Queue an event that was accepted before: the limits do not apply to it any more."""
        if self._is_later(delivery):
            delivery.event = replace(delivery.event, is_durable=True)
            self._put_off(delivery)
            return
        self._begin(delivery)
        self._enter(self._lane(delivery.instance.space.name), delivery)

    def _enter(self, lane: Lane, delivery: EventDelivery) -> None:
        """Put a delivery into its lane."""
        trace = self.trace
        if trace is not None:
            trace.emit(EventQueued(delivery.stream, delivery.id))
        delivery.lane = lane
        lane.enter(delivery)

    def _begin(self, delivery: EventDelivery, *, is_later: bool = False) -> None:
        """Record an event as sent, and begin to store it if it has to be."""
        if not delivery.event.is_taken:  # Otherwise the store or the outbox has it already.
            self.durable_events.accept(delivery, is_later=is_later)
        delivery.stamp = self.next_stamp()
        self._live[delivery.id] = delivery

    def _before(self, lane: Lane, delivery: EventDelivery) -> EventDelivery | None:
        """Return the queued event that this one replaces. An event that may still be undone replaces nothing."""
        event = delivery.event
        if not delivery.may_coalesce:
            return None
        front = lane.front
        return lane.last(
            lambda other: (
                other.stream == event.stream
                and (other.event.user, other.event.session) == (event.user, event.session)
                and other.may_coalesce
                and other is not front
                and not other.calls
                and other.state is WriteState.QUEUED
            )
        )

    def _lane(self, space: str) -> Lane:
        # fault+ lane.one_for_all_spaces: space = "busy"
        found = self._lanes.get(space)
        if found is None:
            found = self._lanes[space] = Lane(space, self.core.request_tick)
        return found

    def _follow(self, delivery: EventDelivery) -> None:
        """Start a follow-up whose commit is made. It was accepted when it was posted, and is not refused any more."""
        if delivery.is_withdrawn:
            return
        if delivery.id in self._live:
            self.pickup.again(delivery.stored_in)  # Another event has the same id, given by its sender. The row stays.
            return
        if self._is_later(delivery):
            self.pickup.later(delivery)
            return
        self.resume(delivery)

    def _is_later(self, delivery: EventDelivery) -> bool:
        due_us = delivery.event.due_us
        return due_us > 0 and due_us > self.core.clock.now_us()

    def come_due(self, delivery: EventDelivery) -> None:
        """Start an event that was due later, in a space without an engine."""
        event = delivery.event
        if not (delivery.is_withdrawn or delivery.is_dropped):
            delivery.event = replace(event, minted_us=event.due_us, source=EventSource.DUE)
            self.start(delivery)

    def _put_off(self, delivery: EventDelivery) -> EventDelivery:
        """Store an event that is due later. It ends here as stored."""
        if self.channel(delivery.instance.space.name) is None:
            self.pickup.later(delivery)
            return delivery
        self._begin(delivery, is_later=True)
        delivery.take(Happened.DECIDED)
        self._begin_errand(delivery, self._store_later(delivery))
        return delivery

    async def _store_later(self, delivery: EventDelivery) -> None:
        end = EventOutcome.STORED
        try:
            if delivery.event.is_taken:
                await receipts.check(self, delivery)  # An earlier process may have stored it, and it may be handled.
                self.durable_events.accept(delivery, is_later=True)
            await self.durable_events.accepted(delivery)
            if delivery.is_withdrawn:
                end = EventOutcome.WITHDRAWN
            else:
                self.durable_events.forget(delivery)  # An outbox need not keep it any more.
                self.pickup.later(delivery)
        except HandledBefore as before:
            delivery.answer, delivery.failure, end = before.answer, before.failure, EventOutcome.HANDLED_BEFORE
        except Exception as error:
            delivery.failure = error
            end = delivery.classify_error(error)
        if end is not EventOutcome.STORED:
            delivery.decided = end
            await self._write_end(delivery, end)
        self._end(delivery, end)

    def withdraw(self, delivery: EventDelivery) -> bool:
        """Withdraw an event that was not dispatched. Return False if it was, or if another caller awaits it."""
        end = delivery.outcome
        is_put_off = end is EventOutcome.STORED or (end is None and not delivery.stamp and delivery.is_stored)
        if delivery.is_withdrawn or end is EventOutcome.WITHDRAWN:
            return True
        if delivery.calls or delivery.absorbed or (end is not None and not is_put_off):
            return False
        if delivery.is_awaited:
            return False  # Another caller sent it under the same id, and waits for it.
        if delivery.storage is not Storage.NOWHERE and not self._is_later(delivery):
            return False  # A runtime that finds it in the store may handle it at any time.
        self.durable_events.forget(
            delivery
        )  # First: if the outbox cannot, a crash would bring it back, and it is handled.
        delivery.decided = EventOutcome.WITHDRAWN
        self.pickup.withdrawn(delivery)
        if is_put_off:
            delivery.outcome = EventOutcome.WITHDRAWN
            if delivery.state is not WriteState.ENDED:
                delivery.take(Happened.OVER)
            self.tasks.begin(
                self.durable_events.ended(delivery, EventOutcome.WITHDRAWN), f"withdrawing {delivery.stream}"
            )
        elif delivery.stamp and not delivery.is_stored and delivery.storing_write is None:
            self.finish(delivery, EventOutcome.WITHDRAWN)  # Nothing has been done for it that other sessions could see.
        return True

    # ---- from its turn to its end ------------------------------------------------------------------

    def handle(self) -> None:
        """Give the events at the front of the lanes their turn. Called in each pass, before nodes run."""
        if self.tasks.is_closed:
            return
        if self._outside:
            self._admit_senders()
        left = RUNTIME_LIMITS.events_in_a_slice
        lanes = list(self._lanes.values())
        while lanes and left > 0:
            fronts: list[EventDelivery] = []
            for lane in lanes:
                if lane.front is not None:
                    fronts.append(lane.front)
            if len(fronts) > 1:
                fronts.sort(key=_stamp)  # Without a reason to wait, events of several spaces keep their order, too.
            if fronts:
                self.core.scheduler.pass_.expect_slice()
            for delivery in fronts:
                self._give_turn(delivery)
            lanes = []
            for delivery in fronts:
                front = delivery.lane.front
                if front is not None and front is not delivery:
                    lanes.append(delivery.lane)
            left -= len(lanes)
        if lanes:
            self.core.request_tick()

    def _give_turn(self, delivery: EventDelivery) -> None:
        """Take the event in front of a lane one step further, unless it waits."""
        if delivery.state is not WriteState.QUEUED:
            return
        if delivery.is_withdrawn:
            self.finish(delivery, EventOutcome.WITHDRAWN)
            return
        write = delivery.storing_write
        if write is not None and write.is_over and not write.is_made:
            self.conclude(delivery, delivery.failure or asyncio.CancelledError(), _nothing)
            return
        if delivery.view is None:
            self._prepare(delivery)
            return
        space = delivery.instance.space
        channel = self.channel(space.name)
        if channel is None:
            self.transactions.local.advance(space, delivery)
        else:
            channel.writer.advance(delivery)

    def _prepare(self, delivery: EventDelivery) -> None:
        """Prepare an event that is in front for the first time."""
        space = delivery.instance.space
        channel = self.channel(space.name)
        if channel is not None:
            channel.writer.enlist(delivery, self._requeue)
        else:
            delivery.requeue = self._requeue
        try:
            is_quick = delivery.is_quick()
            if is_quick:
                delivery.prepare_quickly()
        except Exception as error:
            self.conclude(delivery, error, _nothing)
            return
        if is_quick:
            self._give_turn(delivery)
        else:
            delivery.take(Happened.MISSING)
            self._begin_errand(delivery, self._load(delivery))
            self._leave_if_stuck(delivery)

    def _requeue(self, _: object) -> None:
        self.core.request_tick()

    async def _load(self, delivery: EventDelivery) -> None:
        try:
            await delivery.prepare()
        except HandledBefore as before:
            delivery.errand = None
            delivery.answer, delivery.failure = before.answer, before.failure
            self.finish(delivery, EventOutcome.HANDLED_BEFORE)
        except Exception as error:
            delivery.errand = None
            self.conclude(delivery, error, _nothing)
        else:
            delivery.errand = None
            if delivery.state is WriteState.LOADING:
                delivery.take(Happened.ARRIVED)
                self.core.request_tick()

    def _begin_errand(self, delivery: EventDelivery, work: Coroutine[Any, Any, None]) -> None:
        """Begin a conversation with the engine, whose end wakes the event."""
        delivery.errand = self.tasks.spawn(work, delivery.stream)

    def _leave_if_stuck(self, delivery: EventDelivery) -> None:
        """Leave an event that was taken up in the store if it waits for documents that cannot be fetched.

        It delays no event here. `Away`: there is no connection, and it has not been handled.
        """
        if not (delivery.event.is_taken and delivery.is_stored):
            return
        channels = [self.channel(space) for space in (delivery.instance.space.name, delivery.stored_in)]

        def is_stuck() -> bool:
            return delivery.state is WriteState.LOADING and not any(
                each is not None and each.is_up() for each in channels
            )

        def over() -> None:
            if is_stuck():
                why = Away(f"{delivery.stream} waits for a connection: a runtime that has one may handle it")
                self.core.afterwards(lambda: self.conclude(delivery, why, _nothing))

        self.core.observers.when(lambda: delivery.calls > 0 or delivery.is_over or is_stuck(), over)

    def conclude(
        self, delivery: EventDelivery, error: BaseException, examine: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """End an event that failed. `examine` finds out whether it was handled, and raises `HandledBefore` if so."""
        if delivery.is_over:
            return
        delivery.failure = error
        work = examine()
        if not _is_examined(delivery, error):
            work.close()
            self.finish(delivery, delivery.classify_error(error))
            return
        self._decide(delivery)
        self._begin_errand(delivery, self._examine(delivery, error, work))

    async def _examine(self, delivery: EventDelivery, error: BaseException, work: Coroutine[Any, Any, None]) -> None:
        end: EventOutcome | None = None
        try:
            await work
        except HandledBefore as before:
            delivery.answer, delivery.failure, end = before.answer, before.failure, EventOutcome.HANDLED_BEFORE
        except Exception as raised:
            delivery.failure = error = raised
        end = end or delivery.classify_error(error)
        delivery.decided = end
        await self._write_end(delivery, end)
        self._end(delivery, end)

    def finish(self, delivery: EventDelivery, end: EventOutcome) -> None:
        """End an event whose outcome is known: now, or once its stored rows are removed."""
        if delivery.is_over:
            return
        if end in (EventOutcome.WITHDRAWN, EventOutcome.DROPPED):
            delivery.failure = None
        delivery.decided = end
        if delivery.errand is not None:
            delivery.errand.cancel()
        self._decide(delivery)
        if self.durable_events.is_to_end(delivery, end):
            self._begin_errand(delivery, self._finish(delivery, end))
        else:
            self._end(delivery, end)

    async def _finish(self, delivery: EventDelivery, end: EventOutcome) -> None:
        await self._write_end(delivery, end)
        self._end(delivery, end)

    async def _write_end(self, delivery: EventDelivery, end: EventOutcome) -> None:
        try:
            await self.durable_events.ended(delivery, end)
        except Exception as error:  # Harmless: a runtime that takes the row up finds the receipt.
            self.core.report(delivery.stream, error)
            self.pickup.again(delivery.stored_in)

    def _decide(self, delivery: EventDelivery) -> None:
        """Remove an event from its lane before its outcome is stored: its handler is not called again."""
        trace = self.trace
        if trace is not None:
            trace.emit(EventDecided(delivery.stream, delivery.id))
        delivery.take(Happened.DECIDED)
        delivery.lane.leave(delivery)
        channel = self.channel(delivery.instance.space.name)
        if channel is not None:
            channel.writer.withdraw(delivery)
        delivery.release()

    def _end(self, delivery: EventDelivery, end: EventOutcome, *, told: bool = True) -> None:
        """Record the outcome of an event, and answer every caller that awaits it (`told=False`: a later event does)."""
        core = self.core
        delivery.outcome, delivery.follows, delivery.errand = end, (), None
        delivery.take(Happened.OVER)
        self._live.pop(delivery.id, None)
        lane = delivery.lane
        lane.end(delivery)
        if not lane and self._lanes.get(lane.space) is lane:
            del self._lanes[lane.space]
        self._table.keep(delivery.row(0, core.clock.now_us()))
        trace = self.trace
        if trace is not None:
            backoff_ms = delivery.backoff_us / 1_000
            kind = delivery.failure_kind()
            trace.emit(EventEnded(delivery.stream, delivery.id, delivery.attempts, end.value, backoff_ms, kind))
        if told:
            delivery.answer_callers(end)
        self.pickup.ended(delivery)
        if end is EventOutcome.LANDED:
            self.retention.landed(delivery)
        if lane or self._outside or core.observers.is_awaited():
            core.request_tick()

    def note(self, row: IntentRow) -> None:
        """Record the outcome of a stored event that was not handled here."""
        self._table.keep(row)

    def _close(self) -> None:
        """End all events, because the runtime is closed."""
        for delivery in tuple(self._live.values()):
            if delivery.outcome is not None:
                continue  # It ended with the attempt that posted it.
            is_known = delivery.state is WriteState.STORING and delivery.decided not in (
                None,
                EventOutcome.WITHDRAWN,
                EventOutcome.DROPPED,
            )
            end = delivery.decided if is_known else delivery.classify_error(asyncio.CancelledError())
            assert end is not None
            if delivery.state is not WriteState.STORING:
                self._decide(delivery)
            if end is EventOutcome.WITHDRAWN:
                self.durable_events.forget(delivery)
            self._end(delivery, end)
        why = SessionExpiredError("the runtime was closed while a sender waited for room: open another one")
        outside, self._outside = self._outside, {}
        for waiting in outside.values():
            for _, told in waiting:
                if not told.done():
                    told.set_exception(why)

    # ---- events and pieces of an attempt ------------------------------------------------------------------

    def _keep(self, origin: Origin, instance: PieceInstance) -> None:
        def keep() -> None:
            if origin.status is not Status.FAILED and not instance.is_stopped:
                self.pieces.run_piece(instance, origin.user, origin.session, is_launch=True)

        self.core.afterwards(keep)

    def _drop(self, delivery: EventDelivery) -> None:
        """End an event whose origin did not land (I10). If its own commit is sent, the engine rejects it."""
        # fault+ lineage.nothing_taken_back: return
        if delivery.outcome is not None or delivery.state is WriteState.STORING:
            return
        delivery.decided = EventOutcome.DROPPED
        if delivery.stamp and delivery.state is not WriteState.SENT:
            self.finish(delivery, EventOutcome.DROPPED)

    # ---- inspection -----------------------------------------------------------------------------------

    def is_waiting(self, delivery: EventDelivery) -> bool:
        """Return True if the commit of an event is still, or again, to be made."""
        return delivery.lane.is_waiting(delivery)

    def makers_of(self, documents: Iterable[Document], layers: Sequence[Layer]) -> tuple[EventDelivery, ...]:
        """Return the events of this runtime whose commits are among `layers`. Each layer is on one of the documents."""
        found: dict[EventDelivery, None] = {}
        wanted = set(layers)
        for document in documents if layers else ():
            lane = self._lanes.get(self.core.name_of(document.home) or "")
            made = {} if lane is None else lane.made
            known = [each.local_seq for each in document.layers if each in wanted and each.local_seq in made]
            found.update(dict.fromkeys([made[number] for number in known]))
        return tuple(found)

    @property
    def in_hand(self) -> int:
        """Number of events without an outcome, including those that wait for room."""
        return len(self._live) + sum(map(len, self._outside.values()))

    def has_local_work(self) -> bool:
        """Return True if an event waits for its turn or for a run here, and not for a verdict or a document."""
        for lane in self._lanes.values():  # noqa: SIM110  # A loop, because a generator doubles the cost.
            if self._is_local(lane):
                return True
        return False

    def _is_local(self, lane: Lane) -> bool:
        front = lane.front
        if front is None or front.is_away:
            return False
        channel = self.channel(lane.space)
        return front.state is not WriteState.LOADING or channel is None or channel.is_up()

    def intents(self) -> tuple[IntentRow, ...]:
        """Return the rows of all events without an outcome, of the last ones with one, and of those that are parked."""
        clock = self.core.clock
        now_us, wall_us = clock.monotonic_us(), clock.now_us()
        rows = self._table.rows([each.row(now_us, wall_us) for each in self._live.values()])
        return (*rows, *self.durable_events.replay.rows(), *self.pickup.rows())

    def find(self, id: str) -> EventDelivery | None:
        """Return the delivery of an event without an outcome, by its id."""
        return self._live.get(id)

    # ---- posts and records of a handler ----------------------------------------------------------------------

    def post(self, stream: Stream[Any], payload: Value) -> None:
        raise AuthoringError(f"{stream!r} has no handler: post to a handler of a piece")

    def emit(self, topic: Topic[Any], record: Value) -> None:
        """Add a record to the commit of the handler."""
        run = self.core.current.run
        if self.handling is None or run is None or run.transaction is None:
            raise AuthoringError(f"{topic!r}: records are emitted in a handler, with the commit that causes them")
        event = self.handling.event
        if topic.document.home is not event.instance.space.replica:
            raise AuthoringError(
                f"{topic!r} is not of {event.instance.space.name}, where this is handled: a record is part of the "
                "commit. Post to a handler there, and emit in that one."
            )
        # The ordering key is given by the topic's declaration, or is the id of the piece.
        owner = topic.owner if isinstance(topic.owner, PieceInstance) else event.instance
        declared = owner.schema.get(topic.document.key.id.rpartition(":")[2]) if owner is topic.owner else None
        name, key = doc_text(topic.document.key), owner.id
        if isinstance(declared, TopicMember):
            name = topic_name(owner.cls, declared)
            key = owner.id if declared.key is None else declared.key(owner.schema.codec(declared).decode(record))
            if type(key) is not str:
                raise AuthoringError(f"{declared!r}: its key= answered {key!r}: answer a text")
            if self.on_emitted is not None:
                self.on_emitted(owner, name, run.transaction)
        run.transaction.records.append(TopicRecord(name, key, record, self.records.emitter(owner)))


class Sender:
    """Sends to the handlers of one piece, for one user and session.

    `send` waits for the outcome of the event, and a caller that stops waiting does not withdraw it; `post` returns at
    once.
    """

    __slots__ = ("_events", "_view")

    def __init__(self, events: Events, view: ScopedView) -> None:
        self._events = events
        self._view = view

    def send(self, member: HandlerMember, payload: Value, options: Options) -> Coroutine[Any, Any, Any]:
        """Make an event for a handler, outside any run. Return a coroutine that ends with the outcome of the event."""
        core = self._events.core
        if core.current.run is not None:
            raise AuthoringError(f"send() of {member!r} inside a run, which never awaits: write post()")
        core.check_thread()
        event = self._events.event(self._view, member, payload, options)
        return self._events.sent(self._events.deliver(event), is_waiting=options.wait)

    def post(self, member: HandlerMember, payload: Value, options: Options) -> Intent:
        return self._posted(member, payload, options, 0)

    def post_at(self, member: HandlerMember, when: datetime | timedelta, payload: Value, options: Options) -> Intent:
        if isinstance(when, timedelta):
            current = self._events.current
            # In a handler the send time of its own event: a retry computes the same moment.
            now_us = self.core.clock.now_us() if current is None else current.event.minted_us
            due_us = now_us + when // timedelta(microseconds=1)
        else:
            due_us = (when.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        if due_us < 0:
            raise AuthoringError(f"post_at({when}) of {member!r} is before 1970: write a moment to come")
        return self._posted(member, payload, options, max(1, due_us))

    def _posted(self, member: HandlerMember, payload: Value, options: Options, due_us: int) -> Intent:
        events, core = self._events, self._events.core
        core.check_thread()
        if core.current.run is not None and events.current is None:
            raise AuthoringError(f"post() of {member!r}: this run is repeated. Post it in a handler.")
        delivery = events.deliver(events.event(self._view, member, payload, options, due_us))
        if events.current is not None:
            events.follow_up(delivery)
        else:
            delivery = events.start(delivery)
        return Intent(delivery.id, lambda: events.withdraw(delivery))

    @property
    def core(self) -> Core:
        return self._events.core

    def place(self, member: HandlerMember) -> str:
        return self._view.instance.place(member)

    def seen_by(self, view: ScopedView) -> Sender:
        """Return a sender to the same piece, for the user and the session of another view."""
        return Sender(self._events, view.seen_in(self._view.instance, "session"))

    def same(self, other: object) -> bool:
        """Return True if `other` sends to the same piece for the same user and session."""
        return isinstance(other, Sender) and self._view is other._view


def _stamp(delivery: EventDelivery) -> int:
    return delivery.stamp


async def _nothing() -> None:
    """Examine nothing: no runtime can have handled the event."""


def _is_examined(delivery: EventDelivery, error: BaseException) -> bool:
    """Return whether the failure of an event may mean that it was handled, or that its origin did not land."""
    if isinstance(error, PreconditionFailedError):
        return True
    return isinstance(error, (Refused, HandlerFailed)) and delivery.calls > 0 and receipts.may_be_handled(delivery)
