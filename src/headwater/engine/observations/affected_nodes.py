"""Finds the nodes of a piece that may be affected by commits after a seq, without decoding every row.

Written documents are found in the log, or by their heads if the log since is long; the pieces that read them, in the
reader index. Of such a piece those rows are decoded whose bytes name a written place: more than are affected, never
fewer. The caller compares the decoded rows. Owns the search keys, and the rule which changes of a piece's record affect
no node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.path import Path
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Heads
from headwater.engine.log.log import Log
from headwater.engine.observations.codec import StoredDoc, encode_form, number_of_absent
from headwater.engine.store.port import ObservationRow, Store
from headwater.protocol.observations import Observed, generation_of, whose_record

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
            number = self._store.doc_of(key) or number_of_absent(key)
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
        doc = self._store.doc_of(key) or number_of_absent(key)
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
