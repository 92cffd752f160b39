"""Refusal of an event whose piece was deleted while the event waited, or whose child left.

A child leaves when its key leaves the source, or when its parent keeps a child of another class in its place.

Only an event that is sent now creates a piece. An event that waited, in the store or for its due time, was meant for
the piece that existed when it was sent: it may create a piece that never existed, but brings no deleted one back.
Only durable deletions count; a deletion that may still be rejected refuses no event. A child that does not run here any
more may have stopped with its keeper or be kept again: a stored event for it stays in the store, and is refused once it
is certain that it left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.data.address import SPACE_SCOPE, check_id, is_space_name
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError, HeadwaterError, InvalidValueError, Refused
from headwater.pieces.names import SEPARATOR, child_name, document_id, unescaped
from headwater.protocol.messages import Query
from headwater.runtime.events.event_rows import is_of_class
from headwater.runtime.pieces.records import RECORD, class_named
from headwater.scheduler.node import CLEAN, Node

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.runtime.events.delivery import EventDelivery
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry


class Gone(Refused):
    """An event waited for a piece that is not there any more."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"{stream}: its piece is gone. It was deleted, or its key left, before this event was handled."
        )


class Away(HeadwaterError):
    """A stored event cannot be handled here now, and is left where it is: its child does not run here any more, or what
    it needs cannot be fetched without a connection."""


def check(delivery: EventDelivery) -> None:
    """Inside the handler's transaction: raise Gone if it waited, and its piece is not there any more.

    A row is made by its keeper and by no event, so that an event for a row that left is refused if it did not wait,
    too. Away: whether the piece is gone is not known here and now.
    """
    event, home = delivery.event, delivery.instance
    if not event.is_late and event.period is None and event.delivers is None:
        if home.has_left and home.successor() is None:
            raise Gone(event.stream)
        return
    if home.parent is not None and home.is_stopped:
        if delivery.is_stored:
            raise Away(f"{home.space.name}/{home.id} is part of a piece that is not open here any more")
        if event.period is not None or (not home.is_let_go and home.successor() is None):
            raise Gone(event.stream)
    root = home
    while root.parent is not None:
        root = root.parent
    records = home.pieces.records
    if records.exists(root):
        return
    # No sender wants a period or the result of a reaction to make a piece.
    makes_none = event.period is not None or event.delivers is not None
    if makes_none or home is not root or _was_there(records.cell(root.space, root.id).document):
        raise Gone(event.stream)


def _was_there(record: Document) -> bool:
    """Whether a document that is not there was deleted, and not just never written."""
    return record.confirmed is not ABSENT or record.written > 0 or bool(record.layers)


async def is_gone(pieces: PieceRegistry, stream: str, cls: str) -> bool:
    """Whether the piece that a stored event is for was there, as far as can be known here, and is not any more.

    `cls` is the class of the piece when the event was stored.
    """
    space, _, rest = stream.partition("/")
    id = rest.rpartition(":")[0]
    root = id.partition(SEPARATOR)[0]
    channel = pieces.channel(space) if is_space_name(space) else None
    try:
        record = check_id(document_id(root, RECORD))
    except InvalidValueError:
        return False  # Whoever stored it made it up: it is for no piece.
    if channel is None or not root:
        return False
    answer = await channel.driver.query(Query(0, SPACE_SCOPE, record))
    state = answer.documents[0]
    if not state.present:
        return state.seq > 0
    home = pieces.find(space, root)
    if root == id or home is None or not home.opened_for() or _is_newer(state.get(), home):
        return False
    await channel.reached(answer.seq)  # The key may be newer than what is shown here.
    # Here is what is durable, and nothing of it is still being made.
    return channel.is_durable() and pieces.core.is_settled() and _has_no(home, id, cls)


def _is_newer(record: MaybeValue, home: PieceInstance) -> bool:
    """Whether a newer version of its class had it open: that may keep what is not known here."""
    made = record.get("generation") if isinstance(record, Mapping) else None
    return isinstance(made, int) and made > home.generation


def _has_no(root: PieceInstance, id: str, cls: str) -> bool:
    """Whether a piece that is open here keeps no such child. One that could not be made is no child that left."""
    home: PieceInstance | None = root
    while home is not None and home.id != id:
        below = [each for each in home.children() if _leads(each.id, id)]
        if not below and not _knows(home, id):
            return False
        home = below[0] if below else None
    return home is None or _took_its_place(home, cls)


def _took_its_place(child: PieceInstance, cls: str) -> bool:
    """Whether a child is certainly of another class than a stored event names, and that class is imported here."""
    if is_of_class(child, cls):
        return False
    try:
        class_named(cls)
    except AuthoringError:
        return False  # It may be a former name of the class of this child.
    return child.maker is not None and _is_well(child.maker)


def _knows(home: PieceInstance, id: str) -> bool:
    """Whether who would keep the child that leads to an id is known, ran well, and has no such key."""
    said = unescaped(id[len(home.id) + 1 :].partition(SEPARATOR)[0])
    for member, keeper in home.coordinators.items():
        if member.stored == said:
            return _is_well(keeper.node) and not any(
                _leads(child_name(home.id, said, text), id) for text in keeper.rows
            )
    return False  # It does not run, or there is no such member any more: then the event waits for one.


def _is_well(node: Node) -> bool:
    """Whether a node is up to date and its last run did not fail."""
    return node.is_known and node.status == CLEAN and node.error is None and node.loading is None


def _leads(piece: str, id: str) -> bool:
    return id == piece or id.startswith(piece + SEPARATOR)
