"""The values that a document can hold: JSON plus bytes and links.

`freeze` turns input into a value or raises InvalidValueError, whose message names the path, the refused object and
a replacement. `equal` compares two values (`same` also the order of keys), `lookup` reads at a path, `size_of`
estimates the encoded size. `ABSENT` stands for "nothing is here": it differs from every value, `None` included, and is
never stored.

Arrays are tuples. Objects are plain dicts that are never mutated after `freeze` returned them: all writing goes
through `patch.apply`, which copies. Invariants: a frozen value shares nothing mutable with the caller's input; it
holds only the exact types below; its depth is bounded, so that the recursive functions of this package cannot exhaust
the stack.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import sys
from collections.abc import Collection, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

from headwater.data.address import Link
from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.data.path import Path, path_text
from headwater.data.text import lone_surrogate, shown, utf8_length
from headwater.errors import InvalidValueError

__all__ = [
    "ABSENT",
    "MAX_INT",
    "Absent",
    "MaybeValue",
    "Reason",
    "Refusal",
    "Value",
    "equal",
    "freeze",
    "invalid_value",
    "is_frozen",
    "lookup",
    "refuse_text",
    "refuse_type",
    "same",
    "size_of",
]


Reason: TypeAlias = Literal[
    "bytes",
    "depth",
    "float",
    "int",
    "items",
    "key",
    "key length",
    "key surrogate",
    "surrogate",
    "text",
    "total",
    "type",
]


class Refusal(Exception):
    """Travels from the culprit to `freeze`; each container adds its step on the way out."""

    def __init__(self, reason: Reason, detail: object) -> None:
        super().__init__(reason)
        self.reason: Reason = reason
        self.detail = detail
        self.steps: list[str | int] = []


def refuse_text(text: str, length: int, limit: int, *, of_key: bool = False) -> NoReturn:
    """Refuse a text without a UTF-8 form (`length` is negative) or longer than `limit` bytes."""
    if length < 0:
        raise Refusal("key surrogate" if of_key else "surrogate", lone_surrogate(text))
    raise Refusal("key length" if of_key else "text", length)


def refuse_type(raw: object) -> NoReturn:
    """Refuse an object whose type no document can hold."""
    raise Refusal("type", raw)


def invalid_value(refusal: Refusal, raw: object, at: Path, limits: ValueLimits) -> InvalidValueError:
    """Make the error for the author. `raw` is the refused input, to tell a cycle from mere depth."""
    path = at + tuple(reversed(refusal.steps))
    where = path_text(path) or "the root"
    match refusal.reason:
        case "depth":
            message = _depth_message(raw, refusal, at, limits)
        case "type":
            message = f"{_described(refusal.detail)} at {where} is not a value: {_advice(refusal.detail)}"
        case _:
            message = _message(refusal, where, limits)
    return InvalidValueError(message, path=path)


def _message(refusal: Refusal, where: str, limits: ValueLimits) -> str:
    detail = refusal.detail
    match refusal.reason:
        case "int":
            return (
                f"the integer at {where} is beyond 2**53 - 1 and would lose digits as a JSON number: "
                f"store it as a string"
            )
        case "float":
            return f"{detail!r} at {where} is not a JSON number: store None, or leave the key out"
        case "surrogate" | "key surrogate":
            start, escaped = detail if isinstance(detail, tuple) else (0, "")
            what = "a key of the object" if refusal.reason == "key surrogate" else "the string"
            return (
                f"{what} at {where} has the lone surrogate {escaped} at character {start}: "
                f"decode it correctly, or store bytes"
            )
        case "text":
            return (
                f"the string at {where} is {detail} bytes long, the limit is {limits.string_bytes}: "
                f"split it over several documents"
            )
        case "bytes":
            return (
                f"the bytes at {where} are {detail} long, the limit is {limits.string_bytes}: "
                f"split them over several documents"
            )
        case "key":
            return (
                f"the object at {where} has the key {shown(detail)} of type {type(detail).__name__}: "
                f"keys are strings, so write str(key)"
            )
        case "key length":
            return (
                f"a key of the object at {where} is {detail} bytes long, the limit is {limits.key_bytes}: "
                f"use a shorter key and keep the text in the value"
            )
        case "items":
            return (
                f"the container at {where} has {detail} items, the limit is {limits.container_items}: "
                f"split it over several documents"
            )
        case "total":
            return (
                f"the value is larger than {limits.total_bytes} bytes, counted up to {where}: "
                f"split it over several documents"
            )
        case _:  # pragma: no cover  # "depth" and "type" have functions of their own.
            raise AssertionError(refusal.reason)


def _depth_message(raw: object, refusal: Refusal, at: Path, limits: ValueLimits) -> str:
    """A container that is its own ancestor always ends here, because it is deeper than any limit."""
    path: Path = at
    seen = {id(raw): path}
    node = raw
    for step in reversed(refusal.steps):
        try:
            node = node[step]  # type: ignore[index]
        except (TypeError, LookupError):
            break  # A mapping that changes while it is read: report the depth alone.
        path = (*path, step)
        if id(node) in seen:
            first = path_text(seen[id(node)]) or "the root"
            return (
                f"the value contains itself: {path_text(path)} is the same {type(node).__name__} as {first}. "
                f"Store a link or an id instead of the container"
            )
        seen[id(node)] = path
    where = path_text(at + tuple(reversed(refusal.steps))) or "the root"
    return (
        f"the container at {where} is nested more than {limits.depth} deep: "
        f"move the inner part into a document of its own and link to it"
    )


def _advice(raw: object) -> str:
    match raw:
        case Absent():
            return "remove the key, or store None"
        case enum.Enum():
            return "store its .value"
        case bytearray() | memoryview():
            return "store bytes(...) of it"
        case Set():
            return "store a sorted list"
        case decimal.Decimal():
            return "store str(...) of it, or an integer number of the smallest unit"
        case datetime.datetime() | datetime.date() | datetime.time():
            return "store its .isoformat(), or integer microseconds"
        case datetime.timedelta():
            return "store integer microseconds"
        case type():
            return "store an instance's data, not the class"
        case _:
            return _advice_by_protocol(raw)


def _advice_by_protocol(raw: object) -> str:
    if dataclasses.is_dataclass(raw) or hasattr(raw, "__struct_fields__"):
        return "store a dict of its fields"
    if hasattr(raw, "__index__"):
        return "store int(...) of it"
    if hasattr(raw, "__float__"):
        return "store float(...) of it"
    if hasattr(raw, "tolist"):
        return "store its .tolist()"
    if callable(raw):
        return "store data, not a function"
    if isinstance(raw, Iterable):
        return "store list(...) of it"
    return "use None, bool, int, float, str, bytes, Link, lists and dicts of them"


def _described(raw: object) -> str:
    name = type(raw).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


class Absent(enum.Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> Literal[False]:
        return False


ABSENT: Final = Absent.ABSENT


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
    """Return `raw` as a value, or raise InvalidValueError that names the culprit and a replacement.

    `at` is the place of the value in its document; it counts towards the depth and is in messages.
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


def is_frozen(raw: object, limits: ValueLimits, level: int = 0) -> bool:
    """Return True if `raw` is a value already: `freeze` would return one that is equal to it, of the same types.

    `level` is the number of containers around it. It calls no function for a part of a value.
    """
    room = limits.total_bytes
    todo: list[tuple[Iterable[object], int]] = [((raw,), level)]
    while todo:
        items, level = todo.pop()
        for item in items:
            if type(item) is str:
                length = len(item) if item.isascii() else utf8_length(item)
                if not 0 <= length <= limits.string_bytes:
                    return False
                room -= length
            elif type(item) is int:
                if not _MIN_INT <= item <= MAX_INT:
                    return False
            elif type(item) is dict or type(item) is tuple:
                room -= len(item) + 1
                # Checked at every container, so that shared parts that unfold without end stop here.
                if level >= limits.depth or len(item) > limits.container_items or room < 0:
                    return False
                if type(item) is dict:
                    for key in item:
                        if type(key) is not str:
                            return False
                        length = len(key) if key.isascii() else utf8_length(key)
                        if not 0 <= length <= limits.key_bytes:
                            return False
                        room -= length
                    todo.append((item.values(), level + 1))
                else:
                    todo.append((item, level + 1))
            elif type(item) is float:
                if item - item != 0:
                    return False
            elif type(item) is bytes:
                if len(item) > limits.string_bytes:
                    return False
                room -= len(item)
            elif not (item is None or type(item) is bool or type(item) is Link):
                return False
    return room >= 0


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
            # The most common leaves, without a call.
            if item is None or type(item) is bool or (type(item) is int and _MIN_INT <= item <= MAX_INT):
                frozen.append(item)
            elif type(item) is str and item.isascii() and len(item) <= limits.string_bytes:
                room[0] -= len(item)
                frozen.append(item)
            else:
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
        # The most common leaves, without a call.
        if item is None or type(item) is bool or (type(item) is int and _MIN_INT <= item <= MAX_INT):
            frozen[name] = item
        elif type(item) is str and item.isascii() and len(item) <= limits.string_bytes:
            room[0] -= len(item)
            frozen[name] = item
        else:
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


def lookup(value: MaybeValue, path: Path) -> MaybeValue:
    """Return the value at `path`, or ABSENT where a step does not exist. A link is a leaf: it is not followed."""
    for step in path:
        if type(value) is dict and type(step) is str:
            value = value.get(step, ABSENT)
        elif type(value) is tuple and type(step) is int and 0 <= step < len(value):
            value = value[step]
        else:
            return ABSENT
    return value


def size_of(value: MaybeValue, most: int = sys.maxsize) -> int:
    """About how many bytes `codec.encode` would need. Never less than 1, cheap, not exact.

    Of a value that is larger than `most` no more is counted than shows that.
    """
    total = 0
    todo: list[Iterable[MaybeValue]] = [(value,)]  # A call for each container would cost more than the counting.
    while todo:
        for item in todo.pop():
            if type(item) is str:
                total += 3 + (len(item) if item.isascii() else 2 * len(item))
            elif type(item) is int:
                total += 1 if -32 <= item < 128 else 5
            elif type(item) is dict:
                total += 3 + 2 * len(item)
                if total <= most:
                    total += sum(map(len, item))
                    todo.append(item.values())
            elif type(item) is tuple:
                total += 3
                todo.append(item)
            elif type(item) is float:
                total += 9
            elif type(item) is bytes:
                total += 5 + len(item)
            elif type(item) is Link:
                total += 24 + len(item.id) + len(item.scope) + 8 * len(item.path)
            else:
                total += 1
            if total > most:
                return total
    return total
