"""Reads the file in which a client keeps what it sent: the file is SQLite's, and its rows are stored events."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from headwater.data.codec import ext_hook
from headwater.protocol.commit import SentEvent

_DECODER = msgspec.msgpack.Decoder(SentEvent, ext_hook=ext_hook)


def rows_in(path: Path) -> list[SentEvent]:
    """The events in an outbox, in send order. A program may have it open: a copy is read."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(path, Path(folder) / "outbox")
        connection = apsw.Connection(str(copy))
        try:
            return [_DECODER.decode(event) for (event,) in connection.execute("SELECT event FROM sent ORDER BY place")]
        finally:
            connection.close()


def copied(path: Path, to: Path) -> Path:
    """Copy an outbox, with everything that its program has committed so far."""
    for ending in ("", "-wal"):
        if path.with_name(path.name + ending).exists():
            shutil.copy(path.with_name(path.name + ending), to.with_name(to.name + ending))
    return to


@contextmanager
def full_disk() -> Iterator[None]:
    """Let every write of this process to a file fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
