"""Checks of text that becomes data.

Tests whether a `str` can be written as UTF-8 and whether it can be a name, and prints a foreign object for a message.
Nothing raises here: the caller knows the path and the advice that belong into the message.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["lone_surrogate", "shown", "unprintable", "utf8_length"]

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def utf8_length(text: str) -> int:
    """Bytes of `text` in UTF-8, or -1 when it holds a lone surrogate and has no UTF-8 form."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def lone_surrogate(text: str) -> tuple[int, str] | None:
    """Position and escaped form of the first lone surrogate of `text`, if there is one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start, f"\\u{ord(text[error.start]):04x}"
    return None


def unprintable(text: str) -> str | None:
    """Escaped form of the first character that a name must not hold: a control, a line break, a surrogate."""
    surrogate = lone_surrogate(text)
    if surrogate is not None:
        return surrogate[1]
    found = _CONTROL.search(text)
    return None if found is None else f"\\u{ord(found[0]):04x}"


def shown(raw: object, length: int = 60) -> str:
    """`repr(raw)` for a message: shortened, and harmless when the object cannot be printed."""
    try:
        text = repr(raw)
    except Exception:  # Any object may arrive at the door, and its repr may do anything.
        return f"<{type(raw).__name__}>"
    return text if len(text) <= length else text[: length - 3] + "..."
