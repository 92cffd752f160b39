"""The documents of one replica: exactly one `Document` object for each key.

A held document has a confirmed value, a layer or a value that was set aside, and stays until `release`. A loose
document is only referred to: `Documents` keeps a weak reference, and the document vanishes with its last user.
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
    """The `Document` objects of one replica by key."""

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
