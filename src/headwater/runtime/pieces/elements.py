"""The source of an `each`: its keys, their order, and the handle of one element.

An entry of a Mapping has an address of its own, and the handle of the element leads there. An element of a tuple has no
stable address: a projection `{order, items}` gives it one, and a node keeps the projection in step with the tuple.
Reads go through the projection; a write goes to the current position of the element in the tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.codec_base import TypeCodec
from headwater.cells.containers import MappingCodec
from headwater.cells.handle import Input
from headwater.cells.model import Json
from headwater.data.address import Depth
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.text import shown
from headwater.data.value import ABSENT, MaybeValue, equal, freeze
from headwater.errors import AbsentError, AuthoringError
from headwater.pieces.handles import Computed
from headwater.replica.document import Document

if TYPE_CHECKING:
    from headwater.pieces.declarations import EachMember
    from headwater.runtime.core.core import Core


class Source(Protocol):
    """The elements of one `each`."""

    @property
    def unordered(self) -> Mapping[str, Exception]:
        """The keys for which `order=` failed in the last call of `keys`, and the errors. They are the last ones."""

    def keys(self) -> dict[str, Any]:
        """Return the keys by their text, in order. Called in a run, which reads nothing else of the elements."""

    def element(self, key: Any) -> Input[Any]:
        """Return the handle of one element."""

    def has(self, text: str) -> bool:
        """Inside a transaction: return whether there is an element with that key."""

    def restored(self, text: str, *, is_number: bool) -> Any:
        """Return the key that a text stands for."""


FindSource = Callable[[], Input[Any]]
"""Returns the handle of the source, in a run: the record that names an input may have to arrive first."""


class MappingEntries:
    """The entries of a Mapping."""

    __slots__ = ("_codec", "_find_source", "_member", "unordered")

    def __init__(self, member: EachMember, codec: MappingCodec, find_source: FindSource) -> None:
        self.unordered: dict[str, Exception] = {}
        self._member = member
        self._codec = codec
        self._find_source = find_source

    def keys(self) -> dict[str, Any]:
        try:
            view = self._find_source().view()
        except AbsentError:
            return {}
        found = {self._codec.keys.step(key): key for key in view}
        if self._member.order is None:
            return found
        places, self.unordered = {}, {}
        for text, key in found.items():
            try:
                places[text] = self._member.order(view[key])
            except Exception as error:  # The row of this element raises it; the other rows are made.
                self.unordered[text] = error
        ordered = sorted(places, key=lambda text: (places[text], text))
        return {text: found[text] for text in (*ordered, *sorted(self.unordered))}

    def element(self, key: Any) -> Input[Any]:
        return self._find_source().key(key)

    def has(self, text: str) -> bool:
        return self._find_source().key(self._codec.keys.key(text)).exists()

    def restored(self, text: str, *, is_number: bool) -> Any:
        return self._codec.keys.key(text)


class Projection:
    """The elements of a tuple, by key. A node that the child set registers keeps the projection (`project`)."""

    __slots__ = ("_codec", "_core", "_document", "_find_source", "_key", "_member", "unordered")

    def __init__(
        self, core: Core, document: Document, member: EachMember, codec: TypeCodec[Any], find_source: FindSource
    ) -> None:
        assert member.key is not None
        self.unordered: dict[str, Exception] = {}  # A tuple has its own order.
        self._core = core
        self._document = document
        self._member = member
        self._codec = codec
        self._key = member.key
        self._find_source = find_source

    def project(self) -> Any:
        """Return `{order, items}` of the tuple, or, if two elements have the same key, a description of that."""
        elements = self._find_source().get(())
        element = self._codec.element  # type: ignore[attr-defined]  # It is a tuple's.
        at: dict[str | int, int] = {}
        items: dict[str, Any] = {}
        for index, each in enumerate(elements):
            key = self._key(each)
            if type(key) is not str and type(key) is not int:
                raise AuthoringError(
                    f"{self._member!r}: the key of element {index} is {shown(key)}: use a str or an int"
                )
            if str(key) in items:
                return ("twice", f"{shown(key)} is the key of elements {at[key]} and {index}")
            at[key] = index
            items[str(key)] = element.encode(each)
        return ("once", {"order": tuple(at), "items": items, "problem": None})

    def keys(self) -> dict[str, Any]:
        problem = self._part("problem").get(None)
        if problem is not None:
            raise AuthoringError(f"{self._member!r}: {problem}. Give every element a key of its own.")
        return {str(key): key for key in self._part("order").get(())}

    def _part(self, name: str) -> Input[Any]:
        return Computed(self._core, self._document, codec_for(Json), (name,))

    def element(self, key: Any) -> Input[Any]:
        core, codec = self._core, self._codec.element  # type: ignore[attr-defined]
        path = ("items", str(key))
        source = self._find_source()
        if isinstance(source, Cell):
            return Element(core, self._document, codec, path, source=source, key=key, key_of=self._key)
        return Input(core, self._document, codec, path)

    def has(self, text: str) -> bool:
        return any(str(self._key(each)) == text for each in self._find_source().get(()))

    def restored(self, text: str, *, is_number: bool) -> Any:
        return int(text) if is_number else text


def encode_projection(result: object, before: MaybeValue) -> MaybeValue:
    """Return the projection to store. Equal items keep their old object, so that comparing them later costs nothing.

    A projection with a duplicate key keeps the previous order and items.
    """
    assert isinstance(result, tuple)
    said, value = result
    kept: dict[str, Any] = dict(before) if isinstance(before, Mapping) else {"order": (), "items": {}}
    if said != "once":
        return freeze({**kept, "problem": value})
    then = kept["items"]
    for key, raw in value["items"].items():
        if key in then and equal(then[key], raw):
            value["items"][key] = then[key]
    return freeze(value)


class Element(Cell[Any]):
    """One element of a tuple: read by its key, written at its current position."""

    __slots__ = ("_at", "_is_direct", "_key", "_key_of", "_source")

    def __init__(
        self,
        runtime: Any,
        document: Document,
        codec: TypeCodec[Any],
        path: tuple[str | int, ...] = (),
        default: MaybeValue = ABSENT,
        root: Any = None,
        *,
        source: Cell[Any] | None = None,
        key: Any = None,
        key_of: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(runtime, document, codec, path, default, root)
        self._source = source
        self._key = key
        self._key_of = key_of
        self._is_direct = False  # a write through this handle is running
        self._at = 2  # the number of path steps that lead to the element

    def _part(self, path: Any, codec: TypeCodec[Any]) -> Any:
        part = super()._part(path, codec)
        part._source, part._key, part._key_of = self._source, self._key, self._key_of
        return part

    def set(self, value: Any, /, *, group: object | None = None) -> None:
        """Replace the value at the current position of the element."""
        self._codec.encode(value, self._path)
        act = self._setter(value) if self._current.run is None else lambda: self._set(value)
        self._run_or_write(act, group)

    def _delete_outside(self, group: object | None) -> None:
        self._run_or_write(self._delete, group)

    def _run_or_write(self, act: Callable[[], None], group: object | None) -> None:
        def directly() -> None:
            """Write based on the current tuple: the projection may not have caught up with it yet."""
            self._is_direct, was = True, self._is_direct
            try:
                act()
            finally:
                self._is_direct = was

        if self._current.run is not None:
            directly()
        else:
            assert self._source is not None
            self._runtime.check_thread()
            self._runtime.write(self._source, directly, group)

    def _write(self, document: Document, patch: Patch) -> None:
        """Translate a write inside the projection to one inside the tuple."""
        source, key_of = self._source, self._key_of
        assert source is not None
        assert key_of is not None
        if document is not self._document:
            super()._write(document, patch)  # A link inside the element led elsewhere.
            return
        elements = source.get(())
        index = next((at for at, each in enumerate(elements) if key_of(each) == self._key), None)
        if index is None:
            raise AbsentError(f"{self!r} cannot be written: the tuple has no element with that key any more")
        site = source._find(Depth.DEEP)
        below = patch.path[self._at :]
        if not below and patch.kind == "remove":
            super()._write(site.document, Patch("splice", site.path, (index, 1, ())))
        elif not below and patch.kind == "add":
            super()._write(site.document, Patch("replace", (*site.path, index), patch.arg))
        else:
            super()._write(site.document, Patch(patch.kind, (*site.path, index, *below), patch.arg))

    def _root(self, document: Document) -> MaybeValue:
        """Return the root value to read. During a write, and after the run wrote the tuple, project the tuple."""
        run, source, key_of = self._current.run, self._source, self._key_of
        if run is None or run.overlay is None or document is not self._document or source is None or key_of is None:
            return super()._root(document)
        site = source._find(Depth.DEEP)
        if not self._is_direct and site.document not in run.overlay:
            return super()._root(document)
        elements = source.get(())
        raw = site.value if isinstance(site.value, tuple) else ()
        return freeze({"items": {str(key_of(each)): raw[at] for at, each in enumerate(elements[: len(raw)])}})

    def _record_read(self, document: Document, path: Path, depth: Depth) -> None:
        """Record no read of the projection during a write: the tuple was read in its place (`_root`)."""
        if not self._is_direct or document is not self._document:
            super()._record_read(document, path, depth)

    def as_input(self) -> Input[Any]:
        return Input(self._runtime, self._document, self._codec, self._path)
