"""Values as plain JSON data.

Owns the JSON form: bytes are `{"$bytes": base64}`, links are `{"$link": {...}}`, and a user's key that
begins with `$` is written with one more `$`. Never reads or writes text; `codec` does. Invariants: every
object of the form with a key that begins with a single `$` is one of those two; anything else that looks
like one is refused, so that new forms can be added later without changing what old data means.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, TypeAlias

from headwater.data.limits import DEFAULT_VALUE_LIMITS, MAX_DEPTH, ValueLimits
from headwater.data.link import Link
from headwater.data.path import Path, path_text
from headwater.data.refusal import Refusal
from headwater.data.text import shown
from headwater.data.value import Value, freeze
from headwater.errors import InvalidValueError

__all__ = ["JsonForm", "from_json_form", "json_form"]

JsonForm: TypeAlias = "bool | int | float | str | list[JsonForm] | dict[str, JsonForm] | None"

_LINK_KEYS: Final = frozenset({"space", "scope", "id", "path"})
_LINK_DEPTH: Final = 3


def json_form(value: Value) -> JsonForm:
    """`value` as JSON data: lists, dicts with string keys, and scalars."""
    match value:
        case dict():
            return {_escaped(key): json_form(item) for key, item in value.items()}
        case tuple() | list():
            return [json_form(item) for item in value]
        case bytes():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case Link():
            return {"$link": _link_form(value)}
        case _:
            return value


def _escaped(key: str) -> str:
    return "$" + key if key.startswith("$") else key


def _link_form(link: Link) -> JsonForm:
    """The parts of a link. The space is left out where it is the one that holds the link."""
    form: dict[str, JsonForm] = {} if link.space is None else {"space": link.space}
    return form | {"scope": link.scope, "id": link.id, "path": list(link.path)}


def from_json_form(raw: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Value:
    """The value of what a JSON parser returned, frozen."""
    try:
        value = _value(raw, ())
    except Refusal:
        value = raw  # Deeper than any limit: the next line says so.
    return freeze(value, limits)


def _value(form: object, path: Path) -> object:
    """`form` with bytes and links made and keys unescaped. What is no JSON is left for `freeze` to refuse."""
    if len(path) > MAX_DEPTH + _LINK_DEPTH:
        raise Refusal("depth", form)
    if isinstance(form, list | tuple):
        return [_value(item, (*path, index)) for index, item in enumerate(form)]
    if not isinstance(form, dict):
        return form
    plain: dict[object, object] = {}
    for key, item in form.items():
        if not isinstance(key, str) or not key.startswith("$"):
            plain[key] = _value(item, (*path, key))
        elif key.startswith("$$"):
            plain[key[1:]] = _value(item, (*path, key[1:]))
        else:
            return _special(form, key, path)
    return plain


def _special(form: dict[object, object], key: str, path: Path) -> Value:
    if key not in ("$bytes", "$link"):
        raise _refused(path, f"the key {shown(key)} is not known", f"write {shown('$' + key)} for a key of your own")
    if len(form) > 1:
        raise _refused(path, f"{key} has other keys beside it", f"write '${key}' if it is a key of your own")
    return _bytes(form[key], path) if key == "$bytes" else _link(form[key], path)


def _bytes(text: object, path: Path) -> bytes:
    advice = "write padded standard base64"
    if not isinstance(text, str):
        raise _refused(path, f"$bytes holds {shown(text)}", advice)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _refused(path, f"$bytes holds {shown(text)}", advice) from None
    # One value has one form, so that texts can be compared.
    if base64.b64encode(data).decode("ascii") != text:
        raise _refused(path, f"$bytes holds {shown(text)}", advice)
    return data


def _link(parts: object, path: Path) -> Link:
    advice = 'write {"scope": ..., "id": ..., "path": [...]} and, for another space, "space"'
    if not isinstance(parts, dict) or not {"scope", "id", "path"} <= parts.keys() <= _LINK_KEYS:
        raise _refused(path, f"$link holds {shown(parts)}", advice)
    if "space" in parts and parts["space"] is None:
        raise _refused(path, "$link has a null space", "leave it out for the same space")
    try:
        return Link(parts.get("space"), parts["scope"], parts["id"], parts["path"])
    except InvalidValueError as error:
        where = path_text(path) or "the root"
        raise InvalidValueError(f"at {where}: $link cannot be made: {error}", path=path) from None


def _refused(path: Path, what: str, advice: str) -> InvalidValueError:
    return InvalidValueError(f"at {path_text(path) or 'the root'}: {what}: {advice}", path=path)
