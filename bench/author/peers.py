"""The same graphs in reaktiv, observ and Shiny, which keep nothing: signals, computeds and effects in memory.

Each library is used through the fastest way it offers (`bench.reactive.peers`). A piece is a signal and its computeds;
an event is a write; a restart builds the graph again.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, Final

from bench.author.pieces import wide_total
from bench.author.shapes import CHANGES, TEN, WARM, Report
from bench.reactive import peers
from bench.reactive.contender import Contender, Readable, Writable

PEERS: Final[dict[str, Callable[[], Contender]]] = {
    "reaktiv": peers.reaktiv,
    "observ": peers.observ,
    "shiny": peers.shiny,
}
REPEATS: Final = 5
SHORT_S: Final = 0.02  # A measurement that is shorter than this is the median of several.


class Piece:
    """A signal, so many computeds that read it, and one that sums them."""

    def __init__(self, root: Contender, width: int) -> None:
        self.source: Writable = root.signal(1)
        nodes = [root.computed(_plus(self.source, number)) for number in range(width)]
        self.nodes: Sequence[Readable] = nodes
        self.total = root.computed(lambda: sum([node.get() for node in nodes]))


def _plus(source: Readable, number: int) -> Callable[[], int]:
    def plus() -> int:
        value: int = source.get() + number
        return value

    return plus


def _times(source: Readable, rate: Readable) -> Callable[[], int]:
    def times() -> int:
        value: int = source.get() * rate.get()
        return value

    return times


def _look(root: Contender, node: Readable, seen: list[Any]) -> None:
    """Look at a node from an effect: some libraries charge for a read from outside."""
    root.effect(lambda: seen.append(node.get()))
    root.settle()


def _first_values(root: Contender, width: int, pieces: int) -> None:
    for _ in range(pieces):
        seen: list[Any] = []
        _look(root, Piece(root, width).total, seen)
        if seen != [wide_total(width, 1)]:
            raise RuntimeError(f"it shows {seen}")


def _milliseconds(work: Callable[[], object]) -> float:
    """Processor time, the median of several if it is short."""
    took: list[float] = []
    while not took or (len(took) < REPEATS and took[0] < SHORT_S):
        gc.collect()
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return median(took) * 1e3


def opened(report: Report, name: str, root: Contender, sizes: Sequence[int]) -> None:
    _first_values(root, TEN, 1)
    for size in sizes:
        report(f"open.one_piece.{size}.{name}", _milliseconds(partial(_first_values, root, size, 1)))
        if size >= TEN:
            took = _milliseconds(partial(_first_values, root, TEN - 1, size // TEN))
            report(f"open.pieces_of_ten.{size}.{name}", took)


def changed(report: Report, name: str, root: Contender, sizes: Sequence[int]) -> None:
    for size in sizes:
        piece = Piece(root, size)
        seen: list[Any] = []
        _look(root, piece.total, seen)
        took = []
        for turn in range(WARM + CHANGES):
            began = time.process_time()
            piece.source.set(turn + 2)
            root.settle()
            took.append(time.process_time() - began)
            if seen[-1] != wide_total(size, turn + 2):
                raise RuntimeError(f"it shows {seen[-1]}")
        report(f"change.{size}.{name}", median(took[WARM:]) * 1e3)


def event(report: Report, name: str, root: Contender, count: int) -> None:
    """One write that a computed and an effect follow from."""
    source = root.signal(0)
    seen: list[Any] = []
    _look(root, root.computed(lambda: 2 * source.get()), seen)
    gc.collect()
    began = time.process_time()
    for number in range(count):
        source.set(number + 1)
        root.settle()
    took = time.process_time() - began
    if seen[-1] != 2 * count:
        raise RuntimeError(f"it shows {seen[-1]}")
    report(f"event.alone.{name}", took * 1e6 / count)


class Table:
    """A signal and a computed for each row, and a signal with all computeds, which one effect reads."""

    def __init__(self, root: Contender, size: int) -> None:
        self._root = root
        self._rate = root.signal(2)
        self.rows = [root.signal(number) for number in range(size)]
        self.priced = [root.computed(_times(row, self._rate)) for row in self.rows]
        self._all = root.signal(tuple(self.priced))

    def look(self, seen: list[Any]) -> None:
        every = self._all
        self._root.effect(lambda: seen.append([row.get() for row in every.get()]))
        self._root.settle()

    def add(self, value: int) -> None:
        row = self._root.signal(value)
        self.priced.append(self._root.computed(_times(row, self._rate)))
        self._all.set(tuple(self.priced))


def each_rows(report: Report, name: str, root: Contender, sizes: Sequence[int]) -> None:
    for size in sizes:
        gc.collect()
        began = time.process_time()
        table = Table(root, size)
        seen: list[Any] = []
        table.look(seen)
        report(f"each.{size}.make.{name}", (time.process_time() - began) * 1e3)
        for how in ("change", "add"):
            took = []
            for turn in range(WARM + CHANGES):
                value = 1_000_000 + turn
                began = time.process_time()
                if how == "change":
                    table.rows[size // 2].set(value)
                else:
                    table.add(value)
                root.settle()
                took.append(time.process_time() - began)
                if seen[-1][size // 2 if how == "change" else -1] != 2 * value:
                    raise RuntimeError("a row does not show its value")
            report(f"each.{size}.{how}.{name}", median(took[WARM:]) * 1e3)
        root.dispose()


def restart(report: Report, name: str, root: Contender, nodes: int) -> None:
    """Build the graph again; then look at nothing, at one node or at all of them."""

    def build(look: str) -> None:
        table = Table(root, nodes)
        if look == "everything":
            table.look([])
        elif look == "one_value":
            _look(root, table.priced[0], [])

    build("one_value")
    for look in ("nothing", "one_value", "everything"):
        report(f"restart.{nodes}.{look}.{name}", _milliseconds(partial(build, look)))
        root.dispose()


def memory(report: Report, name: str, root: Contender, count: int) -> None:
    _first_values(root, TEN, 1)
    gc.collect()
    tracemalloc.start()
    seen: list[Any] = []
    piece = Piece(root, count)
    _look(root, piece.total, seen)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    report(f"memory.node.{name}", held / len(piece.nodes))
