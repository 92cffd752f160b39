"""Whether what a run is about to read is fresh, and what has to run first if it is not. Part of the runner component.

Freshness by suspension: a read of something that is not what its writers make of what is shown now stops the attempt.
Notes what is read; runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from headwater.cells.open_run import Run
from headwater.data.reader_trie import Spot
from headwater.errors import UpstreamFailedError
from headwater.replica.document import Document
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.node import CLEAN, Marks, Node
from headwater.scheduler.suspension import Attempts, Suspend, Suspension, invalid_above
from headwater.scheduler.waiting_nodes import WaitingNodes

AFRESH: Sequence[Spot | None] = (None,)
"""What a run expects to read that is to look at every read anew."""


class Freshness:
    """Looks at every read that the last run of the same node did not make at the same point."""

    __slots__ = ("_attempts", "_graph", "_loads", "_marks", "saw_failure", "stopped")

    def __init__(self, graph: Graph, loads: WaitingNodes, attempts: Attempts, marks: Marks) -> None:
        self._graph = graph
        self._loads = loads
        self._attempts = attempts
        self._marks = marks
        self.stopped: Suspension | None = None  # why the attempt under way is over, whoever caught the signal
        self.saw_failure = False  # it was shown the failure of another node, and may have gone on

    def missed(self, run: Run, spot: Spot) -> Spot:
        """A look that the last run did not make at this point. The spot to remember for the next time."""
        found = spot
        if spot.twig is None:  # Nobody reads this very spot: somebody may read the place through another one.
            known = self._known(run, spot)
            if known is not None:
                found = known
                if found.stamp == run.number:
                    return found
                found.stamp = run.number
                if run.reads[run.place] is found:  # A handle made for the moment looks where another one did.
                    run.place += 1
                    return found
        log = run.log
        if log is None:
            log = run.log = list(run.reads[: run.place])  # type: ignore[arg-type]  # None is at the end only.
            run.reads, run.place = AFRESH, 0
        log.append(found)
        document: Document = found.document  # type: ignore[assignment]  # Every spot is one of a document's.
        if document.writers:
            self._check(run.node, document.writers)  # type: ignore[arg-type]  # Both are the scheduler's own.
        if self._graph.is_special and self._graph.has_envelopes:
            self._check_envelopes(run.node, found)  # type: ignore[arg-type]
        return found

    def _known(self, run: Run, spot: Spot) -> Spot | None:
        """The spot for the same place that others read, or that this run looked at first."""
        twig = cast(Document, spot.document).twig
        found = None if twig is None else twig.find(spot.path, spot.depth)
        if found is None:
            if run.fresh is None:
                run.fresh = {}
            first = run.fresh.setdefault((spot.document, spot.path, spot.depth), spot)
            return None if first is spot else first
        return found

    def _check_envelopes(self, node: Node, spot: Spot) -> None:
        for each in self._graph.dirty_envelopes((spot,)):
            if each.loading is not None and each is not node:
                self.stop(Suspension(document=each.loading, behind=each))
            self._need(node, [each])

    def absent(self, run: Run, document: Document) -> None:
        """A document was read that is not here."""
        if run.log is None:
            run.log = list(cast("Sequence[Spot]", run.reads[: run.place]))
            run.reads, run.place = AFRESH, 0
        self.stop(Suspension(document=document))

    def stop(self, suspension: Suspension) -> None:
        self.stopped = suspension
        raise Suspend

    def prepare(self, run: Run, document: Document) -> None:
        """Something of a document is about to be read: what is to run for that runs while the attempt waits.

        As far as that can be done; otherwise the read stops it, as ever.
        """
        node = cast(Node, run.node)
        if self.stopped is None and run.transaction is None:
            for writer in cast("tuple[Node, ...]", document.writers):
                if writer is not node:
                    while self._has_run_first(run, node, writer):
                        pass  # Each time one node has run, and there is an end to how many do.

    def _has_run_first(self, run: Run, node: Node, writer: Node) -> bool:
        """Whether something ran for what a node writes: then that is to be looked at again."""
        if self._loads and self._loads.above(writer) is not None:
            return False
        targets = self._unfresh(writer)
        wanted = [each for each in targets if self._attempts.may_wait_for(node, each)] if targets else targets
        if not wanted:
            return False
        failed, self.saw_failure, beside = self.saw_failure, False, self._marks.beside
        try:
            has_run = self._attempts.run_between(run, wanted[-1], node.stops)
        finally:
            self.stopped, self.saw_failure = None, failed
        if node.removed or node.causes is not None or self._marks.beside != beside:
            # I1: what changed meanwhile may be what it has looked at: it reads it, or somebody else changed it.
            self.stop(Suspension(targets=wanted, is_late=True))
        return has_run

    def _unfresh(self, writer: Node) -> list[Node]:
        """Who has to run before what a node wrote is what it makes of what is there now."""
        if writer.status != CLEAN:
            return [writer]
        if writer.verified == self._marks.count:
            return []
        lowest = self._attempts.lowest()
        if writer.live and writer.height <= lowest:
            return []
        # Something above its writer may still be to run: nothing ordered that before whoever reads it.
        return invalid_above(writer, self._marks.count, lowest)

    def _check(self, node: Node, writers: tuple[Node, ...]) -> None:
        """Stop the attempt unless what it is about to read is what its writers make of what is there now."""
        # I1: a run that is kept has read nothing but what clean nodes made of what is shown.
        # fault freshness.stale_reads_kept: for writer in ():
        for writer in writers:
            if writer is node:
                continue
            if self._loads:
                document = self._loads.above(writer)
                if document is not None and not writer.suspended:
                    self.stop(Suspension(document=document, behind=writer))  # It waits with what it reads.
            if writer.status != CLEAN or writer.verified != self._marks.count:
                self._need(node, self._unfresh(writer))
            if writer.error is not None:
                self.saw_failure = True
                raise upstream_failed(writer)

    def need(self, node: Node, documents: Sequence[Document]) -> None:
        """Several documents will be read: what is to run for them runs first, together, not one after the other."""
        writers = [each for document in documents for each in cast("tuple[Node, ...]", document.writers)]
        self._need(node, [each for each in reversed(writers) if each.status != CLEAN])

    def _need(self, node: Node, targets: list[Node]) -> None:
        """These run first, as far as waiting for them is of use."""
        wanted = [each for each in targets if self._attempts.may_wait_for(node, each)]
        if wanted:
            self.stop(Suspension(targets=wanted))


def upstream_failed(writer: Node) -> UpstreamFailedError:
    """What a reader of a failed node gets: the failure that is at the bottom of it, however far up that is."""
    cause: BaseException | None = writer.error
    while isinstance(cause, UpstreamFailedError) and cause.__cause__ is not None:
        cause = cause.__cause__
    error = UpstreamFailedError(f"{writer.id} could not be computed: {cause}")
    error.__cause__ = cause
    return error
