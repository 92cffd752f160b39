"""A transaction outside any run of a node: what handles read and write while a function of the author's is called.

It sees what is visible now; nothing suspends. A document that is not here ends the attempt, and whoever called it loads
it and calls again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

from headwater.cells.open_run import Current, Run
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.errors import AuthoringError
from headwater.replica.confirmed import NotHere
from headwater.replica.document import Document
from headwater.replica.pending import Fate, Layer
from headwater.replica.replica import Replica
from headwater.replica.transaction import BEHIND, Transaction
from headwater.scheduler.failures import INTERRUPTS, as_failure
from headwater.scheduler.freshness import upstream_failed
from headwater.scheduler.node import Node

T = TypeVar("T")
UNDECIDED: Final = frozenset({Fate.QUEUED, Fate.SENT})
RECORDS: Final = ":@"
"""How the documents end that say which piece is there."""


class Missing(NotHere):
    """A document that is not here, of this space or of another one."""

    def __init__(self, document: Document) -> None:
        super().__init__(document.key)
        self.document = document


class Elsewhere(AuthoringError):
    """A write to a document of another space than the transaction's."""

    def __init__(self, document: Document) -> None:
        super().__init__(f"{document!r} is of another space: a transaction writes one space only")
        self.home = document.home


def check_computed(document: Document) -> bool:
    """Whether what a document shows was computed, if it is to be. UpstreamFailedError: it could not be."""
    for writer in document.writers:
        if isinstance(writer, Node) and writer.error is not None:
            raise upstream_failed(writer)
    return not document.writers or any(isinstance(each, Node) and each.is_known for each in document.writers)


class TransactionTracker:
    """The tracker of one transaction."""

    __slots__ = ("_home", "_seen", "_transaction", "_visible", "elsewhere", "wrote")

    def __init__(self, home: Replica, transaction: Transaction, visible: Callable[[Document], object]) -> None:
        self._home = home
        self._transaction = transaction
        self._visible = visible  # raises where what is shown is not to be read outside a run
        self.wrote: dict[Document, None] = {}
        self._seen: set[Node] = set()  # nodes whose sources are noted
        self.elsewhere: dict[Document, None] = {}  # of other spaces, read here or by nodes, with writes on top

    def missed(self, run: Run, spot: Spot) -> Spot:
        document = cast(Document, spot.document)
        if document.writers:
            self._visible(document)
            self._read_by_nodes(document)
        if document.home is self._home:
            self._transaction.saw(document.key, spot.path, spot.depth)
        elif document.layers:
            self.elsewhere[document] = None
        return spot

    def _read_by_nodes(self, document: Document) -> None:
        """Note the documents of other spaces that the value of a computed document follows from."""
        waiting = [each for each in document.writers if isinstance(each, Node)]
        while waiting:
            node = waiting.pop()
            if node not in self._seen:
                self._seen.add(node)
                for source in [cast(Document, spot.document) for spot in node.reads if spot is not None]:
                    waiting += [each for each in source.writers if isinstance(each, Node)]
                    if source.layers and source.home is not self._home:
                        self.elsewhere[source] = None

    def undecided_elsewhere(self) -> tuple[Layer, ...]:
        """The writes of other spaces without a verdict that were read, directly or through what nodes make of them.

        Not the result of a node that is there: that follows from the other writes that are noted.
        """
        return tuple(
            {
                layer: None
                for document in self.elsewhere
                for layer in document.layers
                if layer.fate in UNDECIDED and not (document.writers and layer.is_derived())
            }
        )

    def absent(self, run: Run, document: Document) -> None:
        raise Missing(document)

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        if document.home is not self._home:
            raise Elsewhere(document)
        if document.writers:
            refuse_computed(document)
        if document.layers:
            self._stand_behind(document, patch.path)
        self._transaction.write(document.key, patch)
        cast("dict[Document, None]", run.overlay)[document] = None
        self.wrote[document] = None

    def _stand_behind(self, document: Document, path: Path) -> None:
        """Have this transaction land after earlier writes of this runtime to a document that may be made again."""
        layers = falling(document)
        if layers:
            self._transaction.stand_behind(document.key, layers)


def falling(document: Document) -> list[Layer]:
    """The undecided writes to a document outside any run that may be rejected, as far as a newer one names none.

    The newest one tells whether there are any: a write that lands after one of them names it, and may be rejected, too.
    """
    found: list[Layer] = []
    for layer in reversed(document.layers):
        if layer.source is None:
            if layer.fate not in UNDECIDED or not may_fall(layer):
                break
            found.append(layer)
            if any(read.doc == document.key and read.path == BEHIND for read in layer.commit.reads):
                break
    return found


def may_fall(layer: Layer) -> bool:
    """Whether a write outside any run may be rejected: it read something, or others may change what it fits."""
    # fault writing.misfits_overtaken: return has_read(layer)
    return has_read(layer) or _may_misfit(layer)


def has_read(layer: Layer) -> bool:
    """Whether a write outside any run stands on something that others may change, so that it may be rejected.

    That its piece is there is no such thing: whatever else is sent to that piece stands on it, too, and falls with it.
    """
    return layer.document is None and any(not read.doc.id.endswith(RECORDS) for read in layer.commit.reads)


def _may_misfit(layer: Layer) -> bool:
    """Whether patches of a layer need something to be there: a key that they replace or remove, or the way to one."""
    document = layer.document
    if document is not None:
        if type(layer.after) is not dict:
            return False  # It is told as a whole.
        document.home.tell()
    return any(
        patch.path or patch.kind == "remove" for operation in layer.commit.operations for patch in operation.patches
    )


def refuse_computed(document: Document) -> None:
    """What a node makes is not written by hand: it would be shown until the node runs again, and then be gone (I1)."""
    for writer in document.writers:
        if isinstance(writer, Node) and writer.returns and writer.outputs[0] is document:
            raise AuthoringError(f"{document!r} is computed by {writer.id}: write what that reads, not its result")


def call_in(
    current: Current,
    home: Replica,
    transaction: Transaction,
    visible: Callable[[Document], object],
    fn: Callable[[], T],
    tracker: TransactionTracker | None = None,
) -> T:
    """Call a function whose handles read and write through a transaction."""
    if current.run is not None:
        raise AuthoringError("a transaction cannot begin inside a run: it is one already")
    tracker = tracker or TransactionTracker(home, transaction, visible)
    run = Run(tracker)
    run.number = current.number_apart()  # No spot was looked at in it.
    run.transaction = transaction
    run.overlay = {}
    current.run = run
    try:
        made = fn()
        if tracker.elsewhere:
            transaction.waits = tracker.undecided_elsewhere()
        return made
    except (*INTERRUPTS, Exception):
        raise
    except BaseException as error:  # It would cancel or end whoever calls this; nobody asked for that.
        raise as_failure(error) from error
    finally:
        current.run = None
