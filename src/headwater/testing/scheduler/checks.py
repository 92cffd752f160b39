"""Conditions on a scheduler's graph between two steps, by definition instead of by bookkeeping.

Everything is derived anew from the reads and writes of the nodes. Nothing is changed, except that withdrawn demand
takes effect now instead of before the next run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import cast

from headwater.errors import InvariantViolation
from headwater.replica import Document
from headwater.scheduler import CLEAN, Node, check_node
from headwater.testing.scheduler.kit import World


def check_world(world: World, *, heights: bool = True) -> None:
    """Check that every node agrees with its fields, and that the graph equals a full rebuild."""
    world.scheduler.settle_demand()
    nodes = world.nodes()
    live = demanded(nodes)
    live_refs = Counter(writer for node in live for writer in nodes_above(node))
    problems: list[str] = []
    for node in nodes:
        check_node(node)
        if node.live is not (node in live):
            problems.append(f"{node!r} should be {'live' if node in live else 'dormant'}")
        if node.live_refs != live_refs[node]:
            problems.append(f"{node!r} has {live_refs[node]} live readers and counts {node.live_refs}")
        problems += _surface(node)
    if heights:
        problems += out_of_order(nodes)
    if problems:
        raise InvariantViolation("; ".join(problems))


def nodes_above(node: Node) -> Iterator[Node]:
    """The other nodes whose outputs a node reads, once for each place that it reads there, and its keeper."""
    if node.keeper is not None and not node.keeper.removed:
        yield node.keeper
    for spot in node.reads:
        if spot is not None:
            for writer in cast(Document, spot.document).writers:
                if writer is not node:
                    yield cast(Node, writer)


def demanded(nodes: list[Node]) -> set[Node]:
    """The nodes that are demand sources, or that a demanded node reads."""
    live = {node for node in nodes if node.rooted or node.provisional}
    waiting = list(live)
    while waiting:
        for writer in nodes_above(waiting.pop()):
            if writer not in live:
                live.add(writer)
                waiting.append(writer)
    return live


def _surface(node: Node) -> list[str]:
    problems = [f"{node!r} is no writer of {doc!r}" for doc in node.outputs if node not in doc.writers]
    for spot in node.reads[:-1]:
        assert spot is not None
        twig = cast(Document, spot.document).twig
        if twig is None or twig.find(spot.path, spot.depth) is not spot:
            problems.append(f"{node!r} reads {spot!r}, which is not in its document's trie")
        elif node not in spot.readers:
            problems.append(f"{node!r} reads {spot!r} and is not among its readers")
    return problems


def reachable(nodes: list[Node]) -> dict[Node, set[Node]]:
    """For each node, everything above it, itself only if it is on a cycle."""
    above: dict[Node, set[Node]] = {}
    for node in nodes:
        seen: set[Node] = set()
        waiting = [node]
        while waiting:
            for writer in nodes_above(waiting.pop()):
                if writer not in seen:
                    seen.add(writer)
                    waiting.append(writer)
        above[node] = seen
    return above


def out_of_order(nodes: list[Node]) -> list[str]:
    """Edges that are on no cycle and whose reader is not higher than its writer (I9)."""
    above = reachable(nodes)
    return [
        f"{node!r} at {node.height} reads {writer!r} at {writer.height}"
        for node in nodes
        for writer in set(nodes_above(node))
        if node not in above[writer] and node.height <= writer.height
    ]


def has_cycle(nodes: list[Node]) -> bool:
    return any(node in above for node, above in reachable(nodes).items())


def unsettled(world: World) -> list[Node]:
    """Live nodes that have not run although nothing keeps them from it."""
    return [
        node
        for node in world.nodes()
        if node.status != CLEAN and node.live and not node.loading and not is_delayed(world, node)
    ]


def is_delayed(world: World, node: Node) -> bool:
    """Whether a debounce, a throttle or a failure keeps a node from running now."""
    return node.gate is not None and node.gate.eligible_at > world.clock.monotonic_us()


def left_behind(world: World) -> dict[str, int]:
    """Return the number of objects that a scheduler still holds, by component."""
    held = world.replica.documents.held()
    return {
        **world.scheduler.held(),
        "read documents": sum(1 for document in held if document.twig is not None),
        "written documents": sum(1 for document in held if document.writers),
    }
