"""Observations: the last run of each node, as a runtime reports it and as an engine answers it.

An observation travels with the commit whose outputs it describes, or, if the run changed nothing, in front of the next
frame. It holds addresses and seqs, never a value. Whether a node is clean is not decided here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.limits import ValueLimits
from headwater.data.path import Path, check_path
from headwater.errors import InvalidValueError, ProtocolError
from headwater.protocol.commit import MAIN, Read
from headwater.protocol.message import Message, Number

Layers = tuple[tuple[int, int], ...]
"""Own commits that a read stands on, as inclusive ranges of `local_seq`."""
WHOLE: Final = "@whole"
"""In the place of a member: all of a piece. The observation says that every node of the piece was clean at a seq, in a
runtime that had all of them; its fingerprint covers everything that decides which nodes run. Its children are the nodes
that have to be loaded nevertheless, as the reporting runtime names them.
"""
MOST_AWAKE: Final = 100
"""So many nodes of a piece that is clean as a whole may have to be there nevertheless."""
BETWEEN: Final = "\x1f"
"""Between the id of a child and the key of one of its elements. It is in no id."""


RECORD: Final = ":@"
"""The end of the id of a piece's record."""


def generation_of(piece: str) -> tuple[DocKey, Path]:
    """Where the number of a piece's generation is kept, which everything that derives something of it reads."""
    return DocKey(SPACE_SCOPE, piece + RECORD), ("generation",)


def whose_record(doc: DocKey) -> str:
    """The piece whose record a document is. Empty: it is none."""
    return doc.id[: -len(RECORD)] if doc.id.endswith(RECORD) and doc.scope == SPACE_SCOPE else ""


def is_below(child: str, id: str) -> bool:
    """Whether the child that a node is of, as its key names it, is one with an id, or in it."""
    return child.startswith(id) and child[len(id) : len(id) + 1] in ("", "/", BETWEEN)


class NodeKey(Message, frozen=True, gc=False):
    """Which node: the member of a piece in one of its generations, or of its child with a key, for whom."""

    piece: str
    generation: Number
    member: str
    child: str = ""
    scope: str = ""  # empty: the space's
    principal: str = ""


def label_of(node: NodeKey) -> str:
    """Return the name that a runtime and its messages give a node: `ann:total`, `main/views/k1:cost of user:ann`."""
    child, _, element = node.child.partition(BETWEEN)
    home, member = child or node.piece, node.member
    if element and member.endswith(" row"):
        member = f"{member.removesuffix(' row')}/{element} row"
    if not node.scope or node.scope.startswith("runtime:"):
        whose = f", {node.principal!r}" if node.principal else ""
    else:
        whose = f" of {node.scope}:{node.principal}"
    return f"{home}:{member}{whose}"


class ForeignRead(Message, frozen=True, gc=False):
    """An address of another space that was looked at, as of that space's `seq`; `chain` names its log there."""

    space: str
    doc: DocKey
    path: Path
    depth: Depth
    seq: Number
    chain: Number | None = None
    branch: str = MAIN


class About(Message, frozen=True, gc=False):
    """The parts of an observation that are the same in every run of a node."""

    node: NodeKey
    kind: str = ""  # behind a space: the ingredients of its code, for people
    fingerprint: str = ""  # of its code; empty: unknown, and the node is never clean
    gate: str = ""  # how its time is configured


class Touched(Message, frozen=True, gc=False):
    """One address that a run looked at."""

    doc: DocKey
    path: Path = ()
    depth: Depth = Depth.DEEP


class Footprint(Message, frozen=True, gc=False):
    """The parts of an observation that are the same in most runs: the addresses read, and the keys of children.

    With those keys its children are restored without a run of the node.
    """

    reads: tuple[Touched, ...] = ()
    children: tuple[str, ...] = ()


class Observation(Message, frozen=True, gc=False):
    """One run of a node that came to an end.

    `about` and `footprint` are the bytes of an `About` and a `Footprint` (`encode_part`): a runtime has them from the
    last run of the node, and the engine sees at once that nothing in them changed. `order` rises with every run that
    the session observes: an earlier observation never replaces a later one. Of two sessions, the one that had seen more
    has the later run.

    `local_seq` is the commit of the same frame that wrote its outputs, and that was admitted with the same reads; of a
    wave, `place` is that of its result. 0: it changed nothing; then its reads saw the branch at `seq` and the layers
    that `layers` names for each, as those of a commit do. `gone`: the node is removed, or with no member all nodes of
    its piece, of any generation; with a child and no member, those of that child and of its descendants.
    """

    about: bytes
    footprint: bytes
    order: Number
    local_seq: Number = 0
    seq: Number = 0
    layers: tuple[Layers, ...] = ()  # for each read; empty: none stands on any
    failed: str = ""  # the fingerprint of the error that it ended with; empty: it succeeded
    cause: int | tuple[DocKey, Path] | None = None  # the place of a read, or an address
    foreign: tuple[ForeignRead, ...] = ()
    took_us: Number = 0
    gone: bool = False
    place: Number = 0


_encoder = msgspec.msgpack.Encoder()
_abouts = msgspec.msgpack.Decoder(About)
_footprints = msgspec.msgpack.Decoder(Footprint)


def encode_part(part: About | Footprint) -> bytes:
    return _encoder.encode(part)


def decode_about(data: bytes) -> About:
    """ProtocolError: these bytes are no such thing."""
    try:
        return _abouts.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(f"an observation is about no node: {error}") from error


def decode_footprint(data: bytes, limits: ValueLimits) -> Footprint:
    """ProtocolError: these bytes are no such thing."""
    try:
        footprint = _footprints.decode(data)
        for read in footprint.reads:
            if read.path:
                check_path(read.path, limits)
    except (msgspec.MsgspecError, ValueError, InvalidValueError) as error:
        raise ProtocolError(f"the reads of an observation cannot be decoded: {error}") from error
    return footprint


# ---- from the replica ------------------------------------------------------------------------------


class QueryObservations(Message, frozen=True, tag="query_observations"):
    """Read observations of nodes of the session's branch once: of one piece, generation, member or child, or all.

    `reads`: only of nodes that read that document. Each answer says whether its reads would be admitted now. `after` is
    the `next` of the page before. For sessions that may read the space. Those of owners get all nodes; others get the
    nodes of no other user that read no document of another user. The same holds for the next three.
    """

    id: Number
    piece: str = ""
    generation: Number | None = None
    member: str = ""
    child: str | None = None
    after: NodeKey | None = None
    limit: Number = 100
    reads: DocKey | None = None


class QueryNodes(Message, frozen=True, tag="query_nodes"):
    """Read the observations of these nodes of the session's branch once. Unknown nodes are left out."""

    id: Number
    nodes: tuple[NodeKey, ...]


class QueryCleanPieces(Message, frozen=True, tag="query_wholes"):
    """Read once which pieces of the session's branch were said to be clean as a whole, by piece."""

    id: Number
    after: str = ""
    limit: Number = 1_000


class QueryAffectedNodes(Message, frozen=True, tag="query_met"):
    """Read observations of nodes of one piece once: of those whose reads were written after a seq, and would not be
    admitted now; or, with `docs`, of all that read one of those.

    `made` are documents that nodes write and that the asking session knows: with one reader, that is the node that
    writes it. `also`: the same question about these pieces, for writes after the seq.
    """

    id: Number
    piece: str
    since: Number = 0
    docs: tuple[DocKey, ...] = ()
    made: tuple[DocKey, ...] = ()
    limit: Number = 1_000
    also: tuple[str, ...] = ()


class QueryBacklog(Message, frozen=True, tag="query_backlog"):
    """Read once which pieces of the session's branch have nodes that are not clean, by piece. For owners."""

    id: Number
    after: str = ""
    limit: Number = 100


class QueryReaders(Message, frozen=True, tag="query_readers"):
    """Read once which pieces of the session's branch have nodes that read a document, which the session may read."""

    id: Number
    doc: DocKey
    after: str = ""
    limit: Number = 100


class QueryWrittenDocuments(Message, frozen=True, tag="query_marks"):
    """Ask once which documents that nodes read, and which records of pieces, were written on the session's branch after
    a seq, and by which pieces they are read. The next page is asked for with the `through` of this one. For readers."""

    id: Number
    since: Number
    limit: Number = 1_000  # commits to look through


class WatchWrittenDocuments(Message, frozen=True, tag="watch_marks"):
    """Tell when anybody writes a document of the session's branch that nodes read, or a piece's record. For readers.

    The last one that was said counts; `on` False: no more of it.
    """

    id: Number
    on: bool = True


class QueryCurrent(Message, frozen=True, tag="query_current"):
    """Ask once whether reads would be admitted now. They stand on confirmed state alone.

    `chains` are the engine's names of its log at some of their seqs. If it is another log now, as after restoring a
    backup, no read from then is current.
    """

    id: Number
    reads: tuple[Read, ...]
    chains: tuple[tuple[Number, Number], ...] = ()


# ---- from the engine -------------------------------------------------------------------------------


class Observed(Message, frozen=True):
    """The last run of a node. `reads` have the seq that they were verified at, which is `verified_at`.

    `changed_at` is the last commit that wrote its outputs, 0 if none is known. `stale` are its reads that would not be
    admitted now, each with the seq of the write that it missed; without any, and with its fingerprint, it is clean as
    far as this space knows. Its reads of other spaces have to be checked there.
    """

    node: NodeKey
    kind: str
    fingerprint: str
    gate: str
    failed: str
    cause: tuple[DocKey, Path] | None
    reads: tuple[Read, ...]
    foreign: tuple[ForeignRead, ...]
    children: tuple[str, ...]
    took_us: Number
    changed_at: Number
    verified_at: Number
    stale: tuple[tuple[int, Number], ...] = ()  # the place among its reads, and the seq


class Observations(Message, frozen=True, tag="observations"):
    """The answer to `QueryObservations`, as of `seq`, by piece, generation, member and child."""

    id: Number
    seq: Number
    observed: tuple[Observed, ...]
    next: NodeKey | None = None


class CleanPiece(Message, frozen=True):
    """A piece that was clean as a whole as of `as_of`; `met`: a document that its nodes read was written since then.

    `generation` is the one that its record named then. 0: its record was written since, or that is unknown. `awake` are
    the nodes that have to be loaded nevertheless, as the reporting runtime names them.
    """

    piece: str
    fingerprint: str
    as_of: Number
    met: bool
    generation: Number = 0
    awake: tuple[str, ...] = ()


class CleanPieces(Message, frozen=True, tag="wholes"):
    """The answer to `QueryCleanPieces`, as of `seq`."""

    id: Number
    seq: Number
    pieces: tuple[CleanPiece, ...]
    next: str | None = None


class AffectedNodes(Message, frozen=True, tag="met"):
    """The answer to `QueryAffectedNodes`, as of `seq`.

    Not `all`: they are too many, or history since then is not kept.
    """

    id: Number
    seq: Number
    observed: tuple[Observed, ...]
    all: bool = True


class PieceBacklog(Message, frozen=True):
    """A piece with nodes that are not clean: how many of how many, the duration of their last runs, and causes.

    `elsewhere` are further nodes that are clean only if their reads of other spaces still hold: the duration of the
    last run of each, and those reads.
    """

    piece: str
    nodes: Number
    dirty: Number
    took_us: Number
    causes: tuple[tuple[DocKey, Number], ...]  # documents that were written since, each with its seq; a few of them
    elsewhere: tuple[tuple[Number, tuple[ForeignRead, ...]], ...] = ()


class Backlog(Message, frozen=True, tag="backlog"):
    """The answer to `QueryBacklog`, as of `seq`. A page may be short, or empty, and have a next one."""

    id: Number
    seq: Number
    pieces: tuple[PieceBacklog, ...]
    next: str | None = None


class Readers(Message, frozen=True, tag="readers"):
    """The answer to `QueryReaders`, as of `seq`."""

    id: Number
    seq: Number
    pieces: tuple[str, ...]
    next: str | None = None


class WrittenDocument(Message, frozen=True):
    """A document that nodes read and that was last written at `seq`; `more`: not all of its pieces are named.

    For the record of a piece, that piece is named, too, with or without readers.
    """

    doc: DocKey
    seq: Number
    pieces: tuple[str, ...]
    more: bool = False


class WrittenDocuments(Message, frozen=True, tag="marks"):
    """The answer to `QueryWrittenDocuments`: the writes up to `through`, which may be less than `seq`.

    None as `through`: history since then is not kept any more, and every piece may be concerned.
    """

    id: Number
    seq: Number
    marks: tuple[WrittenDocument, ...]
    through: Number | None


class DocumentsWritten(Message, frozen=True, tag="marked"):
    """The newest commit that wrote a document which nodes read is the one at `newest`.

    `QueryWrittenDocuments` says more. Also the answer to `WatchWrittenDocuments`, with where the log ends.
    """

    id: Number
    newest: Number


class OutdatedReads(Message, frozen=True, tag="current"):
    """Which of the reads that `QueryCurrent` named would not be admitted now: the place, and the write it missed."""

    id: Number
    seq: Number
    stale: tuple[tuple[int, Number], ...] = ()
