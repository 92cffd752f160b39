"""`Piece`: the class that authors derive from.

A piece is made by calling its class with its inputs, which are handles. It is bound to a space by whoever keeps it:
`each`, `child`, `ctx.launch`, `space.open`. Until then it has inputs and nothing else. It reserves the name `ctx`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, dataclass_transform

from headwater.errors import AuthoringError
from headwater.pieces.members import cell, given, topic

if TYPE_CHECKING:
    from headwater.data.link import Link
    from headwater.pieces.context import Context
    from headwater.pieces.member import Declaration
    from headwater.pieces.outline import Outline

__all__ = ["Bound", "Piece"]


class Bound(Protocol):
    """What gives a piece its handles: the binding of the runtime that it is in."""

    handles: dict[Declaration, Any]

    def handle(self, member: Declaration) -> Any:
        """The handle of a member, made when it is first used."""

    def context(self) -> Context:
        """The run that is open."""

    def link(self) -> Link:
        """A value that points at the piece."""

    def describe(self) -> str:
        """Which piece of which space it is."""


@dataclass_transform(kw_only_default=True, eq_default=False, frozen_default=True, field_specifiers=(cell, given, topic))
class Piece:
    """One thing of an application: cells, what is derived from them, and what changes them."""

    __slots__ = ("__bound__", "__inputs__", "__weakref__")

    if TYPE_CHECKING:
        __bound__: Bound | None
        __inputs__: dict[str, Any]
        __outline__: ClassVar[Outline]
    else:

        def __init__(self, **inputs: Any) -> None:
            fill = object.__setattr__
            fill(self, "__bound__", None)
            fill(self, "__inputs__", inputs)
            type(self).__outline__.check_inputs(inputs)

    def __init_subclass__(cls, *, name: str | None = None, was: str | None = None) -> None:
        from headwater.pieces.outline import Outline  # noqa: PLC0415  # It knows the members, and they know pieces.

        super().__init_subclass__()
        cls.__outline__ = Outline(cls, name=name, was=was, around=sys._getframe(1).f_locals)

    @property
    def ctx(self) -> Context:
        """The run: who sent the event, what time it is, ids that stay the same in every retry."""
        if self.__bound__ is None:
            raise AuthoringError(f"ctx of a {type(self).__name__} that runs nowhere yet: use it inside a run")
        return self.__bound__.context()

    def __repr__(self) -> str:
        where = "unbound" if self.__bound__ is None else self.__bound__.describe()
        return f"<{type(self).__name__} {where}>"

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise AuthoringError(
                f"self.{name} = ... in {type(self).__name__}: a piece holds no state of its own. Declare it: "
                f"{name}: Cell[...] = cell(default=...), and write self.{name}.set(...)"
            )

        def __delattr__(self, name: str) -> NoReturn:
            raise AuthoringError(f"del self.{name} in {type(self).__name__}: a piece holds no state of its own")
