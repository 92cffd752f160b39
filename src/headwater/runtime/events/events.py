"""`Events`: all events of one runtime, from sending to outcome. Composes the parts of this folder.

The events of a space are handled in send order; an event that waits delays the events behind it. Every event gets an
outcome, which is reported to all callers that await the event, and to the error channel if no caller does or if the
program has a defect. Attempts, storing, taking up and launching are in the other modules.

`follow_up` posts an event inside a handler: the event is sent with the commit of the attempt, and only with it. It
counts against the backlog of its handler as if it were queued already. With `coalesce="last"`, a later post of the same
attempt replaces an earlier one, which then was never sent. `follow_up` starts nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headwater.data.address import doc_text
from headwater.data.trace import EventDecided, EventEnded, EventQueued
from headwater.data.value import Value
from headwater.errors import AuthoringError, BacklogFullError, HeadwaterError, cut_frames
from headwater.pieces.declarations import TopicMember
from headwater.protocol.commit import TopicRecord
from headwater.runtime.events import attempt, ids, periodic, receipts
from headwater.runtime.events.durable import Storing
from headwater.runtime.events.event import Sender
from headwater.runtime.events.lane import Lane
from headwater.runtime.events.lineage import Lineage, Origin, Status
from headwater.runtime.events.pickup import Takeover
from headwater.runtime.events.receipts import HandledBefore, Retention
from headwater.runtime.events.table import End, IntentRow, Table, end_of, tell, terminal_of
from headwater.runtime.pieces.instance import PieceInstance
from headwater.runtime.pieces.records import topic_name
from headwater.runtime.writing.attempt import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from headwater.cells.runtime_port import Stream, Topic
    from headwater.data.trace import Trace
    from headwater.pieces.declarations import HandlerMember
    from headwater.pieces.handles import Options
    from headwater.protocol.commit import Commit
    from headwater.replica.document import Document
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.events.event import Event
    from headwater.runtime.pieces.context import EventContext
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView


def follow_up(attempt: Origin, event: Event, lane: Lane, backlog: int) -> None:
    """It is sent with the commit of an attempt. BacklogFullError: that posted too much."""
    before = _before(attempt, event)
    if before is not None:
        attempt.posted.remove(before)  # Nothing of it is anywhere.
        before.end = End.COALESCED
    elif not event.due_us:
        posted = sum(1 for each in attempt.posted if each.stream == event.stream and not each.is_withdrawn)
        lane.check_room(event.stream, backlog, posted)
    event.origin = attempt
    attempt.posted.append(event)


def _before(attempt: Origin, event: Event) -> Event | None:
    """One that the same attempt posted, and in whose place this one is sent."""
    if event.member.coalesce is None or event.is_known or event.due_us:
        return None
    same = (
        each
        for each in reversed(attempt.posted)
        if each.stream == event.stream and not (each.is_known or each.due_us or each.is_withdrawn)
    )
    return next(same, None)


class Events:
    """Everything that is sent in one runtime."""

    __slots__ = (
        "_guard",
        "_lanes",
        "_live",
        "_stamps",
        "_table",
        "before_handling",
        "behind",
        "current",
        "lineage",
        "on_declared",
        "on_emitted",
        "origin",
        "pieces",
        "policy",
        "retention",
        "storing",
        "takeover",
    )

    def __init__(self, pieces: PieceRegistry, origin: str) -> None:
        self.pieces = pieces
        self.origin = origin  # part of the ids of this runtime's events
        self.policy = pieces.policy
        # Called with the target before an event is handled, with each record of a declared topic that a handler emits,
        # and with each landed commit that declares reactions. The composition of a runtime sets them.
        self.before_handling: Callable[[PieceInstance], Awaitable[None]] | None = None
        self.on_emitted: Callable[[PieceInstance, str, Transaction], None] | None = None
        self.on_declared: Callable[[PieceInstance, Commit], None] | None = None
        self._lanes: dict[str, Lane] = {}
        self._live: dict[str, Event] = {}  # by id, in the order of their sending: those without an end
        self._stamps = 0
        self.behind = 0  # events that wait for one of another space to be committed
        self._table = Table(self.policy.intents_kept)
        self._guard: asyncio.Task[None] | None = None  # ends with the runtime, and with it whatever still waits
        self.current: tuple[Event, EventContext] | None = None  # whose handler is being called
        self.lineage = Lineage(start=self._follow, drop=self._drop, keep=self._keep, stop=pieces.unlaunch)
        self.storing = Storing(self)
        self.takeover = Takeover(self)
        self.retention = Retention(pieces, self.policy, origin)

    # ---- the port of pieces ------------------------------------------------------------------------

    def make_sender(self, view: ScopedView) -> Sender:
        """Return the object that sends events to the handlers of one piece, for the user and session of a view."""
        return Sender(self, view)

    def start_periods(self, instance: PieceInstance) -> list[asyncio.Task[None]]:
        """Start sending the events of the periodic handlers of an open piece."""
        return periodic.begin(self, instance)

    def retry_parked(self, space: str) -> None:
        """Retry stored events of a space that could not be handled here, because a piece of it was opened."""
        self.takeover.opened(space)

    # ---- sending -----------------------------------------------------------------------------------

    def event(
        self, view: ScopedView, member: HandlerMember, payload: Value, options: Options, due_us: int = 0
    ) -> Event:
        """An event, with an id of its own or the caller's."""
        return ids.event(self, view, member, payload, options, due_us)

    def next_stamp(self) -> int:
        """A number for something that is sent: it rises."""
        self._stamps += 1
        return self._stamps

    async def sent(self, event: Event) -> Any:
        """Have it handled, and wait for its end. Whoever stops waiting does not withdraw it."""
        try:
            return await self.awaited(self.start(event))
        except HeadwaterError as error:
            cut_frames(error)
            raise

    async def awaited(self, event: Event) -> Any:
        """Wait for the end of an event that was started."""
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        event.awaiting.append(told)
        return await told

    def follow_up(self, event: Event) -> None:
        """Inside a handler: it is sent with the commit that is being made."""
        assert self.current is not None
        attempt = self.current[0].attempt
        assert attempt is not None
        follow_up(attempt, event, self._lane(event.instance.space.name), self.policy.backlog)

    def start(self, event: Event) -> Event:
        """Have it handled, whoever waits for it, after those of its space that were sent before it.

        Answers the event that is: the same one sent twice at once is one.
        """
        known = self._live.get(event.id)
        if known is not None:
            return known
        if self._is_later(event):
            return self._put_off(event)
        if len(self._live) >= self.policy.in_hand:
            raise BacklogFullError(
                f"{len(self._live)} events wait to be handled here, which is the limit, and {event.stream} would be "
                "one more: await some of them first"
            )
        lane = self._lane(event.instance.space.name)
        before = self._before(lane, event)
        if before is None:
            lane.check_room(event.stream, self.policy.backlog)
        self._begin(event)
        if before is not None:
            event.absorbed = [*before.absorbed, before]
            before.absorbed = []
            self._end(before, End.COALESCED, told=False)
        self._enter(lane, event)
        return event

    def resume(self, event: Event) -> None:
        """Have one handled that was let in before this runtime was: it is not refused any more."""
        if self._is_later(event):
            event.is_durable = True
            self._put_off(event)
            return
        self._begin(event)
        self._enter(self._lane(event.instance.space.name), event)

    def _enter(self, lane: Lane, event: Event) -> None:
        """It has its place, behind everything that was sent before it."""
        trace = self.trace
        if trace is not None:
            trace.emit(EventQueued(event.stream, event.id))
        lane.enter(event)

    def decided(self, event: Event) -> None:
        """It is not called any more, and holds up nobody until its end is written down."""
        trace = self.trace
        if trace is not None and not event.is_over:
            trace.emit(EventDecided(event.stream, event.id))
        self._lane(event.instance.space.name).let_go(event)

    def _begin(self, event: Event, *, is_later: bool = False) -> None:
        """From now on it is known here."""
        if not event.is_taken:  # Otherwise it is kept already, wherever it was taken from.
            self.storing.accept(event, is_later=is_later)
        event.stamp = self.next_stamp()
        self._live[event.id] = event
        if self._guard is None:
            self._guard = self.pieces.tasks.keep(_for_ever(), "events that wait for their turn")
            self._guard.add_done_callback(self._closed)

    def _before(self, lane: Lane, event: Event) -> Event | None:
        """An event that waits and in whose place this one is handled. What may still fall takes nobody along."""
        if event.member.coalesce is None or not event.may_coalesce:
            return None
        return lane.last(
            lambda other: (
                other.stream == event.stream
                and (other.user, other.session) == (event.user, event.session)
                and other.may_coalesce
                and other.task is None
            )
        )

    def _lane(self, space: str) -> Lane:
        # fault+ lane.one_for_all_spaces: space = "busy"
        found = self._lanes.get(space)
        if found is None:
            found = self._lanes[space] = Lane(space, self._dispatch)
        return found

    def _follow(self, event: Event) -> None:
        """A follow-up whose commit is made. It was let in when it was posted, and is not refused any more."""
        if event.is_withdrawn:
            return
        if event.id in self._live:
            self.takeover.again(event.stored_in)  # Another one with the id that its sender gave. Its row stays.
            return
        if self._is_later(event):
            self.takeover.later(event)
            return
        self.resume(event)

    def _is_later(self, event: Event) -> bool:
        return event.due_us > self.pieces.core.clock.now_us()

    def _put_off(self, event: Event) -> Event:
        """It is due later: once it is stored, that is all that is to be done now."""
        if self.pieces.channel(event.instance.space.name) is None:
            self.takeover.later(event)
            return event
        self._begin(event, is_later=True)

        async def store() -> None:
            end = End.STORED
            try:
                if event.is_taken:
                    await receipts.check(self.pieces, event)  # It may have been stored, and handled, the last time.
                    self.storing.accept(event, is_later=True)
                await self.storing.accepted(event)
                if event.is_withdrawn:
                    end = End.WITHDRAWN
                else:
                    self.storing.forget(event)  # An outbox need not keep it any more.
                    self.takeover.later(event)
            except HandledBefore as before:
                event.answer, event.failure, end = before.answer, before.failure, End.HANDLED_BEFORE
            except (Exception, asyncio.CancelledError) as error:
                event.failure = error
                end = end_of(event, error)
            if end is not End.STORED:
                await self.storing.ended(event, end)
            self._end(event, end)

        event.task = self.pieces.tasks.spawn(store(), event.stream)
        event.task.add_done_callback(lambda _: self._over(event))
        return event

    def withdraw(self, event: Event) -> bool:
        """Take it back, until it is dispatched."""
        is_put_off = event.end is End.STORED or (event.end is None and not event.stamp and event.is_stored)
        if event.is_withdrawn or event.end is End.WITHDRAWN:
            return True
        if event.is_dispatched or event.absorbed or (event.end is not None and not is_put_off):
            return False
        if event.is_awaited:
            return False  # Somebody else sent it, too, under the same id, and waits for it.
        if (event.is_stored or event.is_left) and not self._is_later(event):
            return False  # Whoever finds it in the store may handle it at any time.
        self.storing.forget(event)  # First: if the outbox cannot, a crash would bring it back, and it is handled.
        event.is_withdrawn = True
        self.takeover.withdrawn(event)
        if is_put_off:
            event.end = End.WITHDRAWN
            self.pieces.tasks.begin(self.storing.ended(event, End.WITHDRAWN), f"withdrawing {event.stream}")
        elif event.stamp and not event.is_stored and event.keeping is None:
            if event.task is None:
                self._end(event, End.WITHDRAWN)
            else:
                event.task.cancel()  # It is in front and loads: nothing has been done for it that others could see.
        return True

    # ---- from its turn to its end ------------------------------------------------------------------

    def _dispatch(self, event: Event) -> None:
        """It is in front for the first time. In a runtime that closes nothing begins: `_closed` ends it."""
        if self.pieces.tasks.is_closed:
            return
        event.task = self.pieces.tasks.spawn(self._through(event), event.stream)
        event.task.add_done_callback(lambda _: self._over(event))

    def _over(self, event: Event) -> None:
        """Nobody sees it through any more. A task that is cancelled before it began never runs, not even its end."""
        if event.end is None:
            end = end_of(event, asyncio.CancelledError())
            if end is End.WITHDRAWN:
                self.storing.forget(event)
            self._end(event, end)

    async def _through(self, event: Event) -> None:
        """Handle an event from its turn to its outcome."""
        end = End.LANDED
        try:
            if event.is_withdrawn:
                end = End.WITHDRAWN
            else:
                event.answer = await attempt.Attempting(self, self._lane(event.instance.space.name)).run(event)
        except HandledBefore as before:
            event.answer, event.failure, end = before.answer, before.failure, End.HANDLED_BEFORE
        except (Exception, asyncio.CancelledError) as error:
            end = end_of(event, error)
            event.failure = None if end is End.WITHDRAWN else error
        try:
            self.decided(event)
            await self.storing.ended(event, end)
        except Exception as error:  # Whoever takes it up finds its receipt: this is harmless, and told.
            self.pieces.core.report(event.stream, error)
            self.takeover.again(event.stored_in)
        finally:
            self._end(event, end)

    def _end(self, event: Event, end: End, *, told: bool = True) -> None:
        """It has its end, and whoever awaits it is told."""
        core = self.pieces.core
        event.end = end
        event.follows = ()
        event.write.stage = Stage.ENDED
        self._live.pop(event.id, None)
        lane = self._lanes.get(event.instance.space.name)
        if lane is not None:
            lane.end(event)
            if not lane:
                del self._lanes[lane.space]
        self._table.ended(event, core.clock.monotonic_us(), core.clock.now_us())
        trace = self.trace
        if trace is not None:
            backoff_ms = event.write.backoff_us / 1_000
            trace.emit(EventEnded(event.stream, event.id, event.attempts, end.value, backoff_ms, terminal_of(event)))
        if told:
            tell(core, event, end)
        self.takeover.ended(event)
        if end is End.LANDED:
            self.retention.landed(event)
        core.request_tick()

    def note(self, row: IntentRow) -> None:
        """A stored event has its end here that was never in hand here."""
        self._table.note(row)

    def _closed(self, _: object) -> None:
        """The runtime is closed: nothing that waits is left behind."""
        for event in tuple(self._live.values()):
            if event.task is None:
                self._end(event, End.CLOSED)

    # ---- what an attempt launched ------------------------------------------------------------------

    def _keep(self, origin: Origin, home: PieceInstance) -> None:
        def keep() -> None:
            if origin.status is not Status.FAILED and not home.is_stopped:
                self.pieces.keep(home, origin.user, origin.session, is_launch=True)

        self.pieces.core.afterwards(keep)

    def _drop(self, event: Event) -> None:
        """I10: what posted it did not land. If its own commit is on its way, that cannot land either."""
        # fault+ lineage.nothing_taken_back: return
        event.is_dropped = True
        if not event.stamp or event.end is not None:
            return
        if event.task is None:
            self._end(event, End.DROPPED)
        elif event.write.stage is not Stage.SENT:
            event.task.cancel()

    # ---- looking -----------------------------------------------------------------------------------

    @property
    def trace(self) -> Trace | None:
        """Who hears what happens, if somebody does."""
        return self.pieces.core.scheduler.trace

    async def until_made(self, holds: Callable[[], bool]) -> None:
        """Wait until events of other spaces are committed: each commit is looked at."""
        self.behind += 1
        try:
            await self.pieces.core.observers.until(holds)
        finally:
            self.behind -= 1

    def is_waiting(self, event: Event) -> bool:
        """Whether an event is still, or again, to be committed."""
        lane = self._lanes.get(event.instance.space.name)
        return lane is not None and lane.is_waiting(event)

    def makers_of(self, documents: Iterable[Document], layers: Sequence[Layer]) -> tuple[Event, ...]:
        """The events of this runtime whose commits some of these layers are; each is on one of the documents."""
        found: dict[Event, None] = {}
        wanted = set(layers)
        for document in documents if layers else ():
            lane = self._lanes.get(self.pieces.core.name_of(document.home) or "")
            made = {} if lane is None else lane.made
            known = [each.local_seq for each in document.layers if each in wanted and each.local_seq in made]
            found.update(dict.fromkeys([made[number] for number in known]))
        return tuple(found)

    @property
    def in_hand(self) -> int:
        """Events that have no end yet."""
        return len(self._live)

    def has_local_work(self) -> bool:
        """Whether one waits for its turn, or for something to run here. What waits for others does not count."""
        return any(self._is_local(lane) for lane in self._lanes.values())

    def _is_local(self, lane: Lane) -> bool:
        front = lane.front
        if front is None or front.is_away:
            return False
        channel = self.pieces.channel(lane.space)
        return front.write.stage is not Stage.LOADING or channel is None or channel.is_up()

    def intents(self) -> tuple[IntentRow, ...]:
        """Every event that was sent here, as it is now, how the last ones ended, and what cannot be handled here."""
        clock = self.pieces.core.clock
        rows = self._table.rows(self._live.values(), clock.monotonic_us(), clock.now_us())
        return (*rows, *self.storing.waiting.rows(), *self.takeover.rows())

    def find(self, id: str) -> Event | None:
        """The event of an id that has no end yet."""
        return self._live.get(id)

    # ---- what a handler sends ----------------------------------------------------------------------

    def post(self, stream: Stream[Any], payload: Value) -> None:
        raise AuthoringError(f"{stream!r} has no handler: post to a handler of a piece")

    def emit(self, topic: Topic[Any], record: Value) -> None:
        """A record of the handler's commit."""
        run = self.pieces.core.current.run
        if self.current is None or run is None or run.transaction is None:
            raise AuthoringError(f"{topic!r}: records are emitted in a handler, with the commit that causes them")
        event = self.current[0]
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
        run.transaction.records.append(TopicRecord(name, key, record, owner.id))


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
