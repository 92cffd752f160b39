"""A diff is the smallest change of states; a merge is one commit of it, or a list of what stands in the way."""

from __future__ import annotations

import msgspec
import pytest

from headwater.data.patch import Patch, add, append, increment, remove, replace
from headwater.data.value import ABSENT
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.errors import AuthoringError, LimitError
from headwater.protocol.commit import MAIN, Operation, Provenance
from headwater.protocol.verdict import Accepted
from tests.unit.engine.kit import Writer, open_engine, seq_of, value_of, write

START = {"a": {"x": 1, "y": 1}, "l": [1, 2, 3], "n": 0}


@pytest.fixture
def engine() -> Engine:
    engine = open_engine()
    Writer(engine, "setup").lands(write("d", replace((), START)))
    engine.fork("b")
    return engine


def patches(engine: Engine) -> list[Patch]:
    return [patch for change in engine.diff("b").changes for patch in change.patches]


def test_a_branch_that_changed_nothing_has_no_difference(engine: Engine) -> None:
    diff = engine.diff("b")
    assert (diff.branch, diff.parent, diff.since, diff.through) == ("b", "main", 1, 1)
    assert (diff.changes, diff.collisions) == ((), ())
    assert engine.merge("b") == (diff, None)


def test_many_commits_to_one_place_are_one_change(engine: Engine) -> None:
    ann = Writer(engine, "ann")
    for number in range(2, 6):
        ann.lands(write("d", replace(("a", "x"), number)), branch="b")
    assert patches(engine) == [replace(("a", "x"), 5)]
    assert engine.diff("b").through == engine.last_seq


def test_intents_come_over_as_the_states_they_led_to(engine: Engine) -> None:
    """A diff looks at states: it cannot know that somebody appended."""
    ann = Writer(engine, "ann")
    ann.lands(write("d", append(("l",), [4]), increment(("n",), 3)), branch="b")
    assert patches(engine) == [replace(("l",), [1, 2, 3, 4]), replace(("n",), 3)]


def test_documents_made_and_deleted_on_the_branch(engine: Engine) -> None:
    ann = Writer(engine, "ann")
    ann.lands(write("new", replace((), {"k": 1})), write("d", remove(())), branch="b")
    ann.lands(write("short", replace((), 1)), branch="b")
    ann.lands(write("short", remove(())), branch="b")
    kinds = {c.doc.id: [p.kind for p in c.patches] for c in engine.diff("b").changes}
    assert kinds == {"d": ["remove"], "new": ["add"]}
    engine.merge("b")
    assert not value_of(engine, "d")
    assert value_of(engine, "new") == {"k": 1}


@pytest.mark.parametrize(
    ("ours", "theirs", "collides"),
    [
        (replace(("a", "x"), 2), replace(("a", "y"), 2), False),
        (replace(("a", "x"), 2), replace(("n",), 2), False),
        (add(("a", "z"), 2), replace(("a", "x"), 2), False),
        (add(("a", "z"), 2), add(("a", "w"), 2), False),
        (replace(("a", "x"), 2), replace(("a", "x"), 3), True),
        (replace(("a", "x"), 2), replace(("a",), {"x": 1}), True),
        (replace(("a", "x"), 2), remove(("a",)), True),
        (replace(("a", "x"), 2), remove(()), True),
        (remove(("a",)), replace(("a", "x"), 2), True),
        (add(("a", "z"), 2), add(("a", "z"), 3), True),
        (append(("l",), [4]), append(("l",), [5]), True),
        (append(("l",), [4]), replace(("l", 0), 9), True),
        (replace(("l", 0), 9), replace(("l", 1), 9), False),
        (replace((), 1), replace(("n",), 1), True),
    ],
)
def test_changes_collide_where_the_parent_wrote_at_above_or_below(
    engine: Engine, ours: Patch, theirs: Patch, collides: bool
) -> None:
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("d", ours), branch="b")
    winner = bob.lands(write("d", theirs), node="Node")
    before = value_of(engine, "d")
    diff, verdict = engine.merge("b")
    assert (verdict is None) is collides
    assert [(c.seq, c.session, c.node) for c in diff.collisions] == ([(winner, "bob", "Node")] if collides else [])
    if collides:
        assert value_of(engine, "d") == before
    else:
        assert isinstance(verdict, Accepted)


def test_both_making_the_same_new_document_collides(engine: Engine) -> None:
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("new", replace((), 1)), branch="b")
    bob.lands(write("new", replace((), 1)))
    assert engine.merge("b")[1] is None


def test_a_merge_is_one_commit_that_says_what_it_is(engine: Engine) -> None:
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace(("n",), 1)), branch="b")
    ann.lands(write("e", replace((), 1)), branch="b")
    _, verdict = engine.merge("b")
    assert verdict == Accepted(1, 4)
    (logged,) = engine.changes(since=3).items
    assert (logged.session, logged.commit.branch, logged.commit.provenance.node) == ("merge of b", "main", "merge of b")
    assert [operation.doc.id for operation in logged.commit.operations] == ["d", "e"]


def test_a_writer_on_the_parent_meets_a_merge_like_any_other_write(engine: Engine) -> None:
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace(("n",), 1)), branch="b")
    engine.merge("b")
    engine.fork("c", at=1)
    ann.lands(write("d", replace(("n",), 2)), branch="c")
    diff, _ = engine.merge("c")
    assert [c.session for c in diff.collisions] == ["merge of b"]


def test_main_has_no_parent_to_compare_with(engine: Engine) -> None:
    for call in (engine.diff, engine.merge):
        with pytest.raises(AuthoringError, match="branch 'main' has no parent to compare with"):
            call("main")


def test_a_branch_larger_than_a_commit_is_refused_and_can_be_merged_when_it_shrinks() -> None:
    engine = open_engine(limits=Limits(commit_operations=2))
    ann = Writer(engine, "ann")
    engine.fork("b")
    for number in range(3):
        ann.lands(write(f"d{number}", replace((), number)), branch="b")
    with pytest.raises(LimitError, match=r"branch 'b' changed 3 documents; one commit may change 2\. Raise"):
        engine.merge("b")
    ann.lands(write("d2", remove(())), branch="b")
    assert isinstance(engine.merge("b")[1], Accepted)
    assert engine.changes().items[-1].session == "merge of b"
    assert engine.diff("b").changes == ()


def many_changed(engine: Engine) -> Engine:
    """Ten documents on a branch, of which the third was changed back and the parent changed the fifth."""
    ann = Writer(engine, "ann")
    ann.lands(write("d2", replace((), "same")))
    engine.fork("b")
    for number in range(10):
        ann.lands(write(f"d{number}", replace((), number)), branch="b")
    ann.lands(write("d2", replace((), "same")), branch="b")
    ann.lands(write("d4", replace((), "mine")))
    return engine


def test_a_difference_comes_in_pages_that_join_without_a_gap_or_a_repeat() -> None:
    engine = many_changed(open_engine(limits=Limits(page=3, cache_bytes=1)))
    whole = [f"d{number}" for number in (0, 1, 3, 4, 5, 6, 7, 8, 9)]
    for limit, most in ((None, 3), (1, 1), (2, 2), (3, 3), (100, 3)):
        seen: list[str] = []
        collisions: list[str] = []
        after: str | None = ""
        for _ in range(11):
            assert after is not None
            page = engine.diff("b", after=after, limit=limit)
            assert len(page.changes) <= most
            seen += [change.doc.id for change in page.changes]
            collisions += [collision.doc.id for collision in page.collisions]
            after = page.next
            if after is None:
                break
        assert after is None
        assert (sorted(seen), collisions) == (whole, ["d4"])


def test_a_page_of_a_difference_looks_at_its_own_documents_only() -> None:
    engine = many_changed(open_engine())
    engine.drop_caches()
    first = engine.diff("b", limit=2)
    assert [change.doc.id for change in first.changes] == ["d0", "d1"]
    held = engine.bytes_held
    for number in range(3):  # the third was looked at for whether another page follows
        value_of(engine, f"d{number}", branch="b")
    assert engine.bytes_held == held
    value_of(engine, "d3", branch="b")
    assert engine.bytes_held > held


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", " 1", "\u0661", "9" * 19])
def test_a_cursor_that_no_page_gave_is_refused(engine: Engine, cursor: str) -> None:
    with pytest.raises(AuthoringError, match=r"is not a cursor of a difference: pass `next` of the previous page"):
        engine.diff("b", after=cursor)
    assert engine.diff("b", after="9" * 18).changes == ()


def test_a_page_of_no_changes_is_refused(engine: Engine) -> None:
    with pytest.raises(AuthoringError, match="a page holds at least one row, not 0"):
        engine.diff("b", limit=0)


def test_a_merge_of_many_documents_brings_all_pages_in_one_commit() -> None:
    engine = open_engine(limits=Limits(page=3, cache_bytes=1))
    ann = Writer(engine, "ann")
    engine.fork("b")
    for number in range(10):
        ann.lands(write(f"d{number}", replace((), number)), branch="b")
    diff, _ = engine.merge("b")
    assert (len(diff.changes), diff.next) == (10, None)
    assert [value_of(engine, f"d{number}") for number in range(10)] == list(range(10))


def derives(writer: Writer, *operations: Operation, branch: str = MAIN) -> None:
    commit = writer.commit(*operations, branch=branch)
    seq_of(
        writer.engine.submit(writer.key, msgspec.structs.replace(commit, provenance=Provenance("N", derived=True)))[0]
    )


def test_documents_that_only_derived_commits_changed_are_not_merged(engine: Engine) -> None:
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("d", replace(("a", "x"), 2)), branch="b")
    bob.lands(write("d", replace(("a", "y"), 3)))
    for writer, total, branch in ((ann, 3, "b"), (bob, 4, MAIN)):
        derives(writer, write("total", replace((), total)), branch=branch)
    derives(ann, write("only here", replace((), 1)), branch="b")
    diff, verdict = engine.merge("b")
    assert isinstance(verdict, Accepted)
    assert [change.doc.id for change in diff.changes] == ["d"]
    assert value_of(engine, "d") == {"a": {"x": 2, "y": 3}, "l": (1, 2, 3), "n": 0}
    assert (value_of(engine, "total"), value_of(engine, "only here")) == (4, ABSENT)


def test_a_document_that_a_user_wrote_as_well_is_merged(engine: Engine) -> None:
    ann = Writer(engine, "ann")
    derives(ann, write("row", replace((), {"n": 1})), branch="b")
    ann.lands(write("d", replace(("n",), 1)), branch="b")
    engine.merge("b")
    assert not value_of(engine, "row")
    ann.lands(write("row", replace(("n",), 2)), branch="b")
    derives(ann, write("row", add(("m",), 4)), branch="b")
    assert isinstance(engine.merge("b")[1], Accepted)
    assert value_of(engine, "row") == {"n": 2, "m": 4}


def test_a_deleted_document_does_not_collide_with_what_the_parent_derived(engine: Engine) -> None:
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("d", remove(())), branch="b")
    derives(bob, write("d", replace(("n",), 1)))
    assert isinstance(engine.merge("b")[1], Accepted)
    assert not value_of(engine, "d")


def test_a_change_in_a_document_collides_with_what_the_parent_derived_there(engine: Engine) -> None:
    ann, bob = Writer(engine, "ann"), Writer(engine, "bob")
    ann.lands(write("d", replace(("n",), 2)), branch="b")
    derives(bob, write("d", replace(("n",), 1)))
    assert engine.merge("b")[1] is None


def test_derived_commits_of_compacted_history_are_merged_as_any_other(engine: Engine) -> None:
    ann = Writer(engine, "ann")
    derives(ann, write("total", replace((), 3)), branch="b")
    derives(ann, write("total", replace((), 4)), branch="b")
    engine.compact(engine.last_seq)
    engine.merge("b")
    assert value_of(engine, "total") in (4, ABSENT)
