"""Layers: local commits that the engine has not confirmed yet, each with what it did here and how far it is.

Knows what it writes and what it stands on. Never decides what becomes of it; `Pending` and `Replica` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from headwater.data.address import DocKey
from headwater.data.patch import PatchError, Touch, apply
from headwater.data.path import Path, starts_with
from headwater.data.spots import Spot
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import InvariantViolation
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Rejection
from headwater.replica.difference import SAYS_ALL
from headwater.replica.document import Document
from headwater.replica.spans import Named

Settled = Callable[["Layer", "Rejection | None"], object]


class Fate(Enum):
    """How far a layer is on its way."""

    QUEUED = "queued"  # never left this process
    SENT = "sent"  # on the wire; the engine may have it
    ACCEPTED = "accepted"  # has a seq, which the confirmed state does not cover yet
    LOCAL = "local"  # derived without the right to write: stays here and yields to any confirmed value
    DEAD = "dead"  # will not land; if it was sent, its verdict is still to come


_QUEUED: Final = Fate.QUEUED


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
        "hops",
        "local_seq",
        "misfits",
        "node",
        "rejection",
        "seq",
        "settled",
        "source",
        "spots",
        "waits",
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
        self.hops = 0  # as in its provenance; they come back with the causes
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
        self._named: Named | None = None
        self.frame = 0  # the first local_seq of the frame it was sent in
        self.rejection: Rejection | None = None
        self.waits: set[Layer] | None = None  # layers of other replicas: it is sent when those are accepted

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
    def named(self) -> Named:
        """The layers it stands on."""
        if self._named is None:
            commit = self.commit
            self._named = Named([commit.after, *[read.layers for read in commit.reads]])
        return self._named

    def stands(self) -> bool:
        """Whether it stands on any."""
        commit = self.commit
        return bool(commit.after) or any(read.layers for read in commit.reads)

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

    def meets(self, other: Layer) -> bool:
        """Whether it writes where another one does, above or below."""
        return any(
            starts_with(path, place) or starts_with(place, path)
            for doc in self.docs()
            for place in other.written(doc)
            for path in self.written(doc)
        )

    def says_all(self, doc: DocKey) -> bool:
        """Whether a document is what this layer says, whatever is under it."""
        if self.document is not None:
            return False
        for operation in self.commit.operations:
            if operation.doc == doc:
                first = operation.patches[0]
                return first.kind == "add" and not first.path and len(operation.patches) == 1
        return False

    def covers(self, doc: DocKey, path: Path) -> bool:
        """Whether what is at a path in a document is what this layer makes, whatever is under it."""
        if self.document is not None:
            return self.document.key == doc
        return any(
            patch.kind in SAYS_ALL and starts_with(path, patch.path)
            for operation in self.commit.operations
            if operation.doc == doc
            for patch in operation.patches
        )

    def is_held(self) -> bool:
        """Whether it is to be sent later: it stands on a commit of another space that is not accepted."""
        # fault across.sent_at_once: return False
        return bool(self.waits) and self.fate is Fate.QUEUED

    def fits(self, doc: DocKey) -> bool:
        """Whether it shows something in a document as that is now."""
        # fault layer.misfit_named: return True
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
