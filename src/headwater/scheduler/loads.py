"""Who waits for which document to arrive, or for what won against its commit. Part of the runner component.

A node that waits does not run; whatever comes for it, the document or a change of something else that it read, lets it
try again. What stands on it is known, so that a reader can tell at once that it is not fresh. It fetches nothing.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.scheduler.graph.edges import readers_of
from headwater.scheduler.node import Node


class Loads:
    """The nodes that wait, by document."""

    __slots__ = ("_stale", "_waiting", "winner")

    def __init__(self) -> None:
        # Stands for whatever won against a commit: it is waited for like a document, and nobody fetches it.
        self.winner = Document(DocKey("space", "winner"), Replica())
        self._waiting: dict[Document, dict[Node, None]] = {}
        self._stale: dict[Node, Document] = {}  # who waits, and whoever stands on them, with what is waited for

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, node: Node, document: Document) -> None:
        """It needs the document. Whoever stands on it is to look anew at what it reads: it is not fresh."""
        self.forget(node)
        node.loading = document
        self._waiting.setdefault(document, {})[node] = None
        self._spread(node, document)

    def _spread(self, origin: Node, document: Document) -> None:
        self._stale[origin] = document
        below = [origin]
        while below:
            for reader in readers_of(below.pop()):
                if reader not in self._stale:
                    self._stale[reader] = document
                    reader.expect = (None,)
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
            self._derive()

    def arrived(self, document: Document) -> list[Node]:
        """Everybody who waited for it, and waits no more."""
        nodes = list(self._waiting.pop(document, ()))
        for node in nodes:
            node.loading = None
        if nodes:
            self._derive()
        return nodes

    def _derive(self) -> None:
        """Somebody waits no more: who still stands on somebody who does?"""
        self._stale = {}
        for document, nodes in self._waiting.items():
            for node in nodes:
                self._spread(node, document)

    def above(self, node: Node) -> Document | None:
        """A document that something above a node waits for, or the node itself."""
        return self._stale.get(node)
