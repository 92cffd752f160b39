"""Who waits for which document to arrive. Part of the runner component.

A node that waits does not run; whatever comes for it, the document or a change of something else that it read, lets it
try again. It fetches nothing.
"""

from __future__ import annotations

from headwater.replica.document import Document
from headwater.scheduler.graph.edges import readers_of, writers_above
from headwater.scheduler.node import Node


class Loads:
    """The nodes that wait, by document."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Document, dict[Node, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, node: Node, document: Document) -> None:
        """It needs the document. Whoever stands on it is to look anew at what it reads: it is not fresh."""
        self.forget(node)
        node.loading = document
        self._waiting.setdefault(document, {})[node] = None
        seen = {node}
        below = [node]
        while below:
            for reader in readers_of(below.pop()):
                if reader not in seen:
                    seen.add(reader)
                    reader.expect = [None]
                    below.append(reader)

    def forget(self, node: Node) -> None:
        """It waits no more."""
        document, node.loading = node.loading, None
        if document is not None:
            waiting = self._waiting.get(document)
            if waiting is not None:
                waiting.pop(node, None)
                if not waiting:
                    del self._waiting[document]

    def arrived(self, document: Document) -> list[Node]:
        """Everybody who waited for it, and waits no more."""
        nodes = list(self._waiting.pop(document, ()))
        for node in nodes:
            node.loading = None
        return nodes

    def above(self, node: Node) -> Document | None:
        """A document that something above a node waits for, or the node itself."""
        seen = {node}
        waiting = [node]
        while waiting:
            at = waiting.pop()
            if at.loading is not None:
                return at.loading
            for writer in writers_above(at):
                if writer not in seen:
                    seen.add(writer)
                    waiting.append(writer)
        return None
