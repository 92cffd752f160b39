"""Cases for `test_error_messages`: what is said about a log, a document and a file that are not as they should be."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headwater.clock import VirtualClock
from headwater.data.patch import append, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.heads import snapshot_of
from headwater.engine.log.log import Log
from headwater.engine.observations.codec import NameCache
from headwater.engine.store.database import Database
from headwater.engine.store.port import LogRow, Part
from headwater.engine.store.row_checksum import row_seal
from headwater.engine.store.schema import DRAFT_APPLICATION_IDS
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import (
    Commit,
    Operation,
    TopicRecord,
    encode_commit,
)
from headwater.protocol.log_record import encode_record
from tests.unit.engine.kit import Writer, doc, open_engine, read, write
from tests.unit.engine.messages import ann_on, case, execute, forge, raised
from tests.unit.engine.observing_kit import Runner, looked

# the log


def log_with(*rows: LogRow) -> Log:
    store = SqliteStore(":memory:")
    log = Log(store)
    for row in rows:
        store.append(row)
    return log


def log_row(seq: int = 1, *, commits: int = 1, body: bytes | None = None) -> LogRow:
    good = encode_record([(encode_commit(Commit(seq, (Operation(doc("d"), ()),))), (0,))])
    return LogRow(seq, commits, 1, seq, seq, 1, 0, 0, good if body is None else body)


@case("the log has no commit with seq 5, though something points at it")
def pointer_to_nothing(_: Path) -> str:
    return raised(lambda: log_with(log_row()).entry(5))


@case("something points at commit 7, but the log ends at 0")
def pointer_past_the_open_frame(_: Path) -> str:
    log = Log(SqliteStore(":memory:"))
    log.open_frame(1, 1, 0)
    return raised(lambda: log.entry(7))


@case("the log row of seq 1 cannot be read")
def unreadable_row(_: Path) -> str:
    return raised(lambda: log_with(log_row(body=b"\xc1")).entry(1))


@case("the log row of seq 1 holds 1 commits, not 2")
def short_row(_: Path) -> str:
    return raised(lambda: log_with(log_row(commits=2)).entry(1))


@case("commit 1 in the log cannot be read")
def unreadable_commit(_: Path) -> str:
    body = encode_record([(msgspec.msgpack.encode("x"), ())])
    return raised(lambda: log_with(log_row(body=body)).writer_of(1, doc("d")))


@case("commit 1 does not write space:other, though its head says so")
def foreign_commit(_: Path) -> str:
    return raised(lambda: list(log_with(log_row()).history(1, doc("other"), down_to=0)))


@case("commit 1 names 1 as the write before it")
def circular_history(_: Path) -> str:
    body = encode_record([(encode_commit(Commit(1, (Operation(doc("d"), ()),))), (1,))])
    return raised(lambda: list(log_with(log_row(body=body)).history(1, doc("d"), down_to=0)))


@case("the log jumps from seq 1 to 5: rows are missing", "Run `headwater verify`, and restore a backup.")
def missing_rows(_: Path) -> str:
    store = SqliteStore(":memory:")
    for seq in (1, 5):
        store.append(log_row(seq))
    return raised(lambda: Log(store))


@case("the last log row (seq 1) does not match its checksum: it was edited or torn", "restore a backup")
def edited_row(_: Path) -> str:
    store = SqliteStore(":memory:")
    store.append(log_row())
    return raised(lambda: Log(store))


@case("a commit was admitted outside a frame")
def commit_outside_a_frame(_: Path) -> str:
    return raised(lambda: Log(SqliteStore(":memory:")).admit(1, b"", ()))


# documents on the disk


def space_file(folder: Path) -> Path:
    """A space with a branch, snapshots every second commit, and five commits to one list."""
    path = folder / "s.space"
    engine = open_engine(path, limits=Limits(snapshot_patches=2, snapshot_share=1_000))
    ann = Writer(engine, "ann")
    for number in range(5):
        ann.lands(write("d", append((), [number])))
    engine.fork("b")
    ann.lands(write("d", append((), ["b"])), branch="b")
    engine.close()
    return path


@case("the snapshot of space:d at seq 4 is missing")
def missing_snapshot(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "DELETE FROM snapshots WHERE seq=4")
    return raised(lambda: open_engine(path).read(doc("d")))


@case("the snapshot of document 1 at seq 4 cannot be read")
def unreadable_snapshot(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "UPDATE snapshots SET body=X'C1' WHERE seq=4")
    return raised(lambda: open_engine(path).read(doc("d")))


@case("commit 5 no longer applies to space:d", "array")
def commit_that_no_longer_applies(folder: Path) -> str:
    path = space_file(folder)
    number = snapshot_of(1, 1, 4, 1, 1).body  # sealed, where an array was
    execute(path, f"UPDATE snapshots SET body=X'{number.hex()}' WHERE seq=4")
    return raised(lambda: open_engine(path).read(doc("d")))


@case("the write index of space:d cannot be read")
def unreadable_write_index(folder: Path) -> str:
    path = folder / "s.space"
    engine = open_engine(path, limits=Limits(marks_patches=1))
    ann_on(engine, 5)
    engine.close()
    forge(path, "UPDATE marks SET body=X'01'")
    engine = open_engine(path)
    return raised(lambda: engine.submit("ann", Commit(6, reads=(read("d", seq=2),))))


@case("branch 'c' has a parent that is not stored", "Restore a backup.")
def branch_without_its_parent(folder: Path) -> str:
    path = folder / "s.space"
    engine = open_engine(path)
    engine.fork("b")
    engine.fork("c", parent="b")
    engine.close()
    execute(path, "DELETE FROM branches WHERE name='b'")
    return raised(lambda: open_engine(path))


@case("the log has commits on branch number 2, which is not stored", "Restore a backup.")
def commits_without_their_branch(folder: Path) -> str:
    path = folder / "s.space"
    store = SqliteStore(path, synchronous="OFF")
    engine = Engine(store, clock=VirtualClock())
    engine.fork("b")
    Writer(engine, "ann").lands(write("d", replace((), 1)), branch="b")
    store.close()  # as if killed: opening has to follow the log
    execute(path, "DELETE FROM branches WHERE name='b'")
    return raised(lambda: open_engine(path))


@case("document 1 has a head but no name")
def nameless_document(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "DELETE FROM documents")
    engine = open_engine(path)
    said = raised(lambda: engine.diff("b"))
    engine.delete_branch("b")
    engine.acknowledge("ann", 6)
    assert raised(lambda: engine.compact(5)) == said
    return said


@case("commit 5 writes space:d, which is not among the documents")
def commit_to_a_nameless_document(folder: Path) -> str:
    path = folder / "s.space"
    store = SqliteStore(path, synchronous="OFF")
    engine = Engine(store, clock=VirtualClock())
    ann_on(engine, 4)
    engine.drop_caches()
    engine.submit("ann", Commit(5, (write("d", replace((), 5)),)))
    store.close()  # as if killed: the head of commit 5 is not written back
    execute(path, "DELETE FROM documents")
    return raised(lambda: open_engine(path))


@case("the row of document 1 (space:e) does not match its checksum", "Run `headwater verify`, and restore a backup.")
def renamed_document(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "UPDATE documents SET id='e'")
    return raised(lambda: open_engine(path).read(doc("e")))


@case("the row of session 1 ('eve') does not match its checksum", "Run `headwater verify`, and restore a backup.")
def renamed_session(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "UPDATE sessions SET key='eve'")
    return raised(lambda: open_engine(path).open_session("eve"))


def damage(path: Path, statement: str, part: Part) -> str:
    execute(path, statement)
    store = SqliteStore(path)
    try:
        return raised(lambda: store.check(part))
    finally:
        store.close()


@case("the row of the write index of document 1 on branch 1 does not match its checksum", "restore a backup.")
def edited_write_index(folder: Path) -> str:
    path = folder / "s.space"
    engine = open_engine(path, limits=Limits(marks_patches=1))
    ann_on(engine, 5)
    engine.close()
    return damage(path, "UPDATE marks SET seq=seq+1", Part.MARKS)


def observed_file(folder: Path) -> Path:
    path = folder / "s.space"
    engine = open_engine(path)
    runner = Runner(engine)
    runner.send(Commit(1, (write("d", replace((), 1)),)))
    runner.observe(runner.run("p.total", looked("d", seq=1)))
    engine.close()
    return path


@case("the row of the observation of node 1.1.2 on 1 does not match its checksum", "restore a backup.")
def edited_observation(folder: Path) -> str:
    return damage(observed_file(folder), "UPDATE observations SET state=x'00'", Part.OBSERVATIONS)


@case("the row of piece 1 as a reader of document 1 on branch 1 does not match its checksum", "restore a backup.")
def edited_reader(folder: Path) -> str:
    return damage(observed_file(folder), "UPDATE readers SET nodes=7", Part.READERS)


@case("the row of name 1 ('q') does not match its checksum", "restore a backup.")
def edited_name(folder: Path) -> str:
    return damage(observed_file(folder), "UPDATE names SET name='q' WHERE number=1", Part.NAMES)


@case("an observation names text 2, which is not stored. Restore a backup.")
def observation_without_a_name(folder: Path) -> str:
    path = observed_file(folder)
    execute(path, "DELETE FROM names WHERE number=2")
    return raised(lambda: NameCache(SqliteStore(path)).name(2))


@case("a node is said to have read document 9, which has no name. Restore a backup.")
def observation_of_a_document_without_a_name(folder: Path) -> str:
    return raised(lambda: NameCache(SqliteStore(observed_file(folder))).doc(9))


@case("the row of record 0 of commit 1 to 'topic' does not match its checksum", "restore a backup.")
def edited_record(folder: Path) -> str:
    path = folder / "s.space"
    engine = open_engine(path)
    Writer(engine, "ann")
    engine.submit("ann", Commit(1, records=(TopicRecord("topic", "key", 1),)))
    engine.close()
    return damage(path, "UPDATE records SET key='other'", Part.RECORDS)


@case("2 rows of branches were made and 1 are there: some were deleted or added by hand", "Restore a backup.")
def branch_that_is_gone(folder: Path) -> str:
    return damage(space_file(folder), "DELETE FROM branches WHERE name='b'", Part.BRANCHES)


@case("the row of the head of document 1 on branch 1 does not match its checksum", "restore a backup.")
def edited_head(folder: Path) -> str:
    return damage(space_file(folder), "UPDATE heads SET ordinal=ordinal+1", Part.HEADS)


@case("the row of the snapshot of document 1 on branch 1 at seq 2 does not match its checksum", "restore a backup.")
def edited_snapshot(folder: Path) -> str:
    return damage(space_file(folder), "UPDATE snapshots SET ordinal=ordinal+1", Part.SNAPSHOTS)


@case("the schema is not the one of its version: index log_by_session was added, changed or dropped", "a backup.")
def index_that_is_gone(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "DROP INDEX log_by_session")
    store = SqliteStore(path)
    try:
        return raised(store.check_schema)
    finally:
        store.close()


@case("there are 1 documents, numbered up to 2: not all of them", "Restore a backup.")
def document_that_is_gone(folder: Path) -> str:
    path = folder / "s.space"
    engine = open_engine(path)
    Writer(engine, "ann").lands(write("a", replace((), 1)), write("b", replace((), 1)))
    engine.close()
    return damage(path, "DELETE FROM documents WHERE doc=1", Part.DOCUMENTS)


@case("the space's own numbers lack some or have too many: 'compacted_seq', 'other'", "Restore a backup.")
def number_that_is_gone(folder: Path) -> str:
    path = space_file(folder)
    execute(path, f"INSERT INTO meta VALUES ('other', '1', {row_seal('other', '1')})")
    return damage(path, "DELETE FROM meta WHERE key='compacted_seq'", Part.META)


@case("the rows kept from before seq 4 does not match its checksum", "are missing. Restore a backup.")
def kept_row_that_is_gone(folder: Path) -> str:
    path = folder / "s.space"
    engine = open_engine(path)
    ann_on(engine, 6)
    assert engine.compact(4) == 4
    engine.close()
    execute(path, "DELETE FROM log WHERE seq=2")
    return raised(lambda: open_engine(path).compact(5))


# the file


@case("is damaged", "Run `headwater verify` on a copy, or restore a backup.")
def damaged_file(folder: Path) -> str:
    (folder / "s.space").write_bytes(b"not a database at all" * 100)
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("holds text that is not UTF-8", "Restore a backup.")
def damaged_text(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "UPDATE documents SET id=CAST(X'FF' AS TEXT)")
    store = SqliteStore(path)
    try:
        return raised(lambda: store.key_of(1))
    finally:
        store.close()


@case("has a row with an empty field", "Restore a backup.")
def empty_field(folder: Path) -> str:
    path = space_file(folder)
    execute(
        path,
        "DROP TABLE meta",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)",
        "INSERT INTO meta VALUES ('heads_seq', NULL)",
    )
    return raised(lambda: open_engine(path))


@case("the space records 'many' as its heads_seq, which is not a number", "Restore a backup.")
def number_that_is_none(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "UPDATE meta SET value='many' WHERE key='heads_seq'")
    return raised(lambda: open_engine(path))


@case("a number or a text is too large to be stored")
def number_beyond_the_store(_: Path) -> str:
    return raised(lambda: SqliteStore(":memory:").row_at(2**64))


@case("a number is too large to be stored")
def row_beyond_the_store(_: Path) -> str:
    return raised(lambda: SqliteStore(":memory:").append(log_row(2**63)))


@case("was made by a Headwater from before schema version 1", "Open it with the version that made it, or move it")
def draft_file(folder: Path) -> str:
    path = space_file(folder)
    execute(path, f"PRAGMA application_id={DRAFT_APPLICATION_IDS[0]}")
    return raised(lambda: SqliteStore(path))


@case("has schema version 0, not 1.", "It is not a space. Nothing was changed.")
def file_with_nothing_in_it(folder: Path) -> str:
    execute(folder / "s.space", "CREATE TABLE x (y)", "DROP TABLE x")
    return raised(lambda: SqliteStore(folder / "s.space", create=False))


@case("s.space-wal is left of a space whose file s.space is gone", "Put the file back beside it, or delete")
def log_without_its_file(folder: Path) -> str:
    (folder / "s.space-wal").write_bytes(b"of another one")
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("is empty, although a space's file never is", "Restore it from a backup, or delete it if")
def empty_file(folder: Path) -> str:
    (folder / "s.space").touch()
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("is in use by another process", "Stop that process first.")
def file_in_use(folder: Path) -> str:
    first = SqliteStore(folder / "s.space")
    try:
        return raised(lambda: SqliteStore(folder / "s.space"))
    finally:
        first.close()


@case("no room left for", "Free disk space, then reopen.")
def full_disk(folder: Path) -> str:
    # A file that may not grow is what a full disk looks like from here.
    database = Database(str(folder / "s.space"), synchronous="FULL", vfs=None)
    database.run("PRAGMA max_page_count=60")
    database.begin()

    def fill() -> None:
        for number in range(1, 10_000):
            database.run("INSERT INTO names VALUES (?, ?, 0)", (number, f"{number:0200}"))

    try:
        return raised(fill)
    finally:
        database.close()


@case("cannot open", "Check that the folder exists.")
def missing_folder(folder: Path) -> str:
    return raised(lambda: SqliteStore(folder / "missing" / "s.space"))


@case("cannot make", "Check that the folder exists.")
def file_that_cannot_be_made(folder: Path) -> str:
    (folder / "s.space.new").mkdir()
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("there is no file", "Nothing was done.")
def file_that_is_not_there(folder: Path) -> str:
    return raised(lambda: SqliteStore(folder / "s.space", create=False))


@case("is an SQLite file, but not a Headwater space", "Choose another file.")
def somebody_else_s_file(folder: Path) -> str:
    execute(folder / "s.space", "CREATE TABLE theirs (x)")
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("is a folder, where the file of a space should be", "Move it elsewhere.")
def folder_in_place_of_a_file(folder: Path) -> str:
    (folder / "s.space").mkdir()
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("is damaged: it has schema version 0", "Restore a backup of it.")
def file_without_a_version(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "PRAGMA user_version=0")
    return raised(lambda: SqliteStore(path))


@case("is damaged", "no such table", "Run `headwater verify` on a copy, or restore a backup.")
def file_that_lacks_a_table(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "DROP TABLE meta")
    return raised(lambda: Engine(SqliteStore(path)))


@case("has schema version", "Upgrade Headwater, or open the file with the version that wrote it.")
def newer_file(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "PRAGMA user_version=2")
    return raised(lambda: SqliteStore(path))


@case("bytes long but its header counts", "the file was cut off", "Restore it from a backup.")
def cut_off_file(folder: Path) -> str:
    # Less than a page: SQLite rounds the length up and sees nothing, so this check is ours alone.
    path = space_file(folder)
    data = path.read_bytes()
    path.write_bytes(data[:-700])
    return raised(lambda: SqliteStore(path))
