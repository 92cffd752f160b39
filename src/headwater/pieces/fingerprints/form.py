"""The form of one object: its token, and its references to other objects.

`Form` is the token of an object with its references; `FormWriter` puts forms together; `Unfingerprintable` travels from
the culprit outwards and collects the way. Objects themselves are not read here.

Invariants. A token holds no address, no hash and no order that a start could change. A reference is a number in the
token and an object beside it, so that a form can be remembered while the forms of its references are not known yet:
that is how functions that call each other are possible. Two references to one object are one reference.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Final

__all__ = [
    "DIGEST_BYTES",
    "EMPTY",
    "LIMITS",
    "PACKAGE_MARK",
    "REFERENCE",
    "FingerprintLimits",
    "Form",
    "FormWriter",
    "Unfingerprintable",
    "atom",
]

DIGEST_BYTES: Final = 20
PACKAGE_MARK: Final = "=="
"""A mark in the version of an installed package that the versions of Python and of Headwater do not have."""
REFERENCE: Final = b"&"
"""The token of a mere reference: the object has a form of its own."""
_LONGEST_ATOM: Final = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintLimits:
    """Bounds on the objects behind one fingerprint. Beyond a bound there is no fingerprint. They are fixed."""

    objects: int = 100_000
    """Objects that a function refers to, directly and indirectly."""

    level: int = 64
    """Containers inside one another."""

    items: int = 1_000_000
    """Items of one container."""

    reasons: int = 3
    """Causes that are reported for one function."""


LIMITS: Final = FingerprintLimits()


class Unfingerprintable(Exception):
    """Something that no fingerprint can stand for. Each holder adds its step on the way out. Never leaves `pieces`."""

    def __init__(self, problem: str, *steps: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = list(steps)

    def way(self) -> str:
        """From the holder to the culprit."""
        return "".join(reversed(self.steps))


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """One object: its token, its references (with the way to each), and the names that its code uses."""

    token: bytes
    refs: tuple[tuple[str, object], ...] = ()
    names: frozenset[str] = frozenset()
    is_dynamic: bool = False  # its code looks names up that it computes
    versions: frozenset[str] = frozenset()  # of installed packages that stand for something in it
    parts: tuple[tuple[str, bytes], ...] = ()  # its contents by kind: to say which kind changed, never whether


EMPTY: Final = Form(b"-")


def atom(tag: str, content: str | bytes = b"", version: str = "") -> Form:
    """Return the form of an object without references. `tag` is its kind, `version` stands for its content."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    versions = frozenset((version,)) if PACKAGE_MARK in version else frozenset()
    if len(data) > _LONGEST_ATOM:
        digest = hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
        return Form(b"%b#%d:%b" % (tag.encode(), len(data), digest), versions=versions)
    return Form(b"%b:%b" % (tag.encode(), data), versions=versions)


class FormWriter:
    """Makes one form out of several, in the order they are put."""

    __slots__ = ("_is_dynamic", "_kind", "_kinds", "_names", "_numbers", "_parts", "_refs", "_tag", "_versions")

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._parts: list[bytes] = []
        self._refs: list[tuple[str, object]] = []
        self._numbers: dict[int, int] = {}
        self._names: set[str] = set()
        self._is_dynamic = False
        self._versions: frozenset[str] = frozenset()
        self._kind = ""
        self._kinds: dict[str, list[bytes]] = {}

    def of_kind(self, kind: str) -> None:
        """Give the following parts this kind. Empty: none that is told apart."""
        self._kind = kind

    def _noted(self, data: bytes) -> None:
        if self._kind:
            self._kinds.setdefault(self._kind, []).append(b"%d:%b" % (len(data), data))

    def put(self, form: Form, step: str = "") -> None:
        """Add a part; `step` leads to it."""
        self._parts.append(b"%d:%b" % (len(form.token), form.token))
        if form.versions:
            self._versions |= form.versions  # Told apart by these.
        elif form.token != REFERENCE:
            self._noted(form.token)
        for way, referred in form.refs:
            number = self._numbers.get(id(referred))
            if number is None:
                number = self._numbers[id(referred)] = len(self._refs)
                self._refs.append((step + way, referred))
            self._parts.append(b"&%d" % number)
        self._parts.append(b";")
        if form.names:
            self._names |= form.names
        self._is_dynamic |= form.is_dynamic

    def text(self, text: str) -> None:
        """Add a name or another short text."""
        data = text.encode("utf-8", "surrogatepass")
        self._parts.append(b"%d:%b;" % (len(data), data))
        self._noted(data)

    def bytes(self, data: bytes) -> None:
        """Add bytes."""
        self._parts.append(b"%d:%b;" % (len(data), data))
        self._noted(data)

    def uses(self, names: set[str], *, is_dynamic: bool) -> None:
        """The code in it names these attributes or globals."""
        self._names |= names
        self._is_dynamic |= is_dynamic

    def form(self) -> Form:
        """All of it as one."""
        digest = hashlib.blake2b(b"".join(self._parts), digest_size=DIGEST_BYTES).digest()
        kinds = tuple([(kind, b"".join(data)) for kind, data in self._kinds.items()])
        return Form(
            self._tag.encode() + b"=" + digest,
            tuple(self._refs),
            frozenset(self._names),
            self._is_dynamic,
            self._versions,
            kinds,
        )
