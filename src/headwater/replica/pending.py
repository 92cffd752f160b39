"""Pending: the ordered stack of local commits that the engine has not confirmed yet.

A layer (`layer.Layer`) is shown from the moment it is committed until the engine's log covers it, or until it is known
that it will not land. Then it is dead, and so is every layer that read it (C4), at once: nothing dead is shown, named
or sent. What a step costs does not depend on how many layers are pending. Never talks to anybody; `Replica` does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headwater.data.address import DocKey
from headwater.data.path import Path, starts_with
from headwater.data.value import MaybeValue
from headwater.errors import InvariantViolation
from headwater.protocol.verdict import Conflict, Rejection
from headwater.replica.difference import SAYS_IT, is_within
from headwater.replica.document import Document
from headwater.replica.documents import Documents
from headwater.replica.layer import Fate, Layer, Settled
from headwater.replica.spans import Span
from headwater.replica.written import Written, number_of, outside_arrays

__all__ = ["NOTHING", "Fate", "Layer", "Pending", "Settled", "Under"]
_ACCEPTED: Final = Fate.ACCEPTED


class Under(NamedTuple):
    """What had a say in what is at a place, beside what is confirmed."""

    spans: tuple[Span, ...] = ()  # layers that the engine hears of: a read names them (C3)
    local: tuple[Layer, ...] = ()  # layers that stay here: a read stands on what they read
    dead: tuple[int, ...] = ()  # those of the first that are dead by now

    def __bool__(self) -> bool:
        return bool(self.spans or self.local)


NOTHING: Final = Under()
_NOT_REPEATED: Final[tuple[bool, list[Path]]] = (False, [])


class Pending:
    """The live layers in order, those without a verdict, and the dead ones whose verdict is still to come."""

    __slots__ = (
        "_accepted",
        "_changing",
        "_documents",
        "_doomed",
        "_first",
        "_local",
        "_standing",
        "_wire",
        "holes",
        "live_layers",
    )

    def __init__(self, documents: Documents, changing: Callable[[Document], bool]) -> None:
        self._documents = documents
        self._changing = changing  # told before a layer comes upon a document or leaves it; whether somebody looks
        self.live_layers: dict[int, Layer] = {}
        self.holes: list[int] = []  # rising: numbers after the first live layer's that no read may name
        self._first = 0  # no live layer has a lower number
        self._standing: dict[int, Layer] = {}  # live layers that stand on others: who may fall with them
        self._doomed: dict[int, Layer] = {}
        self._wire: dict[int, Layer] = {}  # sent and without a verdict, doomed or not, in order
        self._accepted: list[Layer] = []  # with a seq, and not covered yet, by seq
        self._local: dict[int, Layer] = {}  # shown here and never sent: no verdict, no name, no part of any count

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
        """It is known by now what it stands on."""
        # fault pending.cascade_skipped: if False:
        if layer.stands():
            self._standing[layer.local_seq] = layer

    # ---- looking -----------------------------------------------------------------------------------

    def live(self) -> tuple[Layer, ...]:
        return tuple(self.live_layers.values())

    def on(self, doc: DocKey) -> Iterator[Layer]:
        document = self._documents.get(doc)
        # fault pending.written_document_let_go: return iter(())
        return iter(()) if document is None else iter(document.layers)

    def get(self, local_seq: int) -> Layer | None:
        return self.live_layers.get(local_seq) or self._doomed.get(local_seq)

    def queued(self) -> list[Layer]:
        return [layer for layer in self.live_layers.values() if layer.fate is Fate.QUEUED]

    def local(self) -> list[Layer]:
        return list(self._local.values())

    def in_flight(self) -> int:
        """How many commits are on the wire without a verdict."""
        return len(self._wire)

    def undecided(self) -> list[Layer]:
        """Layers on the wire without a verdict, dead ones included, in order: what a reconnection replays."""
        # fault pending.dead_not_replayed: return [each for each in self._wire.values() if each.fate is not Fate.DEAD]
        return list(self._wire.values())

    def waiting(self) -> int:
        """How many live layers have no verdict yet, sent or not."""
        return len(self.live_layers) - len(self._accepted)

    def first_live(self) -> int | None:
        """The number of the oldest live layer."""
        live = self.live_layers
        if not live:
            return None
        # Numbers are given in order and mostly leave in order. A table whose beginning was taken out is slow to begin.
        for number in range(self._first, self._first + 64):
            if number in live:
                self._first = number
                return number
        self._first = next(iter(live))
        return self._first

    def oldest(self) -> int | None:
        """The first layer that is still alive or owed a verdict."""
        first = self.first_live()
        wire = next(iter(self._wire), None)
        return wire if first is None or (wire is not None and wire < first) else first

    def first_named(self) -> int | None:
        """The oldest layer that one stands on which is on the wire, or has still to be sent."""
        queued = (layer for layer in self._standing.values() if layer.fate is Fate.QUEUED)
        firsts = [layer.named.first for layer in (*self._wire.values(), *queued) if layer.stands()]
        return min((first for first in firsts if first is not None), default=None)

    # ---- what a place stands on --------------------------------------------------------------------

    def under(self, document: Document, path: Path, before: int) -> Under:
        """The layers below a number that may have had a say in what is at a path. Inside an array all of it has (C2).

        By what they write, not by what they touched when they were made: under another confirmed state a layer
        that changed nothing here may change something there.
        """
        layers = document.layers
        if not layers or layers[0].local_seq >= before:
            return NOTHING
        if document.wrote is None and (len(layers) == 1 or layers[1].local_seq >= before):
            # Most documents have one: then there is nothing to look up. If it is hidden or stays here, that is noted.
            number = layers[0].local_seq
            return Under(((number, number),)) if is_written(layers[0], document, outside_arrays(path)) else NOTHING
        wrote = self._wrote(document, before)
        whole = outside_arrays(path)
        local = [each for each in wrote.local if each.local_seq < before and each.local_seq not in wrote.hidden]
        return Under(
            wrote.names(whole, self.first_live() or before, before, self.holes),
            having_a_say(local, document, whole) if local else (),
        )

    def repeated(self, document: Document, path: Path, before: int) -> tuple[bool, list[Path]]:
        """Whether a layer below a number wrote at a path or above it; if none did, where below it layers wrote."""
        layers = document.layers
        if not layers or layers[0].local_seq >= before:
            return _NOT_REPEATED
        wrote = self._wrote(document, before)
        return wrote.repeated(outside_arrays(path), self.first_live() or before, before, self.holes)

    def _wrote(self, document: Document, before: int) -> Written:
        wrote = document.wrote
        if wrote is None:
            wrote = document.wrote = Written(document)
        wrote.upto(before, self.holes, self._first)
        return wrote

    def shown(self, document: Document, value: MaybeValue) -> MaybeValue:
        """A document as this replica shows it: confirmed, with the live layers on top.

        What is under a layer that says all of it makes no difference, and may be named whether it fits or not: the
        view is the same with it and without it.
        """
        layers, key = document.layers, document.key
        begin = next((place for place in range(len(layers) - 1, -1, -1) if layers[place].says_all(key)), 0)
        hidden = []
        for layer in layers[begin:] if begin else layers:
            value = layer.apply(key, value)
            if not layer.fits(key):
                hidden.append(layer.local_seq)
        if document.wrote is not None or hidden:
            if document.wrote is None:
                document.wrote = Written(document)
            document.wrote.hidden = tuple(hidden)
        return value

    # ---- verdicts ----------------------------------------------------------------------------------

    def sent(self, layer: Layer) -> None:
        """It is on the wire: its verdict is owed."""
        self._wire[layer.local_seq] = layer

    def accepted(self, layer: Layer, seq: int) -> None:
        layer.fate, layer.seq = Fate.ACCEPTED, seq
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
        """C4: dead by their verdicts, with every live layer that stands on one of them, transitively. In order."""
        fallen = self._fall({number: why for number, why in rejections.items() if number in self.live_layers})
        for number in rejections:
            self.bury(number)  # The verdicts of the others are still owed.
        return fallen

    def kill_queued(self) -> list[Layer]:
        """The same for everything that never left: each in its own name, or for what it stands on. In order."""
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
        because: dict[int, int] = {}  # of the dead ones: the one that it fell with
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
                # The engine has it or will get it, and must say no: its verdict is still owed.
                self._doomed[layer.local_seq] = layer
            elif layer.fate is Fate.ACCEPTED:
                self._accepted.remove(layer)
            layer.fate = Fate.DEAD
        # fault pending.cascade_one_level_deep: self._leave_holes(because)
        self._leave_holes(dead)
        return fallen

    def bury(self, local_seq: int) -> Layer | None:
        """The verdict of a dead layer arrived."""
        self._wire.pop(local_seq, None)
        return self._doomed.pop(local_seq, None)

    def confirmed(self, layers: list[Layer], seq: int, is_looked_at: bool) -> None:
        """Take out layers that are confirmed as they are. `is_looked_at`: a transaction may be open on them."""
        live = self.live_layers
        if self._standing:
            for layer in layers:
                self._standing.pop(layer.local_seq, None)
        for layer in layers:
            layer.fate, layer.seq = _ACCEPTED, seq
            live.pop(layer.local_seq, None)
            document = layer.document
            if document is None or is_looked_at:
                self._lift(layer)
            elif len(document.layers) == 1:
                document.layers.clear()
                document.wrote = None
            else:
                document.layers.remove(layer)

    # ---- what stays here ---------------------------------------------------------------------------

    def keep_here(self, layer: Layer) -> None:
        """It is never sent: from now on it counts nowhere but in what is shown."""
        layer.fate = Fate.LOCAL
        self._gone(layer)
        self._leave_holes([layer.local_seq])
        self._local[layer.local_seq] = layer
        for doc in layer.docs():
            document = self._documents.hold(doc)
            wrote = document.wrote = document.wrote or Written(document)
            wrote.local = (*wrote.local, layer)

    def superseded(self, layer: Layer) -> list[Layer]:
        """Take out what stayed here under a layer that stays here, and of which that says everything anew."""
        said = {op.doc: {patch.path for patch in op.patches if patch.kind in SAYS_IT} for op in layer.commit.operations}
        wrote = [self._documents.hold(doc).wrote for doc in said]
        below = {each: None for known in wrote if known is not None for each in known.local if each is not layer}
        over: list[Layer] = []
        staying: list[Layer] = []
        for each in sorted(below, key=lambda below: -below.local_seq):
            is_said = all(is_within(path, said.get(doc, ())) for doc in each.docs() for path in each.written(doc))
            # One that stays may be built on what this one wrote, and would not fit without it.
            stays = not is_said or any(newer.meets(each) for newer in staying)
            (staying if stays else over).append(each)
        for each in over:
            self.take_back(each)
        return over

    def take_back(self, layer: Layer) -> None:
        """What stayed here gives way."""
        del self._local[layer.local_seq]
        for doc in layer.docs():
            document = self._documents.get(doc)
            if document is not None and document.wrote is not None:
                document.wrote.local = tuple(each for each in document.wrote.local if each is not layer)
        self._lift(layer)
        layer.fate = Fate.DEAD

    def yielded(self, document: Document) -> list[Layer]:
        """Take out the layers that stay here, since there is a confirmed value in their place."""
        # fault pending.local_layers_all_yield: fallen = self.local()
        fallen = list(document.wrote.local) if document.wrote is not None else []
        for layer in fallen:
            self.take_back(layer)
        return fallen

    # ---- leaving -----------------------------------------------------------------------------------

    def _gone(self, layer: Layer) -> None:
        """It is no live layer any more."""
        del self.live_layers[layer.local_seq]
        self._standing.pop(layer.local_seq, None)

    def _leave_holes(self, numbers: Iterable[int]) -> None:
        """No read may name these, whatever is pending around them."""
        first = self.first_live()
        if first is None:
            self.holes.clear()
            return
        for number in numbers:
            insort(self.holes, number)
        del self.holes[: bisect_left(self.holes, first)]

    def skipped(self, number: int) -> None:
        """A number that is never given to a layer."""
        self._leave_holes([number])

    def _lift(self, layer: Layer) -> None:
        """It is on its documents no more."""
        for doc in layer.docs():
            document = self._documents.get(doc)
            if document is None:
                continue
            if self._changing(document):
                document.layers = document.layers.copy()  # C8: whoever looks goes on with those that were there.
            layers = document.layers
            place = 0 if layers and layers[0] is layer else bisect_left(layers, layer.local_seq, key=number_of)
            if place == len(layers) or layers[place] is not layer:
                raise InvariantViolation(f"layer {layer.local_seq} is not on {document!r}, which it wrote")
            del layers[place]
            if not layers:
                document.wrote = None
                self._documents.forget(document)


def having_a_say(local: Sequence[Layer], document: Document, path: Path) -> tuple[Layer, ...]:
    """Those of the layers that stay here which made what is at a path: what another of them covers did not."""
    found: list[Layer] = []
    for layer in reversed(local):
        if is_written(layer, document, path):
            found.append(layer)
            if layer.covers(document.key, path):
                break
    return tuple(reversed(found))


def is_written(layer: Layer, document: Document, path: Path) -> bool:
    """Whether a layer writes at, above or below a path in a document."""
    if not path:
        return True  # It is one of the document's.
    # fault pending.only_exact_layers_named: return path in layer.written(document.key)
    return any(starts_with(each, path) or starts_with(path, each) for each in layer.written(document.key))


def _seq_of(layer: Layer) -> int:
    return layer.seq
