"""The graph: reader tries of documents, the static writer map, envelopes; liveness and heights as they follow.

Registration and read deltas are the only ways in. A delta that changes nothing costs a comparison (P6). It never
reads a value, never marks and never runs: the matcher is `match`, and only `invalidation` is given it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from headwater.data.path import starts_with
from headwater.data.spots import NOBODY, Spot, Twig, detach
from headwater.replica.document import Document
from headwater.scheduler.graph.edges import readers_of, writers_above, writers_of
from headwater.scheduler.graph.heights import Heights
from headwater.scheduler.graph.liveness import Liveness
from headwater.scheduler.node import CLEAN, Node


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
                document.twig = Twig()
                self._on_read(document)
            elif document.twig.find(spot.path, spot.depth) is not None:
                return False
            document.twig.attach(spot)
        if spot.readers is NOBODY:
            spot.readers = {node: None}
        else:
            spot.readers[node] = None
        return True

    def _unsubscribe(self, node: Node, spot: Spot) -> None:
        if spot.readers is not NOBODY:
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
