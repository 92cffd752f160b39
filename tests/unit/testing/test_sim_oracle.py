"""The books of a simulation: they follow the log, and notice what a log or a replica must not do."""

from __future__ import annotations

import pytest

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import PatchError, append, increment, remove, replace
from headwater.data.value import ABSENT
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, Operation, Provenance
from headwater.protocol.messages import State, Sync, Whole
from headwater.replica.feed import Feed
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.testing.simulation.attempts import Attempt
from headwater.testing.simulation.oracle import Oracle, folded
from headwater.testing.simulation.replica_checks import Books
from headwater.testing.simulation.trace import Trace

DOC = DocKey("space", "d")
OTHER = DocKey("space", "e")


def trace() -> Trace:
    return Trace(VirtualClock(), 0)


def engine() -> Engine:
    made = Engine(SqliteStore(":memory:", synchronous="OFF"), clock=VirtualClock())
    made.open_session("s")
    return made


def commit(local_seq: int, *operations: Operation, tag: str = "") -> Commit:
    return Commit(local_seq, operations, provenance=Provenance(tag))


def test_every_document_is_known_at_every_seq() -> None:
    space, oracle = engine(), Oracle(trace())
    space.submit("s", commit(1, Operation(DOC, (replace((), 1),)), tag="one"))
    space.submit("s", commit(2, Operation(OTHER, (append((), ["x"]),)), tag="two"))
    space.submit("s", commit(3, Operation(DOC, (increment((), 4),)), Operation(OTHER, (remove(()),)), tag="one"))
    oracle.follow(space)
    assert [oracle.value(DOC, seq) for seq in range(4)] == [ABSENT, 1, 1, 5]
    assert [oracle.value(OTHER, seq) for seq in range(4)] == [ABSENT, ABSENT, ("x",), ABSENT]
    assert oracle.tags == {"one": [1, 3], "two": [2]}
    assert oracle.seq_of["s", 3] == 3


def test_a_log_that_shrank_is_noticed() -> None:
    notes = trace()
    space, oracle = engine(), Oracle(notes)
    space.submit("s", commit(1, Operation(DOC, (replace((), 1),))))
    oracle.follow(space)
    oracle.compare(engine())
    assert [finding.rule for finding in notes.findings] == ["C6"]


def test_a_log_that_ends_otherwise_is_noticed() -> None:
    notes = trace()
    space, other, oracle = engine(), engine(), Oracle(notes)
    space.submit("s", commit(1, Operation(DOC, (replace((), 1),))))
    other.submit("s", commit(1, Operation(DOC, (replace((), 2),))))
    oracle.follow(space)
    oracle.compare(other)
    oracle.compare_all(other)
    assert [finding.rule for finding in notes.findings] == ["C7", "C11"]


def test_a_commit_that_does_not_fit_shows_nothing_of_itself() -> None:
    misfit = commit(1, Operation(DOC, (append((), ["x"]), increment(("n",), 1))))
    assert folded(("a",), misfit, DOC, lenient=True) == ("a",)
    with pytest.raises(PatchError):
        folded(("a",), misfit, DOC)


# ---- books about a replica ---------------------------------------------------------------------------


def watched(notes: Trace) -> tuple[Engine, Oracle, Replica, Books]:
    space, oracle, replica = engine(), Oracle(notes), Replica()
    books = Books("r", "ann", "mine", replica, oracle, notes, keeps_derived=False)
    space.submit("s", commit(1, Operation(DOC, (replace((), 1),))))
    oracle.follow(space)
    replica.arrive([State(DOC, 1, True, 1)], 1)
    books.check()
    return space, oracle, replica, books


def test_a_replica_that_shows_the_log_is_in_order() -> None:
    notes = trace()
    watched(notes)
    assert notes.findings == []


def test_a_value_that_the_log_does_not_have_is_noticed() -> None:
    notes = trace()
    _, _, replica, books = watched(notes)
    replica.integrate(Sync(1, (Whole(DOC, 1, True, 2),)))
    books.check()
    assert "C3" in [finding.rule for finding in notes.findings]


def test_a_seq_that_the_log_does_not_have_is_noticed() -> None:
    notes = trace()
    _, _, replica, books = watched(notes)
    replica.integrate(Sync(2, ()))
    books.check()
    assert [finding.rule for finding in notes.findings] == ["C3"]


def test_a_change_that_the_feed_did_not_tell_is_noticed() -> None:
    notes = trace()
    space, oracle, replica, books = watched(notes)
    space.submit("s", commit(2, Operation(DOC, (replace((), 2),))))
    oracle.follow(space)
    replica.feed = Feed()  # which has no listeners
    replica.integrate(Sync(2, (Whole(DOC, 2, True, 2),)))
    books.check()
    assert [finding.rule for finding in notes.findings] == ["C9"]


def test_a_document_of_somebody_else_is_noticed() -> None:
    notes = trace()
    _, _, replica, books = watched(notes)
    replica.arrive([State(DocKey("user:bob", "d"), 0, False)], 1)
    books.check()
    assert [finding.rule for finding in notes.findings] == ["access"]


def test_a_verdict_heard_twice_is_noticed() -> None:
    notes = trace()
    _, _, replica, books = watched(notes)
    attempt = Attempt("tag", "mine")
    transaction = replica.begin()
    checked = books.begun(transaction)
    checked.write(DOC, replace((), 3))
    layer = replica.commit(transaction)
    assert isinstance(layer, Layer)
    checked.answered(attempt, layer)
    books.made(attempt, layer, derived=False)
    books.check()
    assert notes.findings == []
    layer.seq = 9
    books.settled(attempt, layer, None)
    books.settled(attempt, layer, None)
    assert [finding.rule for finding in notes.findings] == ["C6", "callbacks", "C6"]
