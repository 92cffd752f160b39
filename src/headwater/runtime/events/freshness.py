"""Freshness of the values that a handler reads (I4): a stale read stops the attempt, and the stale nodes run.

The signals that stop an attempt are not `Exception`s, and the attempt is judged by the reads it asked for, not by
whether the signal arrived: author code that catches every exception does not hide it. An event fails with an error if
the nodes it reads do not become fresh within a time window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, cast

from headwater.cells.open_run import Run
from headwater.data.address import Depth, DocKey, doc_text
from headwater.data.path import Path, starts_with
from headwater.data.reader_trie import Spot
from headwater.errors import NotSettlingError
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import is_written, outside_arrays
from headwater.runtime.core.tracker import UNDECIDED, DemandingTracker, Missing, may_fall
from headwater.scheduler.graph.edges import writers_above
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.scheduler.suspension import invalid_above

if TYPE_CHECKING:
    from headwater.replica.pending import Layer
    from headwater.replica.replica import Replica
    from headwater.replica.transaction import Transaction
    from headwater.runtime.core.core import Core
    from headwater.runtime.events.event import Event
    from headwater.runtime.events.events import Events
    from headwater.runtime.pieces.registry import PieceRegistry


Written = Mapping[DocKey, Sequence[Path]]
"""Where a handler wrote, as it was meant, by document."""


class Stale(BaseException):
    """An attempt read what is not fresh. Never leaves this package."""

    def __init__(self, documents: Sequence[Document]) -> None:
        super().__init__(", ".join(doc_text(each.key) for each in documents[:3]))
        self.documents = documents


class Stopped(BaseException):
    """The attempt is over: its tracker knows why. Never leaves this package."""


class HandlerTracker(DemandingTracker):
    """The tracker of a handler's attempt: it reads nothing but what is fresh."""

    __slots__ = ("_core", "_event", "_events", "_pieces", "_read", "_why", "_written")

    def __init__(
        self,
        events: Events,
        event: Event,
        home: Replica,
        transaction: Transaction,
        written: Mapping[int, Written],
    ) -> None:
        super().__init__(home, transaction, events.pieces.core.visible)
        self._core = events.pieces.core
        self._events = events
        self._pieces = events.pieces
        self._event = event
        self._written = written  # where the events on their way wrote, by the number of their commit
        self._read: dict[Document, None] = {}
        self._why: BaseException | None = None  # the attempt is over, whoever caught the signal

    def check(self) -> None:
        """Raise what stopped the attempt, if something did."""
        if self._why is not None:
            raise self._why
        for document in self.postponed:
            self._pieces.prefetch.missed_by_handler(document, self._event.brought)
        super().check()

    def prepare(self, run: Run, document: Document) -> None:
        """Something of a document is about to be read: what is to run for that does so while the attempt waits."""
        beside = self._core.scheduler.marks.beside
        while not is_fresh(document, self._core) and self._has_run(run, document):
            pass  # Each time one node has run, and there is an end to how many do.
        if self._core.scheduler.marks.beside != beside:
            self._stop(Stale((document,)))  # Something else changed meanwhile: it may have been read.

    def missed(self, run: Run, spot: Spot) -> Spot:
        document = cast(Document, spot.document)
        if self.postponed and not self._is_writing:
            self._stop(Missing(*self.postponed))
        is_derived = document.writers or self._core.scheduler.graph.has_envelopes
        if is_derived and not is_fresh(document, self._core):
            self._stop(Stale((document,)))  # I4: an attempt that reads anything else goes no further.
        if document.value is NOT_HERE:
            self._stop(Missing(document))  # It was set aside, whoever writes it.
        self._read[document] = None
        if document.writers:
            self._core.visible(document)  # Raises what its writer raised.
            if self._stands_on_sources(document):
                return spot
        return super().missed(run, spot)

    def _has_run(self, run: Run, document: Document) -> bool:
        """Whether something ran for what a document shows, so that it is to be looked at again.

        A commit stands on the sources of what is computed, not on that: whatever becomes of its node's commit is
        nothing to the transaction that is open.
        """
        if not is_computed(document) or self._why is not None:
            return False
        scheduler, events = self._core.scheduler, self._events
        writer = cast(Node, document.writers[0])
        pass_, marks = scheduler.pass_, scheduler.marks.count
        targets = [writer] if writer.status != CLEAN else invalid_above(writer, marks, -1)
        if not targets or not pass_.may_wait_for(None, targets[-1]):
            return False
        target = targets[-1]
        current, events.current = events.current, None  # What runs there is no part of the handler.
        try:
            return pass_.run_nested(run, target, self._event.calls) and target.loading is None
        finally:
            events.current = current

    def _stands_on_sources(self, document: Document) -> bool:
        """C1: what is computed is a read of everything that it was computed from, down to the cells.

        Whoever changes one of those is in the way of this commit, whether or not the change was followed by what is
        derived from it. True: there is nothing else in the document.
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
                    # I4: it was set aside since the node ran, or is to arrive for one that came back without a run:
                    # what that saw may be older than what this stands on.
                    self._stop(Missing(source))
                waiting += [each for each in source.writers if isinstance(each, Node)]
                if source.home is not self._home:
                    if source.layers:
                        self.elsewhere[source] = None
                elif not is_computed(source):
                    self._transaction.saw_before(source.key, spot.path, spot.depth)
        return is_computed(document)

    def _read_by_nodes(self, document: Document) -> None:
        """Nothing: `_stands_on_sources` notes it with the rest."""

    def undecided(self) -> list[Layer]:
        """The writes without a verdict that what was read stands on, directly or through what nodes make of it."""
        found: dict[Layer, None] = {}
        seen, waiting = dict(self._read), list(self._read)
        while waiting:
            document = waiting.pop()
            writers = [each for each in document.writers if isinstance(each, Node)]
            if not writers:
                found.update(dict.fromkeys(layer for layer in document.layers if layer.fate in UNDECIDED))
            for spot in (spot for each in writers for spot in each.reads if spot is not None):
                source = cast(Document, spot.document)
                if source not in seen:
                    seen[source] = None
                    waiting.append(source)
        return list(found)

    def _stand_behind(self, document: Document, path: Path) -> None:
        """An earlier event that wrote the same may be handled again, and must not come after this: then both are.

        By what it meant to write. Where that is what it was told to have written, standing on that place is enough.
        The same holds for earlier writes outside of events that may be made again.
        """
        place = outside_arrays(path)
        plain = []
        for layer in document.layers:
            if layer.source is not None or layer.fate not in UNDECIDED or not may_fall(layer):
                continue
            meant = self._written.get(layer.local_seq)
            if meant is None:
                plain.append(layer)
            elif any(_meets(outside_arrays(each), place) for each in meant.get(document.key, ())):
                at = place if is_written(layer, document, place) else ()
                self._transaction.saw(document.key, at, Depth.SHAPE)
                if not at:
                    return
        if plain:
            self._transaction.stand_behind(document.key, plain)

    def absent(self, run: Run, document: Document) -> None:
        if self._is_writing:
            super().absent(run, document)
        self._stop(Missing(*dict.fromkeys((document, *self.postponed))))

    def need(self, run: Run, documents: Sequence[Document]) -> None:
        """Several documents are about to be read: what is missing runs together, not one after the other."""
        stale = [each for each in documents if not is_fresh(each, self._core)]
        if stale:
            self._stop(Stale(stale))

    def _stop(self, why: BaseException) -> NoReturn:
        for document in _not_here(why):
            self._pieces.prefetch.missed_by_handler(document, self._event.brought)
        self._why = why
        raise Stopped


def _not_here(why: BaseException) -> list[Document]:
    """The documents that are missing where an attempt stops: what it reads, or what has to be there for that to run."""
    if isinstance(why, Missing):
        return [*why.documents]
    documents = why.documents if isinstance(why, Stale) else ()
    awaited = [each.loading for document in documents for each in document.writers if isinstance(each, Node)]
    return [each for each in (*documents, *awaited) if each is not None and each.value is NOT_HERE]


def _meets(path: Path, other: Path) -> bool:
    return starts_with(path, other) or starts_with(other, path)


def is_computed(document: Document) -> bool:
    """Whether all that is in a document is the result of one node."""
    if len(document.writers) != 1:
        return False
    writer = document.writers[0]
    return isinstance(writer, Node) and writer.returns and writer.outputs[0] is document


def is_fresh(document: Document, core: Core) -> bool:
    """Whether a document shows what its writers make of what is shown now. A failed writer is as fresh as it gets."""
    # fault+ events.any_value_is_fresh: return all(getattr(writer, "runs", 1) for writer in document.writers)
    marks = core.scheduler.marks.count
    for writer in document.writers:
        if isinstance(writer, Node) and writer.returns:
            if writer.status != CLEAN or not writer.is_known or writer.loading is not None:
                return False
            # Not of the writer itself: its own run may have made something above it invalid, round a cycle.
            for above in writers_above(writer):
                if above is not writer and (above.status != CLEAN or invalid_above(above, marks, -1)):
                    return False
    return not core.scheduler.graph.has_envelopes or not _is_unwritten(document, core)


def _is_unwritten(document: Document, core: Core) -> bool:
    """Whether a materializer that has something to do may write it, or what it is computed from."""
    # fault+ materializers.not_promoted: return False
    graph = core.scheduler.graph
    if graph.dirty_envelopes((Spot(document, (), Depth.DEEP),)):
        return True
    writers = [each for each in document.writers if isinstance(each, Node)]
    return any(
        above.status != CLEAN and above.kind is NodeKind.MATERIALIZER
        for writer in writers
        for above in graph.above(writer)
    )


async def freshen(
    pieces: PieceRegistry, who: str, documents: Sequence[Document], held: list[Node], window_us: int
) -> None:
    """Demand what a handler reads, until it is fresh. It stays demanded, by the nodes that are held."""
    core = pieces.core
    spots = [Spot(each, (), Depth.DEEP) for each in documents]

    def look() -> None:
        run = core.current.run
        assert run is not None
        core.scheduler.runner.need(run, documents)  # All at once: each of them would stop it.
        for spot in spots:
            run.record_read(spot)

    node = core.register(
        NodeSpec(
            id=f"what {who} reads, {core.next_number()}",
            kind=NodeKind.EFFECT,
            fn=look,
            home=documents[0].home,
            returns=False,
            no_auto_debounce=True,
        )
    )
    held.append(node)
    late: list[None] = []

    def over() -> None:
        late.append(None)
        core.observing.look()

    def first_stale() -> Document | None:
        return next((each for each in documents if not is_fresh(each, core)), None)

    stale: Document | None = documents[0]
    while stale is not None:  # What was fresh may not be any more when this goes on.
        late.clear()
        cancel = core.scheduler.gates.alarm(core.clock.monotonic_us() + window_us, over)
        try:
            await core.observing.until(lambda: first_stale() is None or bool(late) or _why_not(core, node) is not None)
        finally:
            cancel()
        stale = first_stale()
        why = _why_not(core, node)
        if stale is not None and why is not None:
            raise why
        if late and not _is_loading(core, node):
            break  # What is on its way has all the time it needs.
    if stale is None:
        return
    writers = [each for each in stale.writers if isinstance(each, Node)]
    above = [writer.id for writer in writers]
    above += [each.id for writer in writers for each in writers_above(writer) if each.status != CLEAN]
    raise NotSettlingError(
        f"{who} reads {doc_text(stale.key)}, which did not settle in {window_us / 1e6:g} s: "
        f"look at {', '.join(above[:5])}"
    )


def _why_not(core: Core, node: Node) -> Exception | None:
    """Why it will never be fresh, if what it waits for will not come."""
    awaited = core.scheduler.loads.awaited_by(node)
    return None if awaited is None else core.why_not(awaited)


def _is_loading(core: Core, node: Node) -> bool:
    """Whether something that it waits for has not arrived."""
    return node.loading is not None or any(above.loading is not None for above in core.scheduler.graph.above(node))
