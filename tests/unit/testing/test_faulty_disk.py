"""An engine on a disk that fails when it is told to."""

from __future__ import annotations

import apsw
import pytest

from headwater.clock import Random, VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import add, increment
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.verdict import Accepted
from headwater.testing.disk.faulty_disk import FOR_GOOD, Fault, FaultyDisk, Mode
from headwater.testing.disk.model import DiskOp, Loss, OpKind, Platter

DOC = DocKey("space", "a")
SYNCS = frozenset({OpKind.SYNC})


def opened(disk: FaultyDisk) -> Engine:
    return Engine(SqliteStore("a.space", vfs=disk.vfs), clock=VirtualClock())


def commit(local_seq: int) -> Commit:
    return Commit(local_seq, (Operation(DOC, (increment(("n",)),)),))


def started(disk: FaultyDisk) -> Engine:
    """An engine with one commit of one session."""
    engine = opened(disk)
    engine.open_session("s")
    engine.submit("s", Commit(1, (Operation(DOC, (add((), {"n": 1}),)),)))
    return engine


def test_an_engine_works_on_it_and_finds_everything_again() -> None:
    disk = FaultyDisk()
    started(disk).close()
    assert set(disk.image()) == {"a.space"}
    again = opened(disk)
    assert again.read(DOC).value == {"n": 1}
    again.close()


def test_what_was_answered_survives_a_power_failure() -> None:
    disk = FaultyDisk()
    engine = started(disk)
    disk.reboot(Loss.DROPPED, Random(0))
    again = opened(disk)
    assert again.last_seq == 1
    again.close()
    engine.close()


def test_what_is_left_of_a_dead_engine_changes_nothing_any_more() -> None:
    disk = FaultyDisk()
    engine = started(disk)
    disk.kill_process()
    before = disk.image()
    engine.close()  # checkpoints, and deletes the write-ahead log: all of it in the past
    assert disk.image() == before


@pytest.mark.parametrize("mode", [Mode.CRASH_BEFORE, Mode.CRASH_AFTER])
def test_a_machine_that_is_off_answers_nothing_until_it_is_rebooted(mode: Mode) -> None:
    disk = FaultyDisk()
    engine = started(disk)
    disk.arm(Fault(mode=mode, kinds=SYNCS))
    with pytest.raises(StorageError, match="the machine is off"):
        engine.submit("s", commit(2))
    assert disk.is_off
    with pytest.raises(StorageError, match="the machine is off"):
        opened(disk)
    disk.reboot(Loss.DROPPED, Random(0))
    again = opened(disk)
    assert again.last_seq == (2 if mode is Mode.CRASH_AFTER else 1)
    again.close()


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("loss", list(Loss))
def test_a_crash_leaves_what_replaying_the_recorded_operations_leaves(at: int, loss: Loss) -> None:
    ops: list[DiskOp] = []
    disk = FaultyDisk(on_op=ops.append)
    engine = started(disk)
    disk.arm(Fault(mode=Mode.CRASH_AFTER, at=at))
    with pytest.raises(StorageError):
        engine.submit("s", commit(2))
    rebuilt = Platter()
    for op in ops:
        rebuilt.apply(op)
    disk.reboot(loss, Random(4))
    assert disk.image() == rebuilt.after_crash(loss, Random(4))


def test_an_io_error_is_no_verdict_and_the_engine_goes_on() -> None:
    disk = FaultyDisk()
    engine = started(disk)
    disk.arm(Fault(mode=Mode.IO_ERROR, kinds=frozenset({OpKind.WRITE})))
    with pytest.raises(StorageError, match=r"write of a\.space-wal: I/O error"):
        engine.submit("s", commit(2))
    assert disk.failed == 1
    assert engine.submit("s", commit(2)) == (Accepted(2, 2),)
    engine.close()


def test_a_full_disk_says_so_is_no_verdict_and_is_read_all_the_same() -> None:
    disk = FaultyDisk()
    engine = started(disk)
    engine.close()
    engine = opened(disk)
    disk.arm(Fault(mode=Mode.FULL, kinds=frozenset({OpKind.WRITE}), at=2, times=FOR_GOOD))
    for _ in range(3):
        with pytest.raises(StorageError, match=r"no room left for a\.space: .*Free disk space"):
            engine.submit("s", commit(2))
    disk.heal()
    assert engine.submit("s", commit(2)) == (Accepted(2, 2),)
    assert engine.read(DOC).value == {"n": 2}
    engine.close()


@pytest.mark.parametrize("times", [1, 2, 3, FOR_GOOD])
@pytest.mark.parametrize("mode", [Mode.IO_ERROR, Mode.SYNC_DONE, Mode.SYNC_LOST])
def test_a_commit_whose_sync_failed_has_an_unknown_fate_that_a_replay_tells(mode: Mode, times: int) -> None:
    disk = FaultyDisk()
    engine = started(disk)
    disk.arm(Fault(mode=mode, kinds=SYNCS, times=times))
    with pytest.raises(StorageError):
        engine.submit("s", commit(2))
    disk.heal()
    (verdict,) = engine.submit("s", commit(2))
    assert isinstance(verdict, Accepted)
    assert verdict.seq == 2
    disk.reboot(Loss.DROPPED, Random(0))
    again = opened(disk)
    assert again.read(DOC).value == {"n": 2}, "it was acknowledged, so it is there, and once"
    again.close()
    engine.close()


def test_a_commit_recovered_from_the_cache_of_a_killed_process_is_durable_before_it_is_acknowledged() -> None:
    disk = FaultyDisk()
    engine = started(disk)
    disk.arm(Fault(mode=Mode.IO_ERROR, kinds=SYNCS))
    written = disk.platter()
    with pytest.raises(StorageError):
        engine.submit("s", commit(2))
    assert written.visible() != disk.image()
    disk.kill_process()
    again = opened(disk)
    again.submit("s", commit(2))
    disk.reboot(Loss.DROPPED, Random(0))
    last = opened(disk)
    assert last.last_seq == 2
    last.close()
    again.close()
    engine.close()


def test_a_read_error_is_a_storage_error() -> None:
    disk = FaultyDisk()
    started(disk).close()
    disk.arm(Fault(mode=Mode.READ_ERROR))
    with pytest.raises(StorageError, match=r"read of a\.space: read error"):
        opened(disk)
    again = opened(disk)
    assert again.last_seq == 1
    again.close()


def test_a_fault_happens_so_many_times_and_to_its_kinds_only() -> None:
    disk = FaultyDisk()
    disk.load({"a": b""})
    disk.arm(Fault(mode=Mode.IO_ERROR, at=2, kinds=SYNCS, times=2))
    write = DiskOp(kind=OpKind.WRITE, file="a", data=b"x")
    fates = []
    for op in (write, _sync(), write, _sync(), _sync(), write, _sync()):
        try:
            disk.perform(op)
        except apsw.IOError:
            fates.append(False)
        else:
            fates.append(True)
    assert fates == [True, True, True, False, False, True, True]
    assert disk.failed == 2
    assert disk.operations == 5


def test_a_fault_says_what_it_is() -> None:
    assert str(Fault(mode=Mode.IO_ERROR, at=2, kinds=SYNCS)) == "I/O error at sync operation 2, 1 times"
    assert str(Fault(mode=Mode.FULL)) == "disk full at operation 1, 1 times"


def test_two_disks_do_not_meet() -> None:
    one, two = FaultyDisk("disk"), FaultyDisk("disk")
    engine = started(one)
    other = opened(two)
    assert (engine.last_seq, other.last_seq) == (1, 0)
    engine.close()
    other.close()


def test_a_temporary_file_belongs_to_its_connection_and_never_fails() -> None:
    disk = FaultyDisk()
    disk.arm(Fault(mode=Mode.IO_ERROR, times=FOR_GOOD))
    file = disk.xOpen(None, [0, 0])
    file.xWrite(b"abcdef", 2)
    file.xTruncate(5)
    file.xSync(0)
    assert (file.xRead(5, 0), file.xFileSize()) == (b"\0\0abc", 5)
    assert disk.image() == {}
    assert disk.operations == 0


def _sync() -> DiskOp:
    return DiskOp(kind=OpKind.SYNC, file="a")
