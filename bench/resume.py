"""Restarting: what comes back without a run, against running it; what recording that costs; what readers cost a writer.

`clean` opens a program of clean nodes, pulls one output, makes one overlapping change and waits until idle; as one
piece, and as many pieces of ten, opened one after the other and together (HEADWATER_BENCH_NODES=10000,100000 says how
many nodes). Each is told in seconds, and in processor time, for a machine that others use. Beside it the same graph
is built by running it in reaktiv and observ, which keep nothing; the rows that are known of its nodes are read bare
from SQLite and decoded; and all of it is brought back (`hydrated`). `observing` is a pass of a hundred runs, with and
without.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import uvloop

from bench.figures import Figures, note
from bench.reactive.peers import imported
from headwater import Cell, Input, Piece, Runtime, cell, computed, each, given, materializer
from headwater.engine.limits import Limits
from headwater.runtime.channel.backend import LocalDirectory

T = TypeVar("T")

NODES: Final = tuple(int(each) for each in os.environ.get("HEADWATER_BENCH_NODES", "10000").split(","))
HYDRATED: Final = 10_000  # So many are brought back in full beside it: each of them is then registered, and read.
MOST_OPEN: Final = 3_000  # Pieces whose records and cells one session may watch.
PASS: Final = 100
ROUNDS: Final = 5
PASSES: Final = 40
MATERIALIZERS: Final = 200  # pieces with one each, which all read the same cell
READERS: Final = (100, 100)  # pieces, and nodes of each that read the same cell
AT_ONCE: Final = 20  # pieces that are made by one runtime, or a twentieth of all
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


class Posting(Piece, name="bench.Posting"):
    shared: Input[int] = given()
    board: Cell[Mapping[str, int]] = cell(default={})

    @materializer(envelope=(board,))
    def posted(self) -> int:
        self.board.key("n").set(self.shared.get())
        return self.shared.get()


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
        fan_out(figures, folder / "materializers")


def _on_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def _elements(count: int) -> dict[str, int]:
    return {f"k{number}": number for number in range(count)}


# ---- recording -------------------------------------------------------------------------------------------


def observing(figures: Figures, folder: Path) -> None:
    """One change that a hundred nodes run for, until it is durable, on a disk that is synced."""

    async def passes(observe: bool, path: Path) -> float:
        async with LocalDirectory(path, synchronous="FULL") as data, Runtime(data, observe=observe) as rt:
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


def fan_out(figures: Figures, folder: Path) -> None:
    """Restart with many materializers that read one cell: with nothing written meanwhile, and after a write of it."""

    async def restart(written: int | None) -> tuple[float, int]:
        async with LocalDirectory(folder) as data:
            if written is not None:
                async with Runtime(data, observe=False) as other:
                    await other.space(SPACE).transact(other.space(SPACE).piece(Shared, "shared").read.set, written)
            began = time.process_time()
            async with Runtime(data, identity="bench") as rt:
                space = rt.space(SPACE)
                shared = await space.open(Shared, "shared")
                for number in range(MATERIALIZERS):
                    posting: Any = Posting(shared=shared.read)
                    await space.open(posting, f"p{number}")
                await rt.settled()
                runs = sum(node.runs for node in rt.graph().nodes if node.id.endswith(":posted"))
                took = time.process_time() - began
                await rt.durable()
        return took, runs

    _on_loop(partial(restart, 1))
    note(f"  materializers: {MATERIALIZERS} pieces come back")
    clean_s, clean_runs = min(_on_loop(partial(restart, None)) for _ in range(ROUNDS))
    stale_s, stale_runs = min(_on_loop(partial(restart, 2 + turn)) for turn in range(ROUNDS))
    assert (clean_runs, stale_runs) == (0, MATERIALIZERS), f"{clean_runs} and {stale_runs} materializers ran"
    per_piece = 1e6 / MATERIALIZERS
    figures.report(
        "resume.materializers.clean",
        clean_s * per_piece,
        "us/piece",
        against="all of them run again",
        ratio=clean_s / stale_s,
    )
    figures.report("resume.materializers.written", stale_s * per_piece, "us/piece")


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


# ---- coming back -----------------------------------------------------------------------------------------


def clean(figures: Figures, folder: Path, nodes: int, pieces: int) -> None:
    """Open, pull one output, make one overlapping change, wait until it is idle. Closing is not part of it."""
    title = f"{'one_piece' if pieces == 1 else 'pieces_of_ten'}.{nodes}"
    count = nodes // pieces - 2  # Beside a node for each element there is one for the keys, and one that is pulled.
    # A piece of 100,000 rows asks for the document of each, all at once, and is observed to keep all of them.
    by_default = Limits()
    limits = Limits(
        watches=10 * nodes,
        backlog_frames=max(10 * nodes, by_default.backlog_frames),
        commit_reads=max(2 * nodes, by_default.commit_reads),
    )

    async def fill(first: int, last: int) -> int:
        async with LocalDirectory(folder, synchronous="OFF", limits=limits) as data, Runtime(data, close_s=600) as rt:
            for number in range(first, last):
                setup = partial(_set, count)
                sheet = await rt.space(SPACE).open(Sheet, f"s{number}", setup=setup)
                await sheet.first.pull()
            await rt.settled()
            await rt.durable()
        return 1

    note(f"  {title}: made once")
    at_once = max(AT_ONCE, pieces // 20)
    gc.disable()  # A third of what making so many objects takes; nothing of it is measured.
    for first in range(0, pieces, at_once):
        _on_loop(partial(fill, first, min(first + at_once, pieces)))
    gc.enable()

    async def resumed(is_whole: bool, *, together: bool = False) -> Took:
        began = Took.now()
        async with (
            LocalDirectory(
                folder, synchronous="OFF", limits=limits if is_whole or pieces > MOST_OPEN else Limits()
            ) as data,
            Runtime(data, close_s=600) as rt,
        ):
            space = rt.space(SPACE)
            if together:
                sheets = await asyncio.gather(*[space.open(Sheet, f"s{number}") for number in range(pieces)])
            else:
                sheets = [await space.open(Sheet, f"s{number}") for number in range(pieces)]
            await sheets[0].first.pull()
            for sheet in sheets if is_whole else ():
                await sheet.priced.pull()
            sheets[0].cells.key("k0").set(int(time.monotonic() * 1_000))
            await rt.settled()
            took = began.until_now()
            if rt.resume_counts["asleep"] < pieces:
                raise RuntimeError(f"these slept: {rt.resume_counts}")
            await rt.durable()
        return took

    contenders: dict[str, Callable[[], Took]] = {
        "resumed": lambda: _on_loop(partial(resumed, False)),
        "reaktiv": lambda: _timed(lambda: _reaktiv(nodes)),
        "observ": lambda: _timed(lambda: _observ(nodes)),
        "bare": lambda: _timed(lambda: _bare(folder)),
    }
    if pieces > 1:
        contenders["together"] = lambda: _on_loop(partial(resumed, False, together=True))
    took: dict[str, list[Took]] = {name: [] for name in contenders}
    for turn in range(ROUNDS):
        note(f"  {title}: round {turn + 1} of {ROUNDS}")
        for name, work in contenders.items():
            took[name].append(work())
    for kind in ("seconds", "processor"):
        best = {name: min([getattr(each, kind) for each in every]) for name, every in took.items()}
        of_it, is_goal = (title, True) if kind == "seconds" else (f"{title}.processor", False)
        for name in ("resumed", *(("together",) if pieces > 1 else ())):
            shown = of_it if name == "resumed" else f"{of_it}.together"
            value, ratio = best[name] * 1_000, best["reaktiv"] / best[name]
            figures.report(
                f"resume.clean.{shown}", value, "ms", against="reaktiv", ratio=ratio, at_least=20 if is_goal else None
            )
            ratio = best[name] / best["bare"]
            figures.report(
                f"resume.clean.{shown}.bare", best["bare"] * 1_000, "ms", ratio=ratio, at_most=3 if is_goal else None
            )
        for name in ("reaktiv", "observ"):
            ratio = best[name] / best["resumed"]
            figures.report(f"resume.clean.{of_it}.{name}", best[name] * 1_000, "ms", ratio=ratio)
    if nodes <= HYDRATED:
        whole, least = _on_loop(partial(resumed, True)).seconds, min([each.seconds for each in took["resumed"]])
        figures.report(f"resume.hydrated.{title}", whole * 1_000, "ms", ratio=whole / least)


class Took(NamedTuple):
    """A moment, or what something took: by the clock, and by the processor, of all threads."""

    seconds: float
    processor: float

    @staticmethod
    def now() -> Took:
        return Took(time.perf_counter(), time.process_time())

    def until_now(self) -> Took:
        return Took(time.perf_counter() - self.seconds, time.process_time() - self.processor)


def _timed(work: Callable[[], object]) -> Took:
    gc.collect()
    began = Took.now()
    work()
    return began.until_now()


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
        async with LocalDirectory(folder, synchronous="OFF") as data, Runtime(data) as rt:
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
        async with LocalDirectory(folder, synchronous="OFF") as data, Runtime(data) as rt:
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
