"""Queries about nodes: their last runs, and whether these are still up to date. Comparison decides.

A node is clean as far as this space knows if its recorded reads would be admitted now, by the function that admits
commits. A read of a document that was not written since its node was verified is skipped, as admission itself does.
Marks are not stored: the dirty nodes and the documents that made them dirty follow from the heads. Answers; never
writes, and never makes a node run.

`AffectedNodeSearch` finds the nodes of a piece that may be affected by commits after a seq, without decoding every row.
Written documents are found in the log, or by their heads if the log since is long; the pieces that read them, in the
reader index. Of such a piece those rows are decoded whose bytes name a written place: more than are affected, never
fewer. `ObservationQueries` compares the decoded rows. The search owns the search keys, and the rule which changes of a
piece's record affect no node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from msgspec import structs

from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.path import Path
from headwater.engine.admission.admission import Admission
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Heads
from headwater.engine.log.log import Log
from headwater.engine.log.sessions import NO_SESSION
from headwater.engine.observations.codec import (
    Body,
    NameCache,
    NodeFilter,
    NodeState,
    StoredDoc,
    docs_of,
    encode_form,
    forms_of,
    number_of_absent,
    pages_of,
)
from headwater.engine.store.port import NodeNumbers, ObservationRow, Store
from headwater.errors import CorruptionError
from headwater.protocol.commit import Read
from headwater.protocol.messages import ObservationAnswer, ObservationQuestion
from headwater.protocol.observations import (
    WHOLE,
    AffectedNodes,
    Backlog,
    CleanPiece,
    CleanPieces,
    NodeKey,
    Observations,
    Observed,
    OutdatedReads,
    PieceBacklog,
    QueryAffectedNodes,
    QueryBacklog,
    QueryCleanPieces,
    QueryCurrent,
    QueryNodes,
    QueryObservations,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    WrittenDocument,
    WrittenDocuments,
    generation_of,
    whose_record,
)

LONG: Final = 3
"""Bytes of an encoded number from which on it seldom occurs by chance."""


class AffectedNodeSearch:
    """Looks through the log and the rows of one space."""

    __slots__ = ("_by_head", "_heads", "_limits", "_log", "_store")

    def __init__(self, store: Store, log: Log, heads: Heads, limits: Limits) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._limits = limits
        # The last result by heads: its branch, the store's change count, the seq since when, and the readers found.
        self._by_head: tuple[int, int, int, dict[int, int]] = (0, 0, 0, {})

    def is_kept(self, branch: Branch, since: int) -> bool:
        """True if all writes on a branch since then are known."""
        return max(self._log.kept_from - 1, branch.fork_seq) <= since

    def is_near(self, since: int) -> bool:
        """Whether there are so few commits since then that looking through them costs little."""
        return self._log.last_seq - since <= self._limits.page

    def pieces(self, branch: Branch, since: int) -> dict[int, int]:
        """Return the pieces whose nodes read documents written since, each with the last such seq."""
        if not self.is_near(since):
            return self._by_heads(branch, since)
        written = self._written(branch, since) or {}
        docs = {self._store.doc_of(key): seq for key, seq in written.items()}
        return self._readers({doc: seq for doc, seq in docs.items() if doc is not None}, branch, {})

    def _by_heads(self, branch: Branch, since: int) -> dict[int, int]:
        """Return the same by stored heads and by heads that are not written back yet."""
        at = (branch.id, self._store.changes_made)
        if self._by_head[:2] != at or self._by_head[2] > since:
            found = self._store.readers_met(branch.id, since)
            heads = {head.doc: head.seq for head in self._heads.unwritten(branch) if head.seq > since}
            # A caller that asks page by page asks the same again.
            self._by_head = (*at, since, self._readers(heads, branch, found))
        return self._by_head[3]

    def _readers(self, docs: dict[int, int], branch: Branch, found: dict[int, int]) -> dict[int, int]:
        for doc, seq in docs.items():
            for piece in self._store.readers_of(doc, branch.id, 0, self._limits.affected_pieces):
                found[piece] = max(seq, found.get(piece, 0))
        return found

    def records(self, branch: Branch, pieces: Iterable[str]) -> dict[str, int]:
        """Return the last writes to the records of pieces on this very branch, as far as there are any."""
        found = self._store.written_of(branch.id, SPACE_SCOPE, [generation_of(piece)[0].id for piece in pieces])
        found.update({head.key.id: head.seq for head in self._heads.unwritten(branch) if head.key.scope == SPACE_SCOPE})
        return {piece: seq for id, seq in found.items() if (piece := whose_record(DocKey(SPACE_SCOPE, id)))}

    def rows(
        self, branch: Branch, pieces: dict[int, str], since: int, made: tuple[DocKey, ...], most: int
    ) -> list[ObservationRow] | None:
        """Return the rows of pieces that may have read documents written since. None: there are too many."""
        written = self._written(branch, since)
        if written is None:
            return None
        by_piece: dict[int, dict[bytes, None]] = {}
        for key, seq in written.items():
            number = self._store.doc_of(key) or number_of_absent(*key)
            counts = self._store.counted_readers(number, branch.id, pieces)
            # A node that makes a result looks at it, too: with one reader, that is the one.
            makes = {piece for piece in counts if key in made and (len(pieces) == 1 or _is_of(key, pieces[piece]))}
            read = [piece for piece, nodes in counts.items() if nodes > int(piece in makes)]
            parts = dict.fromkeys(self._search_keys(key, self._places(key, seq, since))) if read else {}
            for piece in read:
                by_piece.setdefault(piece, {}).update(parts)
        alike: dict[tuple[bytes, ...], list[int]] = {}
        for piece, held in by_piece.items():
            alike.setdefault(tuple(held), []).append(piece)
        found: list[ObservationRow] = []
        for held_by, some in alike.items():  # Pieces that read the same documents are searched at once.
            found += self._rows_containing(branch, some, [*held_by], most)
        return found

    def _written(self, branch: Branch, since: int) -> dict[DocKey, int] | None:
        """The documents that were written since, each with the last seq that did."""
        if self.is_near(since):
            seqs = [seq for seq in range(since + 1, self._log.last_seq + 1) if self._log.branch_of(seq) == branch.id]
            return {key: seq for seq in seqs for key in self._log.written_by(seq)}
        docs = self._heads.written_after(branch, since)
        if len(docs) > self._limits.affected_documents:
            return None
        keys = self._store.keys_of(docs)
        return {keys[doc]: seq for doc, seq in docs.items() if doc in keys}

    def _places(self, key: DocKey, last: int, since: int) -> set[Path]:
        """Where a document was written since. Beyond some writes: anywhere."""
        found: set[Path] = set()
        for number, revision in enumerate(self._log.history(last, key, down_to=since)):
            if number >= self._limits.affected_revisions:
                return {()}
            found.update([patch.path for patch in revision.patches])
        return found

    def ignore_generation(self, branch: Branch, node: Observed, made: dict[DocKey, tuple[int, int]]) -> Observed:
        """Return a node without the generation of its piece among its stale reads.

        Every run reads the generation. It stands for code, which a process with the code compares. It is a reason to
        run only if its document was written as a whole since then, or removed: that is another piece of the same name.
        `made` caches these checks from node to node.
        """
        number, at = generation_of(node.node.piece), node.verified_at
        missed = [seq for place, seq in node.stale if (node.reads[place].doc, node.reads[place].path) == number]
        if not missed:
            return node
        since, seq = made.get(number[0], (at + 1, 0))
        if since > at:
            since, seq = made[number[0]] = (at, self._made_at(branch, number[0], at))
        if seq > at:
            return node
        stale = [each for each in node.stale if (node.reads[each[0]].doc, node.reads[each[0]].path) != number]
        return structs.replace(node, stale=tuple(stale))

    def _made_at(self, branch: Branch, key: DocKey, since: int) -> int:
        """When a document was last written as a whole, or removed, after a seq, or may have been. 0: it was not."""
        before = self._heads.get(branch, key).seq
        kept = max(self._log.kept_from - 1, branch.fork_seq)
        for number, revision in enumerate(self._log.history(before, key, down_to=max(since, kept))):
            if number >= self._limits.affected_revisions or any(not patch.path for patch in revision.patches):
                return revision.seq
            before = revision.previous
        return before if before > since else 0

    def readers(
        self, branch: Branch, piece: int, docs: tuple[DocKey, ...], made: tuple[DocKey, ...], most: int
    ) -> list[ObservationRow]:
        """The rows of a piece that may have read anything of these documents."""
        read = [key for key in docs if self._is_read(branch, piece, key, made)]
        return self._rows_containing(
            branch, [piece], [part for key in read for part in self._search_keys(key, {()})], most
        )

    def _is_read(self, branch: Branch, piece: int, key: DocKey, made: tuple[DocKey, ...]) -> bool:
        """True if a node reads the document, besides the one that makes it: a node also reads its own result."""
        doc = self._store.doc_of(key) or number_of_absent(*key)
        return self._store.reader(doc, branch.id, piece) > int(key in made)

    def _rows_containing(
        self, branch: Branch, pieces: list[int], parts: list[bytes], most: int
    ) -> list[ObservationRow]:
        found: dict[tuple[object, ...], ObservationRow] = {}
        step = self._limits.affected_parts
        for first in range(0, len(parts), step):
            rows = self._store.observations_holding(branch.id, pieces, most + 1, parts[first : first + step])
            found.update({row.key: row for row in rows})
        return [*found.values()]

    def _search_keys(self, key: DocKey, paths: set[Path]) -> list[bytes]:
        """Return byte strings of which a row contains one if its node reads at, above or below one of these places."""
        names: list[StoredDoc] = [(key.scope, key.id)]  # as long as it had no number
        doc = self._store.doc_of(key)
        if doc is not None:
            names.append(doc)
        named = [encode_form(name) for name in names]
        if len(named[-1]) < LONG:
            # A read is an array of two, or of three with its depth, and begins with its document.
            named = [array + name for name in named for array in (b"\x92", b"\x93")]
        if len(paths) > self._limits.affected_places or any(not path or type(path[0]) is not str for path in paths):
            return named
        above = {path[:length] for path in paths for length in range(len(path))}
        found = [name + encode_form(path) for name in named for path in above]
        return found + [b"".join(map(encode_form, path)) for path in paths]


def _is_of(key: DocKey, piece: str) -> bool:
    """Whether a document is a member of a piece, or of one of its children."""
    return key.id.startswith((f"{piece}:", f"{piece}/"))


Stale = tuple[tuple[int, int], ...]
"""Reads that would not be admitted now: the index of each, and the seq of the write that it missed."""


class ObservationQueries:
    """Answers questions about nodes of one space. `is_on` False: knows nothing."""

    __slots__ = ("_admission", "_affected_nodes", "_heads", "_limits", "_log", "_store", "is_on")

    def __init__(
        self, store: Store, log: Log, heads: Heads, admission: Admission, limits: Limits, *, is_on: bool
    ) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._admission = admission
        self._limits = limits
        self._affected_nodes = AffectedNodeSearch(store, log, heads, limits)
        self.is_on = is_on

    def answer(self, branch: Branch, question: ObservationQuestion) -> ObservationAnswer:
        """Answer a question about stored observations, as of the last seq of the log."""
        seq = self._log.last_seq
        match question:
            case QueryObservations():
                found, after = self._observations(branch, question) if self.is_on else ([], None)
                return Observations(question.id, seq, tuple(found), after)
            case QueryNodes(id, nodes):
                return Observations(id, seq, tuple(self._named(branch, nodes) if self.is_on else ()))
            case QueryCleanPieces(id, last, limit):
                clean_pieces, more = self._clean_pieces(branch, last, limit) if self.is_on else ([], None)
                return CleanPieces(id, seq, tuple(clean_pieces), more)
            case QueryAffectedNodes():
                return self._affected(branch, question) if self.is_on else AffectedNodes(question.id, seq, (), False)
            case QueryBacklog(id, last, limit):
                pieces, more = self._backlog(branch, last, limit) if self.is_on else ([], None)
                return Backlog(id, seq, tuple(pieces), more)
            case QueryReaders(id, doc, last, limit):
                names, more = self._readers(branch, doc, last, limit) if self.is_on else ([], None)
                return Readers(id, seq, tuple(names), more)
            case QueryWrittenDocuments(id, since, limit):
                marks, through = self._marks(branch, since, limit) if self.is_on else ([], seq)
                return WrittenDocuments(id, seq, tuple(marks), through)
            case QueryCurrent(id, reads, chains):
                return OutdatedReads(id, seq, self._check_log(branch, reads, dict(chains)))
            case _:
                assert_never(question)

    # ---- is it clean -----------------------------------------------------------------------------

    def stale(self, branch: Branch, reads: tuple[Read, ...]) -> Stale:
        """Return the reads that would not be admitted now, by index, each with the seq of the write that it missed."""
        # fault observations.every_node_clean: return ()
        # fault observations.first_read_compared: found = self._admission.conflict(NO_SESSION, branch, reads[:1])
        found = self._admission.conflict(NO_SESSION, branch, reads)
        if found is None:
            return ()
        missed = {(c.doc, c.path, c.depth, c.basis): c.seq for c in found.collisions}
        at = [missed.get((read.doc, read.path, read.depth, read.seq), 0) for read in reads]
        return tuple([(place, seq) for place, seq in enumerate(at) if seq])

    def _check_log(
        self, branch: Branch, reads: tuple[Read, ...], chains: dict[int, int]
    ) -> tuple[tuple[int, int], ...]:
        """Return the same for reads brought from another space: a seq of another log is not current in this one."""
        last_seq, kept_from = self._log.last_seq, self._log.kept_from
        # Compacted history cannot tell which log a seq was of: then it counts as another one.
        others = {
            at for at, chain in chains.items() if 0 < at < kept_from or not self._log.may_have_ended_at(at, chain)
        }
        strange = [place for place, read in enumerate(reads) if read.seq > last_seq or read.seq in others]
        stale = dict(self.stale(branch, reads)) | dict.fromkeys(strange, last_seq)
        return tuple(sorted(stale.items()))

    def _written(self, branch: Branch, docs: Iterable[StoredDoc]) -> dict[StoredDoc, int]:
        """Return the last writes to documents on this branch, from their heads alone; 0: never written."""
        numbers = {doc: self._number(doc) for doc in docs}
        seqs = self._heads.seqs(branch, [number for number in numbers.values() if number])
        return {doc: seqs.get(number, 0) for doc, number in numbers.items()}

    def _number(self, doc: StoredDoc) -> int:
        return doc if isinstance(doc, int) else self._store.doc_of(DocKey(*doc)) or 0

    # ---- pages of nodes --------------------------------------------------------------------------

    def _observations(self, branch: Branch, asked: QueryObservations) -> tuple[list[Observed], NodeKey | None]:
        # fault+ observations.parent_branch_read: is_new = not self._store.observed_pieces(branch.id, 0, 1)
        # fault+ observations.parent_branch_read: branch = branch.parent if is_new and branch.parent else branch
        limit = max(1, min(asked.limit, self._limits.query_documents))
        piece = self._store.number_of(asked.piece) if asked.piece else None
        member = self._store.number_of(asked.member) if asked.member else None
        if (asked.piece and piece is None) or (asked.member and member is None):
            return [], None
        choice = NodeFilter(piece, asked.generation, member, asked.child)
        first, length = choice.begin(branch.id)
        after = first if asked.after is None else max(first, self._cursor(branch, asked.after))
        # Where the chosen rows are adjacent, no more are read than are answered.
        size = self._limits.page if asked.reads is not None or choice.has_gaps else min(limit + 1, self._limits.page)
        # fault observations.rows_of_other_pieces_read: in_piece = False
        in_piece = piece is not None and after.piece == piece
        rows = self._store.observations_after(after, size, in_piece=in_piece)
        texts, chosen, whole = NameCache(self._store), list[ObservationRow](), self._store.number_of(WHOLE)
        for row in rows:
            if row[:length] != first[:length]:
                return self._to_answers(branch, chosen, texts), None
            if len(chosen) == limit:
                return self._to_answers(branch, chosen, texts), texts.node(after)
            after = row.key
            if row.member != whole and choice.has(row) and (asked.reads is None or self._does_read(row, asked.reads)):
                chosen.append(row)
        return self._to_answers(branch, chosen, texts), None if len(rows) < size else texts.node(after)

    def _does_read(self, row: ObservationRow, doc: DocKey) -> bool:
        forms = forms_of(row)
        named = (self._store.doc_of(doc), (doc.scope, doc.id))
        return forms is not None and any(read.doc in named for read in forms[1].reads)

    def _cursor(self, branch: Branch, node: NodeKey) -> NodeNumbers:
        """Where a page goes on: after a node that was on the page before."""
        scope = _scope_text(node)
        piece, member = self._store.number_of(node.piece) or 0, self._store.number_of(node.member) or 0
        return NodeNumbers(
            branch.id, piece, node.generation, member, node.child, self._store.number_of(scope) or 0 if scope else 0
        )

    def _to_answers(
        self, branch: Branch, rows: list[ObservationRow], texts: NameCache, *, is_any: bool = False
    ) -> list[Observed]:
        """Rows with whether they still hold. One that cannot be read is as if it were not there.

        `is_any`: that another generation of its piece was counted makes a node stale, too.
        """
        opened = [(row, decoded) for row in rows if (decoded := forms_of(row)) is not None]
        docs = dict.fromkeys([doc for _, (_, body) in opened for doc in docs_of(body.reads)])
        texts.load([doc for doc in docs if isinstance(doc, int)])
        written = self._written(branch, docs)
        found: list[Observed] = []
        made: dict[DocKey, tuple[int, int]] = {}  # the seqs at which records were made, as far as they were found
        for row, (state, body) in opened:
            try:
                one = self._to_answer(branch, row, state, body, written, texts)
                found.append(
                    one if is_any or not one.stale else self._affected_nodes.ignore_generation(branch, one, made)
                )
            except CorruptionError:
                continue  # `verify` reports the damage; a process that resumes runs the node.
        return found

    def _to_answer(
        self,
        branch: Branch,
        row: ObservationRow,
        state: NodeState,
        body: Body,
        written: dict[StoredDoc, int],
        texts: NameCache,
    ) -> Observed:
        at, cause = state.verified_at, state.cause
        reads = tuple([Read(texts.doc(read.doc), read.path, Depth(read.depth), at) for read in body.reads])
        # fault observations.written_reads_ignored: touched = ()
        touched = tuple([place for place, read in enumerate(body.reads) if written[read.doc] > at])
        missed = self.stale(branch, tuple([reads[place] for place in touched])) if touched else ()
        if isinstance(cause, int):
            caused = (reads[cause].doc, reads[cause].path) if 0 <= cause < len(reads) else None
        else:
            caused = None if cause is None else (texts.doc(cause[0]), cause[1])
        return Observed(
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

    def _named(self, branch: Branch, nodes: tuple[NodeKey, ...]) -> list[Observed]:
        texts = dict.fromkeys([text for node in nodes for text in (node.piece, node.member, _scope_text(node)) if text])
        numbers = self._store.numbers_of(texts) | {"": 0}
        keys = [
            NodeNumbers(branch.id, piece, node.generation, member, node.child, scope)
            for node in nodes
            if (piece := numbers.get(node.piece)) is not None
            and (member := numbers.get(node.member)) is not None
            and (scope := numbers.get(_scope_text(node))) is not None
        ]
        rows = [self._store.observation(key) for key in keys]
        return self._to_answers(branch, [row for row in rows if row is not None], NameCache(self._store))

    # ---- by piece --------------------------------------------------------------------------------

    def _clean_pieces(self, branch: Branch, last: str, limit: int) -> tuple[list[CleanPiece], str | None]:
        """Return the clean pieces, and whether a document that they read was written since."""
        size = max(1, min(limit, self._limits.query_documents))
        after = self._store.number_of(last) or 0 if last else 0
        pieces, member = self._store.observed_pieces(branch.id, after, size), self._store.number_of(WHOLE)
        if not pieces or member is None:
            return [], None
        forms = {row.piece: forms_of(row) for row in self._store.observations_of(branch.id, member, pieces)}
        said = {piece: each[0] for piece, each in forms.items() if each is not None}
        kept = {p: state for p, state in said.items() if self._affected_nodes.is_kept(branch, state.verified_at)}
        written = (
            self._affected_nodes.pieces(branch, min([state.verified_at for state in kept.values()])) if kept else {}
        )
        texts, found = NameCache(self._store), list[CleanPiece]()
        texts.load_names([*kept, pieces[-1]])
        records = self._affected_nodes.records(branch, [texts.name(piece) for piece in kept])
        for piece, state in kept.items():
            name, as_of = texts.name(piece), state.verified_at
            generation = state.changed_at if records.get(name, 0) <= as_of else 0
            is_met = written.get(piece, 0) > as_of
            awake = each[1].children if (each := forms[piece]) is not None else ()
            found.append(CleanPiece(name, texts.name(state.fingerprint), as_of, is_met, generation, awake))
        return found, texts.name(pieces[-1]) if len(pieces) == size else None

    def _affected(self, branch: Branch, asked: QueryAffectedNodes) -> AffectedNodes:
        """Return the nodes of pieces that are stale because of writes since, or that read certain documents."""
        seq, most = self._log.last_seq, max(1, min(asked.limit, self._limits.query_documents))
        piece = self._store.number_of(asked.piece)
        if piece is None and asked.also:
            return self._affected(branch, structs.replace(asked, piece=asked.also[0], also=asked.also[1:]))
        if piece is None or not (asked.docs or self._affected_nodes.is_kept(branch, asked.since)):
            return AffectedNodes(asked.id, seq, (), piece is None)
        rows: list[ObservationRow] | None
        if asked.docs:
            rows = self._affected_nodes.readers(branch, piece, asked.docs, asked.made, most)
            named = set(asked.docs)
            found = self._to_answers(branch, rows[: most + 1], NameCache(self._store))
            found = [node for node in found if any(read.doc in named for read in node.reads)]
        else:
            also = self._store.numbers_of(asked.also) if asked.also else {}
            pieces = {piece: asked.piece} | {number: name for name, number in also.items()}
            rows = self._affected_nodes.rows(branch, pieces, asked.since, asked.made, most)
            if rows is None:
                return AffectedNodes(asked.id, seq, (), False)
            texts, some = NameCache(self._store), rows[: most + 1]
            # An older version of its code, asleep, is to hear of a newer one.
            met = {node.node for node in self._to_answers(branch, some, texts, is_any=True) if node.stale}
            found = [node for node in self._to_answers(branch, some, texts) if node.node in met]
        return AffectedNodes(asked.id, seq, tuple(found), len(rows) <= most)

    def _backlog(self, branch: Branch, last: str, limit: int) -> tuple[list[PieceBacklog], str | None]:
        """The pieces with nodes that are not clean, among some of all. A long one may be alone on its page."""
        size = max(1, min(limit, self._limits.query_documents))
        after = self._store.number_of(last) or 0 if last else 0
        found: list[PieceBacklog] = []
        looked, texts, whole = 0, NameCache(self._store), self._store.number_of(WHOLE)
        pieces = self._store.observed_pieces(branch.id, after, size)
        for piece in pieces:
            after = piece
            nodes = 0
            dirty: list[Observed] = []
            elsewhere: list[Observed] = []
            for page in pages_of(self._store, branch.id, piece, self._limits.page):
                rows = [row for row in page if row.member != whole]
                nodes += len(rows)
                shown = [(node, _is_clean(node)) for node in self._to_answers(branch, rows, texts)]
                dirty += [node for node, is_clean in shown if not is_clean]
                elsewhere += [node for node, is_clean in shown if is_clean and node.foreign]
            looked += nodes
            if dirty or elsewhere:
                found.append(_merge_causes(texts.name(piece), nodes, dirty, elsewhere, self._limits.backlog_causes))
            if looked >= self._limits.page:
                break
        more = len(pieces) == size or bool(pieces and after != pieces[-1])
        return found, texts.name(after) if more else None

    def _readers(self, branch: Branch, doc: DocKey, last: str, limit: int) -> tuple[list[str], str | None]:
        size = max(1, min(limit, self._limits.query_documents))
        after = self._store.number_of(last) or 0 if last else 0
        number = self._store.doc_of(doc) or number_of_absent(*doc)
        pieces = self._store.readers_of(number, branch.id, after, size)
        names = [NameCache(self._store).name(piece) for piece in pieces]
        return names, names[-1] if len(names) == size else None

    def _marks(self, branch: Branch, since: int, limit: int) -> tuple[list[WrittenDocument], int | None]:
        """The documents that nodes read and that were written since, by looking through the log."""
        if since < max(self._log.kept_from - 1, branch.fork_seq):
            return [], None
        written: dict[DocKey, int] = {}
        through = min(since + max(1, min(limit, self._limits.page)), self._log.last_seq)
        for seq in range(since + 1, through + 1):
            if self._log.branch_of(seq) == branch.id:
                written.update(dict.fromkeys(self._log.written_by(seq), seq))
        size, texts = self._limits.query_documents, NameCache(self._store)
        marks: list[WrittenDocument] = []
        for doc, seq in written.items():
            number = self._store.doc_of(doc)
            pieces = self._store.readers_of(number, branch.id, 0, size + 1) if number is not None else []
            texts.load_names(pieces[:size])
            names = [texts.name(piece) for piece in pieces[:size]]
            if (owner := whose_record(doc)) and owner not in names:
                names = [owner, *names]  # A caller that goes on from the last of them misses none.
            if names:
                marks.append(WrittenDocument(doc, seq, tuple(names), len(pieces) > size))
        return marks, through


def _scope_text(node: NodeKey) -> str:
    """Return the text under which the scope and the principal of a node are numbered. Empty: the space's."""
    return f"{node.scope}\0{node.principal}" if node.scope or node.principal else ""


def _is_clean(node: Observed) -> bool:
    """As far as this space knows."""
    return bool(node.fingerprint) and not node.failed and not node.stale


def _merge_causes(piece: str, nodes: int, dirty: list[Observed], elsewhere: list[Observed], most: int) -> PieceBacklog:
    causes: dict[DocKey, int] = {}
    for node in dirty:
        for place, seq in node.stale:
            doc = node.reads[place].doc
            causes[doc] = max(seq, causes.get(doc, 0))
    listed = sorted(causes.items(), key=lambda cause: (-cause[1], cause[0]))[:most]
    took_us, others = sum([node.took_us for node in dirty]), tuple([(node.took_us, node.foreign) for node in elsewhere])
    return PieceBacklog(piece, nodes, len(dirty), took_us, tuple(listed), others)
