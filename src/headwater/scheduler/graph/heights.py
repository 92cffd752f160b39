"""Heights: a node is higher than everything whose output it reads, so that a pass runs in order (I9).

They are exact where the graph has no cycle. An edge that closes a cycle cannot be in order; it is noticed when it
comes, and left as it is. Heights order and never decide that something runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from headwater.scheduler.graph.edges import readers_of, writers_above
from headwater.scheduler.node import Node


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
