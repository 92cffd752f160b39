"""The host: what handles need from the runtime that they belong to. A port; the runtime implements it.

Reading costs one look at `current`; everything else about a handle goes through here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from headwater.data.link import Link
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.replica.document import Document

if TYPE_CHECKING:
    from headwater.cells.handle import Input
    from headwater.cells.run import Current
    from headwater.cells.selector import Selector


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
        """Raises unless this is the runtime's own thread."""

    def resolve(self, document: Document, link: Link) -> tuple[Document, Path]:
        """Where a link leads that is stored in a document."""

    def write(self, document: Document, patches: tuple[Patch, ...], group: object | None) -> None:
        """Write outside any run: a transaction of its own. A refusal that nobody awaits goes to the error channel."""

    def update(self, handle: Input[Any], fn: Callable[[Any], Any], group: object | None) -> None:
        """Read and write outside any run, again if what was read is stale."""

    def pull(self, handle: Input[Any]) -> Coroutine[Any, Any, Any]:
        """Bring up to date, and answer with the value."""

    def sink(self, handle: Input[Any], fn: Callable[[Any], object], group: object | None) -> Subscription:
        """Call with the value now and whenever it changes."""

    def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        """The value now, then the latest whenever it changed; never a backlog."""
