"""Handles that can be written. What is written says as little as it can: a field, an intent, a whole value.

Inside a run a write belongs to the run's transaction; outside, each is a transaction of its own. A write through a
link that redirects lands where the link leads. There is no write by index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headwater.cells.arrays import FrozensetCodec, TupleCodec
from headwater.cells.handle import Input
from headwater.cells.typecodec import TypeCodec
from headwater.data.patch import Patch
from headwater.data.path import Path, lookup
from headwater.data.value import ABSENT, MaybeValue, Value, equal
from headwater.errors import AuthoringError
from headwater.replica.document import Document

T = TypeVar("T")


class Cell(Input[T]):
    """A handle that can be read and written."""

    __slots__ = ()

    def set(self, value: T, /, *, group: object | None = None) -> None:
        """Replace the value. What this program's version of a Model does not know is kept."""
        document, path, old = self._place(None)
        if self._memo is None:
            self._memo = self._codec.memo()
        raw = self._memo.merge(old, value, path)
        if old is not ABSENT and self._current.run is None and equal(old, raw):
            return
        self._write(document, self._put(document, path, raw), group)

    def update(self, fn: Callable[[T], T], /, *, group: object | None = None) -> None:
        """Read, change and replace. Outside a run it is done again if somebody else was faster."""
        if self._current.run is None:
            self._host.update(self, fn, group)
        else:
            self.set(fn(self.get()), group=group)

    def delete(self, *, group: object | None = None) -> None:
        """Remove it. Nothing happens if nothing is there."""
        document, path, old = self._place(None)
        if old is not ABSENT:
            self._write(document, (Patch("remove", path, None),), group)

    # ---- intents -----------------------------------------------------------------------------------

    def push(self, *items: Any, keep: int | None = None, group: object | None = None) -> None:
        """Append, and keep the last `keep` only. Merges with what others append; reads nothing."""
        element = self._element("push", TupleCodec)
        raw = tuple(element.encode(item, self._path) for item in items)
        self._intend("append", (raw, keep), group)

    def add(self, item: Any, /, *, group: object | None = None) -> None:
        """Append what is not there yet. Merges with what others add."""
        self._intend("add_unique", self._element("add", TupleCodec, FrozensetCodec).encode(item, self._path), group)

    def discard(self, item: Any, /, *, group: object | None = None) -> None:
        """Take out every element that is equal. Merges with what others discard."""
        codec = self._element("discard", TupleCodec, FrozensetCodec)
        self._intend("remove_value", codec.encode(item, self._path), group)

    def increment(self, by: Any = 1, /, *, group: object | None = None) -> None:
        """Add to a number. Merges with what others add; something absent starts from 0."""
        if isinstance(by, bool) or not isinstance(by, (int, float)):
            raise AuthoringError(f"increment of {self!r} by {by!r}: write a number")
        self._intend("increment", by, group)

    def _element(self, what: str, *kinds: type) -> TypeCodec[Any]:
        codec = self._codec
        if not isinstance(codec, (TupleCodec, FrozensetCodec)) or not isinstance(codec, kinds):
            raise AuthoringError(f"{what} needs a cell of a tuple or a frozenset, {self!r} is {codec.expected}")
        return codec.element

    def _intend(self, kind: Any, arg: Any, group: object | None) -> None:
        document, path, _ = self._place(None)
        patches: tuple[Patch, ...] = ()
        if self._default is not ABSENT and _root_of(self, document, path) is ABSENT:
            patches = self._put(document, path, self._default)  # An intent stands on what a reader would see.
        self._write(document, (*patches, Patch(kind, path, arg)), group)

    # ---- where it goes -----------------------------------------------------------------------------

    def _put(self, document: Document, path: Path, raw: Value) -> tuple[Patch, ...]:
        """Put a value at a place whose containers may not be there yet."""
        return (Patch("add", path, raw),)

    def _write(self, document: Document, patches: tuple[Patch, ...], group: object | None) -> None:
        run = self._current.run
        if run is None:
            self._host.check_thread()
            self._host.write(document, patches, group)
            return
        for patch in patches:
            run.tracker.write(run, document, patch)


def _root_of(cell: Cell[Any], document: Document, path: Path) -> MaybeValue:
    return lookup(cell._root(document), path)
