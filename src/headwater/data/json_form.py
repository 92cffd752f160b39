"""Values as plain JSON data, and as canonical text.

In the JSON form bytes are `{"$bytes": base64}`, links are `{"$link": {...}}`, and a user's key that begins with `$` is
written with one more `$`. Every other object with a key that begins with a single `$` is refused, so that new forms can
be added later without changing the meaning of old data. `codec` reads and writes the text.

`canonical` gives the RFC 8785 bytes of the JSON form, and `digest` their hash. Two values are equal exactly when their
canonical bytes are. They are for comparing and hashing, not for reading back: a whole float beyond 2**53 is written as
digits that `codec` does not accept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Final, TypeAlias

from headwater.data.address import Link
from headwater.data.limits import DEFAULT_VALUE_LIMITS, MAX_DEPTH, ValueLimits
from headwater.data.path import Path, path_text
from headwater.data.text import shown
from headwater.data.value import Refusal, Value, freeze
from headwater.errors import InvalidValueError

__all__ = ["DIGEST_NAME", "JsonForm", "canonical", "digest", "from_json_form", "json_form", "json_key", "number_text"]


JsonForm: TypeAlias = "bool | int | float | str | list[JsonForm] | dict[str, JsonForm] | None"

_LINK_KEYS: Final = frozenset({"space", "scope", "id", "path"})
_LINK_DEPTH: Final = 3


def json_form(value: Value) -> JsonForm:
    """`value` as JSON data: lists, dicts with string keys, and scalars."""
    match value:
        case dict():
            return {json_key(key): json_form(item) for key, item in value.items()}
        case tuple() | list():
            return [json_form(item) for item in value]
        case bytes():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case Link():
            return {"$link": _link_form(value)}
        case _:
            return value


def json_key(key: str) -> str:
    """Return the key of an object as the JSON form has it."""
    return "$" + key if key.startswith("$") else key


def _link_form(link: Link) -> JsonForm:
    """The parts of a link. The space is left out where it is the one that holds the link."""
    form: dict[str, JsonForm] = {} if link.space is None else {"space": link.space}
    return form | {"scope": link.scope, "id": link.id, "path": list(link.path)}


def from_json_form(raw: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Value:
    """Return the frozen value of data that a JSON parser returned."""
    try:
        value = _value(raw, ())
    except Refusal:
        value = raw  # Deeper than any limit: the next line says so.
    return freeze(value, limits)


def _value(form: object, path: Path) -> object:
    """Return `form` with bytes and links made and keys unescaped. An object that is not JSON is left for `freeze` to
    refuse.
    """
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


DIGEST_NAME: Final = "blake2b-128"
_DIGEST_BYTES: Final = 16

# Quotes, backslashes and controls are escaped exactly as the RFC wants; all other text stays as it is.
_quoted: Final[Callable[[str], str]] = encode_basestring


def canonical(value: Value) -> bytes:
    """The RFC 8785 bytes of the value's JSON form."""
    parts: list[str] = []
    _write(json_form(value), parts)
    return "".join(parts).encode()


def digest(value: Value) -> str:
    """32 hexadecimal digits that equal values share: `DIGEST_NAME` over the canonical bytes."""
    return hashlib.blake2b(canonical(value), digest_size=_DIGEST_BYTES).hexdigest()


def _write(form: JsonForm, parts: list[str]) -> None:
    if isinstance(form, str):
        parts.append(_quoted(form))
    elif form is None:
        parts.append("null")
    elif isinstance(form, bool):
        parts.append("true" if form else "false")
    elif isinstance(form, int):
        parts.append(str(form))
    elif isinstance(form, float):
        parts.append(number_text(form))
    elif isinstance(form, dict):
        separator = "{"
        for key in _sorted_keys(form):
            parts.append(f"{separator}{_quoted(key)}:")
            _write(form[key], parts)
            separator = ","
        parts.append("}" if form else "{}")
    else:
        separator = "["
        for item in form:
            parts.append(separator)
            _write(item, parts)
            separator = ","
        parts.append("]" if form else "[]")


def _sorted_keys(form: dict[str, JsonForm]) -> list[str]:
    """Keys by UTF-16 code unit, which differs from code points only where some lie beyond U+FFFF."""
    keys = list(form)
    if all(map(str.isascii, keys)):
        keys.sort()
    else:
        keys.sort(key=lambda key: key.encode("utf-16-be"))
    return keys


def number_text(number: float) -> str:
    """A finite float the way ECMAScript writes it: the shortest digits that read back as the same number."""
    if number == 0:
        return "0"  # Minus zero too.
    text = repr(number)  # The same shortest digits; only the layout differs.
    mantissa, marker, exponent_text = text.partition("e")
    if not marker:
        return mantissa.removesuffix(".0")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = whole + fraction
    exponent = int(exponent_text)
    if 0 <= exponent < 21:
        return sign + digits.ljust(exponent + 1, "0")
    if -7 < exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    point = f".{fraction}" if fraction else ""
    return f"{sign}{whole}{point}e{'+' if exponent > 0 else '-'}{abs(exponent)}"
