"""A million commits in one space: how long it takes to open, what it holds in memory, what a commit costs on disk.

Opening is measured twice: after a clean end, and after a kill that left more commits than the defaults allow whose
heads were never written back. Memory is judged twice, too: by the engine's own estimate, and by what the process
really grew.
"""

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
DOCUMENTS: Final = 20_000
LEFT_BEHIND: Final = 2_000  # commits that the killed process did not write back; by default 1,024 and a group
GROWTH: Final = 3  # resident memory to the configured cache: what Python's objects weigh, and SQLite's own

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

_LEAVE_BEHIND = """
import sys
from bench.million import COMMITS, GROUP, commit
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
engine = Engine(SqliteStore(sys.argv[1]), limits=Limits(heads_commits=COMMITS))
first, end = engine.last_seq, engine.last_seq + int(sys.argv[2])
for begin in range(first, end, GROUP):
    engine.submit_group([("writer", (commit(n),)) for n in range(begin, min(begin + GROUP, end))])
print(engine.last_seq, flush=True)
sys.stdin.read()
"""


def run(figures: Figures) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        file = Path(folder) / "million.space"
        _write(file, figures)
        figures.report("engine.million.file", file.stat().st_size / COMMITS, "bytes/commit")
        figures.report("engine.million.open", _opened(file, COMMITS), "s", at_most=1.0)
        _leave_behind(file)
        figures.report("engine.million.open_after_a_kill", _opened(file, COMMITS + LEFT_BEHIND), "s", at_most=1.0)


def _write(file: Path, figures: Figures) -> None:
    """A million commits, and what they cost in time and memory."""
    engine = Engine(SqliteStore(file))
    engine.open_session("writer")
    before = resident_bytes()
    started = time.perf_counter()
    held = grown = 0
    for begin in range(0, COMMITS, GROUP):
        engine.submit_group([("writer", (commit(n),)) for n in range(begin, begin + GROUP)])
        held = max(held, engine.bytes_held)
        if begin % 10_000 == 0:
            grown = max(grown, resident_bytes() - before)
        if begin % 100_000 == 0:
            note(f"  {begin:,} of {COMMITS:,} commits")
    seconds = time.perf_counter() - started
    grown = max(grown, resident_bytes() - before)
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
    figures.report(
        "engine.million.memory",
        grown,
        "bytes",
        against="the configured cache",
        ratio=grown / DEFAULT_LIMITS.cache_bytes,
        at_most=GROWTH,
    )


def _opened(file: Path, commits: int) -> float:
    """Seconds that a new process takes to open the space and read a document."""
    opened = subprocess.run(
        [sys.executable, "-c", _OPEN, str(file)], check=True, capture_output=True, text=True, env=os.environ
    )
    taken, last_seq = opened.stdout.split()
    if int(last_seq) != commits:
        raise AssertionError(f"opened with {last_seq} commits instead of {commits}")
    return float(taken)


def _leave_behind(file: Path) -> None:
    """Commit from another process, and kill it before it could write its heads back."""
    command = [sys.executable, "-c", _LEAVE_BEHIND, str(file), str(LEFT_BEHIND)]
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        last_seq = child.stdout.readline().strip()
        child.kill()
    if last_seq != str(COMMITS + LEFT_BEHIND):
        raise AssertionError(f"the process that was to be killed stopped by itself after commit {last_seq or 'none'}")


def commit(n: int) -> Commit:
    """Most commits patch a document, the first to each makes it."""
    doc = DocKey("space", f"doc{n % DOCUMENTS}")
    patch = replace((), {"title": "a card", "points": 0}) if n < DOCUMENTS else replace(("points",), n)
    return Commit(n + 1, (Operation(doc, (patch,)),))


def resident_bytes() -> int:
    """This process's memory, as the operating system counts it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
