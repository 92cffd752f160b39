"""The graph: reader tries of documents, the static map of writers, envelopes, and the liveness and heights that follow.

The graph changes only through registration, removal and read deltas. A delta that changes nothing costs a comparison
(P6). The graph never reads a value, marks a node or runs one: `data.reader_trie.match` finds the readers of a change,
and only `invalidation` calls it.

`Heights` places a node above its keeper and above every node whose output it reads, so that a pass runs in order (I9).
The reads of a node that has not run yet are not known; its readers are placed far above it, so that a chain of nodes
that is discovered from its end fits in between and is not raised once for each new node. Heights are exact where the
graph has no cycle and all nodes have run. An edge that closes a cycle cannot be in order; it is detected when it is
added and left as it is. Heights order runs and never cause one.

`Liveness` tracks demand. A node is live if it is a demand source, has provisional demand, or if a live node reads one
of its outputs or is kept by it. In a graph without cycles a count of live readers is exact. Once a cycle was seen,
counts could keep the cycle alive by itself. Each live node that is no demand source then has a support: one of its live
readers, such that supports lead from node to node to a demand source. A node that lost its support is doubted until
`settle` finds another reader, which the node does not support itself, before the next node gets its turn. Until then a
node may be live without demand. Both methods equal a full rebuild after `settle`. Nodes that a node keeps count as its
readers in both classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, cast

from headwater.data.path import starts_with
from headwater.data.reader_trie import NO_READERS, Spot, TrieNode, detach
from headwater.replica.document import Document
from headwater.scheduler.graph.edges import nodes_above, nodes_below, writers_of
from headwater.scheduler.node import AFRESH, CLEAN, NEVER_RAN, Node

ROOM: Final = 1 << 14
"""How far a node is placed above a node that it reads and that has not run yet."""

TIDY_STEPS: Final = 16
"""How many nodes `Graph.tidy` may look at for each edge that changed: then its cost is a share of theirs."""


class Liveness:
    """Keeps `live`, `live_refs` and `support` of every node true."""

    __slots__ = ("_nodes", "_on_doubt", "_on_live", "cyclic", "doubted", "steps")

    def __init__(
        self, nodes: Iterable[Node], on_live: Callable[[Node], object], on_doubt: Callable[[], object]
    ) -> None:
        self._nodes = nodes  # all registered nodes
        self._on_live = on_live  # called with a node that became live
        self._on_doubt = on_doubt  # called when `settle` has something to do
        self.cyclic = False  # a cycle was seen: counts alone are not exact any more
        self.doubted: dict[Node, None] = {}  # nodes of a cyclic graph that lost their support since `settle`
        self.steps = 0  # nodes that were looked at for a change of demand, for tests that count work

    def set_cyclic(self, is_cyclic: bool) -> None:
        """Set whether the graph may have a cycle."""
        if is_cyclic is self.cyclic:
            return
        self.cyclic = is_cyclic
        self.doubted.clear()  # Without a cycle, counts are exact.
        if is_cyclic:
            for node in self._nodes:
                if node.live and node.support is None and not (node.rooted or node.provisional):
                    self._doubt(node)

    def gained(self, writer: Node, reader: Node) -> None:
        """Count one more live reader of an output of `writer`."""
        writer.live_refs += 1
        if not writer.live:
            writer.support = reader
            self._spread(writer)

    def lost(self, writers: list[Node], reader: Node) -> None:
        """Count one live reader less for each of these writers."""
        for writer in writers:
            writer.live_refs -= 1
        for writer in dict.fromkeys(writers):
            self._reconsider(writer, reader)

    def set_root(self, node: Node, rooted: bool) -> None:
        """Set whether the node is a demand source of its own."""
        node.rooted = rooted
        self._set(node)

    def set_provisional(self, node: Node, provisional: bool) -> None:
        node.provisional = provisional
        self._set(node)

    def expired(self, nodes: list[Node]) -> list[Node]:
        """End the provisional demand of the nodes that ran, at the end of a pass. Return the nodes that keep theirs."""
        here = [node for node in nodes if node.provisional and not node.removed]
        for node in here:
            if node.runs:
                self.set_provisional(node, False)
        return [node for node in here if not node.runs]

    def _set(self, node: Node) -> None:
        if not node.live and (node.rooted or node.provisional):
            self._spread(node)
        elif node.live:
            # While the node was a demand source, it may have become the support of its own support.
            self._reconsider(node, node.support)

    def _spread(self, node: Node) -> None:
        """Make a node live, and every node above it."""
        node.live = True
        waiting = [node]
        while waiting:
            granted = waiting.pop()
            self.steps += 1
            self._on_live(granted)
            for writer in nodes_above(granted):
                writer.live_refs += 1
                if not writer.live:
                    writer.live = True
                    writer.support = granted
                    waiting.append(writer)

    def _reconsider(self, node: Node, lost: Node | None) -> None:
        """Withdraw liveness from a node that `lost` does not demand any more, unless other demand remains."""
        # fault liveness.demand_not_withdrawn: if True:
        if not node.live:
            return
        waiting = [(node, lost)]
        while waiting:
            left, reader = waiting.pop()
            if left.support is reader:
                left.support = None
            if left.rooted or left.provisional or not left.live:
                continue
            if left.live_refs > 0:
                if self.cyclic and left.support is None:
                    self._doubt(left)
                continue
            left.live = False
            self.steps += 1
            for writer in nodes_above(left):
                writer.live_refs -= 1
                waiting.append((writer, left))

    def _doubt(self, node: Node) -> None:
        self.doubted[node] = None
        self._on_doubt()

    def settle(self) -> None:
        """Find another support for each doubted node, or withdraw its liveness: a cycle would keep itself alive."""
        # fault+ liveness.doubts_dropped: self.doubted.clear()
        while self.doubted:
            node, _ = self.doubted.popitem()
            if node.live and not (node.rooted or node.provisional):
                supported = {node: None}
                node.support = self._find_support(node, supported)
                if node.support is None:
                    self._withdraw(supported)

    def _find_support(self, node: Node, supported: dict[Node, None]) -> Node | None:
        """Return a live reader of a node that the node does not support itself, directly or through other nodes.

        None: there is none, and `supported` has every node that the node supports. Supports are followed from a reader
        to a demand source, or to another node that is doubted; at the same time the nodes that the node supports are
        collected. The shorter of both ways decides.
        """
        readers = [reader for reader in nodes_below(node) if reader.live]
        if readers:
            # Any reader, not the first: if readers are withdrawn one by one in order, few of them are the support.
            first = self.steps * 7919 % len(readers)
            readers = [*readers[first:], *readers[:first]]
        waiting = [node]  # nodes of `supported` whose own supported nodes are not in it yet
        for reader in readers:
            way: list[Node] = []
            at: Node | None = reader
            while at is not None and at not in supported:
                if not waiting or at.rooted or at.provisional:
                    return reader
                self.steps += 1
                way.append(at)
                at = at.support
                _collect_supported(waiting, supported)
                if reader in supported:
                    break
            else:
                if at is None:
                    return reader
                more = [each for each in way if each not in supported]
                supported.update(dict.fromkeys(more))
                waiting += more
        while waiting:
            _collect_supported(waiting, supported)
        return None

    def _withdraw(self, region: dict[Node, None]) -> None:
        """Withdraw liveness from nodes that support only each other, except for those that other live nodes read."""
        for node in region:
            node.live = False
            self.steps += 1
        granted = []
        for node in region:
            node.support = next((reader for reader in nodes_below(node) if reader.live), None)
            if node.support is not None:
                granted.append(node)
        for node in granted:
            node.live = True
        while granted:
            reader = granted.pop()
            for writer in nodes_above(reader):
                if writer in region and not writer.live:
                    writer.live = True
                    writer.support = reader
                    granted.append(writer)
        for node in region:
            if not node.live:
                for writer in nodes_above(node):
                    writer.live_refs -= 1


def _collect_supported(waiting: list[Node], supported: dict[Node, None]) -> None:
    """Add the nodes to `supported` of which the last waiting node is the support."""
    node = waiting.pop()
    for writer in nodes_above(node):
        if writer.support is node and writer not in supported and not (writer.rooted or writer.provisional):
            supported[writer] = None
            waiting.append(writer)


class Heights:
    """Keeps every reader above the writers of its inputs."""

    __slots__ = ("_on_cycle", "_on_raised", "is_cyclic", "steps")

    def __init__(self, on_raised: Callable[[Node], object], on_cycle: Callable[[], object]) -> None:
        self._on_raised = on_raised  # called with a node that waits for its turn and was raised
        self._on_cycle = on_cycle
        self.is_cyclic = False
        self.steps = 0  # nodes that were raised, or looked at by `tidy`, for tests that count work

    def place(self, node: Node) -> None:
        """Put a node whose reads changed just above its highest writer, and raise its readers above it."""
        # fault+ heights.not_kept: return
        highest = -1
        is_open = False  # The reads of a writer are not known: it may have to rise.
        for writer in nodes_above(node):
            highest = max(highest, writer.height)
            is_open = is_open or (writer.status == NEVER_RAN and len(writer.reads) == 1)
        # fault heights.no_room_below: if False:
        if is_open and not self.is_cyclic:
            height = min((reader.height for reader in nodes_below(node)), default=highest + ROOM) - 1
            if max(height, node.height) > highest:
                if height > node.height:
                    node.height = height
                    if node.queued >= 0:
                        self._on_raised(node)
                return
        if highest + 1 > node.height:
            self._raise(node, highest + 1)
        elif not self.is_cyclic:
            node.height = highest + 1  # A lower height is in order, too, and keeps heights small.

    def below(self, writer: Node) -> None:
        """Raise the nodes that already read a newly registered writer above it."""
        for reader in set(nodes_below(writer)):
            if reader.height <= writer.height:
                self._raise(reader, writer.height + 1)

    def _raise(self, origin: Node, height: int) -> None:
        """Raise a node and its readers as far as needed, each node once. Reaching a raised node again means a cycle.

        Lowest first: a node's readers were above it before, so that no node is raised before all of its writers are.
        """
        needed = {origin: height}
        waiting = [(origin.height, origin.order, origin)]
        raised: set[Node] = set()
        while waiting:
            _, _, node = heappop(waiting)
            raised.add(node)
            self.steps += 1
            at_least = node.height = needed[node]
            if node.queued >= 0:
                self._on_raised(node)
            for reader in nodes_below(node):
                if reader.height > at_least:
                    continue
                if reader in raised:
                    self._cycle()  # The reader stays where it is: raising round a cycle would never end.
                elif reader in needed:
                    needed[reader] = max(needed[reader], at_least + 1)
                else:
                    needed[reader] = at_least + 1
                    heappush(waiting, (reader.height, reader.order, reader))

    def tidy(self, nodes: Iterable[Node]) -> bool:
        """Recompute heights after edges of a cyclic graph were withdrawn. True: no cycle is left; all is in order."""
        missing = {node: len(nodes_above(node)) for node in nodes}
        self.steps += len(missing)
        order = _in_order(missing)
        if order is None:
            return False
        for node in order:
            height = 1 + max((writer.height for writer in nodes_above(node)), default=-1)
            if height > node.height and node.queued >= 0:
                node.height = height
                self._on_raised(node)
            node.height = max(height, node.height) if node.queued >= 0 else height
        self.is_cyclic = False
        return True

    def _cycle(self) -> None:
        if not self.is_cyclic:
            self.is_cyclic = True
        self._on_cycle()


def _in_order(missing: dict[Node, int]) -> list[Node] | None:
    """Return nodes, each after all of its writers, by the number of writers of each. None: there is a cycle."""
    ready = [node for node, count in missing.items() if not count]
    for node in ready:  # The list grows while it is walked.
        for reader in nodes_below(node):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return ready if len(ready) == len(missing) else None


class Graph:
    """All edges between nodes, with the liveness and heights that follow from them."""

    __slots__ = (
        "_envelopes",
        "_heights",
        "_is_untidy",
        "_node_count",
        "_nodes",
        "_on_read",
        "_on_unread",
        "_tidy_steps",
        "deltas",
        "is_special",
        "liveness",
    )

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        on_live: Callable[[Node], object],
        on_doubt: Callable[[], object],
        on_raised: Callable[[Node], object],
        on_read: Callable[[Document], object],
        on_unread: Callable[[Document], object],
    ) -> None:
        self._nodes = nodes  # all registered nodes
        self.liveness = Liveness(nodes, on_live, on_doubt)
        self._heights = Heights(on_raised, self._cycle)
        self._on_read = on_read  # called when a document gets its first reader: the document must be watched
        self._on_unread = on_unread
        self._envelopes: dict[Document, dict[Node, None]] = {}
        self._is_untidy = False  # an edge was withdrawn that may have been part of the last cycle
        self._node_count = 0
        self._tidy_steps = 0  # nodes that `tidy` may look at by now
        self.is_special = False  # there are envelopes or cycles, which heights alone do not order
        self.deltas = 0  # read sets that changed, for tests that count work

    @property
    def envelopes(self) -> int:
        """Number of documents that materializers may write."""
        return len(self._envelopes)

    @property
    def has_envelopes(self) -> bool:
        return bool(self._envelopes)

    @property
    def is_cyclic(self) -> bool:
        """True if a cycle was seen and is not known to be gone."""
        return self.liveness.cyclic

    @property
    def steps(self) -> int:
        """How many nodes were looked at so far to keep demand and heights true, for tests that count work."""
        return self.liveness.steps + self._heights.steps

    def _look(self) -> None:
        self.is_special = bool(self._envelopes) or self.liveness.cyclic

    @property
    def heights(self) -> Heights:
        return self._heights

    def _cycle(self) -> None:
        self.liveness.set_cyclic(True)
        self._look()

    # ---- nodes -------------------------------------------------------------------------------------

    def add(self, node: Node) -> Sequence[Node]:
        """Enter a node's outputs and envelope.

        Return the nodes that read its outputs already: they are its readers now (L2).
        """
        self._node_count += 1
        if node.keeper is not None:
            node.height = node.keeper.height + 1
        for document in node.outputs:
            document.writers = (*document.writers, node)
        for document, _ in node.envelope:
            self._envelopes.setdefault(document, {})[node] = None
            self._look()
        is_read = False
        for document in node.outputs:
            if document.twig is not None:
                is_read = True
        if is_read:
            read_already = list(nodes_below(node))
            self._heights.below(node)
            for reader in read_already:
                if reader.live:
                    self.liveness.gained(node, reader)
            return read_already
        return ()

    def remove(self, node: Node) -> None:
        """Remove a node with all its edges, its outputs, its envelope and its demand."""
        self.apply_read_delta(node, (None,))
        if node.live and node.keeper is not None and not node.keeper.removed:
            self.liveness.lost([node.keeper], node)
        self._node_count -= 1
        for document in node.outputs:
            document.writers = tuple(writer for writer in document.writers if writer is not node)
        for document, _ in node.envelope:
            inside = self._envelopes.get(document)
            if inside is not None:
                inside.pop(node, None)
                if not inside:
                    del self._envelopes[document]
                    self._look()
        node.live_refs = 0
        node.rooted = node.provisional = node.live = False
        node.support = None

    def tidy(self) -> None:
        """Restore order if edges were withdrawn from a cyclic graph: the cycle may be gone.

        Looks at all nodes. If too few edges have changed since the last time, order is restored later.
        """
        # fault graph.tidied_each_time: if self._is_untidy:
        if self._is_untidy and self._tidy_steps >= self._node_count:
            self._is_untidy = False
            self._tidy_steps -= self._node_count
            if self._heights.tidy(self._nodes):
                self.liveness.set_cyclic(False)
                self._look()

    # ---- reads -------------------------------------------------------------------------------------

    def canonical(self, spot: Spot) -> Spot:
        """Return the spot that other nodes read at the same place and depth, or `spot` itself if there is none."""
        if spot.twig is not None:
            return spot
        twig: TrieNode | None = spot.document.twig  # type: ignore[attr-defined]  # Every spot is one of a document's.
        return spot if twig is None else twig.find(spot.path, spot.depth) or spot

    def apply_read_delta(self, node: Node, reads: Sequence[Spot | None]) -> None:
        """Replace a node's reads, and subscribe it to the new spots. `reads` ends with None."""
        before = node.reads
        node.reads = node.expect = reads
        come = [spot for spot in reads if spot is not None and node not in spot.readers]
        gone: Sequence[Spot | None] = ()
        if len(before) + len(come) != len(reads):  # Otherwise every spot that was read before is still read.
            now = set(reads)
            gone = [spot for spot in before if spot not in now]
        if not (gone or come):
            return  # The same spots in another order.
        has_writers = False
        for at, spot in enumerate(come):
            if spot.document.writers:  # type: ignore[attr-defined]  # Every spot is one of a document's.
                has_writers = True
            if not self._subscribe(node, spot):
                for entered in come[:at]:
                    self._unsubscribe(node, entered)
                node.reads = node.expect = before
                self.apply_read_delta(node, [*self.united(reads), None])
                return
        self.deltas += 1
        self._tidy_steps += TIDY_STEPS * (len(come) + len(gone))
        if has_writers or gone or node.height:
            self._heights.place(node)
        if has_writers and node.live:
            for spot in come:
                for writer in writers_of(cast(Document, spot.document)):
                    if writer is not node:
                        self.liveness.gained(writer, node)
        if not gone:
            return
        if self._heights.is_cyclic and next(nodes_below(node), None) is not None:
            self._is_untidy = True  # A node without readers is on no cycle.
        left: list[Node] = []
        for gone_spot in gone:
            if gone_spot is not None:
                self._unsubscribe(node, gone_spot)
                if node.live:
                    for writer in writers_of(cast(Document, gone_spot.document)):
                        if writer is not node:
                            left.append(writer)
        self.liveness.lost(left, node)

    def add_reads(self, node: Node, spots: Iterable[Spot]) -> None:
        """Subscribe a node to the reads of its stopped attempt, so that a change there wakes it."""
        more = [spot for spot in dict.fromkeys(spots) if node not in spot.readers]
        if more:
            self.apply_read_delta(node, [*[spot for spot in node.reads if spot is not None], *more, None])
        node.expect = AFRESH  # No run was ordered by these edges, so that each read is checked anew.

    def united(self, reads: Iterable[Spot | None]) -> list[Spot]:
        """Return the reads with one spot for each place: other nodes may have registered another one meanwhile."""
        known: dict[tuple[object, ...], Spot] = {}
        found: dict[Spot, None] = {}
        for spot in reads:
            if spot is not None:
                first = known.setdefault((spot.document, spot.path, spot.depth), self.canonical(spot))
                found[first] = None
        return [*found]

    def _subscribe(self, node: Node, spot: Spot) -> bool:
        """Add a reader to a spot. False: the place has another spot already, and nothing was changed."""
        if spot.twig is None:
            document: Document = spot.document  # type: ignore[assignment]  # Every spot is one of a document's.
            if document.twig is None:
                document.twig = TrieNode()
                self._on_read(document)
            elif document.twig.find(spot.path, spot.depth) is not None:
                return False
            document.twig.attach(spot)
        if spot.readers is NO_READERS:
            spot.readers = {node: None}
        else:
            spot.readers[node] = None
        return True

    def _unsubscribe(self, node: Node, spot: Spot) -> None:
        if spot.readers is not NO_READERS:
            spot.readers.pop(node, None)
        if not spot.readers:
            detach(spot)
            document = cast(Document, spot.document)
            if document.twig is not None and document.twig.is_empty():
                document.twig = None
                self._on_unread(document)

    def is_used(self, document: Document) -> bool:
        """True if some node reads the document or may write it."""
        return document.twig is not None or bool(document.writers) or document in self._envelopes

    # ---- envelopes ---------------------------------------------------------------------------------

    def envelopes_over(self, spots: Iterable[Spot | None]) -> dict[Node, None]:
        """Return the materializers whose envelope overlaps one of these spots."""
        found: dict[Node, None] = {}
        if self._envelopes:
            for spot in spots:
                if spot is None:
                    continue
                document = cast(Document, spot.document)
                for node in self._envelopes.get(document, ()):
                    if any(
                        document is at and (starts_with(spot.path, path) or starts_with(path, spot.path))
                        for at, path in node.envelope
                    ):
                        found[node] = None
        return found

    def materializers(self, document: Document) -> Iterable[Node]:
        """Return the materializers whose envelope has a part in a document."""
        return self._envelopes.get(document, ())

    def dirty_envelopes(self, spots: Iterable[Spot | None]) -> list[Node]:
        """Return the materializers that are not clean and whose envelope overlaps one of these spots."""
        # fault materializers.not_promoted: return []
        return [node for node in self.envelopes_over(spots) if node.status != CLEAN] if self._envelopes else []

    def above(self, node: Node) -> Iterator[Node]:
        """Yield every node whose writes may reach a node, through outputs and envelopes.

        Costs the number of these nodes.
        """
        seen = {node}
        waiting = [node]
        while waiting:
            at = waiting.pop()
            for writer in (*nodes_above(at), *self.envelopes_over(at.reads)):
                if writer not in seen:
                    seen.add(writer)
                    waiting.append(writer)
                    yield writer
