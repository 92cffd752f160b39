"""What nodes did is kept with their commits, compared with what is there, and never believed further than that."""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec
import pytest

from headwater.data.address import Depth
from headwater.data.patch import increment, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file, verify_store
from headwater.protocol.commit import Commit, EntityAbsent
from headwater.protocol.observations import (
    ForeignRead,
    Observation,
    QueryCurrent,
    QueryObservations,
    QueryWrittenDocuments,
    WrittenDocuments,
)
from headwater.protocol.verdict import Accepted, Rejected
from tests.unit.engine.kit import doc, open_engine, open_store, write
from tests.unit.engine.observing_kit import Runner, backlog, clean, looked, node, observed, readers
from tests.unit.engine.sealing import reseal


@pytest.fixture
def engine() -> Engine:
    return open_engine()


def started(engine: Engine, **docs: object) -> Runner:
    """A runner on a space with some documents, which are written at seq 1."""
    runner = Runner(engine)
    runner.send(Commit(1, tuple(write(id, replace((), value)) for id, value in docs.items())))
    return runner


class TestKeeping:
    def test_a_run_that_writes_is_kept_with_its_commit(self, engine: Engine) -> None:
        runner = started(engine, a={"x": 1})
        run = runner.run("p.total", looked("a", "x", seq=1), local_seq=2, cause=doc("a"), took_us=7, children=("k",))
        runner.send(Commit(2, (write("out", replace((), 1)),), (looked("a", "x", seq=1),)), observed=(run,))
        (known,) = observed(engine)
        assert known.node == node("p.total")
        assert (known.kind, known.fingerprint, known.gate, known.failed) == ("computed", "code", "", "")
        assert (known.cause, known.took_us, known.children) == ((doc("a"), ()), 7, ("k",))
        assert known.reads == (looked("a", "x", seq=2),), "verified where its commit landed"
        assert (known.changed_at, known.verified_at, known.stale) == (2, 2, ())

    def test_a_run_that_changes_nothing_takes_no_seq_and_makes_no_commit(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.observe(runner.run("p.total", looked("a", seq=1)))
        assert engine.last_seq == 1
        assert [logged.seq for logged in engine.changes().items] == [1]
        (known,) = observed(engine)
        assert (known.changed_at, known.verified_at) == (0, 1)
        assert [d.doc.id for d in engine.documents("space").items] == ["a"], "no query of documents shows it"

    def test_the_last_change_is_remembered_by_runs_that_change_nothing(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.send(
            Commit(2, (write("out", replace((), 1)),)), observed=(runner.run("p.n", looked("a", seq=1), local_seq=2),)
        )
        runner.send(Commit(3, (write("a", replace((), 2)),)))
        runner.observe(runner.run("p.n", looked("a", seq=3)))
        (known,) = observed(engine)
        assert (known.changed_at, known.verified_at, known.stale) == (2, 3, ())

    def test_what_was_observed_of_a_rejected_commit_is_dropped(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        run = runner.run("p.n", looked("a", seq=1), local_seq=2)
        (verdict,) = runner.send(Commit(2, preconditions=(EntityAbsent(doc("a")),)), observed=(run,))
        assert isinstance(verdict, Rejected)
        assert observed(engine) == []

    def test_stale_runs_in_a_batch_are_dropped_one_by_one_and_fail_nothing(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1)
        runner.send(Commit(2, (write("a", replace((), 2)),)))
        runs = (
            runner.run("p.stale", looked("a", seq=1)),
            runner.run("p.fresh", looked("a", seq=2), looked("b", seq=2)),
            runner.run("p.half", looked("b", seq=1), looked("a", seq=1)),
        )
        (verdict,) = runner.send(Commit(3, (write("c", replace((), 1)),)), observed=runs)
        assert verdict == Accepted(3, 3)
        assert clean(engine) == {"p.fresh": True}

    def test_a_node_that_writes_what_it_reads_does_not_make_itself_dirty(self, engine: Engine) -> None:
        """I5."""
        runner = started(engine, a={"n": 1})
        run = runner.run("p.n", looked("a", "n", seq=1), local_seq=2)
        runner.send(Commit(2, (write("a", increment(("n",))),), (looked("a", "n", seq=1),)), observed=(run,))
        assert clean(engine) == {"p.n": True}

    def test_a_wave_makes_those_dirty_who_read_what_a_later_commit_of_it_wrote(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1)
        runs = (
            runner.run("p.first", looked("b", seq=1), local_seq=2),
            runner.run("p.second", looked("a", seq=1), looked("x", seq=1, layers=((2, 2),)), local_seq=3),
        )
        runner.send(
            Commit(2, (write("x", replace((), 1)),), (looked("b", seq=1),)),
            Commit(3, (write("b", replace((), 2)),)),
            observed=runs,
        )
        assert clean(engine) == {"p.first": False, "p.second": True}

    def test_a_run_over_a_layer_that_was_not_accepted_is_dropped(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.send(Commit(2, preconditions=(EntityAbsent(doc("a")),)))
        runner.observe(runner.run("p.n", looked("a", seq=1, layers=((2, 2),))))
        assert observed(engine) == []

    def test_an_earlier_run_never_comes_in_place_of_a_later_one(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1)
        early, late = runner.run("p.n", looked("a", seq=1)), runner.run("p.n", looked("b", seq=1))
        runner.observe(late)
        runner.observe(early)
        runner.observe(late)
        assert [each.reads[0].doc.id for each in observed(engine)] == ["b"]
        other = Runner(engine, "t")
        other.observe(other.run("p.n", looked("a", seq=0)))
        assert [each.reads[0].doc.id for each in observed(engine)] == ["b"], "of a session that had seen less"
        other.observe(other.run("p.n", looked("a", seq=1)))
        assert [each.reads[0].doc.id for each in observed(engine)] == ["a"]

    def test_a_replayed_frame_observes_nothing_again(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        run = runner.run("p.n", looked("a", seq=1), local_seq=2)
        frame = Commit(2, (write("out", replace((), 1)),))
        runner.send(frame, observed=(run,))
        late = runner.run("p.n", looked("a", seq=1), fingerprint="other")
        runner.observe(late)
        assert runner.send(frame, observed=(run,)) == (Accepted(2, 2, replayed=True),)
        assert [each.fingerprint for each in observed(engine)] == ["other"]

    def test_a_run_that_failed_is_observed_with_its_error(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1), failed="ValueError:7"))
        assert [each.failed for each in observed(engine)] == ["ValueError:7"]

    def test_nodes_are_told_apart_by_child_scope_and_principal(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        keys = [
            node("p.n"),
            node("p.n", child="k1"),
            node("p.n", child="k2"),
            node("p.n", scope="user", principal="ann"),
            node("p.n", scope="user", principal="bob"),
            node("q.n"),
        ]
        runner.observe(*[runner.run(key, looked("a", seq=1)) for key in keys])
        found = [each.node for each in observed(engine)]
        assert sorted(map(str, found)) == sorted(map(str, keys))

    @pytest.mark.parametrize(
        "run",
        [
            lambda r: r.run("p.n", looked("a", seq=99)),
            lambda r: r.run("p.n", looked("a", seq=1, layers=((1, 10**12),))),
            lambda r: r.run("p.n", looked("a", seq=1, layers=((3, 2),))),
            lambda r: r.run("p." + "n" * 300, looked("a", seq=1)),
            lambda r: r.run(".n", looked("a", seq=1)),
            lambda r: r.run("p.n", *[looked("a", n, seq=1) for n in range(11)]),
            lambda r: r.run("p.n", looked("a" * 300, seq=1)),
            lambda r: r.run("p.n", children=tuple(map(str, range(11)))),
            lambda r: r.run("p.n", looked("a", seq=1), failed="x" * 300),
            lambda r: r.run("p.n", looked("a", seq=1), failed="\ud800"),
            lambda r: r.run("p.n", looked("a", seq=1), foreign=(ForeignRead("x", doc("y"), (-1,), Depth.DEEP, 1),)),
            lambda r: msgspec.structs.replace(r.run("p.n", looked("a", seq=1)), cause=(doc("a"), (1.5,))),
            lambda r: msgspec.structs.replace(r.run("p.n", looked("a", seq=1)), about=b"\xc1"),
            lambda r: msgspec.structs.replace(r.run("p.n", looked("a", seq=1)), footprint=b"\xc1"),
        ],
    )
    def test_what_cannot_be_a_run_is_dropped_and_fails_nothing(self, run: object) -> None:
        store = open_store()
        engine = open_engine(store, limits=Limits(commit_reads=10))
        runner = started(engine, a=1)
        made = run(runner)  # type: ignore[operator]
        assert runner.send(Commit(2), observed=(made,)) == (Accepted(2, 2),)
        assert observed(engine) == []
        attached = msgspec.structs.replace(made, local_seq=3)
        if made.seq <= 2 and not made.layers:  # of what a commit was admitted with, nothing else is compared
            assert runner.send(Commit(3), observed=(attached,)) == (Accepted(3, 3),)
            assert observed(engine) == []
        runner.observe(runner.run("q.n", looked("a", seq=1)))
        assert readers(engine, "a") == ["q"], "nothing of it is counted"
        assert verify_store(store).ok

    def test_a_frame_has_so_many_observations_and_no_more(self) -> None:
        engine = open_engine(limits=Limits(frame_observations=3))
        runner = started(engine, a=1)
        runner.observe(*[runner.run(f"p.n{number}", looked("a", seq=1)) for number in range(5)])
        assert clean(engine) == {"p.n0": True, "p.n1": True, "p.n2": True}

    def test_switched_off_nothing_is_kept_or_served(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        engine = open_engine(path)
        runner = started(engine, a=1)
        runner.observe(runner.run("p.kept", looked("a", seq=1)))
        engine.close()
        engine = Engine(SqliteStore(path, synchronous="OFF"), observes=False)
        runner = Runner(engine, "t")
        runner.observe(runner.run("p.n", looked("a", seq=1)))
        assert (observed(engine), backlog(engine), readers(engine, "a")) == ([], {}, [])
        engine.close()
        engine = open_engine(path)
        assert clean(engine) == {"p.kept": True}, "what was there before is compared as ever"


class TestComparing:
    def test_an_overlapping_write_makes_a_node_dirty_and_an_unrelated_one_does_not(self, engine: Engine) -> None:
        runner = started(engine, a={"x": 1, "y": 1, "l": []}, b=1)
        runner.observe(
            runner.run("p.x", looked("a", "x", seq=1)),
            runner.run("p.y", looked("a", "y", seq=1)),
            runner.run("p.shape", looked("a", seq=1, depth=Depth.SHAPE)),
            runner.run("p.deep", looked("a", seq=1)),
            runner.run("p.b", looked("b", seq=1)),
        )
        runner.send(Commit(2, (write("a", replace(("x",), 2)),)))
        assert clean(engine) == {"p.x": False, "p.y": True, "p.shape": True, "p.deep": False, "p.b": True}
        (stale,) = [each.stale for each in observed(engine) if each.node.member == "x"]
        assert stale == ((0, 2),)

    def test_a_node_that_ran_again_is_clean_and_the_others_stay_dirty(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1)
        runner.observe(
            runner.run("p.both", looked("a", seq=1), looked("b", seq=1)), runner.run("p.a", looked("a", seq=1))
        )
        runner.send(Commit(2, (write("a", replace((), 2)),)), Commit(3, (write("b", replace((), 2)),)))
        runner.observe(runner.run("p.a", looked("a", seq=2)))
        assert clean(engine) == {"p.both": False, "p.a": True}
        (both,) = [each.stale for each in observed(engine) if each.node.member == "both"]
        assert both == ((0, 2), (1, 3)), "each cause for itself"

    def test_a_document_that_was_not_there_is_read_too(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.observe(runner.run("p.n", looked("later", seq=1)), runner.run("q.n", looked("never", seq=1)))
        assert (readers(engine, "later"), readers(engine, "never")) == (["p"], ["q"])
        runner.send(Commit(2, (write("later", replace((), 1)),)))
        assert clean(engine) == {"p.n": False, "q.n": True}
        assert (readers(engine, "later"), readers(engine, "never")) == (["p"], ["q"])
        runner.observe(runner.run("p.n", looked("later", seq=2)))
        assert readers(engine, "later") == ["p"]
        assert clean(engine) == {"p.n": True, "q.n": True}
        runner.observe(runner.run("p.n", looked("a", seq=2)))
        assert readers(engine, "later") == []

    def test_it_is_compared_after_a_restart_a_compaction_and_with_nothing_in_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "s.space"
        limits = Limits(heads_commits=2, cache_bytes=1, cached_observations=1)
        engine = open_engine(path, limits=limits)
        runner = started(engine, a={"x": 1, "y": 1}, b=1)
        runner.observe(runner.run("p.x", looked("a", "x", seq=1)), runner.run("p.y", looked("a", "y", seq=1)))
        for number in range(2, 9):
            runner.send(Commit(number, (write("a", replace(("x",), number)),)))
        expected = {"p.x": False, "p.y": True}
        assert clean(engine) == expected
        engine.acknowledge("s", 8)
        assert engine.compact(6) == 6
        assert clean(engine) == expected
        engine.close()
        assert clean(open_engine(path, limits=limits)) == expected

    def test_reads_of_anybody_can_be_compared(self, engine: Engine) -> None:
        runner = started(engine, a={"x": 1, "y": 1})
        runner.send(Commit(2, (write("a", replace(("x",), 2)),)))
        reads = (looked("a", "x", seq=1), looked("a", "y", seq=1), looked("a", "x", seq=2), looked("none", seq=0))
        current = engine.query_observations(QueryCurrent(3, reads))
        assert (current.id, current.seq, current.stale) == (3, 2, ((0, 2),))  # type: ignore[union-attr]

    def test_reads_of_another_log_are_not_current_whatever_their_numbers_say(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        chain = engine.chain_at(1)
        assert chain is not None
        runner.send(Commit(2, (write("b", replace((), 2)),)))
        reads = (looked("a", seq=1), looked("a", seq=2), looked("a", seq=99))

        def stale(*chains: tuple[int, int]) -> object:
            return engine.query_observations(QueryCurrent(1, reads, chains)).stale  # type: ignore[union-attr]

        assert stale() == ((2, 2),), "this log does not go that far"
        assert stale((1, chain)) == ((2, 2),)
        assert stale((1, chain + 1)) == ((0, 2), (2, 2))

    def test_costs_of_a_commit_do_not_grow_with_its_readers(self) -> None:
        def cost(pieces: int, nodes: int) -> int:
            store = SqliteStore(":memory:", synchronous="OFF")
            runner = started(Engine(store), a=1)
            for piece in range(pieces):
                runner.observe(*[runner.run(f"p{piece}.n{n}", looked("a", seq=1)) for n in range(nodes)])
            runner.send(Commit(2, (write("a", replace((), 2)),)))
            before = store.visited.statements, store.visited.rows
            runner.send(Commit(3, (write("a", replace((), 3)),)))
            return store.visited.statements - before[0] + store.visited.rows - before[1]

        assert cost(100, 100) == cost(0, 0)


class TestPieces:
    def test_the_backlog_says_which_pieces_have_work_why_and_how_much(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1, c=1)
        runner.observe(
            runner.run("p.a", looked("a", seq=1), took_us=10),
            runner.run("p.ab", looked("a", seq=1), looked("b", seq=1), took_us=5),
            runner.run("p.c", looked("c", seq=1), took_us=100),
            runner.run("q.c", looked("c", seq=1), took_us=100),
            runner.run("r.b", looked("b", seq=1), took_us=1),
            runner.run("t.unknown", looked("c", seq=1), fingerprint=""),
        )
        assert backlog(engine).keys() == {"t"}, "what has no fingerprint is never clean"
        runner.send(Commit(2, (write("a", replace((), 2)),)), Commit(3, (write("b", replace((), 2)),)))
        for limit in (1, 2, 100):
            found = backlog(engine, limit=limit)
            assert found.keys() == {"p", "r", "t"}
            assert (found["p"].nodes, found["p"].dirty, found["p"].took_us) == (3, 2, 15)
            assert found["p"].causes == ((doc("b"), 3), (doc("a"), 2))
            assert found["r"].causes == ((doc("b"), 3),)

    def test_a_question_about_one_piece_reads_no_rows_of_others(self) -> None:
        """Opening many pieces one after the other would otherwise read all of them for each."""
        store = open_store()
        engine = open_engine(store)
        runner = started(engine, a=1)
        for number in range(100):
            runner.observe(*[runner.run(f"p{number}.{member}", looked("a", seq=1)) for member in "mn"])
        before = store.visited.rows
        for number in range(100):
            assert [each.node.member for each in observed(engine, f"p{number}")] == ["m", "n"]
        assert store.visited.rows - before <= 100 * 10  # with names and the last writes to what was read

    def test_pages_go_on_where_the_last_one_ended(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        names = [f"p{piece}.m{member}" for piece in range(4) for member in range(3)]
        runner.observe(*[runner.run(name, looked("a", seq=1)) for name in names])
        for limit in (1, 2, 3, 5, 12, 13):
            assert [f"{e.node.piece}.{e.node.member}" for e in observed(engine, limit=limit)] == names
            assert [e.node.member for e in observed(engine, "p2", limit=limit)] == ["m0", "m1", "m2"]
        assert observed(engine, "nowhere") == []
        few = open_engine(limits=Limits(page=2))
        other = started(few, a=1)
        other.observe(*[other.run(name, looked("a", seq=1)) for name in names])
        assert [f"{e.node.piece}.{e.node.member}" for e in observed(few)] == names

    def test_a_query_chooses_by_piece_generation_member_and_child(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        keys = [node("p.m", child=child) for child in ("", "k1", "k2")] + [node("p.n"), node("q.m")]
        runner.observe(*[runner.run(key, looked("a", seq=1)) for key in keys])

        def chosen(**asked: object) -> list[tuple[str, str, str]]:
            page = engine.query_observations(QueryObservations(1, **asked))  # type: ignore[arg-type]
            return [(e.node.piece, e.node.member, e.node.child) for e in page.observed]  # type: ignore[union-attr]

        assert chosen(piece="p", member="m", child="k2") == [("p", "m", "k2")]
        assert chosen(piece="p", member="m") == [("p", "m", ""), ("p", "m", "k1"), ("p", "m", "k2")]
        assert chosen(member="m", child="") == [("p", "m", ""), ("q", "m", "")]
        assert chosen(piece="p", generation=2) == []
        assert chosen(piece="p", generation=1, member="n") == [("p", "n", "")]
        assert chosen(piece="p", generation=1, member="m", child="k1") == [("p", "m", "k1")]
        assert chosen(child="k1") == [("p", "m", "k1")]
        assert chosen(generation=1, limit=2) == [("p", "m", ""), ("p", "m", "k1")]

    def test_a_query_for_one_node_reads_no_other_one(self) -> None:
        store = SqliteStore(":memory:", synchronous="OFF")
        engine = Engine(store)
        runner = started(engine, a=1)
        runner.observe(*[runner.run(node("p.m", child=f"k{n:03}"), looked("a", seq=1)) for n in range(500)])
        before = store.visited.rows
        page = engine.query_observations(QueryObservations(1, "p", 1, "m", "k250", None, 5))
        assert [each.node.child for each in page.observed] == ["k250"]  # type: ignore[union-attr]
        assert store.visited.rows - before < 20

    def test_a_query_chooses_those_that_read_a_document(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1)
        ids = ("a", "b", "never")
        runner.observe(*[runner.run(f"p.{id}{n}", looked(id, seq=1)) for id in ids for n in range(3)])
        for id in ids:
            page = engine.query_observations(QueryObservations(1, "p", reads=doc(id)))
            assert [e.node.member for e in page.observed] == [f"{id}{n}" for n in range(3)]  # type: ignore[union-attr]
        runner.send(Commit(2, (write("never", replace((), 1)),)))
        page = engine.query_observations(QueryObservations(1, reads=doc("never")))
        assert len(page.observed) == 3  # type: ignore[union-attr]

    def test_what_is_known_of_a_generation_is_known_of_a_newer_one_and_the_older_is_not_observed_any_more(
        self, engine: Engine
    ) -> None:
        runner = started(engine, a=1, b=1)
        old = [node(f"p.n{number}") for number in range(3)]
        runner.observe(*[runner.run(key, looked("a", seq=1)) for key in old], runner.run("q.n", looked("a", seq=1)))
        runner.observe(runner.run(node("p.n0", generation=2), looked("b", seq=1)))
        runner.observe(runner.run(old[1], looked("a", seq=1)))
        assert [(e.node.piece, e.node.generation) for e in observed(engine)] == [("p", 2)] * 3 + [("q", 1)]
        assert (readers(engine, "a"), readers(engine, "b")) == (["p", "q"], ["p"])
        assert engine.query_observations(QueryObservations(1, "p", 1)).observed == ()  # type: ignore[union-attr]

    def test_a_node_and_a_piece_can_be_gone(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.observe(*[runner.run(name, looked("a", seq=1)) for name in ("p.n", "p.m", "q.n", "q.m")])
        runner.observe(runner.run("p.n", gone=True), runner.run("q.", gone=True), runner.run("p.none", gone=True))
        assert clean(engine) == {"p.m": True}
        assert readers(engine, "a") == ["p"]
        gone = (runner.run("p.", gone=True), runner.run("p.m", gone=True))
        runner.observe(*gone)
        runner.observe(runner.run("q.n", looked("a", seq=1)), runner.run("p.m", looked("a", seq=1)))
        runner.observe(*gone)
        assert clean(engine) == {"q.n": True, "p.m": True}, "it came back since, and a replay takes nothing away"

    def test_a_name_that_was_first_said_by_what_is_dropped_is_the_same_name_later(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.observe(runner.run(node("p.n", generation=2), looked("a", seq=1)))
        runner.observe(runner.run("p.other", looked("a", seq=1)))
        runner.observe(runner.run(node("q.x"), looked("a", seq=1)), runner.run(node("p.other", generation=2)))
        assert clean(engine) == {"p.n": True, "p.other": True, "q.x": True}

    def test_readers_of_a_document_are_told_by_piece(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1)
        runner.observe(*[runner.run(f"p{n}.{m}", looked("a", seq=1)) for n in range(5) for m in ("x", "y")])
        for limit in (1, 2, 5, 9):
            assert readers(engine, "a", limit=limit) == [f"p{n}" for n in range(5)]
        runner.observe(runner.run("p1.x", looked("b", seq=1)))
        assert readers(engine, "a") == [f"p{n}" for n in range(5)], "its other node still does"
        runner.observe(runner.run("p1.y"), runner.run("p1.x", looked("b", "k", seq=1)))
        assert readers(engine, "a") == ["p0", "p2", "p3", "p4"]
        assert readers(engine, "b") == ["p1"]


class TestMarks:
    def test_every_write_by_anyone_marks_the_pieces_that_read_it(self, engine: Engine) -> None:
        runner = started(engine, a=1, b=1, c=1)
        runner.observe(
            *[runner.run(f"p{n}.x", looked("a", seq=1)) for n in range(3)],
            runner.run("q.x", looked("b", seq=1), looked("later", seq=1)),
        )
        other = Runner(engine, "somebody")
        other.send(Commit(1, (write("c", replace((), 2)),)))
        other.send(Commit(2, (write("a", replace((), 2)),)), Commit(3, (write("later", replace((), 2)),)))
        engine.fork("side")
        other.send(Commit(4, (write("b", replace((), 2)),), branch="side"))
        expected = {("a", 3): ("p0", "p1", "p2"), ("later", 4): ("q",)}
        for limit in (1, 2, 1_000):
            found: dict[tuple[str, int], tuple[str, ...]] = {}
            through: int | None = 1
            while through is not None and through < engine.last_seq:
                page = engine.query_observations(QueryWrittenDocuments(1, through, limit))
                assert isinstance(page, WrittenDocuments)
                found |= {(mark.doc.id, mark.seq): mark.pieces for mark in page.marks}
                through = page.through
            assert found == expected
        assert engine.query_observations(QueryWrittenDocuments(1, engine.last_seq)) == WrittenDocuments(1, 5, (), 5)

    def test_a_mark_is_there_whoever_ran_since(self, engine: Engine) -> None:
        """Marks only point: what is clean by now is for comparison to say."""
        runner = started(engine, a=1)
        runner.observe(runner.run("p.x", looked("a", seq=1)))
        runner.send(Commit(2, (write("a", replace((), 2)),)))
        runner.observe(runner.run("p.x", looked("a", seq=2)))
        page = engine.query_observations(QueryWrittenDocuments(1, 1))
        assert [mark.doc.id for mark in page.marks] == ["a"]  # type: ignore[union-attr]
        assert clean(engine) == {"p.x": True}

    def test_where_history_is_not_kept_every_piece_may_be_concerned(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        for number in range(2, 9):
            runner.send(Commit(number, (write("a", replace((), number)),)))
        engine.acknowledge("s", 8)
        assert engine.compact(5) == 5
        assert engine.query_observations(QueryWrittenDocuments(1, 3)) == WrittenDocuments(1, 8, (), None)
        assert engine.query_observations(QueryWrittenDocuments(1, 4)) == WrittenDocuments(1, 8, (), 8)
        engine.fork("side")
        assert engine.query_observations(QueryWrittenDocuments(1, 4), branch="side") == WrittenDocuments(1, 8, (), None)

    def test_a_document_with_many_readers_says_that_there_are_more(self) -> None:
        engine = open_engine(limits=Limits(query_documents=2))
        runner = started(engine, a=1)
        runner.observe(*[runner.run(f"p{n}.x", looked("a", seq=1)) for n in range(3)])
        runner.send(Commit(2, (write("a", replace((), 2)),)))
        page = engine.query_observations(QueryWrittenDocuments(1, 1))
        assert [(mark.pieces, mark.more) for mark in page.marks] == [(("p0", "p1"), True)]  # type: ignore[union-attr]


class TestBranches:
    def test_a_fork_begins_without_observations_and_merging_or_deleting_it_ends_them(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1)))
        engine.fork("side")
        assert clean(engine, "side") == {}, "nothing is known of its nodes"
        side = Runner(engine, "t", branch="side")
        side.send(Commit(1, (write("a", replace((), 2)),), branch="side"))
        side.observe(side.run("p.n", looked("a", seq=2)), side.run("p.m", looked("a", seq=1)))
        assert (clean(engine), clean(engine, "side")) == ({"p.n": True}, {"p.n": True})
        assert (readers(engine, "a"), readers(engine, "a", "side")) == (["p"], ["p"])
        assert isinstance(engine.merge("side")[1], Accepted)
        assert (clean(engine), clean(engine, "side")) == ({"p.n": False}, {}), "the merge wrote what p.n reads"
        side.observe(side.run("p.n", looked("a", seq=2)))
        assert clean(engine, "side") == {"p.n": True}
        engine.delete_branch("side")
        side.observe(side.run("p.n", looked("a", seq=2)))
        assert clean(engine) == {"p.n": False}

    def test_what_its_parent_writes_after_the_fork_concerns_no_node_of_a_branch(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        engine.fork("side")
        side = Runner(engine, "t", branch="side")
        side.observe(side.run("p.n", looked("a", seq=1)))
        runner.send(Commit(2, (write("a", replace((), 2)),)))
        assert clean(engine, "side") == {"p.n": True}


class TestAcrossSpaces:
    def test_what_was_read_elsewhere_is_kept_with_that_spaces_seq(self, engine: Engine) -> None:
        runner = started(engine, a=1)
        elsewhere = (ForeignRead("other", doc("x"), ("k",), Depth.SHAPE, 9),)
        runner.observe(runner.run("p.n", looked("a", seq=1), foreign=elsewhere))
        assert [each.foreign for each in observed(engine)] == [elsewhere]

    def test_space_that_was_read_says_whether_a_read_still_holds(self, tmp_path: Path) -> None:
        owner, other = open_engine(tmp_path / "owner.space"), open_engine(tmp_path / "other.space")
        there = started(other, x=1)
        here = started(owner, a=1)
        chain = other.chain_at(1)
        run = here.run("p.n", looked("a", seq=1), foreign=(ForeignRead("other", doc("x"), (), Depth.DEEP, 1, chain),))
        here.observe(run)
        owner.close()
        there.send(Commit(2, (write("x", replace((), 2)),)))
        other.close()
        owner, other = open_engine(tmp_path / "owner.space"), open_engine(tmp_path / "other.space")
        (known,) = observed(owner)
        assert known.stale == (), "its own space does not know"
        (read,) = known.foreign
        asked = QueryCurrent(1, (looked("x", seq=read.seq),), ((read.seq, read.chain or 0),))
        assert other.query_observations(asked).stale == ((0, 2),)  # type: ignore[union-attr]


def test_an_observation_says_nothing_of_values() -> None:
    assert set(Observation.__struct_fields__).isdisjoint({"value", "payload", "result", "outputs", "attempted"})


def test_another_runtime_that_found_the_same_writes_nothing() -> None:
    store = open_store()
    engine = open_engine(store)
    runner, other = started(engine, a=1), Runner(engine, "t")
    runner.observe(runner.run("p.n", looked("a", seq=1)))
    rows = store.visited.statements
    other.observe(other.run("p.n", looked("a", seq=1)))
    assert store.visited.statements - rows <= 6, "its transaction, and that nothing was written"
    other.observe(other.run("p.n", looked("a", seq=1), fingerprint="newer"))
    assert [each.fingerprint for each in observed(engine)] == ["newer"], "but what it found otherwise counts"
    elsewhere = (ForeignRead("other", doc("x"), (), Depth.DEEP, 7),)
    runner.observe(runner.run("p.n", looked("a", seq=1), fingerprint="newer", foreign=elsewhere))
    assert [each.foreign for each in observed(engine)] == [elsewhere]


@pytest.mark.parametrize("column", ["state", "body"])
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed again", "seal broken"])
def test_a_row_that_cannot_be_read_is_a_node_of_which_nothing_is_known(
    tmp_path: Path, column: str, sealed: bool
) -> None:
    path = tmp_path / "s.space"
    engine = open_engine(path)
    runner = started(engine, a=1)
    runner.observe(*[runner.run(f"p.{name}", looked("a", seq=1)) for name in ("first", "second", "third")])
    engine.close()
    connection = apsw.Connection(str(path))
    second = "(SELECT number FROM names WHERE name='second')"
    connection.execute(f"UPDATE observations SET {column}=x'c1' WHERE member={second}")
    if sealed:
        reseal(connection)
    connection.close()
    assert not verify_file(path).ok
    engine = open_engine(path)
    assert clean(engine) == {"p.first": True, "p.third": True}
    runner = Runner(engine, "t")
    runner.observe(runner.run("p.second", looked("a", seq=1)))
    assert clean(engine) == {"p.first": True, "p.second": True, "p.third": True}
    runner.observe(runner.run("p.", gone=True))
    assert clean(engine) == {}
