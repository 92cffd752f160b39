"""Demand for documents that a transaction outside any run reads: their stale writers run until all are fresh.

A transaction that read a stale value and could not have it computed on the spot waits here (I4). It fails with an error
if the documents do not become fresh within `Observers.window_us`; the time in which a document loads does not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from headwater.data.address import Depth, doc_text
from headwater.data.reader_trie import Spot
from headwater.errors import NotSettlingError
from headwater.runtime.core.tracker import Stale, is_fresh
from headwater.scheduler.graph.edges import writers_above
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.runtime.core.core import Core

T = TypeVar("T")


async def with_fresh_values(core: Core, who: str, land: Callable[[], Awaitable[T]]) -> T:
    """Call `land` until no attempt ends with a stale read (`Stale`), and return its result.

    The documents of earlier attempts stay demanded until then. `who` names the transaction in error messages.
    """
    demands: list[Demand] = []
    try:
        while True:
            try:
                return await land()
            except Stale as stale:
                demands.append(Demand(core, who, stale.documents))
                await demands[-1].wait()
    finally:
        for demand in demands:
            demand.end()


class Demand:
    """A node that demands stale documents, and the time that they have to become fresh."""

    __slots__ = ("_cancel", "_core", "_documents", "_is_late", "_node", "_who")

    def __init__(self, core: Core, who: str, documents: Sequence[Document]) -> None:
        self._core = core
        self._who = who
        self._documents = documents
        self._is_late = False
        self._node = self._register()
        self._cancel = self._arm()

    def _register(self) -> Node:
        core, documents = self._core, self._documents
        spots = [Spot(each, (), Depth.DEEP) for each in documents]

        def look() -> None:
            run = core.current.run
            assert run is not None
            core.scheduler.runner.need(run, documents)  # All at once: each of them would stop the attempt.
            for spot in spots:
                run.record_read(spot)

        return core.register(
            NodeSpec(
                id=f"demand by {self._who}, {core.next_number()}",
                kind=NodeKind.EFFECT,
                fn=look,
                home=documents[0].home,
                returns=False,
                no_auto_debounce=True,
            )
        )

    def end(self) -> None:
        """End the demand."""
        self._cancel()
        self._core.remove(self._node)

    async def wait(self) -> None:
        """Wait until all documents are fresh. Raises the reason if one cannot become fresh."""
        while self._first_stale() is not None:  # A document that was fresh may be stale when the task resumes.
            await self._core.observing.until(self.is_over)
            error = self.error()
            if error is not None:
                raise error

    def is_over(self) -> bool:
        """True if all documents are fresh, or one of them will not become fresh."""
        return self._first_stale() is None or self._is_late or self._load_error() is not None

    def error(self) -> Exception | None:
        """Return the reason why a document does not become fresh. None: all of them are fresh, or have time left."""
        stale = self._first_stale()
        why = None if stale is None else self._load_error()
        if stale is None or why is not None or not self._is_late:
            return why
        writers = [each for each in stale.writers if isinstance(each, Node)]
        above = [writer.id for writer in writers]
        above += [each.id for writer in writers for each in writers_above(writer) if each.status != CLEAN]
        return NotSettlingError(
            f"{self._who} reads {doc_text(stale.key)}, which did not settle in "
            f"{self._core.observing.window_us / 1e6:g} s: look at {', '.join(above[:5])}"
        )

    def _arm(self) -> Callable[[], None]:
        core = self._core
        return core.scheduler.gates.alarm(core.clock.monotonic_us() + core.observing.window_us, self._late)

    def _late(self) -> None:
        if self._is_loading():
            self._cancel = self._arm()
        else:
            self._is_late = True
            self._core.observing.look()

    def _first_stale(self) -> Document | None:
        scheduler = self._core.scheduler
        return next((each for each in self._documents if not is_fresh(each, scheduler)), None)

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
