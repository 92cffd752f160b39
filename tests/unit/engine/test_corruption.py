"""A damaged file is found: when it is opened, when the damaged part is read, or at the latest by verifying it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
import pytest

from headwater.clock import Random, VirtualClock
from headwater.data.address import Depth, DocKey
from headwater.data.patch import add, append, increment, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.heads import snapshot_of
from headwater.engine.log.write_index import WriteIndex
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import Violation, verify_file
from headwater.errors import AbsentError, CorruptionError, NewerVersionError, StorageError
from headwater.protocol.commit import Commit, Operation, Read, SentEvent, TopicRecord
from tests.unit.engine.delivery_kit import reacted
from tests.unit.engine.observing_kit import Runner, looked
from tests.unit.engine.sealing import reseal

A, B = DocKey("space", "a"), DocKey("space", "b")
LIMITS = Limits(snapshot_patches=4, marks_patches=4, heads_commits=8)
PAGE = 4096
LAST = "(SELECT max(seq) FROM log)"
FORGED = snapshot_of(1, 1, 5, 1, {"n": 1_000_000}).body  # sealed as the engine would, around a value that never was


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space with two documents, snapshots, write indexes, events, records, a branch, a lease and nodes; closed."""
    path = tmp_path_factory.mktemp("undamaged") / "a.space"
    engine = Engine(SqliteStore(path, synchronous="OFF"), clock=VirtualClock(), limits=LIMITS)
    worked(engine)
    engine.close()
    return path


def worked(engine: Engine) -> None:
    engine.open_session("ann")
    engine.open_session("bob")
    engine.submit(
        "ann",
        Commit(1, (Operation(A, (add((), {"n": 0, "lines": []}),)),)),
        Commit(2, (Operation(B, (add((), {"text": "x" * 200}),)),)),
    )
    for n in range(3, 23):
        engine.submit(
            "ann",
            Commit(
                n,
                (Operation(A, (increment(("n",)), append(("lines",), ["z" * 50]))),),
                events=(SentEvent(f"e{n}", "stream", n),),
                records=(TopicRecord("topic", "key", n),),
            ),
        )
    engine.fork("side")
    engine.submit("bob", Commit(1, (Operation(A, (replace(("n",), 99),)),), branch="side"))
    for n in range(23, 28):
        engine.submit("ann", Commit(n, (Operation(B, (add((f"k{n}",), n),)),)))
    reacted(engine)
    runner = Runner(engine, "cid")
    for n in range(60):
        runner.observe(runner.run(f"piece{n}.total", *[looked(f"{id}{n}", "k" * 9, seq=28) for id in "abcd"]))


@pytest.fixture
def space(undamaged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(undamaged, tmp_path / "a.space"))


def edit(path: Path, *statements: str) -> None:
    """What somebody with a database tool could do."""
    connection = apsw.Connection(str(path))
    try:
        for statement in statements:
            connection.execute(statement)
        assert connection.total_changes() or "PRAGMA" in statements[0], f"nothing to damage with {statements}"
    finally:
        connection.close()


def forge(path: Path, *statements: str) -> None:
    """What somebody could do who knows how rows are sealed."""
    edit(path, *statements)
    connection = apsw.Connection(str(path))
    reseal(connection)
    connection.close()


def opened(path: Path) -> Engine:
    store = SqliteStore(path, synchronous="OFF")
    try:
        return Engine(store, clock=VirtualClock(), limits=LIMITS)
    except BaseException:
        store.close()
        raise


def read_all(path: Path) -> None:
    """Open the space and read every document on both branches."""
    engine = opened(path)
    try:
        for branch in ("main", "side"):
            for doc in (A, B):
                engine.read(doc, branch=branch)
    finally:
        engine.close()


def violation(path: Path) -> Violation:
    found = verify_file(path).violation
    assert found is not None, "the damage was not found"
    return found


def test_an_undamaged_file_opens_and_verifies(space: Path) -> None:
    read_all(space)
    report = verify_file(space)
    assert report.ok
    assert (report.commits, report.branches) == (28, 2)


# ---- edited and deleted rows -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "rule", "seq", "message"),
    [
        (
            "UPDATE log SET body=CAST(substr(body,1,length(body)-3)||X'010203' AS BLOB) WHERE seq=7",
            *("chain", 7, r"the row's checksum is \d+, its content gives \d+"),
        ),
        ("UPDATE log SET chain=chain+1 WHERE seq=7", "chain", 7, r"the row's checksum is \d+, its content gives \d+"),
        ("UPDATE log SET count=count+1 WHERE seq=7", "chain", 7, r"the row's checksum is \d+"),
        ("UPDATE log SET session=2 WHERE seq=7", "chain", 7, r"the row's checksum is \d+"),
        ("UPDATE log SET local_seq=100 WHERE seq=7", "chain", 7, r"the row's checksum is \d+"),
        ("UPDATE log SET branch=2 WHERE seq=7", "chain", 7, r"the row's checksum is \d+"),
        ("UPDATE log SET at_us=1 WHERE seq=7", "chain", 7, r"the row's checksum is \d+"),
        ("DELETE FROM log WHERE seq=7", "gap", 8, r"the log goes on at seq 8, 7 is missing"),
        ("DELETE FROM log WHERE seq=1", "gap", 3, r"the log goes on at seq 3, 1 is missing"),
        (f"DELETE FROM log WHERE seq={LAST}", "heads", 28, r"heads are written up to 28, the log ends at 27"),
        (
            "UPDATE heads SET seq=seq-1 WHERE branch=1 AND doc=1",
            *("heads", 21, r"space:a on branch 'main' was written at 22, its head says 21"),
        ),
        (
            "UPDATE heads SET base_seq=base_seq-1 WHERE branch=1 AND doc=1",
            *("heads", 22, r"space:a on branch 'main' is based on a snapshot at 20, which is missing"),
        ),
        ("UPDATE heads SET patches=patches+1 WHERE doc=1", "heads", 22, r"the head of space:a .* counts \(2, \d+\)"),
        ("UPDATE heads SET patch_bytes=0 WHERE doc=1", "heads", 22, r"the head of space:a .* counts \(1, 0\)"),
        ("DELETE FROM heads WHERE doc=1", "heads", 22, r"space:a on branch 'main' was written and has no head"),
        (
            "INSERT INTO heads VALUES (1,3,5,0,0,0,0,0,0)",
            *("heads", 5, r"document 3 has a head on branch 1 that no commit wrote"),
        ),
        (
            "UPDATE snapshots SET body=X'c0' WHERE seq=5",
            *("snapshot", 5, r"the snapshot of document 1 at seq 5 cannot be read: it does not match its checksum"),
        ),
        ("UPDATE snapshots SET present=0 WHERE seq=5", "snapshot", 5, r"it does not match its checksum"),
        ("UPDATE snapshots SET seq=4 WHERE doc=1 AND seq=5", "snapshot", 4, r"it does not match its checksum"),
        ("UPDATE snapshots SET doc=2 WHERE doc=1 AND seq=5", "snapshot", 5, r"space:b .* where nothing wrote it"),
        (
            f"UPDATE snapshots SET body=X'{FORGED.hex()}' WHERE seq=5",
            *("snapshot", 5, r"the stored snapshot of space:a is not what folding gives"),
        ),
        (
            "DELETE FROM snapshots WHERE seq=(SELECT max(seq) FROM snapshots)",
            *("heads", 28, r"space:b on branch 'main' is based on a snapshot at 26, which is missing"),
        ),
        (
            "UPDATE documents SET id='q' WHERE doc=1",
            *("documents", 0, r"the row of document 1 \(space:q\) does not match its checksum"),
        ),
        ("UPDATE documents SET doc=9 WHERE doc=1", "documents", 0, r"the row of document 9 \(space:a\) does not match"),
        (
            "DELETE FROM documents WHERE doc=2",
            *("documents", 2, r"space:b is written and not among the documents"),
        ),
        (
            "DELETE FROM documents WHERE doc=1",
            *("documents", 0, r"there are 1 documents, numbered up to 2: not all of them"),
        ),
        ("UPDATE sessions SET key='eve' WHERE session=1", "session", 0, r"row of session 1 \('eve'\) does not match"),
        ("UPDATE sessions SET principal='eve'", "session", 0, r"the row of session 1 \('ann'\) does not match"),
        ("UPDATE sessions SET closed=1", "session", 0, r"the row of session 1 \('ann'\) does not match its checksum"),
        ("DELETE FROM events WHERE id='e5'", "events", 5, r"event 'e5' was sent, is not handled, and is not stored"),
        ("DELETE FROM records WHERE seq=7", "records", 7, r"record 0 to 'topic' is stored as "),
        (
            "UPDATE meta SET value='9999' WHERE key='heads_seq'",
            *("heads", 9999, r"heads are written up to 9999, the log ends at 28"),
        ),
        ("UPDATE marks SET body=X'c1' WHERE doc=1", "marks", 0, r"the write index of document 1 on branch 1 does not"),
        ("UPDATE marks SET seq=seq+1 WHERE doc=1", "marks", 0, r"the write index of document 1 on branch 1 does not"),
        (
            "UPDATE branches SET name='other' WHERE branch=2",
            "branch",
            0,
            r"the row of branch 2 \('other'\) does not match",
        ),
        ("DELETE FROM branches WHERE branch=2", "branch", 0, r"2 rows of branches were made and 1 are there"),
        ("DELETE FROM sessions WHERE session=1", "session", 0, r"3 rows of sessions were made and 2 are there"),
        ("UPDATE sessions SET judged=9", "session", 0, r"the row of session 1 \('ann'\) does not match its checksum"),
        ("UPDATE events SET payload=X'c0' WHERE id='e5'", "events", 0, r"the row of event 'e5' does not match its"),
        (
            "UPDATE records SET payload=X'c0' WHERE seq=7",
            "records",
            0,
            r"the row of record 0 of commit 7 to 'topic' does",
        ),
    ],
)
def test_an_edited_or_deleted_row_is_found_by_verifying(
    space: Path, statement: str, rule: str, seq: int, message: str
) -> None:
    edit(space, statement)
    found = violation(space)
    assert (found.rule, found.seq) == (rule, seq)
    assert re.search(message, found.message), found


@pytest.mark.parametrize(
    ("statement", "rule", "seq", "message"),
    [
        ("UPDATE marks SET body=X'c1' WHERE doc=1", "marks", 20, r"the write index of space:a .* cannot be read"),
        (
            "UPDATE marks SET body=X'959300000093000000930000000090' WHERE doc=1",
            *("marks", 20, r"the write index of space:a on branch 'main' says 0 for \(\)"),
        ),
        ("UPDATE marks SET seq=seq+1 WHERE doc=1", "marks", 21, r"the write index of space:a .* says 20 for \(\)"),
        ("DELETE FROM branches WHERE branch=2", "branch", 23, r"it is on branch 2, which does not exist then"),
        (
            "UPDATE branches SET name='other' WHERE branch=2",
            *("branch", 23, r"its row is on branch 2, it says 'side'"),
        ),
        ("DELETE FROM sessions WHERE session=1", "session", 1, r"session 1 is not known"),
        ("UPDATE events SET payload=X'c0' WHERE id='e5'", "events", 5, r"event 'e5' is stored as \(5, 'stream'"),
        (
            "INSERT INTO events VALUES ('ghost',5,'stream',0,X'c0',0,1,0,0)",
            *("events", 5, r"event 'ghost' is stored, and was not sent or is handled"),
        ),
        ("UPDATE records SET payload=X'c0' WHERE seq=7", "records", 7, r"record 0 to 'topic' is stored as RecordRow"),
        (
            "INSERT INTO records VALUES ('topic',7,5,'key',X'c0',0,'',1,0)",
            *("records", 0, r"topic 'topic' holds 21 records, 20 were emitted"),
        ),
    ],
)
def test_a_row_that_was_sealed_again_is_found_by_what_the_log_says(
    space: Path, statement: str, rule: str, seq: int, message: str
) -> None:
    forge(space, statement)
    found = violation(space)
    assert (found.rule, found.seq) == (rule, seq)
    assert re.search(message, found.message), found


def test_a_write_index_that_takes_another_session_for_the_writer_is_found(space: Path) -> None:
    """C3: a read that names its own layers would leave out what somebody else wrote."""
    connection = apsw.Connection(str(space))
    body = connection.execute("SELECT body FROM marks WHERE branch=1 AND doc=1").get
    connection.close()
    assert isinstance(body, bytes)
    marks = WriteIndex.decode(body, 10**6)
    marks.root.below_by = 2
    forge(space, f"UPDATE marks SET body=X'{marks.encode().hex()}' WHERE branch=1 AND doc=1")
    found = violation(space)
    assert found.rule == "marks"
    assert re.search(r"the write index of space:a on branch 'main' says \d+ for \(\), leaving out 2", found.message)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"UPDATE log SET body=X'00' WHERE seq={LAST}", r"the last log row \(seq 28\) does not match its checksum"),
        (f"UPDATE log SET chain=chain+1 WHERE seq={LAST}", r"the last log row \(seq 28\) does not match its checksum"),
        (f"UPDATE log SET count=count+1 WHERE seq={LAST}", r"the last log row \(seq 28\) does not match its checksum"),
        ("DELETE FROM log WHERE seq=27", r"the log jumps from seq 26 to 28: rows are missing"),
    ],
)
def test_damage_at_the_end_of_the_log_is_found_at_open(space: Path, statement: str, message: str) -> None:
    edit(space, statement)
    with pytest.raises(CorruptionError, match=message) as error:
        opened(space)
    assert "Run `headwater verify`, and restore a backup." in str(error.value)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            f"DELETE FROM log WHERE seq={LAST}",
            r"the log has no commit with seq 28, though something points at it",
        ),
        ("DELETE FROM log WHERE seq=1", r"the log has no commit with seq 2, though something points at it"),
        (
            "UPDATE heads SET base_seq=base_seq-1 WHERE branch=1 AND doc=1",
            r"the row of the head of document 1 on branch 1 does not match its checksum",
        ),
        ("DELETE FROM snapshots", r"the snapshot of space:a at seq 21 is missing"),
        (
            "UPDATE snapshots SET body=X'c1' WHERE seq=(SELECT max(seq) FROM snapshots)",
            r"the snapshot of document 2 at seq 26 cannot be read",
        ),
        (
            "UPDATE snapshots SET present=0 WHERE doc=1",
            r"the snapshot of document 1 at seq 21 cannot be read: it does not match its checksum",
        ),
    ],
)
def test_damage_that_is_needed_is_found_when_it_is_read(space: Path, statement: str, message: str) -> None:
    edit(space, statement)
    with pytest.raises(CorruptionError, match=message):
        read_all(space)
    assert violation(space).message


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET key=CAST(X'ff' AS TEXT) WHERE session=1",
        "UPDATE meta SET value='x' WHERE key='heads_seq'",
    ],
)
def test_a_value_of_the_wrong_kind_is_damage_and_no_bare_error(space: Path, statement: str) -> None:
    edit(space, statement)
    assert violation(space).message
    try:
        read_all(space)
        opened(space).close()
    except StorageError:
        pass


@pytest.mark.parametrize(
    "statement", ["UPDATE log SET body='text' WHERE seq=7", "UPDATE heads SET seq='first'", "UPDATE log SET chain=1.5"]
)
def test_a_column_takes_values_of_its_own_type_only(space: Path, statement: str) -> None:
    with pytest.raises(apsw.ConstraintError, match=r"cannot store (TEXT|REAL) value in (BLOB|INT(EGER)?) column"):
        edit(space, statement)


def compacted(path: Path) -> None:
    """Give up all history but the last commits."""
    engine = opened(path)
    engine.delete_branch("side")
    engine.acknowledge("ann", 27)
    engine.acknowledge("bob", 1)
    assert engine.compact(27) > 1
    engine.close()
    assert verify_file(path).ok


@pytest.mark.parametrize("statement", ["UPDATE snapshots SET body=X'00000000c0'", "UPDATE snapshots SET present=0"])
def test_what_compacted_history_stands_on_cannot_be_edited_unseen(space: Path, statement: str) -> None:
    """Its seal is all that tells: the commits that made it are gone."""
    compacted(space)
    edit(space, statement)
    assert "does not match its checksum" in violation(space).message
    engine = opened(space)
    for doc in (A, B):
        with pytest.raises(CorruptionError, match="does not match its checksum"):
            engine.read(doc)
    engine.close()


def test_a_document_cannot_be_renamed_unseen_once_its_commits_are_gone(space: Path) -> None:
    compacted(space)
    edit(space, "UPDATE documents SET id='q' WHERE doc=1")
    expected = r"the row of document 1 \(space:q\) does not match its checksum: it was edited or torn\. Run"
    found = violation(space)
    assert found.rule == "documents"
    assert re.search(expected, found.message), found
    engine = opened(space)
    reads: tuple[Callable[[], object], ...] = (
        lambda: engine.read(DocKey("space", "q")),
        lambda: engine.documents("space"),
        lambda: engine.submit("ann", Commit(28, (Operation(DocKey("space", "q"), (add((), 1),)),))),
        lambda: engine.compact(engine.last_seq),
    )
    for read in reads:
        with pytest.raises(CorruptionError, match=expected):
            read()
    engine.close()


def test_two_documents_cannot_change_names_unseen(space: Path) -> None:
    edit(
        space,
        "UPDATE documents SET id='c' WHERE doc=1",
        "UPDATE documents SET id='a' WHERE doc=2",
        "UPDATE documents SET id='b' WHERE doc=1",
    )
    assert violation(space).rule == "documents"
    engine = opened(space)
    for doc in (A, B):
        with pytest.raises(CorruptionError, match="does not match its checksum"):
            engine.read(doc)
    engine.close()


@pytest.mark.parametrize("compact", [False, True])
def test_a_session_cannot_be_given_to_somebody_else_unseen(space: Path, compact: bool) -> None:
    if compact:
        compacted(space)
    edit(space, "UPDATE sessions SET key='eve' WHERE session=1")
    assert violation(space).rule == "session"
    engine = opened(space)
    commit = Commit(28, (Operation(A, (increment(("n",)),)),))
    asked: tuple[Callable[[], object], ...] = (
        lambda: engine.open_session("eve"),
        lambda: engine.submit("eve", commit),
        lambda: engine.changes(since=engine.last_seq - 1),
    )
    for ask in asked:
        with pytest.raises(CorruptionError, match=r"the row of session 1 \('eve'\) does not match its checksum"):
            ask()
    engine.close()


def test_a_write_index_that_names_a_commit_to_come_is_found(space: Path) -> None:
    beyond = msgspec.msgpack.encode([(10**9, 1, 0), (10**9, 1, 0), (0, 0, 0), 0, []]).hex()
    forge(space, f"UPDATE marks SET body=X'{beyond}' WHERE doc=1 AND branch=1")
    assert violation(space).rule == "marks"
    engine = opened(space)
    commit = Commit(28, reads=(Read(A, (), Depth.DEEP, 3),))
    with pytest.raises(CorruptionError, match="something points at commit 1000000000, but the log ends at"):
        engine.submit("ann", commit)
    engine.close()


# ---- damaged pages ---------------------------------------------------------------------------------


def halves(content: bytes) -> list[tuple[int, bytes]]:
    """Every page of a file with one half of it lost: zeros, or what was never meant to be there."""
    random = Random(1)
    found = []
    for at in range(0, len(content), PAGE // 2):
        for lost in (bytes(PAGE // 2), random.randbytes(PAGE // 2)):
            torn = content[:at] + lost + content[at + PAGE // 2 :]
            if torn != content:
                found.append((at, torn))
    return found


def test_every_torn_page_is_found_by_verifying(undamaged: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.space"
    content = undamaged.read_bytes()
    assert len(content) > 15 * PAGE
    for at, torn in halves(content):
        path.write_bytes(torn)
        found = verify_file(path).violation
        assert found is not None, f"torn at byte {at}"
        assert found.rule == "integrity", f"torn at byte {at}: {found}"
        assert f"{path} is damaged: " in found.message, found


def test_opening_a_file_with_a_torn_page_raises_a_storage_error_or_works(undamaged: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.space"
    refused = 0
    for _, torn in halves(undamaged.read_bytes()):
        path.write_bytes(torn)
        try:
            read_all(path)
        except (StorageError, AbsentError):
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("kept", [100, PAGE // 2, PAGE, 3 * PAGE, 10 * PAGE + 77, -2 * PAGE, -700, -4, -1])
def test_a_file_that_was_cut_off_is_refused_at_open_and_says_how_long_it_should_be(space: Path, kept: int) -> None:
    content = space.read_bytes()
    left = content[:kept]
    space.write_bytes(left)
    expected = (
        rf"is {len(left)} bytes long but its header counts {len(content) // PAGE} pages of {PAGE}: the file was cut "
        r"off\. Restore it from a backup\."
    )
    with pytest.raises(CorruptionError, match=expected):
        opened(space)
    found = violation(space)
    assert found.rule == "integrity"
    assert re.search(expected + "|is damaged: ", found.message), found
    assert space.read_bytes() == left, "nothing was written to it"


def test_a_file_that_lost_everything_is_refused_by_opening_and_by_verifying(space: Path) -> None:
    """A space's file is never empty, so an empty one is what is left of it, and no new space."""
    space.write_bytes(b"")
    expected = r"a\.space is empty, although a space's file never is\. Restore it from a backup, or delete it if"
    with pytest.raises(CorruptionError, match=expected):
        opened(space)
    found = violation(space)
    assert found.rule == "integrity"
    assert re.search(expected, found.message), found
    assert space.read_bytes() == b"", "nothing was written to it"
    assert [path.name for path in space.parent.iterdir()] == ["a.space"]


def test_verifying_never_brings_a_file_up_to_date(tmp_path: Path) -> None:
    """An SQLite file with nothing in it is no space, and does not become one by being looked at."""
    path = tmp_path / "a.space"
    edit(path, "PRAGMA user_version=0", "CREATE TABLE x (y)", "INSERT INTO x VALUES (1)", "DROP TABLE x")
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"has schema version 0, not \d+\. It is not a space\. Nothing was changed"):
        verify_file(path)
    assert path.read_bytes() == before


# ---- other files -----------------------------------------------------------------------------------


def test_a_file_that_is_not_sqlite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.space"
    path.write_text("groceries: tea, milk\n" * 100)
    before = path.read_bytes()
    with pytest.raises(CorruptionError, match=r"a\.space is damaged: file is not a database"):
        opened(path)
    assert "is damaged: file is not a database" in violation(path).message
    assert path.read_bytes() == before


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.space"
    edit(path, "PRAGMA user_version=0", "CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    expected = r"a\.space is an SQLite file, but not a Headwater space\. Choose another file\."
    with pytest.raises(StorageError, match=expected):
        opened(path)
    with pytest.raises(StorageError, match=expected):
        verify_file(path)
    assert path.read_bytes() == before


def test_a_database_with_the_mark_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.space"
    edit(path, "PRAGMA application_id=7", "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StorageError, match="not a Headwater space"):
        opened(path)


def test_a_file_of_a_newer_version_is_refused_by_name(space: Path) -> None:
    edit(space, "PRAGMA user_version=99")
    expected = r"a\.space has schema version 99, this Headwater knows versions up to \d+\. Upgrade Headwater, or open"
    with pytest.raises(NewerVersionError, match=expected):
        opened(space)
    with pytest.raises(NewerVersionError, match=expected):
        verify_file(space)


def test_a_file_that_is_not_there_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match=r"there is no file .*a\.space to verify"):
        verify_file(tmp_path / "a.space")
