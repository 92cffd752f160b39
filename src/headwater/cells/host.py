"""The host: what handles need from the runtime that they belong to. A port; the runtime implements it.

Reading costs one look at `current`; everything else about a handle goes through here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from headwater.data.link import Link
from headwater.data.path import Path
from headwater.data.value import MaybeValue, Value
from headwater.replica.document import Document

if TYPE_CHECKING:
    from headwater.cells.cell import Cell
    from headwater.cells.handle import Input
    from headwater.cells.run import Current
    from headwater.cells.selector import Selector
    from headwater.cells.sending import Stream, Topic


class Subscription:
    """Something that goes on until it is closed."""

    __slots__ = ("_close",)

    def __init__(self, close: Callable[[], object]) -> None:
        self._close: Callable[[], object] | None = close

    def close(self) -> None:
        """Stop it. Closing twice is harmless."""
        close, self._close = self._close, None
        if close is not None:
            close()


class Host(Protocol):
    """One runtime, as its handles see it."""

    current: Current
    selector: Selector

    def check_thread(self) -> None:
        """Raises unless this is the runtime's own thread, and no run of another runtime is open on it."""

    def visible(self, document: Document) -> MaybeValue:
        """What a document shows outside any run. NotReadyError: it has not arrived, or was never computed."""

    def space_name(self, document: Document) -> str:
        """The name of the space that a document is of."""

    def circle(self, document: Document) -> tuple[str, ...]:
        """Inside a run: the nodes that stand on each other, if the run's own is one and makes this document, too."""

    def resolve(self, document: Document, link: Link) -> tuple[Document, Path]:
        """Where a link leads that is stored in a document."""

    def put(self, document: Document, value: Value, again: Callable[[], object], group: object | None) -> bool:
        """Replace a whole document, outside any run. `again` is the same write, for when it never left.

        False: it has to stand on what was written before. Use `write`.
        """

    def write(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        """Have `act` called in a transaction of its own, again if what it read is stale, later if it is not here.

        A refusal that nobody awaits goes to the error channel.
        """

    def pull(self, handle: Input[Any]) -> Coroutine[Any, Any, Any]:
        """Bring up to date, and answer with the value."""

    def sink(self, handle: Input[Any], fn: Callable[[Any], object], group: object | None) -> Subscription:
        """Call with the value now and whenever it changes."""

    def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        """The value now, then the latest whenever it changed; never a backlog."""

    def post(self, stream: Stream[Any], payload: Value) -> None:
        """Send an event. Refused where a run is repeated."""

    def emit(self, topic: Topic[Any], record: Value) -> None:
        """Emit a record. Refused where a run is repeated."""
