"""Layer numbers as inclusive ranges, so that naming ten thousand layers costs as much as naming a few.

Adds, joins and cuts ranges; knows numbers, not layers. Where there are many ranges, neighbours are joined if every
number between them belongs to a pending and shown layer. A read then stands on more layers than necessary (C2), never
on fewer, and never on a layer that is not shown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import chain

from headwater.replica.limits import LAYER_LIMITS

Span = tuple[int, int]


class NumberRanges:
    """A set of numbers, added in rising order."""

    __slots__ = ("_firsts", "_lasts", "_room")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._room = LAYER_LIMITS.separate_spans  # the number of ranges from which on joining is tried

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, number: int, holes: Sequence[int], oldest: int = 0) -> None:
        """Add a number at the end. `holes` are numbers that must not be named; ranges below `oldest` may be dropped."""
        lasts = self._lasts
        if lasts and number <= lasts[-1] + 1:
            lasts[-1] = max(number, lasts[-1])
            return
        self._firsts.append(number)
        lasts.append(number)
        if len(lasts) > self._room:
            gone = bisect_left(lasts, oldest)
            del self._firsts[:gone], lasts[:gone]
            self._join(holes)
            # Ranges that could not be joined are not tried again with every added number.
            self._room = max(LAYER_LIMITS.separate_spans, 2 * len(self._firsts))

    def within(self, low: int, high: int) -> list[Span]:
        """Return the ranges cut to the numbers from `low` to below `high`."""
        firsts, lasts = self._firsts, self._lasts
        begin, end = bisect_left(lasts, low), bisect_left(firsts, high)
        if begin >= end or low >= high:
            return []
        spans = list(zip(firsts[begin:end], lasts[begin:end], strict=True))
        spans[0] = (max(spans[0][0], low), spans[0][1])
        spans[-1] = (spans[-1][0], min(spans[-1][1], high - 1))
        return spans

    def is_any_within(self, low: int, high: int) -> bool:
        """Return True if a range has a number from `low` to below `high`, joined numbers included."""
        begin = bisect_left(self._lasts, low)
        return low < high and begin < len(self._firsts) and self._firsts[begin] < high

    def _join(self, holes: Sequence[int]) -> None:
        """Join the older ranges where no hole lies between them."""
        older = len(self._firsts) - LAYER_LIMITS.exact_spans
        firsts, lasts = self._firsts[:1], self._lasts[:1]
        for first, last in zip(self._firsts[1:older], self._lasts[1:older], strict=True):
            if last - firsts[-1] < LAYER_LIMITS.joined_numbers and not is_hole_between(lasts[-1], first, holes):
                lasts[-1] = last
            else:
                firsts.append(first)
                lasts.append(last)
        self._firsts[:older], self._lasts[:older] = firsts, lasts


def is_hole_between(low: int, high: int, holes: Sequence[int]) -> bool:
    """Return True if one of the rising numbers `holes` lies between `low` and `high`."""
    place = bisect_right(holes, low)
    return place < len(holes) and holes[place] < high


def united(several: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the union of several lists of ranges, with as few ranges as possible."""
    if len(several) == 1:
        return list(several[0])
    spans: list[Span] = []
    for first, last in merge(*several):
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def without(spans: Sequence[Span], holes: Sequence[int]) -> list[Span]:
    """Return the ranges without the rising numbers `holes`."""
    if not holes:
        return list(spans)
    left: list[Span] = []
    for first, last in spans:
        begin = first
        for place in range(bisect_left(holes, first), bisect_right(holes, last)):
            if begin < holes[place]:
                left.append((begin, holes[place] - 1))
            begin = holes[place] + 1
        if begin <= last:
            left.append((begin, last))
    return left


def ranges(numbers: Iterable[int]) -> tuple[Span, ...]:
    """Return rising numbers as inclusive ranges."""
    spans: list[Span] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return tuple(spans)


class Named:
    """The numbers of the layers that a commit stands on."""

    __slots__ = ("spans",)

    def __init__(self, several: Iterable[Sequence[Span]]) -> None:
        # Reads of one commit mostly name the same layers.
        self.spans = united(list(dict.fromkeys(tuple(spans) for spans in several if spans)) or [()])

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __contains__(self, number: int) -> bool:
        place = bisect_left(self.spans, (number + 1,)) - 1
        return place >= 0 and number <= self.spans[place][1]

    def __iter__(self) -> chain[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self.spans)

    @property
    def first(self) -> int | None:
        """The number of the oldest layer."""
        return self.spans[0][0] if self.spans else None

    def one_of(self, numbers: Sequence[int]) -> int | None:
        """Return the first of the rising `numbers` that is in a range, or None."""
        for first, last in self.spans:
            place = bisect_left(numbers, first)
            if place < len(numbers) and numbers[place] <= last:
                return numbers[place]
        return None
