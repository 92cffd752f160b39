"""Invalidation: turns changes of visible state into invalid nodes. Upholds I3 and I5.

The only entrance to scheduling (P1). `Invalidation` never orders nodes, runs them or marks transitively. A node without
demand is marked and not enqueued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, cast

from headwater.data.address import doc_text
from headwater.data.reader_trie import Spot, TrieNode, match
from headwater.data.trace import Invalidated, Trace
from headwater.data.value import ABSENT, MAX_INT
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.feed import FROM_OTHERS, Changed, Kind, Notification, ignore
from headwater.scheduler.gates import Gates
from headwater.scheduler.node import CLEAN, INVALID, UNKNOWN, Marks, Node, NodeKind, hops_of
from headwater.scheduler.waiting_nodes import WaitingNodes

ANY_TIME: Final = MAX_INT + 1
"""Stands for the seq of a document's last write when the document was here before and has changed."""
_COMMIT: Final = Kind.COMMIT
_EFFECT: Final = NodeKind.EFFECT


class Invalidation:
    """Subscriber of the feeds of all replicas: marks the readers of each change."""

    __slots__ = ("_enqueue", "_gates", "_hops", "_impulse", "_loads", "_marks", "_written", "on_told", "trace")

    def __init__(self, gates: Gates, loads: WaitingNodes, marks: Marks, enqueue: Callable[[Node], object]) -> None:
        self._gates = gates
        self._loads = loads
        self._marks = marks
        self._impulse = 0  # the external impulse behind the notification in progress
        self._hops = 0  # hops of the change in progress over other sessions; or UNKNOWN
        self._written = ANY_TIME  # seq of the last write of the changed document, if the document was not here before
        self._enqueue = enqueue  # called with a live node that became invalid
        # called for changes without a local writer, after marking
        self.on_told: Callable[[Notification], object] = ignore
        self.trace: Trace | None = None

    def on_notification(self, notification: Notification) -> None:
        """Mark every node that read a value which is shown differently now."""
        # fault+ invalidation.reset_ignored: if notification.kind is Kind.RESET: return
        # fault+ invalidation.others_results_ignored: is_result = notification.document.key.id.startswith("node")
        # fault+ invalidation.others_results_ignored: if is_result and notification.kind is Kind.INTEGRATE: return
        source = notification.source
        running = self._marks.running
        is_told = False  # the engine caused the change, by a message or by a verdict that reverts a commit
        if running is not None:
            self._impulse, self._hops = running.impulse, running.last_hops
            if source is not running and not _is_first(notification):
                self._marks.beside += 1
        elif isinstance(source, Node):
            self._impulse, self._hops = source.impulse, source.last_hops  # A write of the source node is reverted.
        else:
            is_told = notification.kind is not _COMMIT
            self._impulse, self._hops = self._marks.cause(), hops_of(notification, source) if is_told else 0
        is_heard = notification.kind in FROM_OTHERS
        self._written = _last_written(notification) if is_heard else ANY_TIME
        twig = notification.document.twig
        if twig is not None:
            is_whole = not twig.children and twig.shape is None
            if is_whole and notification.before is not ABSENT and notification.after is not ABSENT:
                spot = twig.deep  # All readers read the whole document, and the document differs.
                if spot is not None:
                    self._mark(spot, notification)
            else:
                self._mark_readers(twig, notification, notification)
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
                self._mark_readers(twig, change, notification)
        # A transaction that deletes a piece removes the results of its nodes.
        # fault invalidation.own_deletion_not_told: is_deletion = False
        is_deletion = notification.kind is _COMMIT and notification.after is ABSENT
        if (notification.kind is not _COMMIT or is_deletion) and not isinstance(source, Node):
            self.on_told(notification)

    def returned(self, documents: Iterable[Document]) -> None:
        """Enqueue the nodes that wait for documents which were set aside and are here again, changed or not."""
        for document in documents:
            self._arrived(document)

    def _arrived(self, document: Document) -> None:
        """Enqueue the nodes that waited for a document: to read the document, or to replace its value."""
        for node in self._loads.arrived(document):
            self._enqueue(node)

    def _mark_readers(self, twig: TrieNode, change: Changed, notification: Notification) -> None:
        """Mark the readers of the spots that differ. Readers of the other spots below the write are reported again."""
        found = dict.fromkeys(_changed_spots(twig, change))
        for spot in found:
            self._mark(spot, notification)
        if change.known_before:
            for path in ((),) if change.touched is None else change.touched:
                for spot in twig.spots_below(path):
                    if spot not in found:
                        _report_as_standing(spot)

    def _mark(self, spot: Spot, notification: Notification) -> None:
        source, impulse, hops = notification.source, self._impulse, self._hops
        node: Node
        for node in spot.readers:  # type: ignore[assignment]  # Nobody else subscribes.
            # fault invalidation.own_write_marks: if False:
            if node is source:
                continue  # I5: a run never invalidates itself (P5: identity, not id).
            if node.as_of and self._written <= node.held_until(notification.document.home):
                continue  # I7: the arrived value is the value for which the resumed node was found clean.
            self._marks.count += 1
            if node.due < impulse:
                node.due = impulse
            # I3: a value in the node's registered read set differs; nothing else makes a node invalid.
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
                self._loads.changed(node, cast(Document, spot.document))
            if self.trace is not None:
                self._tell(node, spot, notification)
            if node.live and node.queued < 0:
                self._enqueue(node)

    def _came(self, node: Node, hops: int, notification: Notification) -> None:
        """Record the longest way (hops) of a node's causes, and slow down a cycle where it enters this runtime."""
        if hops == UNKNOWN:
            hops = node.last_hops  # A lost connection on the way must not reset the count of a cycle.
        if hops > node.hops:
            node.hops = hops
        # I6: only at the entrance, since nodes that run for this change inside this runtime have waited with its first
        # reader. Effects are left out: they write nothing.
        if notification.kind in FROM_OTHERS and self._marks.running is None and node.kind is not _EFFECT:
            self._gates.came(node, hops)

    def _tell(self, node: Node, spot: Spot, notification: Notification) -> None:
        if self.trace is not None:
            writer = getattr(notification.source, "id", "") or notification.kind.value
            self.trace.emit(Invalidated(node.id, address_of(spot), writer))


def _is_first(notification: Notification) -> bool:
    """True if a notification only shows the first value of a document without readers."""
    return not (notification.known_before or notification.others) and notification.document.twig is None


def _last_written(change: Changed) -> int:
    return ANY_TIME if change.known_before else change.document.written


def _changed_spots(twig: TrieNode, change: Changed) -> Iterable[Spot]:
    """Return the spots of a document that show a different value after a change."""
    # fault invalidation.whole_document_marked: if True:
    if not change.known_before:
        # The document was not here, so that its earlier value is unknown: it counts as changed.
        return list(twig.spots())
    # I3: readers of a cell that is not written see its default.
    # fault invalidation.default_written_marks: implied = NOT_HERE
    implied = change.document.implied
    if implied is NOT_HERE:
        implied = ABSENT
    before = implied if change.before is ABSENT else change.before
    after = implied if change.after is ABSENT else change.after
    return match(twig, before, after, change.touched)


def _report_as_standing(spot: Spot) -> None:
    """Report the clean readers of a spot again: a commit wrote the spot, and its value is the same as before."""
    node: Node
    for node in spot.readers:  # type: ignore[assignment]  # Nobody else subscribes.
        if node.status == CLEAN and node.reporter is not None:
            node.reporter.report_as_standing(node)


def address_of(spot: Spot) -> str:
    """Return the address of a spot, for people."""
    key = getattr(spot.document, "key", None)
    return repr(spot.document) if key is None else doc_text(key, spot.path)
