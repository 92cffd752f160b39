"""Documents as this process holds them: one object for each, which everything that refers to it shares.

A document keeps what is confirmed, the pending layers on top of it and what is shown, side by side, so that looking at
it costs no search. What nobody holds any more vanishes with the last reference to it. Never decides what is shown;
`Replica` does.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, cast
from weakref import ref

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.spots import Twig
from headwater.data.value import MaybeValue

if TYPE_CHECKING:
    from headwater.replica.pending import Layer
    from headwater.replica.replica import Replica
    from headwater.replica.written import Written


class NotLoaded(enum.Enum):
    """The type of `NOT_HERE`."""

    NOT_HERE = "not here"


NOT_HERE: Final = NotLoaded.NOT_HERE
"""In the place of a value that is not known here, which is not the same as a document that does not exist."""


class Document:
    """One document of one space, on the branch that its replica shows."""

    __slots__ = (
        "__weakref__",
        "confirmed",
        "home",
        "key",
        "layers",
        "stale",
        "twig",
        "value",
        "writers",
        "written",
        "wrote",
    )

    def __init__(self, key: DocKey, home: Replica) -> None:
        self.key = key
        self.home = home
        self.value: MaybeValue | NotLoaded = NOT_HERE  # what is shown: confirmed, with the layers on top
        self.confirmed: MaybeValue | NotLoaded = NOT_HERE  # as of the replica's one seq
        self.written = 0  # the seq of the last write that was heard of; 0: none was
        self.stale: MaybeValue | NotLoaded = NOT_HERE  # shown before a gap, and not read again since
        self.layers: list[Layer] = []  # live layers that write it, in order
        self.wrote: Written | None = None  # which of them wrote where; there when somebody has asked
        self.twig: Twig | None = None  # who reads it, by path; the scheduler's
        self.writers: tuple[object, ...] = ()  # the nodes whose declared output it is; the scheduler's

    def __repr__(self) -> str:
        return f"<document {self.key.scope}:{self.key.id}>"

    def written_by(self, layers: tuple[Layer, ...] | list[Layer]) -> list[Path]:
        """The paths in this document that these layers write, each once."""
        return list({path: None for layer in layers for path in layer.written(self.key)})


class _Loose(ref["Document"]):
    """A reference that does not keep its document, and knows its key."""

    __slots__ = ("key",)

    key: DocKey


class Documents:
    """The documents of one replica. Held: something is known of them. Loose: somebody refers to them, no more."""

    __slots__ = ("_held", "_home", "_loose", "_vanished")

    def __init__(self, home: Replica) -> None:
        self._home = home
        self._held: dict[DocKey, Document] = {}
        loose: dict[DocKey, _Loose] = {}
        self._loose = loose

        def vanished(reference: ref[Document]) -> None:
            key = cast(_Loose, reference).key
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
            document = Document(key, self._home)
            self._let_loose(document)
        return document

    def hold(self, key: DocKey) -> Document:
        """The document, kept until `release`, whether anybody refers to it or not."""
        document = self._held.get(key)
        if document is None:
            document = self.get(key) or Document(key, self._home)
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
        reference = self._loose[document.key] = _Loose(document, self._vanished)
        reference.key = document.key

    def held(self) -> list[Document]:
        return list(self._held.values())
