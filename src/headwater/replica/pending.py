"""Pending commits: the ordered layers of local commits that the engine has not confirmed yet.

A `Layer` is one local commit: its writes, the layers that it stands on, and its `Fate`. It is shown from the moment it
is committed until the engine's log covers it, or until it is known that it will not land. Then it is dead, and so is
every layer that read it (C4), at once: a dead layer is not shown, named or sent. `Pending` keeps the layers of a
replica and applies verdicts to them. The cost of a step does not depend on the number of pending layers.

`PendingWrites` finds the pending layers that wrote at a path of one document, for every read and write that stands on
them. Layers are added on demand and never removed one by one: answers are cut to the live layers. So a lookup costs the
depth of its path and the ranges that it finds, not the number of layers. Inside an array every change of the array
counts (C2), so that a place is a path up to the outermost array.

Nothing here sends a message or decides which value is shown; `Session` and `Replica` do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from headwater.data.address import DocKey
from headwater.data.patch import Patch, PatchError, Touch, apply
from headwater.data.path import Path, starts_with
from headwater.data.reader_trie import Spot
from headwater.data.value import MaybeValue
from headwater.errors import InvariantViolation
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Conflict, Rejection
from headwater.replica.confirmed import Documents
from headwater.replica.document import Document
from headwater.replica.limits import LAYER_LIMITS
from headwater.replica.minimal_patches import SAYS_ALL, SAYS_IT, is_within
from headwater.replica.number_ranges import Named, NumberRanges, Span, united, without

__all__ = ["NOTHING", "Fate", "Layer", "Pending", "Settled", "StandsOn"]


def outside_arrays(path: Path) -> Path:
    """Return the path up to the outermost array on it, since positions in an array shift."""
    for place, step in enumerate(path):
        if type(step) is int:
            return path[:place]
    return path


class _Place:
    """One place in the document: the layers that wrote here (`here`), and those that wrote below (`under`)."""

    __slots__ = ("below", "here", "under")

    def __init__(self) -> None:
        self.here: NumberRanges | None = None
        self.under: NumberRanges | None = None
        self.below: dict[str | int, _Place] | None = None


class PendingWrites:
    """The layers of one document by the places they write, and the layers that are hidden or local."""

    __slots__ = ("_document", "_places", "_root", "_upto", "hidden", "local")

    def __init__(self, document: Document) -> None:
        self._document = document
        self._root = _Place()
        self._places = 0  # places made since the last rebuild
        self._upto = 0  # the last layer that was added
        self.hidden: tuple[int, ...] = ()  # rising numbers of layers that do not fit the state under them
        self.local: tuple[Layer, ...] = ()  # layers that are never sent, and so never named

    def upto(self, before: int, holes: Sequence[int], oldest: int) -> None:
        """Add the layers with numbers below `before` that came since the last call."""
        layers = self._document.layers
        if self._upto >= before - 1 or not layers or layers[-1].local_seq <= self._upto:
            return
        if self._places > 2 * len(layers) + LAYER_LIMITS.spare_places:
            self._root, self._places, self._upto = _Place(), 0, 0  # Most places are of layers that are gone.
        begin = bisect_right(layers, self._upto, key=number_of)
        end = bisect_left(layers, before, key=number_of)
        key = self._document.key
        for layer in layers[begin:end]:
            if self.hidden and layer.says_all(key):
                self.hidden = ()  # This layer replaces the document: whether layers under it fit makes no difference.
            for path in layer.written(key):
                self._add(outside_arrays(path), layer.local_seq, holes, oldest)
        if begin < end:
            self._upto = layers[end - 1].local_seq

    def _add(self, path: Path, number: int, holes: Sequence[int], oldest: int) -> None:
        place = self._root
        for step in path:
            if place.under is None:
                place.under = NumberRanges()
            place.under.add(number, holes, oldest)
            if place.below is None:
                place.below = {}
            below = place.below.get(step)
            if below is None:
                below = place.below[step] = _Place()
                self._places += 1
            place = below
        if place.here is None:
            place.here = NumberRanges()
        place.here.add(number, holes, oldest)

    def names(self, path: Path, low: int, high: int, holes: Sequence[int]) -> tuple[Span, ...]:
        """C3: return the layers from `low` to below `high` that may have contributed to the value at a path."""
        passed, place = self._way(path)
        several = [above.here.within(low, high) for above in passed if above.here is not None]
        if place is not None and place.under is not None:
            several.append(place.under.within(low, high))
        if not several:
            return ()
        found = without(united(several), holes)
        return tuple(without(found, self.hidden) if self.hidden else found)

    def repeated(self, path: Path, low: int, high: int, holes: Sequence[int]) -> tuple[bool, list[Path]]:
        """Return whether a layer wrote at a path or above; and, if none did, the places below where layers wrote."""
        passed, place = self._way(path)
        local = [
            outside_arrays(written)
            for layer in self.local
            if layer.local_seq < high and layer.local_seq not in self.hidden
            for written in layer.written(self._document.key)
        ]
        if any(starts_with(path, written) for written in local):
            return True, []
        if any(self._is_any(above.here, low, high, holes) for above in passed):
            return True, []
        below = {written: None for written in local if starts_with(written, path)}
        waiting = [(place, path)] if place is not None else []
        while waiting:
            at, way = waiting.pop()
            if at is not place and self._is_any(at.here, low, high, holes):
                below[way] = None
            if at.below and self._is_any(at.under, low, high, holes):
                waiting.extend((further, (*way, step)) for step, further in at.below.items())
        return False, list(below)

    def _way(self, path: Path) -> tuple[list[_Place], _Place | None]:
        """Return the existing places from the root down to a path, and the place at the path if there is one."""
        place = self._root
        passed = [place]
        for step in path:
            below = place.below.get(step) if place.below else None
            if below is None:
                return passed, None
            place = below
            passed.append(place)
        return passed, place

    def _is_any(self, spans: NumberRanges | None, low: int, high: int, holes: Sequence[int]) -> bool:
        if spans is None or not spans.is_any_within(low, high):
            return False
        if not (holes or self.hidden):
            return True
        return bool(without(without(spans.within(low, high), holes), self.hidden))


def number_of(layer: Layer) -> int:
    return layer.local_seq


Settled = Callable[["Layer", "Rejection | None"], object]


class Fate(Enum):
    """The stage of a layer on its way into the log."""

    QUEUED = "queued"  # never left this process
    SENT = "sent"  # on the wire; the engine may have it
    ACCEPTED = "accepted"  # has a seq that confirmed state does not cover yet
    LOCAL = "local"  # derived without the right to write: never sent, and yields to any confirmed value
    DEAD = "dead"  # will not land; if it was sent, its verdict is still to come


_QUEUED: Final = Fate.QUEUED


class Layer:
    """One local commit, and its effect on the documents it wrote when it was applied here."""

    __slots__ = (
        "_named",
        "_patches",
        "causes",
        "commit",
        "fate",
        "frame",
        "group",
        "hops",
        "local_seq",
        "made",
        "misfits",
        "rejection",
        "seq",
        "settled",
        "source",
        "touched",
        "waits",
    )

    def __init__(
        self,
        local_seq: int,
        commit: Commit,
        touched: dict[DocKey, tuple[Touch, ...]],
        source: object | None,
        group: object | None,
        causes: Mapping[Spot, object] | None = None,
    ) -> None:
        self.local_seq = local_seq
        self.commit = commit  # the commit that the engine gets; set again only before it is pushed
        self.touched = touched
        self.source = source
        self.group = group
        self.causes = causes  # the spots whose change caused its run; they come back if it is rejected
        self.hops = 0  # as in its provenance; they come back with the causes
        self.fate = _QUEUED
        self.seq = 0
        self.settled: list[Settled] | None = None
        self.misfits: set[DocKey] | None = None  # documents whose current state the layer does not fit
        self.made: dict[DocKey, tuple[MaybeValue, MaybeValue]] = {}  # by document: the values before and after it
        self._named: Named | None = None
        self._patches: dict[DocKey, tuple[Patch, ...]] | None = None  # those of its commit, by document
        self.frame = 0  # the first local_seq of the frame in which it was sent
        self.rejection: Rejection | None = None
        self.waits: set[Layer] | None = None  # layers of other replicas that must be accepted before it is sent

    @property
    def named(self) -> Named:
        """The layers that this layer stands on."""
        if self._named is None:
            self._named = Named([read.layers for read in self.commit.reads])
        return self._named

    def stands(self) -> bool:
        """Return True if the layer stands on any other layer."""
        for read in self.commit.reads:  # noqa: SIM110  # A loop, because a generator doubles the cost.
            if read.layers:
                return True
        return False

    def docs(self) -> tuple[DocKey, ...]:
        """Return the documents that the layer writes."""
        return tuple(self.touched)

    def is_derived(self) -> bool:
        return self.commit.provenance.derived

    def send(self, frame: int) -> None:
        """Mark the layer as sent."""
        self.fate, self.frame = Fate.SENT, frame

    def patches(self, doc: DocKey) -> tuple[Patch, ...]:
        """Return the patches of the layer's commit to a document."""
        operations = self.commit.operations
        if len(operations) == 1:
            return operations[0].patches if operations[0].doc == doc else ()
        found = self._patches
        if found is None:  # A wide commit is asked about each of its documents.
            found = self._patches = {}
            for operation in operations:
                found[operation.doc] = (*found.get(operation.doc, ()), *operation.patches)
        return found.get(doc, ())

    def written(self, doc: DocKey) -> list[Path]:
        """Return the paths of the layer's patches to a document."""
        return [patch.path for patch in self.patches(doc)]

    def meets(self, other: Layer) -> bool:
        """Return True if the layer writes at, above or below a path that `other` writes."""
        return any(
            starts_with(path, place) or starts_with(place, path)
            for doc in self.docs()
            for place in other.written(doc)
            for path in self.written(doc)
        )

    def says_all(self, doc: DocKey) -> bool:
        """Return True if the layer sets the whole document, whatever is under it."""
        patches = self.patches(doc)
        return len(patches) == 1 and patches[0].kind == "add" and not patches[0].path

    def covers(self, doc: DocKey, path: Path) -> bool:
        """Return True if the layer sets the value at a path of a document, whatever is under it."""
        return any(patch.kind in SAYS_ALL and starts_with(path, patch.path) for patch in self.patches(doc))

    def removes(self, doc: DocKey, path: Path) -> bool:
        """Return True if the layer removes the value at a path of a document, or the value that it is part of."""
        return any(patch.kind == "remove" and starts_with(path, patch.path) for patch in self.patches(doc))

    def is_held(self) -> bool:
        """Return True if the layer is not to be sent yet: it stands on an unaccepted commit of another space."""
        # fault across.sent_at_once: return False
        return bool(self.waits) and self.fate is Fate.QUEUED

    def fits(self, doc: DocKey) -> bool:
        """Return True if the layer fits the current state of a document, and so is shown there."""
        # fault layer.misfit_named: return True
        return self.misfits is None or doc not in self.misfits

    def apply(self, doc: DocKey, value: MaybeValue) -> MaybeValue:
        """Return the document with this layer on top.

        A layer that does not fit the state under it shows nothing there, and no read may name it: when the engine
        judges the layer, it may fit again, and then a read that named it would have missed a write (C3).
        """
        shown = value
        for operation in self.commit.operations:
            if operation.doc == doc:
                for patch in operation.patches:
                    try:
                        shown = apply(shown, patch)[0]
                    except PatchError:
                        self.misfits = self.misfits or set()
                        self.misfits.add(doc)
                        return value
        if self.misfits is not None:
            self.misfits.discard(doc)
        return shown


_ACCEPTED: Final = Fate.ACCEPTED


class StandsOn(NamedTuple):
    """The layers that may have contributed to the value at a place, beside confirmed state."""

    spans: tuple[Span, ...] = ()  # layers that the engine gets: a read names them (C3)
    local: tuple[Layer, ...] = ()  # layers that are never sent: a read stands on their reads
    dead: tuple[int, ...] = ()  # layers of `spans` that are dead by now

    def __bool__(self) -> bool:
        return bool(self.spans or self.local)


NOTHING: Final = StandsOn()
_NOT_REPEATED: Final[tuple[bool, list[Path]]] = (False, [])


class Pending:
    """The live layers in order, the layers without a verdict, and the dead layers whose verdict is still to come."""

    __slots__ = (
        "_accepted",
        "_changing",
        "_documents",
        "_doomed",
        "_first",
        "_last_accepted",
        "_local",
        "_standing",
        "_wire",
        "holes",
        "live_layers",
        "misfitted",
    )

    def __init__(self, documents: Documents, changing: Callable[[Document], bool]) -> None:
        self._documents = documents
        self._changing = changing  # called before a document's layers change; True: a transaction is open
        self.live_layers: dict[int, Layer] = {}
        self.holes: list[int] = []  # rising: numbers after the first live layer's that no read may name
        self.misfitted: set[Document] = set()  # documents with layers, one of which may not fit the state under it
        self._first = 0  # no live layer has a lower number
        self._standing: dict[int, Layer] = {}  # live layers that stand on others, and may fall with them
        self._doomed: dict[int, Layer] = {}
        self._wire: dict[int, Layer] = {}  # layers sent and without a verdict, dead or not, in order
        self._last_accepted = 0  # the highest number of an accepted layer
        self._accepted: list[Layer] = []  # layers with a seq that is not covered yet, by seq
        self._local: dict[int, Layer] = {}  # shown here and never sent: without a verdict, never named, not counted

    def __len__(self) -> int:
        return len(self.live_layers) + len(self._doomed)

    def push(self, layer: Layer) -> None:
        self.live_layers[layer.local_seq] = layer
        self.stands(layer)
        for doc in layer.docs():
            document = self._documents.hold(doc)
            self._changing(document)
            document.layers.append(layer)

    def stands(self, layer: Layer) -> None:
        """Register the layer, once its commit is known, if it stands on other layers."""
        # fault pending.cascade_skipped: if False:
        if layer.stands():
            self._standing[layer.local_seq] = layer

    # ---- looking -----------------------------------------------------------------------------------

    def live(self) -> tuple[Layer, ...]:
        return tuple(self.live_layers.values())

    def get(self, local_seq: int) -> Layer | None:
        return self.live_layers.get(local_seq) or self._doomed.get(local_seq)

    def queued(self) -> list[Layer]:
        return [layer for layer in self.live_layers.values() if layer.fate is Fate.QUEUED]

    def local(self) -> list[Layer]:
        return list(self._local.values())

    def in_flight(self) -> int:
        """Return the number of commits on the wire without a verdict."""
        return len(self._wire)

    def undecided(self) -> list[Layer]:
        """Return the layers on the wire without a verdict, dead ones included, in order: a reconnect replays these."""
        # fault pending.dead_not_replayed: return [each for each in self._wire.values() if each.fate is not Fate.DEAD]
        return list(self._wire.values())

    def waiting(self) -> int:
        """Return the number of live layers without a verdict, sent or not."""
        return len(self.live_layers) - len(self._accepted)

    def first_live(self) -> int | None:
        """Return the number of the oldest live layer."""
        live = self.live_layers
        if not live:
            return None
        # Layers mostly leave in the order of their numbers. A dict whose first keys were removed is slow to iterate.
        for number in range(self._first, self._first + 64):
            if number in live:
                self._first = number
                return number
        self._first = next(iter(live))
        return self._first

    def oldest(self) -> int | None:
        """Return the number of the first layer that is alive or has a verdict to come."""
        first = self.first_live()
        wire = next(iter(self._wire), None)
        return wire if first is None or (wire is not None and wire < first) else first

    def first_named(self) -> int | None:
        """Return the number of the oldest layer that a layer on the wire, or still to be sent, stands on."""
        queued = (layer for layer in self._standing.values() if layer.fate is Fate.QUEUED)
        firsts = [layer.named.first for layer in (*self._wire.values(), *queued) if layer.stands()]
        return min((first for first in firsts if first is not None), default=None)

    # ---- the layers under a place ------------------------------------------------------------------

    def under(self, document: Document, path: Path, before: int) -> StandsOn:
        """Return the layers below `before` that may have contributed to the value at a path; in an array, all (C2).

        The paths that a layer writes decide, not the paths that it changed when it was made: on another confirmed
        state, a layer that changed nothing here may change a value.
        """
        layers = document.layers
        if not layers or layers[0].local_seq >= before:
            return NOTHING
        if document.wrote is None and (len(layers) == 1 or layers[1].local_seq >= before):
            # Most documents have one layer, and need no lookup. For a hidden or local layer, `document.wrote` is set.
            layer = layers[0]
            if not path or len(layer.patches(document.key)) <= LAYER_LIMITS.compared_patches:
                number = layer.local_seq
                return StandsOn(((number, number),)) if is_written(layer, document, outside_arrays(path)) else NOTHING
        wrote = self._wrote(document, before)
        whole = outside_arrays(path)
        local = [each for each in wrote.local if each.local_seq < before and each.local_seq not in wrote.hidden]
        return StandsOn(
            wrote.names(whole, self.first_live() or before, before, self.holes),
            having_a_say(local, document, whole) if local else (),
        )

    def repeated(self, document: Document, path: Path, before: int) -> tuple[bool, list[Path]]:
        """Return whether a layer that may be rejected wrote at a path or above; if none did, the paths below with
        writes of such layers.

        Only layers below `before` count. An accepted layer cannot be rejected.
        """
        layers = document.layers
        if not layers or layers[0].local_seq >= before:
            return _NOT_REPEATED
        wrote = self._wrote(document, before)
        # fault pending.accepted_layers_repeated: first = self.first_live() or before
        first = max(self.first_live() or before, self._first_undecided())
        return wrote.repeated(outside_arrays(path), first, before, self.holes)

    def _first_undecided(self) -> int:
        """Return a number below which every live layer is accepted: verdicts come in the order of the numbers."""
        wire = next(iter(self._wire), None)
        return self._last_accepted + 1 if wire is None else wire

    def _wrote(self, document: Document, before: int) -> PendingWrites:
        wrote = document.wrote
        if wrote is None:
            wrote = document.wrote = PendingWrites(document)
        wrote.upto(before, self.holes, self._first)
        return wrote

    def shown(self, document: Document, value: MaybeValue) -> MaybeValue:
        """Return the value of a document as this replica shows it: the confirmed value with the live layers on top.

        Layers under a layer that sets the whole document are not applied. They may be named whether they fit or not:
        the view is the same with them and without them.
        """
        layers, key = document.layers, document.key
        begin = next((at for at in range(len(layers) - 1, -1, -1) if layers[at].says_all(key)), 0) if layers else 0
        hidden = []
        for layer in layers[begin:] if begin else layers:
            value = layer.apply(key, value)
            if not layer.fits(key):
                hidden.append(layer.local_seq)
        if document.wrote is not None or hidden:
            if document.wrote is None:
                document.wrote = PendingWrites(document)
            document.wrote.hidden = tuple(hidden)
            if hidden:
                self.misfitted.add(document)
        return value

    def hidden(self, document: Document) -> list[Layer]:
        """Return the live layers of a document that do not fit the state under them, and so are not shown."""
        wrote = document.wrote
        if wrote is None or not wrote.hidden:
            return []
        return [layer for layer in document.layers if layer.local_seq in wrote.hidden]

    # ---- verdicts ----------------------------------------------------------------------------------

    def sent(self, layer: Layer) -> None:
        """Record that the layer is on the wire and its verdict is to come."""
        self._wire[layer.local_seq] = layer

    def accepted(self, layer: Layer, seq: int) -> None:
        layer.fate, layer.seq = Fate.ACCEPTED, seq
        self._last_accepted = max(self._last_accepted, layer.local_seq)
        self._wire.pop(layer.local_seq, None)
        insort(self._accepted, layer, key=_seq_of)

    def covered(self, seq: int) -> list[Layer]:
        """Take out the accepted layers that confirmed state at `seq` includes."""
        end = bisect_right(self._accepted, seq, key=_seq_of)
        done = self._accepted[:end]
        # fault+ pending.covered_layer_stays: return done
        del self._accepted[:end]
        done.sort(key=number_of)
        for layer in done:
            self._gone(layer)
            self._lift(layer)
        first = self.first_live()
        if first is None:
            self.holes.clear()
        else:
            self._leave_holes([layer.local_seq for layer in done if layer.local_seq > first])
        return done

    def kill(self, rejections: Mapping[int, Rejection]) -> list[Layer]:
        """C4: kill the rejected layers and every live layer that stands on one, transitively. Return them in order."""
        fallen = self._fall({number: why for number, why in rejections.items() if number in self.live_layers})
        for number in rejections:
            self.bury(number)  # The other dead layers still get their verdicts.
        return fallen

    def kill_queued(self) -> list[Layer]:
        """Kill every layer that was never sent, and every layer that stands on one. Return them in order.

        The rejection of a layer names the layer itself or the one that it fell with.
        """
        queued = [layer.local_seq for layer in self.queued()]
        return self._fall({number: Conflict(dead_layers=(number,)) for number in queued})

    def _fall(self, rejections: Mapping[int, Rejection]) -> list[Layer]:
        if not rejections:
            return []
        first = min(rejections)
        falling = [self.live_layers[number] for number in rejections]
        falling += [layer for layer in self._standing.values() if layer.local_seq > first]
        falling.sort(key=number_of)
        dead: list[int] = []  # rising
        because: dict[int, int] = {}  # for each dead layer, the rejected layer at the root of its fall
        fallen: list[Layer] = []
        for layer in falling:
            number = layer.local_seq
            if number in because:
                continue
            under = layer.named.one_of(dead) if dead and number in self._standing else None
            if under is None and number not in rejections:
                continue
            because[number] = number if under is None else because[under]
            layer.rejection = rejections[number] if under is None else Conflict(dead_layers=(because[under],))
            # fault pending.cascade_one_level_deep: dead += [number] * (number in rejections)
            dead.append(number)
            fallen.append(layer)
        for layer in fallen:
            self._gone(layer)
            self._lift(layer)
            if layer.fate is Fate.SENT:
                # The engine has the layer or will get it, and must reject it: its verdict is to come.
                self._doomed[layer.local_seq] = layer
            elif layer.fate is Fate.ACCEPTED:
                self._accepted.remove(layer)
            layer.fate = Fate.DEAD
        # fault pending.cascade_one_level_deep: self._leave_holes(because)
        self._leave_holes(dead)
        return fallen

    def bury(self, local_seq: int) -> Layer | None:
        """Forget a dead layer whose verdict arrived."""
        self._wire.pop(local_seq, None)
        return self._doomed.pop(local_seq, None)

    def confirmed(self, layers: list[Layer], seq: int) -> None:
        """Take out layers that are confirmed as they are."""
        live = self.live_layers
        if self._standing:
            for layer in layers:
                self._standing.pop(layer.local_seq, None)
        for layer in layers:
            layer.fate, layer.seq = _ACCEPTED, seq
            live.pop(layer.local_seq, None)
            self._lift(layer)

    # ---- local layers ------------------------------------------------------------------------------

    def keep_here(self, layer: Layer) -> None:
        """Make a layer local: it is never sent, and from now on counts only for shown values."""
        layer.fate = Fate.LOCAL
        self._gone(layer)
        self._leave_holes([layer.local_seq])
        self._local[layer.local_seq] = layer
        for doc in layer.docs():
            document = self._documents.hold(doc)
            wrote = document.wrote = document.wrote or PendingWrites(document)
            wrote.local = (*wrote.local, layer)

    def superseded(self, layer: Layer) -> list[Layer]:
        """Take out the local layers all of whose writes a newer local layer replaces, and return them."""
        said = {op.doc: {patch.path for patch in op.patches if patch.kind in SAYS_IT} for op in layer.commit.operations}
        wrote = [self._documents.hold(doc).wrote for doc in said]
        below = {each: None for known in wrote if known is not None for each in known.local if each is not layer}
        over: list[Layer] = []
        staying: list[Layer] = []
        for each in sorted(below, key=lambda below: -below.local_seq):
            is_said = all(is_within(path, said.get(doc, ())) for doc in each.docs() for path in each.written(doc))
            # A layer that stays may be built on the writes of this one, and would not fit without them.
            stays = not is_said or any(newer.meets(each) for newer in staying)
            (staying if stays else over).append(each)
        for each in over:
            self.take_back(each)
        return over

    def take_back(self, layer: Layer) -> None:
        """Take out a local layer."""
        del self._local[layer.local_seq]
        for doc in layer.docs():
            document = self._documents.get(doc)
            if document is not None and document.wrote is not None:
                document.wrote.local = tuple(each for each in document.wrote.local if each is not layer)
        self._lift(layer)
        layer.fate = Fate.DEAD

    def yielded(self, document: Document) -> list[Layer]:
        """Take out the local layers of a document that has a confirmed value now, and return them."""
        # fault pending.local_layers_all_yield: fallen = self.local()
        fallen = list(document.wrote.local) if document.wrote is not None else []
        for layer in fallen:
            self.take_back(layer)
        return fallen

    # ---- leaving -----------------------------------------------------------------------------------

    def _gone(self, layer: Layer) -> None:
        """Remove a layer from the live layers."""
        del self.live_layers[layer.local_seq]
        self._standing.pop(layer.local_seq, None)

    def _leave_holes(self, numbers: Iterable[int]) -> None:
        """Record numbers that no read may name, whatever layers are pending around them."""
        first = self.first_live()
        if first is None:
            self.holes.clear()
            return
        for number in numbers:
            insort(self.holes, number)
        del self.holes[: bisect_left(self.holes, first)]

    def skipped(self, number: int) -> None:
        """Record a number that is never given to a layer."""
        self._leave_holes([number])

    def _lift(self, layer: Layer) -> None:
        """Remove a layer from the documents that it wrote."""
        for doc in layer.docs():
            document = self._documents.get(doc)
            if document is None:
                continue
            if self._changing(document):
                document.layers = document.layers.copy()  # C8: an open transaction keeps the former list.
            layers = document.layers
            place = 0 if layers and layers[0] is layer else bisect_left(layers, layer.local_seq, key=number_of)
            if place == len(layers) or layers[place] is not layer:
                raise InvariantViolation(f"layer {layer.local_seq} is not on {document!r}, which it wrote")
            del layers[place]
            if not layers:
                document.wrote = None
                self.misfitted.discard(document)
                self._documents.forget(document)


def having_a_say(local: Sequence[Layer], document: Document, path: Path) -> tuple[Layer, ...]:
    """Return the local layers that made the value at a path, without those that a newer local layer covers."""
    found: list[Layer] = []
    for layer in reversed(local):
        if is_written(layer, document, path):
            found.append(layer)
            if layer.covers(document.key, path):
                break
    return tuple(reversed(found))


def is_written(layer: Layer, document: Document, path: Path) -> bool:
    """Return True if a layer of the document writes at, above or below a path."""
    if not path:
        return True  # `layer` is a layer of the document.
    # fault pending.only_exact_layers_named: return path in layer.written(document.key)
    return any(starts_with(each, path) or starts_with(path, each) for each in layer.written(document.key))


def _seq_of(layer: Layer) -> int:
    return layer.seq
