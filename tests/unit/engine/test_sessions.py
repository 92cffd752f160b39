"""Sessions number their commits, remember verdicts within bounds and find the rest in the log."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.data.patch import append, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.errors import HeadwaterError, ProtocolError
from headwater.protocol.commit import Commit, OriginCommitted
from headwater.protocol.reactions import Claim
from headwater.protocol.verdict import Accepted, Conflict, Rejected
from tests.unit.engine.kit import Writer, conflict_of, open_engine, read, seq_of, value_of, write


def test_opening_a_session_twice_finds_the_same_one() -> None:
    engine = open_engine()
    assert engine.open_session("s").id == engine.open_session("s").id
    assert engine.open_session("other").id != engine.open_session("s").id


def test_numbers_are_never_given_twice_also_after_a_restart(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    first = engine.open_session("a").id
    engine.close()
    again = open_engine(tmp_path / "s.space")
    assert (again.open_session("b").id, again.open_session("a").id) == (first + 1, first)


def test_an_unknown_session_may_not_write_and_is_told_to_open() -> None:
    with pytest.raises(ProtocolError, match=r"there is no session 'ghost' in this space\. Open it first\."):
        open_engine().submit("ghost", Commit(1))


def test_a_session_belongs_to_who_opened_it() -> None:
    engine = open_engine()
    engine.open_session("s", "ann")
    with pytest.raises(ProtocolError, match="session 's' is not yours, or its token was used before"):
        engine.open_session("s", "bob")
    assert engine.open_session("s", "ann").principal == "ann"


def test_a_closed_session_stays_closed() -> None:
    engine = open_engine()
    writer = Writer(engine, "s")
    writer.lands(write("d", replace((), 1)))
    engine.close_session("s", 1)
    with pytest.raises(ProtocolError, match=r"session 's' was closed\. Open a new one under another key\."):
        engine.open_session("s")
    with pytest.raises(ProtocolError, match="session 's' was closed"):
        writer.send(write("d", replace((), 2)))
    assert value_of(engine, "d") == 1


@pytest.mark.parametrize("local_seq", [-1, 2**53])
def test_a_number_that_no_commit_can_have_is_not_acknowledged(local_seq: int) -> None:
    engine = open_engine()
    engine.open_session("s")
    with pytest.raises(ProtocolError, match=f"session 's' acknowledges commit {local_seq}, which cannot exist"):
        engine.acknowledge("s", local_seq)


def test_an_acknowledged_number_is_over_even_if_its_verdict_was_forgotten(tmp_path: Path) -> None:
    """C6: the client has a verdict for it, so it is not judged again, whatever a restart forgot."""
    engine = open_engine(tmp_path / "s.space")
    conflict_of(Writer(engine, "s").send(write("d", replace(("x",), 1))))
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    engine.acknowledge("s", 1)
    assert engine.session("s").last == 1


def test_acknowledging_less_than_before_changes_nothing() -> None:
    engine = open_engine()
    writer = Writer(engine, "s")
    for number in range(3):
        writer.lands(write("d", replace((), number)))
    engine.acknowledge("s", 3)
    engine.acknowledge("s", 1)
    assert engine.open_session("s").row.acked == 3


def test_a_rejected_commit_can_be_acknowledged_too() -> None:
    engine = open_engine()
    writer = Writer(engine, "s")
    conflict_of(writer.send(write("d", replace(("x",), 1))))
    engine.acknowledge("s", 1)


def test_a_rejection_is_repeated_word_for_word_while_it_is_remembered() -> None:
    engine = open_engine()
    writer = Writer(engine, "s")
    doomed = writer.commit(write("d", replace(("x",), 1)))
    first = engine.submit("s", doomed)
    Writer(engine, "t").lands(write("d", replace((), {"x": 0})))  # now it would apply
    assert engine.submit("s", doomed) == first


def test_a_rejection_past_the_memory_is_still_a_rejection() -> None:
    engine = open_engine(limits=Limits(session_rejections=2))
    writer = Writer(engine, "s")
    doomed = [writer.commit(write("d", replace(("x",), n))) for n in range(5)]
    for commit in doomed:
        conflict_of(engine.submit("s", commit)[0])
    Writer(engine, "t").lands(write("d", replace((), {"x": 0})))
    verdict = engine.submit("s", doomed[0])[0]
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.rejection, Conflict)
    assert value_of(engine, "d") == {"x": 0}


MISTAKES: dict[str, Callable[[Engine], object]] = {
    "fork": lambda engine: engine.fork("NOT A NAME"),
    "delete": lambda engine: engine.delete_branch("main"),
    "diff": lambda engine: engine.diff("main"),
    "merge": lambda engine: engine.merge("main"),
    "merge-too-large": lambda engine: engine.merge("b"),
    "acknowledge": lambda engine: engine.acknowledge("s", -1),
    "open": lambda engine: engine.open_session("s", "somebody else"),
    "close": lambda engine: engine.close_session("ghost", 0),
    "lease": lambda engine: engine.deliver(Claim(1, "me", ("r",), lease_us=0)),
    "name": lambda engine: engine.open_session("\ud800"),
    "submit": lambda engine: engine.submit("s"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_rejection_is_not_turned_round_by_somebody_else_s_mistake(mistake: str) -> None:
    """C6: an unrelated call that fails must not make the engine forget a verdict that left, or anything else."""
    engine = open_engine(limits=Limits(commit_operations=1))
    writer, other = Writer(engine, "s"), Writer(engine, "t")
    engine.fork("b")
    for id in ("m", "n"):
        other.lands(write(id, replace((), 1)), branch="b")
    doomed = writer.commit(write("d", replace(("x",), 1)))
    conflict_of(engine.submit("s", doomed)[0])
    with pytest.raises(HeadwaterError):
        MISTAKES[mistake](engine)
    assert (engine.last_seq, value_of(engine, "n", branch="b")) == (2, 1)
    other.lands(write("d", replace((), {"x": 0})))
    assert isinstance(engine.submit("s", doomed)[0], Rejected)
    assert value_of(engine, "d") == {"x": 0}


def test_accepted_commits_past_the_memory_are_found_in_the_log() -> None:
    engine = open_engine(limits=Limits(session_commits=2))
    writer = Writer(engine, "s")
    sent = [writer.commit(write("d", append((), [n]))) for n in range(6)]
    for commit in sent:
        engine.submit("s", commit)
    assert [engine.submit("s", commit)[0] for commit in sent] == [Accepted(n, n, replayed=True) for n in range(1, 7)]
    assert isinstance(writer.send(preconditions=[OriginCommitted(1)]), Accepted)


def test_the_least_recently_used_session_is_let_go_and_found_again() -> None:
    engine = open_engine(limits=Limits(cached_sessions=2))
    writers = [Writer(engine, f"s{n}") for n in range(5)]
    for _ in range(3):
        for writer in writers:
            writer.lands(write("d", append((), [writer.key])))
    assert len(value_of(engine, "d") or ()) == 15  # type: ignore[arg-type]


class TestRejectionsOutliveTheCache:
    """C6: a session that is pushed out of memory is found again, and its rejections are rejections still."""

    @staticmethod
    def doomed(engine: Engine, key: str = "s") -> Commit:
        """A commit of a session that was rejected, and would be accepted if it were judged again now."""
        engine.open_session(key)
        commit = Commit(1, (write(key, replace(("x",), 1)),))
        conflict_of(engine.submit(key, commit)[0])
        return commit

    @staticmethod
    def make_it_fit(engine: Engine, *keys: str) -> None:
        Writer(engine, "maker").lands(*(write(key, replace((), {"x": 0})) for key in keys))

    @pytest.mark.parametrize("sessions", [1, 2, 50])
    def test_opening_others_turns_no_rejection_round(self, sessions: int) -> None:
        engine = open_engine(limits=Limits(cached_sessions=1))
        commit = self.doomed(engine)
        for number in range(sessions):
            engine.open_session(f"other{number}")
        self.make_it_fit(engine, "s")
        assert isinstance(engine.submit("s", commit)[0], Rejected)
        assert value_of(engine, "s") == {"x": 0}

    def test_nor_with_the_limits_that_everybody_has(self) -> None:
        engine = open_engine()
        commit = self.doomed(engine)
        for number in range(DEFAULT_LIMITS.cached_sessions + 1):
            engine.open_session(f"other{number}")
        self.make_it_fit(engine, "s")
        assert isinstance(engine.submit("s", commit)[0], Rejected)

    def test_nor_do_others_that_are_only_looked_at(self) -> None:
        engine = open_engine(limits=Limits(cached_sessions=1))
        for number in range(3):
            engine.open_session(f"other{number}")
        commit = self.doomed(engine)
        for number in range(3):
            engine.session(f"other{number}")
        self.make_it_fit(engine, "s")
        assert isinstance(engine.submit("s", commit)[0], Rejected)

    def test_several_rejected_in_one_group_are_kept_although_only_one_has_room(self) -> None:
        engine = open_engine(limits=Limits(cached_sessions=1))
        keys = [f"s{number}" for number in range(5)]
        for key in keys:
            engine.open_session(key)
        batch = [(key, (Commit(1, (write(key, replace(("x",), 1)),)),)) for key in keys]
        for outcome in engine.submit_group(batch):
            assert isinstance(outcome, tuple)
            conflict_of(outcome[0])
        self.make_it_fit(engine, *keys)
        for outcome in engine.submit_group(batch):
            assert isinstance(outcome, tuple)
            assert isinstance(outcome[0], Rejected)

    def test_what_was_stored_when_it_left_memory_holds_over_a_restart(self, tmp_path: Path) -> None:
        limits = Limits(cached_sessions=1)
        engine = open_engine(tmp_path / "s.space", limits=limits)
        commit = self.doomed(engine)
        self.make_it_fit(engine, "s")
        engine.close()
        engine = open_engine(tmp_path / "s.space", limits=limits)
        assert isinstance(engine.submit("s", commit)[0], Rejected)
        assert engine.session("s").last == 1

    def test_a_group_that_accepts_nothing_stores_what_it_pushes_out(self, tmp_path: Path) -> None:
        """Nothing was accepted, so nothing else would have written in that transaction."""
        engine = open_engine(tmp_path / "s.space", limits=Limits(cached_sessions=1))
        first = self.doomed(engine)
        self.doomed(engine, "t")
        self.doomed(engine, "u")
        engine.close()
        engine = open_engine(tmp_path / "s.space")
        self.make_it_fit(engine, "s", "t", "u")
        assert isinstance(engine.submit("s", first)[0], Rejected)

    def test_accepted_commits_of_a_session_that_left_memory_are_found(self) -> None:
        engine = open_engine(limits=Limits(cached_sessions=1))
        writer = Writer(engine, "s")
        sent = [writer.commit(write("d", append((), [n]))) for n in range(3)]
        for commit in sent:
            engine.submit("s", commit)
            Writer(engine, f"other{commit.local_seq}").lands()
        verdicts = [engine.submit("s", commit)[0] for commit in sent]
        assert [isinstance(v, Accepted) and v.replayed for v in verdicts] == [True] * 3
        assert value_of(engine, "d") == (0, 1, 2)


def test_memory_holds_as_many_sessions_as_allowed_also_if_nobody_writes() -> None:
    engine = open_engine(limits=Limits(cached_sessions=4))
    with allocations() as before:
        for number in range(2_000):
            engine.open_session(f"{number:0250}")
        grown = tracemalloc.get_traced_memory()[0] - before
    assert grown < 500_000, f"{grown} bytes are held for 4 sessions"


@contextmanager
def allocations() -> Iterator[int]:
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_session_taken_up_after_a_restart_knows_its_last_commit(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    writer = Writer(engine, "s")
    for number in range(4):
        writer.lands(write("d", replace((), number)))
    engine.close()
    again = open_engine(tmp_path / "s.space")
    assert again.open_session("s").last == 4
    assert again.submit("s", Commit(2, (write("d", replace((), 1)),)))[0] == Accepted(2, 2, replayed=True)


def test_own_writes_no_longer_in_memory_still_count_against_a_stale_pending_read() -> None:
    """C3 with a short memory: an own, unnamed write after the basis is found in the log."""
    engine = open_engine(limits=Limits(session_commits=1))
    writer = Writer(engine, "s")
    basis = writer.lands(write("d", replace((), {"x": 0, "y": 0})))
    writer.lands(write("d", replace(("x",), 1)))  # local_seq 2: not named below
    writer.lands(write("d", replace(("y",), 1)))  # local_seq 3
    writer.lands(write("e", replace((), 1)))
    stale = writer.send(write("d", replace(("x",), 9)), reads=[read("d", ("x",), seq=basis, layers=((3, 3),))])
    assert [c.seq for c in conflict_of(stale).collisions] == [2]
    named = writer.send(write("d", replace(("x",), 9)), reads=[read("d", ("x",), seq=basis, layers=((2, 3),))])
    assert seq_of(named)


@pytest.mark.parametrize(
    "key", ["merge of b", "merge of nothing", "founding of the space", "founding of x", "window w", "beside w"]
)
def test_a_session_of_the_engine_s_own_cannot_be_used_by_anybody(key: str) -> None:
    """What is written there is left out of a merge's collisions; a closed one would end merging for ever."""
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    engine.fork("b")
    ann.lands(write("d", replace(("x",), 1)), branch="b")
    assert engine.merge("b")[1] == Accepted(1, 3)
    calls: list[Callable[[], object]] = [
        lambda: engine.open_session(key),
        lambda: engine.resume_session(key, "", "", "token"),
        lambda: engine.submit(key, Commit(50, (write("d", replace(("x",), "forged")),))),
        lambda: engine.close_session(key, 0),
        lambda: engine.acknowledge(key, 1),
    ]
    for call in calls:
        with pytest.raises(ProtocolError, match=r"session keys that begin with .*'beside ' are the engine's own"):
            call()
    ann.lands(write("d", replace(("y",), 2)), branch="b")
    assert isinstance(engine.merge("b")[1], Accepted)
    assert value_of(engine, "d") == {"x": 1, "y": 2}


def test_a_session_that_a_restart_forgot_before_it_wrote_anything_is_taken_up_again() -> None:
    """It was opened before its space had a file, the server was killed, and somebody else's commit came first."""
    engine = open_engine()
    Writer(engine, "other").commit(write("d", replace((), 1)))
    engine.resume_session("early", "", "what only its client remembers", "the next one")
    with pytest.raises(ProtocolError, match="was used before"):
        engine.resume_session("early", "", "what only its client remembers", "another")
