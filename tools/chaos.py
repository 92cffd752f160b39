"""`./dev chaos --minutes N`: a server that is killed, paused, slowed and set back in time while clients write to it.

Clients append unique values to lists in transactions that read, and note in a file of their own when each began, when
it was acknowledged, and what it had read. The faults are kills (SIGKILL), pauses (SIGSTOP), a full disk (a limit on the
length of files), a slow disk (the threads of the spaces are held) and steps of the server's clock. At the end the
server is asked to stop and has to exit with code 0. The check reads only the notes and the files of the spaces: every
acknowledged append is there once, the history is strictly serializable (`tests.histories.list_append`), and `verify`
holds. All traffic is to 127.0.0.1; times and counts are bounded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import IO, Any, Final

import headwater
from headwater.engine.directory import SUFFIX, Directory
from headwater.engine.verify.oracle import verify_file
from headwater.errors import CommitRejected, HeadwaterError
from tests.histories.list_append import Anomaly, Outcome, Transaction, check

ROOT: Final = Path(__file__).resolve().parents[1]
SPACES: Final = ("one", "two")
KEYS: Final = ("x", "y", "z")
KEPT: Final = 200
"""Values of a list after which a client goes on with the next list, so that documents stay small."""
CLIENTS: Final = 4
START_S: Final = 60.0
STOP_S: Final = 60.0
ANSWER_S: Final = 40.0
"""A client waits so long for one transaction; then its outcome is unknown."""


class ChaosServer:
    """The process of the server, and the faults that are done to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = _free_port()
        self.done: dict[str, int] = {}
        self._log = (directory.parent / "server.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        command = [sys.executable, "-m", "tools.chaos_server", str(self.directory), str(self.port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=self._log)
        until = time.monotonic() + START_S
        while True:
            try:
                # An answer says that it serves, and obeys signals. The socket is there before.
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                await reader.readuntil(b"200 OK")
            except (OSError, asyncio.IncompleteReadError):
                if self._process.poll() is not None:
                    raise SystemExit(
                        f"the server ended with {self._process.returncode}: see {self._log.name}"
                    ) from None
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return

    def note(self, fault: str) -> None:
        self.done[fault] = self.done.get(fault, 0) + 1

    async def kill(self) -> None:
        assert self._process is not None
        self.note("kill")
        self._process.kill()
        self._process.wait()
        await self.start()

    async def pause(self, seconds: float) -> None:
        self.note("pause")
        os.kill(self.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(self.pid, signal.SIGCONT)

    async def fill_disk(self, seconds: float) -> None:
        """Let no file become longer than the longest one is now."""
        self.note("full disk")
        longest = max([each.stat().st_size for each in self.directory.glob(f"*{SUFFIX}*")], default=0)
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (longest, hard))
        try:
            await asyncio.sleep(seconds)
        finally:
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def ask(self, fault: str, seconds: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self.note(fault)
        self._process.stdin.write(f"{fault} {seconds}\n".encode())
        self._process.stdin.flush()

    def stop(self) -> int:
        """Ask the process to end, and return its exit code. A process that does not end is killed."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return -signal.SIGKILL

    def end(self) -> None:
        """Kill the process if it is still there."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def client(name: str, port: int, notes: IO[str], until: float, chance: random.Random) -> None:
    """Append to lists until a time. Each transaction is in the notes before it begins, and after it ended."""
    number = 0
    while time.monotonic() < until:
        # Closing tells of commits without a verdict: their outcome is unknown.
        with contextlib.suppress(HeadwaterError, TimeoutError):
            async with headwater.connect(f"ws://127.0.0.1:{port}") as rt:
                rt.on_error(lambda _: None)  # Lost connections are what this is about.
                for _ in range(chance.randrange(20, 60)):  # Then it goes on with a new session.
                    if time.monotonic() > until:
                        break
                    number += 1
                    async with asyncio.timeout(ANSWER_S):
                        await append(rt, f"{name}.{number}", notes, chance)
                    await asyncio.sleep(chance.random() * 0.02)


async def append(rt: headwater.Runtime, id: str, notes: IO[str], chance: random.Random) -> None:
    """Append one value in a transaction that reads two lists."""
    space = chance.choice(SPACES)
    cells = {
        key: rt.cell(space, f"{key}{int(id.rpartition('.')[2]) // KEPT}", tuple[str, ...], default=()) for key in KEYS
    }
    read, written = chance.sample(sorted(cells), 2)
    document = f"{int(id.rpartition('.')[2]) // KEPT}"
    seen: dict[str, tuple[str, ...]] = {}

    def work() -> None:
        for key in (read, written):
            seen[key] = cells[key].get()
        cells[written].push(id)

    def named(key: str) -> str:
        return f"{space}/{key}{document}"

    began = time.monotonic()
    note(notes, {"id": id, "began": began, "appends": {named(written): id}})
    try:
        await rt.space(space).transact(work)
    except CommitRejected:
        note(notes, {"id": id, "ended": time.monotonic(), "outcome": "failed"})
    except HeadwaterError:
        return  # Its outcome is unknown.
    else:
        reads = {named(key): value for key, value in seen.items()}
        note(notes, {"id": id, "ended": time.monotonic(), "outcome": "ok", "reads": reads})


def note(notes: IO[str], line: dict[str, Any]) -> None:
    notes.write(json.dumps(line) + "\n")
    notes.flush()


async def do_faults(server: ChaosServer, until: float, chance: random.Random) -> None:
    """Do faults one after the other until a time."""
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(0.3, 2.5))
        match chance.randrange(8):
            case 0 | 1 | 2:
                await server.kill()
            case 3 | 4:
                await server.pause(chance.uniform(0.1, 2.0))
            case 5:
                await server.fill_disk(chance.uniform(0.5, 3.0))
            case 6:
                server.ask("slow", chance.uniform(0.1, 1.5))
            case _:
                server.ask("clock", chance.choice((-3_600.0, -10.0, 0.0, 10.0, 3_600.0)))


def history(folder: Path) -> list[Transaction]:
    """Read the notes of all clients."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("*.notes")):
        for line in file.read_text().splitlines():
            said = json.loads(line)
            found.setdefault(said["id"], {}).update(said)
    return [
        Transaction(
            id,
            said["began"],
            said.get("ended", inf),
            Outcome(said.get("outcome", "unknown")),
            {key: tuple(value) for key, value in said.get("reads", {}).items()},
            said["appends"],
        )
        for id, said in found.items()
    ]


def read_lists(directory: Path) -> dict[str, tuple[str, ...]]:
    """Read every list from the files of the spaces."""
    found: dict[str, tuple[str, ...]] = {}
    with Directory(directory) as opened:
        for space in opened.spaces():
            after: str | None = ""
            while after is not None:
                page = opened.space(space).documents("space", after=after)
                for each in page.items:
                    if isinstance(each.value, tuple):
                        found[f"{space}/{each.doc.id}"] = tuple(map(str, each.value))
                after = page.next
    return found


def judge(folder: Path) -> tuple[list[Anomaly], int, int]:
    """Return the anomalies of a run, and how many transactions were acknowledged and unknown."""
    data = folder / "data"
    found: list[Anomaly] = []
    for file in sorted(data.glob(f"*{SUFFIX}")):
        report = verify_file(file)
        if report.violation is not None:
            found.append(Anomaly("verify", f"{file.name}: {report.violation}"))
    noted = history(folder)
    lists = read_lists(data)
    final = {key: lists.get(key, ()) for each in noted for key in each.appends}
    found += check(noted, final)
    outcomes = [each.outcome for each in noted]
    return found, outcomes.count(Outcome.OK), outcomes.count(Outcome.UNKNOWN)


async def play(folder: Path, seconds: float, seed: int, say: Callable[[str], object] = print) -> int:
    """Run server, clients and faults, and return the exit code of the server."""
    chance = random.Random(seed)
    (folder / "data").mkdir()
    server = ChaosServer(folder / "data")
    try:
        await server.start()
        until = time.monotonic() + seconds
        with_notes = [(f"c{n}", (folder / f"c{n}.notes").open("w")) for n in range(CLIENTS)]
        clients = [
            asyncio.create_task(client(name, server.port, notes, until, random.Random(chance.random())))
            for name, notes in with_notes
        ]
        await do_faults(server, until, chance)
        await asyncio.gather(*clients)
        for _, notes in with_notes:
            notes.close()
        say(f"faults: {server.done}")
        return await asyncio.to_thread(server.stop)
    finally:
        server.end()


def main(argv: list[str]) -> int:
    top = argparse.ArgumentParser(prog="./dev chaos", description="Kill and hinder a server while clients write to it.")
    top.add_argument("--minutes", type=float, default=10.0)
    top.add_argument("--seed", type=int, default=None)
    top.add_argument("--keep", type=Path, default=None, help="a folder that keeps notes, log and data")
    options = top.parse_args(argv)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headwater-chaos-") as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        code = asyncio.run(play(folder, min(options.minutes, 600.0) * 60, seed))
        found, acknowledged, unknown = judge(folder)
    print(f"{acknowledged} transactions acknowledged, {unknown} unknown; the server exited with {code}")
    for each in found[:20]:
        print(f"{each.kind}: {each.about}", file=sys.stderr)
    return 1 if found or code or not acknowledged else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
