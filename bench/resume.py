"""Restarting: what comes back without a run, against running it; what recording that costs; what readers cost a writer.

`clean` opens a program of five thousand clean nodes, pulls one output, makes one overlapping change and waits until it
is idle; as one piece, and as many pieces of ten. Beside it the same graph is built by running it: here without anything
recorded, and in reaktiv and observ, which keep nothing; and the rows that are known of its nodes are read bare from
SQLite and decoded. `observing` is a pass of a hundred runs, with and without.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.figures import Figures, interleaved, note
from bench.reactive.peers import imported
from headwater import Cell, Input, Piece, Runtime, cell, computed, each, given
from headwater.runtime.attachment import Embedded

NODES: Final = 5_000  # A session watches at most 10,000 documents, and resuming has all of them watched.
PASS: Final = 100
ROUNDS: Final = 5
PASSES: Final = 40
READERS: Final = (100, 100)  # pieces, and nodes of each that read the same cell
AT_ONCE: Final = 20  # of these pieces, how many are open at once
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
        for title, pieces in (("one_piece", 1), ("pieces_of_ten", NODES // 10)):
            clean(figures, folder / title, title, pieces)
        readers(figures, folder / "readers")


def _on_loop(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
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


def clean(figures: Figures, folder: Path, title: str, pieces: int) -> None:
    """Open, pull one output, make one overlapping change, wait until it is idle."""
    count = NODES // pieces - 2  # Beside a node for each element there is one for the keys, and one that is pulled.

    async def work(path: Path, observe: bool) -> int:
        async with Embedded(path, synchronous="OFF") as data, Runtime(data, observe=observe) as rt:
            space = rt.space(SPACE)
            sheets = [
                await space.open(Sheet, f"s{number}", setup=lambda made: made.cells.set(_elements(count)))
                for number in range(pieces)
            ]
            await sheets[0].first.pull()
            sheets[0].cells.key("k0").set(int(time.monotonic() * 1_000))
            await rt.settled()
            if not observe:
                return 1
            if rt.pieces.resuming.counts["clean"] < NODES * 0.9 and is_filled[0]:
                raise RuntimeError(f"only these came back: {rt.pieces.resuming.counts}")
            await rt.durable()
        return 1

    is_filled = [False]
    for observe in (True, False):
        note(f"  {title}: made once")
        _on_loop(lambda observe=observe: work(folder / str(observe), observe))  # type: ignore[misc]
    is_filled[0] = True
    best = interleaved(
        {
            "resumed": lambda: _on_loop(lambda: work(folder / "True", True)),
            "run again": lambda: _on_loop(lambda: work(folder / "False", False)),
            "reaktiv": _reaktiv,
            "observ": _observ,
            "bare": lambda: _bare(folder / "True"),
        },
        rounds=3,
    )
    value = best["resumed"] * 1_000
    figures.report(f"resume.clean.{title}", value, "ms", against="run again", ratio=best["run again"] / best["resumed"])
    for name, goal in (("reaktiv", 20.0), ("observ", None)):
        ratio = best[name] / best["resumed"]
        figures.report(f"resume.clean.{title}.{name}", best[name] * 1_000, "ms", ratio=ratio, at_least=goal)
    ratio = best["resumed"] / best["bare"]
    figures.report(f"resume.clean.{title}.bare", best["bare"] * 1_000, "ms", ratio=ratio, at_most=3)


def _reaktiv() -> int:
    library = imported("reaktiv")
    rate = library.Signal(2)
    signals = [library.Signal(number) for number in range(NODES)]
    nodes = [library.Computed(lambda n=n: n() * rate()) for n in signals]
    for node in nodes:
        node()
    signals[0].set(7)
    nodes[0]()
    return 1


def _observ() -> int:
    library = imported("observ")
    state = library.reactive({"rate": 2, **_elements(NODES)})
    nodes = [library.computed(lambda key=key: state[key] * state["rate"]) for key in _elements(NODES)]
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
