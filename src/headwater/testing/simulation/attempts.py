"""The transactions of a simulated author, checked against the one snapshot that each may have seen.

A journal of each attempt is kept beside the replica's own: each read saw the value of the snapshot (C8), the declared
basis of the commit gives the values read (C3), its patches are the writes (C7). A layer that stays local, for want of
the right to write, never stands for itself: its readers depend on its inputs (C1). Changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, apply, remove, replace
from headwater.data.path import Path, starts_with
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from headwater.engine.verify import numbers, same, writes
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.verdict import Conflict, Rejection
from headwater.replica import NOT_HERE, Layer, NotHere, Replica, Transaction
from headwater.testing.simulation.oracle import Oracle, fits, folded
from headwater.testing.simulation.trace import Trace

PLAIN: Final = ("replace", "add", "remove")


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction that became a commit, or tried to, with the calls of its callbacks."""

    tag: str
    session: str
    local_seq: int = 0  # 0: it never became a layer
    commit: Commit | None = None
    seen: list[tuple[Read, MaybeValue]] = field(default_factory=list)  # each read, and the whole document it was of
    fired: int = 0
    seq: int = 0  # where it landed
    rejection: Rejection | None = None
    is_alone: bool = False  # its process died before it heard
    is_undone: bool = False  # the server was given an older state since
    made_at: int = 0  # the confirmed seq when it was made
    is_local: bool = False  # it stays here
    whole: DocKey | None = None  # it replaced this document
    is_yielded: bool = False  # it stayed local until another session wrote in its place
    written: list[tuple[DocKey, Patch]] = field(default_factory=list)  # by its author, unless it was derived


def whole_commit(local_seq: int, doc: DocKey, value: MaybeValue) -> Commit:
    """Return the commit of a replaced document, as long as its patches are not known."""
    patch = remove(()) if value is ABSENT else replace((), value)
    return Commit(local_seq, (Operation(doc, (patch,)),))


def stood_on(commit: Commit) -> set[int]:
    """The layers that a commit names."""
    return {number for read in commit.reads for number in numbers(read.layers)}


def wrote_plainly(commit: Commit, doc: DocKey, path: Path) -> bool:
    """Whether the value at a path is the one that this commit put there, regardless of the value before."""
    patches = [patch for operation in commit.operations if operation.doc == doc for patch in operation.patches]
    return any(patch.kind in PLAIN and starts_with(path, patch.path) for patch in patches)


class View:
    """The shown state at one moment: the log at a seq, and the layers on top of it."""

    __slots__ = ("_branch", "_oracle", "_trace", "_who", "basis", "layers")

    def __init__(self, who: str, replica: Replica, layers: Sequence[Attempt], oracle: Oracle, trace: Trace) -> None:
        self._who = who
        self._oracle = oracle
        self._trace = trace
        self._branch = replica.branch
        self.basis = replica.confirmed.seq
        self.layers = tuple(layers)

    def of(self, doc: DocKey, *, local: bool = True) -> MaybeValue:
        """Return a document. Without local layers it is the engine's, if all the others landed."""
        value = self._oracle.value(doc, self.basis, self._branch)
        for layer in self.layers:
            if layer.commit is not None and (local or not layer.is_local):
                value = folded(value, layer.commit, doc, lenient=True)
        return value

    def _misfits(self, doc: DocKey) -> set[int]:
        """The layers that show nothing in a document, although they write it."""
        value, found = self._oracle.value(doc, self.basis, self._branch), set()
        for layer in self.layers:
            if layer.commit is not None:
                if not fits(value, layer.commit, doc):
                    found.add(layer.local_seq)
                value = folded(value, layer.commit, doc, lenient=True)
        return found

    def committed(
        self,
        attempt: Attempt,
        commit: Commit,
        reads: Sequence[tuple[DocKey, Path, Depth]],
        after: dict[DocKey, MaybeValue],
    ) -> None:
        """Check C3: the declared basis of the commit gives the values seen, and its patches the values written."""
        broken = self._trace.broken
        attempt.commit, attempt.local_seq = commit, commit.local_seq
        inherited = self._inherited(attempt, commit, reads)
        told = {(read.doc, read.path, read.depth) for read in commit.reads}
        for doc, path, depth in reads:
            if (doc, path, depth) not in told:
                said = f"{attempt.tag} read {doc} at {path} and does not say so"
                broken("C3", self._who, said)
                attempt.seen.append((Read(doc, path, depth, self.basis), self.of(doc, local=False)))
        for read in commit.reads:
            if read in inherited:
                attempt.seen.append((read, inherited[read]))
            else:
                self._check_read(attempt, read)
        for operation in commit.operations:
            made = folded(self.of(operation.doc), commit, operation.doc, lenient=True)
            if not equal(made, after.get(operation.doc, ABSENT)):
                broken("C7", self._who, f"{attempt.tag} wrote {after.get(operation.doc)!r}, its patches {made!r}")

    def _check_read(self, attempt: Attempt, read: Read) -> None:
        broken = self._trace.broken
        whole = self.of(read.doc, local=False)
        attempt.seen.append((read, whole))
        if read.seq != self.basis:
            broken("C3", self._who, f"{attempt.tag} read at seq {self.basis} and says {read.seq}")
        layers = {layer.local_seq: layer.commit for layer in self.layers if layer.commit and not layer.is_local}
        misfits = self._misfits(read.doc)
        self._trace.counts["reads beside a layer that does not fit"] += bool(misfits)
        for local_seq in numbers(read.layers):
            if local_seq not in layers:
                broken("C4", self._who, f"{attempt.tag} names layer {local_seq}, which is not alive")
            elif local_seq in misfits and not self._is_covered(local_seq, read, misfits):
                # It may fit again when it is judged, and then it was not seen.
                broken("C3", self._who, f"{attempt.tag} names layer {local_seq}, which shows nothing in {read.doc}")
        if not same(self._named(read, layers), whole, read):
            broken("C3", self._who, f"{attempt.tag}: {read} does not name all it stood on")

    def _is_covered(self, local_seq: int, read: Read, misfits: set[int]) -> bool:
        """Whether a later layer wrote all that the read saw, so that the layers under it make no difference."""
        named = numbers(read.layers)
        return any(
            layer.local_seq > local_seq
            and (layer.is_local or layer.local_seq in named)
            and layer.local_seq not in misfits
            and layer.commit is not None
            and wrote_plainly(layer.commit, read.doc, read.path)
            for layer in self.layers
        )

    def _named(self, read: Read, layers: dict[int, Commit]) -> MaybeValue:
        """Return the value by the layers that a read names. One that fits only on others does not land alone."""
        named = {number for number in numbers(read.layers) if number in layers}
        while True:
            value, lacking = self._oracle.value(read.doc, read.seq, self._branch), set()
            for number in sorted(named):
                if not fits(value, layers[number], read.doc):
                    under = {other for other in layers if other < number and writes(layers[other], read.doc)} - named
                    lacking |= (under & stood_on(layers[number])) or under
                value = folded(value, layers[number], read.doc, lenient=True)
            if not lacking:
                return value
            named |= lacking

    def _inherited(
        self, attempt: Attempt, commit: Commit, reads: Sequence[tuple[DocKey, Path, Depth]]
    ) -> dict[Read, MaybeValue]:
        """Return the reads of local layers with their values: by C1 they are reads of every reader of the layers."""
        found: dict[Read, MaybeValue] = {}
        for layer in self.layers:
            if not layer.is_local or layer.commit is None:
                continue
            found.update(layer.seen)
            for doc, path, depth in reads:
                later = [other for other in self.layers if other.local_seq > layer.local_seq]
                if any(other.whole == doc for other in later):
                    continue  # that one stands for its inputs, and so do its reads
                others = [other for other in self.layers if other is not layer]
                if same(self._without(doc, others), self.of(doc), Read(doc, path, depth, self.basis)):
                    continue
                self._trace.counts["reads through a layer kept here"] += 1
                if not set(layer.commit.reads) <= set(commit.reads):
                    said = f"{attempt.tag} looked at layer {layer.local_seq}, which stays here, not at what made it"
                    self._trace.broken("C1", self._who, said)
        return found

    def _without(self, doc: DocKey, layers: Sequence[Attempt]) -> MaybeValue:
        value = self._oracle.value(doc, self.basis, self._branch)
        for layer in layers:
            if layer.commit is not None:
                value = folded(value, layer.commit, doc, lenient=True)
        return value


class CheckedTransaction:
    """A transaction whose every read is compared with the one snapshot it may see."""

    __slots__ = ("_overlay", "_reads", "_trace", "_view", "_who", "_written", "transaction")

    def __init__(self, transaction: Transaction, view: View, who: str, trace: Trace) -> None:
        self.transaction = transaction
        self._trace = trace
        self._who = who
        self._view = view
        self._overlay: dict[DocKey, MaybeValue] = {}
        self._reads: dict[tuple[DocKey, Path, Depth], None] = {}
        self._written: list[tuple[DocKey, Patch]] = []  # as its author wrote it

    def read(self, doc: DocKey, path: Path = (), depth: Depth = Depth.DEEP) -> MaybeValue:
        value = self.transaction.read(doc, path, depth)
        if doc not in self._overlay:
            self._reads[doc, path, depth] = None
        shown = self._overlay[doc] if doc in self._overlay else self._view.of(doc)
        expected = lookup(shown, path)
        if not equal(value, expected):
            self._trace.broken("C8", self._who, f"{doc} at {path} read {value!r}, its snapshot has {expected!r}")
        return value

    def write(self, doc: DocKey, *patches: Patch) -> None:
        self.transaction.write(doc, *patches)
        self._written += [(doc, patch) for patch in patches]
        value = self._overlay[doc] if doc in self._overlay else self._view.of(doc)
        for patch in patches:
            value = apply(value, patch)[0]
        self._overlay[doc] = value

    def answered(self, attempt: Attempt, found: Layer | Rejection | None) -> None:
        """Check the immediate answer of `Replica.commit`: a layer, a refusal with its reason, or that there is nothing
        to tell.
        """
        broken, transaction = self._trace.broken, self.transaction
        wrote = any(not equal(value, self._view.of(doc)) for doc, value in self._overlay.items())
        tells = wrote or bool(transaction.preconditions or transaction.events or transaction.records)
        attempt.written = [] if transaction.derived else self._written
        tells = tells or any(self._is_said(doc, patch) for doc, patch in attempt.written)
        if isinstance(found, Layer):
            self._view.committed(attempt, found.commit, tuple(self._reads), self._overlay)
            if transaction.local_seq != found.local_seq:
                broken("C5", self._who, f"{attempt.tag} is layer {found.local_seq}, not {transaction.local_seq}")
            if not tells and not self._view.layers:
                broken("C9", self._who, f"{attempt.tag} changed nothing and became a layer")
            return
        if attempt.fired != 1:
            broken("callbacks", self._who, f"{attempt.tag} was over at once and was settled {attempt.fired} times")
        if found is None and tells:
            broken("C6", self._who, f"{attempt.tag} had something to tell and was not sent")
        if isinstance(found, Conflict) and not (found.collisions or found.dead_layers):
            broken("C4", self._who, f"{attempt.tag} was refused here without a reason")

    def _is_said(self, doc: DocKey, patch: Patch) -> bool:
        """Whether a write is told although it changes nothing here: any but one of an object, told by its fields."""
        return patch.kind not in PLAIN or not isinstance(lookup(self._overlay[doc], patch.path), dict)


class CheckedWhole:
    """One document that is replaced, having looked at some spots: no transaction."""

    __slots__ = ("_replica", "_trace", "_view", "_who", "doc", "spots", "value")

    def __init__(self, doc: DocKey, replica: Replica, view: View, who: str, trace: Trace) -> None:
        self.doc = doc
        self.value: MaybeValue = ABSENT
        self.spots: list[Spot | None] = []
        self._replica = replica
        self._view = view
        self._who = who
        self._trace = trace

    def read(self, doc: DocKey, path: Path = (), depth: Depth = Depth.DEEP) -> MaybeValue:
        document = self._replica.documents.of(doc)
        if document.value is NOT_HERE:
            raise NotHere(doc)
        value, expected = lookup(document.value, path), lookup(self._view.of(doc), path)
        if not equal(value, expected):
            self._trace.broken("C8", self._who, f"{doc} at {path} is {value!r}, what is shown has {expected!r}")
        self.spots.append(Spot(document, path, depth))
        return value

    def made(self, attempt: Attempt, layer: Layer) -> None:
        """Note that it is shown from now on."""
        attempt.local_seq, attempt.whole = layer.local_seq, self.doc
        attempt.commit = whole_commit(layer.local_seq, self.doc, self.value)

    def check(self, attempt: Attempt, layer: Layer) -> None:
        """Check the commit of the layer as those of transactions are checked."""
        # The document of a spot is one of this replica's: those of other spaces are not simulated.
        reads = [(spot.document.key, spot.path, spot.depth) for spot in self.spots if spot is not None]  # type: ignore[attr-defined]
        self._view.committed(attempt, layer.commit, reads, {self.doc: self.value})
        if layer.commit.provenance.node != attempt.tag:
            self._trace.broken("I8", self._who, f"{attempt.tag} is told as of {layer.commit.provenance.node!r}")
