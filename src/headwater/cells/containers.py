"""Codecs of containers without declared fields: tuples, frozensets, Mappings and Json.

Arrays: decoding a new version decodes only the elements whose raw objects are new; the others are found again by
identity, wherever they moved. A write is aligned with the stored array.

Objects: `Entries` is a read-only Mapping over a stored object. It equals a dict with the same entries, decodes an
entry when it is first read, and returns the same object for the same raw entry. Its cache belongs to all versions of
one place: each cached entry has the raw object that it was made of, so that a new version reuses the unchanged
entries. The cache is trimmed when it outgrows the stored object. Fields are in `records`.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NewType, TypeAlias, TypeVar

import msgspec

from headwater.cells.codec_base import CELL_LIMITS, Lazy, Mismatch, TypeCodec, is_known_to_msgspec
from headwater.cells.scalars import StrCodec, check_key, frozen
from headwater.data.json_form import canonical
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, Value

__all__ = [
    "Cache",
    "Entries",
    "FixedTupleCodec",
    "FrozensetCodec",
    "Json",
    "JsonCodec",
    "KeyCodec",
    "MappingCodec",
    "TupleCodec",
    "align",
    "decode_given",
    "decoded_entry",
    "trimmed",
]


K = TypeVar("K")
V = TypeVar("V")

Cache: TypeAlias = dict[str, tuple[Value, Any]]

_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,15}")


class KeyCodec:
    """Keys of a Mapping: text once stored, whatever they are in the program."""

    __slots__ = ("_codec", "expected", "is_number", "is_text")

    def __init__(self, codec: TypeCodec[Any]) -> None:
        self._codec = codec
        self.expected = codec.expected
        self.is_text = codec.plain and codec.kinds == {str}  # the key is its own step
        self.is_number = int in codec.kinds  # written in decimal digits

    def step(self, key: object) -> str:
        """The key as a step of a path. Raises Mismatch."""
        raw = self._codec.enter(key, 0)
        return check_key(raw) if type(raw) is str else str(raw)

    def key(self, step: str) -> Any:
        """The key of a stored step. Raises Mismatch."""
        if not self.is_number:
            return self._codec.leave(step)
        if not _NUMBER.fullmatch(step):
            raise Mismatch(f"expected {self.expected} as a key, found {step!r}")
        return self._codec.leave(int(step))


def decoded_entry(cache: Cache, step: str, raw: Value, codec: TypeCodec[Any]) -> Any:
    """The value of one entry, from the cache where it was made of the same raw object."""
    known = cache.get(step)
    if known is None:
        value = codec.leave(raw)
    elif known[0] is raw:
        return known[1]
    else:
        value = codec.leave_changed(known[0], known[1], raw)
    cache[step] = (raw, value)
    return value


def trimmed(cache: Cache, raw: dict[str, Value]) -> Cache:
    """`cache`, or the part of it that is still stored once more than half of it is not."""
    if len(cache) <= 2 * len(raw) + CELL_LIMITS.spare_entries:
        return cache
    return {step: known for step, known in cache.items() if step in raw}


def decode_given(codec: TypeCodec[Any], raw: Value, at: Path = ()) -> Any:
    """Return the value of data that comes from outside, in its stored form. InvalidValueError: a part does not fit.

    Unlike `codec.decode` it decodes the entries of Mappings, too: a wrong entry is an error of the sender, and not of
    the code that reads the entry later.
    """
    try:
        value = codec.leave(raw)
        _decode_entries(value)
    except Mismatch as mismatch:
        raise mismatch.error_of_write(at) from None
    return value


_LEAVES: Final = (str, int, float, bool, bytes, type(None))


def _decode_entries(value: object) -> None:
    parts: Iterable[tuple[str | int, object]]
    if isinstance(value, msgspec.Struct):
        parts = [(name, getattr(value, name)) for name in value.__struct_fields__]
    elif type(value) is Entries:
        parts = value.decode_all()
    elif is_dataclass(value):
        parts = [(each.name, getattr(value, each.name)) for each in fields(value)]
    elif isinstance(value, tuple | frozenset):
        parts = enumerate(value)
    else:
        return
    for step, part in parts:
        if type(part) in _LEAVES:
            continue
        try:
            _decode_entries(part)
        except Mismatch as mismatch:
            mismatch.steps.append(step)
            raise


class Entries(Mapping[K, V]):
    """A Mapping that decodes its entries when they are looked at."""

    __slots__ = ("_cache", "_codec", "_keys", "raw")

    def __init__(self, raw: dict[str, Value], keys: KeyCodec, codec: TypeCodec[V], cache: Cache) -> None:
        self.raw = raw
        self._keys = keys
        self._codec = codec
        self._cache = cache

    def is_of(self, keys: KeyCodec, codec: TypeCodec[Any]) -> bool:
        """Whether it was made by these codecs, so that its raw object is already in their form."""
        return self._keys is keys and self._codec is codec

    def known(self, step: str, raw: MaybeValue) -> Any:
        """Return the decoded entry, if it is still made of `raw`; or ABSENT."""
        known = self._cache.get(step)
        return known[1] if known is not None and known[0] is raw else ABSENT

    def next_version(self, raw: dict[str, Value]) -> Entries[K, V]:
        """The same place, later."""
        return Entries(raw, self._keys, self._codec, trimmed(self._cache, raw))

    def _value(self, step: str) -> V:
        try:
            value: V = decoded_entry(self._cache, step, self.raw[step], self._codec)
        except Mismatch as mismatch:
            mismatch.steps.append(step)
            raise mismatch.error_of_read(()) from None
        return value

    def _step(self, key: object) -> str | None:
        """Return the stored key; None for an object that cannot be a key here."""
        if type(key) is str and self._keys.is_text:
            return key
        try:
            return self._keys.step(key)
        except Mismatch:
            return None

    def decode_all(self) -> list[tuple[str, V]]:
        """Return the entries with their stored keys. Mismatch: a key or a value does not fit."""
        found: list[tuple[str, V]] = []
        for step, raw in self.raw.items():
            self._keys.key(step)
            try:
                found.append((step, decoded_entry(self._cache, step, raw, self._codec)))
            except Mismatch as mismatch:
                mismatch.steps.append(step)
                raise
        return found

    def __getitem__(self, key: K) -> V:
        step = self._step(key)
        if step is None or step not in self.raw:
            raise KeyError(key)
        return self._value(step)

    def __contains__(self, key: object) -> bool:
        return self._step(key) in self.raw

    def __iter__(self) -> Iterator[K]:
        return iter(self.raw) if self._keys.is_text else map(self._key, self.raw)  # type: ignore[arg-type]

    def _key(self, step: str) -> K:
        try:
            key: K = self._keys.key(step)
        except Mismatch as mismatch:
            raise mismatch.error_of_read(()) from None
        return key

    def __len__(self) -> int:
        return len(self.raw)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Entries) and other.raw is self.raw and other._codec is self._codec:
            return True
        return dict(self.items()) == dict(other.items()) if isinstance(other, Mapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # Like a dict: values may not be hashable.

    def __repr__(self) -> str:
        return repr(dict(self.items()))


A = TypeVar("A")


def align(
    new: tuple[Any, ...], old: tuple[Any, ...], kept: tuple[A, ...], make: Callable[[int, bool], A]
) -> tuple[A, ...]:
    """Return, for each element of `new`, the element of `kept` where `old` has the same object, or a new one from
    `make`.

    `make` gets the index, and whether that index of `old` held a value that is replaced. Only elements that moved are
    searched, so that an append does not cost a table of all elements; a second copy of an unmoved one is made anew.
    """
    if len(new) == len(old):
        changed = _where_false(list(map(is_, new, old)))
        moved = {id(old[index]): kept[index] for index in changed}
        stays = {id(new[index]) for index in changed}
        result = list(kept)
        for index in changed:
            if id(new[index]) in moved:
                result[index] = moved[id(new[index])]
            else:  # The old element here is elsewhere now and has not become this one.
                result[index] = make(index, id(old[index]) not in stays)
        return tuple(result)
    most = min(len(new), len(old))
    start = _leading(list(map(is_, new, old)))
    stop = min(_leading(list(map(is_, reversed(new), reversed(old)))), most - start)
    moved = {id(old[index]): kept[index] for index in range(start, len(old) - stop)}
    middle = [
        moved[id(new[index])] if id(new[index]) in moved else make(index, False)
        for index in range(start, len(new) - stop)
    ]
    return (*kept[:start], *middle, *kept[len(kept) - stop :])


def _where_false(same: list[bool]) -> list[int]:
    found: list[int] = []
    index = -1
    for _ in range(same.count(False)):
        index = same.index(False, index + 1)
        found.append(index)
    return found


def _leading(same: list[bool]) -> int:
    return same.index(False) if False in same else len(same)


def shared(old: tuple[Value, ...], new: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return `old` itself where every element is the same object, so that values made of it stay valid."""
    return old if len(old) == len(new) and all(map(is_, old, new)) else new


class TupleCodec(TypeCodec[tuple[Any, ...]]):
    """`tuple[T, ...]`, an array."""

    __slots__ = ("_native_type", "element")

    def __init__(self, element: TypeCodec[Any], native_type: Any) -> None:
        super().__init__(f"tuple[{element.expected}, ...]", tuple, hashable=element.hashable)
        self.element = element
        self._native_type = native_type if element.native and is_known_to_msgspec(native_type) else None

    def enter(self, value: object, level: int) -> Value:
        items = self._items(value, level)
        made: list[Value] = []
        try:
            for item in items:
                made.append(self.element.enter(item, level + 1))
        except Mismatch as mismatch:
            mismatch.steps.append(len(made))
            raise
        return tuple(made)

    def _items(self, value: object, level: int) -> tuple[Any, ...]:
        if isinstance(value, Lazy):
            value = value.__whole__()
        if not isinstance(value, tuple):
            return self.misfit(value, "write tuple(...) of it" if isinstance(value, list) else "")
        self.room(level, len(value))
        return value

    def leave(self, raw: Value) -> tuple[Any, ...]:
        if type(raw) is not tuple:
            return self.misfit_stored(raw)
        exact = self.element.exact
        if exact is not None and set(map(type, raw)) <= {exact}:
            return raw
        if self._native_type is not None:
            try:
                return msgspec.convert(raw, self._native_type)  # type: ignore[no-any-return]
            except (msgspec.ValidationError, RecursionError):
                pass  # Element by element finds the culprit, or that it can be read after all.
        return tuple([self._leave_one(raw, index) for index in range(len(raw))])

    def _leave_one(self, raw: tuple[Value, ...], index: int) -> Any:
        try:
            return self.element.leave(raw[index])
        except Mismatch as mismatch:
            mismatch.steps.append(index)
            raise

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "array", "items": self.element.schema(within)}

    def accepts(self, value: object) -> bool:
        return isinstance(value, tuple)

    def leave_changed(self, old: Value, known: Any, raw: Value) -> tuple[Any, ...]:
        if type(raw) is not tuple or type(old) is not tuple or self.element.exact is not None:
            return self.leave(raw)

        def make(index: int, aligned: bool) -> Any:
            if not aligned:
                return self._leave_one(raw, index)
            try:
                return self.element.leave_changed(old[index], known[index], raw[index])
            except Mismatch as mismatch:
                mismatch.steps.append(index)
                raise

        return align(raw, old, known, make)

    def join(self, old: MaybeValue, new: object, known: object, level: int) -> Value:
        items = self._items(new, level)
        if type(old) is not tuple:
            return self.enter(items, level)
        is_known = type(known) is tuple and len(known) == len(old)
        before: tuple[Any, ...] = known if is_known else (ABSENT,) * len(old)  # type: ignore[assignment]

        def make(index: int, aligned: bool) -> Value:
            try:
                if aligned:
                    return self.element.join(old[index], items[index], before[index], level + 1)
                return self.element.enter(items[index], level + 1)
            except Mismatch as mismatch:
                mismatch.steps.append(index)
                raise

        return shared(old, align(items, before, old, make))


class FixedTupleCodec(TypeCodec[tuple[Any, ...]]):
    """`tuple[A, B]`: as many elements as it says, each of its own type."""

    __slots__ = ("elements",)

    def __init__(self, elements: tuple[TypeCodec[Any], ...]) -> None:
        written = ", ".join(element.expected for element in elements) or "()"
        super().__init__(f"tuple[{written}]", tuple, hashable=all(element.hashable for element in elements))
        self.elements = elements

    def enter(self, value: object, level: int) -> Value:
        return self.join(ABSENT, value, ABSENT, level)

    def join(self, old: MaybeValue, new: object, known: object, level: int) -> Value:
        if isinstance(new, Lazy):
            new = new.__whole__()
        if not isinstance(new, tuple) or len(new) != len(self.elements):
            return self.misfit(new, "write tuple(...) of it" if isinstance(new, list) else "")
        self.room(level, len(new))
        fits = type(old) is tuple and len(old) == len(new)
        made: list[Value] = []
        try:
            for index, element in enumerate(self.elements):
                before = old[index] if fits else ABSENT  # type: ignore[index]
                then = known[index] if fits and type(known) is tuple else ABSENT
                same = then is not ABSENT and then is new[index]
                made.append(before if same else element.join(before, new[index], then, level + 1))  # type: ignore[arg-type]
        except Mismatch as mismatch:
            mismatch.steps.append(len(made))
            raise
        return shared(old, tuple(made)) if type(old) is tuple else tuple(made)

    def leave(self, raw: Value) -> tuple[Any, ...]:
        return self.leave_changed(ABSENT, ABSENT, raw)  # type: ignore[arg-type]

    def leave_changed(self, old: Value, known: Any, raw: Value) -> tuple[Any, ...]:
        if type(raw) is not tuple or len(raw) != len(self.elements):
            return self.misfit_stored(raw)
        fits = type(old) is tuple and len(old) == len(raw)
        made: list[Any] = []
        try:
            for index, element in enumerate(self.elements):
                if not fits:
                    made.append(element.leave(raw[index]))
                elif old[index] is raw[index]:  # type: ignore[index]
                    made.append(known[index])
                else:
                    made.append(element.leave_changed(old[index], known[index], raw[index]))  # type: ignore[index]
        except Mismatch as mismatch:
            mismatch.steps.append(len(made))
            raise
        return tuple(made)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        items, count = [each.schema(within) for each in self.elements], len(self.elements)
        return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}

    def accepts(self, value: object) -> bool:
        return isinstance(value, tuple)


class FrozensetCodec(TypeCodec[frozenset[Any]]):
    """`frozenset[T]`, an array without repetitions, in an order that depends on its elements only."""

    __slots__ = ("element",)

    def __init__(self, element: TypeCodec[Any]) -> None:
        super().__init__(f"frozenset[{element.expected}]", tuple)
        self.element = element

    def enter(self, value: object, level: int) -> Value:
        return tuple(sorted([self._enter_one(item, level) for item in self._items(value, level)], key=canonical))

    def _items(self, value: object, level: int) -> frozenset[Any]:
        if not isinstance(value, frozenset):
            return self.misfit(value, "write frozenset(...) of it" if isinstance(value, set | list | tuple) else "")
        self.room(level, len(value))
        return value

    def _enter_one(self, item: object, level: int) -> Value:
        try:
            return self.element.enter(item, level + 1)
        except Mismatch as mismatch:
            mismatch.steps.append("-")  # An element has no index before it is stored.
            raise

    def leave(self, raw: Value) -> frozenset[Any]:
        if type(raw) is not tuple:
            return self.misfit_stored(raw)
        try:
            return frozenset([self._leave_one(raw, index) for index in range(len(raw))])
        except TypeError:
            return self.misfit_stored(raw, f"make {self.element.expected} hashable")

    def _leave_one(self, raw: tuple[Value, ...], index: int) -> Any:
        try:
            return self.element.leave(raw[index])
        except Mismatch as mismatch:
            mismatch.steps.append(index)
            raise

    def join(self, old: MaybeValue, new: object, known: object, level: int) -> Value:
        items = self._items(new, level)
        if type(old) is not tuple:
            return self.enter(items, level)
        kept: list[Value] = []
        there: set[Any] = set()
        for raw in old:
            try:
                item = self.element.leave(raw)
            except Mismatch:
                continue  # Something else than this type, which the new value replaces.
            if item in items and item not in there:
                there.add(item)
                kept.append(raw)
        for item in items - there:
            insort(kept, self._enter_one(item, level), key=canonical)
        return shared(old, tuple(kept))

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "array", "items": self.element.schema(within), "uniqueItems": True}

    def accepts(self, value: object) -> bool:
        return isinstance(value, frozenset)


class MappingCodec(TypeCodec[Mapping[Any, Any]]):
    """`Mapping[K, V]`, an object. Reads as a read-only Mapping."""

    __slots__ = ("element", "keys")

    def __init__(self, keys: KeyCodec, element: TypeCodec[Any]) -> None:
        super().__init__(f"Mapping[{keys.expected}, {element.expected}]", dict, hashable=False)
        self.keys = keys
        self.element = element

    def enter(self, value: object, level: int) -> Value:
        return self.join(ABSENT, value, ABSENT, level)

    def join(self, old: MaybeValue, new: object, known: object, level: int) -> Value:
        if isinstance(new, Lazy):
            new = new.__whole__()
        if not isinstance(new, Mapping):
            return self.misfit(new)
        is_ours = isinstance(new, Entries) and new.is_of(self.keys, self.element)
        if is_ours and (new.raw is old or type(old) is not dict):  # type: ignore[attr-defined]
            return new.raw  # type: ignore[attr-defined, no-any-return]  # It was stored in this form already.
        self.room(level, len(new))
        stored: dict[str, Value] = old if type(old) is dict else {}
        past = known if isinstance(known, Entries) else None
        made: dict[str, Value] = {}
        same = len(stored) == len(new) and type(old) is dict
        for key, value in new.items():
            step = self._step(key)
            before = stored.get(step, ABSENT)
            then = past.known(step, before) if past is not None else ABSENT
            try:
                is_kept = then is value and then is not ABSENT
                raw = before if is_kept else self.element.join(before, value, then, level + 1)
            except Mismatch as mismatch:
                mismatch.steps.append(step)
                raise
            made[step] = raw  # type: ignore[assignment]  # A decoded value is not ABSENT.
            same = same and raw is before
        return old if same else made  # type: ignore[return-value]

    def _step(self, key: object) -> str:
        if type(key) is str and self.keys.is_text:
            return check_key(key)
        try:
            return self.keys.step(key)
        except Mismatch as mismatch:
            mismatch.problem = f"a key: {mismatch.problem}"
            raise

    def leave(self, raw: Value) -> Mapping[Any, Any]:
        if type(raw) is not dict:
            return self.misfit_stored(raw)
        exact = self.element.exact
        if exact is not None and self.keys.is_text and set(map(type, raw.values())) <= {exact}:
            return MappingProxyType(raw)
        return Entries(raw, self.keys, self.element, {})

    def leave_changed(self, old: Value, known: Any, raw: Value) -> Mapping[Any, Any]:
        if type(raw) is dict and type(known) is Entries:
            return known.next_version(raw)
        return self.leave(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.element.schema(within)}

    def accepts(self, value: object) -> bool:
        return isinstance(value, Mapping)


if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | tuple["Json", ...] | Mapping[str, "Json"] | None
else:
    # A name of its own while the program runs: a union would dissolve in `Json | None` and could not be found again.
    Json = NewType("Json", Any)


class JsonCodec(TypeCodec[Any]):
    """`headwater.Json`: any value. Objects read as read-only Mappings, arrays as tuples."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        super().__init__("Json", type(None), bool, int, float, str, tuple, dict, hashable=False)
        self.keys = KeyCodec(StrCodec())

    def enter(self, value: object, level: int) -> Value:
        if isinstance(value, Lazy):
            value = value.__whole__()
        if isinstance(value, Entries) and value.is_of(self.keys, self):
            return value.raw
        if isinstance(value, Mapping):
            self.room(level, len(value))
            return {self.keys.step(key): self._enter_one(item, key, level) for key, item in value.items()}
        if isinstance(value, tuple | list):
            self.room(level, len(value))
            return tuple([self._enter_one(item, index, level) for index, item in enumerate(value)])
        return frozen(value)

    def _enter_one(self, item: object, step: str | int, level: int) -> Value:
        try:
            return self.enter(item, level + 1)
        except Mismatch as mismatch:
            mismatch.steps.append(step)
            raise

    def leave(self, raw: Value) -> Any:
        if type(raw) is dict:
            return Entries(raw, self.keys, self, {})
        if type(raw) is tuple:
            return tuple([self.leave(item) if type(item) in (dict, tuple) else item for item in raw])
        return raw

    def leave_changed(self, old: Value, known: Any, raw: Value) -> Any:
        if type(raw) is dict and type(known) is Entries:
            return known.next_version(raw)
        if type(raw) is tuple and type(old) is tuple:

            def make(index: int, aligned: bool) -> Any:
                return self.leave_changed(old[index], known[index], raw[index]) if aligned else self.leave(raw[index])

            return align(raw, old, known, make)
        return self.leave(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        return {}

    def accepts(self, value: object) -> bool:
        return True
