"""A run that changed nothing and stands on commits of its own session has seen those, whatever it saw of the log."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.protocol.commit import Commit
from tests.unit.engine.kit import open_engine, write
from tests.unit.engine.observing_kit import Runner, clean, looked, observed


@pytest.mark.parametrize("since", [0, 1])
def test_a_run_on_own_commits_counts_although_another_runtime_found_the_same_before(since: int) -> None:
    """Otherwise its node is as dirty as before and runs once more after every restart."""
    engine = open_engine()
    one, two = Runner(engine, "one"), Runner(engine, "two")
    one.send(Commit(1, (write("a", replace((), 1)), write("b", replace((), 1)))))
    one.observe(one.run("p.n", looked("a", seq=1)))
    for number in range(since):
        two.send(Commit(number + 1, (write("b", replace((), 2 + number)),)))
        one.observe(one.run("p.n", looked("a", seq=1 + since)))
    local_seq = since + 1
    two.send(Commit(local_seq, (write("a", replace((), 2)),)))
    assert clean(engine) == {"p.n": False}
    two.observe(two.run("p.n", looked("a", seq=1, layers=((local_seq, local_seq),))))
    assert clean(engine) == {"p.n": True}
    assert [each.verified_at for each in observed(engine)] == [2 + since]


def test_one_that_missed_a_write_is_dropped_all_the_same() -> None:
    engine = open_engine()
    one, two = Runner(engine, "one"), Runner(engine, "two")
    one.send(Commit(1, (write("a", replace((), 1)), write("b", replace((), 1)))))
    two.send(Commit(1, (write("a", replace((), 2)),)))
    one.send(Commit(2, (write("b", replace((), 2)),)))
    two.observe(two.run("p.n", looked("a", seq=1, layers=((1, 1),)), looked("b", seq=1)))
    assert observed(engine) == []
