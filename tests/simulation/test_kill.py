"""Server and clients are killed at random, over real sockets and files.

Every client writes tags that nobody else writes, and notes each acknowledged one in a file of its own before it goes
on. Whatever is killed, when: every acknowledged tag is in the log exactly once, none is there twice, no rejected one
is there, and in the end everybody shows what the log says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO, Any

import pytest

from headwater.clock import RealClock
from headwater.data.address import Depth, DocKey
from headwater.data.codec import digest
from headwater.data.patch import append, increment, replace
from headwater.data.value import ABSENT, Absent, MaybeValue
from headwater.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import verify_file
from headwater.errors import CommitConvergenceError, CommitRejected
from headwater.replica import Replica, Session, Transaction
from headwater.runtime import Driver, WebSocket, Writer
from tests.counts import scaled

SECONDS = 60
CLIENTS = 4
SPACE = "shop"
COUNTER = DocKey("space", "counter")
ROOT = Path(__file__).resolve().parents[2]


# ---- a client, in a process of its own -----------------------------------------------------------------


async def write_for_ever(port: int, name: str, notes: Path) -> None:
    """Append tags, by intent and by read-modify-write, and note what was acknowledged, until killed or asked to end."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    session = Session(Replica(), space=SPACE, key=name, new_token=RealClock().new_token)
    with notes.open("a") as file:
        async with Driver(session, WebSocket(f"ws://127.0.0.1:{port}")) as driver:
            writer = Writer(driver)
            await driver.loaded(COUNTER)
            number = 0
            while not stopping.is_set():
                number += 1
                tags = [f"{name}.{number}.{part}" for part in range(3)]
                await asyncio.gather(*(_write(writer, tag, file) for tag in tags))
            await driver.synced()
            _note(file, f"shown {session.replica.confirmed.seq}:{_digest(session.replica.visible(COUNTER))}")


def _board(tag: str) -> DocKey:
    """Where a tag is written: a document of its client's own for every 60 of them, so that none grows large."""
    name, number, _ = tag.split(".")
    return DocKey("space", f"tags.{name}.{int(number) // 20}")


async def _write(writer: Writer, tag: str, file: IO[str]) -> None:
    try:
        await writer.transact(lambda t: _step(t, tag))
    except (CommitRejected, CommitConvergenceError):  # The second: a slow server, and others were first each time.
        _note(file, f"no {tag}")
    else:
        _note(file, f"yes {tag}")


def _step(transaction: Transaction, tag: str) -> None:
    """One tag and one count, together or not at all: by intents, or having read what was there."""
    if transaction.peek(COUNTER) is ABSENT:
        transaction.read(COUNTER)
        transaction.write(COUNTER, replace((), {"n": 0}))
    if tag.endswith(".0"):
        number = transaction.read(COUNTER, ("n",))
        assert isinstance(number, int)
        transaction.write(COUNTER, replace(("n",), number + 1))
    else:
        transaction.write(COUNTER, increment(("n",), 1))
    board = _board(tag)
    transaction.read(board, (), Depth.SHAPE)
    transaction.write(board, append((), [tag]))


def _digest(*values: MaybeValue) -> str:
    return digest(tuple(None if isinstance(value, Absent) else value for value in values))


def _note(file: IO[str], line: str) -> None:
    file.write(line + "\n")
    file.flush()


# ---- those who kill -----------------------------------------------------------------------------------


class Process:
    """A process that is killed without a warning and started again."""

    def __init__(self, *command: str, errors: Path) -> None:
        self._command = command
        self._errors = errors
        self._running: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path}
        command = [part.replace("{n}", str(self.starts)) for part in self._command]
        with self._errors.open("wb") as errors:  # of its last incarnation
            self._running = subprocess.Popen([sys.executable, *command], env=environment, stderr=errors)
        self.starts += 1

    def kill(self) -> None:
        if self._running is not None:
            self._running.send_signal(signal.SIGKILL)
            self._running.wait()
            self._running = None

    def end(self) -> None:
        """Ask it to end by itself, and wait until it has."""
        assert self._running is not None
        self._running.send_signal(signal.SIGTERM)
        assert self._running.wait(30) == 0, self._errors.read_text()

    def check_running(self) -> None:
        assert self._running is not None
        assert self._running.poll() is None, f"it ended by itself: {self._errors.read_text()}"


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.mark.random
@pytest.mark.thorough
def test_killing_server_and_clients_loses_and_doubles_nothing(tmp_path: Path, processes: list[Process]) -> None:
    data, port = tmp_path / "data", free_port()
    serve = ("-m", "headwater.cli", "serve", str(data), "--port", str(port), "--insecure-local")
    server = Process(*serve, errors=tmp_path / "errors.server")
    clients = [
        Process(
            *(str(Path(__file__)), str(port), f"c{n}-{{n}}", str(tmp_path / f"notes{n}")),
            errors=tmp_path / f"errors{n}",
        )
        for n in range(CLIENTS)
    ]
    processes += [server, *clients]
    draw = Random(os.environ.get("HEADWATER_SEEDS", "kill"))
    for process in processes:
        process.start()
    until = time.monotonic() + max(6.0, SECONDS * scaled(100) / 100)
    kills: Counter[str] = Counter()
    while time.monotonic() < until:
        time.sleep(draw.uniform(0.2, 1.6))  # real time: what is killed are real processes
        victim = server if draw.random() < 0.5 else draw.choice(clients)
        victim.check_running()
        victim.kill()
        kills["server" if victim is server else "client"] += 1
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 0.5))
        victim.start()
    for n, client in enumerate(clients):
        wait_until_noted(tmp_path / f"notes{n}", f"c{n}-{client.starts - 1}.")
        client.end()
    server.end()
    noted = [line.split() for file in tmp_path.glob("notes*") for line in file.read_text().splitlines()]
    check(data / f"{SPACE}.space", noted)
    assert kills["server"] >= 1
    assert sum(kills.values()) >= 3


def wait_until_noted(file: Path, name: str) -> None:
    """The last incarnation of a client is at work: something of its own was acknowledged."""
    until = time.monotonic() + 30
    while not (file.exists() and f"yes {name}" in file.read_text()):
        assert time.monotonic() < until, f"{name} did not come to work"
        time.sleep(0.02)


def check(file: Path, noted: list[list[str]]) -> None:
    assert verify_file(file).ok
    engine = Engine(SqliteStore(file))
    logged: Counter[str] = Counter()
    since = 0
    while True:
        page = engine.changes(since=since)
        for entry in page.items:
            for operation in entry.commit.operations:
                if operation.doc.id.startswith("tags."):
                    added: list[Any] = [patch.arg for patch in operation.patches if patch.kind == "append"]
                    logged.update(tag for items, _ in added for tag in items)
        if page.next is None:
            break
        since = int(page.next)
    acknowledged = [tag for word, tag in noted if word == "yes"]
    rejected = [tag for word, tag in noted if word == "no"]
    lost = [tag for tag in acknowledged if logged[tag] != 1]
    assert not lost, f"acknowledged, and not once in the log: {lost[:5]}"
    assert max(logged.values()) == 1
    assert not [tag for tag in rejected if logged[tag]]
    assert len(acknowledged) == len(set(acknowledged)) > 20
    # What the documents hold is what the log says, and the count was made together with each tag.
    held: Counter[Any] = Counter()
    for board in {_board(tag) for tag in logged}:
        value: Any = engine.read(board).value
        held.update(value)
    assert held == logged
    assert engine.read(COUNTER).value == {"n": sum(logged.values())}
    shown = [tag.split(":") for word, tag in noted if word == "shown"]
    assert len(shown) == CLIENTS
    for seq, shown_digest in shown:
        assert shown_digest == _digest(engine.read(COUNTER, at=int(seq)).value)
    engine.close()


if __name__ == "__main__":
    asyncio.run(write_for_ever(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
