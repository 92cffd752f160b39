"""One document as this process holds it. All objects that refer to the document share one `Document`.

A document holds its confirmed value, the pending layers on top, the result of the node that computes it and the shown
value side by side, so that a read needs no search. `Replica` decides which value is shown; `Tier` owns the results.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.reader_trie import Spot, TrieNode
from headwater.data.value import ABSENT, MaybeValue, same
from headwater.protocol.commit import Operation, Read

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
        "entry",
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
        self.value: MaybeValue | NotLoaded = (
            NOT_HERE  # the shown value: the entry's, or confirmed with the layers on top
        )
        self.confirmed: MaybeValue | NotLoaded = NOT_HERE  # as of the replica's one seq
        self.written = 0  # the seq of the last known write; 0: none is known
        self.stale: MaybeValue | NotLoaded = NOT_HERE  # the value shown before a gap, until the document arrives again
        self.layers: list[Layer] = []  # live layers that write the document, in order
        self.wrote: PendingWrites | None = None  # which layer wrote where; made on first use
        self.entry: TierEntry | None = None  # the newest result of its node, until confirmed state shows it
        # What readers see while the document is absent: the default of its cell. ABSENT: nothing, or not all the same.
        # NOT_HERE: no handle refers to it yet.
        self.implied: MaybeValue | NotLoaded = NOT_HERE
        self.twig: TrieNode | None = None  # the readers of the document by path; owned by the scheduler
        self.writers: tuple[object, ...] = ()  # the nodes that declare the document as output; owned by the scheduler

    def __repr__(self) -> str:
        return f"document {self.key.scope}:{self.key.id}"

    def is_unconfirmed(self) -> bool:
        """Return True if the shown value is not confirmed yet, and may still be taken back or replaced."""
        return bool(self.layers) or (self.entry is not None and self.entry.state is not EntryState.LOCAL)

    def imply(self, default: MaybeValue) -> None:
        """Note what a reader sees while the document is absent. Readers that see different values imply nothing."""
        if self.implied is NOT_HERE:
            self.implied = default
        elif not same(self.implied, default):
            self.implied = ABSENT

    def written_by(self, layers: tuple[Layer, ...] | list[Layer]) -> list[Path]:
        """Return the paths in this document that `layers` write, each once."""
        return list({path: None for layer in layers for path in layer.written(self.key)})


class EntryState(enum.Enum):
    """The stage of a result on its way into the log."""

    DUE = "due"  # to be sent in a wave
    SENT = "sent"  # on the wire, or accepted at a seq that confirmed state does not cover yet
    LOCAL = "local"  # derived without the right to write: never sent, and yields to any confirmed value
    EQUAL = "equal"  # it has left the tier, because confirmed state has its value


class TierEntry:
    """The newest result of one node, with the reads of the run that made it.

    A later result of the node is another entry, so that a verdict about this one does not concern it.
    """

    __slots__ = (
        "beside",
        "causes",
        "document",
        "hops",
        "is_held",
        "local_seq",
        "node",
        "operation",
        "owner",
        "place",
        "reads",
        "ready_at",
        "source",
        "spots",
        "state",
        "value",
        "version",
    )

    def __init__(
        self,
        document: Document,
        value: MaybeValue,
        spots: Sequence[Spot | None],
        source: object | None,
        node: str,
        causes: Mapping[Spot, object] | None,
        hops: int,
        version: int,
    ) -> None:
        self.document = document
        self.value = value
        self.spots = spots  # the reads of its run; may end with None
        self.source = source  # the node, by identity
        self.node = node  # the id of the node
        self.causes = causes  # the spots whose change caused its run, and those of the results that it replaced (I8)
        self.hops = hops
        self.version = version  # rises with every result of the replica
        self.state = EntryState.DUE
        self.beside: TierEntry | None = None  # the second document of the result, if it has two
        self.owner: TierEntry | None = None  # of a second document: the entry whose fate it shares
        self.is_held = False  # it could not be sent with the last wave, because a result that it read could not
        self.ready_at = 0  # the seq at which it was superseded: it is not sent again before that is confirmed
        self.local_seq = 0  # of the wave that writes its document, once it is sent; 0: the value stays as it is
        self.place = 0  # among the results of that wave
        self.operation: Operation | None = None  # its change to confirmed state, while a wave is composed
        self.reads: tuple[Read, ...] | None = None  # of a stopped node: the reads as they were when it stopped

    def set_state(self, state: EntryState) -> None:
        """Set the stage of the result, for all its documents."""
        for each in self.parts():
            # fault tier.second_document_left_behind: self.state = state
            each.state = state

    @property
    def is_sent_without_change(self) -> bool:
        """True if a wave carries the result and leaves this document as it is, because another document changes."""
        return self.state is EntryState.SENT and not self.local_seq

    def parts(self) -> tuple[TierEntry, ...]:
        """Return the entries of all documents of the result."""
        return (self,) if self.beside is None else (self, self.beside)
