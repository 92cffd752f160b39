"""Freshness of reads: whether a value that an attempt is about to read is up to date, and which nodes must run if not.

Part of the runner component. A value is fresh if its writers and all nodes above them are clean, so that it is the
result of the values shown now. A read of a value that is not fresh stops the attempt (`suspension`), unless `prepare`
could run the missing nodes first (`NestedRuns`). `Freshness` records the reads of the attempt; it runs no node itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from headwater.cells.open_run import Run
from headwater.data.reader_trie import Spot, TrieNode
from headwater.errors import UpstreamFailedError, describe_failure
from headwater.replica.document import Document
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.node import AFRESH, CLEAN, Marks, Node
from headwater.scheduler.suspension import Suspend, Suspension, invalid_above
from headwater.scheduler.waiting_nodes import WaitingNodes

if TYPE_CHECKING:
    from headwater.scheduler.pass_ import Pass


class Freshness:
    """Checks every read that the last run of the same node did not make at the same point."""

    __slots__ = ("_graph", "_loads", "_marks", "_pass", "saw_failure", "stopped")

    def __init__(self, graph: Graph, loads: WaitingNodes, pass_: Pass, marks: Marks) -> None:
        self._graph = graph
        self._loads = loads
        self._pass = pass_
        self._marks = marks
        # why the attempt in progress was stopped, whether or not author code caught the signal
        self.stopped: Suspension | None = None
        self.saw_failure = False  # the attempt was shown the failure of another node, and may have continued

    def missed(self, run: Run, spot: Spot) -> Spot:
        """Record a read that the last run did not make at this point. Return the spot to remember for the next run."""
        found = spot
        if spot.twig is None:  # This spot is not registered; another spot may be registered for the same place.
            known = self._known(run, spot)
            if known is not None:
                found = known
                if found.stamp == run.number:
                    return found
                found.stamp = run.number
                # A temporary handle reads the place that another handle read in the last run.
                if run.reads[run.place] is found:
                    run.place += 1
                    return found
        log = run.log
        if log is None:
            log = run.log = list(run.reads[: run.place])  # type: ignore[arg-type]  # None is at the end only.
            run.reads, run.place = AFRESH, 0
        if not self.saw_failure or found not in log:
            log.append(found)
        document: Document = found.document  # type: ignore[assignment]  # Every spot is one of a document's.
        if document.writers:
            try:
                self._check(run.node, document.writers)  # type: ignore[arg-type]  # Both are the scheduler's own.
            except UpstreamFailedError:
                # fault run.failure_raised_once: raise
                found.stamp = 0  # As `Run.miss` does for the spot of the handle.
                raise
        if self._graph.is_special and self._graph.has_envelopes:
            self._check_envelopes(run.node, found)  # type: ignore[arg-type]
        return found

    def _known(self, run: Run, spot: Spot) -> Spot | None:
        """Return another spot for the same place that other nodes read, or that this run read first, if any."""
        twig: TrieNode | None = spot.document.twig  # type: ignore[attr-defined]  # Every spot is one of a document's.
        found = None if twig is None else twig.find(spot.path, spot.depth)
        if found is None:
            if run.fresh is None:
                run.fresh = {}
            first = run.fresh.setdefault((spot.document, spot.path, spot.depth), spot)
            return None if first is spot else first
        return found

    def _check_envelopes(self, node: Node, spot: Spot) -> None:
        for each in self._graph.dirty_envelopes((spot,)):
            if each.loading is not None and each is not node and not self._loads.is_behind(each, node):
                self.stop(Suspension(document=each.loading, behind=each))
            self._need(node, [each])

    def absent(self, run: Run, document: Document) -> None:
        """Stop the attempt: it read a document that is not here."""
        if run.log is None:
            run.log = list(cast("Sequence[Spot]", run.reads[: run.place]))
            run.reads, run.place = AFRESH, 0
        self.stop(Suspension(document=document))

    def stop(self, suspension: Suspension) -> None:
        self.stopped = suspension
        raise Suspend

    def prepare(self, run: Run, document: Document) -> None:
        """Run the stale writers of a document that is about to be read, while the attempt waits on the Python stack.

        A writer that cannot be run this way is left as it is, and the read itself then stops the attempt.
        """
        node: Node = run.node  # type: ignore[assignment]  # Both are the scheduler's own.
        if self.stopped is None and run.transaction is None:
            writers: tuple[Node, ...] = document.writers  # type: ignore[assignment]
            for writer in writers:
                if writer is not node:
                    # Each turn of the loop runs one node, and `NestedRuns` bounds how many may run.
                    while writer.status != CLEAN or writer.verified != self._marks.count:
                        if not self._has_run_first(run, node, writer):
                            break

    def _has_run_first(self, run: Run, node: Node, writer: Node) -> bool:
        """Run one node for the stale output of `writer`. True: a node ran, and `writer` is to be checked again."""
        if self._loads and self._loads.above(writer) is not None:
            return False
        may_wait_for = self._pass.may_wait_for
        if writer.status != CLEAN:  # As in most cases.
            target, wanted = writer, [writer]
            if not may_wait_for(node, writer):
                return False
        else:
            wanted = [each for each in self._unfresh(writer) if may_wait_for(node, each)]
            if not wanted:
                return False
            target = wanted[-1]
        failed, self.saw_failure, beside = self.saw_failure, False, self._marks.beside
        try:
            has_run = self._pass.run_nested(run, target)
        finally:
            self.stopped, self.saw_failure = None, failed
        if node.causes is not None and not node.removed:
            # fault freshness.nested_change_restarts: pass
            self._absorb(run, node)
        if node.removed or node.causes is not None or self._marks.beside != beside:
            # I1: the attempt may have read a value that changed meanwhile: a registered read of the node changed, or a
            # change came from outside the nested run.
            self.stop(Suspension(targets=wanted, is_late=True))
        return has_run

    def _absorb(self, run: Run, node: Node) -> None:
        """Keep an attempt valid whose node was marked by nested runs, if it has read none of the changed documents yet.

        The last run of the node read them, so that the node is subscribed. This attempt is still to read them, and will
        see their new values. They become causes of this run (I8).
        """
        assert node.causes is not None
        if self._graph.is_special:
            return  # Heights do not order the nodes: a document that was read before may change again.
        seen = run.seen
        if seen is None:
            seen = run.seen = set()
            run.counted = 0
        read = run.reads[: run.place] if run.log is None else run.log
        for place in range(run.counted, len(read)):
            seen.add(read[place].document)  # type: ignore[union-attr]  # None is at the end only.
        run.counted = len(read)
        for spot in node.causes:
            if spot.document in seen:
                return
        # fault freshness.nested_cause_lost: pass
        run.causes = {**(run.causes or {}), **node.causes}
        node.status, node.causes = CLEAN, None

    def _unfresh(self, writer: Node) -> list[Node]:
        """Return the nodes that must run before the output of `writer` is up to date. Empty: the output is fresh."""
        if writer.status != CLEAN:
            return [writer]
        if writer.verified == self._marks.count:
            return []
        lowest = self._pass.lowest()
        if writer.live and writer.height <= lowest:
            return []
        # A node above the writer may still have to run: no height ordered it before this reader.
        return invalid_above(writer, self._marks.count, lowest)

    def _check(self, node: Node, writers: tuple[Node, ...]) -> None:
        """Stop the attempt unless these writers' outputs are fresh; raise `UpstreamFailedError` if a writer failed."""
        # I1: a run that is kept has read only results that clean nodes computed from the values shown.
        # fault freshness.stale_reads_kept: for writer in ():
        for writer in writers:
            if writer is node:
                continue
            if self._loads:
                document = self._loads.above(writer)
                if document is not None and not writer.suspended and not self._loads.is_behind(writer, node):
                    # The reader waits behind the writer. Round a cycle it would wait for itself.
                    self.stop(Suspension(document=document, behind=writer))
            if writer.status != CLEAN or writer.verified != self._marks.count:
                self._need(node, self._unfresh(writer))
            if writer.error is not None:
                self.saw_failure = True
                raise upstream_failed(writer)

    def need(self, node: Node, documents: Sequence[Document]) -> None:
        """Stop the attempt until the stale writers of several documents have run: one stop for all of them."""
        writers = [each for document in documents for each in cast("tuple[Node, ...]", document.writers)]
        self._need(node, [each for each in reversed(writers) if each.status != CLEAN])

    def _need(self, node: Node, targets: list[Node]) -> None:
        """Stop the attempt until these nodes have run, except for those that it cannot usefully wait for."""
        wanted = [each for each in targets if self._pass.may_wait_for(node, each)]
        if wanted:
            self.stop(Suspension(targets=wanted))


def upstream_failed(writer: Node) -> UpstreamFailedError:
    """Return the error for a reader of a failed node.

    Its cause is the original failure, however many nodes lie between.
    """
    return failed_upstream(writer.id, writer.error)


def failed_upstream(id: str, error: BaseException | None) -> UpstreamFailedError:
    """Return the error for a reader of the node with that id, which failed with an error."""
    cause = error
    while isinstance(cause, UpstreamFailedError) and cause.__cause__ is not None:
        cause = cause.__cause__
    why = "it failed" if cause is None else describe_failure(cause)
    failure = UpstreamFailedError(f"{id} could not be computed: {why}")
    failure.__cause__ = cause
    return failure
