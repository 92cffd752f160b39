"""Demand for documents that a transaction outside any run reads: their stale writers run until all are fresh.

A transaction that read a stale value and could not have it computed on the spot waits here (I4). It fails with an error
if the documents do not become fresh within `Observers.window_us`, unless a document that they need is still loading
then, or a node that they need waits for a delay that its author set. A transaction or an update also fails if a node
that computes one of them is removed meanwhile: its last result would be read as if it were a cell. The handler of an
event is called again, and registers the node again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.data.address import Depth, doc_text
from headwater.data.reader_trie import Spot
from headwater.errors import AbsentError, NotSettlingError
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.tracker import is_fresh
from headwater.scheduler.graph.edges import nodes_above
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.runtime.core.core import Core


class Demand:
    """A node that demands stale documents, and the time that they have to become fresh."""

    __slots__ = ("_cancel", "_computed", "_core", "_documents", "_is_extended", "_is_late", "_node", "_spots", "_who")

    def __init__(self, core: Core, who: str, documents: Sequence[Document], *, insists: bool = True) -> None:
        """`insists`: it is an error if a node that computes a document is removed meanwhile."""
        self._core = core
        self._who = who
        self._documents = documents
        self._spots = [Spot(each, (), Depth.DEEP) for each in documents]
        self._is_late = False
        self._is_extended = False  # it was given the time until a gate opens
        self._computed = [each for each in documents if each.writers and insists]
        self._node = self._register()
        self._cancel = self._arm()

    def _register(self) -> Node:
        core, documents = self._core, self._documents
        return core.register(
            NodeSpec(
                id=f"demand by {self._who}, {core.next_number()}",
                kind=NodeKind.EFFECT,
                fn=self._look,
                home=documents[0].home,
                returns=False,
                no_auto_debounce=True,
            )
        )

    def _look(self) -> None:
        core, run = self._core, self._core.current.run
        assert run is not None
        core.scheduler.runner.need(run, self._documents)  # All at once: each of them would stop the attempt.
        for spot in self._spots:
            run.record_read(spot)

    def end(self) -> None:
        """End the demand."""
        self._cancel()
        self._core.remove(self._node)

    def is_over(self) -> bool:
        """True if all documents are fresh, or one of them will not become fresh."""
        is_fresh = self._first_stale() is None
        return is_fresh or self._is_late or self._is_uncomputed() or self._load_error() is not None

    def error(self) -> Exception | None:
        """Return the reason why a document does not become fresh. None: all of them are fresh, or have time left."""
        if self._is_uncomputed():
            ended = self._core.observers.ended
            return ended or AbsentError(
                f"{self._who} waited for a computed of a piece that was stopped or deleted meanwhile"
            )
        stale = self._first_stale()
        why = None if stale is None else self._load_error()
        if stale is None or why is not None or not self._is_late:
            return why
        writers = [each for each in stale.writers if isinstance(each, Node)]
        above = [writer.id for writer in writers]
        above += [each.id for writer in writers for each in nodes_above(writer) if each.status != CLEAN]
        return NotSettlingError(
            f"{self._who} reads {doc_text(stale.key)}, which did not settle in "
            f"{self._core.observers.window_us / 1e6:g} s: look at {', '.join(above[:5])}"
        )

    def _arm(self, least_us: int = 0) -> Callable[[], None]:
        core = self._core
        window_us = max(least_us, core.observers.window_us)
        return core.scheduler.gates.alarm(core.clock.monotonic_us() + window_us, self._late)

    def _late(self) -> None:
        gate_us = self._gate_us()
        if self._is_loading():
            self._cancel = self._arm(RUNTIME_LIMITS.demand_again_us)
        elif gate_us and not self._is_extended:
            # The gate opens at a known time, and the node has a window from then on. Once: each change may restart a
            # debounce.
            self._is_extended = True
            self._cancel = self._arm(gate_us + self._core.observers.window_us)
        else:
            self._is_late = True
            self._core.observers.check_conditions()

    def _gate_us(self) -> int:
        """Return the time until the delays that authors set let all nodes run that the documents wait for."""
        gates, graph = self._core.scheduler.gates, self._core.scheduler.graph
        writers = [each for document in self._documents for each in document.writers if isinstance(each, Node)]
        delayed = [
            gates.eligible_at(node)
            for writer in writers
            for node in (writer, *graph.above(writer))
            if node.status != CLEAN and node.gate is not None and not node.gate.is_held
        ]
        return max(0, max(delayed, default=0) - gates.now_us())

    def _first_stale(self) -> Document | None:
        scheduler = self._core.scheduler
        return next((each for each in self._documents if not is_fresh(each, scheduler)), None)

    def _is_uncomputed(self) -> bool:
        """True if a document has lost the node that computed it: its value would be taken for that of a cell."""
        # fault demand.lost_nodes_are_fresh: return False
        return any(not each.writers for each in self._computed)

    def _load_error(self) -> Exception | None:
        """Return the reason why a document that the node waits for will not arrive."""
        awaited = self._core.scheduler.loads.awaited_by(self._node)
        return None if awaited is None else self._core.why_not(awaited)

    def _is_loading(self) -> bool:
        """True if the node, or a node above it, waits for a document."""
        node = self._node
        return node.loading is not None or any(
            above.loading is not None for above in self._core.scheduler.graph.above(node)
        )
