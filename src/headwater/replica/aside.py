"""What the replica lets go, and what it sets aside because nobody tells its changes for now.

A value that is set aside cannot be read (C3): its document has to arrive again, and then the difference is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.data.address import DocKey
from headwater.replica.confirmed import Confirmed
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.documents import Documents


class Aside:
    """Documents whose value is not here any more, or not for now."""

    __slots__ = ("_aside", "_changing", "_confirmed", "_documents", "returned")

    def __init__(self, documents: Documents, confirmed: Confirmed, changing: Callable[[Document], object]) -> None:
        self._documents = documents
        self._confirmed = confirmed
        self._changing = changing
        self.returned: dict[Document, None] = {}  # here again after a gap, until whoever schedules has looked
        self._aside: dict[Document, None] = {}  # shown before a gap; what did not come back is forgotten

    def let_go(self, doc: DocKey) -> bool:
        """Drop a value nobody needs now. False: a pending commit is on top of it."""
        document = self._documents.get(doc)
        if document is not None:
            if document.layers:
                return False
            self._hide(document)
            document.stale = NOT_HERE
            self._documents.release(document)
        return True

    def set_aside(self, docs: Iterable[DocKey]) -> None:
        """Nobody tells changes of these any more: they cannot be read before they have arrived again (C3)."""
        for doc in docs:
            document = self._documents.get(doc)
            if document is not None and document.confirmed is not NOT_HERE:
                document.stale = document.value
                self._aside[document] = None
                self._hide(document)

    def forget(self) -> None:
        """Everything that was asked for again is here: what did not come back is not known any more."""
        for document in self._aside:
            document.stale = NOT_HERE
            if document.confirmed is NOT_HERE and not document.layers:
                self._documents.release(document)
        self._aside.clear()

    def _hide(self, document: Document) -> None:
        self._changing(document)
        self._confirmed.drop(document)
        document.value = NOT_HERE
