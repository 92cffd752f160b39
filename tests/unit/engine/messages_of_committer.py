"""Cases for `test_error_messages`: what is said by the thread that commits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.engine.committer import ThreadCommitter
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit
from tests.unit.engine.faults import faulty
from tests.unit.engine.kit import open_engine
from tests.unit.engine.messages import case, raised


@case("the committer is closed: nothing more can be submitted")
def closed_committer(_: Path) -> str:
    committer = ThreadCommitter(open_engine())
    committer.close()
    return raised(lambda: committer.call(lambda engine: None))


@case("a reply cannot close the committer that calls it", "Close it from another thread.")
def committer_closed_by_its_own_reply(_: Path) -> str:
    committer = ThreadCommitter(open_engine())
    said: list[str] = []
    committer.submit("s", (Commit(1),), lambda outcome: said.append(raised(committer.close)))
    committer.close()
    return said[0]


@case("the committer stopped: a bug")
def stopped_committer(folder: Path) -> str:
    store, faults = faulty(SqliteStore(folder / "s.space"))
    committer = ThreadCommitter(Engine(store, clock=VirtualClock()))
    faults.fail_on, faults.error = "begin", lambda: RuntimeError("a bug")
    committer.submit("s", (Commit(1),), lambda outcome: None)
    with pytest.raises(RuntimeError, match="a bug"):
        committer.close()
    return raised(lambda: committer.submit("s", (Commit(1),), lambda outcome: None))


@case("1 frames wait for the disk, which is the limit", "Wait for verdicts, then resend.")
def full_backlog(_: Path) -> str:
    committer = ThreadCommitter(open_engine(), Limits(backlog_frames=1))
    busy, release = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        busy.set()
        release.wait(30)

    committer.submit("s", (Commit(1),), slow)
    assert busy.wait(30)
    committer.submit("s", (Commit(2),), lambda outcome: None)
    try:
        return raised(lambda: committer.submit("s", (Commit(3),), lambda outcome: None))
    finally:
        release.set()
        committer.close()
