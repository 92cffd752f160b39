"""The index of readers: the pieces whose nodes read a document, also one never written, and their number.

Owns the rows of `readers` and their changes inside a group, which are written together at its end. A document without a
number stands in the index by a digest of its name until its first write gives it one. Decides nothing: readers found
here are compared, not believed.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.address import DocKey
from headwater.engine.observations.codec import StoredDoc, StoredRead, docs_of, number_of_absent
from headwater.engine.store.port import NodeNumbers, ReaderRow, Store


class ReaderIndex:
    """Counts nodes by document and piece, inside the open store transaction."""

    __slots__ = ("_absent", "_changes", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory, so that the disk decides."""
        self._changes: dict[tuple[int, int, int], int] = {}  # by how many, for a document, a branch and a piece
        self._absent: bool | None = None  # whether any node reads a document that was never written; None: not known

    @property
    def is_changed(self) -> bool:
        return bool(self._changes)

    def update_reads(self, node: NodeNumbers, before: Iterable[StoredRead], after: Iterable[StoredRead]) -> None:
        """Update the index from the former reads of a node to its present ones."""
        # fault+ readers.not_counted: return
        read, reads = ({self._number(doc) for doc in docs_of(each)} for each in (before, after))
        for docs, change in ((reads - read, 1), (read - reads, -1)):
            for doc in docs:
                at = (doc, node.branch, node.piece)
                self._changes[at] = self._changes.get(at, 0) + change

    def _number(self, doc: StoredDoc) -> int:
        """Return the number that stands for a document: its own, if it has one by now."""
        if isinstance(doc, int):
            return doc
        key = DocKey(*doc)
        return self._store.doc_of(key) or number_of_absent(key)

    def write(self) -> None:
        before = {at: self._store.reader(*at) for at, change in self._changes.items() if change}
        rows = [ReaderRow(*at, max(0, nodes + self._changes[at])) for at, nodes in before.items()]
        self._changes = {}
        if rows:
            self._store.put_readers(rows, sum([(row.nodes > 0) - (before[row[:3]] > 0) for row in rows]))
        if any(row.doc < 0 for row in rows):
            self._absent = True

    def note_created(self, key: DocKey, doc: int) -> None:
        """Note the first write of a document: nodes that read its absence are its readers."""
        # fault+ readers.absent_document_forgotten: return
        if self._absent is None:
            self._absent = self._store.has_absent_readers()
        if not (self._absent or self._changes):
            return
        absent = number_of_absent(key)
        for at in [at for at in self._changes if at[0] == absent]:
            self._changes[(doc, *at[1:])] = self._changes.pop(at)
        self._store.rename_readers(absent, doc)
