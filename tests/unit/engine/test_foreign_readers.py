"""Mirrors: a piece of another space is found by what it reads here; what is read elsewhere is known to its owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.data.patch import append, replace
from headwater.engine.admission.access import ACCESS
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.messages import ObservationQuestion, Problem
from headwater.protocol.mirrors import Abroad, Mirror, Mirrored, QueryElsewhere, QueryMirrors, ReadElsewhere
from headwater.protocol.observations import Current, ForeignRead, NodeKey, QueryCurrent
from headwater.server.sync.backpressure import fit_message
from tests.unit.engine.hub_kit import Raw, put
from tests.unit.engine.kit import doc, open_engine, open_store, write
from tests.unit.engine.observing_kit import DEEP, Runner, looked, marked
from tests.unit.replica.kit import World


@pytest.fixture
def store() -> SqliteStore:
    return open_store()


@pytest.fixture
def engine(store: SqliteStore) -> Engine:
    return open_engine(store)


def say(engine: Engine, docs: dict[str, int], *, at: int | None = None, piece: str = "p", branch: str = "main") -> None:
    read = tuple((doc(id), seq) for id, seq in docs.items())
    assert isinstance(engine.query_observations(Mirror(1, "other", piece, read, branch, at)), Mirrored)


def written(engine: Engine, *ids: str) -> Runner:
    runner = Runner(engine)
    for number, id in enumerate(ids, 1):
        runner.send(Commit(number, (write(id, replace((), number)),)))
    return runner


class TestWhatIsSaid:
    def test_what_is_said_later_comes_in_place_of_what_was_said_before(self, engine: Engine) -> None:
        written(engine, "a", "b")
        say(engine, {"a": 0, "b": 0}, at=3)
        assert marked(engine, "other") == [("p", "a", 1), ("p", "b", 2)]
        say(engine, {"b": 0}, at=4)
        assert marked(engine, "other") == [("p", "b", 2)]
        say(engine, {}, at=5)
        assert marked(engine, "other") == []

    @pytest.mark.parametrize("at", [4, 3])
    def test_what_is_said_late_is_added(self, engine: Engine, at: int) -> None:
        """Two runtimes speak for a piece, and either may have seen more of its nodes: none takes away a reader."""
        written(engine, "a", "b", "c")
        say(engine, {"a": 2, "b": 1}, at=4)
        say(engine, {"a": 0, "c": 9}, at=at)
        assert marked(engine, "other") == [("p", "a", 1), ("p", "b", 2)]
        say(engine, {}, at=at)
        assert marked(engine, "other") == [("p", "a", 1), ("p", "b", 2)]
        say(engine, {"c": 0}, at=5)
        assert marked(engine, "other") == [("p", "c", 3)]

    def test_what_is_added_is_bounded(self) -> None:
        engine = open_engine(limits=Limits(commit_reads=3))
        written(engine, "a", "b", "c", "d")
        say(engine, {"a": 0, "b": 0}, at=4)
        say(engine, {"c": 0, "d": 0}, at=4)
        assert marked(engine, "other") == [("p", "c", 3), ("p", "d", 4)], "what was said last is always known"

    def test_branches_of_the_owner_are_apart(self, engine: Engine) -> None:
        written(engine, "a")
        say(engine, {"a": 0}, branch="draft")
        assert marked(engine, "other") == []
        assert marked(engine, "other", owner_branch="draft") == [("p", "a", 1)]
        say(engine, {}, at=1)
        assert marked(engine, "other", owner_branch="draft") == [("p", "a", 1)]

    def test_a_mirror_that_cannot_be_read_is_written_anew(self, engine: Engine, store: SqliteStore) -> None:
        written(engine, "a")
        say(engine, {"a": 0}, at=9)
        owner, piece = store.number_of("other"), store.number_of("p")
        assert owner is not None
        assert piece is not None
        (row,) = store.mirrors_after(1, owner, 0, 9)
        store.begin()
        store.put_mirror(row._replace(body=b"\xc1"))
        store.commit()
        assert marked(engine, "other") == []
        say(engine, {"a": 0}, at=1)
        assert marked(engine, "other") == [("p", "a", 1)]

    def test_taking_away_what_is_not_there_leaves_no_name(self, engine: Engine, store: SqliteStore) -> None:
        say(engine, {}, at=1)
        assert store.number_of("other") is None

    def test_a_branch_that_is_deleted_takes_what_was_read_of_it_along(self, engine: Engine, store: SqliteStore) -> None:
        written(engine, "a")
        engine.fork("draft")
        engine.query_observations(Mirror(1, "other", "p", ((doc("a"), 1),)), branch="draft")
        say(engine, {"a": 0})
        Runner(engine, "t", branch="draft").send(Commit(1, (write("a", replace((), 2)),), branch="draft"))
        assert marked(engine, "other", "draft") == [("p", "a", 2)]
        engine.delete_branch("draft")
        assert (store.mirror_owners(1), store.mirror_owners(2)) == ([store.number_of("other")], [])
        assert marked(engine, "other") == [("p", "a", 1)]

    def test_a_space_that_nobody_wrote_yet_knows_who_reads_it(self, tmp_path: Path) -> None:
        """Whoever writes it first finds them, in whatever process."""
        with Directory(tmp_path) as directory:
            say(directory.space("rates"), {}, at=1)
            assert directory.spaces() == []
            say(directory.space("rates"), {"a": 0}, at=2)
            assert directory.spaces() == ["rates"]
        with Directory(tmp_path) as directory:
            engine = directory.space("rates")
            written(engine, "a")
            assert marked(engine, "other") == [("p", "a", 1)]
        assert verify_file(tmp_path / "rates.space").ok


class TestWhatIsReadElsewhere:
    def test_all_that_the_nodes_of_a_piece_read_and_the_earliest_seq(self, engine: Engine) -> None:
        runner = Runner(engine)
        runner.observe(
            runner.run("p.one", foreign=(foreign("b", "x", 7), foreign("b", "y", 7))),
            runner.run("p.two", foreign=(foreign("b", "x", 5), foreign("c", "x", 9), foreign("c", "x", 9, "draft"))),
            runner.run("q.one", foreign=(foreign("d", "z", 1),)),
            runner.run("r.one"),
        )
        assert elsewhere(engine, "p") == {
            Abroad("b", "main", doc("x"), 5),
            Abroad("b", "main", doc("y"), 7),
            Abroad("c", "main", doc("x"), 9),
            Abroad("c", "draft", doc("x"), 9),
        }
        assert elsewhere(engine, "q") == {Abroad("d", "main", doc("z"), 1)}
        assert elsewhere(engine, "r") == elsewhere(engine, "unknown") == set()
        runner.observe(runner.run("p.two", foreign=()))
        assert elsewhere(engine, "p") == {Abroad("b", "main", doc("x"), 7), Abroad("b", "main", doc("y"), 7)}

    @pytest.mark.parametrize("limit", [1, 3, 10_000])
    def test_pages_end_between_nodes(self, engine: Engine, limit: int) -> None:
        runner = Runner(engine)
        for number in range(7):
            runner.observe(runner.run(f"p.n{number}", foreign=(foreign("b", f"d{number}", number),)))
        runner.observe(runner.run("q.n", foreign=(foreign("b", "other", 1),)))
        assert elsewhere(engine, "p", limit) == {Abroad("b", "main", doc(f"d{n}"), n) for n in range(7)}

    def test_switched_off_nothing_is_said(self) -> None:
        engine = Engine(open_store(), observes=False)
        assert elsewhere(engine, "p") == set()


def foreign(space: str, id: str, seq: int, branch: str = "main") -> ForeignRead:
    return ForeignRead(space, doc(id), (), DEEP, seq, 1, branch)


def elsewhere(engine: Engine, piece: str, limit: int = 100) -> set[Abroad]:
    found: dict[tuple[str, str, object], Abroad] = {}
    after: NodeKey | None = None
    while True:
        page = engine.query_observations(QueryElsewhere(1, piece, after, limit))
        assert isinstance(page, ReadElsewhere)
        for each in page.docs:
            known = found.get(each_key := (each.space, each.branch, each.doc))
            found[each_key] = each if known is None or each.seq < known.seq else known
        if page.next is None:
            return set(found.values())
        after = page.next


class TestRights:
    def test_who_may_ask_and_who_may_say(self) -> None:
        world = World(access=True)
        ann = Raw(world, "ann-session", principal="ann")
        ann.write(1, put("d", 1))
        ann.write(2, Operation(ACCESS, (append(("readers",), ["rob"]), append(("writers",), ["will"]))))
        will, rob = Raw(world, "will-session", principal="will"), Raw(world, "rob-session", principal="rob")
        eve = Raw(world, "eve-session", principal="eve")
        current = QueryCurrent(9, (looked("d", seq=2),))
        private = QueryCurrent(9, (Read(doc("d")._replace(scope="user:ann"), (), DEEP, 2),))
        mirror, mirrors = Mirror(9, "other", "p", ((doc("d"), 2),)), QueryMirrors(9, "other")
        abroad = QueryElsewhere(9, "p")
        expected: dict[Raw, tuple[type, ...]] = {
            ann: (Current, Current, Mirrored, Mirrored, ReadElsewhere),
            will: (Current, Problem, Mirrored, Mirrored, Problem),
            rob: (Current, Problem, Problem, Problem, Problem),
        }
        for raw, kinds in expected.items():
            questions: tuple[ObservationQuestion, ...] = (current, private, mirror, mirrors, abroad)
            for question, kind in zip(questions, kinds, strict=True):
                (answer,) = raw.say(question)
                assert type(answer) is kind, f"{raw.peer.principal} asks {type(question).__name__}"
                assert not isinstance(answer, Problem) or (answer.code, answer.id) == ("access", 9)
        assert "may use its mirrors" in rob.say(mirror)[0].message  # type: ignore[union-attr]
        assert not [answer for answer in eve.say(current) if isinstance(answer, Current)]

    def test_a_mirror_has_bounds(self) -> None:
        world = World(limits=Limits(commit_reads=2))
        raw = Raw(world, "s")
        many = Mirror(9, "other", "p", tuple((doc(str(n)), 0) for n in range(3)))
        long = Mirror(9, "other", "p" * 600, ((doc("d"), 0),))
        for said, text in ((many, "at most 2 documents"), (long, "a name that is over 256 long")):
            (answer,) = raw.say(said)
            assert isinstance(answer, Problem)
            assert text in answer.message

    def test_an_answer_that_is_too_long_says_so(self) -> None:
        answer = ReadElsewhere(9, 1, tuple(Abroad("b", "main", doc(f"document {n}"), 1) for n in range(100)))
        message, data = fit_message(answer, "msgpack", 500)
        assert isinstance(message, Problem)
        assert "100 documents of another space are over 500 bytes" in message.message
        assert len(data) < 500
        assert fit_message(answer, "msgpack", 50_000)[0] is answer
