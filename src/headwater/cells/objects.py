"""Codecs of Mappings and of Json.

Owns how objects without declared fields are stored and read. Never knows fields: `records` does. Invariants: what
is handed out cannot be written to; an entry is decoded when it is first looked at, and once per raw object.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from headwater.cells.arrays import align
from headwater.cells.entries import Entries, KeyCodec
from headwater.cells.scalars import StrCodec, check_key, frozen
from headwater.cells.typecodec import Lazy, Mismatch, TypeCodec
from headwater.data.value import ABSENT, MaybeValue, Value

__all__ = ["JsonCodec", "MappingCodec"]


class MappingCodec(TypeCodec[Mapping[Any, Any]]):
    """`Mapping[K, V]`, an object. Reads as a Mapping that nobody can write to."""

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
            made[step] = raw  # type: ignore[assignment]  # What was decoded is not ABSENT.
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

    def again(self, old: Value, known: Any, raw: Value) -> Mapping[Any, Any]:
        if type(raw) is dict and type(known) is Entries:
            return known.next_version(raw)
        return self.leave(raw)

    def accepts(self, value: object) -> bool:
        return isinstance(value, Mapping)


class JsonCodec(TypeCodec[Any]):
    """`headwater.Json`: any value. Objects read as Mappings that nobody can write to, arrays as tuples."""

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

    def again(self, old: Value, known: Any, raw: Value) -> Any:
        if type(raw) is dict and type(known) is Entries:
            return known.next_version(raw)
        if type(raw) is tuple and type(old) is tuple:

            def make(index: int, aligned: bool) -> Any:
                return self.again(old[index], known[index], raw[index]) if aligned else self.leave(raw[index])

            return align(raw, old, known, make)
        return self.leave(raw)

    def accepts(self, value: object) -> bool:
        return True
