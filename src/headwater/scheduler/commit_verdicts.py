"""Verdicts about the commits of nodes, and changes of nodes' results by other writers. Part of the runner component.

A conflict makes the node invalid again, with its causes, and the node runs as soon as the winning commit is here; that
costs none of its run budget. A rejection other than a conflict is the node's failure: it is reported once, the node's
readers see it, and the run is not repeated. An accepted commit stays the node's result until another writer changes it,
which makes the node invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from headwater.data.address import Depth
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.trace import RunRejected, Trace
from headwater.data.value import ABSENT, equal, lookup
from headwater.errors import CommitRejected
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error
from headwater.replica.document import NOT_HERE, Document, TierEntry
from headwater.replica.feed import FROM_OTHERS, Changed, Kind, Notification
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.node import CLEAN, INVALID, NEVER_RAN, UNKNOWN, Marks, Node, hops_of
from headwater.scheduler.waiting_nodes import WaitingNodes


class CommitVerdicts:
    """Receiver of the verdicts about nodes' commits."""

    __slots__ = (
        "_answered_hops",
        "_enqueue",
        "_gates",
        "_graph",
        "_loads",
        "_marks",
        "_on_refused",
        "_ready",
        "_waiting",
        "own",
        "trace",
    )

    def __init__(
        self,
        marks: Marks,
        loads: WaitingNodes,
        graph: Graph,
        *,
        enqueue: Callable[[Node], object],
        gates: Gates,
        ready: Callable[[Replica, Conflict], bool],
        on_refused: Callable[[Node, Exception, bool], object],
        answered_hops: int,
    ) -> None:
        self._marks = marks
        self._loads = loads
        self._graph = graph
        self._enqueue = enqueue
        self._gates = gates
        self._ready = ready  # True if the commits that won a conflict are here
        self._answered_hops = answered_hops
        self._on_refused = on_refused  # the flag: the node has written nothing since
        self._waiting: list[tuple[Node, Conflict]] = []
        self.own: set[Replica] = set()  # replicas that only this runtime shows: its clock
        self.trace: Trace | None = None

    def on_settled(self, layer: Layer, rejection: Rejection | None) -> None:
        """Handle the end of a layer that a node's run wrote. Only rejections matter here."""
        node = layer.source
        if rejection is None or not isinstance(node, Node):
            return
        if node.reporter is not None:
            node.reporter.rejected(layer.local_seq)
        if node.removed:
            return
        if self.trace is not None:
            self.trace.emit(RunRejected(node.id, layer.local_seq, type(rejection).__name__))
        if not isinstance(rejection, Conflict):
            error = as_error(Rejected(layer.local_seq, rejection))
            told = error if isinstance(error, CommitRejected) else CommitRejected(str(error))
            self._on_refused(node, told, node.wrote <= layer.local_seq)  # The node may have committed again since.
            return
        self._rearm(node, cast("Mapping[Spot, Notification] | None", layer.causes), layer.hops)
        if rejection.collisions and not self._ready(node.home, rejection):
            self._waiting.append((node, rejection))
            self._loads.wait(node, self._loads.winner)  # The node's readers are not fresh meanwhile, and wait with it.
        else:
            self._enqueue(node)

    def on_refused(self, entry: TierEntry, local_seq: int, rejection: Rejection, is_newest: bool) -> None:
        """Handle a result that the engine refused for good: the node has failed, unless it has run again since."""
        node = entry.source
        if isinstance(node, Node) and not node.removed:
            if self.trace is not None:
                self.trace.emit(RunRejected(node.id, local_seq, type(rejection).__name__))
            error = as_error(Rejected(local_seq, rejection))
            told = error if isinstance(error, CommitRejected) else CommitRejected(str(error))
            self._on_refused(node, told, is_newest)

    def on_fallen(self, entry: TierEntry) -> None:
        """Have the causes of a result that was never sent count for the next run of its invalid node (I8)."""
        node = entry.source
        if isinstance(node, Node) and node.status == INVALID:
            node.causes = {**cast("Mapping[Spot, Notification]", entry.causes or {}), **(node.causes or {})} or None
            node.hops = max(node.hops, entry.hops)

    def on_overwritten(self, document: Document, kind: Kind, ways: object) -> None:
        """Make the node invalid whose result hides a different value, which another session wrote to its output."""
        value = document.value
        if value is NOT_HERE:
            return  # The document was set aside, and its arrival tells.
        told = Notification(kind, document, value, value, None, True, document.home.confirmed.seq, ways)
        hops = hops_of(told, ways)
        for node in document.writers:
            if isinstance(node, Node) and _is_replaced(node, told):
                if hops > self._answered_hops and not self.own.isdisjoint(_read_elsewhere(node)):
                    continue
                self._look_again(node, Spot(document, (), Depth.DEEP), hops, told)

    def on_shown(self, notification: Notification) -> None:
        """Make nodes invalid whose results another writer changed: a peer, a raw write, or the deletion of a piece.

        The inputs of a peer's result need not differ here, since a catch-up sends net differences. A reverted change
        matters only for nodes that found their result in place: `on_settled` handles a node whose own commit was
        rejected.
        """
        is_other = notification.kind is not Kind.REVERT
        for change in notification.changes:
            hops = hops_of(change, notification.source)
            for node in change.document.writers:
                if not isinstance(node, Node):
                    continue
                # I1: a node's own result counts as read.
                # fault fates.foreign_result_kept: if _has_found(node):
                if _has_found(node) or (is_other and _is_replaced(node, change)):
                    if hops > self._answered_hops and not self.own.isdisjoint(_read_elsewhere(node)):
                        continue
                    self._look_again(node, Spot(change.document, (), Depth.DEEP), hops, notification)
            for node in self._graph.materializers(change.document):
                if _has_found(node):
                    for document, path in node.found:
                        if document is change.document and not _is_same(change, path):
                            self._look_again(node, Spot(document, path, Depth.DEEP), hops, notification)

    def _look_again(self, node: Node, spot: Spot, hops: int, notification: Notification) -> None:
        if hops == UNKNOWN:
            hops = node.last_hops
        self._rearm(node, {spot: notification}, hops)
        # I6: runtimes that compute different results from the same inputs would answer each other without end.
        # fault fates.foreign_results_answered_at_once: if False:
        if notification.kind in FROM_OTHERS:
            self._gates.came(node, hops)
            is_there = cast("Document", spot.document).value is not ABSENT
            # The document of a deleted piece has no result whose inputs may come later, and its readers cannot wait.
            # fault fates.deletion_is_a_result: if not self.own.issuperset(_read_elsewhere(node)):
            if is_there and not self.own.issuperset(_read_elsewhere(node)):
                self._gates.result_came(node)
        self._enqueue(node)

    def _rearm(self, node: Node, causes: Mapping[Spot, Notification] | None, hops: int = 0) -> None:
        """Make a node invalid again as if its run had not happened, with the causes of that run (I8)."""
        # fault+ fates.rejected_run_not_repeated: return
        self._marks.count += 1
        node.due = self._marks.cause()  # A verdict is an external impulse: a retry costs none of the node's runs (L17).
        if node.status != NEVER_RAN:
            node.status = INVALID
        # fault fates.causes_lost: node.causes = {**(node.causes or {})} or None
        node.causes = {**(causes or {}), **(node.causes or {})} or None
        node.hops = max(node.hops, hops)

    def heard(self) -> None:
        """Enqueue the nodes whose winning commit is here. Called when a message of the engine has arrived."""
        if not self._waiting:
            return
        still = [
            (node, conflict)
            for node, conflict in self._waiting
            if not (node.removed or node.status == CLEAN or self._ready(node.home, conflict))
        ]
        if len(still) == len(self._waiting):
            return
        self._waiting = still
        released = self._loads.arrived(self._loads.winner)
        for node, _ in still:
            self._loads.wait(node, self._loads.winner)
        for node in released:
            self._enqueue(node)

    def held(self) -> int:
        """Count the nodes that wait for the commit that won against theirs."""
        return len(self._waiting)

    def forget(self, node: Node) -> None:
        self._waiting = [(other, conflict) for other, conflict in self._waiting if other is not node]


def _has_found(node: Node) -> bool:
    """True if the node's last run here found its result in place.

    A resumed node does not count: its result has a seq in the log, which `_is_replaced` compares.
    """
    return node.status == CLEAN and not (node.wrote or node.as_of) and node.error is None


def _read_elsewhere(node: Node) -> set[Replica]:
    """Return the replicas that a node reads outside of its own space: other spaces, and the clock."""
    return {cast(Document, spot.document).home for spot in node.reads if spot is not None} - {node.home}


def _is_replaced(node: Node, change: Changed) -> bool:
    """True if a change replaces the result of a clean node, whose own result was shown until then."""
    if node.status != CLEAN or node.error is not None or not node.returns or node.outputs[0] is not change.document:
        return False
    # I7: the result arrived as it was when the node was found clean.
    # fault fates.foreign_result_of_resumed_node_kept: return not node.as_of
    return change.known_before or not node.as_of or change.document.written > node.as_of


def _is_same(change: Changed, path: Path) -> bool:
    """True if the value at a path did not change."""
    if not change.known_before:
        return False
    before, after = lookup(change.before, path), lookup(change.after, path)
    return before is after or (before is not ABSENT and after is not ABSENT and equal(before, after))
