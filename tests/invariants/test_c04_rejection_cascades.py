"""C4: a commit over a rejected layer is rejected, transitively.

The other half, that it is refused locally before it is sent, belongs to the replica and is tried there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.data.patch import replace
from headwater.engine import Engine
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Conflict, Rejected, as_error
from tests.unit.engine.kit import Writer, conflict_of, open_engine, read, seq_of, value_of, write


def stack(engine: Engine) -> tuple[Writer, list[Commit]]:
    """ann's commits 2, 3 and 4, each standing on those before it; bob has already made 2 stale."""
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0})), write("e", replace((), 0)))
    bob.lands(write("d", replace(("x",), 9)))
    return ann, [
        ann.commit(write("d", replace(("x",), 1)), reads=[read("d", ("x",), seq=basis)]),
        ann.commit(write("e", replace((), 1)), reads=[read("d", ("x",), seq=basis, layers=((2, 2),))]),
        ann.commit(write("f", replace((), 1)), reads=[read("e", seq=basis, layers=((3, 3),))]),
    ]


def dead(conflict: Conflict) -> tuple[int, ...]:
    return conflict.dead_layers


@pytest.mark.parametrize("together", [True, False], ids=["one-wave", "three-frames"])
def test_a_rejected_layer_takes_down_everything_above_it(together: bool) -> None:
    engine = open_engine()
    _, commits = stack(engine)
    frames = [commits] if together else [[commit] for commit in commits]
    verdicts = [verdict for frame in frames for verdict in engine.submit("ann", *frame)]
    conflicts = [conflict_of(verdict) for verdict in verdicts]
    assert [dead(conflict) for conflict in conflicts] == [(), (2,), (3,)]
    assert value_of(engine, "e") == 0
    assert not value_of(engine, "f")


def test_the_message_names_the_layers_that_were_not_accepted() -> None:
    engine = open_engine()
    _, commits = stack(engine)
    verdict = engine.submit("ann", *commits)[1]
    assert isinstance(verdict, Rejected)
    assert "it depends on commit 2 of this session, which was not accepted" in str(as_error(verdict))


def test_every_dead_layer_of_every_read_is_named_once() -> None:
    engine = open_engine()
    ann, commits = stack(engine)
    engine.submit("ann", *commits)
    verdict = ann.send(reads=[read("d", seq=1, layers=((2, 3),)), read("e", seq=1, layers=((3, 4),)), read("f", seq=1)])
    assert dead(conflict_of(verdict)) == (2, 3, 4)


def test_a_layer_that_was_never_sent_is_as_dead_as_a_rejected_one() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.next = 3
    verdict = ann.send(write("d", replace((), 1)), reads=[read("d", seq=0, layers=((1, 2),))])
    assert dead(conflict_of(verdict)) == (1, 2)


def test_a_layer_rejected_before_a_restart_is_dead_after_it(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    _, commits = stack(engine)
    conflict_of(engine.submit("ann", commits[0])[0])
    engine.close()
    engine = open_engine(tmp_path / "s.space")
    assert dead(conflict_of(engine.submit("ann", commits[1])[0])) == (2,)
    assert value_of(engine, "e") == 0


def test_a_commit_beside_the_rejected_layer_is_untouched() -> None:
    engine = open_engine()
    ann, commits = stack(engine)
    beside = ann.commit(write("g", replace((), 1)), reads=[read("g", seq=1)])
    verdicts = engine.submit("ann", *commits, beside)
    assert seq_of(verdicts[-1])
    assert value_of(engine, "g") == 1


def test_a_layer_accepted_on_another_branch_is_not_under_this_commit() -> None:
    """The view it names shows something that the commit's branch does not."""
    engine = open_engine()
    ann = Writer(engine, "ann")
    basis = ann.lands(write("d", replace((), {"x": 1})))
    engine.fork("b")
    ann.lands(write("d", replace(("x",), 2)))  # local_seq 2, on main, after the fork
    verdict = ann.send(write("e", replace((), 1)), reads=[read("d", ("x",), seq=basis, layers=((2, 2),))], branch="b")
    conflict_of(verdict)
