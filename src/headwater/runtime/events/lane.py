"""The queue of events of one space.

Events of a space are handled in send order. Lanes are independent, with one exception: the event in front waits for an
earlier event of another lane if it had read that event's rejected commit (`delivery.EventDelivery.has_turn`).

An event gets its position when it is sent, whatever it waits for, and the event in front has the turn. It leaves the
lane when its commit is made, without waiting for the verdict, and returns to the same position if the commit is
rejected, so that several events rejected together are handled again in send order. A lane limits the number of queued
events per handler. It never calls a handler.

`UndecidedCommits` keeps a later event from landing before an earlier one that may be handled again: its commit names
the commits of earlier events that read or wrote a place which it writes, and is rejected with them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.data.address import Depth, DocKey
from headwater.data.path import Path, starts_with
from headwater.errors import BacklogFullError
from headwater.replica.pending import Layer, outside_arrays
from headwater.replica.transaction import Transaction
from headwater.runtime.core.tracker import RECORDS, may_fall

if TYPE_CHECKING:
    from headwater.runtime.events.delivery import EventDelivery


def _stamp(event: EventDelivery) -> int:
    return event.stamp


class _Places:
    """The places of one document that a commit touched."""

    __slots__ = ("layer", "read", "written")

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.written: dict[Path, None] = {}  # also where its commit left an equal value out
        self.read: dict[tuple[Path, Depth], None] = {}

    def meets(self, place: Path) -> bool:
        """True if a write at a place, made before the commit instead of after it, could make a difference to it."""
        return any(starts_with(each, place) or starts_with(place, each) for each in self.written) or any(
            starts_with(each, place)
            or (starts_with(place, each) and (depth is Depth.DEEP or len(place) == len(each) + 1))
            for each, depth in self.read
        )


class UndecidedCommits:
    """The commits of events that have no verdict and may be rejected, by the documents that they read or wrote."""

    __slots__ = ("_docs", "_places")

    def __init__(self) -> None:
        self._places: dict[DocKey, dict[int, _Places]] = {}  # by document and number of the commit
        self._docs: dict[int, tuple[DocKey, ...]] = {}  # the documents of each commit

    def add(self, layer: Layer, transaction: Transaction) -> None:
        """Note the places that a commit touched. An intent without reads cannot be rejected, and is left out."""
        if not may_fall(layer):
            return
        found: dict[DocKey, _Places] = {}
        for doc, path in transaction.attempted:
            found.setdefault(doc, _Places(layer)).written[outside_arrays(path)] = None
        # fault handlers.earlier_reads_overtaken: for doc, path, depth in ():
        for doc, path, depth in transaction.read_set():
            if not doc.id.endswith(RECORDS):  # Every event reads that its piece is there: that orders none of them.
                found.setdefault(doc, _Places(layer)).read[outside_arrays(path), depth] = None
        for doc, places in found.items():
            self._places.setdefault(doc, {})[layer.local_seq] = places
        self._docs[layer.local_seq] = tuple(found)

    def remove(self, layer: Layer) -> None:
        """Forget a commit that has its verdict."""
        for doc in self._docs.pop(layer.local_seq, ()):
            commits = self._places[doc]
            del commits[layer.local_seq]
            if not commits:
                del self._places[doc]

    def touching(self, doc: DocKey, place: Path) -> list[Layer]:
        """Return the commits that read or wrote a place of a document, in send order."""
        places = self._places.get(doc)
        return [] if places is None else [each.layer for each in places.values() if each.meets(place)]


class Lane:
    """The events of one space that have no outcome."""

    __slots__ = ("_on_front", "_queued", "_streams", "_waiting", "front", "made", "space", "undecided", "unended")

    def __init__(self, space: str, on_front: Callable[[], object]) -> None:
        self.space = space
        self._on_front = on_front  # called when another event may be in front: requests a tick
        self._waiting: list[EventDelivery] = []  # by stamp: events whose commit is still, or again, to be made
        self._queued: set[EventDelivery] = set()  # the same events
        self.front: EventDelivery | None = None  # the first of these, which has the turn
        self._streams: dict[str, int] = {}  # number of queued events of each handler
        self.undecided = UndecidedCommits()
        # Events whose commit is made and has no verdict, by the number of the commit.
        self.made: dict[int, EventDelivery] = {}
        # All of them in send order, including those whose commits are sent.
        self.unended: dict[EventDelivery, None] = {}

    def __bool__(self) -> bool:
        return bool(self.unended)

    def backlog(self, stream: str) -> int:
        """Return the number of queued events of a handler."""
        return self._streams.get(stream, 0)

    def check_room(self, stream: str, limit: int, posted: int = 0) -> None:
        """Raise BacklogFullError if `limit` events of a handler are queued, counting `posted` of the open attempt."""
        waiting = self._streams.get(stream, 0) + posted
        # fault lane.no_limit: if False:
        if waiting >= limit:
            with_posted = f" with {posted} that this handler posted" if posted else ""
            raise BacklogFullError(
                f"{waiting} events wait for {stream}{with_posted}, which is the limit: await some of "
                'them first, raise Policy(backlog=...), or declare coalesce="last" where only the last one counts'
            )

    def enter(self, event: EventDelivery) -> None:
        """Add a sent event at the position of its stamp."""
        self.unended[event] = None
        self._add(event)

    def _add(self, event: EventDelivery) -> None:
        insort(self._waiting, event, key=_stamp)
        self._queued.add(event)
        self.front = self._waiting[0]
        self._streams[event.stream] = self._streams.get(event.stream, 0) + 1
        self._on_front()

    def leave(self, event: EventDelivery) -> None:
        """Remove an event from the queue: its commit is made, or it has an outcome. The next event has the turn."""
        at = self._place(event) if event in self._queued else None
        if at is not None:
            self._queued.remove(event)
            del self._waiting[at]
            self.front = self._waiting[0] if self._waiting else None
            self._streams[event.stream] -= 1
            if not self._streams[event.stream]:
                del self._streams[event.stream]
            if self._waiting:
                self._on_front()

    def requeue(self, event: EventDelivery) -> None:
        """Put an event back at its original position after its commit was rejected."""
        if event in self.unended and event not in self._queued:
            # fault+ lane.rejected_first: event.stamp = min([each.stamp for each in self.unended]) - 1
            # fault+ lane.rejected_last: event.stamp = max([each.stamp for each in self.unended]) + 1_000_000
            self._add(event)

    def end(self, event: EventDelivery) -> None:
        """Remove an event that has an outcome."""
        if event in self._queued:
            self.leave(event)
        self.unended.pop(event, None)

    def is_waiting(self, event: EventDelivery) -> bool:
        return event in self._queued

    def last(self, of: Callable[[EventDelivery], bool]) -> EventDelivery | None:
        """Return the last queued event for which `of` returns True."""
        return next((event for event in reversed(self._waiting) if of(event)), None)

    def _place(self, event: EventDelivery) -> int | None:
        at = bisect_left(self._waiting, event.stamp, key=_stamp)
        return at if at < len(self._waiting) and self._waiting[at] is event else None

    def is_first(self, event: EventDelivery) -> bool:
        """Return True if every event that was sent before has an outcome."""
        return next(iter(self.unended), None) is event
