"""Which pending layers wrote where in one document: asked by every read and every write that stands on them.

Layers are added as they come, and are gone when nobody counts them as live any more: answers are cut to what is. So a
question costs the depth of its path and the ranges that it finds, not the layers that are pending. Never decides what
is shown. Inside an array every change of it counts (C2): places end at the outermost one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headwater.data.path import Path, starts_with
from headwater.replica.spans import Span, Spans, united, without

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.replica.pending import Layer

SPARE: Final = 64
"""Places beyond twice the layers that may be left over from layers that are gone."""


def outside_arrays(path: Path) -> Path:
    """The path up to the outermost array on it, since positions in an array shift."""
    for place, step in enumerate(path):
        if type(step) is int:
            return path[:place]
    return path


class _Place:
    """One place in the document: who wrote here, and who wrote below."""

    __slots__ = ("below", "here", "under")

    def __init__(self) -> None:
        self.here: Spans | None = None
        self.under: Spans | None = None
        self.below: dict[str | int, _Place] | None = None


class Written:
    """The layers of one document by the places they write, and those of them that need a word more."""

    __slots__ = ("_document", "_places", "_root", "_upto", "hidden", "local")

    def __init__(self, document: Document) -> None:
        self._document = document
        self._root = _Place()
        self._places = 0  # made since it was begun
        self._upto = 0  # layers up to here are in it
        self.hidden: tuple[int, ...] = ()  # layers that do not fit what is under them and so show nothing, rising
        self.local: tuple[Layer, ...] = ()  # layers that stay here and are never named

    def upto(self, before: int, holes: Sequence[int], oldest: int) -> None:
        """Take in the layers with numbers below `before` that came since the last time."""
        layers = self._document.layers
        if self._upto >= before - 1 or not layers or layers[-1].local_seq <= self._upto:
            return
        if self._places > 2 * len(layers) + SPARE:
            self._root, self._places, self._upto = _Place(), 0, 0  # Most of it is about layers that are gone.
        begin = bisect_right(layers, self._upto, key=number_of)
        end = bisect_left(layers, before, key=number_of)
        key = self._document.key
        for layer in layers[begin:end]:
            if self.hidden and layer.says_all(key):
                self.hidden = ()  # Whether those under it fit makes no difference any more.
            for path in layer.written(key):
                self._add(outside_arrays(path), layer.local_seq, holes, oldest)
        if begin < end:
            self._upto = layers[end - 1].local_seq

    def _add(self, path: Path, number: int, holes: Sequence[int], oldest: int) -> None:
        place = self._root
        for step in path:
            if place.under is None:
                place.under = Spans()
            place.under.add(number, holes, oldest)
            if place.below is None:
                place.below = {}
            below = place.below.get(step)
            if below is None:
                below = place.below[step] = _Place()
                self._places += 1
            place = below
        if place.here is None:
            place.here = Spans()
        place.here.add(number, holes, oldest)

    def names(self, path: Path, low: int, high: int, holes: Sequence[int]) -> tuple[Span, ...]:
        """C3: every layer from `low` on and below `high` that may have had a say in what is at a path."""
        passed, place = self._way(path)
        several = [above.here.within(low, high) for above in passed if above.here is not None]
        if place is not None and place.under is not None:
            several.append(place.under.within(low, high))
        if not several:
            return ()
        found = without(united(several), holes)
        return tuple(without(found, self.hidden) if self.hidden else found)

    def repeated(self, path: Path, low: int, high: int, holes: Sequence[int]) -> tuple[bool, list[Path]]:
        """Whether a layer wrote at a path or above it; if none did, the places below it where layers wrote."""
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
        """The places down to a path as far as there are any, and the one at its end."""
        place = self._root
        passed = [place]
        for step in path:
            below = place.below.get(step) if place.below else None
            if below is None:
                return passed, None
            place = below
            passed.append(place)
        return passed, place

    def _is_any(self, spans: Spans | None, low: int, high: int, holes: Sequence[int]) -> bool:
        if spans is None or not spans.is_any_within(low, high):
            return False
        if not (holes or self.hidden):
            return True
        return bool(without(without(spans.within(low, high), holes), self.hidden))


def number_of(layer: Layer) -> int:
    return layer.local_seq
