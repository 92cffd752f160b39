"""Plays shared programs over real sockets: a server that is killed, and connections that are slowed and cut."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater import HeadwaterError, LimitError, Policy, Runtime
from headwater.engine import Engine
from headwater.runtime import RemoteServer
from tests.simulation.programs.description import Program
from tests.simulation.programs.draw_shared import SERVER
from tests.simulation.programs.expected_shared import Entry, entries_of
from tests.simulation.programs.messages import Serve, fork, read_message
from tests.simulation.programs.play_shared import GRACE_MS, SharedPlayer
from tests.simulation.programs.stored import StoredSend, engine_of, stored_sends

__all__ = ["play_served"]

PATIENCE_S: Final = 90.0
SLOWEST_S: Final = 0.02
ROUNDS: Final = 1_000


class _Served:
    """A server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._pid = 0
        self._starts = 0

    async def start(self) -> None:
        self._starts += 1
        where = str(self.folder.with_name(f"server{self._starts}"))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(where)
            listening.listen()
            fork(Serve(str(self.folder), self.port, where, after=self._pid))
            self._pid = await asyncio.to_thread(_listens, listening)

    def kill(self) -> None:
        if not self._pid:
            return  # It never started.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _listens(listening: socket.socket) -> int:
    """Wait until a server listens. Return its process."""
    listening.settimeout(PATIENCE_S)
    connection, _ = listening.accept()
    with connection, connection.makefile("rb") as messages:
        pid: int = read_message(messages)
        message = read_message(messages)
        if message is None or message[0] != "listens":
            raise OSError(f"a server did not start: {message}")
        return pid


class _Wire:
    """The connections of one user: passed on slowly, cut, and refused while the user is offline."""

    def __init__(self, port: int, draw: Random) -> None:
        self._port = port
        self._draw = draw
        self._streams: set[asyncio.StreamWriter] = set()
        self._server: Any = None
        self.is_cut = False
        self.is_slow = True

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.add(writer)
        try:
            if self.is_cut:
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._streams.add(far_writer)
            try:
                await asyncio.gather(self._passed_on(reader, far_writer), self._passed_on(far_reader, writer))
            finally:
                self._end(far_writer)
        except (OSError, asyncio.CancelledError):
            pass  # It was cut, or the program is over.
        finally:
            self._end(writer)

    async def _passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if self.is_slow:
                await asyncio.sleep(self._draw.random() * SLOWEST_S)
            writer.write(data)
            await writer.drain()
        writer.close()

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._streams.discard(writer)
        writer.close()

    def cut(self) -> None:
        for each in tuple(self._streams):
            each.transport.abort()

    async def close(self) -> None:
        self.cut()
        self._server.close()


class _ServedSite:
    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._server = _Served(folder)
        self._draw = Random(f"network {program.seed}")
        self._wires: dict[str, _Wire] = {}
        self._addresses: dict[str, str] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._copies = 0
        self._spaces = sorted({piece.space for piece in program.pieces})

    async def start(self) -> None:
        await self._server.start()
        for user in self._program.users:
            wire = self._wires[user] = _Wire(self._server.port, self._draw)
            self._addresses[user] = await wire.start()
            self._connect(user)

    def _connect(self, user: str) -> None:
        self._runtimes[user] = Runtime(
            RemoteServer(self._addresses[user]), policy=Policy(grace_ms=GRACE_MS), close_s=0.0
        )

    async def close(self) -> None:
        for user, runtime in self._runtimes.items():
            self.go_online(user)
            await runtime.idle()
            await runtime.durable()
            with contextlib.suppress(LimitError):  # It has no time to report clean pieces, which is no loss.
                await runtime.close()
        for wire in self._wires.values():
            await wire.close()

    def kill(self) -> None:
        self._server.kill()

    def runtime(self, user: str) -> Runtime:
        return self._runtimes[user]

    def go_offline(self, user: str) -> None:
        self._wires[user].is_cut = True
        self._wires[user].cut()

    def go_online(self, user: str) -> None:
        self._wires[user].is_cut = False

    async def crash(self, who: str) -> None:
        """Kill the server or the runtime of a user, and start another one."""
        if who != SERVER:
            await self._lose(who)
            self._connect(who)
            return
        self._server.kill()
        await asyncio.sleep(self._draw.random() * 0.1)
        await self._server.start()

    async def _lose(self, user: str) -> None:
        """End the runtime of a user without a connection: the server hears of it as of a process that was killed."""
        self.go_offline(user)
        with contextlib.suppress(HeadwaterError):  # for what was under way
            await self._runtimes[user].close()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.2))

    def set_clock(self, seconds: int) -> None:
        raise AssertionError("the clock of real processes is not set: such programs are not drawn")

    async def settle(self) -> None:
        """Wait until all users have seen the same seq twice, with nothing left to do."""
        before: dict[str, set[int]] = {}
        for wire in self._wires.values():
            wire.is_slow = False
        for _ in range(ROUNDS):
            for runtime in self._runtimes.values():
                await runtime.settled()
                await runtime.durable()
            seqs = {
                space: {runtime.space(space, user=user).seq for user, runtime in self._runtimes.items()}
                for space in self._spaces
            }
            if seqs == before and all(len(each) == 1 for each in seqs.values()):
                return
            for runtime in self._runtimes.values():
                for space, each in seqs.items():
                    await runtime.settled(through=max(each), space=space)
            before = seqs
        raise TimeoutError("the runtimes did not come to rest")

    def log(self, space: str, program: Program) -> list[Entry]:
        with self._copy(space) as engine:
            return [] if engine is None else entries_of(program, engine)

    def stored(self, space: str) -> list[StoredSend]:
        with self._copy(space) as engine:
            return [] if engine is None else stored_sends(space, engine)

    def _copy(self, space: str) -> contextlib.AbstractContextManager[Engine | None]:
        """Return an engine over a copy of the stored files."""
        self._copies += 1
        return engine_of(self._server.folder, space, self._server.folder.with_name(f"copy{self._copies}"))


def play_served(program: Program, folder: Path) -> None:
    """Play a shared program on a server."""

    async def work() -> None:
        site = _ServedSite(program, folder)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await site.start()
                player = SharedPlayer(program, site)
                await player.play()
                await site.close()
        finally:
            site.kill()

    folder.mkdir(exist_ok=True)
    asyncio.run(work())
