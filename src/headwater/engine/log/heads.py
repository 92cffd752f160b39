"""Heads: the current state of documents, in memory up to a budget and from the disk beyond it.

Owns the cache and the rebuilding of a document from its newest snapshot and the patches after it. A branch that has not
written a document sees its parent's state at the fork. Heads never decide which commits are accepted; the values that
they return are frozen and shared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from zlib import crc32

import msgspec

from headwater.data.address import DocKey
from headwater.data.codec import decode, encode
from headwater.data.limits import STORED_VALUE_LIMITS
from headwater.data.patch import PatchError, Touch, apply
from headwater.data.value import ABSENT, Absent, MaybeValue
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch, Branches
from headwater.engine.log.log import Log, Revision
from headwater.engine.log.write_index import WriteIndex
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

    def __init__(self, branch: int, doc: int, key: DocKey, value: MaybeValue, marks: WriteIndex) -> None:
        self.branch = branch
        self.doc = doc  # 0 until the document is first written in this space
        self.absent_of = 0  # how many documents other branches had made when this one was looked for in vain
        self.key = key
        self.value = value
        self.marks = marks
        self.seq = 0  # last write on this very branch; 0: the branch never wrote it
        self.inherited_seq = 0  # seq of the inherited value that the branch found at its fork; 0: none
        self.base_seq = 0
        self.base_bytes = 0
        self.patches = 0
        self.patch_bytes = 0
        self.ordinal = 0
        self.changed = False  # since its row was last written: pinned
        self.recent = False  # used since the cache last considered it
        self.weight = 0  # as counted by the cache

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

    __slots__ = (
        "_branches",
        "_cache",
        "_held",
        "_limits",
        "_log",
        "_made",
        "_next_doc",
        "_pinned",
        "_store",
        "_unwritten",
        "on_write_back",
    )

    def __init__(self, store: Store, log: Log, branches: Branches, limits: Limits) -> None:
        self._store = store
        self._log = log
        self._branches = branches
        self._limits = limits
        # Writes the other rows that follow from the log up to its end: recovery begins there afterwards.
        self.on_write_back: Callable[[], object] = lambda: None
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory, so that the disk decides. The caller wrote back before, or recovers."""
        # The oldest first. An ordinary dictionary would step over all that was deleted in front of it each time.
        self._cache: OrderedDict[tuple[int, DocKey], Head] = OrderedDict()
        self._unwritten: list[Head] = []
        self._held = 0
        self._pinned = 0
        self._next_doc = self._store.last_doc() + 1
        self._made: dict[int, int] = {}  # how many documents each branch made since

    @property
    def bytes_held(self) -> int:
        return self._held

    @property
    def bytes_pinned(self) -> int:
        """The weight of changed heads, which cannot be dropped before they are written back."""
        return self._pinned

    def seqs(self, branch: Branch, docs: Iterable[int]) -> dict[int, int]:
        """When documents were last written on this very branch, without rebuilding any of them."""
        found = self._store.head_seqs(branch.id, docs)
        # fault heads.unwritten_seqs_ignored: for head in ():
        for head in self._unwritten:
            if head.branch == branch.id:
                found[head.doc] = head.seq  # Its row has the seq of the last write-back, which is older.
        return found

    def written_after(self, branch: Branch, seq: int) -> dict[int, int]:
        """The documents of this very branch that were written after a seq, by number, each with when that was."""
        found = self._store.head_seqs(branch.id, None, seq)
        found.update({head.doc: head.seq for head in self._unwritten if head.branch == branch.id and head.seq > seq})
        return found

    def unwritten(self, branch: Branch) -> list[Head]:
        """Return the heads of this very branch whose rows are not written back."""
        return [head for head in self._unwritten if head.branch == branch.id]

    def get(self, branch: Branch, key: DocKey) -> Head:
        """The head of a document, which may be absent or inherited from the branch's parent."""
        head = self._cache.get((branch.id, key))
        if head is None:
            head = self._load(branch, key)
            self._put(head)
        else:
            head.recent = True
        return head

    def in_memory(self, branch: Branch, key: DocKey) -> Head | None:
        """The head of a document, if nothing has to be rebuilt for it. That a document is not there is looked up."""
        head = self._cache.get((branch.id, key))
        if head is None and branch.parent is None and self._store.doc_of(key) is None:
            head = self._missing(branch, key)
            self._put(head)
        return head

    def many(self, branch: Branch, keys: Sequence[DocKey]) -> Iterator[Head]:
        """The heads of many documents, in order."""
        id, cache = branch.id, self._cache
        for place, key in enumerate(keys):
            head = cache.get((id, key))
            if head is None:
                # fault heads.brought_one_by_one: pass
                self.prefetch(branch, keys[place:])
                head = self.get(branch, key)
            head.recent = True
            yield head

    def prefetch(self, branch: Branch, keys: Iterable[DocKey]) -> None:
        """Rebuild those of many documents that are not in memory, up to half of the cache's budget.

        Each commit of the log is looked through once for all of them. Rebuilding them one by one would look through a
        commit that wrote several of them once for each, unless its outline is remembered.
        """
        rows: dict[DocKey, HeadRow] = {}
        held, id = 0, branch.id
        wanted = [key for key in dict.fromkeys(keys) if (id, key) not in self._cache]
        numbers = self._store.docs_of(wanted)
        for key in wanted:
            if held > self._limits.cache_bytes // 2:
                break
            doc = numbers.get(key)
            row = self._store.head(id, doc) if doc is not None else None
            if row is None:
                self._put(self._never_written(branch, key, doc))
            else:
                rows[key] = row
                held += 1_000 + 4 * (row.base_bytes + row.patch_bytes)
        pending = self._log.histories({key: (row.seq, row.base_seq) for key, row in rows.items()})
        for key, row in rows.items():
            self._put(self._rebuilt(branch, key, row, pending.pop(key)))

    def _put(self, head: Head) -> None:
        self._cache[head.branch, head.key] = head
        self.reweigh(head)

    def reweigh(self, head: Head) -> None:
        weight = head.bytes_held()
        self._held += weight - head.weight
        if head.changed:
            self._pinned += weight - head.weight
        head.weight = weight

    def mark_changed(self, head: Head) -> None:
        """Mark a head whose stored row is out of date. It stays in memory until the next write-back."""
        if not head.changed:
            head.changed = True
            self._pinned += head.weight
            self._unwritten.append(head)

    def write_back(self) -> None:
        """Store the rows of all changed heads, inside the open store transaction."""
        self.on_write_back()
        if self._unwritten:
            self._store.put_heads([head.row() for head in self._unwritten])
            for head in self._unwritten:
                head.changed = False
            self._unwritten.clear()
            self._pinned = 0
        self._store.put_meta(HEADS_SEQ, str(self._log.last_seq))
        self._log.written_back = self._log.last_seq
        self._log.replayed = 0

    def trim(self) -> None:
        """Let go of heads not used lately, past the budget, as far as they are not pinned."""
        chances = 2 * len(self._cache)
        while self._held > self._limits.cache_bytes and chances:
            chances -= 1
            at, head = next(iter(self._cache.items()))
            if head.recent or head.changed:
                head.recent = False  # used since it was last considered: a second chance, at the end
                self._cache.move_to_end(at)
            else:
                del self._cache[at]
                # fault+ heads.evicted_document_absent: self._cache[at], head.value = head, ABSENT
                self._held -= head.weight

    # ---- rebuilding ------------------------------------------------------------------------------

    def _load(self, branch: Branch, key: DocKey) -> Head:
        doc = self._store.doc_of(key)
        row = self._store.head(branch.id, doc) if doc is not None else None
        if row is None:
            return self._never_written(branch, key, doc)
        return self._rebuilt(branch, key, row, list(self._log.history(row.seq, key, down_to=row.base_seq)))

    def _never_written(self, branch: Branch, key: DocKey, doc: int | None) -> Head:
        """A document that its branch did not write: absent, or as the branch found it at its fork."""
        if doc is None:
            return self._missing(branch, key)
        value, written = self._inherited(branch, key, doc)
        head = Head(branch.id, doc, key, value, WriteIndex(branch.fork_seq, self._limits.marks_per_document))
        head.inherited_seq = written
        return head

    def _rebuilt(self, branch: Branch, key: DocKey, row: HeadRow, pending: list[Revision]) -> Head:
        """A document from its snapshot and the revisions after it, latest first."""
        base = self._store.snapshot_at_or_before(branch.id, row.doc, row.seq) if row.base_seq else None
        if row.base_seq and (base is None or base.seq != row.base_seq):
            raise CorruptionError(f"the snapshot of {key.scope}:{key.id} at seq {row.base_seq} is missing")
        value = self._folded(branch, key, row.doc, base, pending)
        head = Head(branch.id, row.doc, key, value, WriteIndex(row.seq, self._limits.marks_per_document))
        head.seq = row.seq
        head.base_seq, head.base_bytes = row.base_seq, row.base_bytes
        head.patches, head.patch_bytes, head.ordinal = row.patches, row.patch_bytes, row.ordinal
        return head

    def _missing(self, branch: Branch, key: DocKey) -> Head:
        head = Head(branch.id, 0, key, ABSENT, WriteIndex(0, self._limits.marks_per_document))
        head.absent_of = self._next_doc - self._made.get(branch.id, 0)
        return head

    # ---- numbers ---------------------------------------------------------------------------------

    def number_of(self, head: Head) -> int:
        """The number of a document. 0: it was never written, on any branch."""
        if not head.doc:
            # Its own branch makes a document through this head; of another branch it does not hear.
            made_elsewhere = self._next_doc - self._made.get(head.branch, 0)
            if head.absent_of != made_elsewhere:
                head.doc = self._store.doc_of(head.key) or 0
                head.absent_of = made_elsewhere
        return head.doc

    def new_number(self, head: Head) -> int:
        """Give a document a number with its first write. The caller stores it."""
        head.doc = doc = self._next_doc
        self._next_doc = doc + 1
        self._made[head.branch] = self._made.get(head.branch, 0) + 1
        return doc

    def _inherited(self, branch: Branch, key: DocKey, doc: int) -> tuple[MaybeValue, int]:
        """C11: a branch sees its parent only up to the fork."""
        if branch.parent is None:
            return ABSENT, 0
        # fault heads.parent_seen_after_fork: return self.value_at(branch.parent, key, doc, self._log.last_seq)
        # fault heads.branch_reads_past_fork: return self.value_at(branch.parent, key, doc, self._log.last_seq)
        return self.value_at(branch.parent, key, doc, branch.fork_seq)

    def value_at(self, branch: Branch, key: DocKey, doc: int, seq: int) -> tuple[MaybeValue, int]:
        """C11: the document as folding the log up to `seq` gives it, and the seq that wrote it (0: never)."""
        # C11: the revisions up to `seq` on this branch, or else the value of its parent at the fork.
        at: Branch | None = branch
        while at is not None:
            newest = self._newest_seq(at, key, doc)
            if newest:
                start = newest
                if start > seq:
                    start = self._store.snapshot_seq_after(at.id, doc, seq) or newest
                written = start
                for revision in self._log.history(start, key, down_to=seq):
                    written = revision.previous
                if written:
                    base = self._store.snapshot_at_or_before(at.id, doc, written)
                    base_seq = base.seq if base is not None else 0
                    pending = list(self._log.history(written, key, down_to=base_seq))
                    return self._folded(at, key, doc, base, pending), written
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

    def _folded(
        self, branch: Branch, key: DocKey, doc: int, base: SnapshotRow | None, pending: list[Revision]
    ) -> MaybeValue:
        """The value that a snapshot, or the beginning of the branch, and the revisions after it give."""
        value = restored(base) if base is not None else self._inherited(branch, key, doc)[0]
        for revision in reversed(pending):
            value, _ = fold(value, revision, key)
        return value

    # ---- the write index -------------------------------------------------------------------------

    def complete_index(self, branch: Branch, head: Head) -> WriteIndex:
        """The write index from the beginning of history, read from the disk if only its end is in memory."""
        if head.marks.since and head.seq:
            head.marks = self._load_index(branch, head)
            self.reweigh(head)
        return head.marks

    def _decode_index(self, head: Head, stored: MarksRow) -> WriteIndex:
        try:
            return WriteIndex.decode(stored.body, self._limits.marks_per_document)
        except (msgspec.MsgspecError, TypeError) as error:
            raise CorruptionError(
                f"the write index of {head.key.scope}:{head.key.id} cannot be read: {error}"
            ) from error

    def _load_index(self, branch: Branch, head: Head) -> WriteIndex:
        stored = self._store.marks(branch.id, head.doc)
        if stored is None:
            marks, since = WriteIndex(0, self._limits.marks_per_document), 0
            value, _ = self._inherited(branch, head.key, head.doc)
        else:
            marks, since = self._decode_index(head, stored), stored.seq
            value, _ = self.value_at(branch, head.key, head.doc, since)
        pending = list(self._log.history(head.seq, head.key, down_to=since))
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
