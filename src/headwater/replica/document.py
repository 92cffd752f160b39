"""One document as this process holds it. All objects that refer to the document share one `Document`.

A document holds its confirmed value, the pending layers on top and the shown value side by side, so that a read needs
no search. `Replica` decides which value is shown.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.reader_trie import TrieNode
from headwater.data.value import ABSENT, MaybeValue, same

if TYPE_CHECKING:
    from headwater.replica.pending import Layer, PendingWrites
    from headwater.replica.replica import Replica


class NotLoaded(enum.Enum):
    """The type of `NOT_HERE`."""

    NOT_HERE = "not here"


NOT_HERE: Final = NotLoaded.NOT_HERE
"""Stands for a value that is not known here. A document that does not exist has the value ABSENT instead."""


class Document:
    """One document of one space, on the branch that its replica shows."""

    __slots__ = (
        "confirmed",
        "home",
        "implied",
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
        self.value: MaybeValue | NotLoaded = NOT_HERE  # the shown value: confirmed, with the layers on top
        self.confirmed: MaybeValue | NotLoaded = NOT_HERE  # as of the replica's one seq
        self.written = 0  # the seq of the last known write; 0: none is known
        self.stale: MaybeValue | NotLoaded = NOT_HERE  # the value shown before a gap, until the document arrives again
        self.layers: list[Layer] = []  # live layers that write the document, in order
        self.wrote: PendingWrites | None = None  # which layer wrote where; made on first use
        # What readers see while the document is absent: the default of its cell. ABSENT: nothing, or not all the same.
        # NOT_HERE: no handle refers to it yet.
        self.implied: MaybeValue | NotLoaded = NOT_HERE
        self.twig: TrieNode | None = None  # the readers of the document by path; owned by the scheduler
        self.writers: tuple[object, ...] = ()  # the nodes that declare the document as output; owned by the scheduler

    def __repr__(self) -> str:
        return f"document {self.key.scope}:{self.key.id}"

    def imply(self, default: MaybeValue) -> None:
        """Note what a reader sees while the document is absent. Readers that see different values imply nothing."""
        if self.implied is NOT_HERE:
            self.implied = default
        elif not same(self.implied, default):
            self.implied = ABSENT

    def written_by(self, layers: tuple[Layer, ...] | list[Layer]) -> list[Path]:
        """Return the paths in this document that `layers` write, each once."""
        return list({path: None for layer in layers for path in layer.written(self.key)})
