"""C3: a pending read names every pending layer its view stood on, and its true confirmed basis."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.data.patch import add, replace
from headwater.engine import Limits
from headwater.errors import ProtocolError
from tests.unit.engine.kit import Writer, conflict_of, open_engine, read, seq_of, value_of, write

ROOMY = Limits()
FORGETFUL = Limits(session_commits=1, cache_bytes=1)  # own commits are looked up in the log


@pytest.fixture(params=[ROOMY, FORGETFUL], ids=["remembered", "from-the-log"])
def limits(request: pytest.FixtureRequest) -> Limits:
    chosen: Limits = request.param
    return chosen


def test_a_stack_that_names_all_its_layers_is_accepted(limits: Limits) -> None:
    engine = open_engine(limits=limits)
    ann = Writer(engine, "ann")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    ann.lands(write("d", replace(("x",), 1)), reads=[read("d", ("x",), seq=basis)])
    ann.lands(write("d", replace(("x",), 2)), reads=[read("d", ("x",), seq=basis, layers=((2, 2),))])
    ann.lands(write("d", replace(("x",), 3)), reads=[read("d", ("x",), seq=basis, layers=((2, 3),))])
    assert value_of(engine, "d") == {"x": 3}


def test_naming_only_the_top_layer_does_not_hide_the_one_under_it(limits: Limits) -> None:
    engine = open_engine(limits=limits)
    ann = Writer(engine, "ann")
    basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    under = ann.lands(write("d", replace(("x",), 1)))  # local_seq 2
    ann.lands(write("d", replace(("y",), 1)))  # local_seq 3, the top
    verdict = ann.send(reads=[read("d", ("x",), seq=basis, layers=((3, 3),))])
    assert [c.seq for c in conflict_of(verdict).collisions] == [under]


def test_a_foreign_write_between_the_basis_and_the_layers_is_seen(limits: Limits) -> None:
    """The seq of the top layer is no basis: what others wrote before it was not in the view."""
    engine = open_engine(limits=limits)
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    foreign = bob.lands(write("d", replace(("x",), 9)))
    top = ann.lands(write("d", replace(("y",), 1)))  # its own read of nothing: it lands after bob
    assert top > foreign
    verdict = ann.send(reads=[read("d", ("x",), seq=basis, layers=((2, 2),))])
    assert [(c.seq, c.session) for c in conflict_of(verdict).collisions] == [(foreign, "bob")]


def test_a_foreign_write_is_seen_also_when_the_own_layer_wrote_the_same_place_later(limits: Limits) -> None:
    engine = open_engine(limits=limits)
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    foreign = bob.lands(write("d", replace(("x",), 9)))
    ann.lands(write("d", replace(("x",), 1)))  # a blind write on top of bob's
    verdict = ann.send(reads=[read("d", ("x",), seq=basis, layers=((2, 2),))])
    assert [c.seq for c in conflict_of(verdict).collisions] == [foreign]


def test_layers_may_have_gaps_that_were_refused_locally(limits: Limits) -> None:
    engine = open_engine(limits=limits)
    ann = Writer(engine, "ann")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    ann.lands(write("d", replace(("x",), 1)))  # 2
    ann.next = 5  # 3 and 4 were never sent
    ann.lands(write("d", replace(("x",), 2)), reads=[read("d", ("x",), seq=basis, layers=((2, 2),))])  # 5
    verdict = ann.send(reads=[read("d", ("x",), seq=basis, layers=((2, 2), (5, 5)))])
    assert seq_of(verdict)


def test_an_own_write_that_the_view_had_not_seen_is_a_conflict_like_any_other() -> None:
    """A confirmed read leaves nobody's writes out, not even the session's own."""
    engine = open_engine()
    ann = Writer(engine, "ann")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    own = ann.lands(write("d", replace(("x",), 1)))
    verdict = ann.send(reads=[read("d", ("x",), seq=basis)])
    assert [(c.seq, c.session) for c in conflict_of(verdict).collisions] == [(own, "ann")]


def test_a_session_s_layers_survive_a_restart(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    ann.lands(write("d", replace(("x",), 1)))  # 2
    bob.lands(write("d", add(("z",), 1)))
    engine.close()
    engine = ann.engine = open_engine(tmp_path / "s.space")
    named = read("d", ("x",), seq=basis, layers=((2, 2),))
    unnamed = read("d", ("x",), seq=basis)
    assert seq_of(ann.send(reads=[named]))
    conflict_of(ann.send(reads=[unnamed]))


def test_a_wave_longer_than_what_is_remembered_stands_on_its_own_layers(limits: Limits) -> None:
    """Its row is not written yet, so the log cannot be asked for what it admitted."""
    engine = open_engine(limits=limits)
    ann = Writer(engine, "ann")
    wave = [ann.commit(write("d", replace((), number))) for number in range(5)]
    top = ann.commit(write("d", replace((), 9)), reads=[read("d", seq=0, layers=((1, 5),))])
    assert [seq_of(verdict) for verdict in engine.submit("ann", *wave, top)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_later_commit_of_a_wave_meets_an_earlier_one_that_it_does_not_name(
    tmp_path: Path, limits: Limits, restarted: bool
) -> None:
    path = tmp_path / "s.space"
    engine = open_engine(path, limits=limits)
    ann = Writer(engine, "ann")
    basis = ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    ann.lands(write("d", replace(("y",), 1)))  # 2
    if restarted:  # the write index begins at its end, and the session remembers nothing
        engine.close()
        engine = ann.engine = open_engine(path, limits=limits)
    wave = [
        ann.commit(write("d", replace(("x",), 1))),  # 3
        ann.commit(reads=[read("d", ("x",), seq=basis)]),
        ann.commit(reads=[read("d", ("x",), seq=basis, layers=((2, 2),))]),
        ann.commit(reads=[read("d", ("x",), seq=basis, layers=((2, 3),))]),
    ]
    first, confirmed, unnamed, named = engine.submit("ann", *wave)
    assert (seq_of(first), seq_of(named)) == (3, 4)
    for verdict in (confirmed, unnamed):
        assert [(c.seq, c.session) for c in conflict_of(verdict).collisions] == [(3, "ann")]


@pytest.mark.parametrize("layers", [((0, 1),), ((2, 1),), ((2, 2),), ((1, 3),), ((-1, 1),)])
def test_layers_that_are_not_earlier_commits_are_outside_the_protocol(
    layers: tuple[tuple[int, int], ...],
) -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 0)))
    with pytest.raises(ProtocolError, match="layers are earlier commits of its own session"):
        ann.send(reads=[read("d", seq=1, layers=layers)])


def test_a_basis_past_the_end_of_the_log_is_outside_the_protocol() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    with pytest.raises(ProtocolError, match="read space:d at seq 1, but the log ends at 0"):
        ann.send(reads=[read("d", seq=1)])
    with pytest.raises(ProtocolError, match="at seq -1"):
        ann.send(reads=[read("d", seq=-1)])


def test_an_own_write_before_the_fork_counts_on_the_branch_too() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    missed = ann.lands(write("a", replace((), 1)))
    ann.lands(write("z", replace((), 1)))
    engine.fork("b")
    verdict = ann.send(write("a", replace((), 2)), reads=[read("a", seq=0, layers=((2, 2),))], branch="b")
    assert [c.seq for c in conflict_of(verdict).collisions] == [missed]


def test_an_own_write_on_the_parent_after_the_fork_is_not_missed_by_the_branch(limits: Limits) -> None:
    """The branch never shows it, so a view of the branch can do without it."""
    engine = open_engine(limits=limits)
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    bob.lands(write("a", replace((), 0)))
    engine.fork("b")
    basis = bob.lands(write("z", replace((), 1)))
    ann.lands(write("a", replace((), 1)))  # on main, local_seq 1: after the fork and after the basis
    ann.lands(write("a", replace((), 2)), branch="b")  # local_seq 2
    ann.lands(write("a", replace((), 3)), reads=[read("a", seq=basis, layers=((2, 2),))], branch="b")
    assert (value_of(engine, "a"), value_of(engine, "a", branch="b")) == (1, 3)
