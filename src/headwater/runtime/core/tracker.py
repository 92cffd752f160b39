"""The tracker of a transaction outside any run of a node: records the reads and writes of handles.

An author's function is called with the tracker in place. It reads only fresh values (I4): a stale computed that it
reads runs while the function waits. Where that is not possible, the attempt ends (`Stale`); the caller waits until the
computed is fresh and calls the function again. A computed counts as a read of the cells that it was computed from. A
computed over a cell that the function has written is computed for this transaction alone (`OwnView`).

A read of a document that is not here ends the attempt (`Missing`). A write to one is left out and the function goes on
to its next read: the writes in between tell which documents are missing, too. The caller loads all of them and calls
the function again.

The signal that ends an attempt is not an `Exception`, and an attempt is judged by the reads that it asked for: author
code that catches every exception does not hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar, cast

from headwater.cells.open_run import Current, Run
from headwater.data.address import Depth, doc_text
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.errors import AuthoringError
from headwater.replica.confirmed import NotHere
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import Fate, Layer
from headwater.replica.replica import Replica
from headwater.replica.transaction import BEHIND, Transaction
from headwater.runtime.core.own_view import OwnView
from headwater.scheduler.failures import INTERRUPTS, as_failure
from headwater.scheduler.freshness import upstream_failed
from headwater.scheduler.graph.edges import nodes_above
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.scheduler import Scheduler
from headwater.scheduler.suspension import invalid_above

T = TypeVar("T")
UNDECIDED: Final = frozenset({Fate.QUEUED, Fate.SENT})
RECORDS: Final = ":@"
"""Ending of the ids of the documents that are records of pieces."""


class Missing(NotHere):
    """Documents that are not here, of this space or of another one."""

    def __init__(self, document: Document, *others: Document) -> None:
        super().__init__(document.key, *[other.key for other in others])
        self.documents = (document, *others)


class Stale(BaseException):
    """An attempt read documents that are not fresh. Never leaves the runtime."""

    def __init__(self, documents: Sequence[Document]) -> None:
        super().__init__(", ".join(doc_text(each.key) for each in documents[:3]))
        self.documents = documents


class Overtaking(BaseException):
    """An attempt touched documents to which earlier writes of this runtime are still to be made. Never leaves it."""

    def __init__(self, documents: Sequence[Document]) -> None:
        super().__init__(", ".join(doc_text(each.key) for each in documents[:3]))
        self.documents = documents


class Stopped(BaseException):
    """The attempt is over; its tracker knows the reason. Never leaves `call_in`."""


class _LeftOut(Exception):
    """A write was left out, because its document is not here. Never leaves this module."""


class OtherSpaceWrite(AuthoringError):
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


def is_computed(document: Document) -> bool:
    """True if the whole document is the result of one node."""
    if len(document.writers) != 1:
        return False
    writer = document.writers[0]
    return isinstance(writer, Node) and writer.returns and writer.outputs[0] is document


def is_fresh(document: Document, scheduler: Scheduler) -> bool:
    """True if a document shows the results of its writers for the values that are shown now.

    The last failure of a writer counts as fresh.
    """
    # fault+ events.any_value_is_fresh: return all(getattr(writer, "runs", 1) for writer in document.writers)
    marks = scheduler.marks.count
    for writer in document.writers:
        if isinstance(writer, Node) and writer.returns:
            if writer.status != CLEAN or not writer.is_known or writer.loading is not None:
                return False
            # Not of the writer itself: its own run may have made a node above it invalid, round a cycle.
            for above in nodes_above(writer):
                if above is not writer and (above.status != CLEAN or invalid_above(above, marks, -1)):
                    return False
    return not scheduler.graph.has_envelopes or not _is_unwritten(document, scheduler)


def _is_unwritten(document: Document, scheduler: Scheduler) -> bool:
    """True if an invalid materializer may write a document, or a document that it is computed from."""
    # fault+ materializers.not_promoted: return False
    graph = scheduler.graph
    if graph.dirty_envelopes((Spot(document, (), Depth.DEEP),)):
        return True
    writers = [each for each in document.writers if isinstance(each, Node)]
    return any(
        above.status != CLEAN and above.kind is NodeKind.MATERIALIZER
        for writer in writers
        for above in graph.above(writer)
    )


class TransactionTracker:
    """The tracker of one transaction."""

    __slots__ = (
        "_derived",
        "_home",
        "_is_writing",
        "_own",
        "_scheduler",
        "_seen",
        "_transaction",
        "_visible",
        "_why",
        "elsewhere",
        "new_number",
        "postponed",
        "wrote",
    )

    def __init__(
        self, scheduler: Scheduler, home: Replica, transaction: Transaction, visible: Callable[[Document], object]
    ) -> None:
        self._scheduler = scheduler
        self._home = home
        self._transaction = transaction
        self._visible = visible  # raises the failure of the node that computes a document
        self.wrote: dict[Document, None] = {}
        self._seen: set[Node] = set()  # nodes whose sources are recorded
        self.elsewhere: dict[Document, None] = {}  # of other spaces, read here or by nodes, with layers on top
        self.postponed: dict[Document, None] = {}  # documents that the attempt needs and that are not here
        self.new_number: Callable[[], int]  # returns a number for the rest of the run; `call_in` sets it
        self._is_writing = False
        self._own: OwnView | None = None
        self._derived: list[Spot] = []  # places of derived values that were read since the last write
        self._why: BaseException | None = None  # the reason why the attempt is over

    # ---- reading -----------------------------------------------------------------------------------

    def prepare(self, run: Run, document: Document) -> None:
        """Run the stale nodes behind a document that is about to be read, while the attempt waits."""
        scheduler = self._scheduler
        if not document.writers and not scheduler.graph.has_envelopes:
            return
        own = self.own_view
        if own is not None and own.children and any(map(own.is_transient, document.writers)):
            self._compute(run, own, document)  # Its nodes cannot run before the commit.
            return
        beside = scheduler.marks.beside
        while not is_fresh(document, scheduler) and self._run_writer(run, document):
            pass  # Each time one node has run, and their number is bounded.
        if scheduler.marks.beside != beside:
            self._stop(Stale((document,)))  # Another document changed meanwhile, and may have been read.
        if own is not None and is_fresh(document, scheduler):
            self._compute(run, own, document)

    def _compute(self, run: Run, own: OwnView, document: Document) -> None:
        """Compute the writers of a document for this transaction, if its writes concern them."""
        # fault handlers.own_writes_not_seen: return
        self.call_apart(lambda: own.compute(run, document))

    def call_apart(self, act: Callable[[], T]) -> T:
        """Call functions of nodes inside the transaction. They are not part of the author's function."""
        return act()

    def _run_writer(self, run: Run, document: Document) -> bool:
        """Run one stale node behind a document. False: none can run while the attempt waits.

        The verdict of that node's commit does not concern the open transaction, which stands on the sources.
        """
        if not is_computed(document) or self._why is not None:
            return False
        writer = cast(Node, document.writers[0])
        scheduler = self._scheduler
        targets = [writer] if writer.status != CLEAN else invalid_above(writer, scheduler.marks.count, -1)
        if not targets or not scheduler.pass_.may_wait_for(None, targets[-1]):
            return False
        return self._run_nested(run, targets[-1]) and targets[-1].loading is None

    def _run_nested(self, run: Run, target: Node) -> bool:
        return self._scheduler.pass_.run_nested(run, target)

    def missed(self, run: Run, spot: Spot) -> Spot:
        """Record a read in the transaction: of a computed, reads of the cells behind it, of other spaces as well.

        Stops the attempt if the value is not fresh or not here.
        """
        document = spot.document
        assert isinstance(document, Document)
        # fault transaction.reads_after_left_out_writes: if False:
        if self.postponed and not self._is_writing:
            # A value that is read now could be one that the write would have changed, through a link.
            self._stop(Missing(*self.postponed))
        is_derived = document.writers or self._scheduler.graph.has_envelopes
        if is_derived:
            self._derived.append(spot)
            if self._own is not None and self._own.is_computed(document):
                if not is_computed(document):
                    self._transaction.saw(document.key, spot.path, spot.depth)
                return spot  # The functions of its writers have read the sources in this transaction.
        # fault transaction.stale_values_read: if False:
        if is_derived and not is_fresh(document, self._scheduler):
            self._stop(Stale((document,)))  # I4
        if document.value is NOT_HERE:
            self._stop(Missing(document))  # It was set aside, whether or not a node writes it.
        if document.writers:
            # The failure of a node is a read of its sources, too: the author's function may catch it.
            # fault+ transaction.sources_of_failures_not_read: self._visible(document)
            stands_on_sources = self._stand_on_sources(document)
            self._visible(document)
            if stands_on_sources:
                return spot
        if document.home is self._home:
            self._transaction.saw(document.key, spot.path, spot.depth)
        elif document.layers:
            self.elsewhere[document] = None
        return spot

    def _stand_on_sources(self, document: Document) -> bool:
        """C1: record a computed as a read of every cell that it was computed from.

        A change of one of these conflicts with this commit, whether or not the computed has followed it. True: the
        document contains nothing else.
        """
        # fault+ events.sources_not_read: return is_computed(document)
        waiting = [each for each in document.writers if isinstance(each, Node)]
        while waiting:
            node = waiting.pop()
            if node in self._seen:
                continue
            self._seen.add(node)
            for spot in node.reads[:-1]:
                assert spot is not None
                source = cast(Document, spot.document)
                if source.value is NOT_HERE:
                    # I4: it was set aside since the node ran, or has still to arrive for a resumed node: the node may
                    # have seen an older value than the basis of this commit.
                    self._stop(Missing(source))
                waiting += [each for each in source.writers if isinstance(each, Node)]
                if source.home is not self._home:
                    if source.layers:
                        self.elsewhere[source] = None
                elif not is_computed(source):
                    self._transaction.saw(source.key, spot.path, spot.depth)
        return is_computed(document)

    def need(self, run: Run, documents: Sequence[Document]) -> None:
        """Have the stale writers of several documents, which are about to be read, run together."""
        stale = [each for each in documents if not is_fresh(each, self._scheduler)]
        if stale:
            self._stop(Stale(stale))

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
        if self._is_writing:
            self.postponed[document] = None
            raise _LeftOut
        self._stop(Missing(*dict.fromkeys((document, *self.postponed))))

    @property
    def own_view(self) -> OwnView | None:
        """The derived values on the view of this transaction. None: it has written nothing."""
        if self._own is None and self.wrote:
            self._own = OwnView(self._scheduler.graph, self._home, self._transaction)
        return self._own

    # ---- ending ------------------------------------------------------------------------------------

    def end(self) -> None:
        """End the view of the transaction: the function has returned, or the attempt is over."""
        if self._own is not None:
            self._own.end()

    def _stop(self, why: BaseException) -> NoReturn:
        """End the attempt, also if the author's function catches the signal."""
        self._why = why
        raise Stopped

    def check(self) -> None:
        """Raise the reason why the attempt is over: a stale value, or documents that are not here."""
        if self._why is not None:
            raise self._why
        if self.postponed:
            raise Missing(*self.postponed)

    # ---- writing -----------------------------------------------------------------------------------

    def perform(self, run: Run, act: Callable[[], object]) -> None:
        """Call a write of the author's function. It is left out if its document is not here."""
        # fault+ transaction.stops_at_every_write: return act()
        self._is_writing = True
        try:
            act()
        except _LeftOut:
            run.number = self.new_number()  # No spot counts as read, so that the next read ends the attempt.
        finally:
            self._is_writing = False

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        """Add a patch to the transaction. `OtherSpaceWrite`: the document is of another space."""
        if self._own is not None and self._own.is_calling:
            self._own.write(run, document, patch)
            return
        if document.home is not self._home:
            raise OtherSpaceWrite(document)
        if document.writers:
            refuse_computed(document)
        self._stand_behind(document, patch.path)
        self._transaction.write(document.key, patch)
        cast("dict[Document, None]", run.overlay)[document] = None
        self.wrote[document] = None
        for spot in self._derived:
            spot.stamp = 0  # The write may change this derived value: the next read checks it.
        self._derived.clear()
        if self._own is not None:
            self._own.forget_results(run, self.wrote)

    def _stand_behind(self, document: Document, path: Path) -> None:
        """Have this transaction land after earlier writes of this runtime to a document that may be made again."""
        if document.layers and (layers := falling(document)):
            self._transaction.stand_behind(document.key, layers)


def falling(document: Document) -> list[Layer]:
    """Return the undecided layers of a document, written outside any run, that may be rejected, newest first.

    Stops at a layer that names earlier ones. The newest layer tells whether there are any: a write that lands after one
    of them names it, and may be rejected, too. A handler names earlier plain writes and transactions, but of earlier
    handlers only those that touched its places: a plain write may land before such a handler (decision 0029).
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
    for read in layer.commit.reads:  # noqa: SIM110  # A loop, because a generator doubles the cost.
        if not read.doc.id.endswith(RECORDS):
            return True
    return False


def _may_misfit(layer: Layer) -> bool:
    """True if patches of a layer need a value to be there: a key that they replace, or the path to one."""
    for operation in layer.commit.operations:
        for patch in operation.patches:
            if patch.path and patch.kind != "remove":
                return True
    return False


def refuse_computed(document: Document) -> None:
    """Refuse to write a node's result by hand: it would be shown until the node's next run, then vanish (I1)."""
    for writer in document.writers:
        if isinstance(writer, Node) and writer.returns and writer.outputs[0] is document:
            raise AuthoringError(
                f"{document!r} is computed by {writer.id}: write the cells that it reads, not its result"
            )


def call_in(current: Current, tracker: TransactionTracker, transaction: Transaction, fn: Callable[[], T]) -> T:
    """Call a function whose handles read and write through a transaction.

    `Missing`, `Stale`: the attempt is to be made again when these documents are here, or fresh.
    """
    if current.run is not None:
        raise AuthoringError("a transaction cannot begin inside a run: it is one already")
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
    except BaseException as error:
        tracker.check()  # The author's function may have raised its own error for that.
        if isinstance(error, Exception):
            raise
        raise as_failure(error) from error  # It would cancel or end the caller's task.
    finally:
        current.run = None
        tracker.end()
