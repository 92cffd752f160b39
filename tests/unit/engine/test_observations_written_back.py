"""The state of a repeated run is in the log row of its commit; the table of observations follows later."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.observations.codec import decode_state, first_of
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify.oracle import verify_file
from headwater.errors import HeadwaterError
from headwater.protocol.commit import Commit, Read
from headwater.protocol.observations import Observation
from tests.unit.engine.kit import write
from tests.unit.engine.observing_kit import Runner, clean, looked, observed


def opened(path: Path, limits: Limits | None = None) -> tuple[Engine, SqliteStore]:
    store = SqliteStore(path, synchronous="OFF")
    return Engine(store, clock=VirtualClock(), limits=limits or Limits()), store


class Changes:
    """A session that writes an input, and after each write the result of the node that reads it."""

    def __init__(self, engine: Engine) -> None:
        self.runner = Runner(engine)
        self.number = 0

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            self.write_input()
            read = looked("a", seq=self.runner.engine.last_seq)
            run = self.runner.run("p.n", read, local_seq=self.number + 1)
            self.commit("out", (read,), (run,))

    def write_input(self) -> None:
        self.commit("a")

    def commit(self, id: str, reads: tuple[Read, ...] = (), observed: tuple[Observation, ...] = ()) -> None:
        self.number += 1
        self.runner.send(Commit(self.number, (write(id, replace((), self.number)),), reads), observed=observed)


def seqs_in_table(store: SqliteStore) -> list[int]:
    return [decode_state(row.state).verified_at for row in store.observations_after(first_of(1, 0), 100)]


def test_repeated_runs_write_the_table_with_the_heads(tmp_path: Path) -> None:
    engine, store = opened(tmp_path / "s.space", Limits(heads_commits=12))
    changes = Changes(engine)
    changes.change()
    assert seqs_in_table(store) == [2], "the first run is not a repeated one"
    changes.change(4)
    assert seqs_in_table(store) == [2]
    changes.change()
    assert seqs_in_table(store) == [12]
    engine.close()


def test_query_lists_the_state_of_the_last_run(tmp_path: Path) -> None:
    engine, _ = opened(tmp_path / "s.space")
    changes = Changes(engine)
    changes.change(3)
    (known,) = observed(engine)
    assert (known.changed_at, known.verified_at, known.stale) == (6, 6, ())
    changes.write_input()
    assert clean(engine) == {"p.n": False}
    changes.change()
    assert clean(engine) == {"p.n": True}
    engine.close()


def test_space_that_was_not_closed_recovers_the_states_of_repeated_runs(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, store = opened(path)
    Changes(engine).change(5)
    store.close()  # without the engine: nothing is written back
    engine, store = opened(path)
    assert seqs_in_table(store) == [10]
    assert clean(engine) == {"p.n": True}
    engine.close()
    verify_file(path)


def test_space_that_was_closed_has_the_states_of_repeated_runs(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, _ = opened(path)
    Changes(engine).change(5)
    engine.close()
    engine, _ = opened(path)
    assert clean(engine) == {"p.n": True}
    engine.close()


def test_recovery_keeps_a_later_run_without_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, store = opened(path)
    changes = Changes(engine)
    changes.change(3)
    changes.write_input()
    changes.runner.observe(changes.runner.run("p.n", looked("a", seq=engine.last_seq)))
    store.close()
    engine, store = opened(path)
    assert seqs_in_table(store) == [7]
    assert clean(engine) == {"p.n": True}
    engine.close()


def test_recovery_does_not_restore_a_removed_node(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, store = opened(path)
    changes = Changes(engine)
    changes.change(3)
    changes.runner.observe(changes.runner.run("p.n", gone=True))
    store.close()
    engine, store = opened(path)
    assert observed(engine) == []
    engine.close()
    verify_file(path)


def test_states_outlive_a_transaction_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, store = opened(path)
    changes = Changes(engine)
    changes.change(3)
    with pytest.raises(HeadwaterError):
        engine.fork("main")
    assert clean(engine) == {"p.n": True}
    changes.change(2)
    with pytest.raises(HeadwaterError):
        engine.fork("main")
    engine.drop_caches()
    store.close()
    engine, store = opened(path)
    assert clean(engine) == {"p.n": True}
    engine.close()


def test_states_of_other_nodes_outlive_a_merge(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    engine, store = opened(path)
    engine.fork("b")
    Changes(engine).change(3)
    other = Runner(engine, "t", branch="b")
    other.send(Commit(1, (write("c", replace((), 1)),), branch="b"))
    engine.merge("b")
    assert clean(engine) == {"p.n": True}
    store.close()
    engine, store = opened(path)
    assert clean(engine) == {"p.n": True}
    engine.close()
