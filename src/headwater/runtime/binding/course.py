"""The course of one event through the writer: its turns, and what follows the moment a verdict is heard.

A rejected event goes back to its place in the lane before anything else is dispatched. What an attempt launched is
started when its commit is made and stopped when that falls. That it was handled before is no failure: whoever sent it
gets what came of the first handling. It decides no delay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.handle import Input
from headwater.data.trace import EventAttempted, EventRejected
from headwater.errors import PreconditionFailedError
from headwater.protocol.verdict import PreconditionFailed, Rejection, RuleRefused
from headwater.replica.document import NOT_HERE
from headwater.runtime.authored import Missing
from headwater.runtime.binding import receipts
from headwater.runtime.binding.fresh import freshen, is_fresh
from headwater.runtime.binding.receipts import HandledBefore
from headwater.runtime.effort import Outcome, Stage, classify
from headwater.scheduler.node import CLEAN, Node

if TYPE_CHECKING:
    from headwater.data.value import Value
    from headwater.replica.document import Document
    from headwater.replica.pending import Layer
    from headwater.replica.transaction import Transaction
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.facet import Facet
    from headwater.runtime.binding.handling import Handling
    from headwater.runtime.binding.lanes import Lane
    from headwater.runtime.binding.pieces import Pieces

__all__ = ["Course", "HandledBefore", "land", "parked", "prefetch"]

ORIGIN_COMMITTED: Final = "origin_committed"
ENTITY_ABSENT: Final = "entity_absent"
ACCESS_RULE: Final = "access"
SHOWN: Final = 3
"""Nodes that are named of those that an event waits for."""


class Course:
    """One event on its way."""

    __slots__ = ("_event", "_handling", "_lane", "_precondition")

    def __init__(self, handling: Handling, lane: Lane, event: Event) -> None:
        self._handling = handling
        self._lane = lane
        self._event = event
        self._precondition = ""  # of the last attempt, which is false for good

    async def turn(self) -> None:
        event, keeping = self._event, self._event.keeping
        await self._lane.turn(event)
        while True:
            if keeping is not None and not keeping.is_made:
                await self._handling.storing.made(event)
            elif self._is_behind():
                await self._handling.until_made(lambda: not self._is_behind())
            elif self._follows_writes():
                await self._handling.pieces.core.observing.until(lambda: not self._follows_writes())
            else:
                return
            await self._lane.turn(event)

    def _is_behind(self) -> bool:
        """Whether an earlier event of another space, on which its last attempt stood, is to be made again before it.

        Of two events that are rejected together the one that was sent first has its turn first, across spaces, too. An
        event waits only for earlier ones, so that no two wait for each other.
        """
        # fault across.made_again_too_early: return False
        event = self._event
        if not event.follows or event.home.space.ended is not None:
            return False
        return any(each.stamp < event.stamp and self._handling.is_waiting(each) for each in event.follows)

    def _follows_writes(self) -> bool:
        """Whether a rejected event wrote a document that this runtime had written before, and is to write again."""
        # fault writing.overtaken_by_events: return False
        event = self._event
        if event.seen is None or event.effort.last is None or event.home.space.ended is not None:
            return False
        writing = self._handling.pieces.core.writing
        writing.catch_up()
        return writing.is_held(event.home.space.replica, event.seen.written)

    def made(self, transaction: Transaction) -> None:
        event, handling = self._event, self._handling
        trace = handling.trace
        if trace is not None:
            trace.emit(EventAttempted(event.stream, event.id, event.attempts, event.effort.backoff_us / 1_000))
        assert event.attempt is not None
        if event.effort.stage is Stage.SENT and event.seen is not None:
            self._lane.written[transaction.local_seq] = event.seen.written
            self._lane.made[transaction.local_seq] = event
        handling.lineage.made(event.attempt, transaction)
        if handling.behind:
            handling.pieces.core.request_tick()  # An event of another space may wait for this one.

    def settled(self, layer: Layer, rejection: Rejection | None) -> None:
        event, lineage, attempt = self._event, self._handling.lineage, self._event.attempt
        assert attempt is not None
        self._lane.written.pop(layer.local_seq, None)
        self._lane.made.pop(layer.local_seq, None)
        if rejection is None:
            # fault+ receipts.written_after_verdict: space = self._handling.pieces.runtime.space("s")
            # fault+ receipts.written_after_verdict: note = space.cell("receipt", str)
            # fault+ receipts.written_after_verdict: self._handling.pieces.core.afterwards(lambda: note.set(event.id))
            lineage.confirmed(attempt)
            if layer.commit.declared:
                self._handling.pieces.reacting.declared(event.home, layer.commit)
            return
        lineage.failed(attempt)
        outcome = classify(rejection, layer.local_seq)
        if isinstance(rejection, PreconditionFailed):
            self._precondition = rejection.precondition
        event.is_barred = isinstance(rejection, RuleRefused) and rejection.rule == ACCESS_RULE
        trace = self._handling.trace
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
            if self._precondition == ORIGIN_COMMITTED:
                await self._handling.storing.accepted(self._event)  # Raises why it could not be stored, if it was that.
                self._event.is_dropped = True
            elif self._precondition == ENTITY_ABSENT:
                await receipts.answered(self._handling.pieces, self._event)


async def land(pieces: Pieces, event: Event, attempt: Callable[[Transaction], Value]) -> Value:
    """Have an attempt made until it is durable, wherever its space is kept."""
    channel = pieces.runtime.channel(event.home.space.name)
    if channel is not None:
        made = await channel.land(attempt, node=event.stream, effort=event.effort)
    else:
        made = await _land_here(pieces, event, attempt)
    pieces.core.request_tick()
    return made


async def _land_here(pieces: Pieces, event: Event, attempt: Callable[[Transaction], Value]) -> Value:
    """In a space that is nowhere but here nobody is faster, and what is committed stays."""
    core, effort, replica = pieces.core, event.effort, event.home.space.replica
    while True:
        await effort.turn()
        effort.stage = Stage.RUNNING
        transaction = replica.begin(node=event.stream)
        try:
            made = attempt(transaction)
        except Missing as missing:
            replica.drop(transaction)
            await core.loaded(missing.document)
            continue
        except BaseException:
            replica.drop(transaction)
            raise
        effort.attempts += 1
        core.writing.commit(replica, transaction, effort.settled)
        effort.made(transaction)
        core.request_tick()
        await pieces.runtime.written()
        return made


async def prefetch(pieces: Pieces, event: Event, facet: Facet, held: list[Node]) -> None:
    """Have what a handler says it reads arrive and run together, before it is called for the first time."""
    reads: list[Any] = [facet.handle(each) for each in event.member.reads]
    documents = [each.document for each in reads if isinstance(each, Input)]
    core = pieces.core
    for document in documents:
        if document.value is NOT_HERE and not document.writers:
            core.load(document)
    for document in documents:
        if document.value is NOT_HERE and not document.writers:
            await core.loaded(document)
    stale = [each for each in documents if each.writers and not is_fresh(each, core)]
    if stale:
        await parked(pieces, event, stale, held)


async def parked(pieces: Pieces, event: Event, stale: Sequence[Document], held: list[Node]) -> None:
    """Hold the event until what it reads is fresh. The table says what has to run before, and when that may."""
    core, effort = pieces.core, event.effort
    gates, graph = core.scheduler.gates, core.scheduler.graph
    writers = {each: None for document in stale for each in document.writers if isinstance(each, Node)}
    behind = {each: None for writer in writers for each in (writer, *graph.above(writer)) if each.status != CLEAN}
    times = {node: gates.eligible_at(node) for node in behind}
    now_us = core.clock.monotonic_us()
    gated = [node for node in behind if times[node] > now_us]
    effort.stage = Stage.PARKED
    effort.next_us = min((times[node] for node in gated), default=0)
    event.waits = ", ".join(node.id for node in (gated or list(behind))[:SHOWN])
    try:
        await freshen(pieces, event.stream, stale, held, pieces.handling.window_us)
    finally:
        effort.next_us, event.waits = 0, ""
