"""Attacks on a server, beside a client that behaves, in another space.

Each attack runs for a bounded time against a server process on 127.0.0.1; meanwhile the client commits one document
again and again. The figures are the client's p99 beside its quiet one, the longest hold of the server's event loop
(`headwater_loop_longest_seconds`), and the memory of the server above idle. Attackers run in processes of their own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from bench.figures import Figures, note
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.protocol.commit import Commit, Operation, SentEvent
from headwater.protocol.messages import (
    Hello,
    Open,
    Query,
    Selector,
    Transact,
    Verdicts,
    Watch,
    decode_from_engine,
    encode,
)
from headwater.server import new_key, new_token

SECONDS: Final = 4.0
SOCKETS: Final = 200
PAUSE_S: Final = 0.005
"""Between two commits of the client that behaves."""
MOST_HELD_S: Final = 0.05
MOST_MEMORY_MB: Final = 200
MOST_SLOWER: Final = 5


class Peer:
    """A connection that speaks the protocol, without a replica behind it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._local_seq = 0

    @classmethod
    async def join(cls, port: int, token: str, space: str, session: str) -> Peer:
        url = f"ws://127.0.0.1:{port}/v1/sync"
        peer = cls(await connect(url, subprotocols=[Subprotocol("headwater.v1.msgpack")], max_size=None))
        await peer.say(Hello((1,), token=token), Open(space, session, "", "t"))
        return peer

    async def say(self, *messages: Any) -> None:
        for message in messages:
            await self._socket.send(encode(message))

    async def raw(self, data: bytes) -> None:
        await self._socket.send(data)

    def commit(self, *operations: Operation, events: tuple[SentEvent, ...] = ()) -> Transact:
        self._local_seq += 1
        return Transact((Commit(self._local_seq, operations, events=events),))

    async def judged(self) -> None:
        """Wait for the next verdicts."""
        while True:
            data = await self._socket.recv()
            assert isinstance(data, bytes)
            if isinstance(decode_from_engine(data), Verdicts):
                return

    async def close(self) -> None:
        await self._socket.close()


def question(token: str, length: int) -> bytes:
    """Return the head of a question of a command."""
    lines = ["POST /v1/desk HTTP/1.1", "host: 127.0.0.1", f"authorization: bearer {token}", f"content-length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def write(id: str, value: Any) -> Operation:
    return Operation(DocKey("space", id), (replace((), value),))


# ---- attacks -------------------------------------------------------------------------------------------

Attack = Callable[[int, str, float], Coroutine[Any, Any, None]]


async def until(end: float, work: Callable[[int], Awaitable[None]]) -> None:
    """Repeat work until a time. Ends of connections are expected."""
    number = 0
    while time.monotonic() < end:
        number += 1
        with suppress(OSError, WebSocketException, EOFError, AssertionError, TimeoutError):
            async with asyncio.timeout(max(0.05, end - time.monotonic())):
                await work(number)
        await asyncio.sleep(0)


async def large_frames_of_strangers(port: int, _: str, end: float) -> None:
    async def work(number: int) -> None:
        url = f"ws://127.0.0.1:{port}/v1/sync"
        async with connect(url, subprotocols=[Subprotocol("headwater.v1.msgpack")], max_size=None) as socket:
            await socket.send(b"x" * 16_000_000)

    await until(end, work)


async def slow_bodies(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(question(token, 900_000))
        while time.monotonic() < end:
            writer.write(b" ")
            await asyncio.sleep(0.05)
        writer.close()

    await asyncio.gather(*(until(end, work) for _ in range(SOCKETS)))


async def deep_json(port: int, token: str, end: float) -> None:
    body = b'{"what":"set","space":"a","place":"space:d","value":' + b"[" * 400_000 + b"]" * 400_000 + b"}"

    async def work(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(question(token, len(body)) + body)
        await reader.read(100)
        writer.close()

    await asyncio.gather(*(until(end, work) for _ in range(4)))


async def many_sockets(port: int, _: str, end: float) -> None:
    held: list[asyncio.StreamWriter] = []

    async def work(number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        held.append(writer)
        if len(held) > SOCKETS:
            held.pop(0).transport.abort()

    await until(end, work)


async def wide_commits(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, "attacked", f"wide{number}-{os.getpid()}")
        while time.monotonic() < end:
            await peer.say(peer.commit(*(write(f"d{n}", "x" * 100) for n in range(5_000))))
            await peer.judged()

    await until(end, work)


async def large_values(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, "attacked", f"large{number}-{os.getpid()}")
        while time.monotonic() < end:
            await peer.say(peer.commit(write("large", {f"k{n}": "x" * 50 for n in range(40_000)})))
            await peer.judged()

    await until(end, work)


async def many_sessions(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, "attacked", f"many{number}-{os.getpid()}")
        await peer.say(Watch(1, tuple(Selector(DocKey("space", f"d{n}")) for n in range(1_000))))
        await peer.close()

    await asyncio.gather(*(until(end, work) for _ in range(8)))


async def many_watches(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, "attacked", f"watch{number}-{os.getpid()}")
        for each in range(150):
            docs = [DocKey("space", f"w{each}-{n}") for n in range(1_000)]
            await peer.say(Watch(each, tuple(Selector(doc) for doc in docs)))
        await peer.judged()

    await until(end, work)


async def many_spaces(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, f"space-{number}-{os.getpid()}", "s")
        await peer.say(peer.commit(write("d", 1)))
        await peer.judged()
        await peer.close()

    await asyncio.gather(*(until(end, work) for _ in range(4)))


async def timers(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, "attacked", f"timers{number}-{os.getpid()}")
        base = 0
        while time.monotonic() < end:
            base += 1
            events = tuple(
                SentEvent(f"{os.getpid()}-{number}-{base}-{n}", "p.go", None, 4_000_000_000_000_000) for n in range(500)
            )
            await peer.say(peer.commit(events=events))
            await peer.judged()

    await until(end, work)


async def event_flood(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, "attacked", f"flood{number}-{os.getpid()}")
        while time.monotonic() < end:
            for _ in range(200):
                await peer.say(peer.commit(write("d", number)))
            for _ in range(20):
                await peer.judged()

    await asyncio.gather(*(until(end, work) for _ in range(4)))


async def slow_readers(port: int, token: str, end: float) -> None:
    writer = await Peer.join(port, token, "attacked", f"talks-{os.getpid()}")
    deaf = [await Peer.join(port, token, "attacked", f"deaf{n}-{os.getpid()}") for n in range(20)]
    for each in deaf:
        await each.say(Watch(1, (Selector(DocKey("space", "large")),)))  # and reads nothing of it

    async def work(number: int) -> None:
        await writer.say(writer.commit(write("large", "x" * 500_000)))
        await writer.judged()

    await until(end, work)


async def long_queries(port: int, token: str, end: float) -> None:
    async def work(number: int) -> None:
        peer = await Peer.join(port, token, "attacked", f"asks{number}-{os.getpid()}")
        for each in range(10_000):
            await peer.say(Query(each, "space", "", None, "", 1_000))
        await peer.judged()

    await asyncio.gather(*(until(end, work) for _ in range(4)))


async def scrapes(port: int, _: str, end: float) -> None:
    async def work(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        await reader.read()
        writer.close()

    await asyncio.gather(*(until(end, work) for _ in range(8)))


ATTACKS: Final[dict[str, Attack]] = {
    each.__name__: each
    for each in (
        large_frames_of_strangers,
        slow_bodies,
        deep_json,
        many_sockets,
        wide_commits,
        large_values,
        many_sessions,
        many_watches,
        many_spaces,
        timers,
        event_flood,
        slow_readers,
        long_queries,
        scrapes,
    )
}


# ---- measuring -----------------------------------------------------------------------------------------


class Served:
    """A server process on a directory with keys. Every user may found spaces."""

    def __init__(self, folder: Path) -> None:
        new_key(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        command = [sys.executable, "-m", "headwater.cli", "serve", str(folder), "--port", str(self.port)]
        self._log = (folder / "server.log").open("wb")
        self._process = subprocess.Popen([*command, "--anyone-founds"], stderr=self._log)
        self.tokens = {user: new_token(folder, user) for user in ("good", "bad")}
        while True:
            try:
                self.metrics()
            except OSError:
                if self._process.poll() is not None:
                    raise
                time.sleep(0.05)
            else:
                return

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._log.close()


async def p99_ms(served: Served, seconds: float) -> float:
    """Let the client that behaves commit for a while, and return its p99."""
    peer = await Peer.join(served.port, served.tokens["good"], "quiet", f"good{time.monotonic_ns()}")
    taken = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        await peer.say(peer.commit(write("d", began)))
        await peer.judged()
        taken.append(time.monotonic() - began)
        await asyncio.sleep(PAUSE_S)
    await peer.close()
    return sorted(taken)[len(taken) * 99 // 100] * 1e3


def run(figures: Figures) -> None:
    for name in ATTACKS:
        with tempfile.TemporaryDirectory(prefix="headwater-attack-") as folder:
            served = Served(Path(folder))
            try:
                measure(name, served, figures)
            finally:
                code = served.stop()
            if code:
                note(f"  !! the server exited with {code}")


def measure(name: str, served: Served, figures: Figures) -> None:
    """Measure one attack on a server that was just started."""
    asyncio.run(p99_ms(served, SECONDS / 4))  # The first commits load modules, and make the space.
    quiet = asyncio.run(p99_ms(served, SECONDS / 2))
    idle = served.memory_mb()
    command = [sys.executable, "-m", "bench.attack", name, str(served.port), served.tokens["bad"]]
    attacker = subprocess.Popen(command)
    try:
        p99 = asyncio.run(p99_ms(served, SECONDS))
        more = served.memory_mb() - idle
        seen = served.metrics()
    finally:
        attacker.kill()
        attacker.wait()
    figures.report(f"attack.{name}.p99", p99, "ms", against="quiet", ratio=p99 / quiet, at_most=MOST_SLOWER)
    held = seen["headwater_loop_longest_seconds"]
    figures.report(f"attack.{name}.loop_held", held, "s", at_most=MOST_HELD_S)
    figures.report(f"attack.{name}.memory", more, "MB above idle", at_most=MOST_MEMORY_MB)


if __name__ == "__main__":
    asyncio.run(ATTACKS[sys.argv[1]](int(sys.argv[2]), sys.argv[3], time.monotonic() + SECONDS + 1))
