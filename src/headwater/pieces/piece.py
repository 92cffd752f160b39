"""`Piece`, the class that authors derive from, with `self.ctx` and `link`.

A piece is made by calling its class with its inputs, which are handles. `each`, `child`, `ctx.launch` and `space.open`
bind it to a space; until then it has inputs and nothing else. The name `ctx` is reserved.

`Bound` and `Context` are ports that the runtime implements: the handles of a bound piece, and the open run as the
author's code sees it. `link(target)` makes a value that can be stored and points at a cell or a piece.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Protocol, TypeVar, dataclass_transform

from headwater.cells.handle import Input
from headwater.data.address import Link as StoredLink
from headwater.errors import AuthoringError, author_call
from headwater.pieces.members import cell, given, topic

if TYPE_CHECKING:
    from headwater.clock import Random
    from headwater.pieces.class_schema import ClassSchema
    from headwater.pieces.declarations import Declaration

__all__ = ["Bound", "Context", "Link", "Piece", "link"]


class Bound(Protocol):
    """The binding of a piece in its runtime, which gives it its handles: a `runtime.pieces.view.ScopedView`."""

    handles: dict[Declaration, Any]

    def handle(self, member: Declaration) -> Any:
        """The handle of a member, made when it is first used."""

    def context(self) -> Context:
        """The run that is open."""

    def link(self) -> StoredLink:
        """A value that points at the piece."""

    def describe(self) -> str:
        """Which piece of which space it is."""


@dataclass_transform(kw_only_default=True, eq_default=False, frozen_default=True, field_specifiers=(cell, given, topic))
class Piece:
    """One unit of an application: cells, values derived from them, and handlers that change them."""

    __slots__ = ("__bound__", "__inputs__", "__weakref__")

    if TYPE_CHECKING:
        __bound__: Bound | None
        __inputs__: dict[str, Any]
        __schema__: ClassVar[ClassSchema]
    else:

        def __init__(self, **inputs: Any) -> None:
            fill = object.__setattr__
            fill(self, "__bound__", None)
            fill(self, "__inputs__", inputs)
            type(self).__schema__.check_inputs(inputs)

    def __init_subclass__(cls, *, name: str | None = None, was: str | None = None, version: int | None = None) -> None:
        from headwater.pieces.class_schema import ClassSchema  # noqa: PLC0415  # It knows the members, and they know pieces.

        super().__init_subclass__()
        cls.__schema__ = ClassSchema(cls, name=name, was=was, version=version, around=sys._getframe(1).f_locals)

    @property
    def ctx(self) -> Context:
        """The run: the sender of the event, the time, ids that stay the same in every retry."""
        if self.__bound__ is None:
            raise AuthoringError(f"ctx of a {type(self).__name__} that is in no space yet: use it inside a run")
        return self.__bound__.context()

    def __repr__(self) -> str:
        where = "unbound" if self.__bound__ is None else self.__bound__.describe()
        return f"<{type(self).__name__} {where}>"

    if not TYPE_CHECKING:

        @author_call
        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise AuthoringError(
                f"self.{name} = ... in {type(self).__name__}: a piece holds no state of its own. Declare it: "
                f"{name}: Cell[...] = cell(default=...), and write self.{name}.set(...)"
            )

        @author_call
        def __delattr__(self, name: str) -> NoReturn:
            raise AuthoringError(f"del self.{name} in {type(self).__name__}: a piece holds no state of its own")


PieceT = TypeVar("PieceT", bound="Piece")
T = TypeVar("T")


class Context(Protocol):
    """One run (`runtime.events.context`). Everything it says is the same in every retry of one event."""

    @property
    def user(self) -> str:
        """Who sent the event, authenticated; in a follow-up, who sent the first."""

    @property
    def session(self) -> str:
        """The sender's session."""

    @property
    def space(self) -> Any:
        """The space of the piece."""

    @property
    def name(self) -> str:
        """The name of the piece in its space."""

    def now(self, *, every_ms: int | None = None) -> datetime:
        """The time, one value for the whole run; with `every_ms` rounded down, and its reader wakes at each step."""

    def past(self, when: datetime, /) -> bool:
        """Whether a moment has come. Its reader wakes when it does."""

    def new_id(self) -> str:
        """An id, the same in every retry of one event. In handlers only."""

    def random(self) -> Random:
        """Chance, the same in every retry of one event. In handlers only."""

    def launch(self, piece: PieceT, /, *, after_commit: bool = False) -> PieceT:
        """Have a piece of its own live from this commit on. In handlers only."""

    def follow(self, link: Link[T], /) -> T:
        """The handle or the piece that a link points at."""


T_co = TypeVar("T_co", covariant=True)

if TYPE_CHECKING:

    class Link(StoredLink, Generic[T_co]):
        """A value that points at a piece or a cell; store it in a Model or a cell, follow it with ctx.follow."""

    def link(target: T, /) -> Link[T]: ...

else:
    Link = StoredLink

    def link(target: Any, /) -> Link:
        """Return a value that `ctx.follow` turns into the handle or the piece again. It names its space: it can be
        stored anywhere.
        """
        if isinstance(target, Piece) and target.__bound__ is not None:
            return target.__bound__.link()
        if isinstance(target, Input):
            return target.link()
        raise AuthoringError(f"link({target!r}): write link(piece) or link(piece.cell)")
