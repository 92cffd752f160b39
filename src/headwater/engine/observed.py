"""Observed: what is known of nodes, and whether it still holds. Comparison decides.

A node is clean as far as this space knows if its recorded reads would be admitted now, by the function that admits
commits. A read of a document that was not written since its node was verified is not even looked at: that is what
admission itself begins with. Marks are not stored: who is dirty, and because of which documents, follows from the
heads. Answers; never writes, and never makes a node run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from headwater.data.address import Depth, DocKey
from headwater.engine.admission import Admission
from headwater.engine.branches import Branch
from headwater.engine.heads import Heads
from headwater.engine.limits import Limits
from headwater.engine.log import Log
from headwater.engine.observed_form import (
    Body,
    State,
    StoredDoc,
    decode_body,
    decode_mirror,
    decode_state,
    docs_of,
    number_of_absent,
)
from headwater.engine.sessions import NOBODY_AT_ALL
from headwater.engine.store.port import NodeNumbers, ObservationRow, Store
from headwater.errors import CorruptionError
from headwater.protocol.commit import Read
from headwater.protocol.messages import Looks, Seen
from headwater.protocol.observations import (
    Backlog,
    Current,
    Mirror,
    Mirrored,
    NodeKey,
    Observations,
    PieceBacklog,
    QueryBacklog,
    QueryCurrent,
    QueryMirrors,
    QueryObservations,
    QueryReaders,
    Readers,
)
from headwater.protocol.observations import (
    Observed as ObservedNode,
)

MOST_CAUSES: Final = 16  # of one piece's backlog


class Observed:
    """Answers questions about nodes of one space. `is_on` False: knows nothing."""

    __slots__ = ("_admission", "_heads", "_limits", "_log", "_store", "is_on")

    def __init__(
        self, store: Store, log: Log, heads: Heads, admission: Admission, limits: Limits, *, is_on: bool
    ) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._admission = admission
        self._limits = limits
        self.is_on = is_on

    def answer(self, branch: Branch, question: Looks) -> Seen:
        seq = self._log.last_seq
        match question:
            case QueryObservations():
                found, after = self._observations(branch, question) if self.is_on else ([], None)
                return Observations(question.id, seq, tuple(found), after)
            case QueryBacklog(id, last, limit):
                pieces, more = self._backlog(branch, last, limit) if self.is_on else ([], None)
                return Backlog(id, seq, tuple(pieces), more)
            case QueryReaders(id, doc, last, limit):
                names, more = self._readers(branch, doc, last, limit) if self.is_on else ([], None)
                return Readers(id, seq, tuple(names), more)
            case QueryCurrent(id, reads):
                return Current(id, seq, self.stale(branch, reads))
            case QueryMirrors(id, owner, last, limit):
                marked, more = self._marked(branch, owner, last, limit) if self.is_on else ([], None)
                return Mirrored(id, seq, tuple(marked), more)
            case Mirror(id):
                return Mirrored(id, seq)
            case _:
                assert_never(question)

    # ---- is it clean -----------------------------------------------------------------------------

    def stale(self, branch: Branch, reads: tuple[Read, ...]) -> tuple[tuple[int, int], ...]:
        """The reads that would not be admitted now, by their place, each with the seq of what it missed."""
        found = self._admission.conflict(NOBODY_AT_ALL, branch, reads)
        if found is None:
            return ()
        missed = {(c.doc, c.path, c.depth, c.basis): c.seq for c in found.collisions}
        at = [missed.get((read.doc, read.path, read.depth, read.seq), 0) for read in reads]
        return tuple([(place, seq) for place, seq in enumerate(at) if seq])

    def _written(self, branch: Branch, docs: Iterable[StoredDoc]) -> dict[StoredDoc, int]:
        """When documents were last written on this branch, from their heads alone. Those that never were have 0."""
        numbers = {doc: self._number(doc) for doc in docs}
        seqs = self._heads.seqs(branch, [number for number in numbers.values() if number])
        return {doc: seqs.get(number, 0) for doc, number in numbers.items()}

    def _number(self, doc: StoredDoc) -> int:
        return doc if isinstance(doc, int) else self._store.doc_of(DocKey(*doc)) or 0

    # ---- pages of nodes --------------------------------------------------------------------------

    def _observations(self, branch: Branch, asked: QueryObservations) -> tuple[list[ObservedNode], NodeKey | None]:
        limit = max(1, min(asked.limit, self._limits.query_documents))
        piece = self._store.number_of(asked.piece) if asked.piece else None
        member = self._store.number_of(asked.member) if asked.member else None
        if (asked.piece and piece is None) or (asked.member and member is None):
            return [], None
        after = self._place(branch, asked.after) if asked.after is not None else first_of(branch.id, piece or 0)
        rows = self._store.observations_after(after, self._limits.page)
        texts, chosen = _Texts(self._store), list[ObservationRow]()
        for row in rows:
            if piece is not None and row.piece != piece:
                return self._shown(branch, chosen, texts), None
            if len(chosen) == limit:
                return self._shown(branch, chosen, texts), texts.node(after)
            after = row.key
            is_of_generation = asked.generation is None or asked.generation == row.generation
            if is_of_generation and member in (None, row.member) and asked.child in (None, row.child):
                chosen.append(row)
        is_last = len(rows) < self._limits.page
        return self._shown(branch, chosen, texts), None if is_last else texts.node(after)

    def _place(self, branch: Branch, node: NodeKey) -> NodeNumbers:
        """Where a page goes on: after a node that was on the page before."""
        scope = f"{node.scope}\0{node.principal}" if node.scope or node.principal else ""
        piece, member = self._store.number_of(node.piece) or 0, self._store.number_of(node.member) or 0
        return NodeNumbers(
            branch.id, piece, node.generation, member, node.child, self._store.number_of(scope) or 0 if scope else 0
        )

    def _shown(self, branch: Branch, rows: list[ObservationRow], texts: _Texts) -> list[ObservedNode]:
        """Rows with whether they still hold. One that cannot be read is as if it were not there."""
        opened = [(row, decoded) for row in rows if (decoded := forms_of(row)) is not None]
        docs = dict.fromkeys([doc for _, (_, body) in opened for doc in docs_of(body.reads)])
        texts.load([doc for doc in docs if isinstance(doc, int)])
        written = self._written(branch, docs)
        found: list[ObservedNode] = []
        for row, (state, body) in opened:
            try:
                found.append(self._one(branch, row, state, body, written, texts))
            except CorruptionError:
                continue  # Verifying says what is wrong with it; whoever resumes runs the node.
        return found

    def _one(
        self,
        branch: Branch,
        row: ObservationRow,
        state: State,
        body: Body,
        written: dict[StoredDoc, int],
        texts: _Texts,
    ) -> ObservedNode:
        at, cause = state.verified_at, state.cause
        reads = tuple([Read(texts.doc(read.doc), read.path, Depth(read.depth), at) for read in body.reads])
        touched = tuple([place for place, read in enumerate(body.reads) if written[read.doc] > at])
        missed = self.stale(branch, tuple([reads[place] for place in touched])) if touched else ()
        if isinstance(cause, int):
            caused = (reads[cause].doc, reads[cause].path) if 0 <= cause < len(reads) else None
        else:
            caused = None if cause is None else (texts.doc(cause[0]), cause[1])
        return ObservedNode(
            texts.node(row.key),
            texts.name(state.kind),
            texts.name(state.fingerprint),
            texts.name(state.gate),
            texts.name(state.failed),
            caused,
            reads,
            state.foreign,
            body.children,
            state.took_us,
            state.changed_at,
            at,
            tuple([(touched[place], seq) for place, seq in missed]),
        )

    # ---- by piece --------------------------------------------------------------------------------

    def _backlog(self, branch: Branch, last: str, limit: int) -> tuple[list[PieceBacklog], str | None]:
        """The pieces with nodes that are not clean, among some of all. A long one may be alone on its page."""
        size = max(1, min(limit, self._limits.query_documents))
        after = self._store.number_of(last) or 0 if last else 0
        found: list[PieceBacklog] = []
        looked, texts = 0, _Texts(self._store)
        pieces = self._store.observed_pieces(branch.id, after, size)
        for piece in pieces:
            after = piece
            nodes = 0
            dirty: list[ObservedNode] = []
            place = first_of(branch.id, piece)
            while rows := [r for r in self._store.observations_after(place, self._limits.page) if r.piece == piece]:
                nodes += len(rows)
                dirty += [node for node in self._shown(branch, rows, texts) if node.stale or not node.fingerprint]
                place = rows[-1].key
            looked += nodes
            if dirty:
                found.append(_summed_up(texts.name(piece), nodes, dirty))
            if looked >= self._limits.page:
                break
        more = len(pieces) == size or bool(pieces and after != pieces[-1])
        return found, texts.name(after) if more else None

    def _readers(self, branch: Branch, doc: DocKey, last: str, limit: int) -> tuple[list[str], str | None]:
        size = max(1, min(limit, self._limits.query_documents))
        after = self._store.number_of(last) or 0 if last else 0
        number = self._store.doc_of(doc) or number_of_absent(doc)
        pieces = self._store.readers_of(number, branch.id, after, size)
        names = [_Texts(self._store).name(piece) for piece in pieces]
        return names, names[-1] if len(names) == size else None

    # ---- other spaces ----------------------------------------------------------------------------

    def _marked(
        self, branch: Branch, owner: str, last: str, limit: int
    ) -> tuple[list[tuple[str, DocKey, int]], str | None]:
        """Documents that pieces of another space read, and that were written since."""
        size = max(1, min(limit, self._limits.query_documents))
        number = self._store.number_of(owner)
        if number is None:
            return [], None
        after = self._store.number_of(last) or 0 if last else 0
        rows = self._store.mirrors_after(branch.id, number, after, size)
        found: list[tuple[str, DocKey, int]] = []
        texts = _Texts(self._store)
        for row in rows:
            docs = decode_mirror(row.body).docs
            written = self._written(branch, [(doc.scope, doc.id) for doc, _ in docs])
            late = [(doc, written[doc.scope, doc.id]) for doc, seq in docs if written[doc.scope, doc.id] > seq]
            found += [(texts.name(row.piece), doc, seq) for doc, seq in late]
        return found, texts.name(rows[-1].piece) if len(rows) == size else None


class _Texts:
    """The names behind numbers, each looked up once for an answer."""

    __slots__ = ("_docs", "_names", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[int, str] = {0: ""}
        self._docs: dict[int, DocKey] = {}

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
    return NodeNumbers(branch, piece, -1, 0, "", 0)


def forms_of(row: ObservationRow) -> tuple[State, Body] | None:
    """What a row holds; None: that cannot be read."""
    try:
        return decode_state(row.state), decode_body(row.body)
    except (msgspec.MsgspecError, ValueError):
        return None


def _summed_up(piece: str, nodes: int, dirty: list[ObservedNode]) -> PieceBacklog:
    causes: dict[DocKey, int] = {}
    for node in dirty:
        for place, seq in node.stale:
            doc = node.reads[place].doc
            causes[doc] = max(seq, causes.get(doc, 0))
    listed = sorted(causes.items(), key=lambda cause: (-cause[1], cause[0]))[:MOST_CAUSES]
    return PieceBacklog(piece, nodes, len(dirty), sum([node.took_us for node in dirty]), tuple(listed))
