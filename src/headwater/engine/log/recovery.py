"""Recovery: brings the head rows and observations of a space up to the end of its log when it is opened.

The log is the truth; a head row only has the end of a document's history in the log and the distance of its newest
snapshot. Both follow from the rows after the last write-back, of which there are at most `Limits.heads_commits` and one
group, however long the history is. These rows also carry the observations that were not written back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.data.address import DocKey
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branches
from headwater.engine.log.log import Log, entries_of
from headwater.engine.store.port import HEADS_SEQ, HeadRow, LogRow, Store
from headwater.errors import CorruptionError
from headwater.protocol.log_record import DROPPED, charged_bytes


class Recovery:
    """Brings the head rows and observations of a space up to its log, in one store transaction.

    `restore` is called with observations, oldest first, each with its branch.
    """

    __slots__ = ("_branches", "_limits", "_log", "_restore", "_store")

    def __init__(
        self,
        store: Store,
        log: Log,
        branches: Branches,
        limits: Limits,
        restore: Callable[[Sequence[tuple[int, bytes]]], object],
    ) -> None:
        self._limits = limits
        self._restore = restore
        self._store = store
        self._log = log
        self._branches = branches

    def run(self) -> None:
        if self._log.written_back >= self._log.last_seq:
            return
        heads: dict[tuple[int, int], HeadRow] = {}
        observed: list[tuple[int, bytes]] = []
        seq = self._log.written_back
        while rows := self._store.rows_after(seq, self._limits.replayed_rows):
            # fault recovery.last_row_skipped: for row in rows[:-1]:
            for row in rows:
                self._follow(row, heads, observed)
            seq = rows[-1].seq
        self._store.begin()
        self._store.put_heads(heads.values())
        # fault recovery.observations_not_restored:
        self._restore(observed)
        self._store.put_meta(HEADS_SEQ, str(self._log.last_seq))
        self._store.commit()
        self._log.written_back = self._log.last_seq
        self._log.replayed = 0

    def _follow(self, row: LogRow, heads: dict[tuple[int, int], HeadRow], observed: list[tuple[int, bytes]]) -> None:
        if self._branches.is_deleted(row.branch):
            return
        for place, entry in enumerate(entries_of(row)):
            seq = row.seq + place
            for encoded in entry.observed:
                observed.append((row.branch, encoded))
            operations = self._log.decoded(seq, entry.commit).operations
            sizes = charged_bytes(entry.commit, len(operations))
            for operation, size, previous in zip(operations, sizes, entry.previous, strict=False):
                if previous == DROPPED:
                    continue
                doc = self._doc(operation.doc, seq)
                at = (row.branch, doc)
                head = heads.get(at) or self._stored(row.branch, doc)
                if seq <= head.base_seq:
                    heads[at] = head._replace(seq=max(seq, head.seq))
                elif seq > head.seq:
                    heads[at] = head._replace(
                        seq=seq,
                        patches=head.patches + 1,
                        patch_bytes=head.patch_bytes + size,
                    )

    def _doc(self, key: DocKey, seq: int) -> int:
        doc = self._store.doc_of(key)
        if doc is None:
            raise CorruptionError(f"commit {seq} writes {key.scope}:{key.id}, which is not among the documents")
        return doc

    def _stored(self, branch: int, doc: int) -> HeadRow:
        """The row as it was last written, with the newest snapshot as its base."""
        row = self._store.head(branch, doc) or HeadRow(branch, doc, 0, 0, 0, 0, 0, 0)
        newest = self._store.snapshot_at_or_before(branch, doc, self._log.last_seq)
        if newest is None or newest.seq <= row.base_seq:
            return row
        return HeadRow(branch, doc, row.seq, newest.seq, len(newest.body), 0, 0, max(newest.ordinal, row.ordinal))
