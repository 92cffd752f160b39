"""Lazy, read-only views of a value.

Each touch of a view goes to a `ReadRecorder`, which records the read. A view reads no more than it is asked for, never
writes, and never follows a link: a link is handed out as it is.

A report covers the information that the reader got, neither more nor less:

- a leaf, or a comparison with a value: all of it (`Depth.DEEP` at its path);
- iteration and length: the keys or the length of that container (`Depth.SHAPE` at its path);
- whether a key or an index is there: the shape of that one place, so that other keys may come and go. Descending
  by key tells that it is there; descending to a field tells nothing, unless it could have been something else
  (`Address | None`, `Json`): then the part that tells them apart is read: the tag, where there are several classes.

Invariant: a reader that only kept the results of a view would notice, by these reads, every change that could have made
the view return something else.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from types import FunctionType, MethodType
from typing import Any, Final, NoReturn, Protocol

from headwater.cells.codec_base import Lazy, Mismatch, TypeCodec
from headwater.cells.containers import FixedTupleCodec, JsonCodec, MappingCodec, TupleCodec
from headwater.cells.records import RecordCodec
from headwater.cells.unions import UnionCodec
from headwater.data.address import Depth, Link
from headwater.data.path import Path, path_text
from headwater.data.value import ABSENT, Absent, MaybeValue, Value

__all__ = ["MappingView", "ReadRecorder", "RecordView", "SequenceView", "open_view"]


class ReadRecorder(Protocol):
    """Records a read. Implemented by the owner of the run and the document."""

    def __call__(self, path: Path, depth: Depth, /) -> object: ...


def open_view(codec: TypeCodec[Any], raw: Value, path: Path, touch: ReadRecorder) -> Any:
    """Return a view of the value at `path`; or, where it has no parts, the value, which is then read."""
    return _part(codec, raw, path, touch, is_known=True)


def _part(codec: TypeCodec[Any], raw: Value, path: Path, touch: ReadRecorder, *, is_known: bool) -> Any:
    """Return a view or a value. `is_known`: earlier reports of the caller already tell that this is here."""
    if type(raw) is Link:
        touch(path, Depth.DEEP)
        return raw
    tells: list[tuple[Path, Depth]] = []
    if isinstance(codec, JsonCodec) or not is_known:
        tells.append(((), Depth.SHAPE))  # that it is here, and of its kind
    if isinstance(codec, UnionCodec):
        tells = codec.deciding(raw)
        try:
            codec = codec.member(raw)
        except Mismatch as mismatch:
            _tell(tells, path, touch)
            raise mismatch.error_of_read(path) from None
    view = _view_of(codec, raw, path, touch)
    if view is None:
        touch(path, Depth.DEEP)
        return codec.decode(raw, path)
    _tell(tells, path, touch)
    return view


def _tell(tells: Iterable[tuple[Path, Depth]], path: Path, touch: ReadRecorder) -> None:
    for place, depth in tells:
        touch(path + place, depth)


def _view_of(codec: TypeCodec[Any], raw: Value, path: Path, touch: ReadRecorder) -> Lazy | None:
    """Return a view where there are parts to read one by one; None for a leaf, and for a value of another type."""
    if type(raw) is dict:
        if isinstance(codec, RecordCodec):
            return RecordView(codec, raw, path, touch)
        if isinstance(codec, MappingCodec | JsonCodec):
            return MappingView(codec, raw, path, touch)
    if type(raw) is tuple and isinstance(codec, TupleCodec | FixedTupleCodec | JsonCodec):
        return SequenceView(codec, raw, path, touch)
    return None


class _View(Lazy):
    """The common part of all views."""

    __slots__ = ("_codec", "_path", "_raw", "_touch")

    def __init__(self, codec: Any, raw: Any, path: Path, touch: ReadRecorder) -> None:
        self._codec = codec
        self._raw = raw
        self._path = path
        self._touch = touch

    def __whole__(self) -> Any:
        """The value, all of it read."""
        self._touch(self._path, Depth.DEEP)
        return self._codec.decode(self._raw, self._path)

    def __eq__(self, other: object) -> bool:
        return bool(self.__whole__() == (other.__whole__() if isinstance(other, Lazy) else other))

    __hash__ = None  # type: ignore[assignment]  # A hash would read everything, unnoticed by the author.

    def __repr__(self) -> str:
        # Without content: a debugger must not become a reader.
        return f"<view of {self._codec.expected} at {path_text(self._path) or 'the root'}>"


class MappingView(_View, Mapping[Any, Any]):
    """A lazy Mapping, or an object of Json."""

    __slots__ = ()

    def _element(self) -> TypeCodec[Any]:
        codec: TypeCodec[Any] = self._codec if isinstance(self._codec, JsonCodec) else self._codec.element
        return codec

    def _step(self, key: object) -> str | None:
        try:
            step: str = self._codec.keys.step(key)
        except Mismatch:
            return None  # Nothing with such a key was ever stored, or will be.
        return step

    def __getitem__(self, key: Any) -> Any:
        step = self._step(key)
        if step is None:
            raise KeyError(key)
        if step not in self._raw:
            self._touch((*self._path, step), Depth.SHAPE)
            raise KeyError(key)
        return _part(self._element(), self._raw[step], (*self._path, step), self._touch, is_known=False)

    def __contains__(self, key: object) -> bool:
        step = self._step(key)
        if step is None:
            return False
        self._touch((*self._path, step), Depth.SHAPE)
        return step in self._raw

    def __iter__(self) -> Iterator[Any]:
        self._touch(self._path, Depth.SHAPE)
        return iter([self._key(step) for step in self._raw])

    def _key(self, step: str) -> Any:
        try:
            return self._codec.keys.key(step)
        except Mismatch as mismatch:
            raise mismatch.error_of_read(self._path) from None

    def __len__(self) -> int:
        self._touch(self._path, Depth.SHAPE)
        return len(self._raw)

    def items(self) -> Any:
        """Keys and values, each value read or opened when it is reached."""
        return _Items(self)

    def values(self) -> Any:
        """Values, each read or opened when it is reached."""
        return _Values(self)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over entries: the presence of the keys is reported once, by the iteration."""
        self._touch(self._path, Depth.SHAPE)
        element = self._element()
        for step, raw in self._raw.items():
            yield self._key(step), _part(element, raw, (*self._path, step), self._touch, is_known=True)


class _Items(ItemsView[Any, Any]):
    __slots__ = ()
    _mapping: MappingView

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.pairs()


class _Values(ValuesView[Any]):
    __slots__ = ()
    _mapping: MappingView

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.pairs())


class SequenceView(_View, Sequence[Any]):
    """A lazy tuple, or an array of Json."""

    __slots__ = ()

    def _element(self, index: int) -> TypeCodec[Any]:
        if isinstance(self._codec, FixedTupleCodec):
            return self._codec.elements[index]
        codec: TypeCodec[Any] = self._codec if isinstance(self._codec, JsonCodec) else self._codec.element
        return codec

    def _check(self) -> None:
        """A tuple of fixed length that is stored with another one is no value of its type."""
        if isinstance(self._codec, FixedTupleCodec) and len(self._raw) != len(self._codec.elements):
            self._touch(self._path, Depth.SHAPE)
            self._codec.decode(self._raw, self._path)  # raises, with the right words

    def _at(self, index: int, *, is_known: bool) -> Any:
        return _part(self._element(index), self._raw[index], (*self._path, index), self._touch, is_known=is_known)

    def __getitem__(self, index: Any) -> Any:
        self._check()
        length = len(self._raw)
        if isinstance(index, slice):
            self._touch(self._path, Depth.SHAPE)
            return tuple([self._at(each, is_known=True) for each in range(*index.indices(length))])
        position = operator.index(index)
        is_known = position < 0 or position >= length
        if is_known:  # Which element that is, or that there is none, depends on the length.
            self._touch(self._path, Depth.SHAPE)
            position = position + length if position < 0 else position
            if not 0 <= position < length:
                raise IndexError(f"index {index} of a view with {length} elements")
        return self._at(position, is_known=is_known)

    def __iter__(self) -> Iterator[Any]:
        self._check()
        self._touch(self._path, Depth.SHAPE)
        return (self._at(index, is_known=True) for index in range(len(self._raw)))

    def __len__(self) -> int:
        self._touch(self._path, Depth.SHAPE)
        return len(self._raw)


class RecordView(Lazy):
    """A lazy Model, dataclass or pydantic model: an instance of its class for isinstance and match.

    Every name is a field first, so the view has no attributes of its own. Methods and properties of the class run on
    the view, and read the parts that they touch.
    """

    __slots__ = ("_state",)

    def __init__(self, codec: RecordCodec, raw: dict[str, Value], path: Path, touch: ReadRecorder) -> None:
        object.__setattr__(self, "_state", (codec, raw, path, touch))

    def __getattribute__(self, name: str) -> Any:
        codec, raw, path, touch = _state(self)
        field = codec.by_name.get(name)
        if field is None:
            return codec.type if name == "__class__" else _attribute(self, codec, name)
        place = (*path, field.stored)
        item: MaybeValue = raw.get(field.stored, ABSENT)
        if item is ABSENT:
            if field.default is None:
                touch(place, Depth.DEEP)
                return codec.decode(raw, path)  # raises: a required field is missing
            # Reported like a stored value, so that the default and the same value stored cannot be told apart.
            item = field.codec.encode(field.default(), place)
        return _part(field.codec, item, place, touch, is_known=True)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a view is read-only: {name!r} is written with at(lambda x: x.{name}).set(...)")

    def __whole__(self) -> Any:
        codec, raw, path, touch = _state(self)
        touch(path, Depth.DEEP)
        return codec.decode(raw, path)

    def __eq__(self, other: object) -> bool:
        return bool(RecordView.__whole__(self) == (other.__whole__() if isinstance(other, Lazy) else other))

    def __hash__(self) -> int:
        return hash(RecordView.__whole__(self))

    def __repr__(self) -> str:
        codec, _, path, _ = _state(self)
        return f"<view of {codec.expected} at {path_text(path) or 'the root'}>"


_state: Final[Callable[[RecordView], tuple[RecordCodec, dict[str, Value], Path, ReadRecorder]]] = vars(RecordView)[
    "_state"
].__get__


def _attribute(view: RecordView, codec: RecordCodec, name: str) -> Any:
    """Something of the class that is no field: run on the view where that is possible."""
    if name.startswith("__") and name.endswith("__"):
        return object.__getattribute__(view, name)
    found = inspect.getattr_static(codec.type, name, ABSENT)
    match found:
        case FunctionType():
            return MethodType(found, view)
        case property() if found.fget is not None:
            return found.fget(view)
        case functools.cached_property():
            return found.func(view)
        case Absent():
            raise AttributeError(f"{codec.expected} has no field {name!r}")
        case _ if isinstance(found, staticmethod | classmethod) or not hasattr(found, "__get__"):
            return getattr(codec.type, name)
        case _:
            return getattr(RecordView.__whole__(view), name)  # A descriptor that wants a real instance.
