"""The log numbers commits, chains its rows and walks back through one document."""

from __future__ import annotations

import msgspec
import pytest

from headwater.data.patch import Patch, append, replace
from headwater.engine.log.log import Log, chained, entries_of
from headwater.engine.store.port import LogRow
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import CorruptionError, InvariantViolation
from headwater.protocol.commit import Commit, NodeResult, Operation, Provenance, SentEvent, encode_commit
from tests.unit.engine.kit import doc, write


@pytest.fixture
def store() -> SqliteStore:
    return SqliteStore(":memory:")


@pytest.fixture
def log(store: SqliteStore) -> Log:
    return Log(store)


def frame(log: Log, *commits: tuple[Commit, tuple[int, ...]], session: int = 1) -> int:
    """One frame of commits, each with the seqs written before it, as a group writes it."""
    log.open_frame(session, 1, 1_000)
    for commit, previous in commits:
        log.admit(commit.local_seq, encode_commit(commit), previous)
    assert log.close_frame()
    return log.last_seq


def last_row(store: SqliteStore) -> LogRow:
    row = store.last_row()
    assert row is not None
    return row


def test_a_new_log_begins_at_one(log: Log) -> None:
    assert (log.last_seq, log.next_seq, log.kept_from) == (0, 1, 1)
    assert frame(log, (Commit(1), ())) == 1


def test_each_commit_of_a_wave_has_a_seq_and_the_row_is_one(log: Log, store: SqliteStore) -> None:
    first = Commit(3, (write("a", replace((), 1)),))
    second = Commit(5, (write("b", replace((), 2)),))
    frame(log, (first, (0,)), (second, (0,)), session=9)
    row = last_row(store)
    assert (row.seq, row.commits, row.session, row.local_seq, row.local_last) == (1, 2, 9, 3, 5)
    assert [log.decoded(seq, log.entry(seq)[1].commit) for seq in (1, 2)] == [first, second]
    assert [log.entry(seq)[0] for seq in (1, 2)] == [9, 9]
    assert len(entries_of(row)) == 2


def test_a_frame_of_which_nothing_was_admitted_leaves_no_row(log: Log, store: SqliteStore) -> None:
    log.open_frame(1, 1, 0)
    assert not log.close_frame()
    assert (store.last_row(), log.last_seq) == (None, 0)


def test_commits_of_the_open_frame_can_already_be_looked_up(log: Log) -> None:
    """A later commit of a wave is judged against the earlier ones, whose row is not written yet."""
    frame(log, (Commit(1, (write("d", replace((), ())),)), (0,)))
    log.open_frame(4, 1, 0)
    commit = Commit(1, (write("d", append((), [1])),), provenance=Provenance("N"))
    seq = log.admit(1, encode_commit(commit), (1,))
    assert log.writer_of(seq, doc("d")) == (4, "N")
    assert [revision.seq for revision in log.history(seq, doc("d"), down_to=0)] == [2, 1]


def test_a_commit_outside_a_frame_is_a_bug_of_ours(log: Log) -> None:
    with pytest.raises(InvariantViolation, match="a commit was admitted outside a frame"):
        log.admit(1, b"", ())


def test_every_row_continues_the_checksum_of_the_one_before(log: Log, store: SqliteStore) -> None:
    for number in range(1, 6):
        frame(log, (Commit(number), ()))
    chain = 0
    for row in store.rows_after(0, 10):
        chain = chained(chain, row)
        assert row.chain == chain


def test_no_field_of_a_row_can_change_without_its_checksum_changing() -> None:
    row = LogRow(1, 1, 1, 1, 1, 1, 1_000, 0, b"body")
    altered = [
        row._replace(seq=2),
        row._replace(commits=2),
        row._replace(session=2),
        row._replace(local_seq=9),
        row._replace(local_last=9),
        row._replace(branch=2),
        row._replace(at_us=1),
        row._replace(body=b"other"),
    ]
    chains = {chained(7, each) for each in altered}
    assert len(chains) == len(altered)
    assert chained(7, row) not in chains
    assert chained(8, row) != chained(7, row)


def test_a_reloaded_log_goes_on_where_the_store_ends(store: SqliteStore, log: Log) -> None:
    frame(log, (Commit(1), ()), (Commit(2), ()))
    log.open_frame(1, 1, 0)
    log.admit(3, encode_commit(Commit(3)), ())  # of a group that never committed
    log.reload()
    assert log.last_seq == 2
    frame(log, (Commit(3), ()))
    assert Log(store).last_seq == 3


def test_a_document_s_history_is_walked_back_over_unrelated_commits(log: Log) -> None:
    frame(log, (Commit(1, (write("d", replace((), ())),)), (0,)))
    frame(log, (Commit(2, (write("other", replace((), 1)),)), (0,)))
    frame(log, (Commit(3, (write("other", replace((), 2)), write("d", append((), [1])))), (2, 1)))
    frame(log, (Commit(4, (write("d", append((), [2])),)), (3,)))
    walk = [(r.seq, r.previous, r.local_seq) for r in log.history(4, doc("d"), down_to=0)]
    assert walk == [(4, 3, 4), (3, 1, 3), (1, 0, 1)]
    assert [r.seq for r in log.history(4, doc("d"), down_to=1)] == [4, 3]
    assert [r.seq for r in log.history(3, doc("other"), down_to=0)] == [3, 2]
    assert list(log.history(0, doc("d"), down_to=0)) == []


def test_the_writer_of_a_seq_is_its_session_and_node(log: Log) -> None:
    frame(log, (Commit(1, provenance=Provenance("Cart.add")), ()), session=5)
    assert log.writer_of(1, doc("d")) == (5, "Cart.add")
    assert log.writer_of(0, doc("d")) is None


def test_the_writer_of_a_wave_is_the_node_of_the_result(log: Log) -> None:
    results = (NodeResult(Provenance("both"), 2), NodeResult(Provenance("lost"), 0), NodeResult(Provenance("last"), 1))
    wave = Commit(1, tuple([write(id, replace((), 1)) for id in "abc"]), results=results)
    frame(log, (wave, (0, 0, 0)), session=5)
    assert [log.writer_of(1, doc(id)) for id in "abc"] == [(5, "both"), (5, "both"), (5, "last")]


class TestDamage:
    """What points at something that is not there is damage, and the message says which commit."""

    def test_a_seq_past_the_end(self, log: Log) -> None:
        frame(log, (Commit(1), ()))
        with pytest.raises(CorruptionError, match="the log has no commit with seq 2, though something points"):
            log.entry(2)

    def test_a_row_that_cannot_be_read(self, log: Log, store: SqliteStore) -> None:
        store.append(LogRow(1, 1, 1, 1, 1, 1, 0, 0, b"\xc1"))
        with pytest.raises(CorruptionError, match="the log row of seq 1 cannot be read"):
            log.entry(1)
        with pytest.raises(CorruptionError, match="the log row of seq 1 cannot be read"):
            entries_of(last_row(store))

    def test_a_row_that_holds_fewer_commits_than_it_says(self, log: Log, store: SqliteStore) -> None:
        frame(log, (Commit(1), ()))
        store.append(last_row(store)._replace(seq=2, commits=2, local_seq=2))
        with pytest.raises(CorruptionError, match="the log row of seq 2 holds 1 commits, not 2"):
            log.entry(2)

    def test_a_commit_that_cannot_be_read(self, log: Log) -> None:
        log.open_frame(1, 1, 0)
        log.admit(1, msgspec.msgpack.encode("nonsense"), ())
        log.close_frame()
        with pytest.raises(CorruptionError, match="commit 1 in the log cannot be read"):
            log.writer_of(1, doc("d"))

    def test_a_commit_that_holds_what_no_document_can(self, log: Log) -> None:
        """It would never have been let in, so it is damage, and not a mistake of whoever reads."""
        log.open_frame(1, 1, 0)
        nan = Patch("replace", (), float("nan"))
        commit = Commit(1, (Operation(doc("a"), (nan,)),), events=(SentEvent("e", "s", float("nan")),))
        log.admit(1, encode_commit(commit), (0,))
        log.close_frame()
        with pytest.raises(CorruptionError, match=r"commit 1 in the log cannot be read: .*no document can hold"):
            log.decoded(1, log.entry(1)[1].commit)
        with pytest.raises(CorruptionError, match=r"commit 1 in the log cannot be read: nan at the root"):
            list(log.history(1, doc("a"), down_to=0))

    def test_a_commit_whose_operations_cannot_be_read(self, log: Log) -> None:
        log.open_frame(1, 1, 0)
        log.admit(1, msgspec.msgpack.encode([1, "nonsense"]), (0,))
        log.admit(2, msgspec.msgpack.encode([2, [[["space", "a"], "nonsense"]]]), (0,))
        log.close_frame()
        for seq in (1, 2):
            with pytest.raises(CorruptionError, match=f"commit {seq} in the log cannot be read: "):
                list(log.history(seq, doc("a"), down_to=0))

    def test_a_commit_with_fewer_pointers_than_operations(self, log: Log) -> None:
        frame(log, (Commit(1, (write("a", replace((), 1)), write("b", replace((), 1)))), (0,)))
        assert len(list(log.history(1, doc("a"), down_to=0))) == 1
        with pytest.raises(CorruptionError, match="commit 1 does not write space:b, though its head says so"):
            list(log.history(1, doc("b"), down_to=0))

    def test_a_commit_that_does_not_write_the_document(self, log: Log) -> None:
        frame(log, (Commit(1, (write("a", replace((), 1)),)), (0,)))
        with pytest.raises(CorruptionError, match="commit 1 does not write space:b, though its head says so"):
            list(log.history(1, doc("b"), down_to=0))

    def test_a_commit_that_names_itself_as_the_one_before(self, log: Log) -> None:
        frame(log, (Commit(1, (Operation(doc("a"), ()),)), (1,)))
        with pytest.raises(CorruptionError, match="commit 1 names 1 as the write before it"):
            list(log.history(1, doc("a"), down_to=0))

    def test_missing_rows_at_the_end_are_found_at_open(self, log: Log, store: SqliteStore) -> None:
        frame(log, (Commit(1), ()))
        store.append(last_row(store)._replace(seq=5, local_seq=5))
        with pytest.raises(CorruptionError, match=r"jumps from seq 1 to 5: rows are missing.*restore a backup"):
            Log(store)

    def test_an_edited_last_row_is_found_at_open(self, log: Log, store: SqliteStore) -> None:
        frame(log, (Commit(1), ()))
        store.append(last_row(store)._replace(seq=2, local_seq=2))
        with pytest.raises(CorruptionError, match=r"last log row \(seq 2\) does not match its checksum"):
            Log(store)
