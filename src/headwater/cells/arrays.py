"""Codecs of tuples and frozensets.

Owns how arrays are stored, how the next version of one is decoded from the one before, and how a write aligns
with what is there. Never knows keys or fields: `objects` and `records` do. Invariant: decoding a version decodes
only the elements whose raw objects are new; the others are found again by identity, wherever they moved.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, TypeVar

import msgspec

from headwater.cells.typecodec import Lazy, Mismatch, TypeCodec, is_known_to_msgspec
from headwater.data.canonical import canonical
from headwater.data.value import ABSENT, MaybeValue, Value

__all__ = ["FixedTupleCodec", "FrozensetCodec", "TupleCodec", "align"]

A = TypeVar("A")


def align(
    new: tuple[Any, ...], old: tuple[Any, ...], kept: tuple[A, ...], make: Callable[[int, bool], A]
) -> tuple[A, ...]:
    """For each element of `new`, what `kept` has where `old` has the same object, or what `make` makes of it.

    `make` gets the index, and whether that index of `old` held what is now replaced. Only what changed place is
    looked for, so that an append does not cost a table of all elements; a second copy of one that stayed is made anew.
    """
    if len(new) == len(old):
        changed = _where_false(list(map(is_, new, old)))
        moved = {id(old[index]): kept[index] for index in changed}
        stays = {id(new[index]) for index in changed}
        result = list(kept)
        for index in changed:
            if id(new[index]) in moved:
                result[index] = moved[id(new[index])]
            else:  # What was here and is elsewhere now has not become this.
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
    """`old` itself where nothing in it is another object, so that what stands on it stays as it is."""
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

    def accepts(self, value: object) -> bool:
        return isinstance(value, tuple)

    def again(self, old: Value, known: Any, raw: Value) -> tuple[Any, ...]:
        if type(raw) is not tuple or type(old) is not tuple or self.element.exact is not None:
            return self.leave(raw)

        def make(index: int, aligned: bool) -> Any:
            if not aligned:
                return self._leave_one(raw, index)
            try:
                return self.element.again(old[index], known[index], raw[index])
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
        return self.again(ABSENT, ABSENT, raw)  # type: ignore[arg-type]

    def again(self, old: Value, known: Any, raw: Value) -> tuple[Any, ...]:
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
                    made.append(element.again(old[index], known[index], raw[index]))  # type: ignore[index]
        except Mismatch as mismatch:
            mismatch.steps.append(len(made))
            raise
        return tuple(made)

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
        for raw in old:  # In the order of what is there: a set that gained one element is one element longer.
            try:
                item = self.element.leave(raw)
            except Mismatch:
                continue  # Something else than this type, which the new value replaces.
            if item in items and item not in there:
                there.add(item)
                kept.append(raw)
        added = sorted([self._enter_one(item, level) for item in items - there], key=canonical)
        return shared(old, (*kept, *added))

    def accepts(self, value: object) -> bool:
        return isinstance(value, frozenset)
