"""Periodic handlers, `@handler(every_ms=...)`: one event per period over all runtimes.

Every runtime with the piece open sends the event of each period when it begins. The last handled period is a document
of the piece, written in the transaction of the handler, so that one of several runtimes handles the period, and a
restart continues from it. Missed periods are merged: only the current period is due. A handler has at most one
unfinished periodic event, however long it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.data.ids import event_id
from headwater.data.value import freeze
from headwater.errors import AuthoringError, BacklogFullError
from headwater.pieces.declarations import HandlerMember
from headwater.pieces.names import document_id
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.events.event import Event

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.instance import PieceInstance


def begin(
    core: Core, tasks: Tasks, send: Callable[[Event], Callable[[], bool]], instance: PieceInstance
) -> list[asyncio.Task[None]]:
    """Send the events of the periodic handlers of a piece as long as the piece is open here.

    `send` sends an event, and returns a check whether it has an outcome.
    """
    due = [each for each in instance.schema.of(HandlerMember) if each.every_ms is not None]
    return [
        tasks.keep(_send_periods(core, tasks, send, instance, each), f"periods of {instance.place(each)}")
        for each in due
    ]


async def _send_periods(
    core: Core,
    tasks: Tasks,
    send: Callable[[Event], Callable[[], bool]],
    instance: PieceInstance,
    member: HandlerMember,
) -> None:
    """Send one event per period. A failed event is reported to the error channel and does not end the sending."""
    assert member.every_ms is not None
    clock, every_us = core.clock, member.every_ms * 1_000
    sent = clock.now_us() // every_us if not member.catch_up else -1
    is_over: Callable[[], bool] | None = None  # of the last one
    while True:
        now_us = clock.now_us()
        period = now_us // every_us
        # While one has no outcome, perhaps without a connection, no further one is sent: missed periods are merged.
        if period != sent and (is_over is None or is_over()):
            sent = period
            try:
                is_over = send(_make_periodic(instance, member, period, clock.now_us()))
            except BacklogFullError as error:  # The next period comes in any case.
                core.report(instance.place(member), error)
        await tasks.elapsed((period + 1) * every_us - now_us)


def _is_ahead(core: Core, event: Event, period: int) -> bool:
    """Return True, and report it, if a period was handled long before its time: the clock of a machine was wrong."""
    assert event.member.every_ms is not None
    ahead_us = period * event.member.every_ms * 1_000 - core.clock.now_us()
    if ahead_us <= RUNTIME_LIMITS.clock_skew_us:
        return False
    error = AuthoringError(
        f"{event.stream} was handled for a period that begins in {ahead_us / 1e6:.0f} s: set the clocks of all machines"
    )
    core.report(event.stream, error)
    return True


def is_handled(core: Core, event: Event) -> bool:
    """Return True if the period was handled before, and record it as handled, in the handler's transaction."""
    assert event.period is not None
    document = event.instance.space.document(document_id(event.instance.id, f"{event.member.stored}/period"))
    last: Cell[int] = Cell(core, document, codec_for(int))
    found = last.get(-1)
    if found >= event.period and not _is_ahead(core, event, found):
        return True
    last.set(event.period)
    return False


def _make_periodic(instance: PieceInstance, member: HandlerMember, period: int, minted_us: int) -> Event:
    """Return the event of one period of a periodic handler. It has no sender."""
    assert member.every_ms is not None
    stream = instance.place(member)
    began_us = period * member.every_ms * 1_000
    return Event(
        id=event_id("period", stream, period, began_us),
        instance=instance,
        member=member,
        stream=stream,
        payload=freeze({}),
        user="",
        session="",
        minted_us=minted_us,
        retries=member.retries,
        period=period,
    )
