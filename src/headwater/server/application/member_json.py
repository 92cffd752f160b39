"""What a member looks like from outside, as plain JSON: for pages and for commands, in one form.

Owns that form, and looks that are told of everything: what is there, that nothing is, and that it could not be had.
Who may look is decided elsewhere.

Which right somebody needs, for pages and for commands alike. Who has it is in the access document of a space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from headwater.cells.cell import Cell
from headwater.cells.codec_base import TypeCodec
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Subscription
from headwater.cells.typed_path import Astray
from headwater.data.address import SPACE_SCOPE
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import Path
from headwater.data.value import ABSENT
from headwater.engine.admission.access import Right
from headwater.errors import AbsentError, AccessError, AuthoringError, HeadwaterError
from headwater.pieces.handles import Failed, Handler, Pending, Ready
from headwater.pieces.piece import Piece
from headwater.replica.document import Document
from headwater.runtime.binding.each_handles import Child_, Each_
from headwater.runtime.binding.resources import Resource_
from headwater.runtime.runtime import Runtime

__all__ = ["RIGHT_FOR", "Broken", "check_way", "look", "needed", "part_of", "shown_form", "space_of", "write"]


RIGHT_FOR: Final = {"reader": Right.READ, "writer": Right.WRITE, "owner": Right.OWN}
"""What `allow=` of a handler asks for."""


def needed(handle: Input[Any], user: str, session: str, shared: Right) -> Right:
    """The right that somebody needs at a handle: `shared` in what all share, and none but their own in the rest.

    A piece may have been given the cell of a user: then it is that user's, whoever names the piece.
    """
    scope = handle.document.key.scope
    if scope == SPACE_SCOPE:
        return shared
    return Right.READ if scope in (f"user:{user}", f"session:{session}") else Right.OWN


def space_of(handle: Handler[..., Any]) -> str:
    """The space whose access document says who may send to a handler: its own, whichever piece was given it."""
    return handle.sends.place(handle.member).partition("/")[0]


def check_way(handle: Input[Any], user: str, session: str) -> None:
    """Whether links inside what somebody names lead to what they may see: what its space shares, or their own.

    A link is data, which anybody who may write may have put there, and the serving runtime could follow it anywhere.
    Called whenever something is read or written through the handle: where it leads may change.
    """
    found = handle.leads_to()
    if found is handle.document:
        return
    key = found.key
    is_open = key.scope in (SPACE_SCOPE, f"user:{user}", f"session:{session}")
    if found.home is not handle.document.home or not is_open or key.id.startswith("$"):
        raise AccessError(f"{handle!r} leads to what is not for {user!r}: name the place that the link points at")


def write(handle: Cell[Any], user: str, session: str, kind: str, *arguments: Any) -> None:
    """Inside a transaction: write for somebody through a handle, as far as links lead to what they may see.

    What stands in the cell itself they may replace, if it is a link that does not: nobody could mend it otherwise.
    """
    try:
        check_way(handle, user, session)
    except (AccessError, Astray):
        if kind not in ("set", "delete") or not handle.instead_of_link(*arguments):
            raise
    else:
        getattr(handle, kind)(*arguments)


@dataclass(frozen=True, slots=True)
class Broken:
    """It could not be had, and why."""

    error: str


class _Outlook:
    """A handle, for a sink that hears of everything. A sink on the handle itself waits for what is absent."""

    __slots__ = ("_check", "_handle")

    def __init__(self, handle: Input[Any], check: Callable[[], object] | None) -> None:
        self._handle = handle
        self._check = check

    @property
    def document(self) -> Document:
        return self._handle.document

    @property
    def path(self) -> Path:
        return self._handle.path

    def get(self) -> Any:
        try:
            if self._check is not None:
                self._check()
            return self._handle.get()
        except AbsentError:
            return ABSENT
        except HeadwaterError as error:
            return Broken(str(error))

    def __repr__(self) -> str:
        return repr(self._handle)


def look(
    runtime: Runtime,
    handle: Input[Any],
    fn: Callable[[Any], object],
    group: object | None = None,
    check: Callable[[], object] | None = None,
) -> Subscription:
    """Call with what a handle shows, now and whenever that changes: a value, ABSENT or Broken.

    `check` is called before every look, and raises if what is there now is not to be shown.
    """
    return runtime.core.sink(cast("Input[Any]", _Outlook(handle, check)), fn, group)


def part_of(handle: Any, path: Path, name: str) -> Any:
    """The handle of a part of a member. Only of what is one value there are parts that can be named."""
    if not path:
        return handle
    if not isinstance(handle, Input) or isinstance(handle, (Each_, Child_, Resource_)):
        raise AuthoringError(f"{name!r} has no parts: name it without a path")
    return handle.below(path)


def shown_form(handle: Input[Any], value: Any) -> JsonForm:
    """What a handle shows. Of children it is where they are; of a resource, how far it is."""
    if isinstance(handle, Each_):
        return [{"key": _key(key), **_made(handle.values, each)} for key, each in value.items()]
    if isinstance(handle, Child_):
        made = _made(handle.values, value)
        return made["value"] if handle.values is not None else made
    if isinstance(handle, Resource_):
        return _state(handle, value)
    return json_form(handle.encoded(value))


def _key(key: Any) -> JsonForm:
    return key if isinstance(key, (str, int)) else str(key)


def _made(values: TypeCodec[Any] | None, made: Any) -> dict[str, JsonForm]:
    if values is not None:
        return {"value": json_form(values.encode(made))}
    assert isinstance(made, Piece)
    bound: Any = made.__bound__
    return {"cls": type(made).__outline__.name, "id": bound.home.id}


def _state(handle: Resource_[Any], state: Pending[Any] | Ready[Any] | Failed[Any]) -> JsonForm:
    last = state.value if isinstance(state, Ready) else state.last
    shown: dict[str, JsonForm] = {"state": type(state).__name__.lower()}
    if last is not None or isinstance(state, Ready):
        shown["value"] = json_form(handle.values.encode(last))
    return {**shown, "error": state.error} if isinstance(state, Failed) else shown
