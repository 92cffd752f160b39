"""Reads of another space are compared with the log they were made on: a restored backup is another log."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.protocol.commit import Commit
from headwater.protocol.observations import OutdatedReads, QueryCurrent
from tests.unit.engine.kit import open_engine, write
from tests.unit.engine.observing_kit import Runner, looked


@pytest.fixture
def engine() -> Engine:
    return open_engine()


def written(engine: Engine, *ids: str) -> Runner:
    runner = Runner(engine)
    for number, id in enumerate(ids, 1):
        runner.send(Commit(number, (write(id, replace((), number)),)))
    return runner


class TestAnotherLog:
    def test_what_was_read_of_a_log_that_is_gone_is_not_current(self) -> None:
        """A backup was restored in the other space: it may have grown past what was seen, and looks the same."""
        engine, restored = open_engine(), open_engine()
        for each, value in ((engine, 1), (restored, 2)):
            runner = Runner(each)
            runner.send(Commit(1, (write("a", replace((), 0)),)))
            runner.send(Commit(2, (write("a", replace((), value)),)))
        chain = engine.chain_at(2)
        assert chain is not None
        assert stale(engine, 2, chain) == ()
        assert stale(restored, 2, chain) == ((0, 2),)
        for local_seq in (3, 4):
            Runner(restored, f"s{local_seq}").send(Commit(1, (write("b", replace((), 0)),)))
        assert stale(restored, 2, chain) == ((0, 4),), "also when it has grown past it"

    def test_a_log_that_is_behind_is_another_one(self, engine: Engine) -> None:
        written(engine, "a")
        assert stale(engine, 5, 77) == ((0, 1),)

    def test_a_log_of_which_that_much_was_given_up_cannot_be_known(self, engine: Engine) -> None:
        written(engine, "a")
        chain = engine.chain_at(1)
        assert chain is not None
        writer = Runner(engine, "t")
        for number in range(1, 6):
            writer.send(Commit(number, (write("b", replace((), number)),)))
        assert stale(engine, 1, chain) == ()
        assert stale(engine, 0, 0) != (), "it was written since"
        engine.compact(5)
        assert engine.kept_from > 1
        assert stale(engine, 1, chain) == ((0, 6),)
        assert stale(engine, 0, 0, id="never") == (), "everything begins with nothing"


def stale(engine: Engine, seq: int, chain: int, id: str = "a") -> tuple[tuple[int, int], ...]:
    answer = engine.query_observations(QueryCurrent(1, (looked(id, seq=seq),), ((seq, chain),)))
    assert isinstance(answer, OutdatedReads)
    return answer.stale
