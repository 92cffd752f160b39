"""Refusal of an event whose piece was deleted while the event waited, or whose child left.

A child leaves when its key leaves the source, or when its parent keeps a child of another class in its place.

Only an event that is sent now creates a piece. An event that waited, in the store or for its due time, was meant for
the piece that existed when it was sent: it may create a piece that never existed, but brings no deleted one back.
Only durable deletions count; a deletion that may still be rejected refuses no event. A child that does not run here any
more may have stopped with its keeper or be kept again: a stored event for it stays in the store, and is refused once it
is certain that it left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headwater.data.address import SPACE_SCOPE, check_id, is_space_name
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError, HeadwaterError, InvalidValueError, Refused
from headwater.pieces.names import SEPARATOR, child_name, document_id, unescaped
from headwater.protocol.messages import Query
from headwater.runtime.events.event_rows import is_of_class
from headwater.runtime.pieces.classes import class_named
from headwater.runtime.pieces.records import RECORD, record_document
from headwater.scheduler.node import CLEAN, Node

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.runtime.core.core import Core
    from headwater.runtime.events.event import Event
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.records import Records
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.writing.space_channel import SpaceChannel


class Gone(Refused):
    """An event waited for a piece that is not there any more."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"{stream}: its piece is gone. It was deleted, or its key left, before this event was handled."
        )


class Away(HeadwaterError):
    """A stored event cannot be handled here now, and stays in the store: its child does not run here any more, or its
    documents cannot be fetched without a connection."""


def check(event: Event, records: Records, *, is_stored: bool) -> None:
    """Raise Gone, inside the handler's transaction, if the event waited and its piece does not exist any more.

    A row is made by its parent and by no event, so that an event for a row that left is also refused if it did not
    wait. Raise Away if it is not known here whether the piece exists.
    """
    instance = event.instance
    if not event.is_late and event.period is None and event.delivers is None:
        if instance.has_left and instance.successor() is None:
            raise Gone(event.stream)
        return
    if instance.parent is not None and instance.is_stopped:
        if is_stored:
            raise Away(f"{instance.space.name}/{instance.id} is part of a piece that is not open here any more")
        if event.period is not None or (not instance.is_let_go and instance.successor() is None):
            raise Gone(event.stream)
    root = instance
    while root.parent is not None:
        root = root.parent
    is_another = ":" in event.emitter and records.emitter(instance) != event.emitter
    if not is_another and records.exists(root):
        return
    # No sender wants a period or the result of a reaction to make a piece, or to reach another one of the same name.
    makes_none = event.period is not None or event.delivers is not None
    if makes_none or instance is not root or _was_there(record_document(root.space, root.id)):
        raise Gone(event.stream)


def _was_there(record: Document) -> bool:
    """Return True if an absent document was deleted, False if it was never written."""
    return record.confirmed is not ABSENT or record.written > 0 or bool(record.layers)


async def is_gone(
    pieces: PieceRegistry, core: Core, channel_of: Callable[[str], SpaceChannel | None], stream: str, cls: str
) -> bool:
    """Return True if the piece of a stored event existed and does certainly not exist any more.

    `channel_of` returns the channel of a space. `cls` is the class of the piece when the event was stored.
    """
    space, _, rest = stream.partition("/")
    id = rest.rpartition(":")[0]
    root = id.partition(SEPARATOR)[0]
    channel = channel_of(space) if is_space_name(space) else None
    try:
        record = check_id(document_id(root, RECORD))
    except InvalidValueError:
        return False  # Its sender invented the name: it is for no piece.
    if channel is None or not root:
        return False
    answer = await channel.driver.query(Query(0, SPACE_SCOPE, record))
    state = answer.documents[0]
    if not state.present:
        return state.seq > 0
    instance = pieces.find(space, root)
    if root == id or instance is None or not instance.opened_for() or _is_newer(state.get(), instance):
        return False
    await channel.reached(answer.seq)  # The key may be newer than the documents that are shown here.
    # All shown documents are durable, and no node is about to change them.
    return channel.is_durable() and core.is_settled() and _has_no(instance, id, cls)


def _is_newer(record: MaybeValue, instance: PieceInstance) -> bool:
    """Return True if a newer version of its class had the piece open: it may have members that are unknown here."""
    made = record.get("generation") if isinstance(record, Mapping) else None
    return isinstance(made, int) and made > instance.generation


def _has_no(root: PieceInstance, id: str, cls: str) -> bool:
    """Return True if an open piece has no such child. A child that could not be made does not count as gone."""
    instance: PieceInstance | None = root
    while instance is not None and instance.id != id:
        below = [each for each in instance.children() if _leads(each.id, id)]
        if not below and not _knows(instance, id):
            return False
        instance = below[0] if below else None
    return instance is None or _took_its_place(instance, cls)


def _took_its_place(child: PieceInstance, cls: str) -> bool:
    """Return True if a child is certainly of another class than a stored event names, and that class is imported."""
    if is_of_class(child, cls):
        return False
    try:
        class_named(cls)
    except AuthoringError:
        return False  # It may be a former name of the class of this child.
    return child.maker is not None and _is_well(child.maker)


def _knows(instance: PieceInstance, id: str) -> bool:
    """Return True if the member that would keep the child is known, its last run succeeded, and has no such key."""
    said = unescaped(id[len(instance.id) + 1 :].partition(SEPARATOR)[0])
    for member, keeper in instance.child_sets.items():
        if member.stored == said:
            return _is_well(keeper.node) and not any(
                _leads(child_name(instance.id, said, text), id) for text in keeper.rows
            )
    return False  # It does not run, or there is no such member any more: then the event waits for one.


def _is_well(node: Node) -> bool:
    """Return True if a node is up to date and its last run did not fail."""
    return node.is_known and node.status == CLEAN and node.error is None and node.loading is None


def _leads(piece: str, id: str) -> bool:
    return id == piece or id.startswith(piece + SEPARATOR)
