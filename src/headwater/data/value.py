"""What a document can hold.

Owns the value model: JSON plus bytes and links, where it enters (`freeze`), when two values are the same
(`equal`; with the order of keys `same`) and roughly how large one is (`size_of`). Never encodes, never patches.

Arrays are tuples. Objects are plain dicts that nobody mutates once `freeze` returned them; that is a
convention, kept by every module because all writing goes through `patch.apply`, which copies. Invariants:
a frozen value shares nothing mutable with the caller's input; it holds only the exact types below; its
depth is bounded, so the recursive functions of this layer cannot exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headwater.data.absent import ABSENT, Absent
from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.data.link import Link
from headwater.data.path import Path
from headwater.data.refusal import Refusal, invalid_value, refuse_text, refuse_type
from headwater.data.text import utf8_length

__all__ = ["ABSENT", "MAX_INT", "Absent", "MaybeValue", "Value", "equal", "freeze", "same", "size_of"]

if TYPE_CHECKING:
    Scalar: TypeAlias = bool | int | float | str | bytes | Link | None
    Value: TypeAlias = Scalar | tuple["Value", ...] | dict[str, "Value"]
    MaybeValue: TypeAlias = Value | Absent
else:
    # Wire records have fields of these types; their decoder must take them as they come.
    Value = Any
    MaybeValue = Any

MAX_INT: Final = 2**53 - 1
_MIN_INT: Final = -MAX_INT


def freeze(raw: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS, *, at: Path = ()) -> Value:
    """`raw` as a value, or InvalidValueError that names the culprit and what to write instead.

    `at` is where the value will be placed in its document; it counts towards the depth and is in messages.
    """
    if type(raw) is str:
        if raw.isascii() and len(raw) <= limits.string_bytes:
            return raw
    elif type(raw) is int:
        if _MIN_INT <= raw <= MAX_INT:
            return raw
    elif raw is None or type(raw) is bool or (type(raw) is float and raw - raw == 0):
        return raw  # Only a finite number minus itself is 0.
    return _freeze_slowly(raw, limits, at)


def _freeze_slowly(raw: object, limits: ValueLimits, at: Path) -> Value:
    room = [limits.total_bytes]
    try:
        value = _enter(raw, limits, len(at), room)
        if room[0] < 0:
            raise Refusal("total", limits.total_bytes)
    except Refusal as refusal:
        raise invalid_value(refusal, raw, at, limits) from None
    return value


def _enter(raw: object, limits: ValueLimits, level: int, room: list[int]) -> Value:
    if type(raw) is str:
        if raw.isascii() and len(raw) <= limits.string_bytes:
            room[0] -= len(raw)
            return raw
        return _enter_text(raw, limits, room)
    if raw is None or type(raw) is bool or type(raw) is Link:
        return raw
    if type(raw) is int:
        if _MIN_INT <= raw <= MAX_INT:
            return raw
        raise Refusal("int", raw)
    if type(raw) is float:
        if raw - raw == 0:
            return raw
        raise Refusal("float", raw)
    if type(raw) is dict:
        return _enter_object(raw, limits, level, room)
    if type(raw) is list or type(raw) is tuple:
        return _enter_array(raw, limits, level, room)
    if type(raw) is bytes:
        return _enter_bytes(raw, limits, room)
    return _enter(_exact(raw), limits, level, room)


def _enter_text(text: str, limits: ValueLimits, room: list[int]) -> str:
    length = utf8_length(text)
    if 0 <= length <= limits.string_bytes:
        room[0] -= length
        return text
    return refuse_text(text, length, limits.string_bytes)


def _enter_bytes(data: bytes, limits: ValueLimits, room: list[int]) -> bytes:
    if len(data) > limits.string_bytes:
        raise Refusal("bytes", len(data))
    room[0] -= len(data)
    return data


def _enter_array(raw: Collection[object], limits: ValueLimits, level: int, room: list[int]) -> Value:
    _open_container(raw, limits, level, room)
    frozen: list[Value] = []
    try:
        for item in raw:
            frozen.append(_enter(item, limits, level + 1, room))
    except Refusal as refusal:
        refusal.steps.append(len(frozen))
        raise
    return tuple(frozen)


def _enter_object(raw: dict[object, object], limits: ValueLimits, level: int, room: list[int]) -> Value:
    _open_container(raw, limits, level, room)
    frozen: dict[str, Value] = {}
    for key, item in raw.items():
        name = key if type(key) is str else _exact_key(key)
        if name.isascii() and len(name) <= limits.key_bytes:
            room[0] -= len(name)
        else:
            _enter_key(name, limits, room)
        try:
            frozen[name] = _enter(item, limits, level + 1, room)
        except Refusal as refusal:
            refusal.steps.append(name)
            raise
    return frozen


def _open_container(raw: Collection[object], limits: ValueLimits, level: int, room: list[int]) -> None:
    if level >= limits.depth:
        raise Refusal("depth", raw)
    if len(raw) > limits.container_items:
        raise Refusal("items", len(raw))
    room[0] -= len(raw) + 1
    if room[0] < 0:  # Checked at every container, so that shared parts that unfold without end stop here.
        raise Refusal("total", limits.total_bytes)


def _enter_key(key: str, limits: ValueLimits, room: list[int]) -> None:
    length = utf8_length(key)
    if not 0 <= length <= limits.key_bytes:
        refuse_text(key, length, limits.key_bytes, of_key=True)
    room[0] -= length


def _exact_key(key: object) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    raise Refusal("key", key)


def _exact(raw: object) -> object:
    """The plain form of a subclass that carries nothing but its base value, or a refusal."""
    # The base class does the conversion: an override in the subclass is not asked.
    if isinstance(raw, str):
        return str.__str__(raw)
    if isinstance(raw, int):
        return int.__index__(raw)
    if isinstance(raw, float):
        return float.__float__(raw)
    if isinstance(raw, bytes):
        return b"".join((raw,))
    if isinstance(raw, (list, tuple)):
        return tuple(raw)
    if isinstance(raw, Mapping):
        return dict(raw.items())
    return refuse_type(raw)


def equal(a: MaybeValue, b: MaybeValue) -> bool:
    """Whether two values are the same. Shared parts cost nothing; `True` is not 1; 1 and 1.0 are one."""
    if a is b:
        return True
    if type(a) is not type(b):
        return (type(a) is int or type(a) is float) and (type(b) is int or type(b) is float) and a == b
    if type(a) is dict and type(b) is dict:
        return _equal_objects(a, b)
    if type(a) is tuple and type(b) is tuple:
        return _equal_arrays(a, b)
    return a == b


def _equal_objects(a: dict[str, Value], b: dict[str, Value]) -> bool:
    if len(a) != len(b):
        return False
    for key, x in a.items():
        y = b.get(key, ABSENT)
        if x is y:
            continue
        if type(x) is str and type(y) is str:  # The most common leaf, without a call.
            if x != y:
                return False
        elif not equal(x, y):
            return False
    return True


def _equal_arrays(a: tuple[Value, ...], b: tuple[Value, ...]) -> bool:
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):  # noqa: SIM110  # A loop, because a generator doubles the cost.
        if x is not y and not equal(x, y):
            return False
    return True


def same(a: MaybeValue, b: MaybeValue) -> bool:
    """Whether two values are equal, and the keys of each object come in the same order."""
    if a is b:
        return True
    if type(a) is dict and type(b) is dict:
        if list(a) != list(b):
            return False
        a, b = tuple(a.values()), tuple(b.values())
    if type(a) is not tuple or type(b) is not tuple:
        return equal(a, b)
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):  # noqa: SIM110  # A loop, as above.
        if x is not y and not same(x, y):
            return False
    return True


def size_up_to(value: MaybeValue, most: int) -> int:
    """The same as `size_of`, but of a value that is larger than `most` no more is counted than shows that."""
    if type(value) is dict:
        total = 3
        for key, item in value.items():
            if total > most:
                break
            total += 2 + len(key) + size_up_to(item, most - total)
        return total
    if type(value) is tuple:
        total = 3
        for item in value:
            if total > most:
                break
            total += size_up_to(item, most - total)
        return total
    return size_of(value)


def size_of(value: MaybeValue) -> int:
    """About how many bytes `codec.encode` would need. Never less than 1, cheap, not exact."""
    if type(value) is str:
        return 3 + (len(value) if value.isascii() else 2 * len(value))
    if type(value) is dict:
        total = 3
        for key, item in value.items():
            total += 2 + len(key) + size_of(item)
        return total
    if type(value) is tuple:
        total = 3
        for item in value:
            total += size_of(item)
        return total
    if type(value) is int:
        return 1 if -32 <= value < 128 else 5
    if type(value) is float:
        return 9
    if type(value) is bytes:
        return 5 + len(value)
    if type(value) is Link:
        return 24 + len(value.id) + len(value.scope) + 8 * len(value.path)
    return 1
