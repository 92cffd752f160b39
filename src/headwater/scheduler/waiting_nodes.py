"""Nodes that wait for a document to arrive, or for the commit that won against theirs. Part of the runner component.

A waiting node does not run. The arrival of its document, or a change of another value that it read, lets it try again.
A node is *held* while it is not known yet whether it has to run; then changes do not let it try. A waiting node and the
nodes below it are stale: `above` tells a reader so at once, and the reader waits behind the stale writer until that is
not stale any more, for whatever reason. A node whose document arrived is stale until its next attempt is over, so that
the nodes behind it are not tried for each document that it misses. `WaitingNodes` fetches nothing; it reports documents
that were requested and that no node waits for any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headwater.data.address import DocKey
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.scheduler.graph.edges import readers_of, writers_above
from headwater.scheduler.node import AFRESH, Node


class WaitingNodes:
    """The waiting nodes, by document."""

    __slots__ = (
        "_behind",
        "_came",
        "_doubtful",
        "_due",
        "_followers",
        "_held",
        "_on_freed",
        "_on_left",
        "_rounds",
        "_stale",
        "_waiting",
        "steps",
        "winner",
    )

    def __init__(self, on_left: Callable[[Document], object], on_freed: Callable[[Node], object]) -> None:
        self._on_left = on_left  # called with a document that no node waits for any more and that may be unread
        # called with a node that may try again, since the node in front of it is not stale any more
        self._on_freed = on_freed
        # Stands for the commit that won a conflict: nodes wait for it as for a document, and it is never fetched.
        self.winner = Document(DocKey("space", "winner"), Replica())
        self._waiting: dict[Document, dict[Node, None]] = {}  # nodes that wait for a document and not behind a node
        self._behind: dict[Node, Node] = {}  # waiting node -> the stale node that it waits behind
        self._followers: dict[Node, dict[Node, None]] = {}  # the inverse of `_behind`
        # waiting nodes that no change releases: it is not known yet whether they have to run
        self._held: dict[Node, None] = {}
        self._stale: dict[Node, Document] = {}  # waiting nodes and all nodes below them, each with the awaited document
        self._doubtful: dict[Node, None] = {}  # stale nodes that may not wait, or not be below a waiting node, any more
        # node -> document that arrived for it, until an attempt has shown whether it is read
        self._came: dict[Node, Document] = {}
        # nodes that were released and whose next attempt is to come, each with the document that it waited for
        self._due: dict[Node, Document] = {}
        # node -> a cycle of stale nodes, each with the next one that it waits for: found once, and not for each member
        self._rounds: dict[Node, dict[Node, Node]] = {}
        self.steps = 0  # nodes that were looked at to find who holds up a node, for tests that count work

    def __bool__(self) -> bool:
        return bool(self._waiting or self._behind)

    @property
    def is_used(self) -> bool:
        """True if a node waits, or waited and has not tried again."""
        return bool(self._waiting or self._behind or self._came)

    # ---- waiting -------------------------------------------------------------------------------------

    def wait(self, node: Node, document: Document, behind: Node | None = None) -> None:
        """Make a node wait for a document that it, or the node `behind`, needs. The nodes below it are stale."""
        before = self._leave(node)
        node.loading = document
        if self._rounds:
            self._check_round(node, () if behind is None else (behind,))
        if behind is None:
            self._waiting.setdefault(document, {})[node] = None
        else:
            self._behind[node] = behind
            self._followers.setdefault(behind, {})[node] = None
        self._stale[node] = document
        self._spread([node])
        if before is not None:
            self._left(before)

    def hold(self, node: Node, until: Document) -> None:
        """Make a node wait until it is known whether it has to run. No change lets it try before `until` arrives."""
        self.wait(node, until)
        self._held[node] = None

    def changed(self, node: Node, document: Document) -> None:
        """Release a node that read a document which changed: it may need another document now.

        A held node goes on waiting, and so does a node behind the writer of this document: the stored value of an
        output that arrives before its writer has run is no result.
        """
        front = self._behind.get(node)
        # fault+ waiting.stored_output_releases_readers: front = None
        if front is not None and front.loading is not None and document in front.outputs:
            return
        # fault resume.held_nodes_passed_over: if True:
        if node not in self._held:
            awaited = self._leave(node, is_due=True)
            if awaited is not None:
                self._left(awaited)

    def joined(self, node: Node) -> None:
        """Mark a node that was resumed with its reads as stale, if it is below a waiting node."""
        # fault+ resume.held_nodes_passed_over: return
        # I1: a reader of this node waits, and does not combine a result from before a write with one from after it.
        if self and self.above(node) is None:
            document = self._held_up_by(node)
            if document is not None:
                self._stale[node] = document
                node.expect = AFRESH
                self._spread([node])

    def forget(self, node: Node) -> None:
        """Stop the waiting of a node that is removed."""
        document = self._leave(node)
        if document is not None:
            self._left(document)
        self.kept(node)
        self._check_round(node, ())

    def in_front_of(self, node: Node) -> Node | None:
        """Return the node that a waiting node waits behind, if it does not need the document itself."""
        return self._behind.get(node)

    def awaited_by(self, node: Node) -> Document | None:
        """Return the document that a node waits for now, itself or behind other nodes. None: the node does not wait."""
        if node not in self._behind:
            return node.loading
        for held_up in self._holding_up(node):
            if self._is_origin(held_up):
                return held_up.loading or node.loading
        return node.loading

    def is_behind(self, node: Node, other: Node) -> bool:
        """True if the wait of a stale node ends no earlier than the next attempt of `other`, which reads it."""
        if other not in self._stale:
            return False
        found = self._rounds.get(node)
        # fault+ waiting.rounds_walked_each_time: found = None
        if found is not None and found is self._rounds.get(other):
            return True
        came_by: dict[Node, Node] = {node: node}
        if not any(each is other for each in self._holding_up(node, came_by)):
            return False
        if other.loading is not None:
            return True  # It waits for something else, and not round this cycle.
        cycle = {other: node}
        while other is not node:
            other, after = came_by[other], other
            cycle[other] = after
        for each in cycle:
            self._end_round(each)
        self._rounds.update(dict.fromkeys(cycle, cycle))
        return True

    def _check_round(self, node: Node, above: Iterable[Node]) -> None:
        """End the cycle of a node that does not wait for the next one any more, with the nodes `above` it now."""
        cycle = self._rounds.get(node)
        if cycle is not None and not any(each is cycle[node] for each in above):
            self._end_round(node)

    def _end_round(self, node: Node) -> None:
        for each in self._rounds.get(node, ()):
            del self._rounds[each]

    def _holding_up(self, node: Node, came_by: dict[Node, Node] | None = None) -> Iterator[Node]:
        """Yield the node and the nodes whose waiting makes it stale, up to those that wait for a document.

        `came_by` gets, for each of them, the node below it.
        """
        seen = {node: node} if came_by is None else came_by
        waiting = [node]
        while waiting:
            at = waiting.pop()
            self.steps += 1
            yield at
            front = self._behind.get(at)
            above: Iterable[Node] = () if front is None else (front,)
            if at.loading is None:
                above = writers_above(at)
            for each in above:
                if each in self._stale and each not in seen:
                    seen[each] = at
                    waiting.append(each)

    def came(self, node: Node) -> None:
        """Release a node whose document was here at once."""
        document = self._leave(node, is_due=True)
        if document is not None:
            self._came[node] = document

    def arrived(self, document: Document) -> list[Node]:
        """Release and return the nodes that waited for a document. The nodes behind them go on waiting."""
        nodes = list(self._waiting.get(document, ()))
        is_due = document is not self.winner
        for node in nodes:
            self._leave(node, is_due=is_due)
            if is_due:
                self._came[node] = document
        return nodes

    def _leave(self, node: Node, *, is_due: bool = False) -> Document | None:
        """End a node's waiting. `is_due`: its next attempt decides whether the nodes below it are still stale."""
        self._due.pop(node, None)
        document, node.loading = node.loading, None
        if document is None:
            return None
        self._held.pop(node, None)
        front = self._behind.pop(node, None)
        if front is None:
            waiting = self._waiting[document]
            del waiting[node]
            if not waiting:
                del self._waiting[document]
        else:
            followers = self._followers[front]
            del followers[node]
            if not followers:
                del self._followers[front]
            if self._rounds:
                self._check_round(node, writers_above(node))
        if not (self._waiting or self._behind):
            self._stale.clear()
            self._doubtful.clear()
            self._due.clear()
            self._rounds.clear()
        # fault waiting.nodes_behind_tried_for_each_document: elif False:
        elif is_due:
            self._due[node] = document
        else:
            self._doubtful[node] = None
        return document

    # ---- stale nodes ---------------------------------------------------------------------------------

    def above(self, node: Node) -> Document | None:
        """Return the document that the node or a node above it waits for. None: the node is not stale, or can run."""
        if self._doubtful:
            self._derive()
        return None if node in self._due else self._stale.get(node)

    def _spread(self, origins: list[Node]) -> None:
        """Mark all nodes below these stale ones as stale."""
        while origins:
            origin = origins.pop()
            document = self._stale[origin]
            for reader in self._below(origin):
                if reader not in self._stale:
                    self._stale[reader] = document
                    reader.expect = AFRESH
                    origins.append(reader)

    def _below(self, node: Node) -> Iterator[Node]:
        yield from readers_of(node)
        yield from tuple(self._followers.get(node, ()))

    def _derive(self) -> None:
        """Recompute which nodes below the doubtful ones are still below a waiting node."""
        region = {node: None for node in self._doubtful if node in self._stale}
        self._doubtful.clear()
        below = list(region)
        while below:
            for reader in self._below(below.pop()):
                # A node that waits for a document itself stays stale, and so do the nodes below it.
                if reader in self._stale and reader not in region and not self._is_origin(reader):
                    region[reader] = None
                    below.append(reader)
        for node in region:
            del self._stale[node]
        # Round a cycle, a node in the region may be stale only because of a node that waits behind it.
        inside = [node for node in region if self._behind.get(node) in region]
        # fault waiting.cycles_hold_themselves_up: self._mark_stale(region)
        self._mark_stale([node for node in region if self._behind.get(node) not in region])
        for node in inside:
            if self._behind[node] in self._stale:
                self._mark_stale([node])  # Otherwise the node tries again: it may not read what it read before.
        for node in region:
            if node not in self._stale:
                self._end_round(node)
                self._free(tuple(self._followers.get(node, ())))

    def _mark_stale(self, nodes: Iterable[Node]) -> None:
        """Mark those of the nodes as stale that are held up, and all nodes below them."""
        origins = []
        for node in nodes:
            document = self._held_up_by(node)
            if document is not None:
                self._stale[node] = document
                node.expect = AFRESH
                origins.append(node)
        self._spread(origins)

    def _is_origin(self, node: Node) -> bool:
        """True if a node waits for a document that it needs itself, or is about to try again."""
        return node in self._due or (node.loading is not None and node not in self._behind)

    def _held_up_by(self, node: Node) -> Document | None:
        if node.removed:
            return None
        if self._is_origin(node):
            return self._due.get(node) or node.loading
        front = self.in_front_of(node)
        if front is not None and front in self._stale:
            return self._stale[front]
        return next((self._stale[writer] for writer in writers_above(node) if writer in self._stale), None)

    def _free(self, followers: Iterable[Node]) -> None:
        for node in followers:
            document = self._leave(node)
            if document is not None:
                self._left(document)
                # I9: the node has its turn in this pass, before readers of its output that are not stale any more.
                # fault waiting.freed_nodes_have_no_turn: pass
                self._on_freed(node)

    # ---- after the wait ------------------------------------------------------------------------------

    def kept(self, node: Node) -> None:
        """Note that an attempt was completed, or that there will be none: the node's reads are known."""
        if node in self._stale:
            self._doubtful[node] = None
        if self._rounds:
            self._check_round(node, writers_above(node))
        self.tried(node)

    def tried(self, node: Node) -> None:
        """Note that an attempt has shown whether the node reads the document that arrived for it."""
        self._due.pop(node, None)
        document = self._came.pop(node, None) if self._came else None
        if document is not None:
            self._left(document)

    def is_untidy(self) -> bool:
        # fault waiting.due_node_without_turn_kept: return bool(self._came or self._doubtful)
        return bool(self._came or self._due or self._doubtful)

    def is_freeing(self) -> bool:
        """True if nodes that wait behind others may be able to try again, which the next tick finds out."""
        return bool(self._behind and (self._doubtful or self._due))

    def tidy(self) -> None:
        """Clean up at the end of a pass.

        Documents that arrived for nodes without demand are given up; they are requested again when needed.
        """
        for node in [node for node in self._due if not node.live or (node.queued < 0 and not node.suspended)]:
            del self._due[node]  # The node has no turn: it is clean, gated or not demanded.
            self._doubtful[node] = None
        for node in [node for node in self._came if not node.live]:
            self.tried(node)
        if self._doubtful:
            self._derive()

    def _left(self, document: Document) -> None:
        if document is not self.winner and document not in self._waiting:
            self._on_left(document)

    def nodes(self) -> Iterator[Node]:
        """Yield every waiting node."""
        for waiting in self._waiting.values():
            yield from waiting
        yield from self._behind

    def is_awaited(self, document: Document) -> bool:
        return document in self._waiting

    def awaited(self) -> Iterator[Document]:
        """Yield the documents that demanded nodes wait for. Most callers need the first one only."""
        return (document for document, nodes in self._waiting.items() if any(node.live for node in nodes))
