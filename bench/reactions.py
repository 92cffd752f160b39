"""Reactions: emit, run and acknowledge, durably; one by one, and from a backlog over a hundred targets.

Against DBOS and huey on SQLite, both from PyPI and both syncing, and against a bare loop of the same shape on apsw. One
run, in which all take turns. The record is emitted by a handler, delivered by the runtime's own worker, and counts when
its acknowledgement is on the disk. What DBOS has in its queue it runs at once: its backlog is enqueued and run. Latency
is from the moment at which the emitting commit is durable to the moment at which an idle reaction begins, beside one
bare commit.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import apsw
import uvloop

from bench.figures import Figures, note
from headwater import Piece, Runtime, Topic, handler, reaction, topic
from headwater.reactions.drain import Pace

ALONE: Final = 300  # records one by one, in a round
BACKLOG: Final = 5_000
TARGETS: Final = 100
ROUNDS: Final = 3
DBOS_BACKLOG: Final = 500  # of these, since it takes that long


class Heard:
    """Who waits for a reaction."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = 0.0
        self.told = asyncio.Event()

    def begins(self) -> None:
        self.count += 1
        self.begun = time.perf_counter()
        self.told.set()


HEARD: list[Heard] = []  # of the round


class Job(Piece, name="bench.Job"):
    asked: Topic[int] = topic()

    @handler
    def ask(self, number: int) -> None:
        self.asked.emit(number)

    @reaction(on=asked)
    async def does(self, number: int) -> None:
        HEARD[-1].begins()


DOES: Final = "bench.Job.does"


async def ours(folder: Path) -> tuple[float, float, list[float]]:
    """Seconds for a record one by one and from the backlog, and the latencies."""
    heard = Heard()
    HEARD.append(heard)
    async with Runtime(folder, pace=Pace(slots=TARGETS, records=64)) as runtime:
        space = runtime.space("bench")
        jobs = [await space.open(Job, f"job {number}") for number in range(TARGETS)]
        await jobs[0].ask.send(0)
        await runtime.reactions.drained()
        late: list[float] = []
        began = time.perf_counter()
        for number in range(ALONE):
            heard.told.clear()
            await jobs[0].ask.send(number)
            durable = time.perf_counter()
            await heard.told.wait()
            late.append(heard.begun - durable)
        await runtime.reactions.drained()
        alone = (time.perf_counter() - began) / ALONE
        await runtime.reactions.pause(DOES)
        for number in range(BACKLOG // TARGETS):
            await asyncio.gather(*(job.ask.send(number) for job in jobs))
        before, began = heard.count, time.perf_counter()
        await runtime.reactions.resume(DOES)
        await runtime.reactions.drained()
        backlog = (time.perf_counter() - began) / BACKLOG
        assert heard.count - before >= BACKLOG
    return alone, backlog, late


# ---- a bare loop ---------------------------------------------------------------------------------------------


def bare(folder: Path) -> tuple[float, float, float]:
    """The same shape without a system: seconds one by one, from the backlog in batches, and of one commit."""
    connection = apsw.Connection(str(folder / "bare.sqlite"))
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "locking_mode=EXCLUSIVE"):
        connection.pragma(*pragma.split("="))
    run = connection.cursor().execute
    run("CREATE TABLE jobs (id INTEGER PRIMARY KEY, target INTEGER, payload BLOB, done INTEGER)")
    run("CREATE INDEX waiting ON jobs (done, target, id)")
    began = time.perf_counter()
    for number in range(ALONE):
        run("INSERT INTO jobs VALUES (?,?,?,0)", (number, 0, b"x"))
        row: Any = run("SELECT id, payload FROM jobs WHERE done=0 AND target=0 ORDER BY id LIMIT 1").fetchone()
        run("UPDATE jobs SET done=1 WHERE id=?", (_work(int(row[0])),))
    alone = (time.perf_counter() - began) / ALONE
    run("BEGIN")
    for number in range(BACKLOG):
        run("INSERT INTO jobs VALUES (?,?,?,0)", (ALONE + number, number % TARGETS, b"x"))
    run("COMMIT")
    began = time.perf_counter()
    rows: Any
    while rows := run("SELECT id, payload FROM jobs WHERE done=0 ORDER BY target, id LIMIT 100").fetchall():
        for row in rows:
            _work(int(row[0]))
        run("BEGIN")
        connection.cursor().executemany("UPDATE jobs SET done=1 WHERE id=?", [row[:1] for row in rows])
        run("COMMIT")
    backlog = (time.perf_counter() - began) / BACKLOG
    began = time.perf_counter()
    for number in range(ALONE):
        run("INSERT INTO jobs VALUES (?,?,?,1)", (10**6 + number, 0, b"x"))
    commit = (time.perf_counter() - began) / ALONE
    connection.close()
    return alone, backlog, commit


def _work(number: int) -> int:
    return number


# ---- peers ---------------------------------------------------------------------------------------------------


def huey(folder: Path) -> tuple[float, float]:
    SqliteHuey: Any = importlib.import_module("huey").SqliteHuey

    queue = SqliteHuey("bench", filename=str(folder / "huey.sqlite"), fsync=True)
    task: Callable[[int], Any] = queue.task()(_work)

    def run_one() -> None:
        queue.execute(queue.dequeue())

    began = time.perf_counter()
    for number in range(ALONE):
        task(number)
        run_one()
    alone = (time.perf_counter() - began) / ALONE
    for number in range(BACKLOG):
        task(number)
    began = time.perf_counter()
    for _ in range(BACKLOG):
        run_one()
    return alone, (time.perf_counter() - began) / BACKLOG


def dbos(folder: Path) -> tuple[float, float]:
    module: Any = importlib.import_module("dbos")
    DBOS = module.DBOS

    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "log_level": "ERROR"})

    work = DBOS.workflow()(_work)
    DBOS.launch()
    queue = DBOS.register_queue("bench", polling_interval_sec=0.01)
    try:
        began = time.perf_counter()
        for number in range(ALONE):
            work(number)
        alone = (time.perf_counter() - began) / ALONE
        began = time.perf_counter()
        for handle in [queue.enqueue(work, number) for number in range(DBOS_BACKLOG)]:
            handle.get_result()
        return alone, (time.perf_counter() - began) / DBOS_BACKLOG
    finally:
        DBOS.destroy(destroy_registry=True)


PEERS: Final[dict[str, tuple[Callable[[Path], tuple[float, float]], float]]] = {
    "dbos": (dbos, 10.0),
    "huey": (huey, 1.0),
}


def run(figures: Figures) -> None:
    best: dict[str, list[float]] = {}
    late: list[float] = []
    for turn in range(ROUNDS):
        note(f"  round {turn + 1} of {ROUNDS}")
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            alone, backlog, waited = uvloop.run(ours(Path(folder)))
            late += waited
            _keep(best, "ours", alone, backlog)
            _keep(best, "bare", *bare(Path(folder)))
            for name, (peer, _) in PEERS.items():
                if importlib.util.find_spec(name) is not None:
                    _keep(best, name, *peer(Path(folder)))
    ours_alone, ours_backlog = best["ours"]
    bare_alone, bare_backlog, commit = best["bare"]
    figures.report(
        "reactions.alone",
        1 / ours_alone,
        "/s",
        against="bare apsw loop",
        ratio=bare_alone / ours_alone,
        at_least=0.6,
    )
    figures.report(
        "reactions.backlog",
        1 / ours_backlog,
        "/s",
        against="bare apsw loop, batched",
        ratio=bare_backlog / ours_backlog,
        at_least=0.25,
    )
    for name, (_, goal) in PEERS.items():
        if name not in best:
            note(f"  {name} is not installed: it is left out")
            continue
        theirs_alone, theirs_backlog = best[name]
        figures.report(
            f"reactions.alone.{name}", 1 / theirs_alone, "/s", ratio=theirs_alone / ours_alone, at_least=goal
        )
        figures.report(
            f"reactions.backlog.{name}", 1 / theirs_backlog, "/s", ratio=theirs_backlog / ours_backlog, at_least=goal
        )
    figures.report(
        "reactions.latency.p50", median(late) * 1e6, "us", against="one bare commit", ratio=median(late) / commit
    )
    figures.report("reactions.latency.p99", quantiles(late, n=100)[98] * 1e6, "us")


def _keep(best: dict[str, list[float]], name: str, *seconds: float) -> None:
    known = best.get(name)
    best[name] = list(seconds) if known is None else [min(pair) for pair in zip(known, seconds, strict=True)]
