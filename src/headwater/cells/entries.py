"""Read-only Mappings over what is stored.

Owns `Entries`, which decodes an entry when it is first looked at. Never writes and never copies the raw
object. Invariants: equal to a dict with the same entries; hands out the same object for the same raw entry.

The cache belongs to all versions of one place: each cached entry says which raw object it was made of, so a
version takes from it what is still the same. It is trimmed when it outgrows what is stored, so entries
that left do not pile up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from headwater.cells.scalars import check_key
from headwater.cells.typecodec import Mismatch, TypeCodec
from headwater.data.value import ABSENT, MaybeValue, Value

__all__ = ["Cache", "Entries", "KeyCodec", "decoded_entry", "trimmed"]

K = TypeVar("K")
V = TypeVar("V")

Cache: TypeAlias = dict[str, tuple[Value, Any]]

_SPARE: Final = 16
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
        value = codec.again(known[0], known[1], raw)
    cache[step] = (raw, value)
    return value


def trimmed(cache: Cache, raw: dict[str, Value]) -> Cache:
    """`cache`, or the part of it that is still stored once more than half of it is not."""
    if len(cache) <= 2 * len(raw) + _SPARE:
        return cache
    return {step: known for step, known in cache.items() if step in raw}


class Entries(Mapping[K, V]):
    """A Mapping that decodes its entries when they are looked at."""

    __slots__ = ("_cache", "_codec", "_keys", "raw")

    def __init__(self, raw: dict[str, Value], keys: KeyCodec, codec: TypeCodec[V], cache: Cache) -> None:
        self.raw = raw
        self._keys = keys
        self._codec = codec
        self._cache = cache

    def is_of(self, keys: KeyCodec, codec: TypeCodec[Any]) -> bool:
        """Whether it was made by these, so that what it stands on is already in their form."""
        return self._keys is keys and self._codec is codec

    def known(self, step: str, raw: MaybeValue) -> Any:
        """What the entry was decoded to, if it was and is still made of `raw`; or ABSENT."""
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
            raise mismatch.stored(()) from None
        return value

    def _step(self, key: object) -> str | None:
        """Where the key would be stored; None for what cannot be a key here."""
        if type(key) is str and self._keys.is_text:
            return key
        try:
            return self._keys.step(key)
        except Mismatch:
            return None

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
            raise mismatch.stored(()) from None
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
