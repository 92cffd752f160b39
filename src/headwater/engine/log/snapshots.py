"""Snapshots: whole documents in the history, so that rebuilding one never folds more than a few patches.

A snapshot is due after a number of commits whose patches are worth a share of its size, so that the cost of snapshots
is proportional to the size of the writes. The spacing of older ones is doubled once, which halves their cost and
doubles the number of patches that a read in the past folds; that number has a bound at any age. The write index is
stored too, one per document, overwritten in place.
"""

from __future__ import annotations

from typing import Final

from headwater.data.value import MaybeValue
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Head, Heads, snapshot_of
from headwater.engine.store.port import MarksRow, Store

BASE_ORDINAL: Final = 0  # of a snapshot made by compaction; even, so that thinning keeps it


class Snapshots:
    """Writes and thins the snapshots of documents, inside the open store transaction."""

    __slots__ = ("_heads", "_limits", "_store")

    def __init__(self, store: Store, heads: Heads, limits: Limits) -> None:
        self._store = store
        self._heads = heads
        self._limits = limits

    def is_due(self, head: Head) -> bool:
        """After a number of commits worth a share of the last one; and when the size is no longer known at all."""
        if head.patch_bytes > self._limits.document_bytes // 2 or head.patches >= self._limits.snapshot_patches_most:
            return True
        return (
            head.patches >= self._limits.snapshot_patches
            and head.patch_bytes * self._limits.snapshot_share >= head.base_bytes
        )

    def write_snapshot(self, branch: Branch, head: Head) -> None:
        """Store the head's value at its seq. The caller writes the head's row afterwards."""
        head.ordinal += 1
        row = snapshot_of(branch.id, head.doc, head.seq, head.ordinal, head.value)
        head.base_seq, head.base_bytes = head.seq, len(row.body)
        head.patches = head.patch_bytes = 0
        self._store.put_snapshot(row)
        self._thin(head)

    def index_is_due(self, head: Head) -> bool:
        """True if the index recorded enough touches since it was stored that storing it again is worth its cost."""
        stale = head.marks.stale
        return stale >= self._limits.marks_patches and stale * self._limits.marks_share >= head.marks.nodes

    def store_index(self, branch: Branch, head: Head) -> None:
        """Store the write index of the document, in place of the one before."""
        marks = self._heads.complete_index(branch, head)
        self._store.put_marks(MarksRow(branch.id, head.doc, head.seq, marks.encode()))

    def put_base(self, branch: Branch, doc: int, seq: int, value: MaybeValue) -> None:
        """Store the first snapshot of a compacted document, the only one without an ordinal."""
        self._store.put_snapshot(snapshot_of(branch.id, doc, seq, BASE_ORDINAL, value))

    def _thin(self, head: Head) -> None:
        """Drop the snapshot that the doubled spacing no longer keeps: at most one for each new one."""
        old = self._store.older_snapshot(head.branch, head.doc, self._limits.snapshots_fresh)
        if old is not None and old[1] % 2:
            self._store.drop_snapshot(head.branch, head.doc, old[0])
