"""Trying something on a branch, comparing it and bringing it back."""

from __future__ import annotations

import pytest

from headwater.data.patch import add, append, remove, replace
from headwater.data.value import ABSENT
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.verdict import Accepted
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, seq_of, value_of, write


def test_an_experiment_is_made_compared_and_merged_while_the_parent_goes_on() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("prices", replace((), {"tea": 450, "milk": 100})), write("old", replace((), 1)))
    engine.fork("sale")
    ann.lands(write("prices", replace(("tea",), 400)), branch="sale")
    ann.lands(write("banner", replace((), "Sale!")), write("old", remove(())), branch="sale")
    bob.lands(write("prices", replace(("milk",), 120)))  # meanwhile, on main
    assert value_of(engine, "prices") == {"tea": 450, "milk": 120}
    assert value_of(engine, "prices", branch="sale") == {"tea": 400, "milk": 100}
    diff = engine.diff("sale")
    assert {change.doc.id: [patch.kind for patch in change.patches] for change in diff.changes} == {
        "prices": ["replace"],
        "banner": ["add"],
        "old": ["remove"],
    }
    assert diff.collisions == ()
    _, verdict = engine.merge("sale")
    assert verdict is not None
    seq = seq_of(verdict)
    assert value_of(engine, "prices") == {"tea": 400, "milk": 120}
    assert (value_of(engine, "banner"), value_of(engine, "old")) == ("Sale!", ABSENT)
    assert value_of(engine, "prices", at=seq - 1) == {"tea": 450, "milk": 120}


def test_a_merge_that_collides_writes_nothing_and_names_every_place_with_its_winner() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("d", replace((), {"x": 0, "y": 0, "z": 0})))
    engine.fork("b")
    ann.lands(write("d", replace(("x",), 1), replace(("y",), 1), replace(("z",), 1)), branch="b")
    first = bob.lands(write("d", replace(("x",), 2)), node="N")
    second = bob.lands(write("d", replace(("y",), 2)))
    diff, verdict = engine.merge("b")
    assert verdict is None
    assert [(c.path, c.seq, c.session, c.node) for c in diff.collisions] == [
        (("x",), first, "bob", "N"),
        (("y",), second, "bob", ""),
    ]
    assert value_of(engine, "d") == {"x": 2, "y": 2, "z": 0}


def test_a_branch_is_merged_again_and_again_with_what_is_new() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    engine.fork("b")
    for number in range(1, 4):
        ann.lands(write("d", replace(("x",), number)), branch="b")
        diff, verdict = engine.merge("b")
        assert isinstance(verdict, Accepted)
        assert [patch.arg for change in diff.changes for patch in change.patches] == [number]
        assert value_of(engine, "d") == {"x": number, "y": 0}
    assert engine.diff("b").changes == ()


def test_a_second_merge_does_not_overwrite_what_the_branch_never_saw() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("d", replace((), {"x": 0, "y": 0})))
    engine.fork("b")
    unseen = bob.lands(write("d", replace(("x",), 1)))
    ann.lands(write("d", replace(("y",), 2)), branch="b")
    assert engine.merge("b")[1] is not None
    ann.lands(write("d", replace(("x",), 5)), branch="b")  # the branch still shows x = 0
    diff, verdict = engine.merge("b")
    assert verdict is None
    assert [c.seq for c in diff.collisions] == [unseen]
    assert value_of(engine, "d") == {"x": 1, "y": 2}


def test_a_change_taken_back_on_the_branch_is_no_change() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), {"x": 0})))
    engine.fork("b")
    ann.lands(write("d", replace(("x",), 1)), branch="b")
    ann.lands(write("d", replace(("x",), 0)), branch="b")
    assert engine.diff("b").changes == ()
    assert engine.merge("b")[1] is None


def test_a_grandchild_reaches_main_through_its_parent() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), [])))
    engine.fork("child")
    ann.lands(write("d", append((), ["child"])), branch="child")
    engine.fork("grandchild", parent="child")
    ann.lands(write("d", append((), ["grandchild"])), branch="grandchild")
    ann.lands(write("d", append((), ["later"])), branch="child")
    assert value_of(engine, "d", branch="grandchild") == ("child", "grandchild")
    diff, verdict = engine.merge("grandchild")
    assert verdict is None  # both appended after the fork, and a diff of states is no intent
    assert diff.parent == "child"
    assert engine.merge("child")[1] is not None
    assert value_of(engine, "d") == ("child", "later")


def test_writes_on_a_branch_conflict_with_writes_on_that_branch_only() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    engine.fork("b")
    bob.lands(write("d", replace(("x",), 1)))  # on main, after the fork: the branch never sees it
    there = [read("d", ("x",), seq=engine.last_seq)]
    landed = ann.lands(write("d", replace(("x",), 2)), reads=there, branch="b")
    stale = ann.send(write("d", replace(("x",), 3)), reads=[read("d", ("x",), seq=basis)], branch="b")
    assert landed in [c.seq for c in conflict_of(stale).collisions]


def test_a_basis_before_the_fork_meets_the_parent_s_writes_up_to_it() -> None:
    engine = open_engine()
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    basis = ann.lands(write("d", replace((), {"x": 0})))
    missed = bob.lands(write("d", replace(("x",), 1)))
    engine.fork("b")
    stale = ann.send(write("e", replace((), 1)), reads=[read("d", ("x",), seq=basis)], branch="b")
    assert [c.seq for c in conflict_of(stale).collisions] == [missed]


def test_a_deleted_branch_takes_its_state_along_and_leaves_its_name_and_its_commits() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 1)))
    engine.fork("b")
    on_branch = ann.lands(write("d", replace((), 2)), branch="b")
    engine.delete_branch("b")
    with pytest.raises(AbsentError, match="branch 'b' was deleted"):
        engine.read(doc("d"), branch="b")
    with pytest.raises(AuthoringError, match="Names are never reused"):
        engine.fork("b")
    assert [change.seq for change in engine.changes().items] == [1, on_branch]
    assert value_of(engine, "d") == 1
    verdict = ann.send(write("d", replace((), 3)), branch="b")
    assert not isinstance(verdict, Accepted)


def test_a_new_document_of_a_branch_is_new_on_main_when_it_is_merged() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    engine.fork("b")
    ann.lands(write("d", add((), {"n": 1})), branch="b")
    assert value_of(engine, "d") is ABSENT
    engine.merge("b")
    assert value_of(engine, "d") == {"n": 1}
