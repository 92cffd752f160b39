"""The contents of a fingerprint by kind: to tell people which kind of thing changed, never to decide whether it did.

Each kind has a short text of a few characters that stands for its content; two contents may have the same text, so that
only digests decide. Stored texts are compared with those of later versions of this module: kinds are only ever added at
the end.
"""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from typing import Final

from headwater.pieces.fingerprints.form import REFERENCE, Form
from headwater.pieces.fingerprints.functions import CODE, CONSTANT, DEFAULT, TYPE
from headwater.pieces.fingerprints.origin import RULES

__all__ = ["CALLED", "DECLARED", "PYTHON", "SAID", "WIDTH", "Kinds", "differing", "short"]

CALLED: Final = "called"
DECLARED: Final = "declared"
PYTHON: Final = f"{sys.implementation.name} {'.'.join(map(str, sys.version_info))}"
PACKAGE: Final = "package"

SAID: Final = {
    "python": "the version of Python",
    "rules": "the rules of Headwater",
    PACKAGE: "the version of a package",
    CODE: "its own code",
    CALLED: "a function that it calls",
    DEFAULT: "a default",
    CONSTANT: "a constant",
    TYPE: "a type, such as a field of a Model",
    DECLARED: "a member that it names, or writes: its type or its default",
}
"""The kinds, in the order in which they are written, and their names for people. Python comes first: with another
version all code is other code, and nothing else is worth telling.
"""

WIDTH: Final = 3
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"


def short(*contents: bytes) -> str:
    """A few characters that stand for some contents, in whatever order."""
    data = b"".join([b"%d:%b" % (len(content), content) for content in sorted(contents)])
    number = int.from_bytes(hashlib.blake2b(data, digest_size=2).digest(), "big")
    # The first `WIDTH` digits of base 32.
    return _DIGITS[number >> 11] + _DIGITS[number >> 6 & 31] + _DIGITS[number >> 1 & 31]


@lru_cache(maxsize=16)
def _short_of_version(said: str) -> str:
    return short(said.encode())


class Kinds:
    """Collects the contents of one fingerprint by kind."""

    __slots__ = ("_found", "_versions")

    def __init__(self) -> None:
        self._found: dict[str, list[bytes]] = {}
        self._versions: set[str] = set()

    def take(self, form: Form, kind: str, *, is_called: bool = False) -> None:
        """Add a form; `kind` is that of its parts without a kind of their own."""
        self._versions |= form.versions
        for own, content in form.parts:
            self._found.setdefault(CALLED if is_called and own == CODE else own, []).append(content)
        if not form.parts and not form.versions and form.token != REFERENCE:
            self._found.setdefault(kind, []).append(form.token)

    def text(self, python: str) -> str:
        made = {kind: short(*contents) for kind, contents in self._found.items()}
        made |= {
            "python": _short_of_version(python),
            "rules": _short_of_version(str(RULES)),
            PACKAGE: short(*[version.encode() for version in self._versions]),
        }
        return "".join([made.get(kind, "-" * WIDTH) for kind in SAID])


def differing(before: str, after: str) -> tuple[str, ...]:
    """Return the names of the kinds in which two fingerprints differ, by their texts. Empty: of no kind that is told
    apart.
    """
    pairs = zip(_cut(before), _cut(after), strict=False)
    kinds = [kind for kind, (one, other) in zip(SAID, pairs, strict=False) if one != other]
    return tuple(kinds[:1] if kinds[:1] == ["python"] else kinds)


def _cut(text: str) -> list[str]:
    return [text[at : at + WIDTH] for at in range(0, len(text), WIDTH)]
