"""Nodes that stand on each other: which way leads from one of them back to itself. For messages; decides nothing.

The way is looked for in what nodes read in their last runs and in what their code names. One that leads through a child
is in neither, as long as no attempt came to its end; but then these attempts wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.replica.document import Document
from headwater.scheduler.graph.edges import writers_above, writers_of
from headwater.scheduler.node import Node


def circle(node: Node, document: Document, stopped: Sequence[Node]) -> tuple[str, ...]:
    """A way from a node through a document that it reads back to itself, by name; empty: there is none.

    `stopped` are attempts that wait, each for the next one and the last for the node.
    """
    came_from: dict[Node, Node] = {}
    waiting = []
    for writer in writers_of(document):
        came_from.setdefault(writer, node)
        waiting.append(writer)
    writers = set(waiting)
    for each in waiting:  # It grows: the nearest come first.
        if each is node:
            return _names(node, came_from)
        for above in _above(each):
            if above not in came_from:
                came_from[above] = each
                waiting.append(above)
    for place, each in enumerate(stopped):
        if each in writers:
            return (node.id, *(other.id for other in stopped[place:]), node.id)
    return ()


def _above(node: Node) -> Iterator[Node]:
    """What it read in its last run, and what its code names: an attempt that was stopped leaves no reads."""
    yield from writers_above(node)
    for document in node.declared:
        yield from writers_of(document)


def _names(node: Node, came_from: dict[Node, Node]) -> tuple[str, ...]:
    way = [node.id]
    each = came_from[node]
    while each is not node:
        way.append(each.id)
        each = came_from[each]
    return (node.id, *reversed(way[1:]), node.id)
