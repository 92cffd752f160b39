"""That all of a piece was clean is believed of whoever had all of it, and no longer than nothing of it is another."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.data.patch import Patch, add, remove, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_store
from headwater.protocol.commit import Commit
from headwater.protocol.observations import (
    MOST_AWAKE,
    WHOLE,
    About,
    AffectedNodes,
    CleanPiece,
    CleanPieces,
    Footprint,
    NodeKey,
    Observation,
    Observations,
    QueryAffectedNodes,
    QueryCleanPieces,
    QueryNodes,
    Touched,
    encode_part,
)
from tests.unit.engine.kit import doc, open_engine, write
from tests.unit.engine.observing_kit import Runner, backlog, looked, node, observed


@pytest.fixture
def engine() -> Engine:
    return open_engine()


def _started(engine: Engine, **docs: object) -> Runner:
    runner = Runner(engine)
    runner.send(Commit(1, tuple(write(id, replace((), value)) for id, value in docs.items())))
    return runner


def _whole(runner: Runner, seq: int, piece: str = "p", fingerprint: str = "all") -> Observation:
    runner.order += 1
    about = encode_part(About(NodeKey(piece, 1, WHOLE), "", fingerprint))
    return Observation(about, encode_part(Footprint()), runner.order, 0, seq)


def _wholes(engine: Engine) -> dict[str, tuple[int, bool]]:
    answer = engine.query_observations(QueryCleanPieces(1))
    assert isinstance(answer, CleanPieces)
    return {each.piece: (each.as_of, each.met) for each in answer.pieces}


def _met(engine: Engine, since: int, *docs: str, made: tuple[str, ...] = (), limit: int = 100) -> list[str] | None:
    question = QueryAffectedNodes(1, "p", since, tuple(map(doc, docs)), tuple(map(doc, made)), limit)
    answer = engine.query_observations(question)
    assert isinstance(answer, AffectedNodes)
    return sorted([each.node.member for each in answer.observed]) if answer.all else None


class TestSaying:
    def test_it_is_kept_as_of_the_seq_that_was_said_and_is_no_node(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1)))
        runner.send(Commit(2, (write("b", replace((), 1)),)))
        runner.observe(_whole(runner, 1))
        answer = engine.query_observations(QueryCleanPieces(1))
        assert answer == CleanPieces(1, 2, (CleanPiece("p", "all", 1, False, 1),))
        assert [each.node.member for each in observed(engine)] == ["n"]
        assert backlog(engine) == {}

    def test_what_is_written_since_is_seen_if_the_piece_reads_it(self, engine: Engine) -> None:
        runner = _started(engine, a={"x": 1, "y": 1}, b=1)
        runner.observe(runner.run("p.n", looked("a", "x", seq=1)), runner.run("q.m", looked("b", seq=1)))
        runner.observe(_whole(runner, 1), _whole(runner, 1, "q"))
        runner.send(Commit(2, (write("b", replace((), 2)),)))
        assert _wholes(engine) == {"p": (1, False), "q": (1, True)}

    def test_whoever_lost_an_observation_is_not_believed(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.run("p.lost", looked("a", seq=1))
        runner.observe(runner.run("p.n", looked("a", seq=1)))
        runner.observe(_whole(runner, 1))
        assert _wholes(engine) == {}

    def test_nor_is_one_whose_observation_was_dropped(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.send(Commit(2, (write("a", replace((), 2)),)))
        runner.observe(runner.run("p.stale", looked("a", seq=1)))
        runner.observe(_whole(runner, 2))
        assert _wholes(engine) == {}

    def test_nor_is_one_that_speaks_of_what_is_to_come_or_without_a_fingerprint(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(_whole(runner, 9))
        assert _wholes(engine) == {}
        other = Runner(engine, "t")
        other.observe(_whole(other, 1, fingerprint=""))
        assert _wholes(engine) == {}

    def test_whoever_says_it_without_a_fingerprint_takes_back_what_was_said_before(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1)))
        runner.observe(_whole(runner, 1))
        assert _wholes(engine) == {"p": (1, False)}
        other = Runner(engine, "t")
        other.observe(_whole(other, 1, fingerprint=""))
        assert _wholes(engine) == {}

    def test_another_session_knows_nothing_of_what_the_first_lost(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1)))
        other = Runner(engine, "t")
        other.observe(_whole(other, 1))
        assert _wholes(engine) == {"p": (1, False)}


class TestForgetting:
    def _said(self, engine: Engine) -> Runner:
        runner = _started(engine, a={"x": 1}, b=1)
        runner.observe(runner.run("p.n", looked("a", "x", seq=1)))
        runner.observe(_whole(runner, 1))
        assert _wholes(engine) == {"p": (1, False)}
        return runner

    def test_a_run_that_leaves_everything_as_it_was_changes_nothing(self, engine: Engine) -> None:
        runner = self._said(engine)
        runner.send(Commit(2, (write("a", replace(("x",), 2)),)))
        runner.observe(runner.run("p.n", looked("a", "x", seq=2)))
        assert _wholes(engine) == {"p": (1, True)}

    def test_other_reads_a_new_node_a_failure_other_code_and_a_node_that_is_gone_end_it(self, engine: Engine) -> None:
        for number, change in enumerate(
            (
                lambda r: r.run("p.n", looked("b", seq=1)),
                lambda r: r.run("p.other", looked("a", "x", seq=1)),
                lambda r: r.run("p.n", looked("a", "x", seq=1), failed="it did"),
                lambda r: r.run("p.n", looked("a", "x", seq=1), fingerprint="other"),
                lambda r: r.run("p.n", looked("a", "x", seq=1), fingerprint=""),
                lambda r: r.run("p.n", looked("a", "x", seq=1), children=("k",)),
                lambda r: r.run("p.n", gone=True),
            )
        ):
            fresh = open_engine()
            runner = self._said(fresh)
            runner.observe(change(runner))  # type: ignore[no-untyped-call]
            assert _wholes(fresh) == {}, number

    def test_one_piece_leaves_another_alone(self, engine: Engine) -> None:
        runner = self._said(engine)
        runner.observe(runner.run("q.m", looked("b", seq=1)))
        assert _wholes(engine) == {"p": (1, False)}

    def _made(self, engine: Engine) -> Runner:
        """A piece that is clean, and its record."""
        runner = _started(engine, **{"a": {"x": 1}, "p:@": {"generation": 1}, "q:@": {"generation": 1}})
        runner.observe(runner.run("p.n", looked("a", "x", seq=1)), runner.run("q.m", looked("a", "x", seq=1)))
        runner.observe(_whole(runner, 1), _whole(runner, 1, "q"))
        return runner

    @pytest.mark.parametrize("patches", [(remove(()),), (remove(()), replace((), {"generation": 1}))])
    def test_whoever_was_there_when_a_piece_was_made_anew_is_not_believed_of_it(
        self, engine: Engine, patches: tuple[Patch, ...]
    ) -> None:
        runner, silent = self._made(engine), Runner(engine, "t")
        runner.send(Commit(2, (write("p:@", *patches),)))
        assert _wholes(engine) == {"q": (1, False)}
        for each in (runner, silent):  # One of its nodes may be clean, and was not told again.
            each.observe(_whole(each, 2), _whole(each, 2, "q"))
            assert _wholes(engine) == {"q": (2, False)}
        other = Runner(engine, "u")
        other.observe(other.run("p.n", looked("a", "x", seq=2)))
        other.observe(_whole(other, 2))
        assert _wholes(engine) == {"p": (2, False), "q": (2, False)}

    def test_another_number_in_a_record_is_no_other_piece(self, engine: Engine) -> None:
        runner = self._made(engine)
        runner.send(Commit(2, (write("p:@", replace(("generation",), 2)),)))
        runner.observe(_whole(runner, 2))
        assert _wholes(engine) == {"p": (2, False), "q": (1, False)}

    def test_if_more_pieces_are_made_anew_than_are_remembered_nobody_who_was_there_is_believed(
        self,
    ) -> None:
        engine = open_engine(limits=Limits(clean_reports=1))
        runner, silent = self._made(engine), Runner(engine, "t")
        runner.send(Commit(2, (write("p:@", remove(())), write("q:@", remove(())))))
        silent.observe(_whole(silent, 2, "p"))
        silent.observe(_whole(silent, 2, "r"))
        assert _wholes(engine) == {}

    def test_it_outlives_the_process_and_verifying_finds_nothing_wrong(self, tmp_path: Path) -> None:
        path = str(tmp_path / "a.space")
        engine = Engine(SqliteStore(path))
        runner = self._said(engine)
        engine.close()
        again = Engine(SqliteStore(path))
        assert _wholes(again) == {"p": (1, False)}
        runner = Runner(again, "s")
        runner.order = 7
        runner.observe(_whole(runner, 1))
        assert _wholes(again) == {"p": (1, False)}, "nobody knows what else it had observed"
        again.close()
        assert verify_store(SqliteStore(path)).ok

    def test_writes_since_a_report_of_any_age_are_found(self) -> None:
        store = SqliteStore(":memory:")
        engine = Engine(store, limits=Limits(page=3))
        runner = self._said(engine)
        for number in range(2, 9):
            runner.send(Commit(number, (write("c", replace((), number)),)))
        assert _wholes(engine) == {"p": (1, False)}
        assert _met(engine, 1) == []
        runner.send(Commit(9, (write("a", replace(("x",), 2)),)))
        for number in range(10, 15):
            runner.send(Commit(number, (write("c", replace((), number)),)))
        assert _wholes(engine) == {"p": (1, True)}
        assert _met(engine, 1) == ["n"]
        engine = Engine(store, limits=Limits(page=3, affected_documents=1))
        assert _wholes(engine) == {"p": (1, True)}, "which pieces those are is one statement, however many"
        assert _met(engine, 1) is None


class TestMeeting:
    def test_only_those_are_found_that_read_what_was_written(self, engine: Engine) -> None:
        runner = _started(engine, a={"x": {"y": 1}, "z": 1}, b=1)
        runner.observe(
            runner.run("p.whole", looked("a", seq=1)),
            runner.run("p.x", looked("a", "x", seq=1)),
            runner.run("p.y", looked("a", "x", "y", seq=1)),
            runner.run("p.deeper", looked("a", "x", "y", "q", seq=1)),
            runner.run("p.z", looked("a", "z", seq=1)),
            runner.run("p.b", looked("b", seq=1)),
        )
        runner.send(Commit(2, (write("a", replace(("x", "y"), 2)),)))
        assert _met(engine, 1) == ["deeper", "whole", "x", "y"]
        assert _met(engine, 2) == []
        assert _met(engine, 1, limit=2) is None, "more than were asked for"

    def test_what_was_never_written_is_found_by_its_first_write(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(runner.run("p.n", looked("new", "x", seq=1)), runner.run("p.m", looked("a", seq=1)))
        runner.send(Commit(2, (write("new", replace((), {"x": 1})),)))
        assert _met(engine, 1) == ["n"]
        runner.send(Commit(3, (write("new", add(("y",), 1)),)))
        assert _met(engine, 2) == []

    def test_readers_of_documents_are_found_but_not_the_one_that_makes_it(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.send(
            Commit(2, (write("out", replace((), 1)),)),
            observed=(runner.run("p.maker", looked("a", seq=1), looked("out", seq=1), local_seq=2),),
        )
        assert _met(engine, 0, "out") == ["maker"]
        assert _met(engine, 0, "out", made=("out",)) == []
        runner.observe(runner.run("p.reader", looked("out", seq=2)))
        assert _met(engine, 0, "out", made=("out",)) == ["maker", "reader"]

    def test_of_several_pieces_it_is_one_question(self, engine: Engine) -> None:
        runner = _started(engine, a={"x": 1, "y": 1}, b=1)
        runner.observe(
            *[runner.run(f"{piece}.x", looked("a", "x", seq=1)) for piece in "pqr"],
            runner.run("q.y", looked("a", "y", seq=1)),
            runner.run("s.b", looked("b", seq=1)),
        )
        assert self._of_all(engine, "q", "r", "s") == []
        runner.send(Commit(2, (write("a", replace(("x",), 2)),)))
        assert self._of_all(engine, "q", "s") == ["p.x", "q.x"]
        runner.send(Commit(3, (write("b", replace((), 2)),)))
        assert self._of_all(engine, "q", "r", "s") == ["p.x", "q.x", "r.x", "s.b"]
        assert self._of_all(engine, "q", "unknown") == ["p.x", "q.x"]
        assert self._of_all(engine, "q", "r", first="unknown") == ["q.x", "r.x"]

    def test_who_makes_a_result_is_told_from_who_reads_it_in_another_piece(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.send(
            Commit(2, (write("p:out", replace((), 1)),)),
            observed=(runner.run("p.maker", looked("a", seq=1), looked("p:out", seq=1), local_seq=2),),
        )
        runner.observe(runner.run("q.reader", looked("p:out", seq=2)))
        runner.send(Commit(3, (write("p:out", replace((), 2)),)))
        assert self._of_all(engine, "q", made=("p:out",), since=2) == ["q.reader"]

    def _of_all(
        self, engine: Engine, *also: str, first: str = "p", made: tuple[str, ...] = (), since: int = 1
    ) -> list[str]:
        answer = engine.query_observations(QueryAffectedNodes(1, first, since, (), tuple(map(doc, made)), 100, also))
        assert isinstance(answer, AffectedNodes)
        assert answer.all
        return sorted([f"{each.node.piece}.{each.node.member}" for each in answer.observed])

    def test_nodes_are_asked_for_by_name(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1)), runner.run("p.m", looked("a", seq=1)))
        answer = engine.query_observations(QueryNodes(1, (node("p.n"), node("p.unknown"), node("q.n"))))
        assert isinstance(answer, Observations)
        assert [each.node.member for each in answer.observed] == ["n"]

    def test_switched_off_nothing_is_known(self) -> None:
        engine = Engine(SqliteStore(":memory:"), observes=False)
        assert _wholes(engine) == {}
        assert _met(engine, 0) is None


class TestAwake:
    def _said(self, runner: Runner, seq: int, *names: str) -> Observation:
        runner.order += 1
        about = encode_part(About(NodeKey("p", 1, WHOLE), "", "all"))
        return Observation(about, encode_part(Footprint((), names)), runner.order, 0, seq)

    def test_what_has_to_be_there_nevertheless_is_answered_as_it_was_said(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1)), self._said(runner, 1, "n", "m"))
        answer = engine.query_observations(QueryCleanPieces(1))
        assert answer == CleanPieces(1, 1, (CleanPiece("p", "all", 1, False, 1, ("n", "m")),))
        runner.observe(self._said(runner, 1))
        assert engine.query_observations(QueryCleanPieces(1)) == CleanPieces(
            1, 1, (CleanPiece("p", "all", 1, False, 1),)
        )

    @pytest.mark.parametrize("names", [("n",) * (MOST_AWAKE + 1), ("n" * 5_000,)], ids=["many", "long"])
    def test_what_cannot_be_kept_leaves_nothing_that_was_said_before(
        self, engine: Engine, names: tuple[str, ...]
    ) -> None:
        runner = _started(engine, a=1)
        runner.observe(runner.run("p.n", looked("a", seq=1)), self._said(runner, 1, "n"))
        assert _wholes(engine) == {"p": (1, False)}
        runner.observe(self._said(runner, 1, *names))
        assert _wholes(engine) == {}


class TestGoneBelow:
    def _gone(self, runner: Runner, child: str) -> Observation:
        runner.order += 1
        return Observation(encode_part(About(NodeKey("p", 1, "", child))), b"", runner.order, 0, 1, gone=True)

    def _of(self, runner: Runner, child: str) -> Observation:
        about = encode_part(About(NodeKey("p", 1, "n", child), "", "code"))
        runner.order += 1
        return Observation(about, encode_part(Footprint((Touched(doc("a")),))), runner.order, 0, 1)

    def test_one_that_is_gone_twice_takes_no_other_reader_along(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(self._of(runner, "p/c/1/d/2"), self._of(runner, ""))
        runner.observe(self._gone(runner, "p/c/1"), self._gone(runner, "p/c/1/d/2"), self._gone(runner, "p/c/1"))
        runner.send(Commit(2, (write("a", replace((), 2)),)))
        assert _met(engine, 1) == ["n"]

    def test_nothing_of_it_is_found_by_what_it_read(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(self._of(runner, "p/c/1"))
        runner.observe(self._gone(runner, "p/c/1"))
        runner.send(Commit(2, (write("a", replace((), 2)),)))
        assert _met(engine, 1) == []
        assert backlog(engine) == {}
