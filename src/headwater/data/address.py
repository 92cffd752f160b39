"""The names of documents and of places in them, and links, the values that point at places.

Names are checked here and never resolved: an address of an absent document is valid.

Text form: `[SPACE/]SCOPE:ID[#POINTER]`, for example `shop/space:cart/lines#/0/qty` or
`user:ann:settings`. SCOPE is `space`, `user:PRINCIPAL` or `session:ID`; in a principal or session id the
characters `% : / #` are written as percent escapes, in a document id only `%` and `#`.
Invariant: `parse_address(address_text(...))` gives the same parts back.

A `Link` is immutable, and equal and hashed by value. Every part is checked when the link is made, so that a link
inside a frozen value is not checked again. `Link` is not a dataclass: the MessagePack encoder writes any dataclass as
a plain map without calling a hook, and a link has to stay a link inside untyped values.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from headwater.data.path import Path, check_path, parse_path, path_text
from headwater.data.text import shown, unprintable
from headwater.errors import InvalidValueError

__all__ = [
    "NAME_LENGTH",
    "SPACE_SCOPE",
    "Address",
    "AddressParts",
    "Depth",
    "DocKey",
    "Link",
    "address_text",
    "check_id",
    "check_scope",
    "check_space",
    "doc_text",
    "is_space_name",
    "parse_address",
]


NAME_LENGTH: Final = 256
SPACE_SCOPE: Final = "space"

_SPACE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_OWNED_SCOPES: Final = ("user", "session")
_ESCAPE: Final = re.compile(r"%([0-9A-F]{2})")


class DocKey(NamedTuple):
    """A document within a space."""

    scope: str
    id: str


class Depth(enum.IntEnum):
    """How much of the value at a path a read depends on."""

    DEEP = 0
    """All of it, to the last leaf."""

    SHAPE = 1
    """Whether a value is present, its kind, the content of a scalar, the keys or the length of a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A place in a document of a space."""

    space: str
    scope: str
    id: str
    path: Path = ()

    @property
    def doc(self) -> DocKey:
        return DocKey(self.scope, self.id)

    def __str__(self) -> str:
        return address_text(self.scope, self.id, self.path, space=self.space)


class AddressParts(NamedTuple):
    """The parts that `parse_address` found. `space` is None when the text names none."""

    space: str | None
    scope: str
    id: str
    path: Path


def address_text(scope: str, id: str, path: Path = (), *, space: str | None = None) -> str:
    """How messages name a place, for example `shop/space:cart/lines#/0/qty`."""
    head = "" if space is None else f"{space}/"
    kind, colon, owner = scope.partition(":")
    if colon:
        kind = f"{kind}:{_escape(owner, '%:/#')}"
    tail = f"#{path_text(path)}" if path else ""
    return f"{head}{kind}:{_escape(id, '%#')}{tail}"


def doc_text(doc: DocKey, path: Path = (), *, space: str | None = None) -> str:
    """`address_text` for a `DocKey`."""
    return address_text(doc.scope, doc.id, path, space=space)


def parse_address(text: str) -> AddressParts:
    """Return the parts of an address in text form. Checks every name."""
    names, _, pointer = text.partition("#")
    head, colon, rest = names.partition(":")
    space, slash, kind = head.rpartition("/")
    if not colon:
        raise InvalidValueError(
            f"address {shown(text)} has no scope: write it like space:cart#/lines/0 or user:ann:settings"
        )
    if kind == SPACE_SCOPE:
        scope = kind
    else:
        owner, colon, rest = rest.partition(":")
        if not colon:
            raise InvalidValueError(f"address {shown(text)} has no document id: write it like user:ann:settings")
        scope = f"{kind}:{_unescape(owner)}"
    return AddressParts(
        check_space(space) if slash else None,
        check_scope(scope),
        check_id(_unescape(rest)),
        parse_path(pointer),
    )


def check_space(name: object) -> str:
    """`name` when it can name a space."""
    if type(name) is str and _SPACE.fullmatch(name):
        return name
    raise InvalidValueError(
        f"{shown(name)} cannot name a space: use 1 to 64 lower-case letters, digits, '-' and '_', a letter first"
    )


def is_space_name(name: str) -> bool:
    """Whether a space may have this name."""
    return _SPACE.fullmatch(name) is not None


def check_scope(scope: object) -> str:
    """`scope` when it is `space`, `user:PRINCIPAL` or `session:ID`."""
    if type(scope) is str:
        if scope == SPACE_SCOPE:
            return scope
        kind, colon, owner = scope.partition(":")
        if colon and kind in _OWNED_SCOPES:
            _check_name(owner, f"the {kind} of scope {shown(scope)}")
            return scope
    raise InvalidValueError(f"{shown(scope)} is not a scope: use 'space', 'user:<principal>' or 'session:<id>'")


def check_id(id: object) -> str:
    """`id` when it can name a document."""
    if type(id) is not str:
        raise InvalidValueError(f"{shown(id)} cannot name a document: use a string")
    if 0 < len(id) <= NAME_LENGTH and id.isascii() and id.isprintable():
        return id  # As nearly always.
    _check_name(id, f"document id {shown(id)}")
    return id


def _check_name(name: str, what: str) -> None:
    if not name:
        raise InvalidValueError(f"{what} is empty: use 1 to {NAME_LENGTH} characters")
    if len(name) > NAME_LENGTH:
        raise InvalidValueError(f"{what} is {len(name)} characters long: use at most {NAME_LENGTH}")
    bad = unprintable(name)
    if bad is not None:
        raise InvalidValueError(f"{what} holds the control character or lone surrogate {bad}: leave it out")


def _escape(text: str, characters: str) -> str:
    for character in characters:
        if character in text:
            break
    else:
        return text  # As nearly always: messages, traces and fingerprints name many documents.
    return "".join([f"%{ord(c):02X}" if c in characters else c for c in text])


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


class Link:
    """Points at `path` in document `(scope, id)` of `space`; None is the space that holds the link."""

    __slots__ = ("id", "path", "scope", "space")
    __match_args__ = ("space", "scope", "id", "path")

    space: str | None
    scope: str
    id: str
    path: Path

    def __init__(
        self, space: str | None = None, scope: str = SPACE_SCOPE, id: str = "", path: Sequence[str | int] = ()
    ) -> None:
        fill = object.__setattr__
        fill(self, "space", None if space is None else check_space(space))
        fill(self, "scope", check_scope(scope))
        fill(self, "id", check_id(id))
        fill(self, "path", check_path(path))

    def __class_getitem__(cls, target: object) -> types.GenericAlias:
        """`Link[Cell[int]]` in an annotation names the type of the target; it is not checked."""
        return types.GenericAlias(cls, target)

    def resolve(self, home: str) -> Address:
        """The address it points at, seen from a document of space `home`."""
        return Address(space=self.space or home, scope=self.scope, id=self.id, path=self.path)

    def _key(self) -> tuple[str | None, str, str, Path]:
        return (self.space, self.scope, self.id, self.path)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Link) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Link({address_text(self.scope, self.id, self.path, space=self.space)})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Link is immutable: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Link is immutable: {name!r} cannot be deleted")

    def __copy__(self) -> Link:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Link:
        return self

    def __reduce__(self) -> tuple[type[Link], tuple[str | None, str, str, Path]]:
        return (Link, self._key())
