"""Why a value was refused, and the message about it.

Owns the wording of every refusal by `value.freeze`: what was found, where, and what to do instead. It is
only ever on the failing path, so it may take its time; it never decides whether a value is good.
Invariant: every message names the path, and the path is also on the error.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections.abc import Iterable, Set
from typing import Literal, NoReturn, TypeAlias

from headwater.data.absent import Absent
from headwater.data.limits import ValueLimits
from headwater.data.path import Path, path_text
from headwater.data.text import lone_surrogate, shown
from headwater.errors import InvalidValueError

__all__ = ["Reason", "Refusal", "invalid_value", "refuse_text", "refuse_type"]

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
    """The error for the author. `raw` is what was to be frozen, to tell a cycle from mere depth."""
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
