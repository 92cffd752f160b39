"""Edges between nodes, derived and not stored: a spot has its readers, and a document its writers.

There is one edge for each spot that a node reads in the output of another node, and one to its keeper, the node that
decides whether it exists. Demand and order follow all edges; changes reach readers only. A node has no edge to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.scheduler.node import Node


def writers_of(document: Document) -> tuple[Node, ...]:
    """Return the nodes that declare a document as an output."""
    return cast("tuple[Node, ...]", document.writers)


def writers_above(node: Node) -> list[Node]:
    """Return the nodes whose outputs a node reads, once for each spot read there."""
    found: list[Node] = []
    for spot in node.reads:
        if spot is not None:
            for writer in spot.document.writers:  # type: ignore[attr-defined]  # as every spot of a node
                if writer is not node:
                    found.append(writer)
    return found


def readers_of(node: Node) -> Iterator[Node]:
    """Yield the nodes that read the outputs of a node, once for each spot read there."""
    for document in node.outputs:
        if document.twig is not None:
            for spot in document.twig.spots():
                for reader in spot.readers:
                    if reader is not node:
                        yield reader  # type: ignore[misc]  # as every reader of a spot


def nodes_above(node: Node) -> list[Node]:
    """Return the nodes that a node demands and that run before it: `writers_above`, and its keeper."""
    found = writers_above(node)
    # fault edges.keepers_not_demanded: if False:
    if node.keeper is not None and not node.keeper.removed:
        found.append(node.keeper)
    return found


def nodes_below(node: Node) -> Iterator[Node]:
    """Yield the nodes that demand a node: `readers_of`, and the nodes that it keeps."""
    yield from readers_of(node)
    for each in node.children or ():
        if each.keeper is node:
            yield each


def readers_of_writes(node: Node) -> Iterator[Node]:
    """Yield the nodes that read a document which a node may write: an output, or one of its envelope."""
    yield from readers_of(node)
    # fault edges.readers_of_envelopes_ignored: for document, _ in ():
    for document, _ in node.envelope:
        if document.twig is not None:
            yield from (
                cast("Node", each) for spot in document.twig.spots() for each in spot.readers if each is not node
            )
