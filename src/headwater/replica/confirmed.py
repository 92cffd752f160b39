"""The documents of one replica, and confirmed state: their values in the engine's log, as of one seq.

`Documents` has exactly one `Document` object for each key. A held document has a confirmed value, a layer, a result or
a value that was set aside, and stays until `release`. A loose document is only referred to: `Documents` keeps a weak
reference, and the document vanishes with its last user.

`Confirmed` has all documents as of the same seq, so that this seq is a true basis of every read (C3, C8). A document
may be watched without a value here: the engine tells its changes, and its value is requested when a reader needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from headwater.data.address import DocKey
from headwater.data.patch import Patch, PatchError, apply
from headwater.data.path import Path
from headwater.data.value import MaybeValue
from headwater.errors import ProtocolError
from headwater.protocol.messages import DocChange, Own, Patched, Whole
from headwater.replica.document import NOT_HERE, Document, NotLoaded
from headwater.replica.weak_refs import Referable, WeakReference

if TYPE_CHECKING:
    from headwater.replica.replica import Replica

OwnMade = Callable[[int, DocKey], "Made | None"]
"""Returns the patches of an own commit to a document; None: the commit was settled before."""
Made = tuple["MaybeValue | NotLoaded", "MaybeValue", "tuple[Patch, ...]"]
"""What a result makes of a document: the value before it, the value, and the patches that lead there."""


class NotHere(Exception):
    """Internal: documents have not arrived. The caller of the reader loads them and repeats the read."""

    def __init__(self, doc: DocKey, *others: DocKey) -> None:
        super().__init__(f"{doc.scope}:{doc.id} has not arrived yet")
        self.docs = (doc, *others)


class Documents:
    """The `Document` objects of one replica by key."""

    __slots__ = ("_held", "_home", "_loose", "_vanished")

    def __init__(self, home: Replica) -> None:
        self._home = home
        self._held: dict[DocKey, Document] = {}
        loose: dict[DocKey, WeakReference] = {}
        self._loose = loose

        def vanished(reference: ref[Document]) -> None:
            assert isinstance(reference, WeakReference)
            key = reference.key
            if loose.get(key) is reference:
                del loose[key]

        self._vanished = vanished

    def get(self, key: DocKey) -> Document | None:
        document = self._held.get(key)
        if document is None:
            reference = self._loose.get(key)
            return None if reference is None else reference()
        return document

    def of(self, key: DocKey) -> Document:
        """Return the object of a document, and make it if there is none. Loads nothing."""
        document = self._held.get(key)
        if document is None:
            reference = self._loose.get(key)
            document = None if reference is None else reference()
            if document is None:
                document = Referable(key, self._home)
                self._let_loose(document)
        return document

    def hold(self, key: DocKey) -> Document:
        """Return the document, and keep it until `release`, whether or not another object refers to it."""
        document = self._held.get(key)
        if document is None:
            document = self.get(key) or Referable(key, self._home)
            self._held[key] = document
            self._loose.pop(key, None)
        return document

    def release(self, document: Document) -> None:
        """Stop holding a document without known values. It stays as long as another object refers to it."""
        if self._held.pop(document.key, None) is not None:
            self._let_loose(document)

    def forget(self, document: Document) -> None:
        """Release a document that its last layer left, if no value of it is known (created here and never read)."""
        if document.value is NOT_HERE and document.confirmed is NOT_HERE and document.stale is NOT_HERE:
            self.release(document)

    def _let_loose(self, document: Document) -> None:
        reference = self._loose[document.key] = WeakReference(document, self._vanished)
        reference.key = document.key

    def held(self) -> list[Document]:
        return list(self._held.values())


class Confirmed:
    """Confirmed values of documents, all as of `seq`."""

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
        """Return the seq of the last known write of a document; 0 if none is known."""
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
        """Set the seq. C9: the log arrives in order; an older seq would undo changes that were already shown."""
        if seq < self.seq:
            raise ProtocolError(f"the engine spoke of seq {seq} after seq {self.seq}")
        self.seq = seq

    def integrate(
        self, changes: list[tuple[Document, DocChange]], seq: int, own: OwnMade
    ) -> dict[Document, list[Path] | None]:
        """Apply changes of the log to documents that have a value here, and move to `seq`. On error nothing is changed.

        `own` returns what an own commit made of a document: it is not applied again to the value that it was made from.
        Return the paths that changed in each document; None instead of paths means anywhere.
        """
        staged: dict[Document, tuple[MaybeValue, int]] = {}
        places: dict[Document, list[Path] | None] = {}
        for document, change in changes:
            value = staged[document][0] if document in staged else document.confirmed
            assert value is not NOT_HERE  # The caller checked it.
            after, patches = _changed(change, value, own)
            # fault confirmed.written_seq_not_kept: staged[document] = (after, document.written)
            staged[document] = (after, change.seq)
            before = places.setdefault(document, [])
            if patches is None or before is None:
                places[document] = None
            else:
                for patch in patches:
                    before.append(patch.path)  # A generator would be one more call.
        self.move_to(seq)
        for document, (value, written) in staged.items():
            document.confirmed, document.written = value, written
        return places


def _changed(change: DocChange, value: MaybeValue, own: OwnMade) -> tuple[MaybeValue, tuple[Patch, ...] | None]:
    match change:
        case Whole():
            return change.get(), None
        case Patched(doc, seq, patches):
            return _patched(value, patches, f"commit {seq} does not fit {doc.scope}:{doc.id}"), patches
        case Own(doc, _, local_seq):
            # The patches of the own commit are the patches that the engine applied to this document.
            mine = own(local_seq, doc)
            if mine is None:
                raise ProtocolError(f"the engine speaks of commit {local_seq}, which was settled before")
            before, after, patches = mine
            # fault confirmed.own_value_of_another_basis: if before is not NOT_HERE:
            if before is value:
                return after, patches
            return _patched(
                value, patches, f"own commit {local_seq} was accepted but does not fit {doc.scope}:{doc.id}"
            ), patches


def _patched(value: MaybeValue, patches: tuple[Patch, ...], what: str) -> MaybeValue:
    for patch in patches:
        try:
            value = apply(value, patch)[0]
        except PatchError as error:
            raise ProtocolError(f"{what}: {error}") from error
    return value
