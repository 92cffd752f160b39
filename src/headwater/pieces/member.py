"""Members: what stands in the body of a piece's class, and what they are on the class and on a piece.

On the class a member is only a name, for tests and tools; on a piece it is the handle that the piece's binding gives.
It never makes a handle itself. Nothing can be assigned to one: state cannot hide on a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from headwater.cells.member import Member
from headwater.data.text import shown
from headwater.errors import AuthoringError

if TYPE_CHECKING:
    from headwater.pieces.piece import Piece

__all__ = ["SCOPES", "Declaration", "Scope"]

Scope = Literal["space", "user", "session"]
SCOPES: tuple[Scope, ...] = ("space", "user", "session")


class Declaration:
    """One member of a class, as it was declared. Knows its name once its class is made."""

    kind = "member"
    __slots__ = ("home", "name", "options", "scope", "was")

    def __init__(self, *, scope: Scope = "space", was: str | None = None) -> None:
        if scope not in SCOPES:
            raise AuthoringError(f"scope={shown(scope)}: write 'space', 'user' or 'session'")
        if was is not None and (type(was) is not str or not was.isidentifier()):
            raise AuthoringError(f"was={shown(was)} names no member: write the name it had before, like was='total'")
        self.scope = scope
        self.was = was
        self.name = ""  # as its class calls it
        self.home: type[Any] | None = None  # the class that declares it

    @property
    def stored(self) -> str:
        """The name it is stored under: the first it had, so that renaming moves nothing."""
        return self.was or self.name

    def __set_name__(self, owner: type[Any], name: str) -> None:
        if not self.name:  # Its first name. What gives it another one is told by the outline: an error here is hidden.
            self.name = name
            self.home = owner

    def __get__(self, piece: Piece | None, owner: type[Piece]) -> Any:
        if piece is None:
            return Member(owner, self)
        bound = piece.__bound__
        if bound is None:
            raise AuthoringError(
                f"{self!r} of a {type(piece).__name__} that runs nowhere yet: return it from @each or @child, or "
                f"give it to space.open() or ctx.launch(), and use what those answer"
            )
        handle = bound.handles.get(self)
        return bound.handle(self) if handle is None else handle

    def __set__(self, piece: Piece, value: object) -> NoReturn:
        raise AuthoringError(f"{self!r} is a handle and cannot be assigned to: write .set(...) if it is a Cell")

    def __delete__(self, piece: Piece) -> NoReturn:
        raise AuthoringError(f"{self!r} is a handle and cannot be deleted: write .delete() if it is a Cell")

    def __repr__(self) -> str:
        where = "" if self.home is None else f"{self.home.__name__}."
        return f"{self.kind} {where}{self.name or '?'}"

    def __fingerprint__(self) -> tuple[object, ...]:
        """What of it counts for the code that names it: where it is, and how it is read."""
        return (self.kind, self.stored, self.scope)

    def read_as(self) -> tuple[object, ...]:
        """The types that its value is read by. A class of pieces is one whose members the code may go on to."""
        return () if self.home is None else self.home.__outline__.read_as(self)

    def fault(self, problem: str, instead: str) -> AuthoringError:
        """The error for a declaration that cannot be."""
        where = "" if self.home is None else f"{self.home.__name__}."
        return AuthoringError(f"{where}{self.name or '?'}: {problem}. Write {instead}")


def check_duration(what: str, ms: object) -> float:
    """Milliseconds of an option."""
    if isinstance(ms, bool) or not isinstance(ms, (int, float)) or not 0 <= ms < 1e12:
        raise AuthoringError(f"{what}={shown(ms)}: write how many milliseconds, 0 or more")
    return ms


Function = Callable[..., Any]
