"""Every text of the engine and the protocol that a person can meet is read here, as it really comes out.

Each case provokes one message and says what must be in it: what happened, where, and what to do. A last test
collects every sentence in the sources and checks that some case has really produced it, so that a message
cannot be added or changed without somebody reading it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import msgspec
import pytest

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import append, replace
from headwater.engine.committer import ThreadCommitter
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log import Log
from headwater.engine.store.port import LogRow
from headwater.engine.store.schema import MIGRATIONS
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import CommitRejected, HeadwaterError, InvariantViolation
from headwater.protocol.commit import (
    Commit,
    EntityAbsent,
    LeaseHeld,
    Operation,
    OriginCommitted,
    SentEvent,
    decode_frame,
    encode_commit,
    encode_frame,
)
from headwater.protocol.record import encode_record
from headwater.protocol.verdict import Conflict, Rejected, Verdict, as_error, conflict_text
from tests.unit.engine.kit import Writer, doc, open_engine, read, write

SOURCE = Path(__file__).resolve().parents[3] / "src" / "headwater"

# Their messages are read where their tests are: the verifier's beside it, the others' with the replica.
ELSEWHERE = {
    "engine/verify",
    "engine/access.py",
    "engine/follow.py",
    "engine/host.py",
    "engine/hub.py",
    "engine/peer.py",
    "protocol/messages.py",
}


def raised(call: Callable[[], object]) -> str:
    """The message of the error that the call ends with."""
    try:
        outcome = call()
    except (HeadwaterError, InvariantViolation) as error:
        return str(error)
    raise AssertionError(f"nothing was raised, the answer was {outcome}")


def rejection(verdict: Verdict) -> str:
    assert isinstance(verdict, Rejected), verdict
    error = as_error(verdict)
    assert isinstance(error, CommitRejected)
    return str(error)


def ann_on(engine: Engine, commits: int = 0) -> Writer:
    ann = Writer(engine, "ann")
    for number in range(commits):
        ann.lands(write("d", replace((), {"x": number})))
    return ann


def execute(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for sql in statements:
        connection.cursor().execute(sql)
    connection.close()


# --- provoking them --------------------------------------------------------------------------------------

Provoke = Callable[[Path], str]
CASES: dict[str, tuple[Provoke, tuple[str, ...]]] = {}


def case(*says: str) -> Callable[[Provoke], Provoke]:
    """Registers a function that provokes a message, with what must be in it."""

    def register(provoke: Provoke) -> Provoke:
        CASES[provoke.__name__] = (provoke, says)
        return provoke

    return register


# admission and verdicts


@case("commit 2 was rejected", "space:d#/x was read at seq 1 and written at seq 2 by bob (N)", "Read again and retry.")
def stale_read(_: Path) -> str:
    engine = open_engine()
    ann = ann_on(engine, 1)
    Writer(engine, "bob").lands(write("d", replace(("x",), 9)), node="N")
    return rejection(ann.send(reads=[read("d", ("x",), seq=1)]))


@case("cannot take 'replace' now", "there is nothing to replace", "(at /y)")
def patch_that_does_not_fit(_: Path) -> str:
    return rejection(ann_on(open_engine(), 1).send(write("d", replace(("y",), 1))))


@case("it stands on commit 1 of this session, which was not accepted")
def dead_layer(_: Path) -> str:
    ann = Writer(open_engine(), "ann")
    ann.next = 2
    return rejection(ann.send(reads=[read("d", seq=0, layers=((1, 1),))]))


@case("its basis is older than the history that is kept", "Read again and retry.")
def expired_basis(_: Path) -> str:
    return conflict_text(Conflict((), (), True))


@case("commit 2 was rejected for good", "space:d was already created on branch 'main'", "Do not retry it.")
def entity_absent(_: Path) -> str:
    return rejection(ann_on(open_engine(), 1).send(preconditions=[EntityAbsent(doc("d"))]))


@case("its origin, commit 7 of this session, was not accepted")
def origin_committed(_: Path) -> str:
    return rejection(Writer(open_engine(), "ann").send(preconditions=[OriginCommitted(7)]))


@case("lease 'mail' with token 5 is no longer held: it is with nobody")
def lease_with_nobody(_: Path) -> str:
    return rejection(Writer(open_engine(), "ann").send(preconditions=[LeaseHeld("mail", 5)]))


@case("lease 'mail' with token 5 is no longer held: it is with token 1 of 'w1'")
def lease_with_another(_: Path) -> str:
    engine = open_engine()
    engine.acquire_lease("mail", "w1", 10)
    return rejection(Writer(engine, "ann").send(preconditions=[LeaseHeld("mail", 5)]))


@case("commit 1 was refused", "branch 'gone' does not exist or was deleted")
def commit_to_no_branch(_: Path) -> str:
    return rejection(Writer(open_engine(), "ann").send(branch="gone"))


@case("bytes long, over the limit of 50", "Split it.")
def commit_too_long(_: Path) -> str:
    engine = open_engine(limits=Limits(commit_bytes=50))
    return rejection(Writer(engine, "ann").send(write("d", replace((), "x" * 100))))


@case("space:d has grown past 100 bytes", "Split it into several documents.")
def document_too_long(_: Path) -> str:
    engine = open_engine(limits=Limits(document_bytes=100, snapshot_patches=1))
    ann = Writer(engine, "ann")
    verdicts = [ann.send(write("d", append((), ["x" * 60]))) for _ in range(9)]
    return rejection(verdicts[-1])


@case("event 'e' was already sent by the commit at seq 1")
def event_sent_before(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    engine.submit("s", Commit(1, events=(SentEvent("e", "s", 1),)))
    return rejection(engine.submit("s", Commit(2, events=(SentEvent("e", "s", 1),)))[0])


@case("event 'e' was already sent by this very commit")
def event_sent_twice(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    return rejection(engine.submit("s", Commit(1, events=(SentEvent("e", "s", 1), SentEvent("e", "s", 2))))[0])


# frames


def frame_refused(*frame: Commit, limits: Limits | None = None) -> str:
    engine = open_engine(limits=limits or Limits())
    engine.open_session("s")
    return raised(lambda: engine.submit("s", *frame))


@case("a frame holds at least one commit")
def empty_frame(_: Path) -> str:
    return frame_refused()


@case("a frame of 2 commits is over the limit of 1", "Send several.")
def long_frame(_: Path) -> str:
    return frame_refused(Commit(1), Commit(2), limits=Limits(frame_commits=1))


@case("commit 1 of session 's' comes after 2", "local_seq must rise, from 1 to 9007199254740991")
def falling_numbers(_: Path) -> str:
    return frame_refused(Commit(2), Commit(1))


@case("all commits of a frame are on one branch", "Send one frame per branch.")
def two_branches(_: Path) -> str:
    return frame_refused(Commit(1), Commit(2, branch="b"))


@case("commit 1 has 2 reads and 0 operations; the limits are 1 and 10000", "Split the transaction.")
def many_reads(_: Path) -> str:
    return frame_refused(Commit(1, reads=(read("a", seq=0), read("b", seq=0))), limits=Limits(commit_reads=1))


@case("commit 1 names a document in two operations", "Put its patches into one.")
def document_twice(_: Path) -> str:
    return frame_refused(Commit(1, (write("d", replace((), 1)), write("d", replace((), 2)))))


@case("commit 1 read space:d at seq 9, but the log ends at 0")
def read_of_the_future(_: Path) -> str:
    return frame_refused(Commit(1, reads=(read("d", seq=9),)))


@case("commit 1 names the layers 1 to 1", "layers are earlier commits of its own session, at most 4096 of them")
def layers_of_the_future(_: Path) -> str:
    return frame_refused(Commit(1, reads=(read("d", seq=0, layers=((1, 1),)),)))


@case("event 'e' of commit 1 is due at -1: write microseconds from 0")
def event_due_never(_: Path) -> str:
    return frame_refused(Commit(1, events=(SentEvent("e", "s", 1, -1),)))


@case("commit 1 of session 'ann' was accepted at seq 1 with other content", "byte for byte", "needs a new local_seq")
def altered_replay(_: Path) -> str:
    engine = open_engine()
    ann_on(engine, 1)
    return raised(lambda: engine.submit("ann", Commit(1)))


@case("commit 1 of session 'ann' is replayed although", "up to 3", "Its key is no longer kept.")
def replay_of_what_was_acknowledged(_: Path) -> str:
    engine = open_engine()
    ann_on(engine, 3)
    engine.acknowledge("ann", 3)
    engine.compact(3)
    return raised(lambda: engine.submit("ann", Commit(1, (write("d", replace((), {"x": 0})),))))


@case("the frame is not a sequence of commits")
def bytes_that_are_no_frame(_: Path) -> str:
    return raised(lambda: decode_frame(b"\xc1"))


@case("commit 1 holds a value no document can hold", "nested more than")
def value_that_is_none(_: Path) -> str:
    deep: object = 1
    for _level in range(100):
        deep = [deep]
    frame = [[1, [[["space", "d"], [["replace", [], deep]]]], [], [], "main", [], [], ["", "", [], False]]]
    return raised(lambda: decode_frame(msgspec.msgpack.encode(frame)))


# sessions


@case("there is no session 'ghost' in this space", "Open it first.")
def unknown_session(_: Path) -> str:
    return raised(lambda: open_engine().submit("ghost", Commit(1)))


@case("session 's' was closed", "Open a new one under another key.")
def closed_session(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    engine.close_session("s", 0)
    opened = raised(lambda: engine.open_session("s"))
    assert raised(lambda: engine.submit("s", Commit(1))) == opened
    return opened


@case("session 's' belongs to 'ann', not to 'bob'")
def somebody_else_s_session(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s", "ann")
    return raised(lambda: engine.open_session("s", "bob"))


@case("session keys that begin with 'merge of ' or 'founding of ' are the engine's own")
def session_of_the_engine(_: Path) -> str:
    return raised(lambda: open_engine().open_session("merge of b"))


@case("the token for session 's' was used before, or is not its own")
def wrong_token(_: Path) -> str:
    engine = open_engine()
    engine.resume_session("s", "ann", "", "first")
    engine.resume_session("s", "ann", "first", "second")
    return raised(lambda: engine.resume_session("s", "ann", "first", "third"))


@case("session 's' acknowledges commit -1, which cannot exist")
def impossible_acknowledgement(_: Path) -> str:
    engine = open_engine()
    engine.open_session("s")
    return raised(lambda: engine.acknowledge("s", -1))


# branches, reads, leases


@case("branch 'gone' does not exist", "`headwater branch list` shows those that do.")
def unknown_branch(_: Path) -> str:
    return raised(lambda: open_engine().diff("gone"))


@case("branch 'b' was deleted")
def deleted_branch(_: Path) -> str:
    engine = open_engine()
    engine.fork("b")
    engine.delete_branch("b")
    return raised(lambda: engine.diff("b"))


@case("'B' is no branch name", "use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter")
def bad_branch_name(_: Path) -> str:
    return raised(lambda: open_engine().fork("B"))


@case("branch 'main' already exists", "Names are never reused: choose another.")
def taken_branch_name(_: Path) -> str:
    return raised(lambda: open_engine().fork("main"))


@case("branch 'b' was the name of a deleted branch")
def name_of_a_deleted_branch(_: Path) -> str:
    engine = open_engine()
    engine.fork("b")
    engine.delete_branch("b")
    return raised(lambda: engine.fork("b"))


@case("branch 'main' cannot be deleted")
def deleting_main(_: Path) -> str:
    return raised(lambda: open_engine().delete_branch("main"))


@case("branch 'b' has branches of its own (c): delete those first")
def deleting_a_parent(_: Path) -> str:
    engine = open_engine()
    engine.fork("b")
    engine.fork("c", parent="b")
    return raised(lambda: engine.delete_branch("b"))


@case("branch 'main' has no parent to compare with")
def diff_of_main(_: Path) -> str:
    return raised(lambda: open_engine().diff("main"))


@case("branch 'b' changed 2 documents; one commit may change 1", "Raise `commit_operations` to merge it.")
def merge_too_large(_: Path) -> str:
    engine = open_engine(limits=Limits(commit_operations=1))
    engine.fork("b")
    ann = Writer(engine, "ann")
    for id in ("d", "e"):
        ann.lands(write(id, replace((), 1)), branch="b")
    return raised(lambda: engine.merge("b"))


@case("there is no seq 7: the log of this space ends at 0")
def moment_to_come(_: Path) -> str:
    return raised(lambda: open_engine().read(doc("d"), at=7))


@case("branch 'b' begins at seq 2", "Read 'main' for seq 1.")
def moment_before_the_branch(_: Path) -> str:
    engine = open_engine()
    ann_on(engine, 2)
    engine.fork("b")
    return raised(lambda: engine.read(doc("d"), branch="b", at=1))


def compacted() -> Engine:
    engine = open_engine()
    ann_on(engine, 9)
    engine.acknowledge("ann", 9)
    engine.compact(5)
    return engine


@case("history before seq 4 was compacted away; seq 1 cannot be read")
def moment_that_is_gone(_: Path) -> str:
    return raised(lambda: compacted().read(doc("d"), at=1))


@case("history before seq 5 was compacted away", "Ask for changes since 4, after reading the documents")
def changes_that_are_gone(_: Path) -> str:
    return raised(lambda: compacted().changes(since=1))


@case("a page holds at least one row, not 0")
def empty_page(_: Path) -> str:
    return raised(lambda: open_engine().changes(limit=0))


@case("a lease lasts a positive number of microseconds, not 0")
def lease_of_no_length(_: Path) -> str:
    return raised(lambda: open_engine().acquire_lease("l", "me", 0))


# the engine, its directory and its committer


@case("this engine is closed", "Open the space again.")
def closed_engine(folder: Path) -> str:
    engine = open_engine(folder / "s.space")
    engine.close()
    return raised(lambda: engine.read(doc("d")))


@case("is owned by process", "Stop that process, or send the command through it.")
def owned_directory(folder: Path) -> str:
    with Directory(folder):
        return raised(lambda: Directory(folder))


@case("cannot be a data directory")
def no_directory(folder: Path) -> str:
    (folder / "file").write_text("")
    return raised(lambda: Directory(folder / "file"))


@case("was closed here", "Open the directory again.")
def closed_directory(folder: Path) -> str:
    directory = Directory(folder)
    directory.close()
    return raised(lambda: directory.space("shop"))


@case("the committer is closed: nothing more can be submitted")
def closed_committer(_: Path) -> str:
    committer = ThreadCommitter(open_engine())
    committer.close()
    return raised(lambda: committer.call(lambda engine: None))


@case("the committer stopped: a bug")
def stopped_committer(_: Path) -> str:
    committer = ThreadCommitter(open_engine())

    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    committer.submit("s", (Commit(1),), broken)
    with pytest.raises(RuntimeError, match="a bug"):
        committer.close()
    return raised(lambda: committer.submit("s", (Commit(1),), broken))


@case("0 frames wait for the disk, which is the limit", "Wait for verdicts, then resend.")
def full_backlog(_: Path) -> str:
    committer = ThreadCommitter(open_engine(), Limits(backlog_frames=0))
    try:
        return raised(lambda: committer.submit("s", (Commit(1),), lambda outcome: None))
    finally:
        committer.close()


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


@case("the log row of seq 1 cannot be read")
def unreadable_row(_: Path) -> str:
    return raised(lambda: log_with(log_row(body=b"\xc1")).entry(1))


@case("the log row of seq 1 holds 1 commits, not 2")
def short_row(_: Path) -> str:
    return raised(lambda: log_with(log_row(commits=2)).entry(1))


@case("commit 1 in the log cannot be read")
def unreadable_commit(_: Path) -> str:
    body = encode_record([(msgspec.msgpack.encode("x"), ())])
    return raised(lambda: log_with(log_row(body=body)).writer_of(1))


@case("commit 1 does not write space:other, though its head says so")
def foreign_commit(_: Path) -> str:
    return raised(lambda: list(log_with(log_row()).back_from(1, doc("other"), down_to=0)))


@case("commit 1 names 1 as the write before it")
def circular_history(_: Path) -> str:
    body = encode_record([(encode_commit(Commit(1, (Operation(doc("d"), ()),))), (1,))])
    return raised(lambda: list(log_with(log_row(body=body)).back_from(1, doc("d"), down_to=0)))


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
    execute(path, "UPDATE snapshots SET body=X'01' WHERE seq=4")
    return raised(lambda: open_engine(path).read(doc("d")))


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


# the file


@case("is damaged", "Run `headwater verify` on a copy, or restore a backup.")
def damaged_file(folder: Path) -> str:
    (folder / "s.space").write_bytes(b"not a database at all" * 100)
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("holds text that is no UTF-8", "Restore a backup.")
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


@case("the space records 'many' as its heads_seq, which is no number", "Restore a backup.")
def number_that_is_none(folder: Path) -> str:
    path = space_file(folder)
    execute(path, "UPDATE meta SET value='many' WHERE key='heads_seq'")
    return raised(lambda: open_engine(path))


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
    store = SqliteStore(folder / "s.space", migrations=(*MIGRATIONS, "PRAGMA max_page_count=30;"))
    store.begin()

    def fill() -> None:
        for number in range(1, 10_000):
            store.put_doc(number, DocKey("space", f"{number:0200}"))

    try:
        return raised(fill)
    finally:
        store.close()


@case("cannot open", "Check that the folder exists.")
def missing_folder(folder: Path) -> str:
    return raised(lambda: SqliteStore(folder / "missing" / "s.space"))


@case("is an SQLite file, but not a Headwater space", "Choose another file.")
def somebody_else_s_file(folder: Path) -> str:
    execute(folder / "s.space", "CREATE TABLE theirs (x)")
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("has schema version", "Upgrade Headwater, or open the file with the version that wrote it.")
def newer_file(folder: Path) -> str:
    SqliteStore(folder / "s.space", migrations=(*MIGRATIONS, "CREATE TABLE x (y)")).close()
    return raised(lambda: SqliteStore(folder / "s.space"))


@case("bytes long but its header counts", "the file was cut off", "Restore it from a backup.")
def cut_off_file(folder: Path) -> str:
    # Less than a page: SQLite rounds the length up and sees nothing, so this check is ours alone.
    path = space_file(folder)
    data = path.read_bytes()
    path.write_bytes(data[:-700])
    return raised(lambda: SqliteStore(path))


# --- reading them ----------------------------------------------------------------------------------------


@cache
def message(name: str) -> str:
    with TemporaryDirectory(prefix="headwater-messages-") as folder:
        return CASES[name][0](Path(folder))


@cache
def produced() -> tuple[str, ...]:
    """What all cases produce. One that produces nothing fails in the test of its own, below."""
    found = []
    for name in CASES:
        try:
            found.append(message(name))
        except AssertionError:
            continue
    return tuple(found)


@pytest.mark.parametrize("name", CASES)
def test_the_message_says_what_happened_where_and_what_to_do(name: str) -> None:
    for fragment in CASES[name][1]:
        assert fragment in message(name)


def test_no_message_is_empty_or_shows_the_inside_of_the_program() -> None:
    for text in produced():
        assert text.strip()
        assert not re.search(r"<[a-z_.]+ object at|Traceback|DocKey\(", text), text


# --- all of them -----------------------------------------------------------------------------------------

_STATEMENT = re.compile(r"\s*(SELECT|INSERT|DELETE|UPDATE|CREATE|PRAGMA|WHERE|ORDER|BEGIN|[a-z_]+=excluded)\b")


NAMES = {r"founding\ of\ the\ space"}  # of three words, and no messages


def sentences(code: str) -> Iterator[str]:
    """Every text of the code that reads like a sentence, as a pattern: what is filled in matches anything.

    Docstrings, SQL and texts of fewer than three words are none.
    """
    tree = ast.parse(code)
    outside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values) if id(node) not in outside:
                pieces = [v.value if isinstance(v, ast.Constant) else None for v in values]
            case ast.Constant(value=str(text)) if id(node) not in outside and id(node) not in parts:
                pieces = [text]
            case _:
                continue
        plain = "".join(piece if isinstance(piece, str) else "{}" for piece in pieces)
        if len(re.findall(r"[a-z']+(?= |$)", plain)) >= 3 and not _STATEMENT.match(plain):
            yield "".join(re.escape(piece) if isinstance(piece, str) else ".*" for piece in pieces)


def sources() -> list[Path]:
    found = [path for layer in ("engine", "protocol") for path in (SOURCE / layer).rglob("*.py")]
    names = {path: path.relative_to(SOURCE).as_posix() for path in found}
    return sorted(p for p, name in names.items() if not any(name.startswith(each) for each in ELSEWHERE))


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_sentence_in_the_sources_is_produced_by_some_case(path: Path) -> None:
    unread = [
        pattern
        for pattern in sentences(path.read_text())
        if pattern not in NAMES and not any(re.search(pattern, text, re.DOTALL) for text in produced())
    ]
    assert not unread, f"add a case for: {unread}"


def test_the_search_for_sentences_finds_them() -> None:
    code = (
        '"""This docstring is no message of anybody."""\n'
        "def f(x):\n"
        '    run("SELECT a FROM b WHERE c")\n'
        '    raise E(f"the thing {x} is not here. Do {x!r} instead.")\n'
        '    return "two words", "these are three words"\n'
    )
    assert list(sentences(code)) == [
        r"the\ thing\ .*\ is\ not\ here\.\ Do\ .*\ instead\.",
        r"these\ are\ three\ words",
    ]


def test_the_modules_that_are_left_out_exist() -> None:
    assert {name for name in ELSEWHERE if not (SOURCE / name).exists()} == set()


def test_a_frame_survives_the_wire_so_that_the_case_above_is_about_its_value() -> None:
    commit = Commit(1, (write("d", replace((), [1])),))
    assert decode_frame(encode_frame([commit])) == (commit,)
