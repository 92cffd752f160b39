"""The base of all handles, and the name of a member on its class.

`NotAValue` refuses every use of a handle as a value (truth, elements, order, text, arithmetic) with an error that shows
the call to write. Type checkers see only `__bool__`: they report the other mistakes better without a method. Handles
read nothing here.

`Member` is `Cart.total` on the class: a name for tests and tools. It is defined below `pieces`, because handles declare
its type for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from headwater.errors import AuthoringError, author_call

__all__ = ["Member", "NotAValue"]


class NotAValue:
    """Base of handles. Two handles are equal if they are the same object."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Slots leave no room for other attributes. A compiled handle has none, and a dictionary because of this class,
        # which is not compiled: there a look at the type does it. Its own code does not come this way.
        if "__slots__" not in vars(cls):
            type.__setattr__(cls, "__setattr__", _set_known)

    @author_call
    def __bool__(self) -> object:
        return self._no("truth")

    def __hash__(self) -> int:
        return id(self) >> 4

    def _no(self, what: str, instead: str = "") -> NoReturn:
        raise AuthoringError(
            f"{self!r} is a handle, not a value, and has no {what}: write {instead or self._instead()}"
        )

    def _instead(self) -> str:
        """Return the call to write instead."""
        return ".get()"

    if not TYPE_CHECKING:

        @author_call
        def __eq__(self, other: object) -> bool:
            return self is other if isinstance(other, NotAValue) else self._no("comparison with a value")

        @author_call
        def __ne__(self, other: object) -> bool:
            return not self == other

        @author_call
        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # Python itself looks for it, or the handle is not complete and cannot be shown.
                raise AttributeError(name)
            cls = type(self)
            is_change = name in _CHANGES or name in _WRITES
            if not hasattr(cls, "get"):
                instead = self._instead()
            elif not is_change:
                instead = f".get().{name}"
            else:
                instead = _CHANGES[name] if hasattr(cls, "set") else "to a cell that it is made of"
            raise AttributeError(f"{self!r} is a handle, not a value, and has no {name!r}: write {instead}")


@author_call
def _set_known(self: NotAValue, name: str, value: object) -> None:
    """Set an attribute that the class has a place for, and no other."""
    if not hasattr(getattr(type(self), name, None), "__set__"):
        raise AttributeError(
            f"{self!r} has no attribute {name!r}: a handle holds nothing. Write .set() to write a value"
        )
    object.__setattr__(self, name, value)


def _refusing(what: str, name: str) -> Callable[..., NoReturn]:
    @author_call
    def refuse(self: NotAValue, *_: object) -> NoReturn:
        self._no(what, _CHANGES.get(name, "") if hasattr(type(self), "set") else "")

    return refuse


_REFUSED: Final = {
    "order": ("lt", "le", "gt", "ge"),
    "elements": ("iter", "contains", "reversed", "getitem", "setitem", "delitem"),
    "length": ("len", "length_hint"),
    "text": ("str", "format", "bytes"),
    "number": ("int", "float", "complex", "index", "round", "trunc", "floor", "ceil"),
    "arithmetic": (
        *("neg", "pos", "abs", "invert"),
        *(
            side + name
            for side in ("", "r", "i")
            for name in (
                *("add", "sub", "mul", "matmul", "truediv", "floordiv"),
                *("mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor"),
            )
        ),
    ),
}
"""Properties that only a value has, and the methods that would ask for them."""
_CHANGES: Final = {
    "append": ".push(element)",
    "extend": ".push(element), for each one",
    "insert": ".push(element)",
    "remove": ".discard(element)",
    "clear": ".delete()",
    "pop": ".key(key).delete()",
    "setdefault": ".key(key).set(value)",
    "setitem": ".key(key).set(value)",
    "delitem": ".key(key).delete()",
}
"""Methods that change a list, a dict or a set in place, and the calls of a cell to write instead."""
_WRITES: Final = ("set", "update", "push", "add", "discard", "increment", "delete")
"""Methods of a cell."""

for _what, _names in _REFUSED.items():
    for _name in _names:
        setattr(NotAValue, f"__{_name}__", _refusing(_what, _name))


T_co = TypeVar("T_co", covariant=True)


class Member(Generic[T_co]):
    """`Cart.total` on the class: a name, good for tests and tools. Only `cart.total` can be read."""

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
                f"{self!r} is the declaration of a member. Only a member of a piece has {name!r}: open a piece, and "
                f"write piece.{self.name}.{name}"
            )
