"""The writes of an admitted commit to its documents, inside the open store transaction. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headwater.data.address import DocKey
from headwater.data.patch import Touch
from headwater.engine.admission.admission import Planned
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Heads
from headwater.engine.log.sessions import StoredSession
from headwater.engine.log.snapshots import Snapshots
from headwater.engine.observations.reader_index import ReaderIndex
from headwater.engine.store.port import Store

EVERYTHING: Final = (Touch((), True),)
"""Remembered for a commit with many touches: more than it touched, never less (C2)."""

Written = list[tuple[DocKey, tuple[Touch, ...]]]
"""The documents that a commit wrote, and what it touched there."""


class PlannedWrites:
    """Writes to heads, and the snapshots that are due with them."""

    __slots__ = ("_heads", "_limits", "_readers", "_snapshots", "_store")

    def __init__(self, store: Store, heads: Heads, snapshots: Snapshots, readers: ReaderIndex, limits: Limits) -> None:
        self._store = store
        self._heads = heads
        self._snapshots = snapshots
        self._readers = readers
        self._limits = limits

    def write(
        self, session: StoredSession, branch: Branch, seq: int, plan: Iterable[Planned], sizes: Sequence[int]
    ) -> Written:
        """Write the plan of a commit, which is at `seq`, in each document with its size. Return what was touched."""
        # C7: all checks came before; from here on all is written or, with its transaction, nothing.
        written: Written = []
        heads, limits = self._heads, self._limits
        by, touches, patches_due = session.id, limits.commit_touches, limits.snapshot_patches
        new: list[tuple[int, DocKey]] = []
        for (head, value, touched), size in zip(plan, sizes, strict=True):
            # fault group.equal_writes_kept: if False:
            if not touched:
                continue
            if not head.doc and not heads.number_of(head):
                new.append((heads.new_number(head), head.key))
            head.value = value
            head.seq = seq
            head.patches += 1
            head.patch_bytes += size
            head.marks.record(touched, seq, by)
            written.append((head.key, touched if len(touched) <= touches else EVERYTHING))
            if not head.changed:
                heads.mark_changed(head)
            is_long = head.patches >= patches_due
            if (is_long or head.patch_bytes > limits.document_bytes // 2) and self._snapshots.is_due(head):
                self._snapshots.write_snapshot(branch, head)
            if head.marks.stale >= limits.marks_patches and self._snapshots.index_is_due(head):
                self._snapshots.store_index(branch, head)
            if 4 * head.patch_bytes > head.weight or 300 * head.marks.nodes > head.weight:
                heads.reweigh(head)
        if new:
            self._store.put_docs(new)
            self._readers.note_created(new)
        return written
