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
    """The state of an attempt and its commit."""

    OPEN = "open"  # its handler is being called, or was and nothing was committed yet
    PENDING = "pending"  # committed here, without a verdict
    CONFIRMED = "confirmed"
    FAILED = "failed"


class Origin:
    """One attempt to handle an event, with the events and pieces that it launched."""

    __slots__ = ("event", "launched", "local_seq", "minted", "posted", "session", "space", "status", "user")

    def __init__(self, event: str, space: str, user: str, session: str) -> None:
        self.event = event  # the id of the handled event
        self.space = space
        self.user = user
        self.session = session
        self.status = Status.OPEN
        self.local_seq = 0  # of its commit, once that is made
        self.minted = 0  # events that were made in it, those included that it does not send
        self.posted: list[EventDelivery] = []
        self.launched: list[
            tuple[PieceInstance, bool]
        ] = []  # each with True if it starts only when the commit is durable

    def condition(self, space: str) -> OriginCommitted | None:
        """Return the condition of a follow-up's commit. None: the commit of this attempt has its verdict."""
        # fault lineage.no_condition: if False:
        # fault lineage.ignored: if False:
        if self.status is Status.PENDING and self.space == space and self.local_seq:
            return OriginCommitted(self.local_seq)
        return None


class Lineage:
    """Starts and stops the events and pieces that attempts launched."""

    __slots__ = ("_drop", "_keep", "_start", "_stop")

    def __init__(
        self,
        *,
        start: Callable[[EventDelivery], object],
        drop: Callable[[EventDelivery], object],
        keep: Callable[[Origin, PieceInstance], object],
        stop: Callable[[PieceInstance], object],
    ) -> None:
        self._start = start  # starts an event
        self._drop = drop  # ends an event that is not handled
        self._keep = keep  # runs a piece here
        self._stop = stop  # stops a piece, unless another caller has opened it meanwhile

    def made(self, origin: Origin, transaction: Transaction) -> None:
        """Record that the commit of an attempt is shown here, and start its follow-ups of the same space."""
        if origin.status is not Status.OPEN:
            return  # A space without an engine has settled it already: no verdict will come.
        origin.status = Status.PENDING
        origin.local_seq = transaction.local_seq
        for instance, after_commit in origin.launched:
            if not after_commit:
                self._keep(origin, instance)
        for event in origin.posted:
            # fault lineage.origin_not_awaited: if True:
            if event.instance.space.name == origin.space:
                self._start(event)

    def confirmed(self, origin: Origin) -> None:
        """Record that the commit of an attempt is durable: everything that it launched is independent of it now."""
        was, origin.status = origin.status, Status.CONFIRMED
        for instance, _ in origin.launched:
            instance.is_launched = False
            self._keep(origin, instance)
        for event in origin.posted:
            # I10: an event for another space starts only when the commit of its origin is certain.
            # fault lineage.origin_not_awaited: if False:
            if was is Status.OPEN or event.instance.space.name != origin.space:
                self._start(event)
        origin.launched, origin.posted = [], []

    def failed(self, origin: Origin) -> None:
        """End everything that an attempt launched, because it was rejected or never committed (I10)."""
        # fault lineage.nothing_cancelled: if True:
        # fault lineage.ignored: if True:
        if origin.status in (Status.CONFIRMED, Status.FAILED):
            return
        origin.status = Status.FAILED
        posted, origin.posted = origin.posted, []
        launched, origin.launched = origin.launched, []
        for event in posted:
            self._drop(event)  # I10: an event that was not started never is; the commit of a started one is rejected.
        for instance, _ in launched:
            self._stop(instance)
