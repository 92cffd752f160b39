"""Edges between nodes. They are not stored: a spot knows its readers, a document its writers, and that is an edge.

One edge for each spot that a node reads in another node's output. A node is no neighbour of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.scheduler.node import Node


def writers_of(document: Document) -> tuple[Node, ...]:
    """The nodes whose declared output a document is."""
    return cast("tuple[Node, ...]", document.writers)


def writers_above(node: Node) -> Iterator[Node]:
    """Whose outputs it reads: once for each spot that it reads there."""
    for spot in node.reads:
        if spot is not None:
            for writer in cast("Document", spot.document).writers:
                if writer is not node:
                    yield cast("Node", writer)


def readers_of(node: Node) -> Iterator[Node]:
    """Who reads its outputs: once for each spot that they read there."""
    for document in node.outputs:
        if document.twig is not None:
            for spot in document.twig.spots():
                for reader in spot.readers:
                    if reader is not node:
                        yield cast("Node", reader)
