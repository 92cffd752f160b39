"""Registration of the nodes that write the inputs of a node.

A resumed node is notified of changes only if the writers of its inputs are registered. Handles, and the nodes behind
them, are created when author code first uses them, and a node that does not run uses none. So writers are found by the
names of documents, in any space of this runtime. Runs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError
from headwater.pieces.declarations import (
    ChildMember,
    ComputedMember,
    Declaration,
    EachMember,
    FoldMember,
    MaterializerMember,
    ResourceMember,
)
from headwater.pieces.names import SEPARATOR
from headwater.replica.document import Document
from headwater.runtime.pieces.records import record_document

if TYPE_CHECKING:
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry

DERIVED: Final = (ComputedMember, MaterializerMember, EachMember, ChildMember, FoldMember, ResourceMember)
"""Members whose documents are written by a node of their own."""


def register_writers(pieces: PieceRegistry, space: LocalSpace, doc: DocKey) -> None:
    """Register the nodes that write a document, if it is of a member of a piece that is open here."""
    # fault+ resume.makers_ignored: return
    if has_writer(space, doc):
        return
    owner, stored = owner_of(pieces, space, doc)
    member = None if owner is None else owner.schema.get(stored.partition("/")[0])
    if owner is None or member is None:
        return
    scope, _, whose = doc.scope.partition(":")
    if member.scope != scope and not isinstance(member, (EachMember, ChildMember)):
        return
    try:
        for each in _writing_members(owner, member):
            owner.view(member.scope, whose if scope == "user" else "").handle(each)
    except HeadwaterError:
        return  # It needs a run of its parent: its reader runs, and gets the error.


def _writing_members(owner: PieceInstance, member: Declaration) -> list[Declaration]:
    """Return the members whose nodes write the document of a member: itself, or those that declare to write a cell."""
    if isinstance(member, DERIVED):
        return [member]
    # fault+ resume.side_writers_ignored: return []
    return [each for each in owner.schema.writers_of(member) if each.scope == member.scope]


def notifies_readers(
    pieces: PieceRegistry, space: LocalSpace, doc: DocKey, reader: tuple[PieceInstance, str] | None = None
) -> bool:
    """Return True if readers of a document are notified when its writers have to run.

    `reader` is the instance and the member of the node that is resumed: a materializer that reads its own output
    needs no other node for it, and its handle may not be kept yet.
    """
    # fault+ resume.makers_ignored: return True
    if has_writer(space, doc):
        return True
    owner, stored = owner_of(pieces, space, doc)
    if not stored or stored == "@":
        return True  # A document of no member, or the record of a piece: no node writes it.
    if owner is None:
        return False
    member = owner.schema.get(stored)
    if member is None:
        return isinstance(owner.schema.get(stored.partition("/")[0]), ResourceMember)
    scope, _, whose = doc.scope.partition(":")
    view = owner.view(member.scope, whose if scope == "user" else "")
    return not isinstance(member, DERIVED) and all(
        each in view.handles or (owner, each.stored) == reader for each in _writing_members(owner, member)
    )


def has_writer(space: LocalSpace, doc: DocKey) -> bool:
    """Return True if a registered node writes a document."""
    document = space.replica.documents.get(doc)
    return document is not None and bool(document.writers)


def owner_of(pieces: PieceRegistry, space: LocalSpace, doc: DocKey) -> tuple[PieceInstance | None, str]:
    """Return the instance that has a document, if it is here, and the name of the member. Empty: of no member."""
    id, colon, stored = doc.id.rpartition(":")
    return (pieces.find(space.name, id), stored) if colon else (None, "")


def record_of(pieces: PieceRegistry, space: LocalSpace, doc: DocKey) -> Document | None:
    """Return the record of the piece that has a document. None: the piece is here, or the document is of no piece."""
    owner, stored = owner_of(pieces, space, doc)
    id = doc.id.rpartition(":")[0]
    if not stored or stored == "@" or owner is not None or SEPARATOR in id:
        return None
    return record_document(space, id)


def named(pieces: PieceRegistry, space: LocalSpace, doc: DocKey) -> PieceInstance | None:
    """Return the instance of the piece that has a document, by its record, once that is loaded."""
    id, colon, stored = doc.id.rpartition(":")
    if not colon or stored == "@":
        return None
    try:
        return pieces.find_by_id(space, id)
    except HeadwaterError:
        return None  # It was never made, or its class is not imported: no node here can write its documents.
