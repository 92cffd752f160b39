"""Reads now, at a seq and on a branch; and every listing in pages that join without a gap."""

from __future__ import annotations

import pytest

from headwater.data.patch import append, remove, replace
from headwater.data.value import ABSENT
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.commit import Operation
from tests.unit.engine.kit import Writer, doc, open_engine, read, value_of, write


def all_documents(engine: Engine, *, limit: int, branch: str = "main", scope: str = "space") -> list[str]:
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = engine.documents(scope, branch=branch, after=cursor, limit=limit)
        assert len(page.items) <= limit
        found += [document.doc.id for document in page.items]
        cursor = page.next
    return found


class TestOneDocument:
    def test_what_was_never_written_is_absent_at_any_time(self) -> None:
        engine = open_engine()
        Writer(engine, "ann").lands(write("other", replace((), 1)))
        for at in (None, 0, 1):
            document = engine.read(doc("d"), at=at)
            assert (document.value, document.seq) == (ABSENT, 0)

    def test_null_is_a_value_and_absence_is_not(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), None)))
        assert value_of(engine, "d") is None
        ann.lands(write("d", remove(())))
        assert value_of(engine, "d") is ABSENT

    def test_the_seq_is_the_last_write_s_also_where_it_was_inherited(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        wrote = ann.lands(write("d", replace((), 1)))
        ann.lands(write("e", replace((), 1)))
        engine.fork("b")
        assert engine.read(doc("d"), branch="b").seq == wrote
        assert engine.read(doc("d"), branch="b", at=2).seq == wrote

    def test_scopes_keep_documents_apart(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        for scope in ("space", "user:ann", "user:Ann", "session:1"):
            ann.lands(Operation(doc("d", scope), (replace((), scope),)))
        assert engine.read(doc("d", "user:ann")).value == "user:ann"
        assert engine.read(doc("d", "user:Ann")).value == "user:Ann"

    @pytest.mark.parametrize("at", [-1, 2, 10**9])
    def test_a_moment_that_does_not_exist(self, at: int) -> None:
        engine = open_engine()
        Writer(engine, "ann").lands(write("d", replace((), 1)))
        with pytest.raises(AbsentError, match=f"there is no seq {at}: the log of this space ends at 1"):
            engine.read(doc("d"), at=at)


class TestDocumentsOfAScope:
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    def test_pages_join_without_a_gap_or_a_repeat(self, limit: int) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        names = [f"d{number:02}" for number in range(20)]
        for name in reversed(names):
            ann.lands(write(name, replace((), name)))
        assert all_documents(engine, limit=limit) == names

    def test_deleted_documents_are_left_out_and_pages_go_on(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        for number in range(10):
            ann.lands(write(f"d{number}", replace((), number)))
        for number in range(3, 9):
            ann.lands(write(f"d{number}", remove(())))
        assert all_documents(engine, limit=2) == ["d0", "d1", "d2", "d9"]

    def test_a_branch_lists_what_it_inherited_and_what_it_made(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(write("a", replace((), 1)), write("b", replace((), 1)))
        engine.fork("dev")
        ann.lands(write("c", replace((), 1)), write("a", remove(())), branch="dev")
        ann.lands(write("z", replace((), 1)))
        assert all_documents(engine, limit=1, branch="dev") == ["b", "c"]
        assert all_documents(engine, limit=1) == ["a", "b", "z"]

    def test_another_scope_is_another_list(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        ann.lands(Operation(doc("x", "user:ann"), (replace((), 1),)), write("y", replace((), 1)))
        assert all_documents(engine, limit=5, scope="user:ann") == ["x"]
        assert all_documents(engine, limit=5, scope="user:an") == []

    def test_a_page_is_bounded_whatever_was_asked_for(self) -> None:
        engine = open_engine(limits=Limits(page=4))
        ann = Writer(engine, "ann")
        for number in range(10):
            ann.lands(write(f"d{number}", replace((), number)))
        assert len(engine.documents("space").items) == 4
        assert len(engine.documents("space", limit=100).items) == 4
        assert len(engine.changes(limit=100).items) == 4

    def test_a_page_holds_at_least_one(self) -> None:
        engine = open_engine()
        for limit in (0, -5):
            with pytest.raises(AuthoringError, match=f"a page holds at least one row, not {limit}"):
                engine.documents("space", limit=limit)
            with pytest.raises(AuthoringError, match=f"a page holds at least one row, not {limit}"):
                engine.changes(limit=limit)


class TestChanges:
    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    def test_pages_join_over_waves_and_branches(self, limit: int) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        engine.fork("dev")
        for number in range(6):
            branch = "dev" if number % 3 == 2 else "main"
            wave = [ann.commit(write("d", append((), [number, n])), branch=branch) for n in range(1 + number % 3)]
            engine.submit("ann", *wave)
        for name, expected in (
            (None, list(range(1, 13))),
            ("dev", [4, 5, 6, 10, 11, 12]),
            ("main", [1, 2, 3, 7, 8, 9]),
        ):
            found: list[int] = []
            cursor: int | None = 0
            while cursor is not None:
                page = engine.changes(since=cursor, branch=name, limit=limit)
                assert len(page.items) <= limit
                found += [change.seq for change in page.items]
                cursor = int(page.next) if page.next is not None else None
            assert found == expected

    def test_a_change_is_the_commit_that_was_sent(self) -> None:
        engine = open_engine()
        ann = Writer(engine, "ann")
        commit = ann.commit(write("d", replace((), {"a": [1, {"b": b"x"}]})), reads=[read("d", seq=0)], node="N")
        engine.submit("ann", commit)
        (change,) = engine.changes().items
        assert (change.seq, change.session, change.commit) == (1, "ann", commit)

    def test_since_the_end_or_past_it_there_is_nothing(self) -> None:
        engine = open_engine()
        Writer(engine, "ann").lands(write("d", replace((), 1)))
        for since in (1, 2, 99):
            page = engine.changes(since=since)
            assert (page.items, page.next) == ((), None)

    @pytest.mark.parametrize("since", [-1, -5, 2**53, 2**70])
    def test_a_seq_that_cannot_be_is_a_mistake_and_says_nothing_of_compaction(self, since: int) -> None:
        engine = open_engine()
        Writer(engine, "ann").lands(write("d", replace((), 1)))
        with pytest.raises(AuthoringError, match=f"changes are read since a seq from 0 to {2**53 - 1}, not {since}"):
            engine.changes(since=since)

    def test_a_branch_that_is_not_there(self) -> None:
        with pytest.raises(AbsentError, match="branch 'gone' does not exist"):
            open_engine().changes(branch="gone")


class TestCurrency:
    def test_reads_are_current_exactly_when_they_would_be_admitted(self) -> None:
        engine = open_engine()
        ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
        basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
        session = engine.session("ann")
        on_x, on_y = read("d", ("x",), seq=basis), read("d", ("y",), seq=basis)
        assert engine.is_current(session, (on_x, on_y))
        bob.lands(write("d", replace(("x",), 1)))
        assert not engine.is_current(session, (on_x, on_y))
        assert engine.is_current(session, (on_y,))
