"""A transaction: one snapshot, a journal of reads and a journal of writes.

Reads and writes see the snapshot with this transaction's own writes on top (C8). A read of a value that the transaction
wrote itself is not a read. At the end the journals become a commit: minimal patches, and reads that name exactly the
layers that they stood on (C3). A transaction changes nothing outside itself.

A write that changes nothing in this view is still a write: the state to which the commit is applied may differ. So an
equal value and an intent without effect are sent, unless the transaction is derived; admission finds that they change
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from headwater.data.address import Depth, DocKey
from headwater.data.diff import aligned
from headwater.data.patch import DESCRIPTORS, Patch, Touch, apply
from headwater.data.path import Path, starts_with
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue, Value, equal, lookup
from headwater.errors import AuthoringError
from headwater.protocol.commit import (
    Commit,
    Declared,
    Delivered,
    EntityAbsent,
    Operation,
    Precondition,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
)
from headwater.replica.confirmed import Documents, NotHere
from headwater.replica.document import NOT_HERE, Document, TierEntry
from headwater.replica.minimal_patches import SAYS_ALL, difference, is_within
from headwater.replica.number_ranges import ranges, united
from headwater.replica.pending import NOTHING, Fate, Layer, StandsOn, having_a_say, is_written, outside_arrays

PLAIN = frozenset({"replace", "add", "remove"})
"""Kinds that set the result at their path, whatever was there: these can be sent as a difference."""
BEHIND: Final[Path] = ("@behind",)
"""A path in every document that holds no value. A read of it only names the layers after which its commit must land."""


class Transaction:
    """The view and the journals of one run. Made by `Replica.begin`, finished by `Replica.commit` or dropped."""

    __slots__ = (
        "__weakref__",
        "_anchors",
        "_behind",
        "_computed",
        "_created",
        "_dead",
        "_kept",
        "_narrowed",
        "_overlay",
        "_own",
        "_patches",
        "_plain",
        "_reads",
        "attempted",
        "basis",
        "causes",
        "declared",
        "delivered",
        "derived",
        "documents",
        "events",
        "finished",
        "group",
        "handled",
        "hops",
        "leans",
        "local_seq",
        "node",
        "oldest",
        "preconditions",
        "reads_back",
        "records",
        "source",
        "trigger",
        "waits",
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
        self._kept: dict[DocKey, _Kept] = {}
        self._created: dict[DocKey, Value] = {}  # documents created without being read
        self._overlay: dict[DocKey, MaybeValue] = {}
        self._computed: dict[Document, MaybeValue] = {}  # derived values in this view only, of any space
        self._anchors: dict[DocKey, MaybeValue] = {}  # of documents with intents: the value after the last one
        self._narrowed: set[DocKey] = set()  # documents of which plain writes removed something
        self._patches: dict[DocKey, list[tuple[Patch, tuple[Touch, ...]]]] = {}
        self._plain: dict[DocKey, set[Path]] = {}  # the paths of the plain writes among them
        self._reads: dict[tuple[DocKey, Path, Depth], None] = {}
        self._own: dict[tuple[DocKey, Path, Depth], None] = {}  # reads of values that the transaction wrote itself
        self._behind: dict[DocKey, dict[Layer, None]] = {}  # per document, layers after which the commit must land
        self._dead: dict[int, None] = {}  # layers that the commit names and that are dead by now
        self.basis = basis
        self.source = source
        self.group = group
        self.node = node
        self.derived = derived
        self.attempted: list[tuple[DocKey, Path]] = []  # evidence for labels, never for scheduling
        self.causes: tuple[tuple[DocKey, Path], ...] = ()  # the changed reads that caused this run
        self.hops = 0  # as in its provenance
        self.trigger: Mapping[Spot, object] | None = None  # the causes as objects; they come back if it is rejected
        self.preconditions: list[Precondition] = []
        self.events: list[SentEvent] = []
        self.handled: list[str] = []  # stored events that this commit ends
        self.records: list[TopicRecord] = []
        self.delivered: list[Delivered] = []  # records whose targets this commit advances
        self.declared: dict[str, Declared] = {}  # reactions to its records, by name
        self.local_seq = 0  # set when it becomes a layer: the number that an `origin_committed` names
        self.oldest = 0  # the first layer that existed at its beginning, and that it may name
        self.leans = False  # True: its reads have to be checked even if it writes nothing
        self.reads_back = not derived  # fields of a set value that the commit leaves out count as reads
        self.waits: tuple[Layer, ...] = ()  # layers of other spaces without a verdict that were read
        self.finished = False

    def keep(self, document: Document) -> None:
        """Keep a document as it is, before it is shown differently (C8)."""
        # fault transaction.snapshot_not_kept: if False:
        if document.key not in self._kept:
            self._kept[document.key] = _Kept(document)

    # ---- reading -----------------------------------------------------------------------------------

    def read(self, doc: DocKey, path: Path = (), depth: Depth = Depth.DEEP) -> MaybeValue:
        """Return the value at a path. Raises NotHere if the document has not arrived yet."""
        self._check_open()
        if doc in self._overlay:
            self.saw(doc, path, depth)
            return lookup(self._overlay[doc], path)
        value = self._base(doc)
        self._reads[doc, path, depth] = None
        return lookup(value, path)

    def saw(self, doc: DocKey, path: Path, depth: Depth) -> None:
        """Record a read whose value was looked up elsewhere, in the same snapshot."""
        is_own = doc in self._overlay and self._covered(doc, path)
        (self._own if is_own else self._reads)[doc, path, depth] = None

    def peek(self, doc: DocKey, path: Path = ()) -> MaybeValue:
        """Return the value at a path without recording a read: for resolving bindings, which are no reads."""
        value = self._overlay[doc] if doc in self._overlay else self._base(doc)
        return lookup(value, path)

    def show_computed(self, document: Document, value: MaybeValue) -> None:
        """Show a derived value in this transaction only. It is not written, and `look_up` finds it."""
        self._computed[document] = value

    def look_up(self, document: Document) -> MaybeValue:
        """Return the value of a document of any space in this view, without recording a read."""
        if document in self._computed:
            return self._computed[document]
        # fault transaction.spaces_mixed_up: if True:
        if self.documents.get(document.key) is document:
            return self.peek(document.key)
        if document.value is NOT_HERE:
            raise NotHere(document.key)
        return document.value

    def forget_computed(self) -> list[Document]:
        """Forget the derived values of `show_computed`, and return their documents."""
        documents = list(self._computed)
        self._computed.clear()
        return documents

    def touches(self, doc: DocKey) -> Iterator[Touch]:
        """Return the places of a document that this transaction has changed so far."""
        return (touch for _, touches in self._patches.get(doc, ()) for touch in touches)

    def _base(self, doc: DocKey) -> MaybeValue:
        """Return the value shown when the transaction began, whatever has arrived since (C8)."""
        kept = self._kept.get(doc)
        if kept is not None:
            value = kept.value
        else:
            document = self.documents.get(doc)
            value = NOT_HERE if document is None else document.value
        if value is NOT_HERE:
            raise NotHere(doc)
        return value

    def written_docs(self) -> tuple[DocKey, ...]:
        """Return the documents that this transaction has written, and so has its own view of."""
        return tuple(self._overlay)

    def stand_on_written(self) -> None:
        """Count written values that were there already as reads (C1): a derived commit does not send them again.

        Another runtime may have derived the value from different inputs, and its commit may come first. Then this
        commit is rejected, and its node runs again.
        """
        for doc, path in dict.fromkeys(self.attempted):
            before, after = lookup(self._base(doc), path), lookup(self._overlay[doc], path)
            is_there = before is not ABSENT and after is not ABSENT
            if is_there and (isinstance(after, (dict, tuple)) or equal(before, after)):
                self._reads[doc, outside_arrays(path), Depth.DEEP] = None

    def _covered(self, doc: DocKey, path: Path) -> bool:
        """Return True if a plain write of this transaction put the value at the path."""
        return doc in self._plain and is_within(path, self._plain[doc])

    # ---- writing -----------------------------------------------------------------------------------

    def write(self, doc: DocKey, *patches: Patch) -> None:
        """Change a document in this transaction's view. Raises PatchError if a patch does not fit."""
        self._check_open()
        value = self._overlay[doc] if doc in self._overlay else self._base(doc)
        made: list[tuple[Patch, tuple[Touch, ...]]] = []
        for patch in patches:
            self.attempted.append((doc, patch.path))
            is_plain = patch.kind in PLAIN
            # fault transaction.intents_on_own_writes_sent: if False:
            if not is_plain and self._covered(doc, patch.path):
                patch = _settled(value, patch)  # noqa: PLW2901
                is_plain = patch.kind in PLAIN
            if patch.arg.__class__ is dict and is_plain:
                patch = patch._replace(arg=aligned(lookup(value, patch.path), patch.arg))  # noqa: PLW2901
            before = value
            value, touched = apply(value, patch)
            if not is_plain:
                self._anchors[doc] = value
            elif touched and (doc in self._narrowed or _is_narrower(patch, before)):
                # Plain writes are sent as one difference: a key that it removes and writes again stays in its place.
                self._narrowed.add(doc)
                # fault transaction.order_of_journal_shown: pass
                value = value if value is ABSENT else aligned(self._anchor(doc), value)
            # A value that a pending layer wrote is written again: the layer may be rejected, and this write must stay.
            # fault transaction.equal_writes_left_out: if touched or self.stood_on(doc, patch.path):
            if touched or not self.derived or self.stood_on(doc, patch.path):
                made.append((patch, touched))
        self._patches.setdefault(doc, []).extend(made)
        if plain := [patch.path for patch, _ in made if patch.kind in PLAIN]:
            self._plain.setdefault(doc, set()).update(plain)
        self._overlay[doc] = value

    def _anchor(self, doc: DocKey) -> MaybeValue:
        """Return the value before the plain writes that are sent as one difference: after the last intent, if any."""
        return self._anchors[doc] if doc in self._anchors else self._base(doc)

    def stand_behind(self, doc: DocKey, layers: Sequence[Layer]) -> None:
        """Land after these layers, which wrote a document, or fall with them (C4). No value of them is read."""
        self._behind.setdefault(doc, {}).update(dict.fromkeys(layers))

    def create(self, doc: DocKey, value: Value) -> None:
        """Create a document under the condition that it never existed. It need not be here, and is not read."""
        self._check_open()
        self.preconditions.append(EntityAbsent(doc))
        self._created[doc] = value

    def _check_open(self) -> None:
        if self.finished:
            raise AuthoringError("this transaction is over. Begin another one.")

    # ---- becoming a commit -------------------------------------------------------------------------

    def operations(self) -> tuple[Operation, ...]:
        """Return the writes, with as few and as small patches as possible."""
        operations = []
        for doc, journal in self._patches.items():
            if not journal:
                continue
            if doc in self._anchors:
                patches = tuple([patch for patch, _ in journal])
                if doc in self._plain:
                    patches = self._differences(doc, patches)
            else:
                written = [patch.path for patch, _ in journal]
                patches = self._difference(doc, self._base(doc), self._overlay[doc], written)
            if patches:
                operations.append(Operation(doc, patches))
        operations += [Operation(doc, (Patch("add", (), value),)) for doc, value in self._created.items()]
        return tuple(operations)

    def _differences(self, doc: DocKey, journal: Iterable[Patch]) -> tuple[Patch, ...]:
        """Return the intents of a journal, with the changes of the plain writes before, between and after them."""
        # fault+ transaction.mixed_journals_sent: return tuple(journal)
        before = after = self._base(doc)
        made: list[Patch] = []
        written: list[Path] = []
        for patch in journal:
            if patch.kind in PLAIN:
                after, _ = apply(after, patch)
                written.append(patch.path)
                continue
            made += self._difference(doc, before, after, written) if written else ()
            written = []
            made.append(patch)
            after, _ = apply(after, patch)
            before = after
        made += self._difference(doc, before, after, written) if written else ()
        return tuple(made)

    def made_of(self, operation: Operation, before: MaybeValue) -> tuple[MaybeValue, tuple[Touch, ...]] | None:
        """Return what an operation of the commit makes of a value, with the places. None: not known without trying.

        Patches that are sent as they were applied make the same again of the value that they were applied to.
        """
        doc, patches = operation.doc, operation.patches
        journal = self._patches.get(doc)
        # fault transaction.patches_applied_to_other_values: if journal is None or len(journal) != len(patches):
        if journal is None or len(journal) != len(patches) or self._base(doc) is not before:
            return None
        touched: tuple[Touch, ...] = ()
        for patch, (applied, more) in zip(patches, journal, strict=True):
            # An `add` to a key that is there is sent as the `replace` that it is.
            is_same = patch.kind == applied.kind or (patch.kind in SAYS_ALL and applied.kind in SAYS_ALL)
            if not is_same or patch.path != applied.path or patch.arg is not applied.arg:
                return None
            touched += more
        return self._overlay[doc], touched

    def _difference(self, doc: DocKey, before: MaybeValue, after: MaybeValue, written: list[Path]) -> tuple[Patch, ...]:
        """Return the changes of plain writes, and the values of pending layers that they repeat and that may fall.

        Unless the transaction is derived, writes of equal values are kept as well: an equal value is written again, and
        an equal element of an array, which has no path of its own, becomes a read. An object is written by its fields.
        """
        places = {outside_arrays(path): self._repeated(doc, outside_arrays(path)) for path in written}
        for path, (is_repeated, _) in () if self.reads_back or self.derived else places.items():
            # fault transaction.repeated_objects_unread: if False:
            if is_repeated and type(lookup(before, path)) is type(lookup(after, path)) is dict:
                # It is sent as a whole, and would take fields away that other sessions wrote and this one did not see.
                self._reads[doc, path, Depth.DEEP] = None
        # fault transaction.equal_values_left_out: for path in ():
        for path in () if self.derived else dict.fromkeys(written):
            value, place = lookup(after, path), outside_arrays(path)
            if type(value) is dict or not equal(lookup(before, path), value):
                continue
            if place == path:
                places[path] = (True, [])
            else:
                self._reads[doc, place, Depth.DEEP] = None
                self.leans = True
        return difference(
            before,
            after,
            [(path, *repeated) for path, repeated in places.items()],
            lambda path: self._has_read(doc, path) or _is_inside(path, written),
        )

    def _has_read(self, doc: DocKey, path: Path) -> bool:
        """Return True if the transaction stands on everything at a path."""
        return any((doc, path[:length], Depth.DEEP) in self._reads for length in range(len(path) + 1))

    def reads(self) -> tuple[Read, ...]:
        """Return every read with its true basis, and with every pending layer that its view stood on (C3)."""
        # C3: the one seq of all documents here, and every layer that may have contributed.
        reads: dict[Read, None] = {}
        for doc, path, depth in self._sources(reads):
            # fault+ transaction.shape_reads_dropped: if depth is Depth.SHAPE: continue
            under = self.stood_on(doc, path)
            for local in under.local:
                # fault transaction.local_reads_dropped: pass
                reads.update(dict.fromkeys(local.commit.reads))  # C1: the layer is a function of these.
            self._dead.update(dict.fromkeys(under.dead))
            # fault+ transaction.top_layer_only: under = under._replace(spans=ranges([n for _, n in under.spans[-1:]]))
            reads[Read(doc, path, depth, self.basis, under.spans)] = None
        for doc, layers in self._behind.items():
            named = ranges(sorted(layer.local_seq for layer in layers))
            # C3: a layer that replaced the document wrote this path, too; not naming it would be a conflict.
            under = self.stood_on(doc, BEHIND)
            self._dead.update(dict.fromkeys(under.dead))
            reads[Read(doc, BEHIND, Depth.SHAPE, self.basis, tuple(united([named, under.spans])))] = None
        return tuple(reads)

    def _sources(self, reads: dict[Read, None]) -> Iterable[tuple[DocKey, Path, Depth]]:
        """Return the recorded reads, with the reads that results were computed from in place of the results (C1).

        A result may never be sent as it was seen, so that no commit can name it. Reads of the result of a stopped node
        have a basis of their own, and are added to `reads`.
        """
        # fault transaction.results_named: return self._reads
        found: dict[tuple[DocKey, Path, Depth], None] = {}
        seen: set[TierEntry] = set()
        waiting = list(self._reads)[::-1]
        while waiting:
            place = waiting.pop()
            entry = self._entry(place[0])
            if entry is None:
                found[place] = None
            elif entry not in seen:
                seen.add(entry)
                reads.update(dict.fromkeys(entry.reads or ()))
                for spot in entry.spots:
                    source = None if spot is None else cast(Document, spot.document)
                    if spot is not None and source is not None and source.home is entry.document.home:
                        waiting.append((source.key, spot.path, spot.depth))
        return found

    def _entry(self, doc: DocKey) -> TierEntry | None:
        """Return the result that the snapshot showed of a document."""
        kept = self._kept.get(doc)
        if kept is not None:
            return kept.entry
        document = self.documents.get(doc)
        return None if document is None else document.entry

    def stood_on(self, doc: DocKey, path: Path) -> StandsOn:
        """Return the layers that may have contributed to the value at a path."""
        kept = self._kept.get(doc)
        if kept is not None:
            return kept.under(path)
        document = self.documents.get(doc)
        if document is None or not document.layers:
            return NOTHING
        home = document.home
        # fault+ transaction.basis_of_top_layer: self.basis = max([self.basis, *[each.seq for each in document.layers]])
        return home.pending.under(document, path, home.next_local_seq)

    def _repeated(self, doc: DocKey, path: Path) -> tuple[bool, list[Path]]:
        kept = self._kept.get(doc)
        if kept is not None:
            return kept.repeated(path)
        document = self.documents.get(doc)
        if document is None or not document.layers:
            return False, []
        home = document.home
        return home.pending.repeated(document, path, home.next_local_seq)

    def dead(self) -> tuple[int, ...]:
        """Return the layers that the commit names and that are dead by now."""
        return tuple(self._dead)

    def is_empty(self) -> bool:
        """Return True if the engine need not know of the transaction: it only read, or wrote equal values."""
        sends = self.events or self.records or self.handled or self.delivered
        return not (self.preconditions or sends or self.operations())

    def commit(self, local_seq: int, branch: str) -> Commit:
        operations = self.operations()
        self._look_again(operations)
        return Commit(
            local_seq,
            operations,
            self.reads(),
            tuple(self.preconditions),
            branch,
            tuple(self.events),
            tuple(self.records),
            Provenance(self.node, getattr(self.source, "fingerprint", ""), self.causes, self.derived, self.hops),
            (),
            tuple(self.handled),
            tuple(self.delivered),
            tuple(self.declared.values()),
        )

    def _look_again(self, operations: tuple[Operation, ...]) -> None:
        """Turn reads of own writes into reads where the write, sent as a difference, has no patch there (C1)."""
        told = {operation.doc: operation.patches for operation in operations}
        for doc, path, depth in self._own:
            if not any(patch.kind in PLAIN and starts_with(path, patch.path) for patch in told.get(doc, ())):
                self._reads[doc, path, depth] = None
                self.leans = self.leans or self.reads_back

    def read_set(self) -> tuple[tuple[DocKey, Path, Depth], ...]:
        """Return all recorded reads in the order of the first read."""
        return tuple(self._reads)


class _Kept:
    """A document as it was shown before it changed. Its layers are searched one by one: that is rarely necessary.

    The kept list of layers only grows: `Pending` removes a layer from a copy of the list while a transaction is open.
    """

    __slots__ = ("_count", "_document", "_hidden", "_layers", "entry", "value")

    def __init__(self, document: Document) -> None:
        self._document = document
        self._layers: Sequence[Layer] = document.layers
        self._count = len(document.layers)
        self._hidden = document.wrote.hidden if document.wrote is not None else ()
        self.value = document.value
        self.entry = document.entry

    def _written(self, path: Path) -> list[Layer]:
        hidden, whole = frozenset(self._hidden), outside_arrays(path)
        return [
            layer
            for layer in self._layers[: self._count]
            if layer.local_seq not in hidden and is_written(layer, self._document, whole)
        ]

    def under(self, path: Path) -> StandsOn:
        if not self._count:
            return NOTHING
        layers = self._written(path)
        named = [layer for layer in layers if layer.fate is not Fate.LOCAL]
        local = [layer for layer in layers if layer.fate is Fate.LOCAL]
        return StandsOn(
            ranges([layer.local_seq for layer in named]),
            having_a_say(local, self._document, outside_arrays(path)),
            tuple([layer.local_seq for layer in named if layer.fate is Fate.DEAD]),
        )

    def repeated(self, path: Path) -> tuple[bool, list[Path]]:
        if not self._count:
            return False, []
        key = self._document.key
        layers = [layer for layer in self._written(path) if layer.fate is not Fate.ACCEPTED]
        places = [outside_arrays(written) for layer in layers for written in layer.written(key)]
        if any(starts_with(path, place) for place in places):
            return True, []
        return False, [place for place in dict.fromkeys(places) if starts_with(place, path)]


assert DESCRIPTORS.keys() >= PLAIN, "a plain kind has no descriptor"


def says_nothing(commit: Commit) -> bool:
    """Return True if the commit has no operation, precondition, event, record or delivery for the engine."""
    sends = commit.events or commit.records or commit.handled or commit.delivered
    return not (commit.operations or commit.preconditions or sends)


def _settled(before: MaybeValue, intent: Patch) -> Patch:
    """Return the plain write of what an intent makes of a value that this transaction wrote itself.

    So a key that was removed and is counted again stays in its place. An intent that finds and leaves nothing is kept.
    """
    after = lookup(apply(before, intent)[0], intent.path)
    if after is ABSENT:
        return intent
    return Patch("add" if lookup(before, intent.path) is ABSENT else "replace", intent.path, after)


def _is_narrower(patch: Patch, before: MaybeValue) -> bool:
    """Return True if a plain write removes keys of an object, or an object."""
    old = lookup(before, patch.path)
    arg = patch.arg
    return (type(old) is dict and not (type(arg) is dict and old.keys() <= arg.keys())) or patch.kind == "remove"


def _is_inside(array: Path, written: list[Path]) -> bool:
    """Return True if elements of an array were written by their own paths, and the array was not written as a whole."""
    return any(starts_with(at, array) and at != array for at in written) and not any(
        starts_with(array, at) for at in written
    )
