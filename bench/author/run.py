"""`./dev bench author`: every measurement in a process of its own, with a time limit, and one line per figure.

Processor time is the measure: it is comparable on a machine that others use. Peers keep nothing, and their ratio says
how many times our time theirs is: at least 1 is the goal for Shiny in each shape of 100 or more nodes, and for reaktiv
in changes of as many. The goal of a shape of many pieces is its growth: with four times as many pieces it takes at most
five times as long as the smaller one. A further node, and a piece of one, have goals of their own, without native code.
Other figures have none. A figure without a value has a reason: its process failed, or was stopped at the time limit.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import headwater
from bench.author import peers, shapes
from bench.author.shapes import OURS, TEN, Report
from bench.figures import Figures, note, print_missing

LIMIT_S: Final = 60.0  # for one process, unless the sizes say otherwise
PREFIX: Final = "author."
BY_CLOCK: Final = ("latency", "p50", "p99", "rate", "wall")  # last parts of names; all other times are the processor's
LOOKS: Final = ("nothing", "one_value", "everything")
CHAIN: Final = ("discover", "open", "close", "close_each", "restart")
GROWTH: Final = 1.25  # the most by which the time of a shape may grow more than its size
LONG_MS: Final = 200.0  # a shorter time says little about growth
MANY: Final = 100  # nodes from which on a shape is compared with peers
OPENED_US: Final = 60.0  # for a further node of a piece that is opened
CHANGED_US: Final = 18.0  # for a further dependent that runs again
PIECE_MS: Final = 1.0  # for a piece of one computed that is opened


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of each shape, and how often it is repeated."""

    opened: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)  # computeds
    dependents: tuple[int, ...] = (1, 10, 100, 1_000)
    alone: int = 100  # events
    at_once: int = 1_000
    rows: tuple[int, ...] = (1_000, 10_000)
    written: tuple[int, ...] = (100, 1_000)  # pieces, in one transaction
    chain: tuple[int, ...] = (1_000, 4_000)  # pieces
    sinks: tuple[int, ...] = (1_000, 20_000)  # opened at once
    stored: tuple[int, ...] = (1_000, 10_000)  # nodes, for restarts
    restarts: int = 3  # processes, of which the median counts
    nodes: int = 300  # for memory
    pieces: int = 100
    sessions: int = 100
    repeats: int = 5
    limit_s: float = LIMIT_S  # for each process; a figure that it has not reported by then has no value


FULL: Final = Sizes()
# The sizes of bench/baseline.json: three shapes are left out, and the largest sizes of the others get more time.
MODEST: Final = Sizes(written=(), chain=(), sinks=(), limit_s=2 * LIMIT_S)
Figure: TypeAlias = tuple[str, float | None, str, str]
"""Name, value, unit, and the reason if there is no value."""


@dataclass(frozen=True, slots=True)
class Task:
    """The measurement of one process, with the names and units of the figures that it must report."""

    work: str
    arguments: dict[str, Any]
    units: dict[str, str]


@dataclass(slots=True)
class Outcome:
    """The figures that a process reported, and the reason if it ended too early."""

    values: dict[str, float] = field(default_factory=dict)
    why: str = ""


# ---- measurements ----------------------------------------------------------------------------------------


def tasks(sizes: Sizes) -> Iterator[Task]:
    """List all measurements except restarts, which need a stored directory."""
    for size in sizes.opened:
        name = f"open.one_piece.{size}.{OURS}"
        arguments = {"size": size, "repeats": sizes.repeats}
        yield Task("open_one_piece", arguments, {f"{name}.first": "ms", name: "ms"})
        if size >= TEN:
            yield Task("open_pieces_of_ten", arguments, {f"open.pieces_of_ten.{size}.{OURS}": "ms"})
    names = [f"open.one_piece.{size}" for size in sizes.opened]
    names += [f"open.pieces_of_ten.{size}" for size in sizes.opened if size >= TEN]
    yield from _of_peers("opened", {"sizes": sizes.opened}, names)

    for size in sizes.dependents:
        names = [f"change.{size}.set", f"change.{size}.handler"]
        yield Task("change", {"size": size}, dict.fromkeys(names, "ms"))
        name = f"change.{size}.remote"
        yield Task("change_remotely", {"size": size}, dict.fromkeys((name, f"{name}.server", f"{name}.latency"), "ms"))
    yield from _of_peers("changed", {"sizes": sizes.dependents}, [f"change.{size}" for size in sizes.dependents])

    name = f"event.alone.{OURS}"
    yield Task("event_alone", {"count": sizes.alone}, {name: "us", f"{name}.p50": "ms", f"{name}.p99": "ms"})
    name = f"event.at_once.{sizes.at_once}.{OURS}"
    yield Task("events_at_once", {"count": sizes.at_once}, {name: "us", f"{name}.rate": "/s"})
    yield from _of_peers("event", {"count": sizes.alone}, ["event.alone"], "us")

    names = [f"each.{size}.{how}" for size in sizes.rows for how in ("make", "change", "add")]
    for size in sizes.rows:
        ours = [f"{name}.{OURS}" for name in names if name.startswith(f"each.{size}.")]
        yield Task("each_rows", {"size": size}, dict.fromkeys(ours, "ms"))
    yield from _of_peers("each_rows", {"sizes": sizes.rows}, names)

    for size in sizes.written:
        yield Task("write_pieces", {"size": size}, {f"write.pieces.{size}.{OURS}": "ms"})
    for size in sizes.chain:
        for is_ring, shape in ((False, "line"), (True, "ring")):
            ours = [f"chain.{shape}.{size}.{how}.{OURS}" for how in CHAIN]
            yield Task("look_at_chain", {"size": size, "is_ring": is_ring}, dict.fromkeys(ours, "ms"))
    for size in sizes.sinks:
        yield Task("open_sinks", {"size": size}, {f"sinks.at_once.{size}.{OURS}": "ms"})

    yield Task("memory_of_nodes", {"count": sizes.nodes}, {f"memory.node.{OURS}": "bytes"})
    yield from _of_peers("memory", {"count": sizes.nodes}, ["memory.node"], "bytes")
    yield Task("memory_of_pieces", {"count": sizes.pieces}, {f"memory.piece.{OURS}": "bytes"})
    ours = [f"memory.session.{OURS}.server", f"memory.session.{OURS}.client"]
    yield Task("memory_of_sessions", {"count": sizes.sessions}, dict.fromkeys(ours, "bytes"))


def _of_peers(work: str, arguments: dict[str, Any], names: Sequence[str], unit: str = "ms") -> Iterator[Task]:
    for peer in peers.PEERS:
        yield Task(work, {"peer": peer, **arguments}, {f"{name}.{peer}": unit for name in names})


def measured(sizes: Sizes) -> Iterator[Figure]:
    """Measure everything; yield each figure as soon as it is known."""
    for task in tasks(sizes):
        yield from figures_of(task, run_process(task, limit_s=sizes.limit_s))
    for nodes in sizes.stored:
        yield from restarts(nodes, sizes.restarts, sizes.limit_s)


def figures_of(task: Task, outcome: Outcome) -> Iterator[Figure]:
    for name, unit in task.units.items():
        value = outcome.values.get(name)
        yield name, value, unit, "" if value is not None else outcome.why or "it was not reported"


def restarts(nodes: int, processes: int, limit_s: float = LIMIT_S) -> Iterator[Figure]:
    """Restarts of one table and of tables of ten nodes. Each opens a copy of the same stored directory."""
    for layout, pieces in (("one_piece", 1), ("pieces_of_ten", nodes // TEN)):
        arguments = {"nodes": nodes, "pieces": pieces}
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as scratch:
            stored = Path(scratch) / "stored"
            made = run_process(Task("make_stored", {"folder": str(stored), **arguments}, {}), limit_s=2 * limit_s)
            for look in LOOKS:
                name = f"restart.{nodes}.{layout}.{look}.{OURS}"
                task = Task("restart", {**arguments, "look": look, "name": name}, {name: "ms", f"{name}.wall": "ms"})
                if made.why:
                    yield from figures_of(task, Outcome(why=f"it could not be stored: {made.why}"))
                    continue
                turns: list[Outcome] = []
                # A process that reports nothing decides: there is no median without it.
                while len(turns) < processes and all(turn.values for turn in turns):
                    turns.append(run_process(task, stored=stored, limit_s=limit_s))
                yield from figures_of(task, medians(turns))
    names = [f"restart.{nodes}.{look}" for look in LOOKS]
    for task in _of_peers("restart", {"nodes": nodes}, names):
        yield from figures_of(task, run_process(task, limit_s=limit_s))


def medians(turns: Sequence[Outcome]) -> Outcome:
    """Take the median of each figure that all processes reported."""
    found = Outcome(why="; ".join(dict.fromkeys(outcome.why for outcome in turns if outcome.why)))
    for name in turns[0].values:
        if all(name in outcome.values for outcome in turns):
            found.values[name] = median(outcome.values[name] for outcome in turns)
    return found


# ---- processes -------------------------------------------------------------------------------------------


def run_process(task: Task, *, stored: Path | None = None, limit_s: float = LIMIT_S) -> Outcome:
    """Run a measurement in a process of its own; kill it, and the processes it started, at the time limit."""
    note(f"  {task.work} {' '.join(f'{name}={value}' for name, value in task.arguments.items())}")
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as scratch:
        folder = Path(scratch) / "data"
        if stored is not None:
            shutil.copytree(stored, folder)
        arguments = {"folder": str(folder), **task.arguments}
        command = [sys.executable, "-m", "bench.author.run", task.work, json.dumps(arguments)]
        out, err = Path(scratch) / "out", Path(scratch) / "err"
        code, why = 0, ""
        with out.open("wb") as reported, err.open("wb") as said:
            process = subprocess.Popen(command, stdout=reported, stderr=said, start_new_session=True)
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                why = f"did not finish in {limit_s:g} s"
            finally:  # Also if this one is interrupted.
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if code:
            why = (err.read_text(errors="replace").strip().splitlines() or [f"exit code {code}"])[-1]
        if why:
            note(f"  !! {why}")
        values = {name: value for line in out.read_text().splitlines() for name, value in [json.loads(line)]}
        return Outcome(values, why)


def _print(name: str, value: float) -> None:
    print(json.dumps([name, value]), flush=True)


def main(work: str, arguments: dict[str, Any], report: Report = _print) -> None:
    """Run one measurement in this process."""
    folder = Path(arguments.pop("folder"))
    peer = arguments.pop("peer", None)
    if peer is not None:
        getattr(peers, work)(report, peer, peers.PEERS[peer](), **arguments)
    elif work == "make_stored":
        headwater.run(partial(shapes.make_stored, folder, **arguments))
    else:
        headwater.run(partial(getattr(shapes, work), report, folder, **arguments))


# ---- printing --------------------------------------------------------------------------------------------


def ours_for(name: str) -> str:
    """Name our figure that a peer's is compared with. A peer has one way to change a value, and no layouts."""
    base = name.rpartition(".")[0]
    kind, _, rest = base.partition(".")
    if kind == "change":
        return f"{base}.set"
    if kind == "restart":
        nodes, _, look = rest.partition(".")
        return f"restart.{nodes}.one_piece.{look}.{OURS}"
    return f"{base}.{OURS}"


def smaller_than(sizes: Sizes) -> dict[str, tuple[str, float]]:
    """For each figure with a goal: the figure of the next smaller size, and how many times as long it may take."""
    shapes_of = {"sinks.at_once.{}": sizes.sinks}
    shapes_of |= {f"chain.{shape}.{{}}.{how}": sizes.chain for shape in ("line", "ring") for how in CHAIN}
    return {
        f"{name.format(large)}.{OURS}": (f"{name.format(small)}.{OURS}", GROWTH * large / small)
        for name, found in shapes_of.items()
        for small, large in pairwise(found)
    }


def peer_goal(name: str) -> float | None:
    """Return how many times our time a peer's has to be at least, if that is a goal."""
    kind, *parts, peer = name.split(".")
    size = max([int(part) for part in parts if part.isdigit()], default=0)
    is_goal = size >= MANY and (peer == "shiny" or (peer == "reaktiv" and kind == "change"))
    return 1.0 if is_goal else None


def slopes(sizes: Sizes) -> Iterator[tuple[str, str, str, int, float]]:
    """Yield the costs of a further node: name, the figures of a small and a large size, nodes between them, goal."""
    for name, figure, found, goal in (
        ("open.further_node", f"open.one_piece.{{}}.{OURS}", sizes.opened, OPENED_US),
        ("change.further_node", "change.{}.set", sizes.dependents, CHANGED_US),
    ):
        small, large = min([size for size in found if size >= TEN * TEN], default=0), max(found)
        if small < large and small:
            yield f"{name}.{OURS}", figure.format(small), figure.format(large), large - small, goal


def run(figures: Figures, sizes: Sizes = FULL) -> None:
    known: dict[str, float] = {}
    smaller = smaller_than(sizes)
    for name, value, unit, why in measured(sizes):
        if value is None:
            print_missing(PREFIX + name, unit, why)
            continue
        known[name] = value
        base, growth = smaller.get(name, ("", 0.0))
        if value >= LONG_MS and base in known:
            figures.report(PREFIX + name, value, unit, against=base, ratio=value / known[base], at_most=growth)
            continue
        is_peer = name.rpartition(".")[2] in peers.PEERS
        ours = known.get(ours_for(name)) if is_peer else None
        ratio = None if ours is None else value / ours
        at_least = None if ratio is None else peer_goal(name)
        at_most = PIECE_MS if name == f"open.one_piece.1.{OURS}" else None
        against = OURS if ratio is not None else ""
        figures.report(PREFIX + name, value, unit, against=against, ratio=ratio, at_least=at_least, at_most=at_most)
    for name, first, last, nodes, goal in slopes(sizes):
        if first in known and last in known:
            figures.report(PREFIX + name, 1e3 * (known[last] - known[first]) / nodes, "us", at_most=goal)


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # Imported modules are not searched for garbage while something is measured.
    main(sys.argv[1], json.loads(sys.argv[2]))
