"""Plays a program in a row of real processes on one directory, each of which is closed or killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import Any, BinaryIO, Final

from tests.simulation.programs.description import Program, Segment
from tests.simulation.programs.messages import Request, fork, read_message
from tests.simulation.programs.record import Mismatch, Record

__all__ = ["play_processes"]

PATIENCE_S: Final = 120.0


def play_processes(program: Program, folder: Path) -> None:
    """Play the segments of a program one after the other."""
    record = Record(program)
    is_made = False  # a process has opened all pieces
    for number, segment in enumerate(program.segments):
        if segment.is_visitor and not is_made:
            continue
        record.starts(segment.classes)
        is_made |= _Segment(program, number, segment, record).play(folder)


class _Segment:
    """One process, seen from outside."""

    def __init__(self, program: Program, number: int, segment: Segment, record: Record) -> None:
        self._program = program
        self._number = number
        self._segment = segment
        self._record = record
        self._has_opened = False
        self._is_over = False  # it was closed

    def play(self, folder: Path) -> bool:
        """Play it. Return whether it had all pieces open."""
        where = folder.with_name(f"socket{self._number}")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(where))
            listening.listen()
            listening.settimeout(PATIENCE_S)
            fork(Request(self._program, self._number, str(folder), str(where)))
            connection, _ = listening.accept()
            connection.settimeout(PATIENCE_S)
            with connection, connection.makefile("rb") as messages:
                pid = read_message(messages)
                try:
                    self._follow(pid, messages)
                finally:
                    _end(pid)
                    while read_message(messages) is not None:
                        pass
        return self._has_opened

    def _follow(self, pid: int, messages: BinaryIO) -> None:
        count = 0
        while (message := read_message(messages)) is not None:
            name, args = message
            self._take(name, args)
            count += 1
            if self._segment.kill_after is not None and (count == self._segment.kill_after or name == "over"):
                _end(pid)  # Messages that it wrote before are still read.
            self._is_over |= name == "ends"
        self._record.ended(is_killed=not self._is_over)

    def _take(self, name: str, args: tuple[Any, ...]) -> None:
        match name:
            case "failed":
                raise Mismatch(f"a process failed: {args[0]}")
            case "over" | "ends":
                pass
            case "opened":
                self._has_opened = True
            case _:
                getattr(self._record, name)(*args)


def _end(pid: int) -> None:
    """Kill a process of a segment, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
