"""The stored form of events: writing the rows that a commit contains, and reading them again.

A row names the handler, the piece, the arguments, and the user and session that the event is sent for: enough for any
runtime that takes it up. It names the class, so that an event can create a piece that did not exist. This module does
not decide when a row is written or read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.data.ids import minted_at
from headwater.data.value import Value, freeze
from headwater.errors import AuthoringError, HeadwaterError, InvalidValueError
from headwater.pieces.declarations import HandlerMember
from headwater.protocol.commit import SentEvent, event_id_of
from headwater.runtime.events.event import Event, EventSource
from headwater.runtime.pieces.classes import class_named

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry


class Unavailable(HeadwaterError):
    """A stored event that cannot be handled here now: its class is not imported, or its piece is not open here."""


def row(event: Event) -> SentEvent:
    """Return the stored form of an event."""
    instance = event.instance
    payload: dict[str, Any] = {
        "args": event.payload,
        "cls": instance.schema.name,
        "name": instance.name,
        "user": event.user,
        "session": event.session,
        "at": event.minted_us,
    }
    if event.retries is not None:
        payload["retries"] = event.retries
    if event.is_own:
        payload["own"] = True
    if event.is_durable and not event.due_us:
        payload["durable"] = True  # Its sender may ask for its outcome.
    if event.row:
        payload["id"] = event.id
    return SentEvent(event.row_id, event.stream, freeze(payload), event.due_us)


def read(
    pieces: PieceRegistry, core: Core, row: str, stream: str, payload: Value, due_us: int, source: EventSource
) -> Event:
    """Return the event of a row. Raise Unavailable if it cannot be handled here now."""
    id = event_id_of(row, payload)
    space, _, rest = stream.partition("/")
    piece, _, name = rest.rpartition(":")
    if not isinstance(payload, Mapping) or not isinstance(payload.get("args"), Mapping):
        raise Unavailable(f"event {id} for {stream} was not stored by this version of Headwater: handle it by hand")
    said: Mapping[str, Any] = payload
    instance = _home(pieces, core, space, piece, class_of(payload), str(said.get("name", "")))
    member = instance.schema.get(name)
    if not isinstance(member, HandlerMember):
        raise Unavailable(f"event {id}: {instance!r} has no handler {name!r} any more: keep it, or rename it with was=")
    retries, at = said.get("retries"), said.get("at")
    args: Any = said["args"]
    return Event(
        id=id,
        row="" if row == id else row,
        instance=instance,
        member=member,
        stream=instance.place(member),
        payload=args,
        user=str(said.get("user", "")),
        session=str(said.get("session", "")),
        is_own=said.get("own") is True,
        is_durable=said.get("durable") is True,
        minted_us=max(at if isinstance(at, int) else minted(id), due_us),
        retries=retries if isinstance(retries, int) else None,
        due_us=due_us,
        source=source,
    )


def minted(id: str) -> int:
    """Return the send time in the id of an event. 0: its sender gave it an id."""
    try:
        return minted_at(id)
    except InvalidValueError:
        return 0


def class_of(payload: Value) -> str:
    """Return the name of the class that the piece of a stored event had when the event was stored."""
    cls = payload.get("cls", "") if isinstance(payload, Mapping) else ""
    return cls if isinstance(cls, str) else ""


def is_of_class(instance: PieceInstance, cls: str) -> bool:
    """Return True if a piece is of the class that a stored event names, which may be a former name of the class."""
    return cls in (instance.schema.name, instance.schema.was)


def _home(pieces: PieceRegistry, core: Core, space: str, id: str, cls: str, name: str) -> PieceInstance:
    known = pieces.find(space, id)
    if known is not None:
        # fault rows.child_of_any_class: if False:
        if known.parent is not None and not is_of_class(known, cls):
            raise Unavailable(f"{space}/{id} is a {known.schema.name} here, and the event is for a {cls}")
        return known
    if "/" in id:
        raise Unavailable(f"{space}/{id} is part of a piece that is not open here")
    try:
        return pieces.find_or_make(core.space(space), class_named(cls), name)
    except AuthoringError as error:
        raise Unavailable(str(error)) from error
