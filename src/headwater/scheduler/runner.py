"""The runner: makes one attempt of one node in one transaction, and commits its writes.

The node is marked clean before the attempt, so that a change during the attempt makes it invalid again. The reads are
compared with those of the last run; only a difference costs more. A read of a value that is not fresh stops the
attempt: its writes are discarded, and the pass runs the missing nodes first. Upholds I5, I8. The runner never chooses
which node runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from headwater.cells.open_run import Current, Run
from headwater.data.address import doc_text
from headwater.data.patch import Patch
from headwater.data.path import starts_with
from headwater.data.reader_trie import Spot
from headwater.data.trace import Ran, RunFailed, RunStarted, Suspended, Trace
from headwater.data.value import ABSENT, MaybeValue, freeze
from headwater.errors import InvariantViolation, NotSettlingError, cut_frames
from headwater.replica.document import NOT_HERE, Document, TierEntry
from headwater.replica.feed import Notification
from headwater.replica.pending import Layer
from headwater.scheduler.failures import INTERRUPTS, UndeclaredWriteError, as_failure, check_plain
from headwater.scheduler.freshness import Freshness
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import AFRESH, CLEAN, Marks, Node, NodeKind
from headwater.scheduler.suspension import Suspend, Suspension
from headwater.scheduler.waiting_nodes import WaitingNodes

if TYPE_CHECKING:
    from headwater.scheduler.pass_ import Pass

_EFFECT = NodeKind.EFFECT
_SCALARS = frozenset({int, str, bool, float})


class Runner:
    """Runs nodes, one at a time."""

    __slots__ = (
        "_current",
        "_fresh",
        "_gates",
        "_graph",
        "_loads",
        "_marks",
        "_on_cleanup_failed",
        "_on_failed",
        "_on_missing",
        "_run",
        "_timed_every",
        "_timed_runs",
        "_timed_us",
        "missed",
        "on_ran",
        "prepare",
        "trace",
    )
    perform: ClassVar[None] = None  # as a tracker: writes are plain calls

    def __init__(
        self,
        current: Current,
        graph: Graph,
        gates: Gates,
        loads: WaitingNodes,
        pass_: Pass,
        marks: Marks,
        *,
        on_failed: Callable[[Node, Exception | None, bool], object],
        on_cleanup_failed: Callable[[Node, Exception], object],
        on_missing: Callable[[Document], object],
        limits: SchedulerLimits,
    ) -> None:
        self._current = current
        self._graph = graph
        self._gates = gates
        self._loads = loads
        self._fresh = Freshness(graph, loads, pass_, marks)
        self.missed = self._fresh.missed
        self.prepare = self._fresh.prepare
        self._marks = marks
        self._on_failed = on_failed  # called when a node's last run failed, or recovered: its readers are to be told
        self._on_cleanup_failed = on_cleanup_failed
        self._on_missing = on_missing  # called with a document that a run needs and that is not here
        self._timed_runs = limits.timed_runs
        self._timed_every = limits.timed_every
        self._timed_us = limits.timed_us
        self._run = Run(self)
        # for diagnosis; decides nothing
        self.on_ran: Callable[[Node, Layer | TierEntry | None], object] | None = None
        self.trace: Trace | None = None

    # ---- an attempt ----------------------------------------------------------------------------------

    def attempt(self, node: Node, run: Run | None = None) -> Suspension | None:
        """Make one attempt.

        Return the suspension if it was stopped. `run`: the record to use while another run is open.
        """
        if self.trace is not None:
            self.trace.emit(RunStarted(node.id, node.attempts + 1))
        if node.returns and node.outputs[0].value is NOT_HERE and not self._has_arrived(node, node.outputs[0]):
            return Suspension(document=node.outputs[0])
        guard = node.guard
        awaited = None if guard is None else guard.awaited()
        if awaited is not None and not self._has_arrived(node, awaited):
            return Suspension(document=awaited)
        run, current, fresh = run or self._run, self._current, self._fresh
        status, causes, hops = node.status, node.causes, node.hops
        node.status, node.causes = CLEAN, None
        if hops:
            node.hops = 0
        node.attempts += 1
        retried = node.retried
        run.begin(node, node.expect if retried is None else self._reads_of_stopped_attempt(node, retried), causes)
        fresh.stopped = None
        reporter = node.reporter
        is_effect = node.kind is _EFFECT
        began_us = self._gates.now_us() if node.gate is not None or reporter is not None or is_effect else 0
        if node.cleanup is not None:
            # An effect's cleanup comes first: whether this attempt is kept is known only after it has acted.
            self.clean_up(node)
        failure: Exception | None = None
        result: object = None
        current.run = run
        try:
            if guard is not None and not guard.is_passed():
                raise guard.refusal()
            result = self._effect(node, run) if is_effect else node.fn()
            if result is not None and not node.returns:
                check_plain(node.id, result)  # The result is not used: a coroutine would be lost silently.
        except Suspend:
            pass
        except INTERRUPTS:
            node.status, node.causes, node.hops = status, run.causes, max(hops, node.hops)
            self._discard(run)
            raise
        except BaseException as error:  # Every other error of an author's function is the node's failure.
            failure = as_failure(error)
        finally:
            current.run = None
        if node.removed:  # Removed by its own run: no write is kept, and its new cleanup is called.
            self._discard(run)
            self.clean_up(node)
            return None
        stopped = self._fresh.stopped  # Read again: the run may have set it.
        if run.parted == run.number:  # Other nodes ran meanwhile, and may have registered spots for the same places.
            run.log, began_us = None if run.log is None else self._graph.united(run.log), began_us + run.away_us
        causes = run.causes  # Changes that nested runs made, and that the attempt then read, are causes, too.
        if node.hops and node.causes is None:
            hops, node.hops = max(hops, node.hops), 0
        if hops:
            self._carry(node, run, hops, stopped is not None)
        if stopped is not None:
            return self._drop(node, run, stopped, status, causes)
        node.last_hops = hops  # I6: its writes have as many hops as the causes of the run.
        if retried is not None and run.log is None:
            run.log = list(run.reads[: run.place])  # type: ignore[arg-type]  # None is at the end only.
        node.kept = None
        node.stops = 0
        node.began_us = began_us
        if node.gate is not None:
            self._gates.started(node)
        if run.log is not None or fresh.saw_failure or node.reads[run.place] is not None:
            self._apply_reads(node, run)
        if self._loads.is_used:
            self._loads.kept(node)
        made: Layer | TierEntry | None = None
        if node.envelope:
            node.found = ()
        if failure is None and (node.returns or run.transaction is not None):
            try:
                made = self._commit(node, run, result)
            except Exception as error:  # A result that is not a value is the node's failure, too.
                failure = error
        node.runs += 1
        node.verified = self._marks.count  # Its own write was announced: the readers concerned are marked.
        node.last_causes = causes
        node.as_of = 0  # From now on its reads are those of a run here.
        node.wrote = 0 if made is None else made.version if isinstance(made, TierEntry) else made.local_seq
        if failure is not None:
            self._failed(node, run, failure)
        elif node.error is not None or node.failures:
            self._recovered(node)
        if self.trace is not None and failure is None:
            self.trace.emit(Ran(node.id, node.wrote))
        if reporter is not None:  # I7: the run is reported with its commit, before the commit is sent.
            reporter.report_run(node, made, causes, failure, self._gates.now_us() - began_us)
        if self.on_ran is not None:
            self.on_ran(node, None if failure is not None else made)
        return None

    def _carry(self, node: Node, run: Run, hops: int, is_stopped: bool) -> None:
        """Give the nodes that a run created its hops, and restore the node's own if the attempt was stopped (I6)."""
        if run.created is not None:
            for child in cast("list[Node]", run.created):
                if child.status != CLEAN:
                    child.hops = max(child.hops, hops)  # Creating nodes on the way does not make a cycle shorter.
                    if node.kind is NodeKind.EFFECT:
                        self._gates.came(child, hops)  # An effect does not pause; the nodes that write for it do.
        if is_stopped:
            node.hops = max(node.hops, hops)

    def give_up(self, node: Node) -> None:
        """Fail a node that was stopped too often: each attempt waits for a result that the next one makes anew."""
        stops, node.stops = node.stops, 0
        node.status, node.retried, node.hops = CLEAN, None, 0
        node.kept = None
        self._failed(
            node, self._run, NotSettlingError(f"{node.id} was started {stops} times and waits for its own output")
        )

    def _reads_of_stopped_attempt(self, node: Node, retried: Sequence[Spot | None]) -> Sequence[Spot | None]:
        """Return the reads of the stopped attempt, which are still fresh unless a node was marked since."""
        node.retried = None
        return retried if node.retried_at == self._marks.count else AFRESH

    def _recovered(self, node: Node) -> None:
        node.failures = 0
        if node.error is not None:
            node.error = None
            self._on_failed(node, None, False)

    def _has_arrived(self, node: Node, document: Document) -> bool:
        """Fetch a document that a run needs. True: it is here.

        The output that the run will replace is needed because a result is sent as a difference.
        """
        self._on_missing(document)
        if document.value is not NOT_HERE:
            return True
        if self.trace is not None:
            self.trace.emit(Suspended(node.id, (doc_text(document.key),)))
        self._await(node, document, [])
        return False

    def _effect(self, node: Node, run: Run) -> object:
        """Call an effect. Its duration decides about an automatic debounce; a callable result becomes its cleanup."""
        if node.runs < self._timed_runs or not node.runs % self._timed_every:
            began_us = self._gates.now_us()
            result = node.fn()
            spent_us = self._gates.now_us() - began_us - (run.away_us if run.parted == run.number else 0)
            if spent_us > self._timed_us or node.gate is not None:
                self._gates.took(node, spent_us)
        else:
            result = node.fn()
        if result is not None and callable(result):
            node.cleanup = result
            return None
        return result

    def clean_up(self, node: Node) -> None:
        """Call the cleanup that an effect's last run returned, outside of any run. An error in it is only reported."""
        cleanup, node.cleanup = node.cleanup, None
        if cleanup is not None:
            outer, self._current.run = self._current.run, None
            try:
                cleanup()
            except INTERRUPTS:
                raise
            except BaseException as error:  # The effect goes on without its cleanup.
                self._on_cleanup_failed(node, as_failure(error))
            finally:
                self._current.run = outer

    def _apply_reads(self, node: Node, run: Run) -> None:
        """Subscribe the node to the reads of the run (P6). The same reads as last time cost nothing."""
        if run.log is None:
            place = run.place
            if node.reads[place] is not None:  # It read less than last time.
                self._graph.apply_read_delta(node, [*node.reads[:place], None])
        else:
            self._graph.apply_read_delta(node, [*run.log, None])
        if self._fresh.saw_failure:
            node.expect = AFRESH  # The failed node may have recovered by the next run: every read is checked anew.
            self._fresh.saw_failure = False

    def _drop(
        self, node: Node, run: Run, stopped: Suspension, status: int, causes: dict[Spot, Notification] | None
    ) -> Suspension:
        """Undo a stopped attempt: no commit is made, no run is counted, and the causes are restored."""
        is_lost = self._fresh.saw_failure or stopped.is_late  # The next attempt has to see the failure again.
        self._fresh.stopped = None
        self._fresh.saw_failure = False
        node.status = status
        node.causes = {**(causes or {}), **(node.causes or {})} or None
        node.stops += 1
        if run.created is not None:
            # The attempt may wait for a node that it registered, and author code may hold its handle: the next attempt
            # adopts it.
            node.kept = {**(node.kept or {}), **{each.id: each for each in cast("list[Node]", run.created)}}
            run.created = None
        self._discard(run)
        if self.trace is not None:
            self.trace.emit(Suspended(node.id, stopped.waits_for()))
        if stopped.targets and run.log is not None and not is_lost:
            node.retried, node.retried_at = (*run.log[:-1], None), self._marks.count
        if stopped.document is not None:
            self._await(node, stopped.document, run.log or [], stopped.behind)
        return stopped

    def _await(self, node: Node, document: Document, log: list[Spot], behind: Node | None = None) -> None:
        """Make a node wait for a document, and request it. The document may be here at once.

        `behind`: the node that needs the document, and that has requested it.
        """
        self._loads.wait(node, document, behind)
        self._graph.add_reads(node, log)
        if behind is None and document is not self._loads.winner:
            self._on_missing(document)
        self._loads.tried(node)
        if behind is None and document.value is not NOT_HERE:
            self._loads.came(node)

    def _discard(self, run: Run) -> None:
        """Drop the attempt's writes. Nodes that it registered stay its children."""
        if run.transaction is not None:
            cast(Node, run.node).home.drop(run.transaction)
            run.transaction = run.overlay = None

    def _failed(self, node: Node, run: Run, failure: Exception) -> None:
        """Record a failure.

        The node stays subscribed and clean: it runs again when an input changes or for a transient retry.
        """
        self._discard(run)
        before, node.error = node.error, cut_frames(failure)
        if self.trace is not None:
            self.trace.emit(RunFailed(node.id, f"{type(failure).__name__}: {failure}"))
        # I3: a failure that readers know already makes no reader run again.
        self._on_failed(node, failure, type(before) is type(failure) and str(before) == str(failure))

    # ---- the commit ----------------------------------------------------------------------------------

    def _commit(self, node: Node, run: Run, result: object) -> Layer | TierEntry | None:
        """Show the result, or commit it with the side writes of the run; both name the node and the causes (I8)."""
        if node.owns_outputs:
            return self._show_both(node, run, result)
        if run.transaction is None and len(node.outputs) > 1:
            # The output of a node that may write other documents is always committed together with them.
            run.transaction = node.home.begin(source=node, node=node.id, derived=True)
        if run.transaction is not None:
            return self._commit_journal(node, run, result)
        document = node.outputs[0]
        before = document.value
        if before is NOT_HERE:
            raise _let_go(node, document)
        kind = result.__class__
        if node.encode is not None:
            value = node.encode(result, before)
        elif kind not in _SCALARS:
            value = self._value(node, result, before)
        # fault runner.same_result_told: elif False:
        elif kind is before.__class__ and result == before and document.entry is None:
            return None
        else:
            value = freeze(result)
        # I8: provenance: the node by identity, its id, and the spots whose change made it run.
        reads = node.sent if node.sent_for is node.reads else _sent_reads(node)
        return node.home.show_result(document, value, reads, node, node.id, run.causes, node.last_hops)

    def _show_both(self, node: Node, run: Run, result: object) -> TierEntry | None:
        """Show a result of two documents. The run wrote the second one, or left it as it is."""
        document, second = node.outputs
        before = document.value
        if before is NOT_HERE:
            raise _let_go(node, document)
        value = self._value(node, result, before)
        beside: tuple[Document, MaybeValue] | None = None
        if run.transaction is not None:
            beside = second, run.transaction.peek(second.key)
            self._discard(run)
        elif second.value is not NOT_HERE:
            beside = second, second.value
        reads, hops = _sent_reads(node), node.last_hops
        return node.home.show_result(document, value, reads, node, node.id, run.causes, hops, beside)

    def _commit_journal(self, node: Node, run: Run, result: object) -> Layer | None:
        """Commit a run with side writes: its result and all its writes are one transaction."""
        transaction = run.transaction
        assert transaction is not None
        if node.returns and node.outputs:
            document = node.outputs[0]
            key = document.key
            value = self._value(node, result, transaction.peek(key))
            transaction.write(key, Patch("remove", (), None) if value is ABSENT else Patch("add", (), value))
        for spot in _sent_reads(node):
            if spot is not None:
                seen = cast(Document, spot.document)
                if seen.home is node.home:
                    transaction.saw(seen.key, spot.path, spot.depth)
        transaction.stand_on_written()  # I1: values that a write found in place count as read, beside the written ones.
        # I8: provenance of a run with side writes, too.
        transaction.trigger, transaction.hops = run.causes, node.last_hops
        transaction.causes = tuple((cast(Document, spot.document).key, spot.path) for spot in run.causes or ())
        run.transaction = run.overlay = None
        made = node.home.commit(transaction)
        if isinstance(made, Layer):
            return made
        if node.envelope:
            documents = node.home.documents
            places = [(documents.get(key), path) for key, path in transaction.attempted]
            node.found = tuple((document, path) for document, path in places if document is not None)
        return None

    def _value(self, node: Node, result: object, before: MaybeValue) -> MaybeValue:
        if node.encode is not None:
            return node.encode(result, before)
        if result is ABSENT:
            return ABSENT
        check_plain(node.id, result)
        return freeze(result)

    # ---- tracker of the open run's handles ----------------------------------------------------------

    def absent(self, run: Run, document: Document) -> None:
        self._fresh.absent(run, document)

    def need(self, run: Run, documents: Sequence[Document]) -> None:
        """Stop the attempt until the stale writers of several documents have run."""
        self._fresh.need(cast(Node, run.node), documents)

    def write(self, run: Run, document: Document, patch: Patch) -> None:
        """Apply a side write. Only declared outputs and envelopes may be written (P4)."""
        node = cast(Node, run.node)
        if document not in node.outputs and not any(
            document is inside and (starts_with(patch.path, path)) for inside, path in node.envelope
        ):
            address = doc_text(document.key, patch.path)
            instead = (
                "an effect writes nothing. Make it a computation, or do it in a handler."
                if node.kind is _EFFECT
                else f"a {node.kind.value} is repeated. Declare it with writes=(...) or a materializer's "
                "envelope=(...), or do it in a handler."
            )
            raise UndeclaredWriteError(f"{node.id} writes {address}, which it did not declare: {instead}", address)
        if document.value is NOT_HERE:
            self.absent(run, document)
        if run.transaction is None:
            run.transaction = node.home.begin(source=node, node=node.id, derived=True)
            run.overlay = {}
        if document not in cast("dict[Document, None]", run.overlay):
            # C1: reads made before the first write to the document count as reads, although it is written now.
            for spot in run.log if run.log is not None else run.reads[: run.place]:
                if spot is not None and spot.document is document:
                    run.transaction.saw(document.key, spot.path, spot.depth)
        run.transaction.write(document.key, patch)
        cast("dict[Document, None]", run.overlay)[document] = None


def _sent_reads(node: Node) -> Sequence[Spot | None]:
    """Return the reads of a node with the spot of its guard, which no run reads."""
    spot = None if node.guard is None else node.guard.spot
    # fault generations.guard_not_sent: if True:
    if spot is None:
        return node.reads
    if node.sent_for is not node.reads:
        node.sent, node.sent_for = [*node.reads[:-1], spot, None], node.reads
    return node.sent


def _let_go(node: Node, document: Document) -> InvariantViolation:
    return InvariantViolation(f"{node.id}: its output {document!r} was let go while it ran")
