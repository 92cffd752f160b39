"""C6: client and engine never disagree about a commit's fate.

On the engine's side: a verdict leaves only when the disk has it; when the disk fails, no verdict leaves, what
is in memory is dropped, and what a replay finds is the truth for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, replace
from headwater.data.value import ABSENT
from headwater.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import AuthoringError, LimitError, StorageError
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Accepted, Conflict, Rejected
from tests.unit.engine.faults import FaultyStore, faulty
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, value_of, write


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[tuple[Engine, FaultyStore]]:
    store, faults = faulty(SqliteStore(tmp_path / "s.space", synchronous="OFF"))
    engine = Engine(store, clock=VirtualClock())
    yield engine, faults
    engine.close()


def test_a_commit_that_failed_before_the_disk_had_it_never_happened(
    planted: tuple[Engine, FaultyStore],
) -> None:
    engine, faults = planted
    ann = Writer(engine, "ann")
    ann.lands(write("d", append((), [1])))
    lost = ann.commit(write("d", append((), [2])))
    faults.fail_on = "commit"
    with pytest.raises(StorageError, match="planted"):
        engine.submit("ann", lost)
    assert (engine.last_seq, value_of(engine, "d")) == (1, (1,))
    assert engine.submit("ann", lost)[0] == Accepted(2, 2)
    assert value_of(engine, "d") == (1, 2)


def test_a_commit_that_failed_after_the_disk_had_it_did_happen(planted: tuple[Engine, FaultyStore]) -> None:
    engine, faults = planted
    ann = Writer(engine, "ann")
    ann.lands(write("d", append((), [1])))
    landed = ann.commit(write("d", append((), [2])))
    faults.fail_on, faults.after = "commit", True
    with pytest.raises(StorageError, match="planted"):
        engine.submit("ann", landed)
    assert (engine.last_seq, value_of(engine, "d")) == (2, (1, 2))
    assert engine.submit("ann", landed)[0] == Accepted(2, 2, replayed=True)
    assert value_of(engine, "d") == (1, 2)


@pytest.mark.parametrize("after", [False, True])
def test_no_verdict_of_a_lost_group_leaves_and_all_of_it_shares_one_fate(
    planted: tuple[Engine, FaultyStore], after: bool
) -> None:
    engine, faults = planted
    writers = [Writer(engine, name) for name in "abc"]
    batch = [(w.key, [w.commit(write(w.key, replace((), w.key)))]) for w in writers]
    faults.fail_on, faults.after = "commit", after
    with pytest.raises(StorageError):
        engine.submit_group(batch)
    assert [value_of(engine, key) for key in "abc"] == (list("abc") if after else [ABSENT] * 3)
    replayed = [outcome[0] for outcome in engine.submit_group(batch) if isinstance(outcome, tuple)]
    assert [v.replayed for v in replayed if isinstance(v, Accepted)] == [after] * 3


def test_while_the_store_cannot_be_reopened_every_call_says_so_and_none_answers_from_memory(
    planted: tuple[Engine, FaultyStore],
) -> None:
    engine, faults = planted
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 1)))
    commit = ann.commit(write("d", replace((), 2)))
    faults.fail_on, faults.down = "commit", {"reopen"}
    calls: list[Callable[[], object]] = [
        lambda: engine.submit("ann", commit),
        lambda: engine.read(doc("d")),
        lambda: engine.last_seq,
        lambda: engine.fork("b"),
        lambda: engine.changes(),
        lambda: engine.submit("ann", commit),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="planted"):
            call()
    faults.down.clear()
    assert value_of(engine, "d") == 1
    assert isinstance(engine.submit("ann", commit)[0], Accepted)


def test_the_reason_of_a_failure_is_not_hidden_by_a_failing_recovery(
    planted: tuple[Engine, FaultyStore],
) -> None:
    engine, faults = planted
    ann = Writer(engine, "ann")
    faults.fail_on = "append"
    with pytest.raises(StorageError, match="planted"):
        ann.send(write("d", replace((), 1)))
    assert engine.last_seq == 0


def test_an_interruption_in_the_middle_leaves_no_half_known_state(
    planted: tuple[Engine, FaultyStore],
) -> None:
    """Also what is no error of ours, such as Ctrl-C, must not leave memory ahead of the disk."""
    engine, faults = planted
    ann = Writer(engine, "ann")
    ann.lands(write("d", append((), [1])))
    commit = ann.commit(write("d", append((), [2])))
    faults.fail_on, faults.error = "append", KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        engine.submit("ann", commit)
    assert (engine.last_seq, value_of(engine, "d")) == (1, (1,))
    assert engine.submit("ann", commit)[0] == Accepted(2, 2)


@pytest.mark.parametrize("kind", [StorageError, LimitError, AuthoringError, RuntimeError])
@pytest.mark.parametrize("point", ["savepoint", "append", "put_docs", "release", "commit"])
def test_an_error_of_any_kind_in_the_middle_of_a_group_leaves_memory_as_the_disk_is(
    planted: tuple[Engine, FaultyStore], kind: type[Exception], point: str
) -> None:
    """A caller's mistake leaves no group, so what does is not known to be one: the disk decides."""
    engine, faults = planted
    ann = Writer(engine, "ann")
    ann.lands(write("d", append((), [1])))
    commit = ann.commit(write("d", append((), [2])), write("new", replace((), 1)))
    faults.fail_on, faults.error = point, lambda: kind("planted")
    with pytest.raises(kind, match="planted"):
        # Two frames, since one alone has no savepoint beside its transaction; the second is no frame at all.
        engine.submit_group([("ann", (commit,)), ("ann", ())])
    assert (engine.last_seq, value_of(engine, "d"), value_of(engine, "new")) == (1, (1,), ABSENT)
    assert engine.session("ann").last == 1
    assert engine.submit("ann", commit)[0] == Accepted(2, 2)
    assert [change.seq for change in engine.changes().items] == [1, 2]
    assert value_of(engine, "d") == (1, 2)


def test_a_rejection_holds_for_as_long_as_the_engine_runs() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    doomed = ann.commit(write("d", replace(("x",), 1)))
    first = engine.submit("ann", doomed)
    bob.lands(write("d", replace((), {"x": 0})))
    with pytest.raises(AuthoringError):
        engine.fork("main")
    assert engine.submit("ann", doomed) == first


def test_a_rejection_that_the_client_acknowledged_holds_over_a_restart(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    doomed = ann.commit(write("d", replace(("x",), 1)))
    conflict_of(engine.submit("ann", doomed)[0])
    engine.acknowledge("ann", 1)
    bob.lands(write("d", replace((), {"x": 0})))
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    outcome = engine.submit_group([("ann", [doomed])])[0]
    assert not isinstance(outcome, tuple) or isinstance(outcome[0], Rejected)
    assert value_of(engine, "d") == {"x": 0}


def test_a_rejection_before_an_accepted_commit_holds_over_a_restart(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    doomed = ann.commit(write("d", replace(("x",), 1)))
    conflict_of(engine.submit("ann", doomed)[0])
    ann.lands(write("e", replace((), 1)))
    bob.lands(write("d", replace((), {"x": 0})))
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    assert isinstance(engine.submit("ann", doomed)[0], Rejected)


@pytest.mark.parametrize("said", [1, 9], ids=["up to the first", "beyond the last"])
def test_verdicts_behind_an_acknowledgement_are_given_again_over_a_restart(tmp_path: Path, said: int) -> None:
    """The connection broke before the client heard of its second frame, whose first commit was rejected."""
    engine = open_engine(tmp_path / "s.space")
    ann = Writer(engine, "ann")
    ann.lands(write("e", replace((), 1)))
    engine.note_acknowledged("ann", said)
    frame = [ann.commit(write("d", replace(("x",), 1))), ann.commit(write("e", replace((), 2)))]
    for _ in range(2):
        (outcome,) = engine.submit_group([("ann", frame)])
        assert isinstance(outcome, tuple), outcome
        assert [type(verdict) for verdict in outcome] == [Rejected, Accepted]
        engine.close()
        engine = open_engine(tmp_path / "s.space")


def test_a_stale_read_stays_stale_over_any_restart(tmp_path: Path) -> None:
    """It was said that it is rejected: so it is, although what won against it is not remembered over a restart."""
    engine = open_engine(tmp_path / "s.space")
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    bob.lands(write("d", replace(("x",), 1)))
    stale = Commit(2, (write("e", replace((), 1)),), (read("d", ("x",), seq=basis),))
    (first,) = engine.submit("ann", stale)
    engine.close()
    (again,) = open_engine(tmp_path / "s.space").submit("ann", stale)
    assert isinstance(first, Rejected)
    assert isinstance(again, Rejected)
    assert (again.local_seq, type(again.rejection)) == (first.local_seq, Conflict)
