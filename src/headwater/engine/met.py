"""Met: which nodes of a piece may have been met by what was written after a seq, without opening all of their rows.

Written documents are found in the log, or by their heads if it is long; pieces that read them in the index of readers.
Of such a piece those rows are opened whose bytes name such a place: more than there are, never fewer. What is opened is
compared by whoever asks. Owns the bytes that are looked for; decides nothing.
"""

from __future__ import annotations

from typing import Final

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.engine.branches import Branch
from headwater.engine.heads import Heads
from headwater.engine.limits import Limits
from headwater.engine.log import Log
from headwater.engine.observed_form import StoredDoc, encode_form, number_of_absent
from headwater.engine.observed_rows import first_of
from headwater.engine.store.port import ObservationRow, Store

MOST_PLACES: Final = 16
"""Of one document. If more of it were written, whoever reads anything of it is opened."""
MOST_REVISIONS: Final = 64
"""Of one document that are looked at for that."""
MOST_DOCUMENTS: Final = 20_000
"""That were written since, if that was long ago."""
MOST_PARTS: Final = 200
"""Strings of bytes that are looked for at once."""
LONG: Final = 3
"""Bytes of a number that are seldom something else."""
MOST_PIECES: Final = 100_000
"""Readers of one document that are counted."""


class Meeting:
    """Looks through the log and the rows of one space."""

    __slots__ = ("_heads", "_limits", "_log", "_store")

    def __init__(self, store: Store, log: Log, heads: Heads, limits: Limits) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._limits = limits

    def is_kept(self, branch: Branch, since: int) -> bool:
        """Whether it is known what was written on a branch since then."""
        return max(self._log.kept_from - 1, branch.fork_seq) <= since

    def is_near(self, since: int) -> bool:
        """Whether there are so few commits since then that looking through them costs little."""
        return self._log.last_seq - since <= self._limits.page

    def pieces(self, branch: Branch, since: int) -> dict[int, int] | None:
        """The pieces whose nodes read what was written since, each with when that was last. None: it is too much."""
        written = self._written(branch, since)
        if written is None:
            return None
        found: dict[int, int] = {}
        for key, seq in written.items():
            doc = self._store.doc_of(key)
            for piece in [] if doc is None else self._store.readers_of(doc, branch.id, 0, MOST_PIECES):
                found[piece] = max(seq, found.get(piece, 0))
        return found

    def rows(
        self, branch: Branch, piece: int, since: int, made: tuple[DocKey, ...], most: int
    ) -> list[ObservationRow] | None:
        """The rows of a piece that may have read what was written since. None: that is too much."""
        written = self._written(branch, since)
        if written is None:
            return None
        parts: dict[bytes, None] = {}
        for key, seq in written.items():
            if self._is_read(branch, piece, key, made):
                parts.update(dict.fromkeys(self._parts(key, self._places(key, seq, since))))
        return self._with(branch, piece, [*parts], most)

    def _written(self, branch: Branch, since: int) -> dict[DocKey, int] | None:
        """The documents that were written since, each with the last seq that did."""
        if self.is_near(since):
            seqs = [seq for seq in range(since + 1, self._log.last_seq + 1) if self._log.branch_of(seq) == branch.id]
            return {key: seq for seq in seqs for key in self._log.written_by(seq)}
        docs = self._heads.written_after(branch, since)
        if len(docs) > MOST_DOCUMENTS:
            return None
        keys = self._store.keys_of(docs)
        return {keys[doc]: seq for doc, seq in docs.items() if doc in keys}

    def _places(self, key: DocKey, last: int, since: int) -> set[Path]:
        """Where a document was written since. Beyond some writes: anywhere."""
        found: set[Path] = set()
        for number, revision in enumerate(self._log.back_from(last, key, down_to=since)):
            if number >= MOST_REVISIONS:
                return {()}
            found.update([patch.path for patch in revision.patches])
        return found

    def readers(
        self, branch: Branch, piece: int, docs: tuple[DocKey, ...], made: tuple[DocKey, ...], most: int
    ) -> list[ObservationRow]:
        """The rows of a piece that may have read anything of these documents."""
        read = [key for key in docs if self._is_read(branch, piece, key, made)]
        return self._with(branch, piece, [part for key in read for part in self._parts(key, {()})], most)

    def _is_read(self, branch: Branch, piece: int, key: DocKey, made: tuple[DocKey, ...]) -> bool:
        """Whether a node reads it, besides the one that makes it: a result is among what its node looked at."""
        doc = self._store.doc_of(key) or number_of_absent(key)
        return self._store.reader(doc, branch.id, piece) > int(key in made)

    def _with(self, branch: Branch, piece: int, parts: list[bytes], most: int) -> list[ObservationRow]:
        found: dict[tuple[object, ...], ObservationRow] = {}
        for first in range(0, len(parts), MOST_PARTS):
            some = parts[first : first + MOST_PARTS]
            rows = self._store.observations_after(first_of(branch.id, piece), most + 1, some)
            found.update({row.key: row for row in rows})
        return [*found.values()]

    def _parts(self, key: DocKey, paths: set[Path]) -> list[bytes]:
        """What the bytes of whoever reads at, above or below one of these places hold."""
        names: list[StoredDoc] = [(key.scope, key.id)]  # as long as it had no number
        doc = self._store.doc_of(key)
        if doc is not None:
            names.append(doc)
        named = [encode_form(name) for name in names]
        if len(named[-1]) < LONG:
            # A read is an array of two, or of three with its depth, and begins with its document.
            named = [array + name for name in named for array in (b"\x92", b"\x93")]
        if len(paths) > MOST_PLACES or any(not path or type(path[0]) is not str for path in paths):
            return named
        above = {path[:length] for path in paths for length in range(len(path))}
        found = [name + encode_form(path) for name in named for path in above]
        return found + [b"".join(map(encode_form, path)) for path in paths]
