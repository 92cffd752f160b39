"""A handle on something of one user or one session, where the run belongs to all of them.

It can be passed on, to a child that reads it for a user; it cannot be read or written here, and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headwater.cells.handle_base import NotAValue
from headwater.errors import AuthoringError

if TYPE_CHECKING:
    from headwater.pieces.declarations import Declaration
    from headwater.runtime.binding.facet import Facet
    from headwater.runtime.binding.home import Home
    from headwater.runtime.core import Core

REFUSED: Final = (
    *("get", "exists", "view", "pull", "watch", "sink", "value"),
    *("set", "update", "delete", "push", "add", "discard", "increment"),
)


class Narrow(NotAValue):
    """A member of a narrower scope than the run that names it."""

    __slots__ = ("_home", "_member", "_way")
    __narrow__ = True

    def __init__(self, home: Home, member: Declaration, way: tuple[tuple[str, Any], ...] = ()) -> None:
        self._home = home
        self._member = member
        self._way = way

    @property
    def core(self) -> Core:
        """The runtime that it is of."""
        return self._home.pieces.core

    def declaration(self) -> Declaration:
        """The member that it is, or leads into."""
        return self._member

    def place(self) -> str | None:
        """Where it leads, as text. None: into the member, along a way that has no text."""
        return None if self._way else f"{self._home.id}:{self._member.stored}"

    def key(self, k: Any, /) -> Narrow:
        return Narrow(self._home, self._member, (*self._way, ("key", k)))

    def at(self, path: Callable[[Any], Any], /) -> Narrow:
        return Narrow(self._home, self._member, (*self._way, ("at", path)))

    def seen_by(self, facet: Facet) -> Any:
        """The handle that it is for a user or a session."""
        handle = facet.seen_in(self._home).handle(self._member)
        for step, argument in self._way:
            handle = getattr(handle, step)(argument)
        return handle

    def same(self, other: object) -> bool:
        """Whether it leads to the same place."""
        return (
            isinstance(other, Narrow)
            and self._home is other._home
            and self._member is other._member
            and self._way == other._way
        )

    def __repr__(self) -> str:
        return f"<{self._member!r} of one {self._member.scope}>"


def _refusing(what: str) -> Callable[..., NoReturn]:
    def refuse(self: Narrow, *_: object, **__: object) -> NoReturn:
        scope = self._member.scope
        raise AuthoringError(
            f"{what}() of {self!r}: this run is for all {scope}s alike. Read it in a @computed(scope={scope!r}), in an "
            "@effect or in a @handler."
        )

    return refuse


for _what in REFUSED:
    setattr(Narrow, _what, _refusing(_what))
