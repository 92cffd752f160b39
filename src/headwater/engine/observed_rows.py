"""Rows of observations as a question sees them: which of them it is about, what they hold, the names behind numbers.

Owns how a choice of nodes becomes a range of rows, and the names that one answer looks up. Never decides what is clean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headwater.data.address import DocKey
from headwater.engine.observed_form import Body, State, StoredDoc, decode_body, decode_state
from headwater.engine.store.port import NodeNumbers, ObservationRow, Store
from headwater.errors import CorruptionError
from headwater.protocol.observations import NodeKey


class Choice(NamedTuple):
    """Which nodes were asked for. None: any."""

    piece: int | None
    generation: int | None
    member: int | None
    child: str | None

    def begin(self, branch: int) -> tuple[NodeNumbers, int]:
        """What comes before the first of them, and how many of its parts all of them share: those up to a gap."""
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


class Subject(NamedTuple):
    """Which node it is about, in numbers, and what is the same in all its runs."""

    node: NodeNumbers
    kind: int
    fingerprint: int
    gate: int
    has_member: bool
    is_whole: bool  # it stands for all of its piece


class Known(NamedTuple):
    """What is stored of a node, as far as the next observation of it needs that."""

    changed_at: int
    verified_at: int
    session: int
    order: int
    what: tuple[int, int, int, int]  # its kind, fingerprint and gate, and how it failed
    body: bytes
    footprint: bytes  # that the body was made of, if making it again would give the same; empty: nobody knows


class Texts:
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
                raise CorruptionError(f"what nodes did names text {number}, which is not stored. Restore a backup.")
            self._names[number] = known
        return known

    def node(self, key: NodeNumbers) -> NodeKey:
        scope, _, principal = self.name(key.scope).partition("\0")
        return NodeKey(self.name(key.piece), key.generation, self.name(key.member), key.child, scope, principal)


def first_of(branch: int, piece: int) -> NodeNumbers:
    """What comes before all nodes of a piece."""
    return NodeNumbers(branch, piece, -1, -1, "", -1)


def pages_of(store: Store, branch: int, piece: int, size: int) -> Iterator[list[ObservationRow]]:
    """All rows of a piece, some at a time. Those of a page may be changed, or dropped, before the next one is read."""
    after = first_of(branch, piece)
    while rows := [row for row in store.observations_after(after, size) if row.piece == piece]:
        after = rows[-1].key
        yield rows


def forms_of(row: ObservationRow) -> tuple[State, Body] | None:
    """What a row holds; None: that cannot be read."""
    try:
        return decode_state(row.state), decode_body(row.body)
    except (msgspec.MsgspecError, ValueError):
        return None
