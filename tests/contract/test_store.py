"""The contract of the store port: what the engine relies on, whichever database holds the space.

Another database joins by adding one `Backend` to `BACKENDS`. Nothing here mentions SQLite below that list.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.data.address import DocKey
from headwater.engine.store.port import (
    BranchRow,
    EventRow,
    HeadRow,
    LogRow,
    MarksRow,
    NodeNumbers,
    ObservationRow,
    Part,
    ReaderRow,
    RecordRow,
    SessionRow,
    SnapshotRow,
    Store,
)
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import LimitError, StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One implementation of the port."""

    name: str
    make: Callable[[Path], Store]
    durable: bool = True  # False: reopening finds an empty space


BACKENDS = (
    Backend(name="sqlite-file", make=lambda folder: SqliteStore(folder / "s.space", synchronous="OFF")),
    Backend(name="sqlite-memory", make=lambda folder: SqliteStore(":memory:"), durable=False),
)


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def store(backend: Backend, tmp_path: Path) -> Iterator[Store]:
    made = backend.make(tmp_path)
    yield made
    made.close()


@pytest.fixture
def open_store(store: Store) -> Store:
    """A store with a transaction open, which most writes want."""
    store.begin()
    return store


# Names that a careless database would fold together, cut off or sort by locale.
NAMES = [
    "a",
    "A",
    "ä",
    "a\u0308",
    "z",
    "Z",
    "é",
    "日本",
    "😀",
    "\uffff",
    "a b",
    "a%",
    "a_",
    "a'b",
    'a"b',
    "ß",
    "SS",
]


def log_row(seq: int, *, count: int = 1, session: int = 1, local_seq: int | None = None, branch: int = 1) -> LogRow:
    first = seq if local_seq is None else local_seq
    return LogRow(seq, count, session, first, first + count - 1, branch, 1_000 + seq, 77 + seq, b"body %d" % seq)


def session_row(
    number: int, key: str, *, closed: bool = False, judged: int = 0, acked: int = 0, resume: str = "digest"
) -> SessionRow:
    return SessionRow(
        session=number,
        key=key,
        principal="ann",
        opened_us=5,
        closed=closed,
        judged=judged,
        resume=resume,
        acked=acked,
    )


def branch_row(number: int, name: str, *, deleted: bool = False) -> BranchRow:
    return BranchRow(number, name, number - 1, 3, 9, deleted, 4)


def head_row(branch: int, doc: int, seq: int) -> HeadRow:
    return HeadRow(branch, doc, seq, seq - 1, 100, 2, 30, 1)


def snapshot(seq: int, ordinal: int, *, branch: int = 1, doc: int = 1, present: bool = True) -> SnapshotRow:
    return SnapshotRow(branch, doc, seq, ordinal, present, b"value at %d" % seq if present else b"")


def test_every_method_of_the_port_is_tried_by_this_suite() -> None:
    methods = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    text = Path(__file__).read_text()
    untried = {name for name in methods if f"store.{name}(" not in text}
    assert untried == set()


# --- transactions ----------------------------------------------------------------------------------------


class TestTransactions:
    def test_what_was_committed_stays_and_what_was_rolled_back_is_gone(self, store: Store) -> None:
        store.begin()
        store.put_meta("kept", "1")
        store.commit()
        store.begin()
        store.put_meta("kept", "2")
        store.put_meta("new", "x")
        store.rollback()
        assert (store.meta("kept"), store.meta("new")) == ("1", None)

    def test_a_transaction_sees_its_own_writes(self, open_store: Store) -> None:
        store = open_store
        store.append(log_row(1))
        assert store.last_row() == log_row(1)

    def test_rolling_back_where_no_transaction_is_open_does_nothing(self, store: Store) -> None:
        store.rollback()
        store.begin()
        store.put_meta("a", "1")
        store.commit()
        store.rollback()
        assert store.meta("a") == "1"

    def test_a_rollback_takes_back_writes_to_every_table(self, store: Store) -> None:
        store.begin()
        store.append(log_row(1))
        store.put_docs([(1, DocKey("space", "d"))])
        store.put_heads([head_row(1, 1, 1)])
        store.put_snapshot(snapshot(1, 1))
        store.put_marks(MarksRow(1, 1, 1, b"m"))
        store.put_branch(branch_row(1, "main"))
        store.put_session(session_row(1, "s"))
        store.put_events([EventRow("e", 1, "stream", 0, b"p")])
        store.put_records([RecordRow(1, 0, "topic", "k", b"p")])
        store.put_meta("m", "1")
        store.rollback()
        assert store.last_row() is None
        assert store.doc_of(DocKey("space", "d")) is None
        assert store.key_of(1) is None
        assert store.head(1, 1) is None
        assert store.snapshot_at_or_before(1, 1, 9) is None
        assert store.marks(1, 1) is None
        assert store.branches() == []
        assert store.session(1) is None
        assert store.event("e") is None
        assert store.records_after("topic", (0, 0), 9) == []
        assert store.meta("m") is None

    def test_a_second_begin_inside_a_transaction_is_refused(self, open_store: Store) -> None:
        with pytest.raises(StorageError):
            open_store.begin()

    def test_a_commit_without_a_transaction_is_refused(self, store: Store) -> None:
        with pytest.raises(StorageError):
            store.commit()

    def test_a_refused_statement_leaves_the_transaction_s_other_writes_alone(self, store: Store) -> None:
        store.begin()
        store.append(log_row(1))
        with pytest.raises(StorageError):
            store.append(log_row(1))
        store.commit()
        assert store.last_row() == log_row(1)


class TestSavepoints:
    def test_a_released_savepoint_belongs_to_the_transaction(self, store: Store) -> None:
        store.begin()
        store.savepoint()
        store.put_meta("a", "1")
        store.release()
        store.rollback()
        assert store.meta("a") is None
        store.begin()
        store.savepoint()
        store.put_meta("a", "1")
        store.release()
        store.commit()
        assert store.meta("a") == "1"

    def test_rolling_back_to_a_savepoint_keeps_what_was_before_it(self, store: Store) -> None:
        store.begin()
        store.put_meta("before", "1")
        store.savepoint()
        store.put_meta("before", "2")
        store.put_meta("inside", "1")
        store.rollback_to_savepoint()
        store.put_meta("after", "1")
        store.commit()
        assert (store.meta("before"), store.meta("inside"), store.meta("after")) == ("1", None, "1")

    def test_savepoints_follow_one_another(self, store: Store) -> None:
        store.begin()
        for number in range(1, 6):
            store.savepoint()
            store.append(log_row(number))
            if number % 2:
                store.release()
            else:
                store.rollback_to_savepoint()
        store.commit()
        assert [row.seq for row in store.rows_after(0, 10)] == [1, 3, 5]

    def test_a_release_without_a_savepoint_is_refused(self, open_store: Store) -> None:
        with pytest.raises(StorageError):
            open_store.release()


class TestReopening:
    def test_what_was_committed_is_there_and_an_open_transaction_is_not(self, store: Store, backend: Backend) -> None:
        store.begin()
        store.put_meta("a", "1")
        store.commit()
        store.begin()
        store.put_meta("b", "1")
        store.reopen()
        assert store.meta("a") == ("1" if backend.durable else None)
        assert store.meta("b") is None

    def test_a_reopened_store_works_on(self, store: Store) -> None:
        store.reopen()
        store.begin()
        store.append(log_row(1))
        store.commit()
        assert store.last_row() == log_row(1)

    def test_another_opening_after_closing_finds_everything(self, backend: Backend, tmp_path: Path) -> None:
        if not backend.durable:
            pytest.skip("nothing is kept")
        folder = tmp_path / "second"
        folder.mkdir()
        store = backend.make(folder)
        store.begin()
        store.append(log_row(1))
        store.put_session(session_row(1, "s"))
        store.commit()
        store.close()
        again = backend.make(folder)
        assert (again.last_row(), again.session_of("s")) == (log_row(1), session_row(1, "s"))
        again.close()

    def test_counters_go_on_counting_over_a_reopening(self, store: Store) -> None:
        before = store.visited.statements
        store.reopen()
        store.meta("a")
        assert store.visited.statements > before


# --- what cannot be stored -------------------------------------------------------------------------------

LARGE, LONE = 2**63, "\ud800"
UNSTORABLE: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append(log_row(LARGE)),
    "row_at": lambda store: store.row_at(LARGE),
    "rows_after": lambda store: store.rows_after(LARGE, 1),
    "row_of_session": lambda store: store.row_of_session(1, LARGE),
    "put_docs": lambda store: store.put_docs([(1, DocKey("space", LONE))]),
    "doc_of": lambda store: store.doc_of(DocKey("space", LONE)),
    "sum_before": lambda store: store.sum_before(LARGE),
    "docs_of_scope": lambda store: store.docs_of_scope(LONE, "", 1),
    "put_heads": lambda store: store.put_heads([head_row(1, 1, LARGE)]),
    "put_session": lambda store: store.put_session(session_row(1, LONE)),
    "session_of": lambda store: store.session_of(LONE),
    "put_events": lambda store: store.put_events([EventRow("e", 1, "s", LARGE, b"")]),
    "put_events-text": lambda store: store.put_events([EventRow(LONE, 1, "s", 0, b"")]),
    "event": lambda store: store.event(LONE),
    "events_due": lambda store: store.events_due(1, LARGE, (0, ""), 1),
    "next_due": lambda store: store.next_due(1, LARGE),
    "drop_event": lambda store: store.drop_event(1, LONE),
    "put_records": lambda store: store.put_records([RecordRow(1, 0, LONE, "k", b"")]),
    "put_meta": lambda store: store.put_meta("k", LONE),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_a_number_or_a_text_that_cannot_be_stored_is_a_limit_and_no_bare_error(store: Store, name: str) -> None:
    store.begin()
    with pytest.raises(LimitError, match=r"a number( or a text)? is too large to be stored"):
        UNSTORABLE[name](store)
    store.put_meta("after", "1")
    store.commit()
    assert store.meta("after") == "1"


# --- meta and counters -----------------------------------------------------------------------------------


class TestMeta:
    def test_a_key_is_overwritten_and_an_unknown_one_is_none(self, open_store: Store) -> None:
        store = open_store
        store.put_meta("k", "1")
        store.put_meta("k", "2")
        assert (store.meta("k"), store.meta("K"), store.meta("other")) == ("2", None, None)

    @pytest.mark.parametrize("name", NAMES)
    def test_any_name_is_kept_apart_from_its_look_alikes(self, open_store: Store, name: str) -> None:
        store = open_store
        for number, other in enumerate(NAMES):
            store.put_meta(other, str(number))
        assert store.meta(name) == str(NAMES.index(name))


class TestVisited:
    def test_a_found_row_is_counted_with_its_body(self, open_store: Store) -> None:
        store = open_store
        store.append(log_row(1))
        before = (store.visited.statements, store.visited.rows, store.visited.bytes)
        row = store.last_row()
        assert row is not None
        after = (store.visited.statements, store.visited.rows, store.visited.bytes)
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, len(row.body)]

    def test_a_page_counts_its_rows_and_an_empty_one_counts_none(self, open_store: Store) -> None:
        store = open_store
        for seq in range(1, 6):
            store.append(log_row(seq))
        rows = store.visited.rows
        store.rows_after(0, 3)
        assert store.visited.rows == rows + 3
        store.rows_after(5, 3)
        assert store.visited.rows == rows + 3

    def test_a_write_is_a_statement_and_visits_no_row(self, open_store: Store) -> None:
        store = open_store
        store.put_session(session_row(1, "k"))
        statements, rows = store.visited.statements, store.visited.rows
        store.put_session(session_row(1, "k", judged=1))
        assert store.visited.statements == statements + 1
        assert store.visited.rows == rows


# --- the log ---------------------------------------------------------------------------------------------


class TestLog:
    def test_an_empty_log_has_no_rows_at_all(self, store: Store) -> None:
        assert store.last_row() is None
        assert store.row_at(5) is None
        assert store.rows_after(0, 10) == []
        assert store.row_of_session(1, 5) is None

    def test_a_row_comes_back_as_it_was_appended(self, open_store: Store) -> None:
        store = open_store
        row = LogRow(2**53, 7, 2**40, 3, 9, 4, 2**52, 2**32 - 1, bytes(range(256)))
        store.append(row)
        assert store.last_row() == row
        assert store.row_at(2**53) == row
        assert type(store.rows_after(0, 1)[0]) is LogRow

    def test_an_empty_body_is_kept_as_an_empty_body(self, open_store: Store) -> None:
        store = open_store
        store.append(log_row(1)._replace(body=b""))
        row = store.last_row()
        assert row is not None
        assert row.body == b""

    def test_a_row_is_found_by_any_seq_from_its_own_up_to_the_next(self, open_store: Store) -> None:
        store = open_store
        for seq, count in ((1, 3), (4, 1), (5, 10)):
            store.append(log_row(seq, count=count))
        found = {seq: row.seq for seq in range(16) if (row := store.row_at(seq))}
        assert found == {1: 1, 2: 1, 3: 1, 4: 4, **dict.fromkeys(range(5, 16), 5)}

    def test_rows_come_in_order_of_seq_whatever_order_they_were_written_in(self, open_store: Store) -> None:
        store = open_store
        for seq in (5, 1, 9, 3):
            store.append(log_row(seq, local_seq=seq))
        assert [row.seq for row in store.rows_after(0, 10)] == [1, 3, 5, 9]
        assert [row.seq for row in store.rows_after(3, 10)] == [5, 9]
        assert [row.seq for row in store.rows_after(0, 2)] == [1, 3]
        last = store.last_row()
        assert last is not None
        assert last.seq == 9

    def test_a_limit_of_zero_gives_no_rows(self, open_store: Store) -> None:
        open_store.append(log_row(1))
        assert open_store.rows_after(0, 0) == []

    def test_a_seq_is_taken_once(self, open_store: Store) -> None:
        open_store.append(log_row(1))
        with pytest.raises(StorageError):
            open_store.append(log_row(1, session=2))

    def test_a_local_seq_is_taken_once_per_session(self, open_store: Store) -> None:
        store = open_store
        store.append(log_row(1, session=1, local_seq=4))
        store.append(log_row(2, session=2, local_seq=4))
        with pytest.raises(StorageError):
            store.append(log_row(3, session=1, local_seq=4))

    def test_a_session_s_row_is_the_latest_that_begins_at_or_before(self, open_store: Store) -> None:
        store = open_store
        store.append(log_row(1, session=1, local_seq=2, count=2))
        store.append(log_row(3, session=2, local_seq=1, count=5))
        store.append(log_row(8, session=1, local_seq=7))
        found = {n: row.seq if (row := store.row_of_session(1, n)) else None for n in (1, 2, 3, 6, 7, 2**62)}
        assert found == {1: None, 2: 1, 3: 1, 6: 1, 7: 8, 2**62: 8}
        other = store.row_of_session(2, 3)
        assert other is not None
        assert other.seq == 3
        assert store.row_of_session(3, 3) is None

    def test_dropping_keeps_what_open_sessions_have_not_acknowledged(self, open_store: Store) -> None:
        store = open_store
        store.put_session(session_row(1, "open", acked=3))
        store.put_session(session_row(2, "closed", closed=True))
        store.append(log_row(1, session=1, local_seq=2))
        store.append(log_row(2, session=1, local_seq=3, count=2))  # up to local_seq 4: not acknowledged
        store.append(log_row(4, session=2, local_seq=1))
        store.append(log_row(5, session=1, local_seq=9))
        store.append(log_row(6, session=2, local_seq=2))
        assert store.drop_rows(6) == 2
        assert [row.seq for row in store.rows_after(0, 10)] == [2, 5, 6]

    def test_dropping_never_cuts_a_row_in_two(self, open_store: Store) -> None:
        store = open_store
        store.put_session(session_row(1, "closed", closed=True))
        store.append(log_row(1, count=3))
        store.append(log_row(4, count=2))
        assert store.drop_rows(3) == 0
        assert store.drop_rows(5) == 1
        assert [row.seq for row in store.rows_after(0, 10)] == [4]


# --- documents, heads, snapshots, marks --------------------------------------------------------------------


class TestDocuments:
    def test_a_document_is_found_both_ways(self, open_store: Store) -> None:
        store = open_store
        store.put_docs([(7, DocKey("user:ann", "settings"))])
        assert store.doc_of(DocKey("user:ann", "settings")) == 7
        store.put_docs([(8, DocKey("space", "a")), (9, DocKey("space", "b"))])
        named = [DocKey("space", "b"), DocKey("space", "none"), DocKey("user:ann", "settings"), DocKey("space", "a")]
        assert store.docs_of(named) == {named[0]: 9, named[2]: 7, named[3]: 8}
        assert store.docs_of([]) == {}
        assert store.key_of(7) == DocKey("user:ann", "settings")
        assert store.doc_of(DocKey("space", "settings")) is None
        assert store.key_of(10) is None

    def test_the_last_number_starts_at_zero(self, open_store: Store) -> None:
        store = open_store
        assert store.last_doc() == 0
        store.put_docs([(3, DocKey("space", "c"))])
        store.put_docs([(2, DocKey("space", "b"))])
        assert store.last_doc() == 3

    def test_a_name_is_taken_once(self, open_store: Store) -> None:
        store = open_store
        store.put_docs([(1, DocKey("space", "a"))])
        with pytest.raises(StorageError):
            store.put_docs([(2, DocKey("space", "a"))])

    def test_look_alike_names_are_different_documents_in_code_point_order(self, open_store: Store) -> None:
        store = open_store
        for number, name in enumerate(NAMES, 1):
            store.put_docs([(number, DocKey("space", name))])
        assert [store.doc_of(DocKey("space", name)) for name in NAMES] == list(range(1, len(NAMES) + 1))
        listed = store.docs_of_scope("space", "", 100)
        assert [name for _, name in listed] == sorted(NAMES)
        assert [NAMES[number - 1] for number, _ in listed] == sorted(NAMES)

    def test_a_scope_is_matched_whole_and_exactly(self, open_store: Store) -> None:
        store = open_store
        for number, scope in enumerate(["user:s1", "user:s12", "user:S1", "user:s", "space"], 1):
            store.put_docs([(number, DocKey(scope, "d"))])
        assert store.docs_of_scope("user:s1", "", 10) == [(1, "d")]
        assert store.docs_of_scope("user:s%", "", 10) == []

    def test_pages_of_a_scope_join_without_a_gap_or_a_repeat(self, open_store: Store) -> None:
        store = open_store
        for number in range(1, 24):
            store.put_docs([(number, DocKey("space", f"d{number:02}"))])
        seen: list[str] = []
        for _ in range(10):
            page = store.docs_of_scope("space", seen[-1] if seen else "", 5)
            seen += [name for _, name in page]
        assert seen == [f"d{number:02}" for number in range(1, 24)]


class TestHeads:
    def test_a_head_is_overwritten_in_place(self, open_store: Store) -> None:
        store = open_store
        store.put_heads([head_row(1, 1, 4), head_row(1, 2, 5)])
        changed = HeadRow(1, 1, 9, 8, 7, 6, 5, 4)
        store.put_heads([changed])
        assert store.head(1, 1) == changed
        assert store.head(1, 2) == head_row(1, 2, 5)

    def test_branches_keep_heads_of_their_own(self, open_store: Store) -> None:
        store = open_store
        store.put_heads([head_row(1, 1, 4), head_row(2, 1, 5)])
        assert store.head(1, 1) == head_row(1, 1, 4)
        assert store.head(2, 1) == head_row(2, 1, 5)
        assert store.head(3, 1) is None

    def test_the_heads_of_a_branch_come_by_document_in_pages(self, open_store: Store) -> None:
        store = open_store
        store.put_heads([head_row(branch, doc, doc + 1) for branch in (1, 2) for doc in (5, 3, 9, 1)])
        assert [row.doc for row in store.heads_of_branch(1, 0, 3)] == [1, 3, 5]
        assert [row.doc for row in store.heads_of_branch(1, 5, 3)] == [9]
        assert store.heads_of_branch(3, 0, 3) == []

    def test_no_heads_at_all_may_be_put(self, open_store: Store) -> None:
        open_store.put_heads([])
        assert open_store.heads_of_branch(1, 0, 3) == []

    def test_heads_may_come_from_a_generator(self, open_store: Store) -> None:
        store = open_store
        store.put_heads(head_row(1, doc, doc) for doc in range(1, 4))
        assert [row.doc for row in store.heads_of_branch(1, 0, 9)] == [1, 2, 3]


class TestSnapshots:
    def test_the_nearest_snapshot_before_a_seq_is_found(self, open_store: Store) -> None:
        store = open_store
        for seq, ordinal in ((10, 1), (20, 2), (30, 3)):
            store.put_snapshot(snapshot(seq, ordinal))
        found = {seq: row.seq if (row := store.snapshot_at_or_before(1, 1, seq)) else None for seq in (9, 10, 25, 99)}
        assert found == {9: None, 10: 10, 25: 20, 99: 30}
        assert store.snapshot_at_or_before(1, 1, 20) == snapshot(20, 2)

    def test_the_next_snapshot_after_a_seq_is_found(self, open_store: Store) -> None:
        store = open_store
        for seq, ordinal in ((10, 1), (20, 2)):
            store.put_snapshot(snapshot(seq, ordinal))
        assert [store.snapshot_seq_after(1, 1, seq) for seq in (0, 9, 10, 19, 20)] == [10, 10, 20, 20, None]

    def test_absence_is_kept_apart_from_an_empty_value(self, open_store: Store) -> None:
        store = open_store
        store.put_snapshot(snapshot(10, 1, present=False))
        row = store.snapshot_at_or_before(1, 1, 10)
        assert row is not None
        assert row.present is False
        assert row.body == b""

    def test_the_list_is_by_seq_and_belongs_to_one_document_of_one_branch(self, open_store: Store) -> None:
        store = open_store
        store.put_snapshot(snapshot(20, 2))
        store.put_snapshot(snapshot(10, 1))
        store.put_snapshot(snapshot(15, 1, doc=2))
        store.put_snapshot(snapshot(15, 1, branch=2))
        assert store.snapshot_seqs(1, 1) == [(10, 1), (20, 2)]
        assert store.snapshot_seq_after(1, 1, 10) == 20
        other = store.snapshot_at_or_before(1, 1, 15)
        assert other is not None
        assert other.seq == 10

    def test_one_is_dropped_by_its_seq_and_dropping_nothing_is_harmless(self, open_store: Store) -> None:
        store = open_store
        for seq, ordinal in ((10, 1), (20, 2)):
            store.put_snapshot(snapshot(seq, ordinal))
        store.drop_snapshot(1, 1, 10)
        store.drop_snapshot(1, 1, 10)
        store.drop_snapshot(1, 2, 20)
        assert store.snapshot_seqs(1, 1) == [(20, 2)]

    def test_the_one_behind_the_newest_few_is_found(self, open_store: Store) -> None:
        store = open_store
        for seq, ordinal in ((10, 0), (20, 1), (30, 2), (40, 5)):
            store.put_snapshot(snapshot(seq, ordinal))
        store.put_snapshot(snapshot(99, 9, doc=2))
        assert [store.older_snapshot(1, 1, than) for than in range(5)] == [(40, 5), (30, 2), (20, 1), (10, 0), None]

    def test_a_snapshot_is_taken_once(self, open_store: Store) -> None:
        open_store.put_snapshot(snapshot(10, 1))
        with pytest.raises(StorageError):
            open_store.put_snapshot(snapshot(10, 1))

    def test_the_documents_that_have_snapshots_come_in_pages(self, open_store: Store) -> None:
        store = open_store
        for doc in (5, 2, 9):
            for seq in (10, 20):
                store.put_snapshot(snapshot(seq, seq, doc=doc))
        store.put_snapshot(snapshot(10, 1, doc=3, branch=2))
        assert store.docs_with_snapshots(1, 0, 2) == [2, 5]
        assert store.docs_with_snapshots(1, 5, 2) == [9]
        assert store.docs_with_snapshots(3, 0, 2) == []


class TestMarks:
    def test_one_index_per_document_and_branch_is_kept_the_latest(self, open_store: Store) -> None:
        store = open_store
        store.put_marks(MarksRow(1, 1, 5, b"five"))
        store.put_marks(MarksRow(1, 1, 9, b"nine"))
        store.put_marks(MarksRow(2, 1, 7, b"seven"))
        assert store.marks(1, 1) == MarksRow(1, 1, 9, b"nine")
        assert store.marks(2, 1) == MarksRow(2, 1, 7, b"seven")
        assert store.marks(1, 2) is None


# --- branches and sessions -------------------------------------------------------------------------------


class TestBranches:
    def test_branches_come_in_order_of_their_number_with_true_booleans(self, open_store: Store) -> None:
        store = open_store
        rows = [branch_row(1, "main"), branch_row(2, "Dev"), branch_row(3, "dev", deleted=True)]
        for row in reversed(rows):
            store.put_branch(row)
        assert store.branches() == rows
        assert [row.deleted for row in store.branches()] == [False, False, True]

    def test_a_branch_is_changed_in_place(self, open_store: Store) -> None:
        store = open_store
        store.put_branch(branch_row(1, "main"))
        changed = branch_row(1, "main")._replace(merged_seq=40, deleted=True)
        store.put_branch(changed)
        assert store.branches() == [changed]

    def test_dropping_a_branch_s_data_leaves_its_row_and_other_branches_alone(self, open_store: Store) -> None:
        store = open_store
        for branch in (1, 2):
            store.put_branch(branch_row(branch, f"b{branch}"))
            store.put_heads([head_row(branch, 1, 5)])
            store.put_snapshot(snapshot(5, 1, branch=branch))
            store.put_marks(MarksRow(branch, 1, 5, b"m"))
        store.drop_branch_data(2)
        assert len(store.branches()) == 2
        assert store.head(2, 1) is None
        assert store.snapshot_seqs(2, 1) == []
        assert store.marks(2, 1) is None
        assert store.head(1, 1) == head_row(1, 1, 5)
        assert store.snapshot_seqs(1, 1) == [(5, 1)]
        assert store.marks(1, 1) is not None


class TestSessions:
    def test_a_session_is_found_by_key_and_by_number(self, open_store: Store) -> None:
        store = open_store
        store.put_session(session_row(4, "k"))
        assert store.session_of("k") == store.session(4) == session_row(4, "k")
        assert (store.session_of("K"), store.session(5)) == (None, None)

    def test_a_session_is_changed_in_place_and_closed_is_a_boolean(self, open_store: Store) -> None:
        store = open_store
        store.put_session(session_row(1, "k"))
        store.put_session(session_row(1, "k", closed=True, judged=13, acked=12))
        row = store.session_of("k")
        assert row == session_row(1, "k", closed=True, judged=13, acked=12)
        assert row is not None
        assert row.closed is True

    def test_look_alike_keys_are_different_sessions(self, open_store: Store) -> None:
        store = open_store
        for number, name in enumerate(NAMES, 1):
            store.put_session(session_row(number, name))
        numbers = [row.session if (row := store.session_of(name)) else None for name in NAMES]
        assert numbers == list(range(1, len(NAMES) + 1))

    def test_the_last_number_starts_at_zero(self, open_store: Store) -> None:
        store = open_store
        assert store.last_session() == 0
        store.put_session(session_row(9, "a"))
        store.put_session(session_row(3, "b"))
        assert store.last_session() == 9


# --- what was edited outside -----------------------------------------------------------------------------


class TestChecks:
    @pytest.mark.parametrize("part", Part)
    def test_rows_that_nobody_edited_pass_however_often_they_were_written(self, open_store: Store, part: Part) -> None:
        store = open_store
        store.check(part)
        for judged in (1, 2):
            store.put_session(session_row(1, "k", judged=judged))
            store.put_branch(branch_row(1, "main")._replace(merged_seq=judged))
            store.put_marks(MarksRow(1, 1, judged, b"m"))
            store.put_docs([(judged, DocKey("space", f"d{judged}"))])
            store.put_events([EventRow(f"e{judged}", judged, "s", 0, b"p")])
            store.put_records([RecordRow(judged, 0, "t", "k", b"p")])
            store.put_heads([head_row(1, 1, judged), head_row(2, judged, judged)])
            store.put_snapshot(snapshot(judged, judged))
            store.put_snapshot(snapshot(judged, judged, branch=2))
            store.put_meta("heads_seq", str(judged))
        store.drop_snapshot(1, 1, 1)
        store.drop_snapshot(1, 1, 1)
        store.check(part)
        store.drop_branch_data(2)
        store.check(part)

    def test_what_was_rolled_back_is_not_counted(self, store: Store) -> None:
        store.begin()
        store.put_session(session_row(1, "k"))
        store.rollback()
        store.check(Part.SESSIONS)

    def test_the_sum_covers_what_commits_before_a_seq_left(self, open_store: Store) -> None:
        store = open_store
        sums = [store.sum_before(9)]
        store.append(log_row(1))
        sums.append(store.sum_before(9))
        store.put_events([EventRow("e", 1, "s", 0, b"p")])
        sums.append(store.sum_before(9))
        store.put_records([RecordRow(1, 0, "t", "k", b"p")])
        sums.append(store.sum_before(9))
        assert sums[0] == 0
        assert sums == sorted(set(sums))
        store.append(log_row(9))
        assert (store.sum_before(9), store.sum_before(1)) == (sums[-1], 0)


# --- events, records -------------------------------------------------------------------------------------


class TestEvents:
    def test_an_event_is_found_by_its_id_and_an_id_is_taken_once(self, open_store: Store) -> None:
        store = open_store
        row = EventRow("e1", 3, "cart.add", 2**52, b"\x00payload")
        store.put_events([row])
        assert store.event("e1") == row
        assert (store.event("E1"), store.event("e")) == (None, None)
        with pytest.raises(StorageError):
            store.put_events([row._replace(seq=4)])

    def test_events_come_by_seq_and_then_by_id_in_pages(self, open_store: Store) -> None:
        store = open_store
        rows = [EventRow(id, seq, "s", 0, b"") for seq, id in ((2, "b"), (1, "z"), (2, "B"), (2, "a"), (10, "a0"))]
        store.put_events(rows)
        ordered = ["z", "B", "a", "b", "a0"]
        assert [row.id for row in store.events_after((0, ""), 10)] == ordered
        seen: list[EventRow] = []
        for _ in range(6):
            after = (seen[-1].seq, seen[-1].id) if seen else (0, "")
            seen += store.events_after(after, 2)
        assert [row.id for row in seen] == ordered

    def test_events_of_a_branch_come_as_they_are_due_and_the_next_time_is_known(self, open_store: Store) -> None:
        store = open_store
        due = {"a": 0, "b": 50, "c": 20, "d": 51}
        store.put_events([EventRow(id, 7 - n, "s", us, b"", 1, 9) for n, (id, us) in enumerate(due.items())])
        store.put_events([EventRow("other", 90, "s", 30, b"", 2, 9)])
        assert [row.id for row in store.events_due(1, 50, (0, ""), 10)] == ["c", "b", "a"]
        assert [row.id for row in store.events_due(1, 50, (5, "c"), 1)] == ["b"]
        assert [row.stored_us for row in store.events_due(2, 50, (0, ""), 1)] == [9]
        assert [store.next_due(1, at) for at in (0, 20, 50, 51)] == [20, 50, 51, None]
        assert (store.last_event(1), store.last_event(2), store.last_event(3)) == (7, 90, 0)

    def test_events_of_a_principal_and_documents_of_a_scope_are_counted(self, open_store: Store) -> None:
        store = open_store
        for number, principal in ((1, "ann"), (2, "ann"), (3, "bob")):
            store.put_session(SessionRow(number, f"s{number}", principal, 0, False, 0, "", 0))
        store.put_events([EventRow(f"e{n}", n, "s", n % 2, b"", 1, 0, 1 + n % 3) for n in range(1, 7)])
        assert [store.count_events(name) for name in ("ann", "bob", "zoe")] == [(4, 2), (2, 1), (0, 0)]
        store.put_docs([(1, DocKey("user:ann", "a")), (2, DocKey("user:ann", "b"))])
        assert [store.count_documents("user:ann", most) for most in (1, 9)] == [1, 2]
        assert store.count_documents("user:bob", 9) == 0

    def test_an_event_is_dropped_on_its_branch_only_and_all_of_a_branch_at_once(self, open_store: Store) -> None:
        store = open_store
        store.put_events([EventRow(f"e{n}", n, "s", 0, b"", 1 + n // 3, 0) for n in range(1, 6)])
        total = store.sum_before(9)
        assert store.drop_event(2, "e1") is None
        dropped = store.drop_event(1, "e1")
        assert dropped is not None
        assert (dropped.seq, dropped.due_us, store.sum_before(9)) == (1, 0, total - dropped.seal)
        assert store.drop_event(1, "e1") is None
        before_5 = store.sum_before(5) - store.sum_before(3)
        assert store.drop_events(2, 5) == before_5
        assert [row.id for row in store.events_after((0, ""), 9)] == ["e2"]

    def test_no_events_at_all_may_be_put(self, open_store: Store) -> None:
        open_store.put_events([])
        assert open_store.events_after((0, ""), 5) == []


def observation(piece: int, member: int, *, branch: int = 1, generation: int = 1, child: str = "") -> ObservationRow:
    return ObservationRow(branch, piece, generation, member, child, 0, b"state", b"body")


class TestObservations:
    def test_a_name_has_one_number_and_numbers_rise(self, open_store: Store) -> None:
        store = open_store
        assert (store.number_of("a"), store.name_of(1)) == (None, None)
        assert [store.add_name(name) for name in ("a", "B", "\u00e4\0x")] == [1, 2, 3]
        assert (store.number_of("\u00e4\0x"), store.name_of(2), store.number_of("b")) == (3, "B", None)
        with pytest.raises(StorageError):
            store.add_name("a")

    def test_names_that_are_not_used_are_dropped_some_at_a_time(self, open_store: Store) -> None:
        store = open_store
        for name in "abcdefg":
            store.add_name(name)
        assert store.drop_names(0, 3, {2, 5}) == (3, 2)
        assert store.drop_names(3, 2, {2, 5}) == (5, 1)
        assert [store.number_of(name) for name in "abcdefg"] == [None, 2, None, None, 5, 6, 7]
        assert store.drop_names(5, 3, {2, 5}) == (None, 2)
        assert store.drop_names(7, 3, set()) == (None, 0)
        store.check(Part.NAMES)
        assert store.add_name("h") == 6, "a number may be given again once nothing uses it"

    def test_an_observation_comes_in_place_of_the_one_before(self, open_store: Store) -> None:
        store = open_store
        row = observation(1, 2, child="k")
        assert store.observation(row.key) is None
        store.put_observations([row], 1)
        again = row._replace(state=b"later", body=b"")
        store.put_observations([again], 0)
        assert store.observation(row.key) == again
        assert store.observation(row.key._replace(child="K")) is None
        store.check(Part.OBSERVATIONS)

    def test_observations_of_a_branch_come_in_the_order_of_their_keys_in_pages(self, open_store: Store) -> None:
        store = open_store
        rows = [observation(p, m, generation=g, child=c) for p in (1, 2) for g in (1, 2) for m in (3, 4) for c in "ab"]
        other = observation(1, 1, branch=2)
        store.put_observations([*reversed(rows), other], len(rows) + 1)
        found: list[ObservationRow] = []
        while page := store.observations_after(found[-1].key if found else NodeNumbers(1, 0, 0, 0, "", 0), 3):
            found += page
        assert found == rows
        assert store.observations_after(NodeNumbers(2, 0, 0, 0, "", 0), 3) == [other]
        for piece in (1, 2, 3):
            before, found = store.visited.rows, [observation(piece, -1, generation=-1, child="")]
            while page := store.observations_after(found[-1].key, 3, in_piece=True):
                found += page
            assert found[1:] == [row for row in rows if row.piece == piece]
            assert store.visited.rows - before == len(found) - 1
        assert [store.newest_generation(1, piece) for piece in (1, 2, 3)] == [2, 2, None]
        assert (store.observed_pieces(1, 0, 5), store.observed_pieces(1, 1, 5)) == ([1, 2], [2])
        assert store.observed_pieces(1, 0, 1) == [1]

    def test_dropped_observations_are_gone_and_those_of_a_branch_with_its_readers(self, open_store: Store) -> None:
        store = open_store
        rows = [observation(1, member, branch=branch) for branch in (1, 2) for member in (1, 2)]
        store.put_observations(rows, 4)
        store.put_readers([ReaderRow(5, branch, 1, 2) for branch in (1, 2)], 2)
        store.drop_observations([rows[0].key, rows[0].key._replace(member=9)])
        assert store.observations_after(NodeNumbers(1, 0, 0, 0, "", 0), 9) == [rows[1]]
        store.drop_observed_branch(2)
        assert store.observations_after(NodeNumbers(2, 0, 0, 0, "", 0), 9) == []
        assert (store.reader(5, 1, 1), store.reader(5, 2, 1)) == (2, 0)
        for part in (Part.OBSERVATIONS, Part.READERS):
            store.check(part)

    def test_readers_are_counted_by_piece_and_found_by_document(self, open_store: Store) -> None:
        store = open_store
        assert not store.has_absent_readers()
        store.put_readers([ReaderRow(7, 1, piece, piece) for piece in (1, 2, 3)], 3)
        assert (store.readers_of(7, 1, 0, 9), store.readers_of(7, 1, 1, 1), store.readers_of(7, 2, 0, 9)) == (
            [1, 2, 3],
            [2],
            [],
        )
        store.put_readers([ReaderRow(7, 1, 2, 0), ReaderRow(7, 1, 3, 9), ReaderRow(-4, 1, 1, 1)], 0)
        assert ([store.reader(7, 1, piece) for piece in (1, 2, 3)], store.count_readers(1)) == ([1, 0, 9], 3)
        assert store.counts_of_readers(1, 1, [7, -4, 9]) == {7: 1, -4: 1}
        assert store.has_absent_readers()
        store.rename_readers({-4: 8, -5: 9})
        assert (store.readers_of(8, 1, 0, 9), store.has_absent_readers()) == ([1], False)
        store.check(Part.READERS)

    def test_heads_and_names_of_many_documents_are_read_at_once(self, open_store: Store) -> None:
        store = open_store
        keys = {number: DocKey("space", f"d{number}") for number in range(1, 1_203)}
        for number, key in keys.items():
            store.put_docs([(number, key)])
        store.put_heads([head_row(1, number, number + 5) for number in keys])
        assert store.head_seqs(1, [*keys, 5_000]) == {number: number + 5 for number in keys}
        assert store.head_seqs(2, keys) == {}
        assert store.keys_of([*keys, 5_000]) == keys
        ids = [key.id for key in keys.values()]
        assert store.written_of(1, "space", [*ids, "none"]) == {f"d{number}": number + 5 for number in keys}
        assert (store.written_of(2, "space", ids), store.written_of(1, "user:ann", ids)) == ({}, {})

    def test_names_of_many_numbers_and_numbers_of_many_names_are_read_at_once(self, open_store: Store) -> None:
        store = open_store
        named = {store.add_name(f"n{number}"): f"n{number}" for number in range(1_100)}
        assert store.names_of([*named, 5_000]) == named
        assert store.numbers_of([*named.values(), "none"]) == {name: number for number, name in named.items()}

    def test_rows_of_several_pieces_are_found_by_what_they_hold(self, open_store: Store) -> None:
        store = open_store
        rows = [observation(piece, 1)._replace(body=b"read %d and" % (piece % 3)) for piece in range(1, 1_300)]
        store.put_observations(rows, len(rows))
        found = store.observations_holding(1, range(1, 1_200), 2_000, [b"read 1", b"d 2 a"])
        assert sorted(found) == [row for row in rows if row.piece < 1_200 and row.piece % 3]
        assert len(store.observations_holding(1, range(1, 1_200), 7, [b"read"])) == 7
        assert store.observations_holding(2, range(1, 1_200), 7, [b"read"]) == []
        wholes = [observation(piece, 9, generation=0) for piece in (3, 5)]
        store.put_observations(wholes, 2)
        assert store.observations_of(1, 9, range(1, 1_200)) == wholes
        assert store.observed_pieces(1, 0, 5_000) == [row.piece for row in rows]

    def test_pieces_are_found_by_what_was_written_of_what_they_read(self, open_store: Store) -> None:
        store = open_store
        store.put_heads([head_row(1, 1, 10), head_row(1, 2, 20), head_row(2, 2, 30)])
        store.put_readers(
            [ReaderRow(1, 1, 4, 1), ReaderRow(2, 1, 4, 2), ReaderRow(1, 1, 5, 3), ReaderRow(9, 1, 6, 1)], 4
        )
        assert [store.readers_met(1, seq) for seq in (0, 10, 20)] == [{4: 20, 5: 10}, {4: 20}, {}]
        assert store.counted_readers(1, 1, range(1, 1_000)) == {4: 1, 5: 3}
        before = store.changes_made
        assert store.changes_made == before
        store.put_readers([ReaderRow(1, 1, 7, 1)], 1)
        assert store.changes_made > before


class TestRecords:
    def test_records_of_a_topic_come_by_seq_and_place_in_pages(self, open_store: Store) -> None:
        store = open_store
        rows = [RecordRow(seq, place, "orders", f"k{seq}", b"p%d" % place) for seq in (1, 2) for place in (0, 1, 2)]
        store.put_records(reversed(rows))
        assert store.records_after("orders", (0, 0), 10) == rows
        assert store.records_after("orders", (1, 1), 2) == rows[2:4]
        assert store.records_after("orders", (2, 2), 2) == []

    def test_topics_are_matched_whole_and_by_case(self, open_store: Store) -> None:
        store = open_store
        store.put_records([RecordRow(1, place, topic, "k", b"") for place, topic in enumerate(["s1", "s12", "S1"])])
        assert [row.topic for row in store.records_after("s1", (0, 0), 10)] == ["s1"]

    def test_a_place_in_a_commit_is_taken_once_per_topic(self, open_store: Store) -> None:
        row = RecordRow(1, 0, "t", "k", b"")
        open_store.put_records([row])
        with pytest.raises(StorageError):
            open_store.put_records([row])
