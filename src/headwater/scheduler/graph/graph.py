"""The graph: reader tries of documents, the static writer map, envelopes; liveness and heights as they follow.

Registration and read deltas are the only ways in. A delta that changes nothing costs a comparison (P6). It never
reads a value, never marks and never runs: the matcher is `match`, and only `invalidation` is given it.

Heights: a node is higher than everything whose output it reads, so that a pass runs in order (I9).

They are exact where the graph has no cycle. An edge that closes a cycle cannot be in order; it is noticed when it
comes, and left as it is. Heights order and never decide that something runs.

Liveness: who is demanded. Granted by counting, withdrawn by counting where the graph has no cycle.

A node is live if it is a demand source, has provisional demand, or a live node reads one of its outputs. In a graph
without cycles a count of live readers is exact. Once a cycle was seen, a count could keep the cycle alive by itself, so
that a withdrawal derives the region above the node anew: from the sources in it and the live readers outside of it.
Both equal a full rebuild after every mutation. It never runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import cast

from headwater.data.path import starts_with
from headwater.data.reader_trie import NO_READERS, Spot, TrieNode, detach
from headwater.replica.document import Document
from headwater.scheduler.graph.edges import readers_of, writers_above, writers_of
from headwater.scheduler.node import CLEAN, Node


class Liveness:
    """Keeps `live` and `live_refs` of every node true."""

    __slots__ = ("_on_live", "cyclic", "steps")

    def __init__(self, on_live: Callable[[Node], object]) -> None:
        self._on_live = on_live  # a node is demanded that was not
        self.cyclic = False  # a cycle was seen: counts alone do not tell any more
        self.steps = 0  # nodes written, for tests that count work

    def gained(self, writer: Node) -> None:
        """One more live node looks at one of its outputs."""
        writer.live_refs += 1
        if not writer.live:
            self._spread(writer)

    def lost(self, writers: list[Node]) -> None:
        """One live node less looks at each of these."""
        for writer in writers:
            writer.live_refs -= 1
        for writer in dict.fromkeys(writers):
            self._reconsider(writer)

    def set_root(self, node: Node, rooted: bool) -> None:
        """It is, or is no more, a demand source of its own."""
        node.rooted = rooted
        self._set(node)

    def set_provisional(self, node: Node, provisional: bool) -> None:
        node.provisional = provisional
        self._set(node)

    def expired(self, nodes: list[Node]) -> list[Node]:
        """A pass is over, and with it the provisional demand of those that ran. Who has it still?"""
        here = [node for node in nodes if node.provisional and not node.removed]
        for node in here:
            if node.runs:
                self.set_provisional(node, False)
        return [node for node in here if not node.runs]

    def _set(self, node: Node) -> None:
        if not node.live and (node.rooted or node.provisional):
            self._spread(node)
        elif node.live:
            self._reconsider(node)

    def _spread(self, node: Node) -> None:
        """It is live now, and with it everything above it."""
        node.live = True
        waiting = [node]
        while waiting:
            granted = waiting.pop()
            self.steps += 1
            self._on_live(granted)
            for writer in writers_above(granted):
                writer.live_refs += 1
                if not writer.live:
                    writer.live = True
                    waiting.append(writer)

    def _reconsider(self, node: Node) -> None:
        """Some of its demand is gone. Is there other?"""
        # fault liveness.demand_not_withdrawn: if True:
        if not node.live:
            return
        if self.cyclic:
            self._derive(node)
            return
        waiting = [node]
        while waiting:
            left = waiting.pop()
            if left.rooted or left.provisional or left.live_refs > 0 or not left.live:
                continue
            left.live = False
            self.steps += 1
            for writer in writers_above(left):
                writer.live_refs -= 1
                waiting.append(writer)

    def _derive(self, origin: Node) -> None:
        """Everything live above it, anew: a cycle could otherwise live on by itself."""
        region = dict.fromkeys(_live_above(origin))
        for node in region:
            node.live = False
            node.live_refs = 0
            self.steps += 1
        seeds = []
        for node in region:
            node.live_refs = sum(1 for reader in readers_of(node) if reader.live and reader not in region)
            if node.rooted or node.provisional or node.live_refs:
                seeds.append(node)
        for seed in seeds:
            seed.live = True
        while seeds:
            granted = seeds.pop()
            for writer in writers_above(granted):
                if writer in region:
                    writer.live_refs += 1
                    if not writer.live:
                        writer.live = True
                        seeds.append(writer)


def _live_above(origin: Node) -> Iterator[Node]:
    """The node and every live node whose output reaches it."""
    seen = {origin}
    waiting = [origin]
    while waiting:
        node = waiting.pop()
        yield node
        for writer in writers_above(node):
            if writer.live and writer not in seen:
                seen.add(writer)
                waiting.append(writer)


class Heights:
    """Keeps every reader above what it reads."""

    __slots__ = ("_on_cycle", "_on_raised", "is_cyclic")

    def __init__(self, on_raised: Callable[[Node], object], on_cycle: Callable[[], object]) -> None:
        self._on_raised = on_raised  # a node that may wait to run is higher than it was
        self._on_cycle = on_cycle
        self.is_cyclic = False

    def place(self, node: Node) -> None:
        """Its reads have changed: put it just above the highest of them, and whoever reads it above it."""
        # fault+ heights.not_kept: return
        highest = -1
        for writer in writers_above(node):
            highest = max(highest, writer.height)
        if highest + 1 > node.height:
            self._raise(node, highest + 1)
        elif not self.is_cyclic:
            node.height = highest + 1  # Lower is in order, too, and keeps heights small.

    def below(self, writer: Node) -> None:
        """A writer came: whoever reads it already is above it."""
        for reader in set(readers_of(writer)):
            if reader.height <= writer.height:
                self._raise(reader, writer.height + 1)

    def _raise(self, origin: Node, height: int) -> None:
        """Raise a node and what reads it, as far as needed, each once. Coming back to it means a cycle.

        Lowest first: whatever is above a node was above it before, so nothing is raised before all that it stands on.
        """
        needed = {origin: height}
        waiting = [(origin.height, origin.order, origin)]
        raised: set[Node] = set()
        while waiting:
            _, _, node = heappop(waiting)
            raised.add(node)
            at_least = node.height = needed[node]
            if node.queued >= 0:
                self._on_raised(node)
            for reader in readers_of(node):
                if reader.height > at_least:
                    continue
                if reader in raised:
                    self._cycle()  # It stays where it is: round a cycle it would never end.
                elif reader in needed:
                    needed[reader] = max(needed[reader], at_least + 1)
                else:
                    needed[reader] = at_least + 1
                    heappush(waiting, (reader.height, reader.order, reader))

    def tidy(self, nodes: Iterable[Node]) -> bool:
        """Edges were withdrawn while there was a cycle. True: there is none left, and everything is in order again."""
        order = _in_order(nodes)
        if order is None:
            return False
        for node in order:
            height = 1 + max((writer.height for writer in writers_above(node)), default=-1)
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


def _in_order(nodes: Iterable[Node]) -> list[Node] | None:
    """Every node after all that it reads; None: there is a cycle."""
    missing = {node: sum(1 for _ in writers_above(node)) for node in nodes}
    ready = [node for node, count in missing.items() if not count]
    for node in ready:  # It grows while it is walked.
        for reader in readers_of(node):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return ready if len(ready) == len(missing) else None


class Graph:
    """Every edge there is, and what follows from them."""

    __slots__ = (
        "_envelopes",
        "_heights",
        "_is_untidy",
        "_liveness",
        "_nodes",
        "_on_read",
        "_on_unread",
        "deltas",
        "is_special",
    )

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        on_live: Callable[[Node], object],
        on_raised: Callable[[Node], object],
        on_read: Callable[[Document], object],
        on_unread: Callable[[Document], object],
    ) -> None:
        self._nodes = nodes  # all there are
        self._liveness = Liveness(on_live)
        self._heights = Heights(on_raised, self._cycle)
        self._on_read = on_read  # somebody reads the document now: it must be watched
        self._on_unread = on_unread
        self._envelopes: dict[Document, dict[Node, None]] = {}
        self._is_untidy = False
        self.is_special = False  # there are envelopes or cycles, which heights alone do not order
        self.deltas = 0  # read sets that changed, for tests that count work

    @property
    def envelopes(self) -> int:
        """How many documents materializers may write."""
        return len(self._envelopes)

    @property
    def has_envelopes(self) -> bool:
        return bool(self._envelopes)

    @property
    def is_cyclic(self) -> bool:
        """Whether a cycle was seen and is not known to be gone."""
        return self._liveness.cyclic

    def _look(self) -> None:
        self.is_special = bool(self._envelopes) or self._liveness.cyclic

    @property
    def liveness(self) -> Liveness:
        return self._liveness

    def _cycle(self) -> None:
        self._liveness.cyclic = True
        self._look()

    # ---- nodes -------------------------------------------------------------------------------------

    def add(self, node: Node) -> Sequence[Node]:
        """Enter its write surface. Nodes that read there before it was registered become its readers (L2): which?"""
        for document in node.outputs:
            document.writers = (*document.writers, node)
        for document, _ in node.envelope:
            self._envelopes.setdefault(document, {})[node] = None
            self._look()
        if any(document.twig is not None for document in node.outputs):
            read_already = list(readers_of(node))
            self._heights.below(node)
            for reader in read_already:
                if reader.live:
                    self._liveness.gained(node)
            return read_already
        return ()

    def remove(self, node: Node) -> None:
        """Take it out, with everything it contributed."""
        self.apply_read_delta(node, (None,))
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

    def tidy(self) -> None:
        """Edges were withdrawn from a graph with a cycle: what the cycle kept out of order may be in order again."""
        if self._is_untidy:
            self._is_untidy = False
            if self._heights.tidy(self._nodes):
                self._liveness.cyclic = False
                self._look()

    # ---- reads -------------------------------------------------------------------------------------

    def canonical(self, spot: Spot) -> Spot:
        """The spot that everybody else reads at the same place, or this one if nobody does."""
        if spot.twig is not None:
            return spot
        twig = cast(Document, spot.document).twig
        return spot if twig is None else twig.find(spot.path, spot.depth) or spot

    def apply_read_delta(self, node: Node, reads: Sequence[Spot | None]) -> None:
        """From now on the node reads these, and is heard of where it was not. `reads` ends with None."""
        before = node.reads
        node.reads = node.expect = reads
        come = [spot for spot in reads if spot is not None and node not in spot.readers]
        gone: Sequence[Spot | None] = ()
        if len(before) + len(come) != len(reads):  # Otherwise everything that was read is read.
            now = set(reads)
            gone = [spot for spot in before if spot not in now]
        if not (gone or come):
            return  # The same in another order.
        for at, spot in enumerate(come):
            if not self._subscribe(node, spot):
                for entered in come[:at]:
                    self._unsubscribe(node, entered)
                node.reads = node.expect = before
                self.apply_read_delta(node, [*self.united(reads), None])
                return
        self.deltas += 1
        if come or gone:
            self._heights.place(node)
        if node.live:
            for spot in come:
                for writer in writers_of(cast(Document, spot.document)):
                    if writer is not node:
                        self._liveness.gained(writer)
        if not gone:
            return
        if gone and self._heights.is_cyclic:
            self._is_untidy = True
        left: list[Node] = []
        for gone_spot in gone:
            if gone_spot is not None:
                self._unsubscribe(node, gone_spot)
                if node.live:
                    for writer in writers_of(cast(Document, gone_spot.document)):
                        if writer is not node:
                            left.append(writer)
        self._liveness.lost(left)

    def add_reads(self, node: Node, spots: Iterable[Spot]) -> None:
        """An attempt that was stopped looked at these: whatever comes there wakes it."""
        more = [spot for spot in dict.fromkeys(spots) if node not in spot.readers]
        if more:
            self.apply_read_delta(node, [*[spot for spot in node.reads if spot is not None], *more, None])
        node.expect = (None,)  # These are no edges that anything was ordered by: each is looked at anew.

    def united(self, reads: Iterable[Spot | None]) -> list[Spot]:
        """The same reads with one spot for each place: others may have come to it through another one meanwhile."""
        known: dict[tuple[object, ...], Spot] = {}
        found: dict[Spot, None] = {}
        for spot in reads:
            if spot is not None:
                first = known.setdefault((spot.document, spot.path, spot.depth), self.canonical(spot))
                found[first] = None
        return [*found]

    def _subscribe(self, node: Node, spot: Spot) -> bool:
        """False: the place has another spot already, and nothing was done."""
        document = cast(Document, spot.document)
        if spot.twig is None:
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
        """Whether some node reads it or may write it."""
        return document.twig is not None or bool(document.writers) or document in self._envelopes

    # ---- envelopes ---------------------------------------------------------------------------------

    def envelopes_over(self, spots: Iterable[Spot | None]) -> dict[Node, None]:
        """Materializers in whose envelope one of these spots lies."""
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
        """Those in whose envelope something of a document lies."""
        return self._envelopes.get(document, ())

    def dirty_envelopes(self, spots: Iterable[Spot | None]) -> list[Node]:
        """Those of them that have something to do."""
        # fault materializers.not_promoted: return []
        return [node for node in self.envelopes_over(spots) if node.status != CLEAN] if self._envelopes else []

    def above(self, node: Node) -> Iterator[Node]:
        """Everybody whose writes may come to a node in the end, by outputs and by envelopes. Costs all of these."""
        seen = {node}
        waiting = [node]
        while waiting:
            at = waiting.pop()
            for writer in (*writers_above(at), *self.envelopes_over(at.reads)):
                if writer not in seen:
                    seen.add(writer)
                    waiting.append(writer)
                    yield writer
