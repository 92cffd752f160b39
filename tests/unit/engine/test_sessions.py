"""Sessions number their commits, remember verdicts within bounds and find the rest in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.data.patch import append, replace
from headwater.engine.limits import Limits
from headwater.errors import ProtocolError
from headwater.protocol.commit import Commit, OriginCommitted
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
    with pytest.raises(ProtocolError, match="session 's' belongs to 'ann', not to 'bob'"):
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


def test_a_rejection_is_not_turned_round_by_somebody_else_s_mistake() -> None:
    """C6: an unrelated call that fails must not make the engine forget a verdict that left."""
    engine = open_engine()
    writer = Writer(engine, "s")
    doomed = writer.commit(write("d", replace(("x",), 1)))
    conflict_of(engine.submit("s", doomed)[0])
    with pytest.raises(Exception, match="is no branch name"):
        engine.fork("NOT A NAME")
    Writer(engine, "t").lands(write("d", replace((), {"x": 0})))
    assert isinstance(engine.submit("s", doomed)[0], Rejected)


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


def test_a_session_that_only_looks_after_merges_cannot_be_opened_by_anybody() -> None:
    with pytest.raises(ProtocolError, match="session keys that begin with 'merge of '"):
        open_engine().open_session("merge of b")
