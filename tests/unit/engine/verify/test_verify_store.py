"""The history oracle on real files: a good one passes, and each damage is found as the first rule it violates.

A case edits one thing in a space's file. Where a commit is edited, the checksums of all rows are made to fit
again, so that the rule itself has to notice. Every text of the verifier is read here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import add, append, increment, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.heads import snapshot_of
from headwater.engine.log.log import COMPACTED_CHAIN, COMPACTED_SEQ, chained
from headwater.engine.log.write_index import WriteIndex
from headwater.engine.store.port import LogRow
from headwater.engine.store.row_checksum import row_seal
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file, verify_store
from headwater.engine.verify.report import Report, Violation
from headwater.errors import AbsentError, CorruptionError, StorageError
from headwater.protocol.commit import (
    NO_PROVENANCE,
    Commit,
    EntityAbsent,
    LeaseHeld,
    NodeResult,
    OriginCommitted,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
    decode_commit,
    encode_commit,
)
from headwater.protocol.log_record import decode_record, encode_record
from headwater.protocol.verdict import Accepted
from tests.unit.engine.delivery_kit import lease_target
from tests.unit.engine.kit import DEEP, doc, open_engine, read, write
from tests.unit.engine.sealing import reseal

A, B, LIST = doc("a"), doc("b"), doc("list")
LIMITS = Limits(snapshot_patches=2, snapshot_share=1_000, marks_patches=1, heads_commits=1)

Edit = Callable[["File"], object]


def fill(engine: Engine) -> None:
    """Two sessions, a wave, layers, a branch with a merge, events, records, a lease, a deletion. 13 commits."""

    def send(session: str, *frame: Commit) -> None:
        assert all(isinstance(verdict, Accepted) for verdict in engine.submit(session, *frame))

    engine.open_session("s")
    engine.open_session("t")
    send("s", Commit(1, (write("a", add((), {"x": 1, "y": 1, "l": ["a"]})),), events=(SentEvent("e1", "in", 1, 5),)))
    send("t", Commit(1, (write("b", add((), 0)),), (read("b", seq=1),), (EntityAbsent(B),)))
    send(
        "s",
        Commit(2, (write("a", replace(("x",), 2)),), (read("a", ("x",), seq=1),), (OriginCommitted(1),)),
        Commit(4, (write("a", increment(("y",))),), (read("a", ("x",), seq=2, layers=((2, 2),)),)),
        Commit(5, records=(TopicRecord("out", "k", None), TopicRecord("out", "k", [1]))),
    )
    engine.fork("b1")
    send("t", Commit(2, (write("b", increment(())),)))
    send("t", Commit(3, (write("a", append(("l",), ["b"])),), (read("a", ("x",), seq=3),), branch="b1"))
    held = lease_target(engine, "k", topic="out")
    send("t", Commit(4, (write("a", append(("l",), ["c"])),), preconditions=(held,)))
    send("t", Commit(5, (write("a", append(("l",), ["d"])),), branch="b1"))
    engine.fork("gone", parent="b1")
    send("s", Commit(6, (write("a", replace(("y",), 9)),), branch="gone"))
    engine.delete_branch("gone")
    send("s", Commit(7, (write("b", increment((), 5)),), (read("b", seq=6),), provenance=Provenance("node")))
    send("s", Commit(8, (write("list", add((), ["a", "b", "c"])),)))
    send("t", Commit(6, (write("list", append((), ["y"])),)))


class File:
    """A space's file, to be damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sql(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        connection = apsw.Connection(str(self.path))
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    def forged(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """The same by somebody who seals the rows as well."""
        connection = apsw.Connection(str(self.path))
        try:
            connection.execute(statement, values)
            reseal(connection)
        finally:
            connection.close()

    def rows(self) -> list[LogRow]:
        return [LogRow._make(row) for row in self.sql("SELECT * FROM log ORDER BY seq")]

    def rechain(self) -> None:
        """Make the checksums fit the rows as they are now."""
        chain = int((self.sql("SELECT value FROM meta WHERE key=?", (COMPACTED_CHAIN,)) or [("0",)])[0][0])
        for row in self.rows():
            chain = chained(chain, row)
            self.sql("UPDATE log SET chain=? WHERE seq=?", (chain, row.seq))

    def set(self, seq: int, **fields: object) -> None:
        """Change fields of the row that holds a seq, with fitting checksums."""
        for name, value in fields.items():
            self.sql(f"UPDATE log SET {name}=? WHERE seq=(SELECT max(seq) FROM log WHERE seq<=?)", (value, seq))
        self.rechain()

    def edit(self, seq: int, *, previous: tuple[int, ...] | None = None, **fields: object) -> None:
        """Change fields of one commit, with fitting checksums."""
        row = [row for row in self.rows() if row.seq <= seq][-1]
        entries = [(bytes(entry.commit), entry.previous) for entry in decode_record(row.body)]
        encoded, before = entries[seq - row.seq]
        commit = msgspec.structs.replace(decode_commit(encoded), **fields)
        entries[seq - row.seq] = (encode_commit(commit), before if previous is None else previous)
        self.set(row.seq, body=encode_record(entries))

    def append(self, commit: Commit, previous: tuple[int, ...] = (), *, session: int = 1, branch: int = 1) -> None:
        """One more commit, which no engine has judged."""
        last = self.rows()[-1]
        seq = last.seq + last.commits
        body = encode_record([(encode_commit(commit), previous)])
        row = LogRow(seq, 1, session, commit.local_seq, commit.local_seq, branch, last.at_us, 0, body)
        self.sql("INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?)", row._replace(chain=chained(last.chain, row)))

    def verify(self) -> Report:
        return verify_file(self.path)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "good.space"
    engine = open_engine(path, limits=LIMITS)
    fill(engine)
    engine.close()
    return path


@pytest.fixture
def file(good: Path, tmp_path: Path) -> File:
    path = tmp_path / "damaged.space"
    shutil.copy(good, path)
    return File(path)


# ---- what is good ----------------------------------------------------------------------------------------------------


def test_a_history_that_the_engine_wrote_holds(file: File) -> None:
    report = file.verify()
    assert report.violation is None
    assert report.ok
    assert (report.commits, report.documents, report.branches) == (13, 3, 3)
    assert report.notes == ("not checked, 1 times: lease_held preconditions: the log does not keep who held a lease",)


def test_an_empty_space_holds(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "new.space")
    engine.close()
    report = verify_file(tmp_path / "new.space")
    assert (report.ok, report.commits, report.documents, report.branches, report.notes) == (True, 0, 0, 1, ())


def test_verifying_says_how_far_it_is(file: File) -> None:
    told: list[tuple[int, int]] = []
    verify_file(file.path, lambda done, total: told.append((done, total)))
    assert told == [(13, 13)]


def test_a_long_history_reports_progress_and_asks_the_store_little() -> None:
    """Counted, not timed: a commit costs its share of a page of rows, and nothing that grows with history."""
    store = SqliteStore(":memory:", synchronous="OFF")
    engine = Engine(store, clock=VirtualClock())
    engine.open_session("s")
    for number in range(1, 2_501):
        engine.submit("s", Commit(number, (write("a", add((), number)),), (read("a", seq=number - 1),)))
    told: list[int] = []
    before = store.visited.statements
    assert verify_store(store, lambda done, _: told.append(done)).ok
    assert told == [1_000, 2_000, 2_500]
    assert store.visited.statements - before < 400


def test_a_compacted_history_is_verified_from_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "compacted.space"
    engine = open_engine(path, limits=LIMITS)
    fill(engine)
    engine.delete_branch("b1")
    engine.acknowledge("s", 4)
    assert engine.compact(9) == 9
    own = read("b", seq=11, layers=((1, 2),))
    frame = Commit(9, (write("b", increment(())),), (own, read("nothing", seq=2)))
    assert isinstance(engine.submit("s", frame)[0], Accepted)
    engine.close()
    report = verify_file(path)
    assert report.violation is None, report
    assert report.notes == (
        "history before seq 9 was compacted away: verified from there on",
        "not checked, 2 times: commits on deleted branches that began before the kept history",
        "not checked, 2 times: reads whose basis lies before the kept history: writes up to there",
        "not checked, 1 times: references to commits whose rows were compacted away",
        "not checked, 5 times: rows kept only for their sessions: whether they were admissible",
    )


def test_a_basis_before_the_kept_history_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "compacted.space"
    engine = open_engine(path, limits=LIMITS)
    engine.open_session("s")
    for number in range(1, 6):
        engine.submit("s", Commit(number, (write("a", add((), {"x": 1, "n": number})),)))
    engine.acknowledge("s", 4)
    engine.compact(4)
    engine.submit("s", Commit(6, reads=(read("other", seq=1),)))
    engine.close()
    report = verify_file(path)
    assert report.ok
    assert report.notes[1] == "not checked, 1 times: reads whose basis lies before the kept history: writes up to there"


# ---- damage ----------------------------------------------------------------------------------------------------------

T = 2  # the number of session "t"


def at(path: tuple[str | int, ...], seq: int, *layers: tuple[int, int]) -> tuple[Read, ...]:
    return (Read(A, path, DEEP, seq, layers),)


def wave(*results: NodeResult, ids: str) -> Commit:
    """A wave of session s that read a and replaces these documents."""
    operations = tuple([write(id, replace((), 3)) for id in ids])
    return Commit(9, operations, at((), 11), provenance=Provenance(derived=True), results=results)


def stand_on_a_result_that_is_not_there(file: File) -> None:
    file.append(wave(NodeResult(NO_PROVENANCE, 1), ids="b"), (11,))
    file.append(Commit(10, reads=at((), 13, (9, 9))))


def in_list(index: int, *layers: tuple[int, int]) -> tuple[Read, ...]:
    return (Read(LIST, (index,), DEEP, 12, layers),)


def edit_a_row_kept_for_its_session(file: File) -> None:
    compacted(file)
    file.sql("UPDATE log SET at_us=at_us+1 WHERE seq=6")


def drop_the_index_of_b(file: File) -> None:
    """Rewrite the stored write index as if nothing had ever been written."""
    file.forged("UPDATE marks SET body=? WHERE branch=1 AND doc=2", (WriteIndex(0, 10).encode(),))


def compacted(file: File, before: int = 8) -> None:
    store = SqliteStore(file.path)
    engine = Engine(store, clock=VirtualClock(), limits=LIMITS)
    engine.acknowledge("s", 4)
    engine.delete_branch("b1")
    engine.compact(before)
    engine.close()


def bring_back_a_branch(file: File) -> None:
    compacted(file)
    file.forged("UPDATE branches SET deleted=0 WHERE name='b1'")


def lose_the_index_of_a_compacted_document(file: File) -> None:
    compacted(file)
    file.forged("DELETE FROM marks WHERE branch=1 AND doc=1")


def lose_the_name_of_a_compacted_document(file: File) -> None:
    compacted(file, 13)
    file.sql("DELETE FROM documents WHERE doc=3")  # the last: their numbers have no gap


def swap_two_rows(file: File) -> None:
    file.sql("UPDATE log SET seq=CASE seq WHEN 6 THEN -7 ELSE -6 END WHERE seq IN (6, 7)")
    file.sql("UPDATE log SET seq=-seq WHERE seq<0")


def move_an_element_under_its_reader(file: File) -> None:
    file.append(Commit(9, (write("list", append((), ["z"], 3)),)), (13,))
    file.append(Commit(10, reads=in_list(0, (9, 9))))


DAMAGE: dict[str, tuple[Edit, str, int, str]] = {
    "a row is missing": (
        lambda f: f.sql("DELETE FROM log WHERE seq=6"),
        "gap",
        7,
        "the log goes on at seq 7, 6 is missing",
    ),
    "a row was edited": (
        lambda f: f.sql("UPDATE log SET at_us=at_us+1 WHERE seq=6"),
        "chain",
        6,
        "the row's checksum is ",
    ),
    "a row before the kept history was edited": (
        edit_a_row_kept_for_its_session,
        "chain",
        6,
        "the row's checksum is ",
    ),
    "rows were swapped": (
        swap_two_rows,
        "chain",
        6,
        "its content gives ",
    ),
    "a session is not known": (
        lambda f: f.forged("DELETE FROM sessions WHERE session=2"),
        "session",
        2,
        "session 2 is not known",
    ),
    "a branch is not known": (
        lambda f: f.set(6, branch=77),
        "branch",
        6,
        "it is on branch 77, which does not exist then",
    ),
    "a commit is older than its branch": (
        lambda f: f.set(2, branch=2),
        "branch",
        2,
        "it is on branch 2, which does not exist then",
    ),
    "a row says another branch than its commit": (
        lambda f: f.edit(6, branch="b1"),
        "branch",
        6,
        "its row is on branch 1, it says 'b1'",
    ),
    "a row is no record": (
        lambda f: f.set(6, body=b"\xc1"),
        "record",
        6,
        "the row cannot be read: ",
    ),
    "a row counts wrongly": (
        lambda f: f.set(3, count=2),
        "record",
        3,
        "the row holds 3 commits and says 2",
    ),
    "a row names other commits than it holds": (
        lambda f: f.set(6, local_last=9),
        "record",
        6,
        "the row says commits 2 to 9, it holds 2 to 2",
    ),
    "a commit cannot be read": (
        lambda f: f.set(6, body=encode_record([(b"\x01", ())])),
        "record",
        6,
        "the commit cannot be read: ",
    ),
    "commits of a session are out of order": (
        lambda f: f.append(Commit(3)),
        "C5",
        14,
        "commit 3 of session 1 comes after 8: out of order",
    ),
    "an origin was not accepted": (
        lambda f: f.append(Commit(9, preconditions=(OriginCommitted(3),))),
        "precondition",
        14,
        "OriginCommitted(local_seq=3) did not hold",
    ),
    "a document was not absent": (
        lambda f: f.append(Commit(9, preconditions=(EntityAbsent(A),))),
        "precondition",
        14,
        "EntityAbsent(doc=DocKey(scope='space', id='a')) did not hold",
    ),
    "a lease was never held": (
        lambda f: f.append(Commit(9, preconditions=(LeaseHeld("$reaction:leases out:k", 2**40),))),
        "precondition",
        14,
        "LeaseHeld(name='$reaction:leases out:k', token=1099511627776) did not hold",
    ),
    "a lease is that of no target": (
        lambda f: f.append(Commit(9, preconditions=(LeaseHeld("$reaction:leases out:other", 1),))),
        "precondition",
        14,
        "LeaseHeld(name='$reaction:leases out:other', token=1) did not hold",
    ),
    "a layer comes later": (
        lambda f: f.append(Commit(9, reads=at((), 11, (9, 9)))),
        "C3",
        14,
        "it names layer 9, which is not an earlier commit of its session",
    ),
    "a layer was rejected": (
        lambda f: f.append(Commit(9, reads=at((), 11, (3, 3)))),
        "C4",
        14,
        "it depends on layer 3, which was not accepted",
    ),
    "a layer is on another branch": (
        lambda f: f.append(Commit(9, reads=at((), 11, (6, 6)))),
        "C4",
        14,
        "it depends on layer 6, which its branch does not show",
    ),
    "a result read one that is not there": (
        lambda f: f.append(wave(NodeResult(NO_PROVENANCE, 0), NodeResult(NO_PROVENANCE, 1, (), (0,)), ids="b")),
        "C4",
        14,
        "result 1 depends on result 0, which was not accepted",
    ),
    "a result missed one before it": (
        lambda f: f.append(wave(NodeResult(NO_PROVENANCE, 1), NodeResult(NO_PROVENANCE, 1, (0,)), ids="ab")),
        "C1",
        14,
        "result 1 missed the write to space:a before it",
    ),
    "results do not have the operations": (
        lambda f: f.append(wave(NodeResult(NO_PROVENANCE, 2), ids="b")),
        "C7",
        14,
        "its results do not have its operations",
    ),
    "a layer is a wave without the result": (
        stand_on_a_result_that_is_not_there,
        "C4",
        15,
        "it depends on a result of wave 9, which was not accepted",
    ),
    "a basis lies in the future": (
        lambda f: f.append(Commit(9, reads=at((), 14))),
        "C3",
        14,
        "the read of space:a at seq 14 has a basis that was not there yet",
    ),
    "a read missed a write": (
        lambda f: f.append(Commit(9, reads=at(("y",), 3))),
        "C1",
        14,
        "the read of space:a#/y at seq 3 missed the write at seq 4",
    ),
    "a read missed an own write that it does not name": (
        lambda f: f.append(Commit(9, reads=at(("y",), 3, (2, 2)))),
        "C1",
        14,
        "the read of space:a#/y at seq 3 missed the write at seq 4",
    ),
    "an element moved under its reader": (
        move_an_element_under_its_reader,
        "C1",
        15,
        "the read of space:list#/0 at seq 12 saw what the branch does not show",
    ),
    "back pointers are missing": (
        lambda f: f.edit(6, previous=()),
        "previous",
        6,
        "it has 0 back pointers",
    ),
    "a back pointer is wrong": (
        lambda f: f.edit(6, previous=(1,)),
        "previous",
        6,
        "the write to space:b before it was at 2, it says 1",
    ),
    "a document is in two operations": (
        lambda f: f.append(Commit(9, (write("b"), write("b"))), (11, 11)),
        "C7",
        14,
        "it names a document in two operations",
    ),
    "a write does not apply": (
        lambda f: f.append(Commit(9, (write("b", replace(("x",), 1)),)), (11,)),
        "C7",
        14,
        "its write to space:b does not apply: ",
    ),
    "a document is not listed": (
        lambda f: f.append(Commit(9, (write("new", add((), 1)),)), (0,)),
        "documents",
        14,
        "space:new is written and not among the documents",
    ),
    "a snapshot is wrong": (
        lambda f: f.sql("UPDATE snapshots SET body=? WHERE seq=3", (snapshot_of(1, 1, 3, 1, {"x": 3}).body,)),
        "snapshot",
        3,
        "the stored snapshot of space:a is not what folding gives",
    ),
    "a snapshot cannot be read": (
        lambda f: f.sql("UPDATE snapshots SET body=x'c1' WHERE seq=3"),
        "snapshot",
        3,
        "the snapshot of document 1 at seq 3 cannot be read: ",
    ),
    "a snapshot is where nothing was written": (
        lambda f: f.sql("INSERT INTO snapshots VALUES (1, 1, 5, 99, 1, x'01', 0)"),
        "snapshot",
        5,
        "space:a on branch 'main' has a snapshot at 5, where nothing wrote it",
    ),
    "an event was sent twice": (
        lambda f: f.append(Commit(9, events=(SentEvent("e1", "in", 1, 5),))),
        "events",
        14,
        "event 'e1' was sent at 1, too",
    ),
    "an event is stored otherwise": (
        lambda f: f.forged("UPDATE events SET stream='out'"),
        "events",
        1,
        "event 'e1' is stored as (1, 'out', 5, ",
    ),
    "an event is lost": (
        lambda f: f.sql("DELETE FROM events"),
        "events",
        1,
        "event 'e1' was sent, is not handled, and is not stored",
    ),
    "an event was never sent": (
        lambda f: f.forged("INSERT INTO events VALUES ('e2', 7, 'in', 0, x'c0', 0, 1, 0, 0)"),
        "events",
        7,
        "event 'e2' is stored, and was not sent or is handled",
    ),
    "a record is lost": (
        lambda f: f.sql("DELETE FROM records WHERE ordinal=1"),
        "records",
        5,
        "record 1 to 'out' is stored as None",
    ),
    "a record was never emitted": (
        lambda f: f.forged("INSERT INTO records VALUES ('out', 9, 0, 'k', x'c0', 0, '', 1, 0)"),
        "records",
        0,
        "topic 'out' holds 3 records, 2 were emitted",
    ),
    "main has a parent": (
        lambda f: f.forged("UPDATE branches SET parent=2 WHERE branch=1"),
        "branch",
        0,
        "branch 1 is called 'main' and has parent 2",
    ),
    "main is deleted": (
        lambda f: f.forged("UPDATE branches SET deleted=1 WHERE branch=1"),
        "branch",
        0,
        "branch 'main' is deleted or forked",
    ),
    "a branch has no parent": (
        lambda f: f.forged("UPDATE branches SET parent=9 WHERE branch=2"),
        "branch",
        0,
        "branch 'b1' has no parent 9",
    ),
    "a branch begins in the future": (
        lambda f: f.forged("UPDATE branches SET fork_seq=99 WHERE branch=2"),
        "branch",
        0,
        "branch 'b1' is forked at 99, outside its parent",
    ),
    "a branch stands on a deleted one": (
        lambda f: f.forged("UPDATE branches SET deleted=CASE branch WHEN 2 THEN 1 ELSE 0 END WHERE branch>1"),
        "branch",
        0,
        "branch 'gone' is based on 'b1', which was deleted",
    ),
    "a live branch began before the kept history": (
        bring_back_a_branch,
        "branch",
        5,
        "branch 'b1' begins before the kept history",
    ),
    "a kept document has no name": (
        lose_the_name_of_a_compacted_document,
        "documents",
        12,
        "document 3 has a snapshot and no name",
    ),
    "heads run ahead of the log": (
        lambda f: f.sql("UPDATE meta SET value='99' WHERE key='heads_seq'"),
        "heads",
        99,
        "heads are written up to 99, the log ends at 13",
    ),
    "a head belongs to nothing": (
        lambda f: f.sql("INSERT INTO heads VALUES (1, 9, 3, 0, 0, 1, 1, 0, 0)"),
        "heads",
        3,
        "document 9 has a head on branch 1 that no commit wrote",
    ),
    "a deleted branch has heads": (
        lambda f: f.sql("INSERT INTO heads VALUES (3, 1, 10, 0, 0, 1, 1, 0, 0)"),
        "heads",
        0,
        "branch 'gone' was deleted and has heads",
    ),
    "a document was never written": (
        lambda f: f.sql("INSERT INTO documents VALUES (4, 'space', 'd', ?)", (row_seal(4, "space", "d"),)),
        "documents",
        0,
        "4 documents are listed, 3 were written",
    ),
    "a document was added by hand": (
        lambda f: f.sql("INSERT INTO documents VALUES (4, 'space', 'd', 0)"),
        "documents",
        0,
        "the row of document 4 (space:d) does not match its checksum: it was edited or torn",
    ),
    "a document has another name": (
        lambda f: f.sql("UPDATE documents SET id='z' WHERE doc=3"),
        "documents",
        0,
        "the row of document 3 (space:z) does not match its checksum: it was edited or torn",
    ),
    "a session has another key": (
        lambda f: f.sql("UPDATE sessions SET key='u' WHERE session=2"),
        "session",
        0,
        "the row of session 2 ('u') does not match its checksum: it was edited or torn",
    ),
    "a session acknowledged more": (
        lambda f: f.sql("UPDATE sessions SET acked=3 WHERE session=1"),
        "session",
        0,
        "the row of session 1 ('s') does not match its checksum: it was edited or torn",
    ),
    "a head is missing": (
        lambda f: f.sql("DELETE FROM heads WHERE branch=1 AND doc=2"),
        "heads",
        11,
        "space:b on branch 'main' was written and has no head",
    ),
    "a head is old": (
        lambda f: f.sql("UPDATE heads SET seq=6 WHERE branch=1 AND doc=2"),
        "heads",
        6,
        "space:b on branch 'main' was written at 11, its head says 6",
    ),
    "a head stands on nothing": (
        lambda f: f.sql("DELETE FROM snapshots WHERE branch=1 AND doc=2"),
        "heads",
        11,
        "space:b on branch 'main' is based on a snapshot at 6, which is missing",
    ),
    "a head counts wrongly": (
        lambda f: f.sql("UPDATE heads SET patches=7 WHERE branch=1 AND doc=2"),
        "heads",
        11,
        "the head of space:b on branch 'main' counts (7, ",
    ),
    "the write index forgot a write": (
        drop_the_index_of_b,
        "marks",
        11,
        "the write index of space:b on branch 'main' says 0 for (), leaving out 0",
    ),
    "the write index cannot be read": (
        lambda f: f.forged("UPDATE marks SET body=x'91' WHERE branch=1 AND doc=2"),
        "marks",
        11,
        "the write index of space:b on branch 'main' cannot be read: ",
    ),
    "the write index of a compacted document is lost": (
        lose_the_index_of_a_compacted_document,
        "marks",
        4,
        "space:a on branch 'main' was compacted and has no write index",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_the_first_violation_is_named(name: str, file: File) -> None:
    damage, rule, seq, message = DAMAGE[name]
    damage(file)
    violation = file.verify().violation
    assert violation is not None
    assert (violation.rule, violation.seq) == (rule, seq), violation
    assert message in violation.message


def test_nothing_is_looked_at_after_the_first_violation(file: File) -> None:
    file.sql("UPDATE log SET at_us=at_us+1 WHERE seq=6")
    file.sql("DELETE FROM log WHERE seq=9")
    report = file.verify()
    assert report.violation is not None
    assert (report.violation.rule, report.violation.seq, report.commits) == ("chain", 6, 5)


def test_a_violation_reads_as_a_sentence() -> None:
    assert str(Violation(rule="C1", seq=7, message="it missed a write")) == "C1 at seq 7: it missed a write"


def test_a_row_that_vanishes_while_it_is_verified_is_a_gap(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    damage = DAMAGE["an element moved under its reader"][0]
    damage(file)
    monkeypatch.setattr(SqliteStore, "row_at", lambda *_: None)
    violation = file.verify().violation
    assert violation is not None
    assert (violation.rule, violation.message) == ("gap", "the row has vanished while it was verified")


# ---- the file itself -------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match=r"there is no file .*nothing.space to verify"):
        verify_file(tmp_path / "nothing.space")
    assert not (tmp_path / "nothing.space").exists()


def test_a_torn_page_is_found(file: File) -> None:
    body = bytearray(file.path.read_bytes())
    for page in range(1, len(body) // 4_096):
        body[page * 4_096 : page * 4_096 + 64] = b"\xff" * 64
    file.path.write_bytes(bytes(body))
    violation = file.verify().violation
    assert violation is not None
    assert violation.rule == "integrity"
    assert "is damaged: " in violation.message


def test_an_index_that_contradicts_its_table_is_found(file: File) -> None:
    file.sql("PRAGMA writable_schema=ON")
    connection = apsw.Connection(str(file.path))
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("DELETE FROM sqlite_schema WHERE name='log_by_session'")
    connection.close()
    violation = file.verify().violation
    assert violation is not None
    assert violation.rule == "integrity"


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "text.space"
    path.write_text("this is not a space " * 500)
    violation = verify_file(path).violation
    assert violation is not None
    assert violation.rule == "integrity"


def test_a_file_that_was_cut_off_is_damaged(file: File) -> None:
    body = file.path.read_bytes()
    file.path.write_bytes(body[: len(body) // 2])
    violation = file.verify().violation
    assert violation is not None
    assert violation.rule == "integrity"


def test_a_database_of_somebody_else_cannot_be_verified(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(StorageError, match="not a Headwater space"):
        verify_file(path)


def test_a_file_in_use_cannot_be_verified(file: File) -> None:
    store = SqliteStore(file.path)
    try:
        with pytest.raises(StorageError, match=r"cannot be verified: .*Is it in use by another process"):
            file.verify()
    finally:
        store.close()


def test_damage_that_only_the_store_notices_is_integrity(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> None:
        raise CorruptionError("a page is torn")

    monkeypatch.setattr(SqliteStore, "rows_after", damaged)
    violation = file.verify().violation
    assert violation == Violation(rule="integrity", seq=0, message="a page is torn")


def test_meta_of_the_wrong_kind_is_found(file: File) -> None:
    file.sql("UPDATE meta SET value='soon' WHERE key=?", (COMPACTED_SEQ,))
    violation = file.verify().violation
    assert violation is not None
    assert violation.rule == "integrity"
    assert "compacted_seq" in violation.message
