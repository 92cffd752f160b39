"""The index of readers: the pieces whose nodes read a document, also one never written, and their number.

Owns the rows of `readers` and their changes inside a group, which are written together at its end. A document without a
number stands in the index by a digest of its name until its first write gives it one. Decides nothing: readers found
here are compared, not believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headwater.data.address import DocKey
from headwater.engine.observations.codec import StoredRead, number_of_absent
from headwater.engine.store.port import NodeNumbers, ReaderRow, Store

NONE_KNOWN: Final[Mapping[tuple[str, str], int]] = {}


class ReaderIndex:
    """Counts nodes by document and piece, inside the open store transaction."""

    __slots__ = ("_absent", "_changes", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory, so that the disk decides."""
        # by how many, for a branch and a piece, and a document
        self._changes: dict[tuple[int, int], dict[int, int]] = {}
        self._absent: bool | None = None  # whether any node reads a document that was never written; None: not known

    @property
    def is_changed(self) -> bool:
        return bool(self._changes)

    def update_reads(self, node: NodeNumbers, before: Sequence[StoredRead], after: Sequence[StoredRead]) -> None:
        """Update the index from the former reads of a node to its present ones, which were looked up just now."""
        # fault+ readers.not_counted: return
        at = node.branch, node.piece
        changes = self._changes.get(at)
        if changes is None:
            changes = self._changes[at] = {}
        if before:
            read, reads = self._present_numbers(before), _numbers(after)
            for doc in read - reads:
                changes[doc] = changes.get(doc, 0) - 1
            for doc in reads - read:
                changes[doc] = changes.get(doc, 0) + 1
        else:
            for doc in _numbers(after):
                changes[doc] = changes.get(doc, 0) + 1

    def _present_numbers(self, reads: Sequence[StoredRead]) -> set[int]:
        """Return the numbers that stand for the documents of stored reads: their own, if they have some by now."""
        absent = [DocKey(*read.doc) for read in reads if not isinstance(read.doc, int)]
        known = self._store.docs_of(absent) if absent else {}
        return _numbers(reads, {(key.scope, key.id): doc for key, doc in known.items()})

    def write(self) -> None:
        changes, self._changes = self._changes, {}
        rows: list[ReaderRow] = []
        added = 0
        for at, docs in changes.items():
            changed = [doc for doc, change in docs.items() if change]
            stored = self._store.counts_of_readers(*at, changed)
            for doc in changed:
                before = stored.get(doc, 0)
                after = max(0, before + docs[doc])
                added += (after > 0) - (before > 0)
                rows.append(ReaderRow(doc, *at, after))
                if doc < 0:
                    self._absent = True
        if rows:
            self._store.put_readers(rows, added)

    def note_created(self, made: Sequence[tuple[int, DocKey]]) -> None:
        """Note the first writes of documents: nodes that read their absence are their readers."""
        # fault+ readers.absent_document_forgotten: return
        if self._absent is None:
            self._absent = self._store.has_absent_readers()
        if not (self._absent or self._changes):
            return
        renamed = {number_of_absent(*key): doc for doc, key in made}
        for docs in self._changes.values():
            for absent in docs.keys() & renamed.keys():
                docs[renamed[absent]] = docs.pop(absent)
        self._store.rename_readers(renamed)


def _numbers(reads: Sequence[StoredRead], known: Mapping[tuple[str, str], int] = NONE_KNOWN) -> set[int]:
    """Return the numbers of the documents of reads, and those that stand for documents without one."""
    numbers: set[int] = set()
    for read in reads:
        doc = read.doc
        numbers.add(doc if isinstance(doc, int) else known.get(doc) or number_of_absent(*doc))
    return numbers
