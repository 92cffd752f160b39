"""The name of a member of a class: what `Cart.total` is where there is no cart.

Type checkers are told here, below the pieces, because handles have to say what they are on a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

__all__ = ["Member"]

T_co = TypeVar("T_co", covariant=True)


class Member(Generic[T_co]):
    """What `Cart.total` is: a name, good for tests and tools. Only `cart.total` can be read."""

    __slots__ = ("declaration", "owner")

    def __init__(self, owner: type[Any], declaration: Any) -> None:
        self.owner = owner
        self.declaration = declaration

    @property
    def name(self) -> str:
        return str(self.declaration.name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Member):
            return NotImplemented
        return self.owner is other.owner and self.declaration is other.declaration

    def __hash__(self) -> int:
        return hash((id(self.owner), id(self.declaration)))

    def __repr__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{self!r} is the name of a member; only a piece has something there: write piece.{self.name}.{name}"
            )
