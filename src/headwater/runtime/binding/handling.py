"""Handling events: one transaction per attempt, on fresh values, until it lands or fails loudly.

The events of a space have their turns in the order in which they were sent; one that waits holds up those behind it.
An attempt that reads something that is not fresh is dropped; what was missing runs or arrives, and the handler is
called again (I4). What it posted, launched and emitted belongs to the attempt that lands. Which attempt is tried when
is the writer's to say.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from headwater.data.address import doc_text
from headwater.data.ids import event_id
from headwater.data.value import Value, freeze
from headwater.errors import (
    AuthoringError,
    CommitConvergenceError,
    HandlerFailed,
    LimitError,
    NotSettlingError,
    Refused,
    RuleRefusedError,
)
from headwater.protocol.commit import TopicRecord
from headwater.runtime.authored import UNDECIDED, call_in
from headwater.runtime.binding import periods, receipts
from headwater.runtime.binding.contexts import EventContext
from headwater.runtime.binding.events import Event
from headwater.runtime.binding.fresh import WINDOW_US, Handled, Stale, freshen

if TYPE_CHECKING:
    from headwater.cells.sending import Stream, Topic
    from headwater.pieces.declarations import HandlerMember
    from headwater.pieces.handles import Options
    from headwater.replica.transaction import Transaction
    from headwater.runtime.binding.facet import Facet
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.pieces import Pieces
    from headwater.scheduler.node import Node


_LOUD: Final = (HandlerFailed, CommitConvergenceError, NotSettlingError, RuleRefusedError)
"""Ends that somebody is told of, even if the sender is, too."""


MAX_IN_HAND: Final = 10_000
"""Events of one runtime that have no end yet. Further ones from outside are refused."""


class Defect(Exception):
    """A handler raised something that is no refusal. Never leaves this module."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Handling:
    """Everything that is sent in one runtime."""

    __slots__ = ("_count", "_flying", "_lanes", "_pieces", "current", "in_hand", "local")

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._count = 0
        self._lanes: dict[str, Event] = {}  # the last event of each space that has not had its turn
        self._flying: dict[str, dict[Event, None]] = {}  # the events of each space that have no end, as they were sent
        self.current: tuple[Event, EventContext] | None = None  # whose handler is being called
        self.in_hand = 0  # events that have no end yet
        self.local = 0  # those among them that wait for their turn, or for something to run here

    # ---- sending -----------------------------------------------------------------------------------

    def event(self, facet: Facet, member: HandlerMember, payload: Value, options: Options) -> Event:
        """An event, with an id of its own or the caller's."""
        pieces, home = self._pieces, facet.home
        if options.durable:
            raise AuthoringError(f"options(durable=True) of {member!r}: events are not stored before they are handled")
        self._count += 1
        minted_us = pieces.core.clock.now_us()
        stream = home.place(member)
        user, session = facet.user, facet.session
        if self.current is not None:
            parent = self.current[0]
            user, session = parent.user, parent.session  # A follow-up is sent for whoever sent the first.
            id = event_id(f"{parent.id}.{parent.attempts}", stream, len(parent.posted), minted_us)
        elif options.id is not None:
            id = receipts.given_id(user, session, options.id, stream)
        else:
            id = event_id(pieces.origin, stream, self._count, minted_us)
        return Event(
            id=id,
            has_receipt=options.id is not None and self.current is None,
            home=home,
            member=member,
            payload=payload,
            user=user,
            session=session,
            minted_us=minted_us,
            retries=member.retries if options.retries is None else options.retries,
        )

    def check_room(self, member: HandlerMember) -> None:
        """Refuse what is sent faster than it can be handled."""
        if self.in_hand >= MAX_IN_HAND:
            raise LimitError(
                f"{self.in_hand} events wait to be handled, and {member!r} would be one more: await some of them first"
            )

    def periodic(self, home: Home, member: HandlerMember, period: int) -> Event:
        """The event of one period of a handler that is due again and again. Nobody sent it."""
        stream = home.place(member)
        minted_us = self._pieces.core.clock.now_us()
        return Event(
            id=receipts.given_id("", "", f"period {period}", stream),
            home=home,
            member=member,
            payload=freeze({}),
            user="",
            session="",
            minted_us=minted_us,
            retries=member.retries,
            period=period,
        )

    def start(self, event: Event) -> None:
        """Have it handled, whoever waits for it. It has its turn after those that were sent before it."""
        space = event.home.space.name
        before = self._lanes.get(space)
        self._lanes[space] = event
        self._flying.setdefault(space, {})[event] = None
        self.in_hand += 1
        self.local += 1
        event.is_local = True
        event.task = self._pieces.runtime.tasks.spawn(self._through(event, before), event.stream)

    async def _through(self, event: Event, before: Event | None) -> None:
        """From its turn to its end, which is told to whoever awaits it, or to the error channel."""
        try:
            if before is not None:
                await before.turn_over()
            if event.is_withdrawn:
                return
            event.is_dispatched = True
            event.answer = await self._handle(event)
        except (Exception, asyncio.CancelledError) as error:
            event.failure = error
        finally:
            self._had_turn(event)
            self.in_hand -= 1
            flying = self._flying[event.home.space.name]
            del flying[event]
            if not flying:
                del self._flying[event.home.space.name]
        self._ended(event)

    def _ended(self, event: Event) -> None:
        """A refusal that nobody awaits, and every defect, is told on the error channel."""
        failure = event.failure
        if not isinstance(failure, Exception):
            return  # All is well, or the runtime was closed.
        is_loud = isinstance(failure, _LOUD)
        if is_loud or not event.is_awaited:
            told = failure.__cause__ if isinstance(failure, HandlerFailed) else failure
            self._pieces.core.report(event.stream, told if isinstance(told, Exception) else failure)

    def _had_turn(self, event: Event) -> None:
        """Its commit is made, or it has an end: the next one of its space may go on."""
        if event.is_local:
            event.is_local = False
            self.local -= 1
        if not event.had_turn:
            event.had_turn = True
            space = event.home.space.name
            if self._lanes.get(space) is event:
                del self._lanes[space]
            if event.next_turn is not None and not event.next_turn.done():
                event.next_turn.set_result(None)
            self._pieces.core.request_tick()

    # ---- handling ----------------------------------------------------------------------------------

    async def _handle(self, event: Event) -> Any:
        """Have an event handled until it is durable, and answer what the handler returned."""
        pieces, home = self._pieces, event.home
        signature = home.outline.signature(event.member)
        await pieces.records.check(home)
        facet = home.facet("session", event.user, event.session)
        arguments = signature.decode(event.payload)
        held: list[Node] = []
        try:
            raw = await self._land(event, facet, arguments, held)
        except BaseException:
            self._failed(event)
            raise
        finally:
            for node in held:
                pieces.core.remove(node)
        home.is_made = True
        self._landed(event)
        return signature.result.decode(raw)

    async def _land(self, event: Event, facet: Facet, arguments: dict[str, Any], held: list[Node]) -> Value:
        pieces = self._pieces
        space = pieces.space(event.home.space.name, event.user, event.session)
        while True:
            try:
                return await space.land(
                    lambda transaction: self._called(event, facet, arguments, transaction),
                    node=event.stream,
                    retries=event.retries,
                )
            except Stale as stale:
                await freshen(pieces, event.stream, stale.documents, held)
            except Refused:
                if not await self._was_wrong(event):
                    raise
            except Defect as defect:
                if not await self._was_wrong(event):
                    raise HandlerFailed(
                        f"{event.stream} failed: {type(defect.error).__name__}: {defect.error}"
                    ) from defect.error

    async def _was_wrong(self, event: Event) -> bool:
        """Whether a handler said no to something that may never be: then it is asked again when that is decided.

        What is shown here includes what has no verdict, and what is refused writes nothing that would be judged. So a
        no counts only if it stands on what was decided, in the order in which events were sent.
        """
        flying = self._flying[event.home.space.name]
        layers, event.stood_on = event.stood_on, []

        def is_decided() -> bool:
            return next(iter(flying)) is event and not any(layer.fate in UNDECIDED for layer in layers)

        core = self._pieces.core
        event.doubted_us = event.doubted_us or core.clock.monotonic_us()
        left_us = event.doubted_us + WINDOW_US - core.clock.monotonic_us()
        if is_decided() or left_us <= 0:
            return False
        await self._pieces.runtime.tasks.until(is_decided, left_us)
        return True

    def _called(self, event: Event, facet: Facet, arguments: dict[str, Any], transaction: Transaction) -> Value:
        core, replica = self._pieces.core, event.home.space.replica
        tracker = Handled(core, replica, transaction)

        def attempt() -> Value:
            return self._attempt(event, facet, arguments)

        try:
            result = call_in(core.current, replica, transaction, core.visible, attempt, tracker)
        except BaseException:
            tracker.check()
            event.stood_on = tracker.undecided()
            raise
        tracker.check()  # Whoever caught the signal has gone on with what was not there: nothing of that is kept.
        core.afterwards(lambda: self._committed(event))
        self._had_turn(event)
        return result

    def _attempt(self, event: Event, facet: Facet, arguments: dict[str, Any]) -> Value:
        """One call of the handler, in the transaction that is open."""
        core = self._pieces.core
        event.begin_attempt()
        before = receipts.found(core, event) if event.has_receipt else None
        if before is not None:
            return before[0]  # What was handled is not handled again.
        if event.period is not None and periods.is_over(core, event):
            return None
        self.current = (event, EventContext(facet, event))
        try:
            event.home.pieces.records.keep(event.home)
            made = event.member.fn(facet.piece, **arguments)
            result = facet.home.outline.signature(event.member).result.encode(made)
            if event.has_receipt:
                receipts.leave(core, event, result)
            return result
        except Refused:
            raise
        except Exception as error:  # Whatever else an author's function raises is a defect.
            raise Defect(error) from error
        finally:
            self.current = None

    # ---- its end -----------------------------------------------------------------------------------

    def _committed(self, event: Event) -> None:
        """Its commit is shown here. What it launched lives with it, unless that is to wait until it is durable."""
        for home, after_commit in event.launched:
            if not after_commit and not home.is_stopped:
                self._pieces.keep(home, event.user, event.session)

    def _landed(self, event: Event) -> None:
        for home, _ in event.launched:
            home.is_launched = False  # It stands on its own from now on.
            self._pieces.keep(home, event.user, event.session)
        for posted in event.posted:
            if not posted.is_withdrawn:
                self.start(posted)

    def _failed(self, event: Event) -> None:
        for home, _ in event.launched:
            home.stop()
        event.launched, event.posted = [], []

    # ---- what a handler sends ----------------------------------------------------------------------

    def post(self, stream: Stream[Any], payload: Value) -> None:
        raise AuthoringError(f"{stream!r} has no handler: post to a handler of a piece")

    def emit(self, topic: Topic[Any], record: Value) -> None:
        """A record of the handler's commit."""
        run = self._pieces.core.current.run
        if self.current is None or run is None or run.transaction is None:
            raise AuthoringError(f"{topic!r}: records are emitted in a handler, with the commit that causes them")
        run.transaction.records.append(
            TopicRecord(doc_text(topic.document.key), self._pieces.key_of(topic, record, self.current[0]), record)
        )
