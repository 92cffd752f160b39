"""C7: a commit is atomic: all of it or nothing, across a failure at any call of the store.

The crash harness in `headwater.testing` goes further, to every write and fsync of the disk below.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import append, replace
from headwater.data.value import ABSENT
from headwater.engine import Engine, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import StorageError
from headwater.protocol.commit import Commit, SentEvent, TopicRecord
from headwater.protocol.verdict import Accepted, Rejected
from tests.unit.engine.faults import faulty
from tests.unit.engine.kit import Writer, doc, open_engine, value_of, write

LIMITS = Limits(snapshot_patches=2, marks_patches=2)  # snapshots and indexes are written in the middle


def heavy(local_seq: int) -> Commit:
    """A commit that touches every table."""
    return Commit(
        local_seq,
        (write("a", append((), [local_seq])), write(f"new{local_seq}", replace((), {"n": local_seq}))),
        events=(SentEvent(f"e{local_seq}", "stream", local_seq),),
        records=(TopicRecord("topic", "k", local_seq), TopicRecord("topic", "k", "second")),
    )


def state(engine: Engine, store: SqliteStore) -> dict[str, object]:
    """Everything a commit leaves behind."""
    return {
        "seq": engine.last_seq,
        "a": value_of(engine, "a"),
        "new": [value_of(engine, f"new{n}") for n in range(1, 5)],
        "log": [(row.seq, row.local_seq) for row in store.rows_after(0, 100)],
        "events": [row.id for row in store.events_after((0, ""), 100)],
        "records": [(row.seq, row.ordinal) for row in store.records_after("topic", (0, -1), 100)],
        "documents": store.docs_of_scope("space", "", 100),
    }


def after(commits: int) -> dict[str, object]:
    """What that many commits leave behind where nothing fails."""
    store = SqliteStore(":memory:")
    engine = Engine(store, clock=VirtualClock(), limits=LIMITS)
    engine.open_session("s")
    for number in range(1, commits + 1):
        engine.submit("s", heavy(number))
    return state(engine, store)


STATES = [after(commits) for commits in range(5)]


def calls_of_one_commit() -> list[str]:
    store, faults = faulty(SqliteStore(":memory:"))
    engine = Engine(store, clock=VirtualClock(), limits=LIMITS)
    engine.open_session("s")
    for number in (1, 2, 3):
        engine.submit("s", heavy(number))
    faults.calls.clear()
    engine.submit("s", heavy(4))
    return list(faults.calls)


CALLS = calls_of_one_commit()


def places() -> Iterator[tuple[int, bool]]:
    for place in range(1, len(CALLS) + 1):
        yield place, False
        yield place, True


@pytest.mark.parametrize(("place", "executed"), list(places()))
@pytest.mark.parametrize("dies", [False, True], ids=["survives", "dies"])
def test_a_failure_at_any_call_leaves_all_of_the_commit_or_nothing(
    tmp_path: Path, place: int, executed: bool, dies: bool
) -> None:
    path = tmp_path / "s.space"
    inner = SqliteStore(path, synchronous="OFF")
    store, faults = faulty(inner)
    engine = Engine(store, clock=VirtualClock(), limits=LIMITS)
    engine.open_session("s")
    for number in (1, 2, 3):
        engine.submit("s", heavy(number))
    faults.calls.clear()
    faults.fail_at, faults.after = place, executed
    with pytest.raises(StorageError, match="planted"):
        engine.submit("s", heavy(4))
    if dies:
        inner.close()
        inner = SqliteStore(path, synchronous="OFF")
        engine = Engine(inner, clock=VirtualClock(), limits=LIMITS)
    found = state(engine, inner)
    committed = CALLS[place - 1] == "commit" and executed
    assert found == STATES[4 if committed else 3]
    assert engine.submit("s", heavy(4))[0] == Accepted(4, 4, replayed=committed)
    assert state(engine, inner) == STATES[4]
    engine.close()


def test_the_commit_tried_above_uses_every_kind_of_write() -> None:
    assert {"begin", "append", "put_docs", "put_events", "put_records", "put_snapshot", "commit"} <= set(CALLS)


def test_a_rejected_commit_leaves_nothing_of_itself() -> None:
    """All checks come before all writes: the second operation does not apply, so the first did not happen."""
    engine = open_engine()
    ann = Writer(engine, "ann")
    verdict = ann.send(write("a", replace((), 1)), write("b", replace(("missing",), 1)))
    assert isinstance(verdict, Rejected)
    assert (value_of(engine, "a"), value_of(engine, "b"), engine.last_seq) == (ABSENT, ABSENT, 0)
    assert engine.changes().items == ()


def test_a_rejected_commit_between_two_accepted_ones_of_a_wave_leaves_nothing() -> None:
    store = SqliteStore(":memory:")
    engine = Engine(store, clock=VirtualClock())
    ann = Writer(engine, "ann")
    bad = Commit(
        2,
        (write("b", replace(("missing",), 1)),),
        events=(SentEvent("lost", "s", 1),),
        records=(TopicRecord("t", "k", 1),),
    )
    good = [Commit(n, (write("a", append((), [n])),)) for n in (1, 3)]
    verdicts = engine.submit(ann.key, good[0], bad, good[1])
    assert [type(verdict) for verdict in verdicts] == [Accepted, Rejected, Accepted]
    assert value_of(engine, "a") == (1, 3)
    assert store.event("lost") is None
    assert store.records_after("t", (0, -1), 10) == []


def test_an_accepted_commit_without_operations_is_as_durable_as_any(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.space", synchronous="OFF")
    engine = Engine(store, clock=VirtualClock())
    engine.open_session("s")
    empty = Commit(1, events=(SentEvent("e", "stream", 1),), records=(TopicRecord("t", "k", 1),))
    assert engine.submit("s", empty)[0] == Accepted(1, 1)
    engine.close()
    store = SqliteStore(tmp_path / "s.space", synchronous="OFF")
    engine = Engine(store, clock=VirtualClock())
    assert engine.last_seq == 1
    assert store.event("e") is not None
    assert engine.submit("s", empty)[0] == Accepted(1, 1, replayed=True)


def test_a_merge_that_fails_at_any_call_happens_whole_or_not_at_all(tmp_path: Path) -> None:
    """The parent's new commit and the branch's note of it belong together."""
    place = 0
    while True:
        place += 1
        inner = SqliteStore(tmp_path / f"{place}.space", synchronous="OFF")
        store, faults = faulty(inner)
        engine = Engine(store, clock=VirtualClock(), limits=LIMITS)
        ann = Writer(engine, "ann")
        ann.lands(write("d", replace((), {"x": 0})))
        engine.fork("b")
        ann.lands(write("d", replace(("x",), 1)), branch="b")
        faults.calls.clear()
        faults.fail_at = place
        try:
            engine.merge("b")
        except StorageError:
            pass
        else:
            break
        diff, _ = engine.merge("b")
        assert diff.collisions == (), f"failed at call {place}, {faults.calls[place - 1]}"
        assert engine.read(doc("d")).value == {"x": 1}
        assert engine.diff("b").changes == ()
        engine.close()
        assert place < 200
    assert place > 5
