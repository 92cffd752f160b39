"""A million commits in one space: how long it takes to open, what it holds in memory, what a commit costs on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.figures import Figures, note
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, Operation

COMMITS: Final = 1_000_000
GROUP: Final = 250
DOCUMENTS: Final = 50_000

_OPEN = """
import sys, time
from headwater.data.address import DocKey
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
started = time.perf_counter()
engine = Engine(SqliteStore(sys.argv[1]))
engine.read(DocKey("space", "doc17"))
print(time.perf_counter() - started, engine.last_seq)
"""


def run(figures: Figures) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        file = Path(folder) / "million.space"
        engine = Engine(SqliteStore(file))
        engine.open_session("writer")
        before = resident_bytes()
        started = time.perf_counter()
        held = 0
        for begin in range(0, COMMITS, GROUP):
            engine.submit_group([("writer", (commit(n),)) for n in range(begin, begin + GROUP)])
            held = max(held, engine.bytes_held)
            if begin % 100_000 == 0:
                note(f"  {begin:,} of {COMMITS:,} commits")
        seconds = time.perf_counter() - started
        grown = resident_bytes() - before
        engine.close()
        figures.report("engine.million.commit", seconds / COMMITS * 1e6, "us")
        figures.report(
            "engine.million.cache",
            held,
            "bytes",
            against="the configured cache and one group",
            ratio=held / (DEFAULT_LIMITS.cache_bytes * 1.1),
            at_most=1.0,
        )
        figures.report("engine.million.memory", grown, "bytes")
        figures.report("engine.million.file", file.stat().st_size / COMMITS, "bytes/commit")
        opened = subprocess.run(
            [sys.executable, "-c", _OPEN, str(file)],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ,
        )
        taken, last_seq = opened.stdout.split()
        if int(last_seq) != COMMITS:
            raise AssertionError(f"reopened with {last_seq} commits instead of {COMMITS}")
        figures.report("engine.million.open", float(taken), "s", at_most=1.0)


def commit(n: int) -> Commit:
    """Most commits patch a document, the first to each makes it."""
    doc = DocKey("space", f"doc{n % DOCUMENTS}")
    patch = replace((), {"title": "a card", "points": 0}) if n < DOCUMENTS else replace(("points",), n)
    return Commit(n + 1, (Operation(doc, (patch,)),))


def resident_bytes() -> int:
    """This process's memory, as the operating system counts it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
