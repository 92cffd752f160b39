"""Restarting: what comes back without a run, against running it; what recording that costs; what readers cost a writer.

`clean` opens a program of clean nodes, pulls one output, makes one overlapping change and waits until idle; as one
piece, and as many pieces of ten (HEADWATER_BENCH_NODES=10000,100000 says how many nodes). Beside it the same graph is
built by running it in reaktiv and observ, which keep nothing; the rows that are known of its nodes are read bare from
SQLite and decoded; and all of it is brought back (`hydrated`). `observing` is a pass of a hundred runs, with and
without.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import uvloop

from bench.figures import Figures, note, seconds
from bench.reactive.peers import imported
from headwater import Cell, Input, Piece, Runtime, cell, computed, each, given
from headwater.engine.limits import Limits
from headwater.runtime.attachment import Embedded

T = TypeVar("T")

NODES: Final = tuple(int(each) for each in os.environ.get("HEADWATER_BENCH_NODES", "10000").split(","))
HYDRATED: Final = 10_000  # So many are brought back in full beside it: each of them is then registered, and read.
MOST_OPEN: Final = 3_000  # Pieces whose records and cells one session may watch.
PASS: Final = 100
ROUNDS: Final = 5
PASSES: Final = 40
READERS: Final = (100, 100)  # pieces, and nodes of each that read the same cell
AT_ONCE: Final = 20  # pieces that are made at once
SPACE: Final = "bench"


class Sheet(Piece, name="bench.Sheet"):
    cells: Cell[Mapping[str, int]] = cell(default={})
    rate: Cell[int] = cell(default=2)

    @each(cells)
    def priced(self, n: Cell[int]) -> int:
        return n.get() * self.rate.get()

    @computed
    def first(self) -> int:
        return self.cells.key("k0").get() + self.rate.get()


class Reader(Piece, name="bench.Reader"):
    shared: Input[int] = given()
    cells: Cell[Mapping[str, int]] = cell(default={})

    @each(cells)
    def read(self, n: Cell[int]) -> int:
        return n.get() + self.shared.get()


class Shared(Piece, name="bench.Shared"):
    read: Cell[int] = cell(default=0)
    unread: Cell[int] = cell(default=0)


def run(figures: Figures) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        observing(figures, folder)
        for nodes in NODES:
            for pieces in (1, nodes // 10):
                clean(figures, folder / f"{nodes} {pieces}", nodes, pieces)
        readers(figures, folder / "readers")


def _on_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def _elements(count: int) -> dict[str, int]:
    return {f"k{number}": number for number in range(count)}


# ---- recording -------------------------------------------------------------------------------------------


def observing(figures: Figures, folder: Path) -> None:
    """One change that a hundred nodes run for, until it is durable, on a disk that is synced."""

    async def passes(observe: bool, path: Path) -> float:
        async with Embedded(path, synchronous="FULL") as data, Runtime(data, observe=observe) as rt:
            space = rt.space(SPACE)
            sheet = await space.open(Sheet, "a", setup=lambda made: made.cells.set(_elements(PASS)))
            await rt.settled()
            best = float("inf")
            for number in range(PASSES):
                began = time.perf_counter()
                sheet.rate.set(number + 10)
                await rt.idle()
                await rt.durable()
                best = min(best, time.perf_counter() - began)
            return best

    best = {True: float("inf"), False: float("inf")}
    for turn in range(ROUNDS):
        note(f"  observing: round {turn + 1} of {ROUNDS}")
        for observe in (False, True):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                path = folder / f"observing {turn} {observe}"
                best[observe] = min(best[observe], runner.run(passes(observe, path)))
    ratio = best[True] / best[False]
    value = best[True] * 1e6 / PASS
    figures.report("resume.observing.run", value, "us/run", against="nothing recorded", ratio=ratio, at_most=1.3)
    sizes = [_size(folder / f"observing 0 {observe}") for observe in (True, False)]
    figures.report("resume.observing.disk", (sizes[0] - sizes[1]) / PASS, "bytes/node", at_most=200)


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


# ---- coming back -----------------------------------------------------------------------------------------


def clean(figures: Figures, folder: Path, nodes: int, pieces: int) -> None:
    """Open, pull one output, make one overlapping change, wait until it is idle. Closing is not part of it."""
    title = f"{'one_piece' if pieces == 1 else 'pieces_of_ten'}.{nodes}"
    count = nodes // pieces - 2  # Beside a node for each element there is one for the keys, and one that is pulled.
    limits = Limits(watches=10 * nodes)

    async def fill(first: int, last: int) -> int:
        async with Embedded(folder, synchronous="OFF", limits=limits) as data, Runtime(data, close_s=600) as rt:
            for number in range(first, last):
                setup = partial(_set, count)
                sheet = await rt.space(SPACE).open(Sheet, f"s{number}", setup=setup)
                await sheet.first.pull()
            await rt.settled()
            await rt.durable()
        return 1

    note(f"  {title}: made once")
    for first in range(0, pieces, AT_ONCE):
        _on_loop(partial(fill, first, min(first + AT_ONCE, pieces)))

    async def resumed(is_whole: bool) -> float:
        began = time.perf_counter()
        async with (
            Embedded(folder, synchronous="OFF", limits=limits if is_whole or pieces > MOST_OPEN else Limits()) as data,
            Runtime(data, close_s=600) as rt,
        ):
            sheets = [await rt.space(SPACE).open(Sheet, f"s{number}") for number in range(pieces)]
            await sheets[0].first.pull()
            for sheet in sheets if is_whole else ():
                await sheet.priced.pull()
            sheets[0].cells.key("k0").set(int(time.monotonic() * 1_000))
            await rt.settled()
            took = time.perf_counter() - began
            if rt.pieces.resuming.counts["asleep"] < pieces:
                raise RuntimeError(f"these slept: {rt.pieces.resuming.counts}")
            await rt.durable()
        return took

    contenders: dict[str, Callable[[], float]] = {
        "resumed": lambda: _on_loop(partial(resumed, False)),
        "reaktiv": lambda: seconds(lambda: _reaktiv(nodes)),
        "observ": lambda: seconds(lambda: _observ(nodes)),
        "bare": lambda: seconds(lambda: _bare(folder)),
    }
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(ROUNDS):
        note(f"  {title}: round {turn + 1} of {ROUNDS}")
        for name, work in contenders.items():
            best[name] = min(best[name], work())
    value = best["resumed"] * 1_000
    ratio = best["reaktiv"] / best["resumed"]
    figures.report(f"resume.clean.{title}", value, "ms", against="reaktiv", ratio=ratio, at_least=20)
    ratio = best["resumed"] / best["bare"]
    figures.report(f"resume.clean.{title}.bare", best["bare"] * 1_000, "ms", ratio=ratio, at_most=3)
    for name in ("reaktiv", "observ"):
        figures.report(f"resume.clean.{title}.{name}", best[name] * 1_000, "ms", ratio=best[name] / best["resumed"])
    if nodes <= HYDRATED:
        took = _on_loop(partial(resumed, True))
        figures.report(f"resume.hydrated.{title}", took * 1_000, "ms", ratio=took / best["resumed"])


def _set(count: int, made: Sheet) -> None:
    made.cells.set(_elements(count))


def _reaktiv(count: int) -> int:
    library = imported("reaktiv")
    rate = library.Signal(2)
    signals = [library.Signal(number) for number in range(count)]
    nodes = [library.Computed(lambda n=n: n() * rate()) for n in signals]
    for node in nodes:
        node()
    signals[0].set(7)
    nodes[0]()
    return 1


def _observ(count: int) -> int:
    library = imported("observ")
    state = library.reactive({"rate": 2, **_elements(count)})
    nodes = [library.computed(lambda key=key: state[key] * state["rate"]) for key in _elements(count)]
    for node in nodes:
        node()
    state["k0"] = 7
    nodes[0]()
    return 1


def _bare(folder: Path) -> int:
    """The rows of observations, read and decoded, and nothing else."""
    (path,) = folder.rglob("*.space")
    decode = msgspec.msgpack.Decoder().decode
    store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        for state, body in store.execute("SELECT state, body FROM observations"):
            decode(state)
            decode(body)
    finally:
        store.close()
    return 1


# ---- what readers cost a writer --------------------------------------------------------------------------


def readers(figures: Figures, folder: Path) -> None:
    """A commit to a document that many nodes read which are not running, against one that nobody reads."""
    pieces, nodes = READERS

    async def fill(first: int) -> int:
        async with Embedded(folder, synchronous="OFF") as data, Runtime(data) as rt:
            space = rt.space(SPACE)
            shared = await space.open(Shared, "shared")
            for number in range(first, first + AT_ONCE):
                made = Reader(shared=shared.read)
                await space.open(made, f"r{number}", setup=lambda made: made.cells.set(_elements(nodes)))
            await rt.settled()
            await rt.durable()
        return 1

    note("  readers: made once")
    for first in range(0, pieces, AT_ONCE):
        _on_loop(lambda first=first: fill(first))  # type: ignore[misc]

    async def commits() -> dict[str, float]:
        async with Embedded(folder, synchronous="OFF") as data, Runtime(data) as rt:
            shared = rt.space(SPACE).piece(Shared, "shared")
            best = {"read": float("inf"), "unread": float("inf")}
            for number in range(300):
                for name in ("read", "unread"):
                    began = time.perf_counter()
                    getattr(shared, name).set(number)
                    await rt.durable()
                    best[name] = min(best[name], time.perf_counter() - began)
            return best

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        best = runner.run(commits())
    ratio = best["read"] / best["unread"]
    figures.report("resume.readers.commit", best["read"] * 1e6, "us", against="no readers", ratio=ratio, at_most=2)
