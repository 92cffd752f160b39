"""Turns changes of visible state into invalid nodes. Upholds I3 and I5. Spec 001 section 6.1.

The only door into scheduling (P1). Never orders, runs or marks transitively. A node that nobody demands is marked and
left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from headwater.data.address import doc_text
from headwater.data.reader_trie import Spot, TrieNode, match
from headwater.data.trace import Invalidated, Trace
from headwater.data.value import MAX_INT
from headwater.replica.document import Document
from headwater.replica.feed import FROM_OTHERS, Changed, Kind, Notification
from headwater.scheduler.gates import Gates
from headwater.scheduler.node import CLEAN, INVALID, UNKNOWN, Marks, Node, NodeKind, hops_of
from headwater.scheduler.waiting_nodes import WaitingNodes

ANY_TIME: Final = MAX_INT + 1
"""In the place of the seq that a document was last written at: it was here, and is another now."""
_COMMIT: Final = Kind.COMMIT
_EFFECT: Final = NodeKind.EFFECT


class Invalidation:
    """Listens to feeds."""

    __slots__ = ("_enqueue", "_gates", "_hops", "_impulse", "_loads", "_marks", "_written", "on_told", "trace")

    def __init__(self, gates: Gates, loads: WaitingNodes, marks: Marks, enqueue: Callable[[Node], object]) -> None:
        self._gates = gates
        self._loads = loads
        self._marks = marks
        self._impulse = 0  # what came from outside and made the notification that is being told
        self._hops = 0  # how far what is being told came over other sessions; UNKNOWN: nobody knows
        self._written = ANY_TIME  # when what is being told was last written, if nothing was known of it before
        self._enqueue = enqueue  # a live node became invalid
        self.on_told: Callable[[Notification], object] = id  # what nobody here wrote, once its readers are marked
        self.trace: Trace | None = None

    def on_notification(self, notification: Notification) -> None:
        """Mark whoever read something that is shown differently now."""
        # fault+ invalidation.reset_ignored: if notification.kind is Kind.RESET: return
        # fault+ invalidation.others_results_ignored: is_result = notification.document.key.id.startswith("node")
        # fault+ invalidation.others_results_ignored: if is_result and notification.kind is Kind.INTEGRATE: return
        source = notification.source
        running = self._marks.running
        is_told = False  # by the engine, or taken back because of what it said
        if running is not None:
            self._impulse, self._hops = running.impulse, running.last_hops
            if source is not running and not _is_first(notification):
                self._marks.beside += 1
        elif isinstance(source, Node):
            self._impulse, self._hops = source.impulse, source.last_hops  # What it wrote is taken back.
        else:
            is_told = notification.kind is not _COMMIT
            self._impulse, self._hops = self._marks.cause(), hops_of(notification, source) if is_told else 0
        is_heard = notification.kind in FROM_OTHERS
        self._written = _last_written(notification) if is_heard else ANY_TIME
        twig = notification.document.twig
        if twig is not None:
            if not twig.children and twig.shape is None:
                spot = twig.deep  # Everybody reads all of it, and it differs.
                if spot is not None:
                    self._mark(spot, notification)
            else:
                for spot in _spots(twig, notification):
                    self._mark(spot, notification)
        if not notification.known_before:
            self._arrived(notification.document)
        for change in notification.others:
            if not change.known_before:
                self._arrived(change.document)
            if is_told:
                self._hops = hops_of(change, source)
            self._written = _last_written(change) if is_heard else ANY_TIME
            twig = change.document.twig
            if twig is not None:
                for spot in _spots(twig, change):
                    self._mark(spot, notification)
        if notification.kind is not _COMMIT and not isinstance(source, Node):
            self.on_told(notification)

    def returned(self, documents: Iterable[Document]) -> None:
        """Documents that were set aside are here again, whether or not anything about them differs."""
        for document in documents:
            self._arrived(document)

    def _arrived(self, document: Document) -> None:
        """Somebody may have waited for it: to read it, or because it is going to be replaced."""
        for node in self._loads.arrived(document):
            self._enqueue(node)

    def _mark(self, spot: Spot, notification: Notification) -> None:
        source, impulse, hops = notification.source, self._impulse, self._hops
        node: Node
        for node in spot.readers:  # type: ignore[assignment]  # Nobody else subscribes.
            # fault invalidation.own_write_marks: if False:
            if node is source:
                continue  # I5: a run never invalidates itself (P5: identity, not id).
            if node.as_of and self._written <= node.held_until(notification.document.home):
                continue  # I7: it arrived as it was when the node was found to be clean.
            self._marks.count += 1
            if node.due < impulse:
                node.due = impulse
            # I3: a value in its registered read set differs, and nothing else makes it invalid.
            if node.status == CLEAN:
                node.status = INVALID
                node.causes = {spot: notification}
            elif node.causes is None:
                node.causes = {spot: notification}
            else:
                node.causes[spot] = notification
            if hops:
                self._came(node, hops, notification)
            if node.gate is not None:
                self._gates.invalidated(node)
            if node.loading is not None:
                self._loads.changed(node)
            if self.trace is not None:
                self._tell(node, spot, notification)
            if node.live and node.queued < 0:
                self._enqueue(node)

    def _came(self, node: Node, hops: int, notification: Notification) -> None:
        """It remembers the longest way. Where one too long enters this runtime, the cycle is slowed down."""
        if hops == UNKNOWN:
            hops = node.last_hops  # A cycle does not begin anew because a connection was lost on the way.
        if hops > node.hops:
            node.hops = hops
        # I6: only there, since whoever runs for it inside this runtime has waited with it. An effect writes nothing.
        if notification.kind in FROM_OTHERS and self._marks.running is None and node.kind is not _EFFECT:
            self._gates.came(node, hops)

    def _tell(self, node: Node, spot: Spot, notification: Notification) -> None:
        if self.trace is not None:
            writer = getattr(notification.source, "id", "") or notification.kind.value
            self.trace.emit(Invalidated(node.id, address_of(spot), writer))


def _is_first(notification: Notification) -> bool:
    """Whether it only says what is in a document that nobody can have looked at."""
    return not (notification.known_before or notification.others) and notification.document.twig is None


def _last_written(change: Changed) -> int:
    return ANY_TIME if change.known_before else change.document.written


def _spots(twig: TrieNode, change: Changed) -> Iterable[Spot]:
    # fault invalidation.whole_document_marked: if True:
    if not change.known_before:
        return list(twig.spots())  # It was not here: nobody knows what it was, so it counts as changed.
    return match(twig, change.before, change.after, change.touched)


def address_of(spot: Spot) -> str:
    """Where a spot is, for people."""
    key = getattr(spot.document, "key", None)
    return repr(spot.document) if key is None else doc_text(key, spot.path)
