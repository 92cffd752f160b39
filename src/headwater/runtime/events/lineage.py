"""Lineage: the events and pieces that an attempt launched share the fate of the attempt's commit (I10).

An `Origin` is one attempt, with the events it posted and the pieces it started. While its commit has no verdict, a
follow-up in the same space is dispatched at once, under the condition that the commit of the origin is accepted; a
follow-up in another space enters its lane when the origin is confirmed. If the attempt fails, its queued events are
removed and its pieces are stopped; a parent that is retried posts new events, under new ids. This module never calls a
handler.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from headwater.protocol.commit import OriginCommitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.replica.transaction import Transaction
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.pieces.instance import PieceInstance

__all__ = ["Lineage", "Origin", "Status"]


class Status(Enum):
    """What became of an attempt."""

    OPEN = "open"  # its handler is being called, or was and nothing was committed yet
    PENDING = "pending"  # committed here, without a verdict
    CONFIRMED = "confirmed"
    FAILED = "failed"


class Origin:
    """One attempt to handle an event, and what it launched."""

    __slots__ = ("event", "launched", "local_seq", "minted", "posted", "session", "space", "status", "user")

    def __init__(self, event: str, space: str, user: str, session: str) -> None:
        self.event = event  # the id of what was handled
        self.space = space
        self.user = user
        self.session = session
        self.status = Status.OPEN
        self.local_seq = 0  # of its commit, once that is made
        self.minted = 0  # events that were made in it, those included that it does not send
        self.posted: list[EventDelivery] = []
        self.launched: list[tuple[PieceInstance, bool]] = []  # and whether that waits until the commit is durable

    def condition(self, space: str) -> OriginCommitted | None:
        """What the commit of a follow-up depends on. A commit that has its verdict needs no condition any more."""
        # fault lineage.no_condition: if False:
        # fault lineage.ignored: if False:
        if self.status is Status.PENDING and self.space == space and self.local_seq:
            return OriginCommitted(self.local_seq)
        return None


class Lineage:
    """Starts and stops what attempts launched."""

    __slots__ = ("_drop", "_keep", "_start", "_stop")

    def __init__(
        self,
        *,
        start: Callable[[EventDelivery], object],
        drop: Callable[[EventDelivery], object],
        keep: Callable[[Origin, PieceInstance], object],
        stop: Callable[[PieceInstance], object],
    ) -> None:
        self._start = start  # have an event handled
        self._drop = drop  # it is not to be handled
        self._keep = keep  # run a piece here
        self._stop = stop  # run it no more, unless somebody else has it by now

    def made(self, origin: Origin, transaction: Transaction) -> None:
        """Its commit is shown here."""
        if origin.status is not Status.OPEN:
            return  # It was settled in the same moment: no verdict will come.
        origin.status = Status.PENDING
        origin.local_seq = transaction.local_seq
        for home, after_commit in origin.launched:
            if not after_commit:
                self._keep(origin, home)
        for event in origin.posted:
            # fault lineage.origin_not_awaited: if True:
            if event.instance.space.name == origin.space:
                self._start(event)

    def confirmed(self, origin: Origin) -> None:
        """Its commit is durable. Whatever it launched stands on its own."""
        was, origin.status = origin.status, Status.CONFIRMED
        for home, _ in origin.launched:
            home.is_launched = False  # It stands on its own from now on.
            self._keep(origin, home)
        for event in origin.posted:
            # I10: what is sent to another space is dispatched once this is certain, and not before.
            # fault lineage.origin_not_awaited: if False:
            if was is Status.OPEN or event.instance.space.name != origin.space:
                self._start(event)
        origin.launched, origin.posted = [], []

    def failed(self, origin: Origin) -> None:
        """It will not land, or was never committed. I10: nothing of what it launched survives it."""
        # fault lineage.nothing_cancelled: if True:
        # fault lineage.ignored: if True:
        if origin.status in (Status.CONFIRMED, Status.FAILED):
            return
        origin.status = Status.FAILED
        posted, origin.posted = origin.posted, []
        launched, origin.launched = origin.launched, []
        for event in posted:
            self._drop(event)  # I10: whoever is not dispatched yet never is; whoever is cannot land.
        for home, _ in launched:
            self._stop(home)
