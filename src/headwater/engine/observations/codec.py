"""The stored form of an observation: a part that changes with every run, and a part that seldom does.

`NodeState` changes with every run; `Body` has the node's reads and the work that it started. A document is named by its
number where it has one, so that a piece of a thousand nodes stores the names of its documents once. Also turns a filter
of nodes into a range of rows, and looks up the names of one answer (`NameCache`). Never decides which nodes are clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.engine.store.port import NodeNumbers, ObservationRow, Store
from headwater.errors import CorruptionError
from headwater.protocol.observations import ForeignRead, NodeKey

StoredDoc = int | tuple[str, str]
"""A document: its number, or its scope and id if it was never written when this was stored."""


class NodeState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The part that changes with every run. Texts are numbers of names; 0: an empty one."""

    kind: int
    fingerprint: int
    gate: int
    failed: int
    took_us: int
    changed_at: int  # the last commit that wrote its outputs; of a whole piece, its generation
    verified_at: int  # its reads were current then
    session: int  # the session that observed it
    order: int  # which of that session's runs it was
    cause: int | tuple[StoredDoc, Path] | None = None  # the place of a read, or an address
    foreign: tuple[ForeignRead, ...] = ()


class StoredRead(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """One read of an observation, with numbers in place of names."""

    doc: StoredDoc
    path: Path
    depth: int = 0


class Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The reads of a node in this space, and the work that it started."""

    reads: tuple[StoredRead, ...]
    children: tuple[str, ...] = ()


class RunState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The state of a node in the log row of its commit, until the table has it. The branch is the row's."""

    piece: int
    generation: int
    member: int
    child: str
    scope: int
    state: bytes


_encoder = msgspec.msgpack.Encoder()
_states = msgspec.msgpack.Decoder(NodeState)
_bodies = msgspec.msgpack.Decoder(Body)
_runs = msgspec.msgpack.Decoder(RunState)

encode_form = _encoder.encode
decode_state = _states.decode
decode_body = _bodies.decode
decode_run = _runs.decode


def number_of_absent(scope: str, id: str) -> int:
    """A negative number for a document that has none. Two of them may have the same: it only helps to find readers."""
    digest = blake2b(f"{scope}\0{id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "big") >> 2)


def docs_of(reads: Iterable[StoredRead]) -> dict[StoredDoc, None]:
    """The documents of reads, each once."""
    return dict.fromkeys([read.doc for read in reads])


class NodeFilter(NamedTuple):
    """Which nodes were asked for. None: any."""

    piece: int | None
    generation: int | None
    member: int | None
    child: str | None

    def begin(self, branch: int) -> tuple[NodeNumbers, int]:
        """Return the key before the first row, and how many key columns all rows share: those up to a gap."""
        first = first_of(branch, 0)
        for length, part in enumerate(self, 1):
            if part is None:
                return first, length
            first = NodeNumbers._make((*first[:length], part, *first[length + 1 :]))
        return first, 5

    @property
    def has_gaps(self) -> bool:
        """Whether some part is chosen behind one that is not."""
        given = [part is not None for part in self]
        return given != sorted(given, reverse=True)

    def has(self, row: ObservationRow) -> bool:
        return all(part is None or part == found for part, found in zip(self, row[1:5], strict=True))


class ObservedNode(NamedTuple):
    """The node of an observation, in numbers, and the fields that are the same in all its runs."""

    node: NodeNumbers
    kind: int
    fingerprint: int
    gate: int
    has_member: bool
    is_whole: bool  # it stands for all of its piece


class StoredState(msgspec.Struct, frozen=True, gc=False):
    """The stored fields of a node that its next observation needs."""

    changed_at: int
    verified_at: int
    session: int
    order: int
    what: tuple[int, int, int, int]  # its kind, fingerprint and gate, and how it failed
    body: bytes
    footprint: bytes  # bytes that the body was made of, if encoding it again gives the same; empty: unknown


class NameCache:
    """The names behind numbers, each looked up once for an answer."""

    __slots__ = ("_docs", "_names", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[int, str] = {0: ""}
        self._docs: dict[int, DocKey] = {}

    def load_names(self, numbers: list[int]) -> None:
        self._names.update(self._store.names_of([number for number in numbers if number not in self._names]))

    def load(self, docs: list[int]) -> None:
        self._docs.update(self._store.keys_of([doc for doc in docs if doc not in self._docs]))

    def doc(self, doc: StoredDoc) -> DocKey:
        if not isinstance(doc, int):
            return DocKey(*doc)
        if doc not in self._docs:
            self.load([doc])
        if doc not in self._docs:
            raise CorruptionError(f"a node is said to have read document {doc}, which has no name. Restore a backup.")
        return self._docs[doc]

    def name(self, number: int) -> str:
        known = self._names.get(number)
        if known is None:
            known = self._store.name_of(number)
            if known is None:
                raise CorruptionError(f"an observation names text {number}, which is not stored. Restore a backup.")
            self._names[number] = known
        return known

    def node(self, key: NodeNumbers) -> NodeKey:
        scope, _, principal = self.name(key.scope).partition("\0")
        return NodeKey(self.name(key.piece), key.generation, self.name(key.member), key.child, scope, principal)


def first_of(branch: int, piece: int) -> NodeNumbers:
    """Return the key before all nodes of a piece."""
    return NodeNumbers(branch, piece, -1, -1, "", -1)


def pages_of(store: Store, branch: int, piece: int, size: int) -> Iterator[list[ObservationRow]]:
    """All rows of a piece, some at a time. Those of a page may be changed, or dropped, before the next one is read."""
    after = first_of(branch, piece)
    while rows := store.observations_after(after, size, in_piece=True):
        after = rows[-1].key
        yield rows


def forms_of(row: ObservationRow) -> tuple[NodeState, Body] | None:
    """Decode a row; None if it cannot be read."""
    try:
        return decode_state(row.state), decode_body(row.body)
    except (msgspec.MsgspecError, ValueError):
        return None
