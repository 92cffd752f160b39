"""A document as this process holds it: one object, which everything that refers to it shares.

A document keeps what is confirmed, the pending layers on top of it and what is shown, side by side, so that looking at
it costs no search. Never decides what is shown; `Replica` does.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.reader_trie import TrieNode
from headwater.data.value import MaybeValue

if TYPE_CHECKING:
    from headwater.replica.pending import Layer, PendingWrites
    from headwater.replica.replica import Replica


class NotLoaded(enum.Enum):
    """The type of `NOT_HERE`."""

    NOT_HERE = "not here"


NOT_HERE: Final = NotLoaded.NOT_HERE
"""In the place of a value that is not known here, which is not the same as a document that does not exist."""


class Document:
    """One document of one space, on the branch that its replica shows."""

    __slots__ = (
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
        self.wrote: PendingWrites | None = None  # which of them wrote where; there when somebody has asked
        self.twig: TrieNode | None = None  # who reads it, by path; the scheduler's
        self.writers: tuple[object, ...] = ()  # the nodes whose declared output it is; the scheduler's

    def __repr__(self) -> str:
        return f"<document {self.key.scope}:{self.key.id}>"

    def written_by(self, layers: tuple[Layer, ...] | list[Layer]) -> list[Path]:
        """The paths in this document that these layers write, each once."""
        return list({path: None for layer in layers for path in layer.written(self.key)})
