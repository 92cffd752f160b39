"""Heads: the current state of documents, in memory up to a budget and from the disk beyond it.

Owns the cache and how a document is rebuilt: its newest snapshot, and the patches after it. A branch that has
not written a document sees its parent's state at the fork. Never decides what is accepted; values handed out
are frozen and shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import msgspec

from headwater.data.address import DocKey
from headwater.data.codec import decode, encode
from headwater.data.limits import STORED_VALUE_LIMITS
from headwater.data.patch import PatchError, Touch, apply
from headwater.data.value import ABSENT, Absent, MaybeValue
from headwater.engine.branches import Branch, Branches
from headwater.engine.limits import Limits
from headwater.engine.log import Log, Revision
from headwater.engine.marks import Marks
from headwater.engine.store.port import HEADS_SEQ, HeadRow, MarksRow, SnapshotRow, Store
from headwater.errors import CorruptionError


class Head:
    """The current state of one document on one branch."""

    __slots__ = (
        "absent_of",
        "base_bytes",
        "base_seq",
        "branch",
        "changed",
        "doc",
        "inherited_seq",
        "key",
        "marks",
        "ordinal",
        "patch_bytes",
        "patches",
        "recent",
        "seq",
        "value",
        "weight",
    )

    def __init__(self, branch: int, doc: int, key: DocKey, value: MaybeValue, marks: Marks) -> None:
        self.branch = branch
        self.doc = doc  # 0 until the document is first written in this space
        self.absent_of = 0  # how many documents there were, and one, when this one was looked for in vain
        self.key = key
        self.value = value
        self.marks = marks
        self.seq = 0  # last write on this very branch; 0: the branch never wrote it
        self.inherited_seq = 0  # what wrote the value that the branch found at its fork; 0: nothing
        self.base_seq = 0
        self.base_bytes = 0
        self.patches = 0
        self.patch_bytes = 0
        self.ordinal = 0
        self.changed = False  # since its row was last written: pinned
        self.recent = False  # used since the cache last considered it
        self.weight = 0  # what the cache counted for it

    def row(self) -> HeadRow:
        return HeadRow(
            self.branch,
            self.doc,
            self.seq,
            self.base_seq,
            self.base_bytes,
            self.patches,
            self.patch_bytes,
            self.ordinal,
        )

    def bytes_held(self) -> int:
        """An estimate of this head's memory, from its encoded size and the nodes of its index."""
        names = len(self.key.scope) + len(self.key.id)
        return 1_000 + names + 4 * (self.base_bytes + self.patch_bytes) + 300 * self.marks.nodes


class Heads:
    """Documents by branch and key.

    A head that changed is pinned until its row is written back; everything else may be dropped and rebuilt.
    """

    __slots__ = ("_branches", "_cache", "_held", "_limits", "_log", "_pinned", "_store", "_unwritten", "next_doc")

    def __init__(self, store: Store, log: Log, branches: Branches, limits: Limits) -> None:
        self._store = store
        self._log = log
        self._branches = branches
        self._limits = limits
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory: what is on the disk decides. The caller wrote back, or recovers."""
        self._cache: dict[tuple[int, DocKey], Head] = {}
        self._unwritten: list[Head] = []
        self._held = 0
        self._pinned = 0
        self.next_doc = self._store.last_doc() + 1

    @property
    def bytes_held(self) -> int:
        return self._held

    @property
    def bytes_pinned(self) -> int:
        """What changed heads weigh, which cannot be dropped before they are written back."""
        return self._pinned

    def seqs(self, branch: Branch, docs: Iterable[int]) -> dict[int, int]:
        """When documents were last written on this very branch, without rebuilding any of them."""
        found = self._store.head_seqs(branch.id, docs)
        # fault heads.unwritten_seqs_ignored: for head in ():
        for head in self._unwritten:
            if head.branch == branch.id:
                found[head.doc] = head.seq  # Its row says what was written back, which is less.
        return found

    def written_after(self, branch: Branch, seq: int) -> dict[int, int]:
        """The documents of this very branch that were written after a seq, by number, each with when that was."""
        found = self._store.head_seqs(branch.id, None, seq)
        found.update({head.doc: head.seq for head in self._unwritten if head.branch == branch.id and head.seq > seq})
        return found

    def unwritten(self, branch: Branch) -> list[Head]:
        """Those of this very branch whose rows say less than they hold."""
        return [head for head in self._unwritten if head.branch == branch.id]

    def get(self, branch: Branch, key: DocKey) -> Head:
        """The head of a document, which may be absent or inherited from the branch's parent."""
        at = (branch.id, key)
        head = self._cache.get(at)
        if head is None:
            head = self._load(branch, key)
            self._cache[at] = head
            self.reweigh(head)
        else:
            head.recent = True
        return head

    def in_memory(self, branch: Branch, key: DocKey) -> Head | None:
        """The head of a document, if nothing has to be rebuilt for it. That a document is not there is looked up."""
        head = self._cache.get((branch.id, key))
        if head is None and branch.parent is None and self._store.doc_of(key) is None:
            head = self._cache[branch.id, key] = self._missing(branch, key)
            self.reweigh(head)
        return head

    def reweigh(self, head: Head) -> None:
        weight = head.bytes_held()
        self._held += weight - head.weight
        if head.changed:
            self._pinned += weight - head.weight
        head.weight = weight

    def changed(self, head: Head) -> None:
        """Its row is not true any more: pin it until the next write-back."""
        if not head.changed:
            head.changed = True
            self._pinned += head.weight
            self._unwritten.append(head)

    def write_back(self) -> None:
        """Store the rows of everything changed, inside the open store transaction."""
        if self._unwritten:
            self._store.put_heads([head.row() for head in self._unwritten])
            for head in self._unwritten:
                head.changed = False
                self.reweigh(head)
            self._unwritten.clear()
            self._pinned = 0
        self._store.put_meta(HEADS_SEQ, str(self._log.last_seq))
        self._log.written_back = self._log.last_seq

    def trim(self) -> None:
        """Let go of heads not used lately, past the budget, as far as they are not pinned."""
        chances = 2 * len(self._cache)
        while self._held > self._limits.cache_bytes and chances:
            chances -= 1
            at, head = next(iter(self._cache.items()))
            del self._cache[at]
            if head.recent or head.changed:
                head.recent = False  # used since it was last considered: a second chance, at the end
                self._cache[at] = head
            else:
                # fault+ heads.evicted_document_absent: self._cache[at], head.value = head, ABSENT
                self._held -= head.weight

    # ---- rebuilding ------------------------------------------------------------------------------

    def _load(self, branch: Branch, key: DocKey) -> Head:
        doc = self._store.doc_of(key)
        if doc is None:
            return self._missing(branch, key)
        row = self._store.head(branch.id, doc)
        if row is None:
            value, written = self._inherited(branch, key, doc)
            head = Head(branch.id, doc, key, value, Marks(branch.fork_seq, self._limits.marks_per_document))
            head.inherited_seq = written
            return head
        value = self._folded(branch, key, doc, row.seq, row.base_seq)
        head = Head(branch.id, doc, key, value, Marks(row.seq, self._limits.marks_per_document))
        head.seq = row.seq
        head.base_seq, head.base_bytes = row.base_seq, row.base_bytes
        head.patches, head.patch_bytes, head.ordinal = row.patches, row.patch_bytes, row.ordinal
        return head

    def _missing(self, branch: Branch, key: DocKey) -> Head:
        head = Head(branch.id, 0, key, ABSENT, Marks(0, self._limits.marks_per_document))
        head.absent_of = self.next_doc
        return head

    def _inherited(self, branch: Branch, key: DocKey, doc: int) -> tuple[MaybeValue, int]:
        """C11: a branch sees its parent only up to the fork."""
        if branch.parent is None:
            return ABSENT, 0
        # fault heads.parent_seen_after_fork: return self.value_at(branch.parent, key, doc, self._log.last_seq)
        # fault heads.branch_reads_past_fork: return self.value_at(branch.parent, key, doc, self._log.last_seq)
        return self.value_at(branch.parent, key, doc, branch.fork_seq)

    def value_at(self, branch: Branch, key: DocKey, doc: int, seq: int) -> tuple[MaybeValue, int]:
        """C11: the document as folding the log up to `seq` gives it, and the seq that wrote it (0: never)."""
        # C11: the revisions up to `seq` on this branch, or else what its parent showed at the fork.
        at: Branch | None = branch
        while at is not None:
            newest = self._newest_seq(at, key, doc)
            if newest:
                start = newest
                if start > seq:
                    start = self._store.snapshot_seq_after(at.id, doc, seq) or newest
                written = start
                for revision in self._log.back_from(start, key, down_to=seq):
                    written = revision.previous
                if written:
                    base = self._store.snapshot_at_or_before(at.id, doc, written)
                    return self._apply(at, key, doc, written, base), written
            seq = min(seq, at.fork_seq)
            at = at.parent
        return ABSENT, 0

    def _newest_seq(self, branch: Branch, key: DocKey, doc: int) -> int:
        """The last write of this very branch, 0 if it made none."""
        head = self._cache.get((branch.id, key))
        if head is not None:
            return head.seq
        row = self._store.head(branch.id, doc)
        return row.seq if row is not None else 0

    def _folded(self, branch: Branch, key: DocKey, doc: int, seq: int, base_seq: int) -> MaybeValue:
        base = self._store.snapshot_at_or_before(branch.id, doc, seq) if base_seq else None
        if base_seq and (base is None or base.seq != base_seq):
            raise CorruptionError(f"the snapshot of {key.scope}:{key.id} at seq {base_seq} is missing")
        return self._apply(branch, key, doc, seq, base)

    def _apply(self, branch: Branch, key: DocKey, doc: int, seq: int, base: SnapshotRow | None) -> MaybeValue:
        value, pending = self._after_base(branch, key, doc, seq, base)
        for revision in reversed(pending):
            value, _ = fold(value, revision, key)
        return value

    def _after_base(
        self, branch: Branch, key: DocKey, doc: int, seq: int, base: SnapshotRow | None
    ) -> tuple[MaybeValue, list[Revision]]:
        """What to begin with, and the revisions after it, latest first."""
        base_seq = base.seq if base is not None else 0
        pending = list(self._log.back_from(seq, key, down_to=base_seq))
        if base is not None:
            return restored(base), pending
        return self._inherited(branch, key, doc)[0], pending

    # ---- the write index -------------------------------------------------------------------------

    def complete_marks(self, branch: Branch, head: Head) -> Marks:
        """The write index from the beginning of history, read from the disk if only its end is in memory."""
        if head.marks.since and head.seq:
            head.marks = self._load_marks(branch, head)
            self.reweigh(head)
        return head.marks

    def _decoded_marks(self, head: Head, stored: MarksRow) -> Marks:
        try:
            return Marks.decode(stored.body, self._limits.marks_per_document)
        except (msgspec.MsgspecError, TypeError) as error:
            raise CorruptionError(
                f"the write index of {head.key.scope}:{head.key.id} cannot be read: {error}"
            ) from error

    def _load_marks(self, branch: Branch, head: Head) -> Marks:
        stored = self._store.marks(branch.id, head.doc)
        if stored is None:
            marks, since = Marks(0, self._limits.marks_per_document), 0
            value, _ = self._inherited(branch, head.key, head.doc)
        else:
            marks, since = self._decoded_marks(head, stored), stored.seq
            value, _ = self.value_at(branch, head.key, head.doc, since)
        pending = list(self._log.back_from(head.seq, head.key, down_to=since))
        for revision in reversed(pending):
            value, touched = fold(value, revision, head.key)
            marks.record(touched, revision.seq, revision.session)
        return marks


def snapshot_of(branch: int, doc: int, seq: int, ordinal: int, value: MaybeValue) -> SnapshotRow:
    """A snapshot as it is stored, sealed: after a compaction nothing else tells that it was edited."""
    present = not isinstance(value, Absent)
    body = b"" if isinstance(value, Absent) else encode(value)
    return SnapshotRow(branch, doc, seq, ordinal, present, _seal(branch, doc, seq, present, body) + body)


def _seal(branch: int, doc: int, seq: int, present: bool, body: bytes) -> bytes:
    return crc32(body, crc32(f"{branch},{doc},{seq},{present}".encode())).to_bytes(4, "big")


def restored(row: SnapshotRow) -> MaybeValue:
    sealed, body = row.body[:4], row.body[4:]
    try:
        if sealed != _seal(row.branch, row.doc, row.seq, row.present, body):
            raise ValueError("it does not match its checksum")
        return decode(body) if row.present else ABSENT
    except (ValueError, TypeError) as error:
        raise CorruptionError(f"the snapshot of document {row.doc} at seq {row.seq} cannot be read: {error}") from error


def fold(value: MaybeValue, revision: Revision, key: DocKey) -> tuple[MaybeValue, tuple[Touch, ...]]:
    """Apply an accepted revision. It applied when it was accepted, so a failure means damaged data."""
    touched: tuple[Touch, ...] = ()
    for patch in revision.patches:
        try:
            value, more = apply(value, patch, STORED_VALUE_LIMITS)
        except PatchError as error:
            raise CorruptionError(
                f"commit {revision.seq} no longer applies to {key.scope}:{key.id}: {error}"
            ) from error
        touched += more
    return value, touched
