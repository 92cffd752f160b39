"""Processes that play segments of programs, or serve: `python -m tests.simulation.programs.process`.

Reads requests from standard input and forks one process for each of them, so that a process costs no start of an
interpreter. A segment tells its record what happens over a socket, message by message, and is killed from there. A
server tells its process id, and that it listens.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import headwater
from headwater import Policy
from headwater.data.address import Link
from headwater.data.trace import Ran, RunFailed
from headwater.server import Server
from tests.simulation.programs.build import real_classes
from tests.simulation.programs.description import Program, Pull
from tests.simulation.programs.expressions import CELL_KINDS
from tests.simulation.programs.messages import Request, Serve, read_message, write_message
from tests.simulation.programs.play import Player
from tests.simulation.programs.record import FOLLOW_UPS
from tests.simulation.programs.stored import (
    StoredSend,
    engine_of,
    stored_cells,
    stored_receipts,
    stored_records,
    stored_sends,
)
from tests.simulation.programs.values import listen

OURS: Final = ("pull ", "sink ", "demand ", "watch ")
WHILE_OPEN: Final = " while it is open"


class Pipe:
    """Calls the methods of a record in another process."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.kill_at: int | None = None

    def __getattr__(self, name: str) -> Any:
        def call(*args: object) -> None:
            write_message(self._stream, (name, tuple(_plain(each) for each in args)))

        return call

    def note(self, eid: int) -> None:
        """Tell of an attempt to handle an event, and end this process if it is the last one."""
        write_message(self._stream, ("note", (eid,)))
        if self.kill_at is not None and eid >= FOLLOW_UPS:
            self.kill_at -= 1
            if self.kill_at <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _plain(value: object) -> object:
    """A value that can be pickled and compared: a link as the place that it leads to."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Link):
        return "/".join((value.id, *map(str, value.path)))
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_plain(each) for each in value)
    return value


class _Runs:
    """Collects the authors' nodes that ran."""

    def __init__(self) -> None:
        self.nodes: list[str] = []

    def emit(self, event: object) -> None:
        if isinstance(event, Ran | RunFailed):
            name = event.node.partition(" of ")[0]
            is_ours = name.startswith(OURS) or name.rpartition("/")[2].startswith(OURS)
            if WHILE_OPEN not in event.node and not is_ours:
                self.nodes.append(event.node)


@dataclass(frozen=True, slots=True)
class _Stored:
    """The values of cells that a process finds stored, and the events and records that are to be handled."""

    cells: dict[tuple[str, str], Any]
    sends: list[StoredSend]


def _stored(request: Request, program: Program) -> _Stored:
    """Read the files of a directory before it is opened."""
    found = _Stored({}, [])
    receipts: set[str] = set()
    folder = Path(request.folder)
    classes = real_classes(program.segments[request.number].classes)
    for space in sorted({piece.space for piece in program.pieces}):
        with engine_of(folder, space, folder.with_name(f"copy{request.number}")) as engine:
            if engine is not None:
                cells = stored_cells(program, classes, space, engine)
                found.cells.update((at, _plain(value)) for at, value in cells.items())
                found.sends.extend((*stored_sends(space, engine), *stored_records(space, engine)))
                receipts |= stored_receipts(engine)
    return _Stored(found.cells, [replace(each, is_handled=each.id in receipts) for each in found.sends])


async def _play(request: Request, pipe: Any) -> None:
    program = request.program
    segment = program.segments[request.number]
    pipe.kill_at = segment.kill_at
    stored = _stored(request, program)
    pipe.found(stored.cells, stored.sends)
    # Events that a killed process left are taken up at once.
    async with headwater.open(Path(request.folder), policy=Policy(grace_ms=1)) as runtime:
        runs = _Runs()
        runtime.scheduler.set_trace(runs)
        player = Player(replace(program, classes=segment.classes), runtime, pipe)
        player.left = {each.id: each.send.piece for each in stored.sends if each.id}
        listen(player)
        if segment.is_visitor:
            player.find_all()
        else:
            await player.open_all()
            pipe.opened()
        await runtime.settled()
        if segment.looks_first:
            await player.look_at_all()
        pipe.ran(sorted(set(runs.nodes)))
        for piece in program.pieces:
            for member in program.class_named(piece.of).of_kind(*CELL_KINDS):
                await player.play([Pull(piece.name, member.name)])
        player.count_runs()
        await player.play(segment.steps)
        if segment.looks_last and player.has_all_open:
            await player.rest()  # A handler that lands after a pull would leave its computed out of date.
            await player.look_at_all()
            await player.rest()
            pipe.looked_at_all()
        if segment.kill_after is not None:
            pipe.over()
            await asyncio.Event().wait()  # until the parent kills this process
    pipe.ends()


async def _serve(request: Serve, pipe: Any) -> None:
    server = Server(request.folder, port=request.port, insecure_local=True)
    serving = asyncio.create_task(server.run_until_stopped())
    while not (server.started or serving.done()):
        await asyncio.sleep(0.001)
    if server.started:
        pipe.listens()
    await serving  # A server that could not start raises here.


def _run(request: Request | Serve) -> None:
    """The work of a forked process."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(request.socket)
        stream: Any = connection.makefile("wb")
        write_message(stream, os.getpid())
        pipe = Pipe(stream)
        try:
            asyncio.run(_play(request, pipe) if isinstance(request, Request) else _serve(request, pipe))
        except BaseException:  # told to the parent, whose test fails with it
            write_message(stream, ("failed", (traceback.format_exc(),)))
        stream.close()


def main() -> None:
    servers: list[int] = []
    while (request := read_message(sys.stdin.buffer)) is not None:
        after = request.after if isinstance(request, Serve) else 0
        servers = [pid for pid in servers if os.waitpid(pid, 0 if pid == after else os.WNOHANG)[0] == 0]
        pid = os.fork()
        if pid == 0:
            try:
                _run(request)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)  # Nothing of the process that forked it is to be cleaned up.
        if isinstance(request, Serve):
            servers.append(pid)
        else:
            os.waitpid(pid, 0)
    for pid in servers:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
