"""The creation and update sets: many small graphs made, and one small graph updated many times.

`n to m` is n sources for m effects. In the creation set a portion makes the effects, first runs included, over
sources that are there; what it costs to take them down again is not counted. In the update set every write is
settled by itself: upstream has all of them in one batch, where only the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.reactive.contender import Contender, Readable, Turns


def create_signals(root: Contender, count: int) -> Turns:
    made: list[Readable] = []

    def drive(_begin: int, _end: int) -> None:
        made.extend([root.signal(index) for index in range(count)])
        root.settle()

    return Turns(drive, lambda: len(made))


def create(root: Contender, count: int, sources_each: int, effects_each: int) -> Turns:
    """`count` effects, in graphs of their own with `sources_each` sources and `effects_each` effects."""
    graphs = count // effects_each
    sources = [root.signal(index) for index in range(graphs * sources_each)]
    root.settle()
    seen: list[Any] = [-1] * count
    readers = reader(sources_each)

    def drive(_begin: int, _end: int) -> None:
        place = 0
        for graph in range(graphs):
            own = sources[graph * sources_each : (graph + 1) * sources_each]
            for _ in range(effects_each):
                root.effect(readers(own, seen, place))
                place += 1
        root.settle()

    return Turns(drive, lambda: list(seen))


def update(root: Contender, sources_each: int, effects_each: int) -> Turns:
    """Write the first of the sources."""
    sources = [root.signal(index) for index in range(sources_each)]
    seen: list[Any] = [-1] * effects_each
    readers = reader(sources_each)
    for place in range(effects_each):
        root.effect(readers(sources, seen, place))
    root.settle()
    head, settle = sources[0], root.settle

    def drive(begin: int, end: int) -> None:
        for number in range(begin, end):
            head.set(number)
            settle()

    return Turns(drive, lambda: list(seen))


MakeReader = Callable[[Sequence[Readable], list[Any], int], Callable[[], None]]


def reader(sources_each: int) -> MakeReader:
    """Effects with few reads are written out, as an application would; a loop would be most of their time."""
    return {0: read_none, 1: read_one, 2: read_two, 4: read_four}.get(sources_each, read_many)


def read_none(_sources: Sequence[Readable], seen: list[Any], place: int) -> Callable[[], None]:
    def look() -> None:
        seen[place] = place

    return look


def read_one(sources: Sequence[Readable], seen: list[Any], place: int) -> Callable[[], None]:
    (only,) = sources

    def look() -> None:
        seen[place] = only.get()

    return look


def read_two(sources: Sequence[Readable], seen: list[Any], place: int) -> Callable[[], None]:
    first, second = sources

    def look() -> None:
        seen[place] = first.get() + second.get()

    return look


def read_four(sources: Sequence[Readable], seen: list[Any], place: int) -> Callable[[], None]:
    first, second, third, fourth = sources

    def look() -> None:
        seen[place] = first.get() + second.get() + third.get() + fourth.get()

    return look


def read_many(sources: Sequence[Readable], seen: list[Any], place: int) -> Callable[[], None]:
    def look() -> None:
        total = 0
        for source in sources:
            total += source.get()
        seen[place] = total

    return look
