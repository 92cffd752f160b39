"""Compaction: dropping old history, for spaces that do not keep all of it.

Keeps every current value, every moment from the kept seq on, every branch from its fork on, and every row that an open
session may still replay or name. A read of a moment before the kept seq raises `AbsentError`.
"""

from __future__ import annotations

from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch, Branches
from headwater.engine.log.heads import Heads
from headwater.engine.log.log import COMPACTED_CHAIN, COMPACTED_SEQ, KEPT_SUM, Log, number_in_meta
from headwater.engine.log.snapshots import Snapshots
from headwater.engine.store.port import HeadRow, Store
from headwater.errors import CorruptionError


class Compaction:
    """Drops log rows and snapshots that nothing needs, inside the open store transaction."""

    __slots__ = ("_branches", "_heads", "_limits", "_log", "_snapshots", "_store")

    def __init__(
        self,
        store: Store,
        log: Log,
        heads: Heads,
        branches: Branches,
        snapshots: Snapshots,
        limits: Limits,
    ) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._branches = branches
        self._snapshots = snapshots
        self._limits = limits

    def run(self, before: int) -> int:
        """Drop history before a seq, or before the oldest fork still read. Return the first seq that is kept."""
        kept_from = self._boundary(before)
        if kept_from <= self._log.kept_from:
            return self._log.kept_from
        if number_in_meta(self._store, KEPT_SUM, 0) != self._store.sum_before(self._log.kept_from):
            # The sum written below would otherwise vouch for the damaged rows.
            raise CorruptionError(
                f"the rows kept from before seq {self._log.kept_from} does not match its checksum: rows, events or "
                "records were edited or are missing. Restore a backup."
            )
        self._heads.write_back()
        for branch in self._branches.live():
            # fault compaction.not_rebased: pass
            self._rebase(branch, kept_from - 1)
        self._heads.write_back()
        previous = self._store.row_at(kept_from - 1)
        self._store.put_meta(COMPACTED_SEQ, str(kept_from))
        self._store.put_meta(COMPACTED_CHAIN, str(previous.chain if previous is not None else 0))
        self._store.drop_rows(kept_from)
        self._store.put_meta(KEPT_SUM, str(self._store.sum_before(kept_from)))
        return kept_from

    def _boundary(self, before: int) -> int:
        """A row of the log that everything still needed begins with; the last row always stays."""
        forks = [branch.fork_seq + 1 for branch in self._branches.live() if branch.parent is not None]
        # fault compaction.forks_ignored: row = self._store.row_at(min(before, self._log.last_seq))
        row = self._store.row_at(min([before, self._log.last_seq, *forks]))
        return row.seq if row is not None else 1

    def _rebase(self, branch: Branch, at: int) -> None:
        """Give each document of the branch a snapshot of its value at `at`, and a write index that is newer."""
        after = 0
        while rows := self._store.heads_of_branch(branch.id, after, self._limits.page):
            for row in rows:
                self._rebase_document(branch, row, at)
            self._heads.trim()
            after = rows[-1].doc

    def _rebase_document(self, branch: Branch, row: HeadRow, at: int) -> None:
        key = self._store.key_of(row.doc)
        if key is None:
            raise CorruptionError(f"document {row.doc} has a head but no name")
        value, written = self._heads.value_at(branch, key, row.doc, at)
        if branch.fork_seq >= written:
            return  # the branch first wrote it later: all of its history is kept
        head = self._heads.get(branch, key)
        if head.base_seq < written:
            self._snapshots.write_snapshot(branch, head)
            self._heads.mark_changed(head)
        marks = self._store.marks(branch.id, row.doc)
        if marks is None or marks.seq < written:
            self._snapshots.store_index(branch, head)
        for seq, _ in self._store.snapshot_seqs(branch.id, row.doc):
            if seq <= written:
                self._store.drop_snapshot(branch.id, row.doc, seq)
        self._snapshots.put_base(branch, row.doc, written, value)
