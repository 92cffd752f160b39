"""Confirmed state: what the engine's log said, as of one seq, for the documents this replica watches.

Every document here is as of the same seq, which is what makes that seq a true basis (C3, C8). A document may be
watched without its value being here: its changes are heard, its value is asked for when somebody reads it.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.data.patch import Patch, PatchError, apply
from headwater.data.path import Path
from headwater.data.value import MaybeValue
from headwater.errors import ProtocolError
from headwater.protocol.messages import DocChange, Own, Patched, Whole
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.documents import Documents
from headwater.replica.pending import Pending


class NotHere(Exception):
    """Internal: a document that was read has not arrived. Whoever runs the reader fetches it and runs it again."""

    def __init__(self, doc: DocKey) -> None:
        super().__init__(f"{doc.scope}:{doc.id} has not arrived yet")
        self.doc = doc


class Confirmed:
    """Documents as of `seq`."""

    __slots__ = ("_count", "_documents", "seq")

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._count = 0
        self.seq = 0

    def __contains__(self, doc: DocKey) -> bool:
        document = self._documents.get(doc)
        return document is not None and document.confirmed is not NOT_HERE

    def __len__(self) -> int:
        return self._count

    def docs(self) -> tuple[DocKey, ...]:
        return tuple(document.key for document in self._documents.held() if document.confirmed is not NOT_HERE)

    def value(self, doc: DocKey) -> MaybeValue:
        document = self._documents.get(doc)
        if document is None or document.confirmed is NOT_HERE:
            raise KeyError(doc)
        return document.confirmed

    def written(self, doc: DocKey) -> int:
        """The seq of the last write that was heard of; 0: none was."""
        document = self._documents.get(doc)
        return 0 if document is None else document.written

    def put(self, doc: DocKey, value: MaybeValue, written: int) -> Document:
        document = self._documents.hold(doc)
        if document.confirmed is NOT_HERE:
            self._count += 1
        document.confirmed = value
        document.written = written
        return document

    def drop(self, document: Document) -> None:
        if document.confirmed is not NOT_HERE:
            self._count -= 1
        document.confirmed = NOT_HERE
        document.written = 0

    def move_to(self, seq: int) -> None:
        """C9: the log is heard in order. Going back would un-happen what was shown."""
        if seq < self.seq:
            raise ProtocolError(f"the engine spoke of seq {seq} after seq {self.seq}")
        self.seq = seq

    def integrate(self, changes: list[DocChange], seq: int, pending: Pending) -> dict[Document, list[Path] | None]:
        """Make changes of the log to documents that are here, and move to its seq: all of it or, on error, nothing.

        What comes back is where they changed; None instead of places: anywhere.
        """
        staged: dict[DocKey, tuple[MaybeValue, int]] = {}
        places: dict[DocKey, list[Path] | None] = {}
        for change in changes:
            value = staged[change.doc][0] if change.doc in staged else self.value(change.doc)
            after, patches = _changed(change, value, pending)
            # fault confirmed.written_seq_not_kept: staged[change.doc] = (after, self.written(change.doc))
            staged[change.doc] = (after, change.seq)
            before = places.get(change.doc, [])
            places[change.doc] = (
                None if patches is None or before is None else [*before, *(patch.path for patch in patches)]
            )
        self.move_to(seq)
        return {self.put(doc, value, written): places[doc] for doc, (value, written) in staged.items()}


def _changed(change: DocChange, value: MaybeValue, pending: Pending) -> tuple[MaybeValue, tuple[Patch, ...] | None]:
    match change:
        case Whole():
            return change.get(), None
        case Patched(doc, seq, patches):
            return _patched(value, patches, f"commit {seq} does not fit {doc.scope}:{doc.id}"), patches
        case Own(doc, _, local_seq):
            layer = pending.get(local_seq)
            if layer is None:
                raise ProtocolError(f"the engine speaks of commit {local_seq}, which was settled before")
            # The same patches that the engine applied, on the same document.
            patches = tuple(patch for op in layer.commit.operations if op.doc == doc for patch in op.patches)
            what = f"own commit {local_seq} was accepted but does not fit {doc.scope}:{doc.id}"
            return _patched(value, patches, what), patches


def _patched(value: MaybeValue, patches: tuple[Patch, ...], what: str) -> MaybeValue:
    for patch in patches:
        try:
            value = apply(value, patch).value
        except PatchError as error:
            raise ProtocolError(f"{what}: {error}") from error
    return value
