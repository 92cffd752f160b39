"""Pieces that were deleted, and children whose keys left, while an event waited for them: it is refused.

Only what is sent now makes a piece. What waited, stored or for its time, was for the piece that was there; it makes one
that never was, and brings none back. Only what is durable counts: what may still fall takes nobody along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.address import SPACE_SCOPE, check_id, is_space_name
from headwater.data.value import ABSENT
from headwater.errors import InvalidValueError, Refused
from headwater.pieces.names import SEPARATOR, child_name, document_id
from headwater.protocol.messages import Query
from headwater.runtime.binding.records import RECORD

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.runtime.binding.events import Event
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.pieces import Pieces


class Gone(Refused):
    """An event waited for a piece that is not there any more."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"{stream}: its piece is gone. It was deleted, or its key left, while this event waited.")


def check(event: Event) -> None:
    """Inside the handler's transaction: raise Gone if it waited, and its piece is not there any more."""
    if not event.is_late and event.period is None:
        return
    home = event.home
    if home.parent is not None and home.is_stopped:
        raise Gone(event.stream)
    root = home
    while root.parent is not None:
        root = root.parent
    records = home.pieces.records
    if records.exists(root):
        return
    # Nobody sent a period: it makes no piece at all.
    if event.period is not None or home is not root or _was_there(records.cell(root.space, root.id).document):
        raise Gone(event.stream)


def _was_there(record: Document) -> bool:
    """Whether a document that is not there was deleted, and not just never written."""
    return record.confirmed is not ABSENT or record.written > 0 or bool(record.layers)


async def is_gone(pieces: Pieces, stream: str) -> bool:
    """Whether the piece that a stored event is for was there, as far as can be known here, and is not any more."""
    space, _, rest = stream.partition("/")
    id = rest.rpartition(":")[0]
    root = id.partition(SEPARATOR)[0]
    channel = pieces.runtime.channel(space) if is_space_name(space) else None
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
    home = pieces.known(space, root)
    if root == id or home is None or not home.opened_for():
        return False
    await channel.reached(answer.seq)  # The key may be newer than what is shown here.
    # Here is what is durable, and nothing of it is still being made.
    return channel.is_durable() and pieces.core.is_settled() and _has_no(home, id)


def _has_no(root: Home, id: str) -> bool:
    """Whether a piece that is open here keeps no such child. One that could not be made is no child that left."""
    home: Home | None = root
    while home is not None and home.id != id:
        below = [each for each in home.children() if _leads(each.id, id)]
        if not below and not _knows(home, id):
            return False
        home = below[0] if below else None
    return home is None


def _knows(home: Home, id: str) -> bool:
    """Whether it is known of all that a piece keeps that nothing leads to an id."""
    for member, keeper in home.coordinators.items():
        node = keeper.node
        if not node.is_known or node.error is not None or node.loading is not None:
            return False
        if any(_leads(child_name(home.id, member.stored, text), id) for text in keeper.rows):
            return False
    return True


def _leads(piece: str, id: str) -> bool:
    return id == piece or id.startswith(piece + SEPARATOR)
