"""Members as pages and commands see them: the right that an access needs, and the value as JSON.

The access document of a space decides who has a right. A watch of a member reports every state: a value, absence, and
an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from headwater.cells.cell import Cell
from headwater.cells.codec_base import TypeCodec
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Delays, Subscription
from headwater.cells.typed_path import BrokenLinkError
from headwater.data.address import SPACE_SCOPE
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import Path
from headwater.data.value import ABSENT
from headwater.engine.admission.access import Right
from headwater.errors import AbsentError, AccessError, AuthoringError, GoneError, HeadwaterError
from headwater.pieces.handles import Failed, Handler, Pending, Ready
from headwater.pieces.piece import Piece
from headwater.replica.document import Document
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.pieces.child_set import ChildHandle, EachHandle
from headwater.runtime.pieces.resource import ResourceHandle

__all__ = [
    "RIGHT_FOR",
    "Unreadable",
    "check_link_target",
    "handler_space",
    "member_form",
    "needed_right",
    "select_part",
    "watch_member",
    "write_as_user",
]


RIGHT_FOR: Final = {"reader": Right.READ, "writer": Right.WRITE, "owner": Right.OWN}
"""The right that each value of `allow=` requires."""


def needed_right(handle: Input[Any], user: str, session: str, shared: Right) -> Right:
    """Return the right that a user needs at a handle: `shared` for documents of the space, READ for the user's own,
    otherwise OWN.

    A piece may have been given a cell of another user as an input; the scope of the document decides.
    """
    scope = handle.document.key.scope
    if scope == SPACE_SCOPE:
        return shared
    return Right.READ if scope in (f"user:{user}", f"session:{session}") else Right.OWN


def handler_space(handle: Handler[..., Any]) -> str:
    """Return the space whose access document says who may send to a handler: the handler's own, whichever piece was
    given it.
    """
    return handle.sender.place(handle.member).partition("/")[0]


def check_link_target(handle: Input[Any], user: str, session: str) -> None:
    """Raise AccessError if a link below the handle leads to a document that is neither shared in its space nor the
    user's own.

    A link is data that any writer may have stored, and the serving runtime could follow it anywhere. Called for every
    read and write, because the target may change.
    """
    found = handle.resolve_document()
    if found is handle.document:
        return
    key = found.key
    is_open = key.scope in (SPACE_SCOPE, f"user:{user}", f"session:{session}")
    if found.home is not handle.document.home or not is_open or key.id.startswith("$"):
        raise AccessError(f"{handle!r} leads to data that {user!r} may not see: name the place that the link points at")


def write_as_user(handle: Cell[Any], user: str, session: str, kind: str, *arguments: Any) -> None:
    """Write through a handle for a user, inside a transaction, after a check of the links on the way.

    A user may replace a link in the cell itself that leads to a forbidden document; otherwise it could not be repaired.
    """
    try:
        check_link_target(handle, user, session)
    except (AccessError, BrokenLinkError):
        if kind not in ("set", "delete") or not handle.replace_link(*arguments):
            raise
    else:
        getattr(handle, kind)(*arguments)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The state of a member that raised an error."""

    error: str


class _WatchedHandle:
    """A handle whose reads never raise. A sink on the handle itself would wait for an absent value."""

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
        except GoneError:
            raise  # It ends the sink.
        except AbsentError:
            return ABSENT
        except HeadwaterError as error:
            return Unreadable(str(error))

    def __repr__(self) -> str:
        return repr(self._handle)


def watch_member(
    runtime: Runtime,
    handle: Input[Any],
    fn: Callable[[Any], object],
    group: object | None = None,
    check: Callable[[], object] | None = None,
) -> Subscription:
    """Call `fn` with the state of a handle now and after each change: a value, ABSENT or Unreadable.

    The last state of a member whose piece is gone is Unreadable, with that reason.
    `check` is called before each read, and raises if the value must not be shown.
    """
    watched = cast("Input[Any]", _WatchedHandle(handle, check))
    return runtime.core.sink(watched, fn, group, Delays(), lambda why: fn(Unreadable(str(why))))


def select_part(handle: Any, path: Path, name: str) -> Any:
    """Return the handle of a part of a member. Members that are no single value have no parts."""
    if not path:
        return handle
    if not isinstance(handle, Input) or isinstance(handle, (EachHandle, ChildHandle, ResourceHandle)):
        raise AuthoringError(f"{name!r} has no parts: name it without a path")
    return handle.below(path)


def member_form(handle: Input[Any], value: Any) -> JsonForm:
    """Return the JSON of a member's value; of children their classes and ids, of a resource its state."""
    if isinstance(handle, EachHandle):
        return [{"key": _key_form(key), **_child_form(handle.values, each)} for key, each in value.items()]
    if isinstance(handle, ChildHandle):
        made = _child_form(handle.values, value)
        return made["value"] if handle.values is not None else made
    if isinstance(handle, ResourceHandle):
        return _resource_form(handle, value)
    return json_form(handle.encoded(value))


def _key_form(key: Any) -> JsonForm:
    return key if isinstance(key, (str, int)) else str(key)


def _child_form(values: TypeCodec[Any] | None, made: Any) -> dict[str, JsonForm]:
    if values is not None:
        return {"value": json_form(values.encode(made))}
    assert isinstance(made, Piece)
    bound: Any = made.__bound__
    return {"cls": type(made).__schema__.name, "id": bound.instance.id}


def _resource_form(handle: ResourceHandle[Any], state: Pending[Any] | Ready[Any] | Failed[Any]) -> JsonForm:
    last = state.value if isinstance(state, Ready) else state.last
    shown: dict[str, JsonForm] = {"state": type(state).__name__.lower()}
    if last is not None or isinstance(state, Ready):
        shown["value"] = json_form(handle.values.encode(last))
    return {**shown, "error": state.error} if isinstance(state, Failed) else shown
