"""The documents of one replica. What nobody holds any more vanishes with the last reference to it.

Held: something is known of them. Loose: somebody refers to them, no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from weakref import ref

from headwater.data.address import DocKey
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.weak_refs import Referable, WeakReference

if TYPE_CHECKING:
    from headwater.replica.replica import Replica


class Documents:
    """The one object for each document."""

    __slots__ = ("_held", "_home", "_loose", "_vanished")

    def __init__(self, home: Replica) -> None:
        self._home = home
        self._held: dict[DocKey, Document] = {}
        loose: dict[DocKey, WeakReference] = {}
        self._loose = loose

        def vanished(reference: ref[Document]) -> None:
            key = cast(WeakReference, reference).key
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
        """The one object for a document. Asking for it loads nothing."""
        document = self.get(key)
        if document is None:
            document = Referable(key, self._home)
            self._let_loose(document)
        return document

    def hold(self, key: DocKey) -> Document:
        """The document, kept until `release`, whether anybody refers to it or not."""
        document = self._held.get(key)
        if document is None:
            document = self.get(key) or Referable(key, self._home)
            self._held[key] = document
            self._loose.pop(key, None)
        return document

    def release(self, document: Document) -> None:
        """Nothing is known of it any more: it stays only as long as somebody refers to it."""
        if self._held.pop(document.key, None) is not None:
            self._let_loose(document)

    def forget(self, document: Document) -> None:
        """The last layer left it. If it was created here and nobody ever looked at it, nothing is known of it."""
        if document.value is NOT_HERE and document.confirmed is NOT_HERE and document.stale is NOT_HERE:
            self.release(document)

    def _let_loose(self, document: Document) -> None:
        reference = self._loose[document.key] = WeakReference(document, self._vanished)
        reference.key = document.key

    def held(self) -> list[Document]:
        return list(self._held.values())
