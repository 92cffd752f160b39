"""The tracker of a handler's attempt: a transaction that also knows its event.

It prefetches documents for the event, has the handler land after earlier events that touched the places it writes, and
lists the undecided commits that a refusal was based on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

from headwater.cells.open_run import Run
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import outside_arrays
from headwater.runtime.core.tracker import UNDECIDED, Missing, Stale, TransactionTracker, may_fall
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.replica.pending import Layer
    from headwater.replica.replica import Replica
    from headwater.replica.transaction import Transaction
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events
    from headwater.runtime.events.lane import Lane


class HandlerTracker(TransactionTracker):
    """The tracker of one attempt of a handler."""

    __slots__ = ("_event", "_events", "_lane", "documents_read")

    def __init__(
        self,
        events: Events,
        event: Event,
        home: Replica,
        transaction: Transaction,
        lane: Lane,
    ) -> None:
        core = events.pieces.core
        super().__init__(core.scheduler, home, transaction, core.visible)
        self._events = events
        self._event = event
        self._lane = lane
        self.documents_read: dict[Document, None] = {}

    def check(self) -> None:
        if self._why is None:
            for document in self.postponed:
                self._events.pieces.prefetch.missed_by_author(document, self._event.brought)
        super().check()

    def missed(self, run: Run, spot: Spot) -> Spot:
        self.documents_read[cast(Document, spot.document)] = None
        return super().missed(run, spot)

    def _run_nested(self, run: Run, target: Node) -> bool:
        events = self._events
        current, events.current = events.current, None  # The nested run is not part of the handler.
        try:
            return self._scheduler.pass_.run_nested(run, target)
        finally:
            events.current = current

    def undecided(self) -> list[Layer]:
        """Return the commits without a verdict that the attempt has read, directly or through nodes."""
        found: dict[Layer, None] = {}
        seen, waiting = dict(self.documents_read), list(self.documents_read)
        while waiting:
            document = waiting.pop()
            writers = [each for each in document.writers if isinstance(each, Node)]
            if not writers:
                found.update(dict.fromkeys(layer for layer in document.layers if layer.fate in UNDECIDED))
            for spot in (spot for each in writers for spot in each.reads if spot is not None):
                source = cast(Document, spot.document)
                if source not in seen:
                    seen[source] = None
                    waiting.append(source)
        return list(found)

    def _stand_behind(self, document: Document, path: Path) -> None:
        """Have this commit land after earlier ones of this runtime that touched the same place and may be made again.

        Of events those count that read the place or wrote to it; every earlier write to the document that was made
        outside of events counts.
        """
        # fault handlers.earlier_handlers_overtaken: behind = []
        behind = self._lane.undecided.touching(document.key, outside_arrays(path))
        for layer in document.layers:
            is_plain = layer.source is None and layer.local_seq not in self._lane.made
            if is_plain and layer.fate in UNDECIDED and may_fall(layer):
                behind.append(layer)
        if behind:
            self._transaction.stand_behind(document.key, behind)

    def _stop(self, why: BaseException) -> NoReturn:
        for document in _not_here(why):
            self._events.pieces.prefetch.missed_by_author(document, self._event.brought)
        super()._stop(why)


def _not_here(why: BaseException) -> list[Document]:
    """Return the documents that an attempt stopped for: those that it reads, and those that stale nodes wait for."""
    if isinstance(why, Missing):
        return [*why.documents]
    documents = why.documents if isinstance(why, Stale) else ()
    awaited = [each.loading for document in documents for each in document.writers if isinstance(each, Node)]
    return [each for each in (*documents, *awaited) if each is not None and each.value is NOT_HERE]
