"""The tracker of a transaction outside any run of a node: records the reads and writes of handles.

An author's function is called with the tracker in place and reads the values that are visible now; nothing suspends. A
read of a document that is not here ends the attempt (`Missing`). A write to one is left out and the function goes on to
its next read: the writes in between tell which documents are missing, too. The caller loads all of them and calls the
function again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
"""Ending of the ids of the documents that are records of pieces."""


class Missing(NotHere):
    """Documents that are not here, of this space or of another one."""

    def __init__(self, document: Document, *others: Document) -> None:
        super().__init__(document.key, *[other.key for other in others])
        self.documents = (document, *others)


class _LeftOut(Exception):
    """A write was left out, because its document is not here. Never leaves this module."""


class Elsewhere(AuthoringError):
    """A write to a document of another space than the transaction's."""

    def __init__(self, document: Document) -> None:
        super().__init__(f"{document!r} is of another space: a transaction writes one space only")
        self.home = document.home


def check_computed(document: Document) -> bool:
    """True if the value of a document was computed, or no node computes it. UpstreamFailedError: a node failed."""
    for writer in document.writers:
        if isinstance(writer, Node) and writer.error is not None:
            raise upstream_failed(writer)
    return not document.writers or any(isinstance(each, Node) and each.is_known for each in document.writers)


class TransactionTracker:
    """The tracker of one transaction."""

    __slots__ = (
        "_home",
        "_is_writing",
        "_seen",
        "_transaction",
        "_visible",
        "elsewhere",
        "new_number",
        "postponed",
        "wrote",
    )
    prepare: Callable[[Run, Document], object] | None = None  # `HandlerTracker` has it

    def __init__(self, home: Replica, transaction: Transaction, visible: Callable[[Document], object]) -> None:
        self._home = home
        self._transaction = transaction
        self._visible = visible  # raises if the value must not be read outside a run
        self.wrote: dict[Document, None] = {}
        self._seen: set[Node] = set()  # nodes whose sources are recorded
        self.elsewhere: dict[Document, None] = {}  # of other spaces, read here or by nodes, with layers on top
        self.postponed: dict[Document, None] = {}  # documents that the attempt needs and that are not here
        self.new_number: Callable[[], int]  # returns a number for the rest of the run; `call_in` sets it
        self._is_writing = False

    def missed(self, run: Run, spot: Spot) -> Spot:
        """Record a read in the transaction, and the documents of other spaces that the read value depends on."""
        document = cast(Document, spot.document)
        # fault transaction.reads_after_left_out_writes: if False:
        if not self._is_writing:
            self.check()  # A value that is read now could be one that the write would have changed, through a link.
        if document.writers:
            self._visible(document)
            self._read_by_nodes(document)
        if document.home is self._home:
            self._transaction.saw(document.key, spot.path, spot.depth)
        elif document.layers:
            self.elsewhere[document] = None
        return spot

    def _read_by_nodes(self, document: Document) -> None:
        """Record the documents of other spaces on which the value of a computed document depends."""
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
        """Return the layers of other spaces without a verdict that were read, directly or through nodes.

        The layer of a node's own result there is left out: that result follows from the other recorded layers.
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
        self.postponed[document] = None  # The attempt is not valid, also if the author's function catches the error.
        if self._is_writing:
            raise _LeftOut
        raise Missing(*self.postponed)

    def perform(self, run: Run, act: Callable[[], object]) -> None:
        """Do a write of the author's function. It is left out if its document is not here."""
        # fault+ transaction.stops_at_every_write: return act()
        self._is_writing = True
        try:
            act()
        except _LeftOut:
            run.number = self.new_number()  # No spot counts as read, so that the next read ends the attempt.
        finally:
            self._is_writing = False

    def check(self) -> None:
        """Raise `Missing` if the attempt needs documents that are not here."""
        if self.postponed:
            raise Missing(*self.postponed)

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        """Add a patch to the transaction. `Elsewhere`: the document is of another space."""
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


class DemandingTracker(TransactionTracker, ABC):
    """The tracker of a transaction that reads only fresh values, and may wait until stale ones were computed."""

    __slots__ = ()

    @abstractmethod
    def need(self, run: Run, documents: Sequence[Document]) -> None:
        """Have the stale writers of several documents, which are about to be read, run together."""


def falling(document: Document) -> list[Layer]:
    """Return the undecided layers of a document, written outside any run, that may be rejected, newest first.

    Stops at a layer that names earlier ones. The newest layer tells whether there are any: a write that lands after one
    of them names it, and may be rejected, too.
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
    """True if a write outside any run may be rejected: it read something, or others may change the value it fits."""
    # fault writing.misfits_overtaken: return has_read(layer)
    return has_read(layer) or _may_misfit(layer)


def has_read(layer: Layer) -> bool:
    """True if a write outside any run read something that others may change, so that it may be rejected.

    A read of the record of its piece does not count: every other write to that piece depends on the record, too, and is
    rejected with it.
    """
    return layer.document is None and any(not read.doc.id.endswith(RECORDS) for read in layer.commit.reads)


def _may_misfit(layer: Layer) -> bool:
    """True if patches of a layer need a value to be there: a key that they replace or remove, or the path to one."""
    document = layer.document
    if document is not None:
        if type(layer.after) is not dict:
            return False  # Its value is sent as a whole.
        document.home.make_commits()
    return any(
        patch.path or patch.kind == "remove" for operation in layer.commit.operations for patch in operation.patches
    )


def refuse_computed(document: Document) -> None:
    """Refuse to write a node's result by hand: it would be shown until the node's next run, then vanish (I1)."""
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
    tracker.new_number = current.number_apart
    run = Run(tracker)
    run.number = current.number_apart()  # No spot was read in this run.
    run.transaction = transaction
    run.overlay = {}
    current.run = run
    try:
        made = fn()
        tracker.check()
        if tracker.elsewhere:
            transaction.waits = tracker.undecided_elsewhere()
        return made
    except INTERRUPTS:
        raise
    except Exception:
        tracker.check()  # The author's function may have raised its own error for that.
        raise
    except BaseException as error:  # It would cancel or end the caller's task.
        raise as_failure(error) from error
    finally:
        current.run = None
