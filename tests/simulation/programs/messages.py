"""Requests to fork a process, and the messages that such a process writes."""

from __future__ import annotations

import functools
import pickle
import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Final

from tests.simulation.programs.description import Program

__all__ = ["Request", "Serve", "fork", "read_message", "write_message"]

LENGTH: Final = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Request:
    """Play a segment of a program in a directory, and tell of it at a socket."""

    program: Program
    number: int
    folder: str
    socket: str


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve a directory at a port of this machine, and tell so at a socket."""

    folder: str
    port: int
    socket: str
    after: int = 0  # a killed server: the new one starts when that process is gone, and its files are unlocked


@functools.cache
def forking() -> subprocess.Popen[bytes]:
    """The process that forks the others. It ends with its standard input."""
    command = [sys.executable, "-m", "tests.simulation.programs.process"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # Servers log there.


def fork(request: Request | Serve) -> None:
    """Have a process forked for a request."""
    stream = forking().stdin
    assert stream is not None
    write_message(stream, request)


def write_message(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def read_message(stream: BinaryIO) -> Any:
    """The next message, or None at the end of the stream, also in the middle of a message."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = stream.read(size)
    return pickle.loads(data) if len(data) == size else None
