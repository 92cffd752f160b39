"""Derived values on the view of one transaction.

A handler that writes a cell and then reads a computed over that cell gets the value for its own write. Nodes know only
the shown documents, so `OwnView` calls the function of such a node inside the transaction: its reads join the reads of
the transaction, and its result is visible in the transaction alone. The node itself runs after the commit, like any
other reader of the cell.

A node needs this only if it read a place that the transaction has written, directly or through other nodes: any other
node would have the same result. Results hold until the next write of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from headwater.cells.open_run import Run
from headwater.data.address import doc_text
from headwater.data.change import overlaps
from headwater.data.patch import Patch, apply
from headwater.data.path import starts_with
from headwater.data.value import ABSENT, MaybeValue, freeze
from headwater.errors import AuthoringError, UpstreamFailedError
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.transaction import Transaction
from headwater.scheduler.freshness import failed_upstream
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.replica.replica import Replica
    from headwater.scheduler.graph.graph import Graph

T = TypeVar("T")


class TransientPiece(Protocol):
    """A child that exists in the view of one transaction only."""

    nodes: list[Node]

    def stop(self) -> None: ...


class OwnView:
    """The derived values that one transaction has computed for itself."""

    __slots__ = ("_called", "_failures", "_graph", "_home", "_results", "_transaction", "_unaffected", "children")

    def __init__(self, graph: Graph, home: Replica, transaction: Transaction) -> None:
        self._graph = graph
        self._home = home
        self._transaction = transaction
        self._results: dict[Node, None] = {}  # nodes that were computed since the last write
        self._failures: dict[Node, UpstreamFailedError] = {}
        self._unaffected: set[Node] = set()  # nodes that read nothing that was written
        self._called: list[Node | None] = []  # nodes whose functions are being called, the innermost last
        self.children: dict[str, TransientPiece] = {}  # by id

    @property
    def is_calling(self) -> bool:
        """True while the function of a node is called."""
        return bool(self._called)

    def forget_results(self, run: Run, written: Container[Document]) -> None:
        """Forget all results, because the transaction writes. Documents that it has written itself stay in its view."""
        self._unaffected.clear()
        overlay = cast("dict[Document, None]", run.overlay)
        for document in self._transaction.forget_computed():
            if document not in written:
                overlay.pop(document, None)
        self._results.clear()
        self._failures.clear()

    def end(self) -> None:
        """End the children that exist in this view only."""
        for child in self.children.values():
            child.stop()
        self.children.clear()

    # ---- which nodes -------------------------------------------------------------------------------

    def is_transient(self, node: object) -> bool:
        """True if a node belongs to a child that exists in this view only."""
        return any(node in child.nodes for child in self.children.values())

    def affected_writers(self, document: Document) -> list[Node]:
        """Return the writers of a document whose results differ in this view, or may."""
        return [each for each in self._writers(document) if self._is_affected(each)]

    def _writers(self, document: Document) -> list[Node]:
        """Return the nodes that may write a document, materializers included."""
        return [*cast("tuple[Node, ...]", document.writers), *self._graph.materializers(document)]

    def _is_affected(self, node: Node) -> bool:
        """True if the transaction wrote a place that a node has read, directly or through other nodes."""
        if node in self._unaffected:
            return False
        if self.is_transient(node):
            return True
        seen, waiting = {node}, [node]
        while waiting:
            for spot in waiting.pop().reads[:-1]:
                assert spot is not None
                source = cast(Document, spot.document)
                if source.home is self._home and any(
                    overlaps(touch, spot.path, spot.depth) for touch in self._transaction.touches(source.key)
                ):
                    return True
                for writer in self._writers(source):
                    if writer not in seen and writer not in self._unaffected:
                        seen.add(writer)
                        waiting.append(writer)
        self._unaffected |= seen
        return False

    # ---- computing ---------------------------------------------------------------------------------

    def is_computed(self, document: Document) -> bool:
        """True if a document was computed for this view since the last write. Raises the failure of its node."""
        found = [each for each in self._writers(document) if each in self._results]
        for node in found:
            if node in self._failures:
                raise self._failures[node]
        return bool(found)

    def compute(self, run: Run, document: Document) -> None:
        """Compute the writers of a document for this view, and before them the affected nodes that these read.

        The order keeps the depth of the Python stack independent of the length of a chain of nodes. A node whose
        function is being called is left out: it reads its shown value, as a node on a cycle does.
        """
        waiting = [each for each in self.affected_writers(document) if each not in self._called]
        entered = set(waiting)
        while waiting:
            node = waiting[-1]
            above = [] if node in self._results else self._uncomputed_above(node, entered)
            if above:
                entered.update(above)
                waiting += above
            else:
                waiting.pop()
                if node not in self._results:
                    self._compute_node(run, node)

    def _uncomputed_above(self, node: Node, entered: set[Node]) -> list[Node]:
        found: dict[Node, None] = {}
        for spot in node.reads[:-1]:
            assert spot is not None
            for writer in self._writers(cast(Document, spot.document)):
                if writer in entered or writer in self._called:
                    continue
                if writer not in self._results and self._is_affected(writer):
                    found[writer] = None
        return list(found)

    def _compute_node(self, run: Run, node: Node) -> None:
        try:
            result = self.call(node, node.apart or node.fn)
            if node.returns:
                output = node.outputs[0]
                before = ABSENT if output.value is NOT_HERE else output.value
                value = cast(MaybeValue, result) if node.encode is None else node.encode(result, before)
                self._show(run, output, value if value is ABSENT else freeze(value))
        except Exception as error:  # Its reader gets it, as it gets the failure of a run.
            self._failures[node] = failed_upstream(node.id, error)
        self._results[node] = None

    def call(self, node: Node | None, fn: Callable[[], T]) -> T:
        """Call the function of a node, or of a row without a node. Its writes stay in this view."""
        self._called.append(node)
        try:
            return fn()
        finally:
            self._called.pop()

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        """Apply a declared side write of the node whose function is called, in this view only."""
        node = self._called[-1]
        outputs = () if node is None else node.outputs
        envelope = () if node is None else node.envelope
        if document not in outputs and not any(
            document is inside and starts_with(patch.path, path) for inside, path in envelope
        ):
            name = "a row" if node is None else node.id
            raise AuthoringError(
                f"{name} writes {doc_text(document.key, patch.path)}, which it did not declare: declare it with "
                "writes=(...) or a materializer's envelope=(...), or do it in a handler."
            )
        if document.value is NOT_HERE:
            run.tracker.absent(run, document)
        value, _ = apply(self._transaction.look_up(document), patch)
        self._show(run, document, value)

    def _show(self, run: Run, document: Document, value: MaybeValue) -> None:
        self._transaction.show_computed(document, value)
        cast("dict[Document, None]", run.overlay)[document] = None
