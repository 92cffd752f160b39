"""The inputs of a piece: handles of a narrower scope, equality of inputs, and their stored form.

An input is stored as the address that its handle leads to, so that a piece can be opened again without its maker. A
callback has no address; it is stored as the name of its handler.

`OtherScopeHandle` stands for a member of one user or one session in a run that is for all users or sessions. It can be
passed on to a child that reads it for a user. Reading or writing it in such a run raises an error that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headwater.cells.handle import Input
from headwater.cells.handle_base import NotAValue
from headwater.data.address import address_text
from headwater.data.value import Value, freeze
from headwater.errors import AuthoringError
from headwater.pieces.handles import Handler

if TYPE_CHECKING:
    from headwater.pieces.declarations import Declaration
    from headwater.pieces.piece import Piece
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView


REFUSED: Final = (
    *("get", "exists", "view", "pull", "watch", "sink", "value"),
    *("set", "update", "delete", "push", "add", "discard", "increment"),
)


class OtherScopeHandle(NotAValue):
    """A member of a narrower scope than the run that names it."""

    __slots__ = ("_instance", "_member", "_way")
    __narrow__ = True

    def __init__(self, instance: PieceInstance, member: Declaration, way: tuple[tuple[str, Any], ...] = ()) -> None:
        self._instance = instance
        self._member = member
        self._way = way

    @property
    def core(self) -> Core:
        """The core of the runtime that the handle belongs to."""
        return self._instance.core

    def declaration(self) -> Declaration:
        """Return the member that the handle stands for or leads into."""
        return self._member

    def place(self) -> str | None:
        """Return the place of the member as text. None: the handle leads into the member, and that path has no text."""
        return None if self._way else f"{self._instance.id}:{self._member.stored}"

    def key(self, k: Any, /) -> OtherScopeHandle:
        return OtherScopeHandle(self._instance, self._member, (*self._way, ("key", k)))

    def at(self, path: Callable[[Any], Any], /) -> OtherScopeHandle:
        return OtherScopeHandle(self._instance, self._member, (*self._way, ("at", path)))

    def seen_by(self, view: ScopedView) -> Any:
        """Return the handle of the member, and of the path below it, for the user and session of a view."""
        handle = view.seen_in(self._instance).handle(self._member)
        for step, argument in self._way:
            handle = getattr(handle, step)(argument)
        return handle

    def same(self, other: object) -> bool:
        """Return whether another handle leads to the same place."""
        return (
            isinstance(other, OtherScopeHandle)
            and self._instance is other._instance
            and self._member is other._member
            and self._way == other._way
        )

    def __repr__(self) -> str:
        return f"<{self._member!r} of one {self._member.scope}>"


def _refusing(what: str) -> Callable[..., NoReturn]:
    def refuse(self: OtherScopeHandle, *_: object, **__: object) -> NoReturn:
        scope = self._member.scope
        raise AuthoringError(
            f"{what}() of {self!r}: this run is for all {scope}s alike. Read it in a @computed(scope={scope!r}), in an "
            "@effect or in a @handler."
        )

    return refuse


for _what in REFUSED:
    setattr(OtherScopeHandle, _what, _refusing(_what))


HANDLER: Final = "handler "
"""Prefix of a callback in its stored form."""


def same_inputs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two makings of a piece pass the same handles."""
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, OtherScopeHandle):
        return one.same(other)
    if isinstance(one, Input) and isinstance(other, Input):
        return type(one) is type(other) and one.document is other.document and one.path == other.path
    if isinstance(one, Handler) and isinstance(other, Handler):
        return one.same(other)
    return False


def described(core: Core, piece: Piece) -> Value:
    """Return the stored form of a child: its class, and the places of its inputs."""
    return freeze({"class": type(piece).__schema__.name, "inputs": written(core, piece.__inputs__)})


def written(core: Core, inputs: Mapping[str, Any]) -> Value:
    """Return the stored form of inputs."""
    return freeze({name: _written(core, value) for name, value in sorted(inputs.items())})


def _written(core: Core, value: Any) -> Value:
    if _core_of(value) is not core:
        raise AuthoringError(f"{value!r} is of another runtime: give a piece handles of the runtime that it runs in")
    if isinstance(value, Input):
        return place_of(core, value)
    if isinstance(value, Handler):
        return f"{HANDLER}{value.sender.place(value.member)}"
    return repr(value)


def _core_of(value: Any) -> object:
    """Return the core of the runtime that a handle belongs to."""
    if isinstance(value, Input):
        return value._runtime
    if isinstance(value, Handler):
        return value.sender.core
    return value.core if isinstance(value, OtherScopeHandle) else None


def place_of(core: Core, handle: Input[Any]) -> str:
    """Return the address that a handle leads to, as text."""
    key = handle.document.key
    return address_text(key.scope, key.id, handle.path, space=core.space_of(handle.document).name)
