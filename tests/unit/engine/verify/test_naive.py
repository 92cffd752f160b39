"""The naive model, rule by rule. It is what the engine is compared with, so each rule is shown on its own."""

from __future__ import annotations

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import add, append, increment, remove, remove_value, replace
from headwater.data.value import ABSENT
from headwater.engine.verify.naive import AlreadyAccepted, NaiveRefusal, NaiveSpace, same
from headwater.protocol.commit import (
    NO_PROVENANCE,
    Commit,
    EntityAbsent,
    LeaseHeld,
    NodeResult,
    Operation,
    OriginCommitted,
    Provenance,
    Read,
    SentEvent,
    without_results,
)
from tests.unit.engine.kit import DEEP, SHAPE, doc, read, write

A, B = doc("a"), doc("b")


def space(*commits: tuple[str, Commit]) -> NaiveSpace:
    """A space in which these were accepted."""
    naive = NaiveSpace()
    for session, commit in commits:
        assert naive.judge(session, commit) == ()
        naive.accept(session, commit)
    return naive


def rules(found: AlreadyAccepted | tuple[NaiveRefusal, ...]) -> list[str]:
    assert not isinstance(found, AlreadyAccepted)
    return [refusal.rule for refusal in found]


def wave(number: int, *results: NodeResult, ids: str, reads: tuple[Read, ...] = ()) -> Commit:
    """A wave that replaces these documents, one after the other."""
    operations = tuple([write(id, replace((), number)) for id in ids])
    return Commit(number, operations, reads, provenance=Provenance(derived=True), results=results)


WAVE_OF_NONE = wave(2, NodeResult(NO_PROVENANCE, 0), ids="b")
BASE = ("s", Commit(1, (write("a", add((), {"x": 1, "y": 1, "l": ["a", "b"]})),)))


# ---- C1, C2: reads --------------------------------------------------------------------------------------------------


def test_a_read_is_stale_when_what_it_saw_changed_after_its_basis() -> None:
    naive = space(BASE, ("t", Commit(1, (write("a", replace(("x",), 2)),))))
    found = naive.judge("s", Commit(2, reads=(read("a", ("x",), seq=1),)))
    assert rules(found) == ["C1"]
    assert isinstance(found, tuple)
    assert (found[0].seq, found[0].answer) == (2, "conflict")


@pytest.mark.parametrize(
    ("path", "depth", "stale"),
    [
        (("x",), DEEP, True),
        ((), DEEP, True),
        (("y",), DEEP, False),
        (("x", "below"), DEEP, True),
        (("x",), SHAPE, True),
        ((), SHAPE, False),
    ],
)
def test_a_deep_read_meets_writes_at_above_and_below_a_shape_read_at_and_above(
    path: tuple[str, ...], depth: int, stale: bool
) -> None:
    naive = space(BASE, ("t", Commit(1, (write("a", replace(("x",), 2)),))))
    found = naive.judge("s", Commit(2, reads=(read("a", path, seq=1, depth=DEEP if depth == DEEP else SHAPE),)))
    assert rules(found) == (["C1"] if stale else [])


def test_a_shape_read_meets_the_appearance_and_the_vanishing_of_a_key() -> None:
    for patch in (add(("z",), 1), remove(("y",))):
        naive = space(BASE, ("t", Commit(1, (write("a", patch),))))
        assert rules(naive.judge("s", Commit(2, reads=(read("a", seq=1, depth=SHAPE),)))) == ["C1"]


def test_a_write_that_changed_nothing_is_missed_by_nobody() -> None:
    undone = write("a", replace(("x",), 2), replace(("x",), 1))
    naive = space(BASE, ("t", Commit(1, (undone,))), ("t", Commit(2, (write("a", replace(("x",), 1)),))))
    assert naive.judge("s", Commit(2, reads=(read("a", seq=1),))) == ()


def test_every_stale_read_is_named_not_the_first() -> None:
    naive = space(BASE, ("t", Commit(1, (write("a", replace(("x",), 2), replace(("y",), 2)),))))
    commit = Commit(2, reads=(read("a", ("x",), seq=1), read("a", ("l",), seq=1), read("a", ("y",), seq=1)))
    assert rules(naive.judge("s", commit)) == ["C1", "C1"]


def test_a_change_and_its_undoing_in_two_commits_are_two_missed_writes() -> None:
    naive = space(
        BASE,
        ("t", Commit(1, (write("a", replace(("x",), 2)),))),
        ("t", Commit(2, (write("a", replace(("x",), 1)),))),
    )
    assert naive.missed("s", "main", read("a", ("x",), seq=1)) == [2, 3]
    assert rules(naive.judge("s", Commit(2, reads=(read("a", ("x",), seq=1),)))) == ["C1"]


# ---- C3, C4: layers --------------------------------------------------------------------------------------------------


def test_a_named_layer_is_not_a_missed_write_and_an_unnamed_one_is() -> None:
    naive = space(BASE, ("s", Commit(2, (write("a", replace(("x",), 2)),))))
    assert naive.judge("s", Commit(3, reads=(read("a", ("x",), seq=1, layers=((2, 2),)),))) == ()
    assert rules(naive.judge("s", Commit(3, reads=(read("a", ("x",), seq=1),)))) == ["C1"]


def test_a_foreign_write_between_basis_and_layer_is_missed() -> None:
    naive = space(
        BASE,
        ("t", Commit(1, (write("a", replace(("x",), 5)),))),
        ("s", Commit(2, (write("a", replace(("x",), 2)),))),
    )
    assert rules(naive.judge("s", Commit(3, reads=(read("a", ("x",), seq=1, layers=((2, 2),)),)))) == ["C1"]


def test_a_commit_over_a_rejected_layer_falls_with_it() -> None:
    naive = space(BASE)
    naive.refuse("s", Commit(2))
    found = naive.judge("s", Commit(3, reads=(read("b", seq=1, layers=((1, 2),)),)))
    assert rules(found) == ["C4"]
    assert isinstance(found, tuple)
    assert found[0].layer == 2


def test_a_layer_on_another_branch_is_not_seen() -> None:
    naive = space(BASE)
    naive.fork("b1", "main", 1)
    naive.accept("s", Commit(2, (write("a", replace(("x",), 2)),)))
    commit = Commit(3, reads=(read("b", seq=1, layers=((2, 2),)),), branch="b1")
    assert rules(naive.judge("s", commit)) == ["C4"]


def test_result_falls_with_a_result_that_it_read() -> None:
    naive = space(BASE)
    made = wave(2, NodeResult(NO_PROVENANCE, 1), NodeResult(NO_PROVENANCE, 1, (), (0,)), ids="bc")
    assert rules(naive.judge_result("s", made, 1, ())) == ["C4"]
    assert naive.judge_result("s", made, 1, (0,)) == ()


def test_result_sees_the_results_before_it() -> None:
    naive = space(BASE)
    made = wave(
        2, NodeResult(NO_PROVENANCE, 1), NodeResult(NO_PROVENANCE, 1, (0,)), ids="bc", reads=(read("b", seq=1),)
    )
    assert rules(naive.judge_result("s", made, 1, (0,))) == ["C1"]
    assert naive.judge_result("s", made, 1, ()) == ()


def test_layer_that_is_a_wave_has_written_what_was_read() -> None:
    made = wave(2, NodeResult(NO_PROVENANCE, 1), NodeResult(NO_PROVENANCE, 1), ids="bc")
    naive = space(BASE, ("s", without_results(made, (0,))))
    over = {id: Commit(3, reads=(read(id, seq=1, layers=((2, 2),)),)) for id in "bc"}
    assert rules(naive.judge("s", over["b"])) == ["C4"]
    assert naive.judge("s", over["c"]) == ()


@pytest.mark.parametrize(
    ("foreign", "own", "path"),
    [
        (append(("l",), ["y"]), append(("l",), ["z"], 2), ("l", 0)),
        (replace(("l", 1), "a"), remove_value(("l",), "a"), ("l", 0)),
        (append(("l",), ["y"]), append(("l",), ["z"]), ("l", 3)),
    ],
)
def test_an_element_that_a_layer_put_elsewhere_was_not_seen(
    foreign: object, own: object, path: tuple[str, int]
) -> None:
    """No foreign write overlaps what was read, but the layer did something else in the log than in the view."""
    naive = space(
        BASE,
        ("t", Commit(1, (Operation(A, (foreign,)),))),  # type: ignore[arg-type]
        ("s", Commit(2, (Operation(A, (own,)),))),  # type: ignore[arg-type]
    )
    stale = read("a", path, seq=1, layers=((2, 2),))
    assert naive.missed("s", "main", stale) == []
    found = naive.judge("s", Commit(3, reads=(stale,)))
    assert rules(found) == ["C1"]
    assert isinstance(found, tuple)
    assert "saw what the branch does not show" in found[0].detail


def test_a_view_that_nobody_can_have_had_is_not_compared() -> None:
    naive = space(
        ("s", Commit(1, (write("a", add((), {})),))),
        ("t", Commit(1, (write("a", add(("x",), 1)),))),
        ("s", Commit(2, (write("a", replace(("x",), 2), add(("y",), 1)),))),
    )
    # At the basis there is no x to replace, so layer 2 cannot have been shown.
    assert naive.judge("s", Commit(3, reads=(read("a", ("y",), seq=1, layers=((2, 2),)),))) == ()


# ---- C5, C10: turns and replays --------------------------------------------------------------------------------------


def test_a_commit_sent_twice_is_one_commit_and_that_comes_before_preconditions() -> None:
    commit = Commit(1, (write("a", add((), 1)),), preconditions=(EntityAbsent(A),))
    naive = space(("s", commit))
    assert naive.judge("s", commit) == AlreadyAccepted(1)
    assert naive.objection("s", (commit,)) is None
    assert naive.objection("s", (Commit(1),)) == "C10: a commit was accepted with other content"


def test_a_commit_whose_turn_is_over_is_refused_as_long_as_its_rejection_is_known() -> None:
    naive = space(BASE)
    naive.refuse("s", Commit(5))
    assert rules(naive.judge("s", Commit(5))) == ["C5"]
    assert rules(naive.judge("s", Commit(4))) == ["C5"]
    assert naive.judge("s", Commit(6)) == ()
    naive.judged.clear()  # as a restart does, when no accepted commit came after it
    assert naive.judge("s", Commit(5)) == ()
    naive.accept("s", Commit(6))
    assert rules(naive.judge("s", Commit(5))) == ["C5"]


def test_what_was_acknowledged_is_not_replayed() -> None:
    naive = space(BASE)
    naive.acknowledge("s", 3)
    assert naive.objection("s", (Commit(2),)) == "C10: a commit is replayed although its verdict was acknowledged"
    assert naive.judge("s", BASE[1]) == AlreadyAccepted(1)


@pytest.mark.parametrize(
    ("frame", "objection"),
    [
        ((), "it is empty"),
        ((Commit(3), Commit(3)), "C5: local_seq does not rise"),
        ((Commit(0),), "C5: local_seq does not rise"),
        ((Commit(2), Commit(3, branch="b")), "C7: its commits are on several branches"),
        ((Commit(2, (write("a"), write("a"))),), "C7: a document is in two operations"),
        ((Commit(2, reads=(read("a", seq=2),)),), "C3: a basis is beyond the log"),
        ((Commit(2, reads=(read("a", seq=0, layers=((2, 2),)),)),), "C3: a layer is not an earlier commit"),
        ((Commit(2, reads=(read("a", seq=0, layers=((0, 1),)),)),), "C3: a layer is not an earlier commit"),
        ((WAVE_OF_NONE,), "C7: the operations of a wave are not those of its results"),
        ((Commit(2, preconditions=(OriginCommitted(2),)),), "C5: an origin is not an earlier commit"),
        ((Commit(2, preconditions=(LeaseHeld("lease", -1),)),), "a token is negative"),
        ((Commit(2), Commit(3)), None),
    ],
)
def test_what_is_no_frame_is_not_judged(frame: tuple[Commit, ...], objection: str | None) -> None:
    assert space(BASE).objection("s", frame) == objection


# ---- preconditions, rules, operations --------------------------------------------------------------------------------


def test_preconditions_hold_for_commits_without_operations_too() -> None:
    naive = space(BASE, ("s", Commit(2, (write("b", add((), 1)),))), ("s", Commit(3, (write("b", remove(())),))))
    naive.leases["lease"] = 2
    for held in (OriginCommitted(1), EntityAbsent(doc("c")), LeaseHeld("lease", 2)):
        assert naive.judge("s", Commit(4, preconditions=(held,))) == ()
    for failed in (OriginCommitted(5), EntityAbsent(A), EntityAbsent(B), LeaseHeld("lease", 1), LeaseHeld("no", 1)):
        found = naive.judge("s", Commit(6, reads=(read("a", seq=0),), preconditions=(failed,)))
        assert rules(found) == ["precondition"], failed  # A tombstone counts as present; reads come later.


def test_a_branch_sees_what_its_parent_created_before_the_fork() -> None:
    naive = space(BASE)
    naive.fork("b1", "main", 1)
    naive.accept("s", Commit(2, (write("b", add((), 1)),)))
    assert rules(naive.judge("s", Commit(3, preconditions=(EntityAbsent(A),), branch="b1"))) == ["precondition"]
    assert naive.judge("s", Commit(3, preconditions=(EntityAbsent(B),), branch="b1")) == ()


def test_a_branch_that_is_not_there_and_an_event_sent_before_are_refused_by_a_rule() -> None:
    naive = space(("s", Commit(1, events=(SentEvent("e", "s", None),))))
    assert rules(naive.judge("s", Commit(2, branch="nowhere"))) == ["branch"]
    naive.fork("b1", "main", 1)
    naive.delete_branch("b1")
    assert rules(naive.judge("s", Commit(2, branch="b1"))) == ["branch"]
    assert rules(naive.judge("s", Commit(2, events=(SentEvent("e", "s", None),)))) == ["event_id"]
    twice = (SentEvent("f", "s", None), SentEvent("f", "s", None))
    assert rules(naive.judge("s", Commit(2, events=twice))) == ["event_id"]


def test_an_operation_must_apply_and_its_document_have_a_name() -> None:
    naive = space(BASE)
    assert rules(naive.judge("s", Commit(2, (write("a", replace(("nothing",), 1)),)))) == ["C7"]
    assert rules(naive.judge("s", Commit(2, (Operation(DocKey("space", ""), (add((), 1),)),)))) == ["document_name"]


# ---- C11: the past ---------------------------------------------------------------------------------------------------


def test_the_past_is_what_folding_gives_on_every_branch() -> None:
    naive = space(("s", Commit(1, (write("a", add((), 1)),))), ("s", Commit(2, (write("a", increment(())),))))
    naive.fork("b1", "main", 1)
    naive.accept("s", Commit(3, (write("a", increment((), 10)),), branch="b1"))
    naive.accept("s", Commit(4, (write("a", remove(())),)))
    naive.fork("b2", "b1", 3)
    assert [naive.value(A, "main", at) for at in range(5)] == [ABSENT, 1, 2, 2, ABSENT]
    assert [naive.value(A, "b1", at) for at in (1, 3, 4)] == [1, 11, 11]
    assert naive.value(A, "b2") == 11
    assert [past.seq for past in naive.line("b2")] == [1, 3]
    assert naive.written(A, "main") == 4
    assert naive.written(A, "b2") == 3
    assert naive.written(B, "main") == 0


def test_a_shape_is_presence_kind_scalar_keys_or_length() -> None:
    shape = read("a", seq=0, depth=SHAPE)
    deep = read("a", seq=0)
    assert same({"x": 1}, {"x": 2}, shape)
    assert not same({"x": 1}, {"x": 2}, deep)
    assert not same({"x": 1}, {"y": 1}, shape)
    assert same((1, 2), (3, 4), shape)
    assert not same((1, 2), (1, 2, 3), shape)
    assert not same((), {}, shape)
    assert not same(1, 2, shape)
    assert not same(ABSENT, None, shape)
    assert same(1, 1.0, deep)
