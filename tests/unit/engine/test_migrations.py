"""A file is brought up to the schema this version knows, and one from a newer version is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.checksummed_tables import SEALED
from headwater.engine.store.row_checksum import row_seal
from headwater.engine.store.schema import APPLICATION_ID, MIGRATIONS
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file
from headwater.errors import CorruptionError, NewerVersionError, StorageError
from headwater.protocol.commit import Commit, LeaseHeld, SentEvent, TopicRecord
from headwater.protocol.verdict import Rejected
from tests.unit.engine.kit import open_engine, value_of, write

EXTRA = "CREATE TABLE extra (id INTEGER PRIMARY KEY); INSERT INTO extra VALUES (42);"


def written(path: Path) -> None:
    engine = open_engine(path)
    engine.open_session("s")
    engine.submit("s", Commit(1, (write("d", replace((), "kept")),)))
    engine.close()


def pragma(path: Path, name: str) -> object:
    connection = apsw.Connection(str(path))
    try:
        return next(connection.cursor().execute(f"PRAGMA {name}"))[0]
    finally:
        connection.close()


def test_a_new_file_says_whose_it_is_and_which_version_it_has(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    SqliteStore(path).close()
    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == len(MIGRATIONS)
    assert APPLICATION_ID.to_bytes(4) == b"HWAT"


def test_an_older_file_gets_the_scripts_it_lacks_and_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    written(path)
    store = SqliteStore(path, migrations=(*MIGRATIONS, EXTRA))
    engine = Engine(store, clock=VirtualClock())
    assert value_of(engine, "d") == "kept"
    engine.close()
    assert pragma(path, "user_version") == len(MIGRATIONS) + 1
    connection = apsw.Connection(str(path))
    assert list(connection.cursor().execute("SELECT id FROM extra")) == [(42,)]
    connection.close()


def of_version_7(path: Path) -> None:
    """Turn a file into one of version 7, which had leases with free names, and one of these."""
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("reseal", row_seal)
    columns = "name TEXT PRIMARY KEY, token INTEGER NOT NULL, holder TEXT NOT NULL, until_us INTEGER NOT NULL"
    connection.execute(f"CREATE TABLE leases ({columns}, seal INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID, STRICT")
    connection.execute("INSERT INTO leases VALUES ('lease', 1, 'worker', 9, reseal('lease', 1, 'worker', 9))")
    connection.execute("INSERT INTO meta VALUES ('leases_made', '1', reseal('leases_made', '1'))")
    connection.execute("PRAGMA user_version=7")
    connection.close()


def of_version_5(path: Path) -> None:
    """Turn a file into one of version 5, which did not know of reactions, nor of who emitted a record."""
    of_version_7(path)
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("reseal", row_seal)
    old = "reseal(seq, ordinal, topic, key, payload)"
    before = "(SELECT CAST(value AS INTEGER) FROM meta WHERE key='compacted_seq')"
    more = f"(SELECT coalesce(sum({old} - seal), 0) FROM records WHERE seq<{before})"
    connection.execute(f"UPDATE meta SET value=CAST(CAST(value AS INTEGER) + {more} AS TEXT) WHERE key='kept_sum'")
    connection.execute("UPDATE meta SET seal=reseal(key, value)")
    connection.execute(f"UPDATE records SET seal={old}")
    connection.execute("DROP INDEX records_by_key")
    for column in ("source", "branch", "emitted_us"):
        connection.execute(f"ALTER TABLE records DROP COLUMN {column}")
    for table in ("subscriptions", "targets", "parked", "attempts"):
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"DELETE FROM meta WHERE key='{table}_made'")
    connection.execute("DELETE FROM meta WHERE key='claims_epoch'")
    connection.execute("PRAGMA user_version=5")
    connection.close()


def of_version_4(path: Path) -> None:
    """Turn a file into one of version 4, which did not know of events on which branch and when they were sent."""
    of_version_5(path)
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("reseal", row_seal)
    old = "reseal(id, seq, stream, due_us, payload)"
    before = "(SELECT CAST(value AS INTEGER) FROM meta WHERE key='compacted_seq')"
    held = (
        f"CAST(CAST(value AS INTEGER) + (SELECT coalesce(sum({old} - seal), 0) FROM events WHERE seq<{before}) AS TEXT)"
    )
    connection.execute(f"UPDATE meta SET value={held} WHERE key='kept_sum'")
    connection.execute("UPDATE meta SET seal=reseal(key, value)")
    connection.execute(f"UPDATE events SET seal={old}")
    for index in ("events_by_branch", "events_by_due"):
        connection.execute(f"DROP INDEX {index}")
    for column in ("branch", "stored_us", "session"):
        connection.execute(f"ALTER TABLE events DROP COLUMN {column}")
    for table in ("names", "observations", "readers", "mirrors"):
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"DELETE FROM meta WHERE key='{table}_made'")
    connection.execute("PRAGMA user_version=4")
    connection.close()


def of_version_3(path: Path) -> None:
    """Turn a file into one of version 3, which had no seals of what only saves work, and fewer numbers."""
    of_version_4(path)
    connection = apsw.Connection(str(path))
    for table in ("heads", "snapshots", "meta"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN seal")
    connection.execute("DELETE FROM meta WHERE key IN ('documents_made', 'snapshots_made', 'marks_made')")
    connection.execute("DELETE FROM meta WHERE (key, value) IN (('compacted_seq', '1'), ('compacted_chain', '0'))")
    connection.execute("PRAGMA user_version=3")
    connection.close()


def of_version_2(path: Path) -> None:
    """Turn a file into one of version 2, which had seals of documents and sessions only, the latter's of less."""
    of_version_3(path)
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("reseal", row_seal)
    for table in ("branches", "marks", "leases", "events", "records"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN seal")
    connection.execute("DELETE FROM meta WHERE key LIKE '%_made' OR key='kept_sum'")
    connection.execute("UPDATE sessions SET seal=reseal(session, key, principal, opened_us, closed, resume, acked)")
    connection.execute("PRAGMA user_version=2")
    connection.close()


def without_seals(path: Path) -> None:
    """Turn a file into one of version 1, which had no seals."""
    of_version_2(path)
    connection = apsw.Connection(str(path))
    for statement in (
        "ALTER TABLE documents DROP COLUMN seal",
        "ALTER TABLE sessions DROP COLUMN seal",
        "PRAGMA user_version=1",
    ):
        connection.execute(statement)
    connection.close()


def a_long_story(path: Path, *, events_from: int = 3) -> None:
    """Everything that is sealed: a branch, events and records, refusals, and rows kept for a session."""
    engine = open_engine(path, limits=Limits(marks_patches=2, snapshot_patches=2))
    engine.open_session("s", "ann")
    for number in range(1, 9):
        sent = SentEvent(f"e{number}", "stream", number), TopicRecord("topic", "key", number)
        events, records = (sent[:1], sent[1:]) if number >= events_from else ((), ())
        engine.submit("s", Commit(number, (write("d", replace((), number)),), events=events, records=records))
    engine.fork("b")
    engine.acknowledge("s", 2)
    assert engine.compact(6) == 6
    engine.close()


def test_a_file_of_version_2_gets_everything_else_sealed(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    a_long_story(path)
    fresh = dump(path)
    of_version_2(path)
    open_engine(path).close()
    assert pragma(path, "user_version") == len(MIGRATIONS)
    assert dump(path) == fresh, "as if it had been written by this version"
    assert verify_file(path).ok
    for edit in ("DELETE FROM log WHERE seq=4", "DELETE FROM events WHERE seq=3", "DELETE FROM branches"):
        of_version_2(copy := Path(shutil.copy(path, tmp_path / "copy.space")))
        open_engine(copy).close()
        connection = apsw.Connection(str(copy))
        connection.execute(edit)
        connection.close()
        assert not verify_file(copy).ok, edit


@pytest.mark.parametrize("compact", [True, False])
def test_a_file_of_version_3_gets_its_heads_and_snapshots_sealed_and_its_numbers_completed(
    tmp_path: Path, compact: bool
) -> None:
    path = tmp_path / "s.space"
    if compact:
        a_long_story(path)
    else:
        written(path)
    fresh = dump(path)
    of_version_3(path)
    open_engine(path).close()
    assert dump(path) == fresh, "as if it had been written by this version"
    assert verify_file(path).ok


def test_a_session_whose_seal_was_broken_before_is_not_sealed_as_if_it_were_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    a_long_story(path)
    of_version_2(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE sessions SET principal='eve'")
    connection.close()
    engine = open_engine(path)
    with pytest.raises(CorruptionError, match=r"the row of session 1 \('s'\) does not match its checksum"):
        engine.open_session("s", "eve")
    engine.close()


def test_an_event_of_an_older_file_gets_the_branch_and_the_time_of_its_commit_if_they_are_known(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    a_long_story(path, events_from=1)
    of_version_4(path)
    engine = open_engine(path)
    known = [(event.id, event.stored_us > 0) for event in engine.events().items]
    assert known == [("e1", False), ("e2", False), *[(f"e{number}", True) for number in range(3, 9)]]
    engine.submit("s", Commit(9, handled=("e1", "e4", "e8")))
    assert [event.id for event in engine.events().items] == ["e2", "e3", "e5", "e6", "e7"]
    engine.close()
    assert verify_file(path).ok


def test_events_of_a_branch_that_was_deleted_go_when_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = open_engine(path)
    engine.open_session("s")
    engine.fork("b")
    engine.submit("s", Commit(1, events=(SentEvent("gone", "s", 1),), branch="b"))
    engine.submit("s", Commit(2, events=(SentEvent("stays", "s", 1),)))
    engine.delete_branch("b")
    engine.close()
    of_version_4(path)
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("reseal", row_seal)
    connection.execute("INSERT INTO events VALUES ('gone', 1, 's', 0, x'01', reseal('gone', 1, 's', 0, x'01'))")
    connection.close()
    engine = open_engine(path)
    assert [event.id for event in engine.events().items] == ["stays"]
    engine.close()
    assert verify_file(path).ok


@pytest.mark.parametrize("compact", [True, False])
def test_a_file_of_version_5_gets_who_emitted_its_records_and_when_as_far_as_that_is_known(
    tmp_path: Path, compact: bool
) -> None:
    path = tmp_path / "s.space"
    if compact:
        a_long_story(path)
    else:
        written(path)
    fresh = dump(path)
    of_version_5(path)
    open_engine(path).close()
    assert dump(path) == fresh, "as if it had been written by this version"
    assert verify_file(path).ok


def test_leases_with_free_names_go_when_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    a_long_story(path)
    fresh = dump(path)
    of_version_7(path)
    engine = open_engine(path)
    named = Commit(9, preconditions=(LeaseHeld("lease", 1),))
    assert isinstance(engine.submit("s", named)[0], Rejected)
    engine.close()
    assert pragma(path, "user_version") == len(MIGRATIONS)
    assert {**dump(path), "sessions": []} == {**fresh, "sessions": []}
    assert verify_file(path).ok


def test_a_record_that_was_edited_before_is_not_sealed_as_if_it_were_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    a_long_story(path)
    of_version_5(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE records SET key='other' WHERE seq=7")
    connection.close()
    open_engine(path).close()
    assert not verify_file(path).ok


def dump(path: Path) -> dict[str, list[object]]:
    connection = apsw.Connection(str(path))
    tables = [*SEALED.values()]
    found = {each.table: sorted(connection.execute(each.select).fetchall()) for each in tables}
    found["meta"] = sorted(connection.execute("SELECT * FROM meta").fetchall())
    connection.close()
    return {name: [*rows] for name, rows in found.items()}


def test_a_file_of_version_1_gets_its_documents_and_sessions_sealed(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = open_engine(path)
    for number, name in enumerate(("a", "\u00e4", "\U0001f600"), 1):
        engine.open_session(name, f"user {name}")
        engine.submit(name, Commit(1, (write(name, replace((), number)),)))
        engine.acknowledge(name, 1)
    engine.close_session("a", 1)
    engine.close()
    without_seals(path)
    engine = open_engine(path)
    assert [value_of(engine, name) for name in ("a", "\u00e4", "\U0001f600")] == [1, 2, 3]
    engine.open_session("\U0001f600", "user \U0001f600")
    engine.close()
    assert verify_file(path).ok
    assert pragma(path, "user_version") == len(MIGRATIONS)


def test_a_file_of_version_1_with_damaged_text_is_not_sealed_as_if_it_were_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    written(path)
    without_seals(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE documents SET id=CAST(X'FF' AS TEXT)")
    connection.close()
    with pytest.raises(CorruptionError, match=r"holds text that is no UTF-8: .*Restore a backup\."):
        open_engine(path)
    assert pragma(path, "user_version") == 1


def test_several_scripts_run_in_order_and_each_only_once(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    more = (*MIGRATIONS, EXTRA, "INSERT INTO extra VALUES (43);")
    SqliteStore(path, migrations=more[:2]).close()
    SqliteStore(path, migrations=more).close()
    SqliteStore(path, migrations=more).close()
    connection = apsw.Connection(str(path))
    assert list(connection.cursor().execute("SELECT id FROM extra")) == [(42,), (43,)]
    connection.close()


def test_a_script_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    written(path)
    with pytest.raises(StorageError, match="no such table: nowhere"):
        SqliteStore(path, migrations=(*MIGRATIONS, EXTRA, "INSERT INTO nowhere VALUES (1);"))
    assert pragma(path, "user_version") == len(MIGRATIONS)
    engine = open_engine(path)
    assert value_of(engine, "d") == "kept"
    engine.close()


def test_a_file_from_a_newer_version_is_refused_by_name_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    SqliteStore(path, migrations=(*MIGRATIONS, EXTRA)).close()
    before = path.read_bytes()
    with pytest.raises(NewerVersionError) as caught:
        SqliteStore(path)
    known = len(MIGRATIONS)
    assert str(caught.value) == (
        f"{path} has schema version {known + 1}, this Headwater knows versions up to {known}. Upgrade Headwater, "
        "or open the file with the version that wrote it."
    )
    assert path.read_bytes() == before


def test_a_database_of_somebody_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.cursor().execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"is an SQLite file, but not a Headwater space\. Choose another file\."):
        SqliteStore(path)
    connection = apsw.Connection(str(path))
    connection.cursor().execute("PRAGMA application_id=7")
    connection.close()
    with pytest.raises(StorageError, match="not a Headwater space"):
        SqliteStore(path)
    assert before != b""


def test_a_file_that_must_be_a_space_already_is_never_made_or_brought_up_to_date(tmp_path: Path) -> None:
    """Who only looks, as verifying does, must leave what is there as it is."""
    older = tmp_path / "older.space"
    written(older)
    before = older.read_bytes()
    with pytest.raises(
        StorageError, match=rf"has schema version {len(MIGRATIONS)}, not {len(MIGRATIONS) + 1}\. Open the space once"
    ):
        SqliteStore(older, migrations=(*MIGRATIONS, EXTRA), create=False)
    assert pragma(older, "user_version") == len(MIGRATIONS)
    assert older.read_bytes() == before
    with pytest.raises(StorageError):
        SqliteStore(tmp_path / "missing.space", create=False)
    assert not (tmp_path / "missing.space").exists()


def test_a_space_of_this_version_needs_nothing_made(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    written(path)
    engine = Engine(SqliteStore(path, create=False), clock=VirtualClock())
    assert value_of(engine, "d") == "kept"
    engine.close()


def test_a_new_space_that_was_never_finished_is_begun_again(tmp_path: Path) -> None:
    """It grows under another name, so that a process killed meanwhile leaves nothing that looks like a space."""
    path = tmp_path / "s.space"
    for left in (b"", b"SQLite format 3\x00" + b"\x00" * 50, b"nonsense" * 1_000):
        (tmp_path / "s.space.new").write_bytes(left)
        written(path)
        assert sorted(each.name for each in tmp_path.iterdir()) == ["s.space"]
        assert pragma(path, "user_version") == len(MIGRATIONS)
        path.unlink()
