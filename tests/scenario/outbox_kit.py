"""Reads the outbox of a client: the events that it sent and that have no outcome."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.protocol.commit import SentEvent
from headwater.runtime import Outbox


def rows_in(path: Path) -> list[SentEvent]:
    """The events in an outbox, in send order. A program may have it open: a copy is read."""
    assert path.exists(), f"there is no outbox {path}"
    with tempfile.TemporaryDirectory() as folder:
        outbox = Outbox(str(copied(path, Path(folder) / "outbox")))
        try:
            return [event for _, event in outbox.rows()]
        finally:
            outbox.close()


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
