"""A log that was found when a space is opened is made sure of, whatever became of the syncs before, and of this one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.store.wal import COPY
from headwater.engine.verify.oracle import verify_file, verify_store
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, Operation
from headwater.testing.disk.faulty_disk import Fault, FaultyDisk, Mode
from headwater.testing.disk.machine import harness
from headwater.testing.disk.model import Loss, OpKind
from tests.counts import seldom

FILE = "x.space"
LOG = f"{FILE}-wal"
SYNCS = frozenset({OpKind.SYNC})
STORIES = 4_000
TORN = (68, 102, 356, 608, 966)  # a torn log that was read, with a file that needs it, before it was whole again


def write(number: int, documents: int = 30) -> Commit:
    docs = [DocKey("space", f"d{number}-{place}") for place in range(documents)]
    return Commit(number, tuple(Operation(doc, (replace((), {"text": "x" * 200}),)) for doc in docs))


def story(seed: int, *, sector_garbled: bool = False) -> None:
    """Syncs fail and their pages are taken for clean, the process is killed, the power fails whenever it starts."""
    random = Random(seed)
    disk = FaultyDisk("rewriting", sector_garbled=sector_garbled)
    limits = Limits(heads_commits=random.choice((1, 2, 1000)), snapshot_patches=random.choice((1, 2, 16)))

    def opened() -> Engine:
        return Engine(SqliteStore(FILE, vfs=disk.vfs), clock=VirtualClock(), limits=limits)

    engine = opened()
    engine.open_session("s")
    acknowledged = random.randrange(1, 4)
    for number in range(1, acknowledged + 1):
        engine.submit("s", write(number, random.choice((1, 5, 30))))
    disk.arm(Fault(mode=Mode.SYNC_LOST, at=random.choice((1, 1, 2)), kinds=SYNCS, times=random.randrange(1, 6)))
    for attempt in range(random.randrange(1, 8)):
        try:
            if attempt < 2:
                engine.submit("s", write(acknowledged + 1))
                acknowledged += 1
            else:
                engine.open_session(f"other {attempt}")
        except StorageError:
            continue
    disk.kill_process()
    for _ in range(random.randrange(1, 4)):
        if random.random() < 0.8:
            mode = random.choice((Mode.CRASH_AFTER, Mode.CRASH_BEFORE))
            disk.arm(Fault(mode=mode, at=random.randrange(1, 40)))
        try:
            opened()
        except StorageError:
            assert disk.is_off, f"seed {seed}"
        disk.reboot(random.choice(list(Loss)), random)
    store = SqliteStore(FILE, vfs=disk.vfs)
    report = verify_store(store)
    store.close()
    assert report.ok, f"seed {seed}: {report.violation}"
    engine = opened()
    assert engine.last_seq >= acknowledged, f"seed {seed}: what was acknowledged is gone"
    engine.submit("s", write(100))
    engine.close()
    assert set(disk.image()) == {FILE}, f"seed {seed}: nothing is left lying about"


@pytest.mark.random
@pytest.mark.parametrize("sector_garbled", [False, True])
def test_a_crash_while_opening_after_failed_syncs_leaves_a_whole_space(sector_garbled: bool) -> None:
    with harness():
        for seed in (*TORN, *range(seldom(STORIES))):
            story(seed, sector_garbled=sector_garbled)


def after_a_kill() -> FaultyDisk:
    """A disk with an acknowledged commit in the log, and nothing of it in the file."""
    disk = FaultyDisk("rewriting")
    engine = Engine(SqliteStore(FILE, vfs=disk.vfs), clock=VirtualClock())
    engine.open_session("s")
    engine.submit("s", write(1))
    disk.kill_process()
    return disk


def last_seq(disk: FaultyDisk) -> int:
    engine = Engine(SqliteStore(FILE, vfs=disk.vfs), clock=VirtualClock())
    seq = engine.last_seq
    engine.close()
    return seq


def test_a_copy_of_another_log_is_not_written_back() -> None:
    """One that should have been deleted, and came back with the power: the space has gone on since."""
    disk = after_a_kill()
    disk.arm(Fault(mode=Mode.CRASH_AFTER, kinds=SYNCS))
    with pytest.raises(StorageError):
        SqliteStore(FILE, vfs=disk.vfs)
    disk.reboot(Loss.KEPT, Random(1))
    stale = disk.image()[LOG + COPY]
    engine = Engine(SqliteStore(FILE, vfs=disk.vfs), clock=VirtualClock())
    engine.submit("s", write(2))
    disk.load({**disk.image(), LOG + COPY: stale})
    assert last_seq(disk) == 2
    assert set(disk.image()) == {FILE}


@pytest.mark.parametrize("damage", ["cut off", "garbled", "of nothing"])
def test_a_copy_that_is_not_whole_is_not_written_back(damage: str) -> None:
    disk = after_a_kill()
    disk.arm(Fault(mode=Mode.CRASH_AFTER, kinds=SYNCS))
    with pytest.raises(StorageError):
        SqliteStore(FILE, vfs=disk.vfs)
    disk.reboot(Loss.KEPT, Random(1))
    copy = disk.image()[LOG + COPY]
    left = {"cut off": copy[:-7], "garbled": copy[:99] + b"?" + copy[100:], "of nothing": copy[-16:]}[damage]
    disk.load({**disk.image(), LOG + COPY: left})
    assert last_seq(disk) == 1


def test_a_failed_sync_of_the_copy_is_a_failed_opening_and_the_next_one_starts_over() -> None:
    disk = after_a_kill()
    disk.arm(Fault(mode=Mode.SYNC_LOST, kinds=SYNCS))
    with pytest.raises(StorageError, match="sync failed"):
        SqliteStore(FILE, vfs=disk.vfs)
    assert last_seq(disk) == 1


@pytest.mark.parametrize("length", [200, 3_000_000])
def test_a_space_that_was_killed_is_opened_from_a_real_disk(tmp_path: Path, length: int) -> None:
    """However long its log is: SQLite takes a write of a multiple of 128 KiB at once for one of nothing."""
    killed = Engine(SqliteStore(tmp_path / "a.space"), clock=VirtualClock())
    killed.open_session("s")
    killed.submit("s", Commit(1, (Operation(DocKey("space", "d"), (replace((), "x" * length),)),)))
    for name in ("a.space", "a.space-wal"):
        (tmp_path / name.replace("a.", "b.")).write_bytes((tmp_path / name).read_bytes())
    killed.close()
    engine = Engine(SqliteStore(tmp_path / "b.space"), clock=VirtualClock())
    assert engine.last_seq == 1
    engine.close()
    assert verify_file(tmp_path / "b.space").ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.space", "b.space"]
