"""A transaction: one snapshot, a journal of what was read, a journal of what was written.

Reads and writes see the snapshot with this transaction's own writes on top (C8). What was read through an own
write is not a read. At the end the journals become a commit: minimal patches, and reads that say exactly what
they stood on (C3). Touches nothing outside itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.data.address import Depth, DocKey
from headwater.data.diff import diff
from headwater.data.patch import DESCRIPTORS, Patch, Touch, apply
from headwater.data.path import Path, lookup, starts_with
from headwater.data.spots import Spot
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError
from headwater.protocol.commit import (
    Commit,
    Operation,
    Precondition,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
)
from headwater.replica.confirmed import NotHere
from headwater.replica.document import NOT_HERE, Document, Documents, NotLoaded
from headwater.replica.pending import Fate, Layer

PLAIN = frozenset({"replace", "add", "remove"})
"""Kinds that say what the document is afterwards, whatever it was: these can be told as a difference."""


class Transaction:
    """One run's view and journals. Made by `Replica.begin`, finished by `Replica.commit` or dropped."""

    __slots__ = (
        "__weakref__",
        "_kept",
        "_overlay",
        "_patches",
        "_reads",
        "_stood",
        "attempted",
        "basis",
        "causes",
        "derived",
        "documents",
        "events",
        "finished",
        "group",
        "leans",
        "local_seq",
        "node",
        "oldest",
        "preconditions",
        "records",
        "source",
        "trigger",
    )

    def __init__(
        self,
        documents: Documents,
        basis: int,
        *,
        source: object | None = None,
        group: object | None = None,
        node: str = "",
        derived: bool = False,
    ) -> None:
        self.documents = documents
        self._kept: dict[DocKey, tuple[MaybeValue | NotLoaded, tuple[Layer, ...]]] = {}
        self._overlay: dict[DocKey, MaybeValue] = {}
        self._patches: dict[DocKey, list[tuple[Patch, tuple[Touch, ...]]]] = {}
        self._reads: dict[tuple[DocKey, Path, Depth], None] = {}
        self._stood: dict[Layer, None] = {}  # what the commit names, as objects
        self.basis = basis
        self.source = source
        self.group = group
        self.node = node
        self.derived = derived
        self.attempted: list[tuple[DocKey, Path]] = []  # evidence for labels, never for scheduling
        self.causes: tuple[tuple[DocKey, Path], ...] = ()  # trigger reads: why this run exists
        self.trigger: Mapping[Spot, object] | None = None  # the same as objects; comes back if it is rejected
        self.preconditions: list[Precondition] = []
        self.events: list[SentEvent] = []
        self.records: list[TopicRecord] = []
        self.local_seq = 0  # set when it becomes a layer: what an `origin_committed` names
        self.oldest = 0  # the first layer that was there when it began, and that it may name
        self.leans = False  # on a layer's removal: then it is told even if it writes nothing
        self.finished = False

    def keep(self, document: Document) -> None:
        """C8: a document is about to be shown differently; this transaction goes on with what it was."""
        if document.key not in self._kept:
            self._kept[document.key] = (document.value, _showing(document))

    # ---- reading -----------------------------------------------------------------------------------

    def read(self, doc: DocKey, path: Path = (), depth: Depth = Depth.DEEP) -> MaybeValue:
        """The value at a path. Raises NotHere when the document has not arrived yet."""
        self._check_open()
        if doc in self._overlay:
            if not self._covered(doc, path):
                self._reads[doc, path, depth] = None
            return lookup(self._overlay[doc], path)
        value = self._base(doc)
        self._reads[doc, path, depth] = None
        return lookup(value, path)

    def saw(self, doc: DocKey, path: Path, depth: Depth) -> None:
        """Note a read whose value was looked up elsewhere, in the same snapshot."""
        if doc not in self._overlay or not self._covered(doc, path):
            self._reads[doc, path, depth] = None

    def peek(self, doc: DocKey, path: Path = ()) -> MaybeValue:
        """The same without a trace: for resolving bindings, which are no reads."""
        value = self._overlay[doc] if doc in self._overlay else self._base(doc)
        return lookup(value, path)

    def _base(self, doc: DocKey) -> MaybeValue:
        """C8: what was shown when the transaction began, whatever arrived since."""
        kept = self._kept.get(doc)
        if kept is not None:
            value = kept[0]
        else:
            document = self.documents.get(doc)
            value = NOT_HERE if document is None else document.value
        if value is NOT_HERE:
            raise NotHere(doc)
        return value

    def written_docs(self) -> tuple[DocKey, ...]:
        """The documents that this transaction has its own view of."""
        return tuple(self._overlay)

    def _covered(self, doc: DocKey, path: Path) -> bool:
        """Whether what is at the path was put there by a plain write of this very transaction."""
        return any(patch.kind in PLAIN and starts_with(path, patch.path) for patch, _ in self._patches.get(doc, ()))

    # ---- writing -----------------------------------------------------------------------------------

    def write(self, doc: DocKey, *patches: Patch) -> None:
        """Change a document in this transaction's view. Raises PatchError where a patch does not fit."""
        self._check_open()
        value = self._overlay[doc] if doc in self._overlay else self._base(doc)
        made: list[tuple[Patch, tuple[Touch, ...]]] = []
        for patch in patches:
            self.attempted.append((doc, patch.path))
            value, touched = apply(value, patch)
            # What a pending layer already says is still said: the layer may fall, and this must not fall with it.
            if touched or self.stood_on(doc, patch.path):
                made.append((patch, touched))
        self._patches.setdefault(doc, []).extend(made)
        self._overlay[doc] = value

    def _check_open(self) -> None:
        if self.finished:
            raise AuthoringError("this transaction is over. Begin another one.")

    # ---- becoming a commit -------------------------------------------------------------------------

    def operations(self) -> tuple[Operation, ...]:
        """What was written, as few and as small patches as say it."""
        operations = []
        for doc, journal in self._patches.items():
            if not journal:
                continue
            if all(patch.kind in PLAIN for patch, _ in journal):
                patches = self._difference(doc, [patch.path for patch, _ in journal])
            else:
                patches = tuple(patch for patch, _ in journal)
            if patches:
                operations.append(Operation(doc, patches))
        return tuple(operations)

    def _difference(self, doc: DocKey, written: list[Path]) -> tuple[Patch, ...]:
        """What plain writes changed; and what they repeated of pending layers, which may fall without them."""
        patches, leaning = difference(
            doc, self._base(doc), self._overlay[doc], [(path, self.stood_on(doc, path)) for path in written]
        )
        for path in leaning:
            # That something is not there cannot be said again: this stands on the layer that took it away.
            self._reads[doc, path, Depth.SHAPE] = None
            self.leans = True
        return patches

    def reads(self) -> tuple[Read, ...]:
        """C3: every read with its true basis, and with every pending layer that its view stood on."""
        # C3: the one seq that everything here is as of, and every layer that had a say.
        reads: dict[Read, None] = {}
        for doc, path, depth in self._reads:
            under = sent_ones(self.stood_on(doc, path), reads)
            self._stood.update(dict.fromkeys(under))
            reads[Read(doc, path, depth, self.basis, ranges([layer.local_seq for layer in under]))] = None
        return tuple(reads)

    def stood_on(self, doc: DocKey, path: Path) -> list[Layer]:
        """The layers that may have had a say in what is at a path."""
        kept = self._kept.get(doc)
        if kept is None:
            document = self.documents.get(doc)
            return [] if document is None else overlapping(doc, path, _showing(document))
        return overlapping(doc, path, kept[1])

    def dead(self) -> tuple[int, ...]:
        """What the commit names and is dead by now."""
        return tuple(layer.local_seq for layer in self._stood if layer.fate is Fate.DEAD)

    def is_empty(self) -> bool:
        """Nothing the engine has to know: a transaction that only looked, or wrote what was there."""
        return not (self.preconditions or self.events or self.records or self.operations())

    def commit(self, local_seq: int, branch: str) -> Commit:
        return Commit(
            local_seq,
            self.operations(),
            self.reads(),
            tuple(self.preconditions),
            branch,
            tuple(self.events),
            tuple(self.records),
            Provenance(self.node, "", self.causes, self.derived),
        )

    def read_set(self) -> tuple[tuple[DocKey, Path, Depth], ...]:
        """Everything that was looked at, in order of first look."""
        return tuple(self._reads)


def _showing(document: Document) -> tuple[Layer, ...]:
    """The layers on a document that show something in it now."""
    return tuple(layer for layer in document.layers if layer.fits(document.key))


def sent_ones(layers: list[Layer], reads: dict[Read, None]) -> list[Layer]:
    """Those of the layers that the engine hears of. Of the others, what they were made of is added to the reads.

    C1: what stays here is a function of what it read. Whoever looks at it depends on that.
    """
    for layer in layers:
        if layer.fate is Fate.LOCAL:
            reads.update(dict.fromkeys(layer.commit.reads))
    return [layer for layer in layers if layer.fate is not Fate.LOCAL]


def overlapping(doc: DocKey, path: Path, layers: Sequence[Layer]) -> list[Layer]:
    """The layers that may have had a say in what is at a path. Inside an array every change of it has (C2).

    By what they write, not by what they touched when they were made: under another confirmed state a layer
    that changed nothing here may change something there.
    """
    if not layers:
        return []
    whole = _outside_arrays(path)
    return [
        layer
        for layer in layers
        if any(starts_with(written, whole) or starts_with(whole, written) for written in layer.written(doc))
    ]


def difference(
    doc: DocKey, before: MaybeValue, after: MaybeValue, written: list[tuple[Path, list[Layer]]]
) -> tuple[tuple[Patch, ...], list[Path]]:
    """What plain writes at these places changed, with what they repeated of the layers that were written there.

    And the places where they repeat that nothing is there, which no patch can say.
    """
    patches = list(diff(before, after))
    leaning: list[Path] = []
    for path, layers in written:
        for layer in layers:
            for theirs in layer.written(doc):
                at = _outside_arrays(theirs if starts_with(theirs, path) else path)
                value = lookup(after, at)
                if value is ABSENT:
                    leaning.append(at)
                elif not any(starts_with(at, patch.path) for patch in patches):
                    patches[:] = [patch for patch in patches if not starts_with(patch.path, at)]
                    patches.append(Patch("add", at, value))
    return tuple(patches), leaning


def _outside_arrays(path: Path) -> Path:
    """The path up to the outermost array on it, since positions in an array shift."""
    cut = next((place for place, step in enumerate(path) if type(step) is int), None)
    return path if cut is None else path[:cut]


def ranges(local_seqs: list[int]) -> tuple[tuple[int, int], ...]:
    """Rising numbers as inclusive ranges."""
    ranges: list[tuple[int, int]] = []
    for number in local_seqs:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


assert DESCRIPTORS.keys() >= PLAIN, "a plain kind has no descriptor"
