"""Pending: the ordered stack of local commits that the engine has not confirmed yet.

A layer is shown from the moment it is committed until the engine's log covers it, or until it is known that it
will not land. Then it is dead, and so is every layer that read it (C4), at once: nothing dead is shown, named
or sent. Never talks to anybody; `Replica` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from headwater.data.address import DocKey
from headwater.data.patch import PatchError, Touch, apply
from headwater.data.path import Path
from headwater.data.spots import Spot
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import InvariantViolation
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Conflict, Rejection
from headwater.replica.document import Document, Documents

Settled = Callable[["Layer", "Rejection | None"], object]


class Fate(Enum):
    """How far a layer is on its way."""

    QUEUED = "queued"  # never left this process
    SENT = "sent"  # on the wire; the engine may have it
    ACCEPTED = "accepted"  # has a seq, which the confirmed state does not cover yet
    LOCAL = "local"  # derived without the right to write: stays here and yields to any confirmed value
    DEAD = "dead"  # will not land; if it was sent, its verdict is still to come


_QUEUED: Final = Fate.QUEUED
_ACCEPTED: Final = Fate.ACCEPTED


def named_by(commit: Commit) -> frozenset[int]:
    """The layers that a commit stands on."""
    ranges = [*commit.after, *(span for read in commit.reads for span in read.layers)]
    return frozenset(local_seq for first, last in ranges for local_seq in range(first, last + 1))


class Layer:
    """One local commit, and what it did to the documents it wrote when it was applied here.

    A layer that replaced one document (`Replica.write_whole`) is told as a commit later, with the rest of its wave:
    nothing that it stands on changes in between.
    """

    __slots__ = (
        "_commit",
        "_named",
        "_touched",
        "after",
        "basis",
        "before",
        "causes",
        "derived",
        "document",
        "fate",
        "frame",
        "group",
        "local_seq",
        "misfits",
        "node",
        "rejection",
        "seq",
        "settled",
        "source",
        "spots",
    )

    def __init__(
        self,
        local_seq: int,
        commit: Commit | None,
        touched: dict[DocKey, tuple[Touch, ...]] | None,
        source: object | None,
        group: object | None,
        causes: Mapping[Spot, object] | None = None,
        document: Document | None = None,
        before: MaybeValue = ABSENT,
        after: MaybeValue = ABSENT,
        spots: Sequence[Spot | None] = (),
        basis: int = 0,
        node: str = "",
        derived: bool = False,
    ) -> None:
        self.local_seq = local_seq
        self.source = source
        self.group = group
        self.causes = causes  # the spots whose change made its run; they come back if it is rejected
        self.fate = _QUEUED
        # Until it is told as a commit: what it replaces by what, what it looked at as of when, and whose run it was.
        self.document = document
        self.before = before
        self.after = after
        self.spots = spots
        self.basis = basis
        self.node = node
        self.derived = derived
        self.seq = 0
        self.settled: list[Settled] | None = None
        self.misfits: set[DocKey] | None = None  # documents that it does not fit as they are now
        self._commit = commit
        self._touched = touched
        self._named: frozenset[int] | None = None
        self.frame = 0  # the first local_seq of the frame it was sent in
        self.rejection: Rejection | None = None

    @property
    def commit(self) -> Commit:
        """What it says to the engine."""
        if self._commit is None:
            raise InvariantViolation(f"layer {self.local_seq} was looked at before it was told")
        return self._commit

    def tell(self, commit: Commit, touched: dict[DocKey, tuple[Touch, ...]]) -> None:
        """From now on it is this commit."""
        self._commit, self._touched, self.document = commit, touched, None
        self.spots = ()

    @property
    def touched(self) -> dict[DocKey, tuple[Touch, ...]]:
        if self._touched is None:
            raise InvariantViolation(f"layer {self.local_seq} was looked at before it was told")
        return self._touched

    @property
    def named(self) -> frozenset[int]:
        """The layers it stands on."""
        if self._named is None:
            self._named = named_by(self.commit)
        return self._named

    def docs(self) -> tuple[DocKey, ...]:
        """The documents it writes."""
        return (self.document.key,) if self.document is not None else tuple(self.touched)

    def is_derived(self) -> bool:
        return self.derived if self.document is not None else self.commit.provenance.derived

    def send(self, commit: Commit, frame: int) -> None:
        """It goes on the wire, as the commit it is from now on: what it stands on is what that says (C4)."""
        self.fate, self.frame = Fate.SENT, frame
        if commit is not self._commit:
            self._commit, self._named = commit, None

    def written(self, doc: DocKey) -> list[Path]:
        """The paths of its patches to a document."""
        if self.document is not None:
            return [()] if self.document.key == doc else []
        return [patch.path for op in self.commit.operations if op.doc == doc for patch in op.patches]

    def fits(self, doc: DocKey) -> bool:
        """Whether it shows something in a document as that is now."""
        return self.misfits is None or doc not in self.misfits

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
                        self.misfits = self.misfits or set()
                        self.misfits.add(doc)
                        return value
        if self.misfits is not None:
            self.misfits.discard(doc)
        return shown


class Pending:
    """The live layers in order, those without a verdict, and the dead ones whose verdict is still to come."""

    __slots__ = ("_accepted", "_changing", "_documents", "_doomed", "_local", "_wire", "live_layers")

    def __init__(self, documents: Documents, changing: Callable[[Document], object]) -> None:
        self._documents = documents
        self._changing = changing  # told before a layer comes upon a document or leaves it
        self.live_layers: dict[int, Layer] = {}
        self._doomed: dict[int, Layer] = {}
        self._wire: dict[int, Layer] = {}  # sent and without a verdict, doomed or not, in order
        self._accepted: dict[int, Layer] = {}  # with a seq, and not covered yet
        self._local: dict[int, Layer] = {}  # shown here and never sent: no verdict, no name, no part of any count

    def __len__(self) -> int:
        return len(self.live_layers) + len(self._doomed)

    def push(self, layer: Layer) -> None:
        self.live_layers[layer.local_seq] = layer
        for doc in layer.docs():
            document = self._documents.hold(doc)
            self._changing(document)
            document.layers.append(layer)

    def live(self) -> tuple[Layer, ...]:
        return tuple(self.live_layers.values())

    def on(self, doc: DocKey) -> Iterator[Layer]:
        document = self._documents.get(doc)
        return iter(()) if document is None else iter(document.layers)

    def get(self, local_seq: int) -> Layer | None:
        return self.live_layers.get(local_seq) or self._doomed.get(local_seq)

    def shown(self, document: Document, value: MaybeValue) -> MaybeValue:
        """A document as this replica shows it: confirmed, with the live layers on top."""
        for layer in document.layers:
            value = layer.apply(document.key, value)
        return value

    def sent(self, layer: Layer) -> None:
        """It is on the wire: its verdict is owed."""
        self._wire[layer.local_seq] = layer

    def accepted(self, layer: Layer, seq: int) -> None:
        layer.fate, layer.seq = Fate.ACCEPTED, seq
        self._wire.pop(layer.local_seq, None)
        self._accepted[layer.local_seq] = layer

    def queued(self) -> list[Layer]:
        return [layer for layer in self.live_layers.values() if layer.fate is Fate.QUEUED]

    def keep_here(self, layer: Layer) -> None:
        """It is never sent: from now on it counts nowhere but in what is shown."""
        layer.fate = Fate.LOCAL
        del self.live_layers[layer.local_seq]
        self._local[layer.local_seq] = layer

    def local(self) -> list[Layer]:
        return list(self._local.values())

    def take_back(self, layer: Layer) -> None:
        """What stayed here gives way."""
        del self._local[layer.local_seq]
        self._lift(layer)
        layer.fate = Fate.DEAD

    def in_flight(self) -> int:
        """How many commits are on the wire without a verdict."""
        return len(self._wire)

    def undecided(self) -> list[Layer]:
        """Layers on the wire without a verdict, dead ones included, in order: what a reconnection replays."""
        return list(self._wire.values())

    def oldest(self) -> int | None:
        """The first layer that is still alive or owed a verdict."""
        first = [next(iter(layers)) for layers in (self.live_layers, self._wire) if layers]
        return min(first, default=None)

    def covered(self, seq: int) -> list[Layer]:
        """Take out the accepted layers that confirmed state at `seq` includes."""
        done = [layer for layer in self._accepted.values() if layer.seq <= seq]
        for layer in done:
            del self.live_layers[layer.local_seq], self._accepted[layer.local_seq]
            self._lift(layer)
        return done

    def confirmed(self, layers: list[Layer], seq: int, is_looked_at: bool) -> None:
        """Take out layers that are confirmed as they are. `is_looked_at`: a transaction may be open on them."""
        live = self.live_layers
        for layer in layers:
            layer.fate, layer.seq = _ACCEPTED, seq
            live.pop(layer.local_seq, None)
            document = layer.document
            if document is None or is_looked_at:
                self._lift(layer)
            elif len(document.layers) == 1:
                document.layers.clear()
            else:
                document.layers.remove(layer)

    def yielded(self, document: Document) -> list[Layer]:
        """Take out the layers that stay here, since there is a confirmed value in their place."""
        fallen = [layer for layer in document.layers if layer.fate is Fate.LOCAL]
        for layer in fallen:
            self.take_back(layer)
        return fallen

    def kill(self, layer: Layer, rejection: Rejection) -> list[Layer]:
        """C4: the layer is dead, and so is every live layer that stands on it, transitively. In order."""
        fallen: list[Layer] = []
        dead = {layer.local_seq}
        for other in tuple(self.live_layers.values()):
            if other is layer or (other.local_seq > layer.local_seq and other.named & dead):
                dead.add(other.local_seq)
                del self.live_layers[other.local_seq]
                self._lift(other)
                other.rejection = rejection if other is layer else Conflict(dead_layers=(layer.local_seq,))
                if other.fate is Fate.SENT and other is not layer:
                    # The engine has it or will get it, and must say no: its verdict is still owed.
                    self._doomed[other.local_seq] = other
                else:
                    self._wire.pop(other.local_seq, None)
                    self._accepted.pop(other.local_seq, None)
                other.fate = Fate.DEAD
                fallen.append(other)
        return fallen

    def bury(self, local_seq: int) -> Layer | None:
        """The verdict of a dead layer arrived."""
        self._wire.pop(local_seq, None)
        return self._doomed.pop(local_seq, None)

    def _lift(self, layer: Layer) -> None:
        """It is on its documents no more."""
        for doc in layer.docs():
            document = self._documents.get(doc)
            if document is not None:
                self._changing(document)
                document.layers.remove(layer)
