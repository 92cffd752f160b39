"""Liveness: who is demanded. Granted by counting, withdrawn by counting where the graph has no cycle.

A node is live if it is a demand source, has provisional demand, or a live node reads one of its outputs. In a graph
without cycles a count of live readers is exact. Once a cycle was seen, a count could keep the cycle alive by itself, so
that a withdrawal derives the region above the node anew: from the sources in it and the live readers outside of it.
Both equal a full rebuild after every mutation. It never runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.scheduler.graph.edges import readers_of, writers_above
from headwater.scheduler.node import Node


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
