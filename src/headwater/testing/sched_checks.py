"""What must hold of a scheduler's graph between two steps, by definition instead of by bookkeeping.

Everything is derived anew from who reads what and who writes what. Decides nothing and changes nothing.
"""

from __future__ import annotations

from typing import cast

from headwater.errors import InvariantViolation
from headwater.replica import Document
from headwater.scheduler import CLEAN, Node, check_node
from headwater.scheduler.graph.edges import readers_of, writers_above
from headwater.scheduler.graph.liveness import rebuilt
from headwater.testing.sched_kit import World


def check_world(world: World, *, heights: bool = True) -> None:
    """Every node is what its fields say it is, and the graph is what a full rebuild would make."""
    nodes = world.nodes()
    live = rebuilt(nodes)
    problems: list[str] = []
    for node in nodes:
        check_node(node)
        if node.live is not live[node]:
            problems.append(f"{node!r} should be {'live' if live[node] else 'dormant'}")
        refs = sum(1 for reader in readers_of(node) if reader.live)
        if node.live_refs != refs:
            problems.append(f"{node!r} has {refs} live readers and counts {node.live_refs}")
        problems += _surface(node)
    if heights:
        problems += out_of_order(nodes)
    if problems:
        raise InvariantViolation("; ".join(problems))


def _surface(node: Node) -> list[str]:
    problems = [f"{node!r} is no writer of {doc!r}" for doc in node.outputs if node not in doc.writers]
    for spot in node.reads[:-1]:
        assert spot is not None
        twig = cast(Document, spot.document).twig
        if twig is None or twig.find(spot.path, spot.depth) is not spot:
            problems.append(f"{node!r} reads {spot!r}, which is not in its document's trie")
    return problems


def reachable(nodes: list[Node]) -> dict[Node, set[Node]]:
    """For each node, everything above it, itself only if it is on a cycle."""
    above: dict[Node, set[Node]] = {}
    for node in nodes:
        seen: set[Node] = set()
        waiting = [node]
        while waiting:
            for writer in writers_above(waiting.pop()):
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
        for writer in set(writers_above(node))
        if node not in above[writer] and node.height <= writer.height
    ]


def has_cycle(nodes: list[Node]) -> bool:
    return any(node in above for node, above in reachable(nodes).items())


def unsettled(world: World) -> list[Node]:
    """Live nodes that have not run although nothing keeps them from it."""
    now = world.clock.monotonic_us()
    return [
        node
        for node in world.nodes()
        if node.status != CLEAN
        and node.live
        and not node.loading
        and (node.gate is None or node.gate.eligible_at <= now)
    ]


def left_behind(world: World) -> dict[str, int]:
    """What a scheduler still holds on to, by component."""
    settle, gates, graph = world.scheduler.settle, world.scheduler.gates, world.scheduler.graph
    held = world.replica.documents.held()
    return {
        "nodes": len(world.scheduler.registry),
        "turns": sum(len(sweep.now) + len(sweep.next) for sweep in (settle._computations, settle._effects)),
        "waiting": len(settle._later) + len(settle._idle) + len(settle._stack),
        "provisional": len(settle._provisional),
        "gated": len(gates._waiting),
        "envelopes": len(graph._envelopes),
        "fates": len(world.scheduler.fates._waiting),
        "read documents": sum(1 for document in held if document.twig is not None),
        "written documents": sum(1 for document in held if document.writers),
    }
