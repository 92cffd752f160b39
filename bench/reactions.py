"""Reactions: emit, run and acknowledge, durably; one by one, and from a backlog over a hundred targets.

Against DBOS and huey on SQLite, both from PyPI and both syncing, and against a bare loop of the same shape on apsw. One
run, in which all take turns; the best round of each counts. What is durable of one record, and when:

- ours: the record with what caused it and with the claim of its target, synced, before the reaction begins; its
  position, synced, after. The next record is emitted when the reaction has begun, so that its commit may take the
  acknowledgement of the one before along: `reactions.alone.commits` says how many store transactions a record took.
- bare: the insert, synced; the update, synced. It claims nothing, retries nothing and keeps no history.
- huey: enqueueing, dequeueing and its result, synced each; a crash in between loses what was dequeued.
- DBOS: the workflow's beginning and its result, as its SQLite database does by itself. What is in its queue it runs at
  once: its backlog is enqueued and run.

A record counts when its acknowledgement is on the disk. Latency is from the moment at which the emitting commit is
known to be durable to the moment at which an idle reaction begins, beside one bare commit. Processor time is printed,
too: it says more than the clock where others use the machine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import apsw
import uvloop

from bench.figures import Figures, note
from headwater import Piece, Runtime, Topic, handler, reaction, topic
from headwater.engine.store.database import Database
from headwater.reactions.drain import Pace

ALONE: Final = 300  # records one by one, in a round
BACKLOG: Final = 5_000
TARGETS: Final = 100
ROUNDS: Final = 3
PEERS_BACKLOG: Final = 500  # of the peers, whose rate does not depend on it, since it takes that long


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
COMMITS: Final = [0]  # store transactions that wrote something, in this process


@contextmanager
def counted() -> Iterator[None]:
    """Count store transactions."""
    commit = Database.commit

    def counting(database: Database) -> None:
        COMMITS[0] += 1
        commit(database)

    Database.commit = counting  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Database.commit = commit  # type: ignore[method-assign]


async def ours(folder: Path) -> tuple[float, float, float, float, list[float]]:
    """Seconds for a record one by one and from the backlog; one by one, of the processor; transactions; latencies."""
    heard = Heard()
    HEARD.append(heard)
    async with Runtime(folder, pace=Pace(slots=TARGETS, records=64)) as runtime:
        space = runtime.space("bench")
        jobs = [await space.open(Job, f"job {number}") for number in range(TARGETS)]
        await jobs[0].ask.send(0)
        await runtime.reactions.drained()
        late: list[float] = []
        commits, worked, began = COMMITS[0], time.process_time(), time.perf_counter()
        for number in range(ALONE):
            heard.told.clear()
            await jobs[0].ask.send(number)
            durable = time.perf_counter()
            await heard.told.wait()
            late.append(heard.begun - durable)
        await runtime.reactions.drained()
        alone, worked = (time.perf_counter() - began) / ALONE, (time.process_time() - worked) / ALONE
        transactions = (COMMITS[0] - commits) / ALONE
        await runtime.reactions.pause(DOES)
        for number in range(BACKLOG // TARGETS):
            await asyncio.gather(*(job.ask.send(number) for job in jobs))
        before, began = heard.count, time.perf_counter()
        await runtime.reactions.resume(DOES)
        await runtime.reactions.drained()
        backlog = (time.perf_counter() - began) / BACKLOG
        assert heard.count - before >= BACKLOG
    return alone, backlog, worked, transactions, late


# ---- a bare loop ---------------------------------------------------------------------------------------------


def bare(folder: Path) -> tuple[float, float, float, float]:
    """The same shape without a system: seconds one by one, from the backlog in batches, of the processor; a commit."""
    connection = apsw.Connection(str(folder / "bare.sqlite"))
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "locking_mode=EXCLUSIVE"):
        connection.pragma(*pragma.split("="))
    run = connection.cursor().execute
    run("CREATE TABLE jobs (id INTEGER PRIMARY KEY, target INTEGER, payload BLOB, done INTEGER)")
    run("CREATE INDEX waiting ON jobs (done, target, id)")
    worked, began = time.process_time(), time.perf_counter()
    for number in range(ALONE):
        run("INSERT INTO jobs VALUES (?,?,?,0)", (number, 0, b"x"))
        row: Any = run("SELECT id, payload FROM jobs WHERE done=0 AND target=0 ORDER BY id LIMIT 1").fetchone()
        run("UPDATE jobs SET done=1 WHERE id=?", (_work(int(row[0])),))
    alone, worked = (time.perf_counter() - began) / ALONE, (time.process_time() - worked) / ALONE
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
    return alone, backlog, worked, commit


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
    for number in range(PEERS_BACKLOG):
        task(number)
    began = time.perf_counter()
    for _ in range(PEERS_BACKLOG):
        run_one()
    return alone, (time.perf_counter() - began) / PEERS_BACKLOG


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
        for handle in [queue.enqueue(work, number) for number in range(PEERS_BACKLOG)]:
            handle.get_result()
        return alone, (time.perf_counter() - began) / PEERS_BACKLOG
    finally:
        DBOS.destroy(destroy_registry=True)


PEERS: Final[dict[str, tuple[Callable[[Path], tuple[float, float]], float]]] = {
    "dbos": (dbos, 10.0),
    "huey": (huey, 1.0),
}


def run(figures: Figures) -> None:
    best: dict[str, list[float]] = {}
    late: list[float] = []
    waited: list[float]
    for turn in range(ROUNDS):
        note(f"  round {turn + 1} of {ROUNDS}")
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            with counted():
                *seconds, waited = uvloop.run(ours(Path(folder)))
            late += waited
            _keep(best, "ours", *seconds)
            _keep(best, "bare", *bare(Path(folder)))
            for name, (peer, _) in PEERS.items():
                if importlib.util.find_spec(name) is not None:
                    _keep(best, name, *peer(Path(folder)))
    ours_alone, ours_backlog, ours_worked, transactions = best["ours"]
    bare_alone, bare_backlog, bare_worked, commit = best["bare"]
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
    figures.report("reactions.alone.commits", transactions, "transactions")
    figures.report(
        "reactions.alone.cpu", ours_worked * 1e6, "us", against="bare apsw loop", ratio=ours_worked / bare_worked
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
