"""A write-ahead log that is given room ahead of time: how much, when not, and that nothing relies on it."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.store.database import STORE_LIMITS
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.store.wal import WalPreallocation
from headwater.engine.verify.oracle import verify_file
from headwater.errors import StorageError
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Accepted
from headwater.testing.disk.crash import Rig, Suite, run
from headwater.testing.disk.machine import FILE
from tests.counts import seldom
from tests.unit.engine.kit import value_of, write

MANY = 60
ROOMY = Rig(store=lambda vfs: SqliteStore(FILE, vfs=vfs, room_from=8_192))


def opened(path: Path, room_from: int | None = None) -> Engine:
    engine = Engine(SqliteStore(path, room_from=room_from), clock=VirtualClock())
    engine.open_session("s")
    return engine


def lengths(path: Path, engine: Engine, commits: int, size: int = 500) -> list[int]:
    """How long the log is after each commit."""
    found = []
    for _ in range(commits):
        number = engine.session("s").last + 1
        verdict = engine.submit("s", Commit(number, (write("d", replace((), "x" * size + str(number))),)))[0]
        assert isinstance(verdict, Accepted)
        found.append(Path(f"{path}-wal").stat().st_size)
    return found


def test_commits_find_room_and_the_log_grows_in_a_few_steps(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = opened(path, room_from=32_768)
    found = lengths(path, engine, MANY)
    grown = [two for one, two in pairwise(found) if one != two and two >= 65_536]
    assert 1 < len(grown) < 6
    assert all(two > 1.5 * one for one, two in pairwise(grown))
    engine.close()
    assert not Path(f"{path}-wal").exists()
    assert verify_file(path).ok


def test_what_is_hardly_used_is_not_made_larger(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = opened(path)
    assert max(lengths(path, engine, 10)) < STORE_LIMITS.plain_log_bytes
    engine.close()


def test_zeros_after_the_last_frame_are_not_read_for_anything(tmp_path: Path) -> None:
    """The files as they are when the process is killed."""
    path, copy = tmp_path / "s.space", tmp_path / "copy.space"
    engine = opened(path, room_from=32_768)
    lengths(path, engine, MANY)
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    engine.close()
    assert Path(f"{copy}-wal").read_bytes().endswith(bytes(8_192))
    assert verify_file(copy).commits == MANY
    again = opened(copy)
    assert value_of(again, "d") == "x" * 500 + str(MANY)
    again.close()


def test_a_log_is_never_given_more_than_one_pass_needs(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = opened(path, room_from=32_768)
    size = STORE_LIMITS.checkpoint_pages * 4_096 // MANY  # more than one pass, in all
    assert max(lengths(path, engine, MANY + 10, size)) <= 32 + 4_120 * (
        STORE_LIMITS.checkpoint_pages + STORE_LIMITS.checkpoint_pages // 8
    )
    engine.close()
    assert STORE_LIMITS.checkpoint_pages * 4_120 > STORE_LIMITS.plain_log_bytes


def test_once_a_pass_has_all_its_room_there_is_nothing_left_to_do(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    connection = apsw.Connection(str(path))
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA wal_autocheckpoint=40", "CREATE TABLE t (x)"):
        connection.execute(statement).fetchall()
    room = WalPreallocation(connection, None, 4_096, 40, 32_768)
    grown = []
    for number in range(MANY):
        connection.execute("INSERT INTO t VALUES (?)", ("x" * 4_000 + str(number),))
        if not room.after_commit():
            break
        grown.append(Path(f"{path}-wal").stat().st_size)
    assert Path(f"{path}-wal").stat().st_size == 32 + 4_120 * 45, "what one pass needs, and an eighth"
    assert 0 < len(grown) < 40
    connection.close()


def test_without_room_on_the_disk_commits_land_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise apsw.FullError("no room")

    path = tmp_path / "s.space"
    engine = opened(path, room_from=32_768)
    monkeypatch.setattr(apsw, "VFSFile", full)
    found = lengths(path, engine, MANY)
    assert len(set(found)) == MANY, "it grows by itself, with each commit"
    monkeypatch.undo()
    engine.close()
    assert verify_file(path).ok


def test_who_does_not_wait_for_the_disk_gets_no_room(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = Engine(SqliteStore(path, synchronous="OFF", room_from=32_768), clock=VirtualClock())
    engine.open_session("s")
    assert len(set(lengths(path, engine, MANY))) == MANY, "it grows by itself, with each commit"
    engine.close()


def test_a_space_in_memory_has_no_log_that_could_be_given_room() -> None:
    engine = Engine(SqliteStore(":memory:", room_from=32_768), clock=VirtualClock())
    engine.open_session("s")
    for number in range(1, MANY + 1):
        assert isinstance(engine.submit("s", Commit(number, (write("d", replace((), "x" * 500)),)))[0], Accepted)
    engine.close()


@pytest.mark.random
@pytest.mark.parametrize("suite", [Suite.CRASHES, Suite.FAULTS])
def test_a_crash_finds_nothing_missing_in_a_log_with_room(suite: Suite) -> None:
    summary = run(
        seed=2,
        commits=60,
        suites=[suite],
        chosen=seldom,
        rig=ROOMY,
    )
    print(summary)
    assert not summary.violations, summary


def test_a_new_space_does_not_take_up_the_log_of_one_that_was_deleted(tmp_path: Path) -> None:
    """What was in it would be written over the new file, and be shown as its own."""
    path = tmp_path / "a.space"
    (tmp_path / "a.space-wal-copy").write_bytes(b"what a power failure left")
    with pytest.raises(StorageError, match=r"a\.space-wal-copy is left of a space whose file a\.space is gone"):
        SqliteStore(path)
    assert not path.exists()
    (tmp_path / "a.space-wal-copy").unlink()
    (tmp_path / "a.space.new-wal").write_bytes(b"of a draft that never was a space")
    SqliteStore(path).close()
    assert path.exists()
