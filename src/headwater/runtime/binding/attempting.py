"""Attempting: an event is handled in one transaction per attempt, on fresh values, until that lands or fails for good.

An attempt that reads something that is not fresh is dropped; what was missing runs or arrives, and the handler is
called again (I4). A no that stands on something undecided is asked again once that is decided. With its writes the
transaction carries the event's receipt, what it sends, and the condition under which it may land at all. When it is
tried again is the writer's to say.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from headwater.data.value import Value
from headwater.errors import AccessError, EventExpiredError, HandlerFailed, Refused, RuleRefusedError
from headwater.protocol.commit import LeaseHeld
from headwater.protocol.reactions import lease_name
from headwater.runtime.authored import UNDECIDED, call_in
from headwater.runtime.binding import gone, periods, receipts, stored
from headwater.runtime.binding.advice import advice, noted
from headwater.runtime.binding.contexts import EventContext
from headwater.runtime.binding.course import Course, land, parked, prefetch
from headwater.runtime.binding.fresh import Handled, Stale
from headwater.runtime.binding.gone import Away
from headwater.runtime.binding.lineage import Origin
from headwater.runtime.binding.rights import check_right
from headwater.runtime.effort import Stage

if TYPE_CHECKING:
    from headwater.replica.transaction import Transaction
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.facet import Facet
    from headwater.runtime.binding.handling import Handling
    from headwater.runtime.binding.lanes import Lane
    from headwater.scheduler.node import Node


class Defect(Exception):
    """A handler raised something that is no refusal. Never leaves this module."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Attempting:
    """Handles the events of one space."""

    __slots__ = ("_handling", "_lane", "_pieces")

    def __init__(self, handling: Handling, lane: Lane) -> None:
        self._handling = handling
        self._lane = lane
        self._pieces = handling.pieces

    async def run(self, event: Event) -> Any:
        """Have an event handled until it is durable, and answer what the handler returned."""
        if event.is_taken and event.is_stored:
            return await self._run_or_leave(event)
        return await self._run(event)

    async def _run_or_leave(self, event: Event) -> Any:
        """One that was taken up is left in the store if it waits for what nobody can fetch: it holds up nobody here.

        Away: there is no connection, and it has not been handled.
        """
        channels = [self._pieces.runtime.channel(space) for space in (event.home.space.name, event.stored_in)]
        here = channels[0]
        assert here is not None

        def is_stuck() -> bool:
            return event.effort.stage is Stage.LOADING and not any(
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
                    raise Away(f"{event.stream} waits for a connection: whoever has one may handle it")
            return await handled
        finally:
            await _stopped(handled)

    async def _run(self, event: Event) -> Any:
        pieces, home = self._pieces, event.home
        self._check_age(event)
        signature = home.outline.signature(event.member)
        event.effort.stage = Stage.LOADING
        await pieces.records.check(home)
        await pieces.resuming.sleeping.roused(home)
        try:
            await check_right(pieces, event)
        except AccessError:
            event.is_forbidden = home.space.ended is None  # Otherwise it is this runtime that may not.
            raise
        await pieces.reacting.declare(home)
        if event.is_taken or (event.is_known and pieces.runtime.channel(home.space.name) is None):
            await receipts.check(pieces, event)
        facet = home.facet("session", event.user, event.session)
        arguments = signature.decode(event.payload)
        held: list[Node] = []
        try:
            await prefetch(pieces, event, facet, held)
            raw = await self._land(event, facet, arguments, held)
        finally:
            if event.attempt is not None:
                self._handling.lineage.failed(event.attempt)  # Unless it landed: then this is nothing.
            for node in held:
                pieces.core.remove(node)
            pieces.ahead.let_be(event.brought)
            event.brought.clear()
        home.is_made = True
        return signature.result.decode(raw)

    def _check_age(self, event: Event) -> None:
        """Of an event that is older than receipts are kept nobody knows any more whether it was handled.

        One that was kept all the time, in a store or in an outbox, is tried: if it was handled, admission says so.
        """
        kept_ms = self._handling.policy.retention_ms
        oldest_us = self._pieces.core.clock.now_us() - round(kept_ms * 1_000)
        if event.is_known and not (event.is_stored or event.is_taken) and 0 < event.minted_us < oldest_us:
            raise EventExpiredError(
                f"{event.stream}: event {event.id} was sent more than {kept_ms / 3.6e6:g} hours ago, and whether it "
                "was handled is not known any more: look, and send a new one"
            )

    async def _land(self, event: Event, facet: Facet, arguments: dict[str, Any], held: list[Node]) -> Value:
        pieces = self._pieces
        course = event.effort.course = Course(self._handling, self._lane, event)

        def attempt(transaction: Transaction) -> Value:
            return self._called(event, facet, arguments, transaction)

        while True:
            try:
                return await land(pieces, event, attempt)
            except Stale as stale:
                await parked(pieces, event, stale.documents, held)
            except Refused:
                if not await self._was_wrong(event):
                    self._handling.decided(event)  # Whatever its receipt says.
                    await receipts.check(pieces, event)
                    raise
            except Defect as defect:
                if not await self._was_wrong(event):
                    self._handling.decided(event)
                    await receipts.check(pieces, event)
                    raise HandlerFailed(
                        f"{event.stream} failed: {type(defect.error).__name__}: {defect.error}"
                    ) from defect.error
            except Exception as error:
                if isinstance(error, RuleRefusedError) and self._goes_without_answer(event):
                    continue
                event.advice = advice(event)
                await course.judge(error)
                raise

    def _goes_without_answer(self, event: Event) -> bool:
        """Whether it is tried again without the answer that it was to leave in its sender's scope."""
        if not event.is_barred or event.is_dropped or not receipts.mute(event):
            return False
        event.is_barred = False
        self._lane.come_back(event)
        return True

    async def _was_wrong(self, event: Event) -> bool:
        """Whether a handler said no to something that may never be: then it is asked again when that is decided.

        What is shown here includes what has no verdict, and what is refused writes nothing that would be judged. So a
        no counts only if it stands on what was decided, in the order in which events were sent.
        """
        # fault+ events.refusal_not_doubted: return False
        lane = self._lane
        layers, event.stood_on = event.stood_on, []

        def is_decided() -> bool:
            is_over = event.home.space.ended is not None  # Nothing will be heard any more.
            return is_over or (lane.is_first(event) and not any(layer.fate in UNDECIDED for layer in layers))

        if is_decided():  # In the very moment of the no: what is decided later may be decided otherwise.
            return False
        event.effort.stage = Stage.BACKING_OFF  # It waits for others' verdicts: they come, however late.
        await self._pieces.core.observing.until(is_decided)
        return True

    def _called(self, event: Event, facet: Facet, arguments: dict[str, Any], transaction: Transaction) -> Value:
        core, replica = self._pieces.core, event.home.space.replica
        tracker = Handled(self._pieces, event, replica, transaction, self._lane.written)

        def attempt() -> Value:
            return self._handling._attempt(event, facet, arguments)

        self._begin_attempt(event)
        try:
            result = call_in(core.current, replica, transaction, core.visible, attempt, tracker)
        except BaseException:
            tracker.check()
            event.stood_on = tracker.undecided()
            event.follows = self._handling.makers_of(tracker.elsewhere, tracker.undecided_elsewhere())
            raise
        tracker.check()  # Whoever caught the signal has gone on with what was not there: nothing of that is kept.
        event.seen = noted(transaction)
        event.follows = self._handling.makers_of(tracker.elsewhere, transaction.waits)
        self._lane.leave(event)
        if self._lane.front is None and core.observing.is_awaited():
            core.request_tick()  # `idle` may hold now, and without a connection nothing else would look.
        return result

    def _begin_attempt(self, event: Event) -> None:
        """What the last attempt left behind was never there."""
        if event.attempt is not None:
            self._handling.lineage.failed(event.attempt)
        if event.effort.last is not None:
            event.advice = advice(event)
        event.attempt = Origin(event.id, event.home.space.name, event.user, event.session)
        event.kept, event.is_of_elsewhere = None, False
        event.calls += 1
        event.is_dispatched = True


async def _stopped(task: asyncio.Future[Any]) -> None:
    """It goes no further, and whatever it said was heard."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


def call(handling: Handling, event: Event, facet: Facet, arguments: dict[str, Any]) -> Value:
    """One call of the handler, in the transaction that is open."""
    core = handling.pieces.core
    home = event.home
    gone.check(event)
    if event.period is not None and periods.is_over(core, event):
        return None
    facet = facet.kept_now()
    handling.current = (event, EventContext(facet, event))
    try:
        home.pieces.records.keep(home)
        made = event.member.fn(facet.piece, **arguments)
        result = facet.home.outline.signature(event.member).result.encode(made)
        _sign(handling, event, result)
        return result
    except Refused:
        _note_kept(handling, event)
        raise
    except (Exception, asyncio.CancelledError, GeneratorExit) as error:
        _note_kept(handling, event)
        raise Defect(error) from error  # Whatever else an author's function raises is a defect, and cancels nobody.
    finally:
        handling.current = None


def _sign(handling: Handling, event: Event, result: Value) -> None:
    """Inside the handler's transaction: its receipt, what it sends, and what is over with it."""
    run = handling.pieces.core.current.run
    assert run is not None
    transaction, attempt = run.transaction, event.attempt
    assert transaction is not None
    assert attempt is not None
    for origin in (event.origin, None if event.keeping is None else event.keeping.origin):
        condition = None if origin is None else origin.condition(event.home.space.name)
        if condition is not None:
            transaction.preconditions.append(condition)
    if event.delivers is not None:
        hold, delivered = event.delivers
        transaction.preconditions.append(LeaseHeld(lease_name(hold.reaction, hold.key), hold.token))
        transaction.delivered.append(delivered)
    _note_kept(handling, event)
    receipts.leave(handling.pieces, transaction, event, result)
    stored.store(handling.pieces, transaction, attempt)


def _note_kept(handling: Handling, event: Event) -> None:
    """Inside the handler's transaction: whose alone it is what it returned or said, by all that it read and wrote.

    What is computed from something narrow is narrow itself, so that what was read directly says it. What was read of
    another space is the sender's, unless everybody may read that one: who may read this one may not read that.
    """
    # fault+ receipts.answer_for_everybody: return
    core, here = handling.pieces.core, event.home.space.replica
    run = core.current.run
    assert run is not None
    tracker = cast(Handled, run.tracker)
    kept = receipts.narrowest(document.key.scope for document in (*tracker._read, *tracker.wrote))
    others = {each.home: each for each in tracker._read if each.home is not here and core.name_of(each.home)}
    event.is_of_elsewhere = kept != "user" and not all(map(handling.pieces.following.is_for_all, others.values()))
    event.kept = ("user" if event.user else "session") if event.is_of_elsewhere else kept
