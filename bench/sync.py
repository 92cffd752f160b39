"""Sessions and the server, over real sockets, against what an echo and an fsync cost in the same run.

The server is a process of its own; all clients are sessions of this process, on one event loop. So two cores are
in use, and what the clients cost is part of every figure.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop
from websockets.asyncio.client import ClientConnection, connect

from bench import contention
from bench.figures import Figures, interleaved, note
from headwater.clock import RealClock
from headwater.data.address import DocKey
from headwater.data.patch import increment, replace
from headwater.protocol.messages import Encoding
from headwater.replica.replica import Replica
from headwater.replica.session import Session
from headwater.replica.transaction import Transaction
from headwater.runtime.channel.driver import Driver
from headwater.runtime.channel.websocket import WebSocket
from headwater.runtime.writing.retry import Writer

SPACE: Final = "bench"
COMMITS: Final = 400  # of one client in one round
ROUNDS: Final = 5
WATCHERS: Final = 1_000
IDLE: Final = 1_000
SCROLLED: Final = 100_000
PAGE: Final = 100
MADE: Final = 20  # documents in one commit

ECHO_SERVER: Final = """
import asyncio, uvloop
from websockets.asyncio.server import serve
async def echo(socket):
    async for message in socket:
        await socket.send(message)
async def main():
    async with serve(echo, "127.0.0.1", 0, compression=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().create_future()
uvloop.run(main())
"""


class Client:
    """One session over WebSocket."""

    def __init__(self, port: int, key: str, encoding: Encoding = "msgpack") -> None:
        self.replica = Replica()
        session = Session(self.replica, space=SPACE, key=key, new_token=RealClock().new_token)
        self.driver = Driver(session, WebSocket(f"ws://127.0.0.1:{port}", encoding=encoding))
        self.writer = Writer(self.driver)
        self.driver.start()

    async def create(self, doc: DocKey, value: object) -> None:
        await self.writer.transact(lambda t: t.write(doc, replace((), value)))

    async def add_up(self, doc: DocKey) -> None:
        await self.writer.transact(lambda t: t.write(doc, increment(("n",), 1)))

    async def count_up(self, doc: DocKey) -> None:
        def step(transaction: Transaction) -> None:
            number = transaction.read(doc, ("n",))
            assert isinstance(number, int)
            transaction.write(doc, replace(("n",), number + 1))

        await self.writer.transact(step)


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, int]]:
    """A server of its own process: its port and its process id."""
    command = [sys.executable, "-m", "headwater.cli", "serve", str(folder), "--port", "0", "--insecure-local"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stderr is not None
        try:
            yield json.loads(process.stderr.readline())["port"], process.pid
        finally:
            process.terminate()


def run(figures: Figures) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8_192)), hard))
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as name,
        server(Path(name) / "data") as (port, pid),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(idle(figures, port, pid))  # First: later the server has memory to spare.
        commits(figures, runner.run, port, Path(name))
        runner.run(fan_out(figures, port))
        runner.run(contention.run(figures, lambda key: Client(port, key), Path(name)))
        runner.run(scroll(figures, port))


# ---- commits ---------------------------------------------------------------------------------------------


def commits(figures: Figures, wait: Callable[[Coroutine[Any, Any, Any]], Any], port: int, folder: Path) -> None:
    echo_server = subprocess.Popen([sys.executable, "-c", ECHO_SERVER], stdout=subprocess.PIPE, text=True)
    assert echo_server.stdout is not None
    try:
        echoing = wait(connected(int(echo_server.stdout.readline())))
        clients = [wait(ready(port, n)) for n in range(64)]
        latencies: list[float] = []
        contenders: dict[str, Callable[[], int]] = {
            "echo": lambda: wait(echo(echoing, COMMITS)),
            "fsync": lambda: synced(folder / "fsync", COMMITS),
            "1": lambda: wait(commit_often(clients[:1], COMMITS, latencies)),
            "8": lambda: wait(commit_often(clients[:8], COMMITS)),
            "64": lambda: wait(commit_often(clients, COMMITS // 4)),
        }
        best = interleaved(contenders, ROUNDS)
        wait(echoing.close())
        for client in clients:
            wait(client.driver.close())
    finally:
        echo_server.terminate()
        echo_server.wait()
    limit = best["echo"] + best["fsync"]
    latencies.sort()
    figures.report("sync.echo", best["echo"] * 1e6, "us")
    figures.report("sync.fsync", best["fsync"] * 1e6, "us")
    figures.report("sync.verdict.p50", latencies[len(latencies) // 2] * 1e6, "us")
    figures.report("sync.verdict.p99", latencies[len(latencies) * 99 // 100] * 1e6, "us")
    against = "one echo and one fsync"
    figures.report("sync.commits.1", 1 / best["1"], "/s", against=against, ratio=limit / best["1"], at_least=0.5)
    figures.report("sync.commits.8.of_limit", 1 / best["8"], "/s", against=against, ratio=limit / best["8"])
    figures.report("sync.commits.64.of_limit", 1 / best["64"], "/s", against=against, ratio=limit / best["64"])
    ratio = best["1"] / best["8"]
    figures.report("sync.commits.8", 1 / best["8"], "/s", against="one client", ratio=ratio, at_least=2)
    figures.report("sync.commits.64", 1 / best["64"], "/s", against="one client", ratio=best["1"] / best["64"])


async def connected(port: int) -> ClientConnection:
    return await connect(f"ws://127.0.0.1:{port}", compression=None)


async def ready(port: int, number: int) -> Client:
    """A client with a document of its own."""
    client = Client(port, f"client{number}")
    await client.create(DocKey("space", f"own{number}"), {"n": 0})
    await client.driver.loaded(DocKey("space", f"own{number}"))
    return client


async def echo(socket: ClientConnection, count: int) -> int:
    message = b"x" * 120  # as long as the commits below
    for _ in range(count):
        await socket.send(message)
        await socket.recv()
    return count


def synced(file: Path, count: int) -> int:
    with file.open("ab", buffering=0) as stream:
        for _ in range(count):
            stream.write(b"x" * 4_096)
            os.fsync(stream.fileno())
    return count


async def commit_often(clients: Sequence[Client], count: int, latencies: list[float] | None = None) -> int:
    """Each client, one commit after the other, each durable before the next."""

    async def one(number: int, client: Client) -> None:
        doc = DocKey("space", f"own{number}")
        for _ in range(count):
            began = time.perf_counter()
            await client.add_up(doc)
            if latencies is not None:
                latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(one(number, client) for number, client in enumerate(clients)))
    return count * len(clients)


# ---- many sessions ---------------------------------------------------------------------------------------


async def fan_out(figures: Figures, port: int) -> None:
    """One commit until everybody who watches shows it."""
    doc = DocKey("space", "news")
    author = Client(port, "author")
    await author.create(doc, {"n": 0})
    watchers = [Client(port, f"watcher{n}") for n in range(WATCHERS)]
    for watcher in watchers:
        await watcher.driver.loaded(doc)
    best = float("inf")
    for number in range(1, 6):
        heard = asyncio.gather(*(until_shown(watcher, doc, number) for watcher in watchers))
        await asyncio.sleep(0)
        began = time.perf_counter()
        await author.add_up(doc)
        await heard
        best = min(best, time.perf_counter() - began)
    figures.report("sync.fan_out.1000", best * 1e3, "ms")
    for client in (author, *watchers):
        await client.driver.close()


async def until_shown(client: Client, doc: DocKey, number: int) -> None:
    await client.driver.until(lambda: client.replica.visible(doc) == {"n": number})


async def idle(figures: Figures, port: int, pid: int) -> None:
    """What a session costs the server that has nothing to say and watches one document."""
    first = Client(port, "idle")
    await first.driver.loaded(DocKey("space", "news"))
    before = resident_bytes(pid)
    clients = [Client(port, f"idle{n}") for n in range(IDLE)]
    for client in clients:
        await client.driver.loaded(DocKey("space", "news"))
    figures.report("sync.idle_session", (resident_bytes(pid) - before) / IDLE, "bytes/session")
    for client in (first, *clients):
        await client.driver.close()


async def scroll(figures: Figures, port: int) -> None:
    """Through 100,000 documents, a page at a time, letting go of what is out of sight."""
    client = Client(port, "scroller")
    await client.driver.opened()
    for begin in range(0, SCROLLED, 1_000):
        docs = [DocKey("space", f"card{n}") for n in range(begin, begin + 1_000)]
        await client.driver.loaded(*docs)
        made = [docs[place : place + MADE] for place in range(0, len(docs), MADE)]
        await asyncio.gather(*(client.writer.transact(partial(create_all, docs=some)) for some in made))
        await client.driver.synced()
        for doc in docs:
            client.driver.unwatch(doc)
    note(f"  made {SCROLLED:,} documents")
    shown: list[DocKey] = []
    sizes: list[int] = []
    began = time.perf_counter()
    for begin in range(0, SCROLLED, PAGE):
        page = [DocKey("space", f"card{n}") for n in range(begin, begin + PAGE)]
        await client.driver.loaded(*page)
        for doc in shown:
            client.driver.unwatch(doc)
        shown = page
        if begin % 10_000 == 0:
            sizes.append(resident_bytes(os.getpid()))
            note(f"  scrolled past {begin:,} of {SCROLLED:,}")
    seconds = time.perf_counter() - began
    held = len(client.replica.confirmed)
    figures.report("sync.scroll.documents", SCROLLED / seconds, "documents/s")
    figures.report("sync.scroll.held", held, "documents", at_most=2 * PAGE)
    figures.report(
        "sync.scroll.memory",
        sizes[-1],
        "bytes",
        against="after 10,000 of them",
        ratio=sizes[-1] / sizes[1],
        at_most=1.1,
    )
    await client.driver.close()


def create_all(transaction: Transaction, docs: list[DocKey]) -> None:
    for doc in docs:
        transaction.write(doc, replace((), {"title": "a card", "text": "x" * 200}))


def resident_bytes(pid: int) -> int:
    """A process's memory, as the operating system counts it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
