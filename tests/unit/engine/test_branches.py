"""Branches have names that are never used twice, a parent, and a moment they began at."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from headwater.data.patch import append, replace
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.log.branches import MAIN_ID, Branch
from headwater.engine.log.history import HistoryPage, every
from headwater.engine.verify.oracle import verify_file
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.verdict import Rejected, RuleRefused
from tests.unit.engine.kit import Writer, conflict_of, doc, open_engine, read, value_of, write


def test_a_space_begins_with_main_alone() -> None:
    (main,) = open_engine().branches().items
    assert (main.name, main.id, main.parent, main.fork_seq) == ("main", MAIN_ID, None, 0)


def test_a_fork_knows_its_parent_and_its_moment(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    ann = Writer(engine, "ann")
    for number in range(4):
        ann.lands(write("d", replace((), number)))
    engine.fork("now")
    engine.fork("then", at=2)
    engine.fork("child", parent="then")
    engine.close()
    found = open_engine(tmp_path / "s.space").branches().items
    known = {b.name: (b.parent.name if b.parent else None, b.fork_seq) for b in found}
    assert known == {"main": (None, 0), "now": ("main", 4), "then": ("main", 2), "child": ("then", 4)}


def page_of(engine: Engine, limit: int | None, after: str) -> HistoryPage[Branch]:
    return engine.branches(after=after, limit=limit)


def test_branches_come_by_name_in_pages_that_join_without_a_gap_or_a_repeat() -> None:
    engine = open_engine(limits=Limits(page=4))
    for name in ("z", "b.2", "b-1", "gone", "a"):
        engine.fork(name)
    engine.delete_branch("gone")
    names = ["a", "b-1", "b.2", "main", "z"]
    for limit in (None, 1, 2, 3, 4, 5, 100):
        first = engine.branches(limit=limit)
        assert len(first.items) == min(limit or 4, 4)
        assert first.next == names[len(first.items) - 1]
        following = every(partial(page_of, engine, limit))
        assert [branch.name for branch in following] == names
    assert engine.branches(after="b.2").next is None
    assert [branch.name for branch in engine.branches(after="c").items] == ["main", "z"]
    assert engine.branches(after="zz").items == ()
    with pytest.raises(AuthoringError, match="a page holds at least one row, not 0"):
        engine.branches(limit=0)


def test_a_branch_is_there_from_its_fork_to_its_end() -> None:
    engine = open_engine()
    assert (engine.has_branch("main"), engine.has_branch("b")) == (True, False)
    engine.fork("b")
    assert engine.has_branch("b")
    engine.delete_branch("b")
    assert not engine.has_branch("b")


@pytest.mark.parametrize("name", ["a", "a1", "try.this-one_2", "a" * 64])
def test_good_names(name: str) -> None:
    assert open_engine().fork(name).name == name


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a b", "a/b", "ä", "a" * 65, "a\n", "main\n"])
def test_bad_names_are_refused_with_what_is_allowed(name: str) -> None:
    engine = open_engine()
    with pytest.raises(AuthoringError, match="is not a branch name: use 1 to 64 of a-z"):
        engine.fork(name)
    assert len(engine.branches().items) == 1


@pytest.mark.parametrize("name", ["main", "dev"])
def test_a_name_in_use_is_refused(name: str) -> None:
    engine = open_engine()
    engine.fork("dev")
    with pytest.raises(AuthoringError, match=rf"branch '{name}' already exists\. Names are never reused"):
        engine.fork(name)


def test_a_deleted_name_stays_taken_over_a_restart(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "s.space")
    engine.fork("dev")
    engine.delete_branch("dev")
    engine.close()
    with pytest.raises(AuthoringError, match="branch 'dev' was the name of a deleted branch"):
        open_engine(tmp_path / "s.space").fork("dev")


def test_main_stays() -> None:
    with pytest.raises(AuthoringError, match="branch 'main' cannot be deleted"):
        open_engine().delete_branch("main")


def test_a_branch_with_children_stays_until_they_are_gone() -> None:
    engine = open_engine()
    engine.fork("dev")
    engine.fork("x", parent="dev")
    engine.fork("y", parent="dev")
    with pytest.raises(AuthoringError, match=r"branch 'dev' has branches of its own \(x, y\): delete those first"):
        engine.delete_branch("dev")
    engine.delete_branch("x")
    engine.delete_branch("y")
    engine.delete_branch("dev")
    assert [branch.name for branch in engine.branches().items] == ["main"]


def test_what_does_not_exist_is_named_with_where_to_look() -> None:
    engine = open_engine()
    for call in (engine.delete_branch, engine.diff, engine.merge):
        with pytest.raises(AbsentError, match=r"branch 'gone' does not exist\. `headwater branch list` shows"):
            call("gone")
    with pytest.raises(AbsentError, match="branch 'gone' does not exist"):
        engine.fork("dev", parent="gone")
    with pytest.raises(AbsentError, match="branch 'gone' does not exist"):
        engine.read(doc("d"), branch="gone")
    engine.fork("dev")
    engine.delete_branch("dev")
    with pytest.raises(AbsentError, match="branch 'dev' was deleted"):
        engine.documents("space", branch="dev")


def test_a_commit_to_a_branch_that_is_not_there_is_refused_by_rule() -> None:
    engine = open_engine()
    verdict = Writer(engine, "ann").send(write("d", replace((), 1)), branch="gone")
    assert isinstance(verdict, Rejected)
    assert verdict.rejection == RuleRefused("branch", "branch 'gone' does not exist or was deleted")


@pytest.mark.parametrize("at", [-1, 3, 100])
def test_a_fork_begins_at_a_moment_that_exists(at: int) -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 1)))
    ann.lands(write("d", replace((), 2)))
    with pytest.raises(AbsentError, match=f"there is no seq {at}: the log of this space ends at 2"):
        engine.fork("dev", at=at)


def test_a_fork_cannot_begin_before_its_parent_did() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), 1)))
    ann.lands(write("d", replace((), 2)))
    engine.fork("dev")
    with pytest.raises(AbsentError, match=r"branch 'dev' begins at seq 2\. Read 'main' for seq 1\."):
        engine.fork("child", parent="dev", at=1)


def test_branches_of_branches_end_at_a_limit_also_after_a_restart(tmp_path: Path) -> None:
    limits = Limits(branch_depth=3)
    engine = open_engine(tmp_path / "s.space", limits=limits)
    for parent, name in pairwise(("main", "b1", "b2", "b3")):
        engine.fork(name, parent=parent)
    for time in range(2):
        with pytest.raises(AuthoringError, match=r"branch 'b3' is 3 forks away from 'main', which is the limit: merge"):
            engine.fork("b4", parent="b3")
        engine.fork(f"beside{time}", parent="b2")
        engine.close()
        engine = open_engine(tmp_path / "s.space", limits=limits)


def test_the_deepest_branch_that_is_allowed_reads_writes_and_verifies(tmp_path: Path) -> None:
    """Every look through ancestors takes the stack it takes; the limit keeps it far from the interpreter's."""
    path = tmp_path / "s.space"
    engine = open_engine(path)
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), ["main"])), write("quiet", replace((), 1)))
    parent = "main"
    for level in range(1, DEFAULT_LIMITS.branch_depth + 1):
        name = f"b{level}"
        engine.fork(name, parent=parent)
        ann.lands(write("d", append((), [name])), branch=name)
        parent = name
    engine.drop_caches()
    expected = ("main", *(f"b{level}" for level in range(1, DEFAULT_LIMITS.branch_depth + 1)))
    assert value_of(engine, "d", branch=parent) == expected
    assert value_of(engine, "quiet", branch=parent) == 1
    stale = ann.send(reads=[read("d", seq=0), read("quiet", seq=0), read("none", seq=0)], branch=parent)
    assert [c.doc.id for c in conflict_of(stale).collisions] == ["d", "quiet"]
    engine.close()
    engine = open_engine(path)
    assert value_of(engine, "d", branch=parent) == expected
    engine.close()
    assert verify_file(path).ok


def test_a_fork_at_zero_is_empty() -> None:
    engine = open_engine()
    Writer(engine, "ann").lands(write("d", replace((), 1)))
    engine.fork("blank", at=0)
    assert not value_of(engine, "d", branch="blank")
    assert engine.documents("space", branch="blank").items == ()


def test_deleting_frees_what_the_branch_stored_and_touches_nobody_else() -> None:
    engine = open_engine()
    ann = Writer(engine, "ann")
    ann.lands(write("d", replace((), "main")))
    for name in ("x", "y"):
        engine.fork(name)
        ann.lands(write("d", replace((), name)), branch=name)
    engine.delete_branch("x")
    assert (value_of(engine, "d"), value_of(engine, "d", branch="y")) == ("main", "y")
