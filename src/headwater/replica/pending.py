"""Pending: the ordered stack of local commits that the engine has not confirmed yet.

A layer is shown from the moment it is committed until the engine's log covers it, or until it is known that it
will not land. Then it is dead, and so is every layer that read it (C4), at once: nothing dead is shown, named
or sent. Never talks to anybody; `Replica` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from headwater.data.address import DocKey
from headwater.data.patch import PatchError, Touch, apply
from headwater.data.path import Path
from headwater.data.value import MaybeValue
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Conflict, Rejection

Settled = Callable[["Layer", "Rejection | None"], object]


class Fate(Enum):
    """How far a layer is on its way."""

    QUEUED = "queued"  # never left this process
    SENT = "sent"  # on the wire; the engine may have it
    ACCEPTED = "accepted"  # has a seq, which the confirmed state does not cover yet
    DEAD = "dead"  # will not land; if it was sent, its verdict is still to come


def named_by(commit: Commit) -> frozenset[int]:
    """The layers that a commit stands on."""
    ranges = [*commit.after, *(span for read in commit.reads for span in read.layers)]
    return frozenset(local_seq for first, last in ranges for local_seq in range(first, last + 1))


class Layer:
    """One local commit, and what it did to the documents it wrote when it was applied here."""

    __slots__ = (
        "commit",
        "fate",
        "frame",
        "group",
        "misfits",
        "named",
        "rejection",
        "seq",
        "settled",
        "source",
        "touched",
    )

    def __init__(
        self,
        commit: Commit,
        touched: dict[DocKey, tuple[Touch, ...]],
        source: object | None,
        group: object | None,
    ) -> None:
        self.commit = commit
        self.touched = touched
        self.named = named_by(commit)  # the layers it stands on
        self.source = source
        self.group = group
        self.fate = Fate.QUEUED
        self.misfits: set[DocKey] = set()  # documents that it does not fit as they are now
        self.frame = 0  # the first local_seq of the frame it was sent in
        self.seq = 0
        self.rejection: Rejection | None = None
        self.settled: list[Settled] = []

    @property
    def local_seq(self) -> int:
        return self.commit.local_seq

    def send(self, commit: Commit, frame: int) -> None:
        """It goes on the wire, as the commit it is from now on: what it stands on is what that says (C4)."""
        self.fate, self.frame = Fate.SENT, frame
        if commit is not self.commit:
            self.commit, self.named = commit, named_by(commit)

    def written(self, doc: DocKey) -> list[Path]:
        """The paths of its patches to a document."""
        return [patch.path for op in self.commit.operations if op.doc == doc for patch in op.patches]

    def apply(self, doc: DocKey, value: MaybeValue) -> MaybeValue:
        """The document with this layer on top.

        A layer that does not fit what is under it shows nothing there, and no read may name it: by the time the
        engine judges it, it may fit again, and then whoever read beside it has missed a write (C3).
        """
        shown = value
        for operation in self.commit.operations:
            if operation.doc == doc:
                for patch in operation.patches:
                    try:
                        shown = apply(shown, patch).value
                    except PatchError:
                        self.misfits.add(doc)
                        return value
        self.misfits.discard(doc)
        return shown


class Pending:
    """The live layers in order, and the dead ones whose verdict is still to come."""

    __slots__ = ("_doomed", "_live")

    def __init__(self) -> None:
        self._live: dict[int, Layer] = {}
        self._doomed: dict[int, Layer] = {}

    def __len__(self) -> int:
        return len(self._live) + len(self._doomed)

    def push(self, layer: Layer) -> None:
        self._live[layer.local_seq] = layer

    def live(self) -> tuple[Layer, ...]:
        return tuple(self._live.values())

    def on(self, doc: DocKey) -> Iterator[Layer]:
        return (layer for layer in self._live.values() if doc in layer.touched)

    def get(self, local_seq: int) -> Layer | None:
        return self._live.get(local_seq) or self._doomed.get(local_seq)

    def shown(self, doc: DocKey, value: MaybeValue) -> MaybeValue:
        """A document as this replica shows it: confirmed, with the live layers on top."""
        for layer in self._live.values():
            if doc in layer.touched:
                value = layer.apply(doc, value)
        return value

    def queued(self) -> list[Layer]:
        return [layer for layer in self._live.values() if layer.fate is Fate.QUEUED]

    def undecided(self) -> list[Layer]:
        """Layers on the wire without a verdict, dead ones included, in order: what a reconnection replays."""
        live = [layer for layer in self._live.values() if layer.fate is not Fate.QUEUED and not layer.seq]
        if not self._doomed:
            return live
        return sorted([*live, *self._doomed.values()], key=lambda layer: layer.local_seq)

    def covered(self, seq: int) -> list[Layer]:
        """Take out the accepted layers that confirmed state at `seq` includes."""
        done = [layer for layer in self._live.values() if layer.seq and layer.seq <= seq]
        for layer in done:
            del self._live[layer.local_seq]
        return done

    def kill(self, layer: Layer, rejection: Rejection) -> list[Layer]:
        """C4: the layer is dead, and so is every live layer that stands on it, transitively. In order."""
        fallen: list[Layer] = []
        dead = {layer.local_seq}
        for other in tuple(self._live.values()):
            if other is layer or (other.named & dead):
                dead.add(other.local_seq)
                del self._live[other.local_seq]
                other.rejection = rejection if other is layer else Conflict(dead_layers=(layer.local_seq,))
                if other.fate is Fate.SENT and other is not layer:
                    # The engine has it or will get it, and must say no: its verdict is still owed.
                    self._doomed[other.local_seq] = other
                other.fate = Fate.DEAD
                fallen.append(other)
        return fallen

    def bury(self, local_seq: int) -> Layer | None:
        """The verdict of a dead layer arrived."""
        return self._doomed.pop(local_seq, None)
