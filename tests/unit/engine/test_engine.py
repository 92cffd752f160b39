"""The facade: one thread's view of a space, and what it does when a call fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, replace
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import AbsentError, AuthoringError, HeadwaterError, ProtocolError, StorageError
from headwater.protocol.commit import Commit
from headwater.protocol.reactions import Claim, Subscribe
from headwater.protocol.verdict import Accepted
from tests.unit.engine.faults import faulty
from tests.unit.engine.kit import Writer, doc, open_engine, value_of, write


def test_a_mistake_of_a_caller_changes_nothing_for_anybody() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", append((), [1])))
    engine.fork("b")
    before = (engine.last_seq, value_of(engine, "d"), [b.name for b in engine.branches().items])
    mistakes: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: engine.fork("b"), AuthoringError),
        (lambda: engine.fork("NO"), AuthoringError),
        (lambda: engine.delete_branch("main"), AuthoringError),
        (lambda: engine.merge("main"), AuthoringError),
        (lambda: engine.read(doc("d"), at=99), AbsentError),
        (lambda: engine.open_session("ann", "somebody else"), ProtocolError),
        (lambda: engine.close_session("ghost", 0), ProtocolError),
        (lambda: engine.acknowledge("ann", -1), ProtocolError),
        (lambda: engine.deliver(Claim(1, "me", ("r",), lease_us=0)), ProtocolError),
        (lambda: engine.submit("ann"), ProtocolError),
    ]
    for mistake, kind in mistakes:
        with pytest.raises(kind):
            mistake()
        assert (engine.last_seq, value_of(engine, "d"), [b.name for b in engine.branches().items]) == before
    assert ann.lands(write("d", append((), [2]))) == 2


def test_a_mistake_of_a_caller_costs_the_others_nothing() -> None:
    """Nothing was written, so nothing has to be read again."""
    store = SqliteStore(":memory:")
    engine = Engine(store, clock=VirtualClock())
    ann = Writer(engine, "ann")
    for number in range(50):
        ann.lands(write(f"d{number}", replace((), [number])))
    held = [value_of(engine, f"d{number}") for number in range(50)]
    for mistake in (lambda: engine.fork("NO"), lambda: engine.acknowledge("ghost", 1), lambda: engine.merge("main")):
        before = store.visited.statements
        with pytest.raises(HeadwaterError):
            mistake()
        assert store.visited.statements - before < 12
        assert all(value_of(engine, f"d{number}") is held[number] for number in range(50))


def test_a_store_that_fails_in_any_call_is_reopened_and_the_call_can_be_made_again(tmp_path: Path) -> None:
    store, faults = faulty(SqliteStore(tmp_path / "s.space", synchronous="OFF"))
    engine = Engine(store, clock=VirtualClock())
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 1)))
    calls: list[Callable[[], object]] = [
        lambda: engine.open_session("bob"),
        lambda: engine.acknowledge("ann", 1),
        lambda: engine.fork("b"),
        lambda: engine.deliver(Subscribe(1, "r", "t")),
        lambda: engine.compact(1),
        lambda: engine.delete_branch("b"),
        lambda: engine.drop_caches(),
        lambda: engine.close_session("bob", 0),
    ]
    for call in calls:
        faults.fail_on = "commit"
        with pytest.raises(StorageError, match="planted"):
            call()
        assert value_of(engine, "d") == 1
        call()
    assert ann.lands(write("d", replace((), 2))) == 2
    engine.close()


def test_the_last_seq_counts_every_branch() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    engine.fork("b")
    assert [ann.lands(write("d", replace((), n)), branch=b) for n, b in enumerate(("main", "b", "main"))] == [1, 2, 3]
    assert engine.last_seq == 3


def test_dropping_caches_frees_memory_and_nothing_else() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    commit = ann.commit(write("d", replace((), {"x": "y" * 1_000})))
    engine.submit("ann", commit)
    assert engine.bytes_held > 1_000
    engine.drop_caches()
    assert engine.bytes_held == 0
    assert engine.submit("ann", commit)[0] == Accepted(1, 1, replayed=True)
    assert value_of(engine, "d") == {"x": "y" * 1_000}


def test_a_closed_engine_answers_nothing_and_lets_the_file_go(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    Writer(engine, "ann").lands(write("d", replace((), 1)))
    engine.close()
    engine.close()
    calls: list[Callable[[], object]] = [
        lambda: engine.submit("ann", Commit(2, (write("d", replace((), 2)),))),
        lambda: engine.read(doc("d")),
        lambda: engine.last_seq,
        lambda: engine.fork("b"),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="closed"):
            call()
    again = open_engine(tmp_path / "s.space")  # it would be locked if a call had opened it once more
    assert value_of(again, "d") == 1


def test_an_unknown_session_is_said() -> None:
    engine = open_engine()
    with pytest.raises(ProtocolError, match="there is no session 'ghost'"):
        engine.session("ghost")
    assert engine.open_session("s", "ann").principal == engine.session("s").principal == "ann"
