"""Messages about documents that pieces read in other spaces.

A mirror is stored in the space that is read and points back at its owner. Whether a node is dirty is not decided here.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.protocol.commit import MAIN
from headwater.protocol.message import Message, Number
from headwater.protocol.observations import NodeKey

# ---- from the replica ------------------------------------------------------------------------------


class Mirror(Message, frozen=True, tag="mirror"):
    """A piece on a branch of another space reads these documents, as of seqs of this one. No documents: it reads none
    any more.

    `at` is the owner's seq at which the list was complete. It replaces the list of an earlier seq; a list that arrives
    late is added to the known one, so that neither of two runtimes that speak for a piece removes the documents of the
    other. None as `at` replaces any list. For sessions that may write this space.
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
    """The answer to `QueryElsewhere`, as of `seq`. A document may be on several pages."""

    id: Number
    seq: Number
    docs: tuple[Abroad, ...] = ()
    next: NodeKey | None = None


class Mirrored(Message, frozen=True, tag="mirrored"):
    """The answer to `QueryMirrors`, by piece: documents, and the seqs that wrote them. To `Mirror`: noted."""

    id: Number
    seq: Number
    marked: tuple[tuple[str, DocKey, Number], ...] = ()
    next: str | None = None
