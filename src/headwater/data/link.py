"""A value that points at an address.

Owns `Link`. It never resolves its target; what it points at may be absent, and following it is the
reader's business. Invariants: immutable; every part was checked when it was made, so that a link inside a
frozen value needs no second look; equal and hashed by value.

`Link` is a class written out, not a dataclass: the MessagePack encoder writes any dataclass as a plain map
without asking, and a link must stay a link inside untyped values.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, NoReturn

from headwater.data.address import SPACE_SCOPE, Address, address_text, check_id, check_scope, check_space
from headwater.data.path import Path, check_path

__all__ = ["Link"]


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
        """`Link[Cell[int]]` in an annotation says what it points at; nothing checks that."""
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
