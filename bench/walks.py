"""Counted walks: the cost of one click, one remote commit and one opened piece, in calls instead of seconds.

Each walk runs a small program through the public API in a process of its own, in pure Python, and counts in all
threads: calls of Python functions, modules of the package that were called, messages to the engine, store
transactions, and ticks of the scheduler. A count does not depend on how fast the machine is, so that it can be compared
between machines and be a gate. It depends a little on which thread processes a message and on which messages
arrive together: a walk is repeated, and the file has median, least and most.

`MARKS` is the only place that names functions of the product.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median_low
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, TypeAlias, TypedDict

import headwater
from bench.author.pieces import EACH_SHOWN, SHOWN, Cart, Line, wide, wide_total
from bench.figures import note
from bench.sync import server
from headwater.data.value import MAX_INT
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.runtime import LocalDirectory, Runtime
from headwater.runtime.channel import driver
from headwater.runtime.core.limits import RuntimeLimits

# By counter, the functions whose calls are counted: module and qualified name. A name that does not exist is an error.
Marks: TypeAlias = Mapping[str, Sequence[tuple[str, str]]]
MARKS: Final[Marks] = {
    # An embedded engine is handed the message itself; a client of a server encodes it.
    "messages": (
        ("headwater.runtime.channel.connection_end", "ConnectionEnd.receive"),
        ("headwater.protocol.messages", "encode"),
    ),
    "transactions": (("headwater.engine.store.database", "Database.commit"),),
    "ticks": (("headwater.scheduler.scheduler", "Scheduler.tick"),),
    # An attempt to run a node. A tick without one is empty.
    "attempts": (("headwater.scheduler.runner", "Runner.attempt"),),
}
PACKAGE: Final = Path(headwater.__file__).parent
REPEATS: Final = 6  # of the same walk in one process
PROCESSES: Final = 3  # of a walk that only the first piece of a process can show
LIMIT_S: Final = 120.0  # for one process
WARM: Final = 3  # repeats before that are not counted: they fill caches
WIDE: Final = 100  # computeds beside their sum
NODES: Final = 10  # of a piece that is clean
TEN: Final = wide(NODES - 1)
MAKER: Final = "make-clean"  # programs of other processes
WRITER: Final = "write-when-told"


COUNTERS: Final = ("calls", "modules", "messages", "transactions", "ticks", "empty_ticks")
Counts: TypeAlias = dict[str, int]
"""The counts of one walk, in all threads, by counter."""


class Spread(TypedDict):
    """The counts of several repetitions, each counter by itself."""

    median: Counts
    least: Counts
    most: Counts
    repetitions: int


Found: TypeAlias = dict[str, list[Counts]]
"""By part of a walk, the counts of each repetition."""


class Tally:
    """Counts between `start` and `stop`. Installed once, before any thread that is to be counted is started."""

    def __init__(self, marks: Marks = MARKS, package: Path = PACKAGE) -> None:
        self._counter_of = {id(_code_of(*name)): counter for counter, names in marks.items() for name in names}
        self._package = str(package) + os.sep
        self._is_on = False
        self._reset()

    def _reset(self) -> None:
        # Threads count at the same time: next(), add() and append() are never interrupted half-way.
        self._calls = count()
        self._files: set[str] = set()
        self._marked: dict[str, list[None]] = {counter: [] for counter in set(self._counter_of.values())}
        self._attempts_before = 0
        self._empty_ticks = 0

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def start(self) -> None:
        self._reset()
        self._is_on = True

    def stop(self) -> Counts:
        self._is_on = False
        return {
            "calls": next(self._calls) - 1,  # without the call of this method
            "modules": sum(name.startswith(self._package) for name in self._files),
            "messages": len(self._marked["messages"]),
            "transactions": len(self._marked["transactions"]),
            "ticks": len(self._marked["ticks"]),
            "empty_ticks": self._empty_ticks,
        }

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if not self._is_on:
            return
        counter = self._counter_of.get(id(frame.f_code))
        if event == "call":
            next(self._calls)
            self._files.add(frame.f_code.co_filename)
            if counter is not None:
                self._marked[counter].append(None)
                if counter == "ticks":
                    self._attempts_before = len(self._marked["attempts"])
        elif event == "return" and counter == "ticks":
            self._empty_ticks += len(self._marked["attempts"]) == self._attempts_before


def _code_of(module: str, qualified: str) -> CodeType:
    found: Any = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    if not isinstance(found, FunctionType):
        raise TypeError(f"{module}.{qualified} is compiled: walks are counted in pure Python")
    return found.__code__


# ---- the programs ----------------------------------------------------------------------------------------

SPACE: Final = "shop"
Walk: TypeAlias = Callable[[Tally, Path], Coroutine[Any, Any, Found]]


async def click(tally: Tally, folder: Path) -> Found:
    """Await a `send`, embedded, until its effect ran and everything is idle and durable.

    On a quick disk, so that the thread of the runtime processes the space, and without the timer of acknowledgements:
    every third click sends one, whatever the speed of the machine.
    """
    found = []
    vars(driver)["RUNTIME_LIMITS"] = RuntimeLimits(ack_delay_s=LIMIT_S)
    limits = replace(DEFAULT_LIMITS, slow_step_us=MAX_INT)
    async with LocalDirectory(folder, limits=limits) as data, Runtime(data, reacts=True) as rt:
        cart = await rt.space(SPACE).open(Cart, "ann")
        line = Line(sku="tea", cents=450)
        for turn in range(WARM + REPEATS):
            await rt.settled()
            await rt.durable()
            shown = len(SHOWN)
            tally.start()
            await cart.add.send(line)
            await rt.idle()
            await rt.durable()
            counts = tally.stop()
            if len(SHOWN) == shown:
                raise RuntimeError("the effect did not run")
            if turn >= WARM:
                found.append(counts)
    return {"click": found}


async def remote_commit(tally: Tally, folder: Path) -> Found:
    """Hear a commit of another process, from a server, until a computed and the effect that reads it ran.

    Only the process that hears it is counted, not the server and not the writer.
    """
    found = []
    with server(folder) as (port, _):
        address = f"ws://127.0.0.1:{port}"
        async with headwater.connect(address, token="") as rt:
            cart = await rt.space(SPACE).open(Cart, "ann")
            await cart.add.send(Line(sku="tea", cents=450))
            arguments = [sys.executable, "-m", "bench.walks", WRITER, address]
            with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
                assert writer.stdin is not None
                assert writer.stdout is not None
                writer.stdout.readline()  # It is connected.
                for turn in range(WARM + REPEATS):
                    await rt.settled()
                    await rt.durable()
                    ran = asyncio.Event()
                    EACH_SHOWN.append(ran.set)
                    tally.start()
                    writer.stdin.write(b"\n")
                    writer.stdin.flush()
                    await ran.wait()
                    await rt.idle()
                    await rt.durable()
                    counts = tally.stop()
                    EACH_SHOWN.clear()
                    writer.stdout.readline()
                    if turn >= WARM:
                        found.append(counts)
                writer.stdin.close()
                writer.wait()
    return {"remote_commit": found}


async def write_when_told(address: str) -> None:
    """The other process: one commit for each line of standard input."""
    async with headwater.connect(address, token="") as rt:
        cart = rt.space(SPACE).piece(Cart, "ann")
        await cart.lines.pull()
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            cart.lines.push(Line(sku="milk", cents=120))
            await rt.durable()
            print("written", flush=True)


async def open_clean(tally: Tally, folder: Path) -> Found:
    """Open a piece that another process left clean, and pull one value: the first of its class, and further ones."""
    subprocess.run([sys.executable, "-m", "bench.walks", MAKER, str(folder)], check=True)
    found = []
    async with headwater.open(folder) as rt:
        space = rt.space(SPACE)
        await space.open(Cart, "ann")  # Connecting is not part of it.
        await rt.settled()
        await rt.durable()
        for number in range(1 + REPEATS):
            tally.start()
            piece = await space.open(TEN, f"p{number}")
            value = await piece.total.pull()
            await rt.idle()
            await rt.durable()
            found.append(tally.stop())
            if value != wide_total(NODES - 1, 1):
                raise RuntimeError(f"p{number} shows {value}")
    return {"open_clean.first": found[:1], "open_clean.further": found[1:]}


async def make_clean(folder: Path) -> None:
    async with headwater.open(folder) as rt:
        for number in range(1 + REPEATS):
            piece = await rt.space(SPACE).open(TEN, f"p{number}")
            await piece.total.pull()
        await rt.settled()
        await rt.durable()


async def open_new(tally: Tally, folder: Path) -> Found:
    """Open a new piece with 100 computeds and one that sums them, and see the sum."""
    many = wide(WIDE)
    found = []
    async with headwater.open(folder) as rt:
        space = rt.space(SPACE)
        await space.open(Cart, "ann")
        await rt.settled()
        await rt.durable()
        for number in range(2):
            tally.start()
            piece = await space.open(many, f"p{number}")
            value = await piece.total.pull()
            await rt.idle()
            await rt.durable()
            found.append(tally.stop())
            if value != wide_total(WIDE, 1):
                raise RuntimeError(f"p{number} shows {value}")
    return {"open_new.first": found[:1], "open_new.further": found[1:]}


WALKS: Final[dict[str, Walk]] = {
    "click": click,
    "remote_commit": remote_commit,
    "open_clean": open_clean,
    "open_new": open_new,
}


# ---- running them ----------------------------------------------------------------------------------------


def count_walks(names: Iterable[str] = tuple(WALKS), processes: int = PROCESSES) -> dict[str, Spread]:
    """Run each walk in processes of its own."""
    found: dict[str, list[Counts]] = {}
    for name in names:
        for turn in range(processes):
            note(f"  walk {name}: process {turn + 1} of {processes}")
            for part, counts in _walked(name).items():
                found.setdefault(part, []).extend(counts)
    return {part: spread(counts) for part, counts in found.items()}


def _walked(name: str) -> Found:
    # Sets and dicts of texts are in the same order every time.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "bench.walks", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, timeout=LIMIT_S)
    found: Found = json.loads(done.stdout)
    return found


def spread(counts: Sequence[Counts]) -> Spread:
    by_counter = {counter: [each[counter] for each in counts] for counter in COUNTERS}
    return {
        "median": {counter: median_low(every) for counter, every in by_counter.items()},
        "least": {counter: min(every) for counter, every in by_counter.items()},
        "most": {counter: max(every) for counter, every in by_counter.items()},
        "repetitions": len(counts),
    }


def main(arguments: Sequence[str]) -> int:
    """`python -m bench.walks NAME` prints the counts of one process as JSON; without a name, the medians of all."""
    match arguments:
        case []:
            for name, counts in count_walks().items():
                print(json.dumps({"walk": name, **dict(counts)}), flush=True)
        case [name, where] if name == MAKER:
            headwater.run(partial(make_clean, Path(where)))
        case [name, where] if name == WRITER:
            headwater.run(partial(write_when_told, where))
        case [name]:
            tally = Tally()
            tally.install()
            with tempfile.TemporaryDirectory(prefix="headwater-walk-") as folder:
                found = headwater.run(partial(WALKS[name], tally, Path(folder)))
            print(json.dumps(found))
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
