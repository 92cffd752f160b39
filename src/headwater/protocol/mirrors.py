"""Mirrors: what a runtime says, and asks, of documents that pieces read in other spaces. DESIGN.md section 7.

A mirror is in the space that is read and points back at its owner. Owns the records; never decides who is dirty.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.protocol.commit import MAIN
from headwater.protocol.message import Message, Number
from headwater.protocol.observations import NodeKey

# ---- from the replica ------------------------------------------------------------------------------


class Mirror(Message, frozen=True, tag="mirror"):
    """A piece on a branch of another space reads these documents, as of seqs of this one. None: nothing any more.

    `at` is the owner's seq at which that was all. It comes in place of what was said of it for an earlier one; what is
    said late is added to what is known, so that of two who speak for a piece neither takes away what the other knows.
    None as `at`: in place of anything. For whoever may write this space.
    """

    id: Number
    owner: str
    piece: str
    docs: tuple[tuple[DocKey, Number], ...]
    branch: str = MAIN
    at: Number | None = None


class QueryMirrors(Message, frozen=True, tag="query_mirrors"):
    """Read once which pieces of another space read documents here that were written since. For writers."""

    id: Number
    owner: str
    after: str = ""
    limit: Number = 100
    branch: str = MAIN  # the owner's


class QueryElsewhere(Message, frozen=True, tag="query_elsewhere"):
    """Read once which documents of other spaces the nodes of a piece read. `limit`: nodes to look at. For owners."""

    id: Number
    piece: str
    after: NodeKey | None = None
    limit: Number = 1_000


# ---- from the engine -------------------------------------------------------------------------------


class Abroad(Message, frozen=True):
    """A document of another space that nodes of a piece read, and the earliest seq there that one of them saw."""

    space: str
    branch: str
    doc: DocKey
    seq: Number


class ReadElsewhere(Message, frozen=True, tag="read_elsewhere"):
    """What `QueryElsewhere` asked for, as of `seq`. A document may be on several pages."""

    id: Number
    seq: Number
    docs: tuple[Abroad, ...] = ()
    next: NodeKey | None = None


class Mirrored(Message, frozen=True, tag="mirrored"):
    """What `QueryMirrors` asked for, by piece: documents, and the seqs that wrote them. To `Mirror`: it is noted."""

    id: Number
    seq: Number
    marked: tuple[tuple[str, DocKey, Number], ...] = ()
    next: str | None = None
