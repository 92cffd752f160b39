"""Who waits for which document to arrive, or for what won against its commit. Part of the runner component.

A node that waits does not run; whatever comes for it, the document or a change of something else that it read, lets it
try again. A node is held while it is not known yet whether it has to run; then changes do not let it try. What stands
on a node that waits is not fresh, which a reader can tell at once, and waits behind it: until it waits no more, for
whatever reason. Loads fetches nothing, and says which documents were asked for and are of no use to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headwater.data.address import DocKey
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.scheduler.graph.edges import readers_of, writers_above
from headwater.scheduler.node import Node


class WaitingNodes:
    """The nodes that wait, by document."""

    __slots__ = (
        "_behind",
        "_came",
        "_doubtful",
        "_followers",
        "_freed",
        "_held",
        "_on_left",
        "_stale",
        "_waiting",
        "winner",
    )

    def __init__(self, on_left: Callable[[Document], object]) -> None:
        self._on_left = on_left  # whoever asked for a document does not wait for it and may not have read it
        # Stands for whatever won against a commit: it is waited for like a document, and nobody fetches it.
        self.winner = Document(DocKey("space", "winner"), Replica())
        self._waiting: dict[Document, dict[Node, None]] = {}
        self._behind: dict[Node, Node] = {}  # who of them waits because another one is held up, and which
        self._followers: dict[Node, dict[Node, None]] = {}  # the same, the other way round
        self._held: dict[Node, None] = {}  # who of them waits on whatever changes: it is not known what it is to do
        self._stale: dict[Node, Document] = {}  # who waits, and whoever stands on them, with what is waited for
        self._doubtful: dict[Node, None] = {}  # of these: who may wait or stand on somebody who does no more
        self._freed: list[Node] = []  # may try again, since nobody is in front of them
        self._came: dict[Node, Document] = {}  # what arrived for whom, until an attempt has shown whether it is of use

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_used(self) -> bool:
        """Whether anybody waits, or did and has not tried again."""
        return bool(self._waiting or self._came)

    # ---- who waits -----------------------------------------------------------------------------------

    def wait(self, node: Node, document: Document, behind: Node | None = None) -> None:
        """It needs the document, or somebody who does. Whoever stands on it is to look anew: it is not fresh."""
        before = self._leave(node)
        node.loading = document
        self._waiting.setdefault(document, {})[node] = None
        if behind is not None:
            self._behind[node] = behind
            self._followers.setdefault(behind, {})[node] = None
        self._stale[node] = document
        self._spread([node])
        if before is not None:
            self._left(before)

    def hold(self, node: Node, until: Document) -> None:
        """It is not known yet whether it has to run: until that is over, no change lets it try."""
        self.wait(node, until)
        self._held[node] = None

    def changed(self, node: Node) -> None:
        """Something that it read changed: it tries again, since it may need something else now. Held, it waits on."""
        # fault resume.held_nodes_passed_over: if True:
        if node not in self._held:
            self.forget(node)

    def joined(self, node: Node) -> None:
        """It came back with its reads: it is as stale as those who wait, if it stands on one of them."""
        # fault+ resume.held_nodes_passed_over: return
        # I1: a reader of this node waits, and sees no result of before a write beside one of after it.
        if self._waiting and self.above(node) is None:
            document = self._held_up_by(node)
            if document is not None:
                self._stale[node] = document
                node.expect = (None,)
                self._spread([node])

    def forget(self, node: Node) -> None:
        """It waits no more, and nothing that came is for it: it is removed, or something else made it try again."""
        document = self._leave(node)
        if document is not None:
            self._left(document)
        self.kept(node)

    def in_front_of(self, node: Node) -> Node | None:
        """The node that holds a waiting node up, if it does not wait for a document itself."""
        return self._behind.get(node)

    def came(self, node: Node) -> None:
        """What it asked for was here at once."""
        document = self._leave(node)
        if document is not None:
            self._came[node] = document

    def arrived(self, document: Document) -> list[Node]:
        """Everybody who waited for it, and waits no more."""
        nodes = list(self._waiting.get(document, ()))
        for node in nodes:
            self._leave(node)
            if document is not self.winner:
                self._came[node] = document
        return nodes

    def _leave(self, node: Node) -> Document | None:
        document, node.loading = node.loading, None
        if document is None:
            return None
        waiting = self._waiting[document]
        del waiting[node]
        self._held.pop(node, None)
        if not waiting:
            del self._waiting[document]
        front = self._behind.pop(node, None)
        if front is not None:
            followers = self._followers[front]
            del followers[node]
            if not followers:
                del self._followers[front]
        if self._waiting:
            self._doubtful[node] = None
        else:
            self._stale.clear()
            self._doubtful.clear()
        return document

    # ---- who stands on them --------------------------------------------------------------------------

    def above(self, node: Node) -> Document | None:
        """A document that something above a node waits for, or the node itself."""
        if self._doubtful:
            self._derive()
        return self._stale.get(node)

    def _spread(self, origins: list[Node]) -> None:
        """These are stale, and with them whoever stands on them."""
        while origins:
            origin = origins.pop()
            document = self._stale[origin]
            for reader in self._below(origin):
                if reader not in self._stale:
                    self._stale[reader] = document
                    reader.expect = (None,)
                    origins.append(reader)

    def _below(self, node: Node) -> Iterator[Node]:
        yield from readers_of(node)
        yield from tuple(self._followers.get(node, ()))

    def _derive(self) -> None:
        """Some wait no more, or read something else: who below them still stands on somebody who waits?"""
        region = {node: None for node in self._doubtful if node in self._stale}
        self._doubtful.clear()
        below = list(region)
        while below:
            for reader in self._below(below.pop()):
                if reader in self._stale and reader not in region:
                    region[reader] = None
                    below.append(reader)
        for node in region:
            del self._stale[node]
        origins = []
        for node in region:
            document = self._held_up_by(node)
            if document is not None:
                self._stale[node] = document
                node.expect = (None,)
                origins.append(node)
        self._spread(origins)
        for node in region:
            if node not in self._stale:
                self._free(tuple(self._followers.get(node, ())))

    def _held_up_by(self, node: Node) -> Document | None:
        if node.removed:
            return None
        front = self.in_front_of(node)
        if node.loading is not None and front is None:
            return node.loading
        if front is not None and front in self._stale:
            return self._stale[front]
        return next((self._stale[writer] for writer in writers_above(node) if writer in self._stale), None)

    def _free(self, followers: Iterable[Node]) -> None:
        for node in followers:
            document = self._leave(node)
            if document is not None:
                self._freed.append(node)
                self._left(document)

    # ---- what became of it ---------------------------------------------------------------------------

    def kept(self, node: Node) -> None:
        """An attempt came to its end, or there will be none: what it reads is known."""
        if node in self._stale:
            self._doubtful[node] = None
        self.tried(node)

    def tried(self, node: Node) -> None:
        """What it read of what came for it is known."""
        document = self._came.pop(node, None) if self._came else None
        if document is not None:
            self._left(document)

    def is_untidy(self) -> bool:
        return bool(self._came or self._doubtful or self._freed)

    def tidy(self) -> list[Node]:
        """A pass is over. Who may try again; what came for nodes that nobody demands is asked for again if needed."""
        for node in [node for node in self._came if not node.live]:
            self.tried(node)
        if self._doubtful:
            self._derive()
        freed, self._freed = self._freed, []
        return freed

    def _left(self, document: Document) -> None:
        if document is not self.winner and document not in self._waiting:
            self._on_left(document)

    def nodes(self) -> Iterator[Node]:
        """Everybody who waits."""
        for waiting in self._waiting.values():
            yield from waiting

    def is_awaited(self, document: Document) -> bool:
        return document in self._waiting
