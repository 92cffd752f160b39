"""One text for one value.

Owns the canonical bytes of a value, RFC 8785 over its JSON form, and their digest. Two values are equal
exactly when their canonical bytes are. For comparing and hashing, not for reading back: a whole float beyond
2**53 comes out as digits that no reader of this layer accepts. Never sees a value that is not frozen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Final

from headwater.data.json_form import JsonForm, json_form
from headwater.data.value import Value

__all__ = ["DIGEST_NAME", "canonical", "digest", "number_text"]

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
