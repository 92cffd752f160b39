"""Stored events: kept with the commit that sent them, gone with the commit that handles them, each on its branch."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.verify.oracle import verify_file
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.commit import Commit, EntityAbsent, SentEvent
from headwater.protocol.verdict import Accepted, Rejected, RuleRefused, Verdict
from tests.unit.engine.kit import doc, open_engine, write


def sent(*ids: str, due_us: int = 0) -> tuple[SentEvent, ...]:
    return tuple(SentEvent(id, "cart.add", {"of": id}, due_us) for id in ids)


def ids(engine: Engine, branch: str = "main") -> list[str]:
    return [event.id for event in engine.events(branch=branch).items]


def started(
    path: Path | str = ":memory:", *, limits: Limits | None = None, clock: VirtualClock | None = None
) -> Engine:
    engine = open_engine(path, limits=limits or Limits(), clock=clock)
    engine.open_session("s")
    return engine


def rule_of(verdict: Verdict) -> str:
    assert isinstance(verdict, Rejected), verdict
    assert isinstance(verdict.rejection, RuleRefused), verdict
    return verdict.rejection.rule


def test_an_event_is_there_from_the_commit_that_sent_it_to_the_commit_that_handles_it() -> None:
    clock = VirtualClock()
    engine = started(clock=clock)
    clock.advance(70)
    at_us = clock.now_us()
    engine.submit("s", Commit(1, (write("d", replace((), 1)),), events=sent("a", "b", due_us=5)))
    clock.advance(70)
    found = engine.events()
    assert [(e.id, e.seq, e.stream, e.payload, e.due_us, e.stored_us) for e in found.items] == [
        ("a", 1, "cart.add", {"of": "a"}, 5, at_us),
        ("b", 1, "cart.add", {"of": "b"}, 5, at_us),
    ]
    assert (found.next, engine.newest_event()) == (None, 1)
    assert engine.submit("s", Commit(2, handled=("a",))) == (Accepted(2, 2),), "a commit that only handles is one"
    assert ids(engine) == ["b"]
    engine.submit("s", Commit(3, handled=("b", "b", "unknown")))
    assert (ids(engine), engine.newest_event()) == ([], 0)


def test_a_commit_that_is_refused_handles_nothing() -> None:
    engine = started()
    engine.submit("s", Commit(1, (write("d", replace((), 1)),), events=sent("a")))
    refused = engine.submit("s", Commit(2, handled=("a",), preconditions=(EntityAbsent(doc("d")),)))
    assert isinstance(refused[0], Rejected)
    assert ids(engine) == ["a"]


def test_an_event_of_an_earlier_commit_of_the_same_frame_can_be_handled() -> None:
    engine = started()
    engine.submit("s", Commit(1, events=sent("a", "b")), Commit(2, events=sent("c"), handled=("a",)))
    assert ids(engine) == ["b", "c"]


def test_an_id_is_taken_while_its_event_is_stored_and_free_once_that_is_handled(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = started(path)
    engine.submit("s", Commit(1, events=sent("a")))
    assert rule_of(engine.submit("s", Commit(2, events=sent("a")))[0]) == "event_id"
    assert rule_of(engine.submit("s", Commit(3, events=sent("a"), handled=("a",)))[0]) == "event_id"
    engine.submit("s", Commit(4, handled=("a",)))
    assert isinstance(engine.submit("s", Commit(5, events=sent("a")))[0], Accepted)
    assert [(event.id, event.seq) for event in engine.events().items] == [("a", 3)]
    engine.close()
    assert verify_file(path).ok


def test_a_commit_that_handles_and_is_sent_twice_is_one() -> None:
    engine = started()
    engine.submit("s", Commit(1, events=sent("a")))
    engine.submit("s", Commit(2, handled=("a",)))
    engine.submit("s", Commit(3, events=sent("a")))
    assert engine.submit("s", Commit(2, handled=("a",))) == (Accepted(2, 2, replayed=True),)
    assert ids(engine) == ["a"], "the replay takes nothing away"


def test_pages_come_in_the_order_of_the_log_and_say_when_the_next_one_is_due() -> None:
    engine = started()
    for number, due in enumerate((0, 900, 30, 0, 40), 1):
        engine.submit("s", Commit(number, events=sent(f"b{number}", f"a{number}", due_us=due)))
    seen: list[str] = []
    after: tuple[int, str] | None = (0, "")
    while after is not None:
        page = engine.events(due_by_us=39, after=after, limit=1)
        seen += [event.id for event in page.items]
        after = page.next
        assert page.next_due_us == 40
    assert seen == ["a1", "b1", "a3", "b3", "a4", "b4"]
    assert engine.events(due_by_us=40).next_due_us == 900
    assert engine.events(due_by_us=900).next_due_us is None
    assert engine.events(due_by_us=0, after=(4, "z")).items == ()


def test_a_page_holds_one_event_however_long_it_is_and_no_second_one_past_its_bytes() -> None:
    engine = started(limits=Limits(answer_bytes=2_500))
    events = tuple(SentEvent(f"e{number}", "s", "x" * 1_000) for number in range(4))
    engine.submit("s", Commit(1, events=(*events, SentEvent("long", "s", "x" * 10_000))))
    first = engine.events()
    assert [event.id for event in first.items] == ["e0", "e1"]
    assert first.next == (1, "e1")
    assert [event.id for event in engine.events(after=(1, "e3")).items] == ["long"]


def test_what_is_asked_for_outside_all_times_is_refused() -> None:
    engine = started()
    for wrong in ({"due_by_us": -1}, {"due_by_us": 2**53}, {"after": (-1, "")}, {"limit": 0}):
        with pytest.raises(AuthoringError):
            engine.events(**wrong)
    with pytest.raises(AbsentError):
        engine.events(branch="nowhere")


# ---- branches ------------------------------------------------------------------------------------------------


def test_an_event_belongs_to_the_branch_of_its_commit(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = started(path)
    engine.submit("s", Commit(1, (write("d", replace((), 1)),), events=sent("main-1")))
    engine.fork("side")
    assert ids(engine, "side") == [], "a fork begins with none of its parent's: they are handled there"
    engine.submit("s", Commit(2, (write("d", replace((), 2)),), branch="side", events=sent("side-1", "side-2")))
    assert (ids(engine), ids(engine, "side")) == (["main-1"], ["side-1", "side-2"])
    engine.submit("s", Commit(3, branch="side", handled=("main-1", "side-1")))
    assert (ids(engine), ids(engine, "side")) == (["main-1"], ["side-2"]), "only those of one's own branch"
    engine.merge("side")
    assert (ids(engine), ids(engine, "side")) == (["main-1"], ["side-2"]), "a merge brings documents, not events"
    engine.delete_branch("side")
    assert ids(engine) == ["main-1"]
    assert isinstance(engine.submit("s", Commit(4, events=sent("side-2")))[0], Accepted), "its ids are free again"
    engine.close()
    assert verify_file(path).ok


# ---- what is verified ----------------------------------------------------------------------------------------


def edited(path: Path, statement: str) -> str:
    """What verifying says after an edit, or nothing. The file is as it was afterwards."""
    kept = path.read_bytes()
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    assert connection.total_changes()
    connection.close()
    found = verify_file(path).violation
    path.write_bytes(kept)
    return "" if found is None else found.rule


@pytest.mark.parametrize("compacted", [False, True])
def test_a_handled_event_is_told_from_one_that_was_taken_away(tmp_path: Path, compacted: bool) -> None:
    path = tmp_path / "s.space"
    engine = started(path)
    for number in range(1, 7):
        engine.submit("s", Commit(number, (write("d", replace((), number)),), events=sent(f"e{number}")))
    if compacted:
        engine.acknowledge("s", 6)
        assert engine.compact(5) == 5
    engine.submit("s", Commit(7, handled=("e2", "e6")))
    engine.submit("s", Commit(8, handled=("e2", "e3")))
    assert ids(engine) == ["e1", "e4", "e5"]
    engine.close()
    assert verify_file(path).ok
    for id in ("e1", "e5"):
        assert edited(path, f"DELETE FROM events WHERE id='{id}'") in ("events", "kept")
    for id, seq in (("e2", 2), ("e6", 6)):
        rest = "stream, due_us, payload, seal, 1, stored_us, session"
        back = f"INSERT INTO events SELECT '{id}', {seq}, {rest} FROM events LIMIT 1"
        assert edited(path, back) == "events"
    for column in ("branch", "stored_us", "session"):
        assert edited(path, f"UPDATE events SET {column}={column}+1 WHERE id='e5'") == "events"


def test_compacting_again_after_old_events_were_handled_finds_nothing_missing(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine = started(path)
    engine.fork("side", at=0)
    engine.submit("s", Commit(1, branch="side", events=sent("x")))
    for number in range(2, 9):
        engine.submit("s", Commit(number, (write("d", replace((), number)),), events=sent(f"e{number}")))
    engine.delete_branch("side")
    engine.acknowledge("s", 8)
    assert engine.compact(5) == 5
    engine.submit("s", Commit(9, handled=("e2", "e7", "x")))
    engine.fork("late")
    engine.submit("s", Commit(10, branch="late", events=sent("y")))
    engine.submit("s", Commit(11, (write("d", replace((), 0)),)))
    engine.acknowledge("s", 11)
    engine.delete_branch("late")
    assert engine.compact(8) == 8
    engine.submit("s", Commit(12, handled=("e3",)))
    assert engine.compact(9) == 9
    engine.close()
    assert verify_file(path).ok
