"""Where something is inside a value.

Owns paths: their text form, prefixes, and looking a value up. It never follows a link and never writes.
A path is a tuple; a text step names a key of an object, an integer step an element of an array.

The text form is a JSON Pointer with one addition, so that it can be read back without the document: an
integer step is written as digits, and a key that could be mistaken for one is quoted. `/cards/3` is element
3 of `cards`; `/cards/"3"` is key "3" of `cards`. Invariant: `parse_path(path_text(p)) == p` for every path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.data.text import lone_surrogate, shown, utf8_length
from headwater.errors import InvalidValueError

__all__ = ["MAX_INDEX", "Path", "check_path", "parse_path", "path_text", "starts_with"]

Path: TypeAlias = tuple[str | int, ...]

MAX_INDEX: Final = 2**53 - 1

_INDEX: Final = re.compile(r"0|[1-9][0-9]*")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")


def path_text(path: Path) -> str:
    """`("cards", 3, "title")` as `/cards/3/title`; the root is the empty text."""
    return "".join(["/" + _step_text(step) for step in path])


def _step_text(step: str | int) -> str:
    if not isinstance(step, str):
        return str(step)
    if step.startswith('"') or _INDEX.fullmatch(step):
        step = f'"{step}"'  # A key that begins with a quote is quoted once more, so no inner escape is needed.
    return step.replace("~", "~0").replace("/", "~1")


def parse_path(text: str) -> Path:
    """Return the path of a text: one that `path_text` wrote or a person typed. Digits are an index, `"3"` is a key."""
    if not text:
        return ()
    if not text.startswith("/"):
        raise InvalidValueError(f"path {text!r} does not begin with '/': write it like /cards/3/title")
    bad = _BAD_ESCAPE.search(text)
    if bad is not None:
        raise InvalidValueError(f"path {text!r} has a bare '~' at character {bad.start()}: write '~0' for '~'")
    return check_path(tuple([_parse_step(step) for step in text[1:].split("/")]))


def _parse_step(text: str) -> str | int:
    if _INDEX.fullmatch(text):
        # Longer digits are past any index, and int() should not read them.
        return int(text) if len(text) <= len(str(MAX_INDEX)) else MAX_INDEX + 1
    step = text.replace("~1", "/").replace("~0", "~")
    return step[1:-1] if len(step) >= 2 and step[0] == step[-1] == '"' else step


def starts_with(path: Path, prefix: Path) -> bool:
    """Whether `path` is `prefix` or lies below it."""
    return path[: len(prefix)] == prefix


def check_path(path: Sequence[object], limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Path:
    """`path` as a `Path`, when every step could exist somewhere. For paths that come from elsewhere."""
    if type(path) is not tuple:
        if not isinstance(path, (list, tuple)):
            raise InvalidValueError(f"a path is {shown(path)}: write a tuple of keys and indexes, like ('cards', 3)")
        path = tuple(path)
    if len(path) > limits.depth:
        raise InvalidValueError(
            f"a path has {len(path)} steps, the limit is {limits.depth}: keep deep parts in documents of their own"
        )
    for step in path:
        if type(step) is str:
            if not (step.isascii() and len(step) <= limits.key_bytes):
                _check_key(step, path, limits)
        elif type(step) is not int or not 0 <= step <= MAX_INDEX:
            _refuse_step(step, path)
    return path  # type: ignore[return-value]  # Each step was checked above.


def _check_key(step: str, path: Sequence[object], limits: ValueLimits) -> None:
    if (length := utf8_length(step)) < 0:
        at, escaped = lone_surrogate(step) or (0, "")
        raise InvalidValueError(
            f"step {list(path).index(step)} of a path has the lone surrogate {escaped} at character {at}: "
            f"decode the text correctly, or drop the character"
        )
    if length > limits.key_bytes:
        raise InvalidValueError(
            f"step {list(path).index(step)} of a path is {length} bytes long, the limit for a key is "
            f"{limits.key_bytes}: use a shorter key and keep the text in the value"
        )


def _refuse_step(step: object, path: Sequence[object]) -> None:
    at = next(index for index, other in enumerate(path) if other is step)
    if type(step) is int and step < 0:
        advice = "count from the start of the array; negative indexes depend on its length"
    elif type(step) is int:
        advice = f"the largest index is {MAX_INDEX}"
    else:
        advice = "a step is a text key or an integer index"
    raise InvalidValueError(f"step {at} of a path is {shown(step)}: {advice}")
