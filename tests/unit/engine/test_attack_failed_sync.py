"""Attacks with a disk: syncs fail, their pages are taken for clean, and the power fails while the space is opened."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_store
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, Operation
from headwater.testing.disk.faulty_disk import Fault, FaultyDisk, Mode
from headwater.testing.disk.machine import harness
from headwater.testing.disk.model import Loss, OpKind

FILE = "x.space"
ONCE_FAILED = (2840, 3876)


def write(number: int, documents: int) -> Commit:
    docs = [DocKey("space", f"d{number}-{place}") for place in range(documents)]
    return Commit(number, tuple(Operation(doc, (replace((), {"t": "x" * 200}),)) for doc in docs))


def play(seed: int) -> None:
    draws = Random(seed)
    disk = FaultyDisk("crash-attack")
    limits = Limits(heads_commits=draws.choice((1, 2, 1000)), snapshot_patches=draws.choice((1, 2, 16)))

    def opened() -> Engine:
        return Engine(SqliteStore(FILE, vfs=disk.vfs), clock=VirtualClock(), limits=limits)

    engine = opened()
    engine.open_session("s")
    number = 0
    for _ in range(draws.randrange(1, 4)):
        number += 1
        engine.submit("s", write(number, draws.choice((1, 5, 30))))
    acknowledged = number
    times = draws.randrange(1, 6)
    syncs = frozenset({OpKind.SYNC})
    disk.arm(Fault(mode=Mode.SYNC_LOST, at=draws.choice((1, 1, 2)), kinds=syncs, times=times))
    with suppress(StorageError):
        for _ in range(2):
            number += 1
            engine.submit("s", write(number, draws.choice((1, 5, 30))))
            acknowledged = number
    for place in range(draws.randrange(0, 6)):  # the engine tries to mend itself
        with suppress(StorageError):
            assert engine.last_seq
            engine.open_session(f"q{place}")
    disk.kill_process()
    if draws.random() < 0.8:
        mode = Mode.CRASH_AFTER if draws.random() < 0.5 else Mode.CRASH_BEFORE
        disk.arm(Fault(mode=mode, at=draws.randrange(1, 40)))
    with suppress(StorageError):
        opened()
    disk.reboot(draws.choice(list(Loss)), draws)
    store = SqliteStore(FILE, vfs=disk.vfs)
    report = verify_store(store)
    assert report.ok, report.violation
    store.close()
    plain = apsw.Connection(FILE, vfs=disk.vfs)
    plain.execute("PRAGMA locking_mode=EXCLUSIVE")  # reading in this mode needs no shared memory
    assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    plain.close()
    engine = opened()
    assert engine.last_seq >= acknowledged
    engine.open_session("s")
    engine.submit("s", write(engine.session("s").last + 100, 3))
    engine.close()


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_power_failure_while_opening_after_failed_syncs_leaves_a_whole_space(seed: int) -> None:
    with harness():
        play(seed)
