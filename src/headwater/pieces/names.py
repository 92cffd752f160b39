"""The names that identity comes from: of classes, of pieces in a space, of the documents of a piece.

Nothing has to run to know them. A class is named by its import path from the application's root, or by `name=`; a piece
by its name in the space; a document of a piece by the piece and the member. They are stored, so that how they are made
never changes. Nothing is looked up here.
"""

from __future__ import annotations

import re
import sys
from os.path import basename, splitext
from typing import Any, Final

from headwater.data.address import NAME_LENGTH
from headwater.data.ids import derive
from headwater.data.text import shown
from headwater.errors import AuthoringError

__all__ = ["child_name", "class_name", "document_id", "piece_id", "unescaped"]

SEPARATOR: Final = "/"
ESCAPED: Final = {"%": "%25", SEPARATOR: "%2F", ":": "%3A"}
LONGEST: Final = NAME_LENGTH - 64
"""A piece's id leaves room for the names of its members."""
_NUMBER: Final = re.compile("%(?:u([0-9A-F]{4})|([0-9A-F]{2}))")


def class_name(cls: type[Any]) -> str:
    """The import path of a class. A script's module is its file name, also when it is the main program."""
    module = cls.__module__
    if module == "__main__":
        main = sys.modules.get("__main__")
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name.removesuffix(".__main__")
        elif file is not None:
            module = splitext(basename(file))[0]
    return f"{module}.{cls.__qualname__}".replace(".<locals>", "")


def piece_id(name: object) -> str:
    """The id of the piece that a space calls `name`."""
    if type(name) is not str or not name:
        raise AuthoringError(f"{shown(name)} cannot name a piece: write a text of at least one character")
    return _bounded(_escaped(name))


def child_name(parent: str, member: str, key: str) -> str:
    """The id of the child that a piece keeps under a key, or of its only one."""
    return _bounded(SEPARATOR.join((parent, _escaped(member), _escaped(key))) if key else f"{parent}/{member}/")


def document_id(piece: str, member: str) -> str:
    """The id of the document that a member of a piece is kept in."""
    return f"{piece}:{member}"


def _escaped(name: str) -> str:
    if name.isascii() and name.replace("_", "a").isalnum():
        return name  # Most names and keys have nothing to escape.
    return "".join([ESCAPED.get(character) or _visible(character) for character in name])


def _visible(character: str) -> str:
    """Return a character, or its number if no id may hold it: `data.text.unprintable` says which."""
    number = ord(character)
    if number < 0x20 or 0x7F <= number < 0xA0:
        return f"%{number:02X}"
    return f"%u{number:04X}" if character in "\u2028\u2029" else character


def unescaped(part: str) -> str:
    """Return the member or key that a part of a child's id stands for. The rest of a shortened id is not known."""
    return _NUMBER.sub(lambda found: chr(int(found[1] or found[2], 16)), part)


def _bounded(id: str) -> str:
    """Replace an id that is too long by its digest."""
    return id if len(id) <= LONGEST else f"{id[: LONGEST - 40]}~{derive('piece', id)}"
