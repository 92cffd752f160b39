"""The engine and the naive model play the same random schedules, and the harness is shown to find planted bugs.

`./dev sim` plays 20,000 schedules, `./dev check` a two-hundredth of them. The parts are for running side by side.
"""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import add, add_sorted, append, increment, remove_value, replace, splice
from headwater.data.path import Path
from headwater.engine import Limits
from headwater.protocol.commit import Commit, Operation, Read
from headwater.testing.differential.approximations import KINDS
from headwater.testing.differential.draws import DOCS
from headwater.testing.differential.harness import Failure, Summary, play, replay, run, shortened
from headwater.testing.differential.schedules import (
    Acknowledge,
    Compact,
    Fork,
    Look,
    MergeBranch,
    Profile,
    Restart,
    Step,
    Submit,
)
from tests.counts import is_exploring, seldom

SCHEDULES = 20_000
PARTS = 4
A, B = DOCS[0], DOCS[1]


@pytest.mark.random
@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
def test_the_engine_accepts_nothing_that_the_naive_model_refuses(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    count = max(1, (seldom(SCHEDULES) if is_exploring() else seldom(SCHEDULES) // 2) // PARTS)
    summary = run(count, start=part * SCHEDULES)
    with capsys.disabled():
        print(f"\n{summary}")
    assert summary.ok, str(summary)
    assert summary.schedules == count


@pytest.mark.thorough
def test_schedules_meet_everything_that_can_happen_to_a_frame() -> None:
    """A harness that never meets something says nothing about it."""
    summary = run(40, start=1_000_000)
    assert summary.ok, str(summary)
    names = ("accepted", "rejected", "replayed", "refused frames", "reads", "verified", "extra", "waves accepted")
    for name in (*names, "results", "results left out"):
        assert summary.counts[name], name


def test_the_summary_prints_the_rate_of_every_over_approximation() -> None:
    text = str(run(5))
    assert text.startswith("5 schedules, ")
    for kind, why in KINDS.items():
        assert f"    {kind} " in text
        assert why in text


def test_a_schedule_follows_from_its_seed_alone() -> None:
    first, second = Summary(), Summary()
    for summary in (first, second):
        for seed in range(3):
            assert play(seed, summary.counts) is None
    assert first.counts == second.counts


# ---- kept schedules --------------------------------------------------------------------------------------------------
# Each failed once. Schedules change with their generator, so what was found is kept as steps, not as a seed.


def write(local_seq: int, doc: DocKey, *patches: object, branch: str = "main", reads: tuple[Read, ...] = ()) -> Commit:
    return Commit(local_seq, (Operation(doc, tuple(patches)),), reads, branch=branch)  # type: ignore[arg-type]


def look(local_seq: int, *reads: Read, branch: str = "main") -> Commit:
    return Commit(local_seq, (), reads, branch=branch)


def one(session: str, *frame: Commit) -> Submit:
    return Submit(((session, frame),))


KEPT: dict[str, tuple[Limits, list[Step]]] = {
    "an own unnamed write before the fork is not missed": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 1}))),
            one("p", write(2, B, add((), 1))),
            Fork("b1", "main", 2),
            one("p", look(3, Read(A, (), Depth.DEEP, 0, ((2, 2),)), branch="b1")),
        ],
    ),
    "a layer that landed on another branch was not seen": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 1}))),
            Fork("b1", "main", 1),
            one("p", write(2, A, replace(("x",), 2))),
            one("p", look(3, Read(A, ("x",), Depth.DEEP, 1, ((2, 2),)), branch="b1")),
        ],
    ),
    "an element moves under a bounded append": (
        Limits(),
        [
            one("p", write(1, A, add((), {"l": ["a", "b", "c"]}))),
            one("q", write(1, A, append(("l",), ["y"]))),
            one("p", write(2, A, append(("l",), ["z"], 3))),
            one("p", look(3, Read(A, ("l", 0), Depth.DEEP, 1, ((2, 2),)))),
        ],
    ),
    "a removal takes more than its view had": (
        Limits(),
        [
            one("p", write(1, A, add((), ["a", "b"]))),
            one("q", write(1, A, replace((1,), "a"))),
            one("p", write(2, A, remove_value((), "a"))),
            one("p", look(3, Read(A, (), Depth.SHAPE, 1, ((2, 2),)))),
        ],
    ),
    "a second merge overwrites nothing that the branch never saw": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 0, "y": 0}))),
            Fork("b1", "main", 1),
            one("p", write(2, A, replace(("x",), 1))),
            one("q", write(1, A, replace(("y",), 2), branch="b1")),
            MergeBranch("b1"),
            one("q", write(2, A, replace(("x",), 5), branch="b1")),
            MergeBranch("b1"),
            Look(0),
        ],
    ),
    "a wave longer than the memory of its session knows its own layers": (
        Limits(session_commits=1),
        [one("p", Commit(1), Commit(2), look(3, Read(A, (), Depth.DEEP, 0, ((1, 2),))))],
    ),
    "an own write on the parent after the fork is no write on the branch": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 1}))),
            Fork("b1", "main", 1),
            one("q", Commit(1)),
            one("q", write(2, A, replace(("x",), 2))),
            one(
                "q",
                write(3, A, replace(("x",), 3), branch="b1"),
                look(4, Read(A, ("x",), Depth.DEEP, 2, ((3, 3),)), branch="b1"),
            ),
        ],
    ),
    "what compaction stands on is never thinned away": (
        Limits(snapshot_patches=1, snapshots_fresh=1),
        [
            one("p", write(1, A, add((), 1))),
            one("q", Commit(1)),
            Acknowledge("p", 1),
            Compact(2),
            one("q", write(2, A, increment(()))),
            Look(2),
        ],
    ),
    "heads written back in a group that accepted nothing are not lost": (
        Limits(cache_bytes=3_000),
        [
            one("p", write(1, A, add((), {"x": 1})), write(2, B, add((), {"x": 1}))),
            one("q", look(1, Read(A, (), Depth.DEEP, 0), Read(B, (), Depth.DEEP, 0), Read(DOCS[2], (), Depth.DEEP, 0))),
            one("p", write(3, A, replace(("x",), 2))),
            one("q", look(2, Read(B, (), Depth.DEEP, 0), Read(DOCS[3], (), Depth.DEEP, 0))),
            Look(0),
        ],
    ),
    "an accepted commit without operations is kept": (Limits(), [one("p", Commit(1)), Restart(False), Look(0)]),
    "a commit of a wave may collide with an earlier one of it": (
        Limits(),
        [one("p", write(1, A, add((), {"x": 1})), look(2, Read(A, ("x",), Depth.DEEP, 0)))],
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept_schedule(name: str) -> None:
    limits, steps = KEPT[name]
    assert replay(0, profile(limits), steps) is None


# ---- over-approximations ---------------------------------------------------------------------------------------------

X, Y, FIRST = ("x",), ("y",), (0,)


def deep(doc: DocKey, path: Path, at: int, *layers: tuple[int, int]) -> Read:
    return Read(doc, path, Depth.DEEP, at, layers)


EXTRA: dict[str, tuple[Limits, list[Step]]] = {
    "splice_whole_array": (
        Limits(),
        [
            one("p", write(1, A, add((), ["a", "b", "c"]))),
            one("q", write(1, A, splice((), 2, 1, ["d"]))),
            one("p", look(2, deep(A, FIRST, 1))),
        ],
    ),
    "remove_value_whole_array": (
        Limits(),
        [
            one("p", write(1, A, add((), ["a", "b", "c"]))),
            one("q", write(1, A, remove_value((), "c"))),
            one("p", look(2, deep(A, FIRST, 1))),
        ],
    ),
    "add_sorted_whole_array": (
        Limits(),
        [
            one("p", write(1, A, add((), ["a", "b"]))),
            one("q", write(1, A, add_sorted((), "c"))),
            one("p", look(2, deep(A, FIRST, 1))),
        ],
    ),
    "bounded_append": (
        Limits(),
        [
            one("p", write(1, A, add((), ["a", "a", "a"]))),
            one("q", write(1, A, append((), ["b"], 3))),
            one("p", look(2, deep(A, FIRST, 1))),
        ],
    ),
    "replaced_container": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 1, "y": 1}))),
            one("q", write(1, A, replace((), {"x": 1, "y": 2}))),
            one("p", look(2, deep(A, X, 1))),
        ],
    ),
    "no_net_change": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 1}))),
            one("q", write(1, A, replace(X, 2), replace(X, 1), add(Y, 1))),
            one("p", look(2, deep(A, X, 1))),
        ],
    ),
    "merged_marks": (
        Limits(marks_per_document=3),
        [
            one("p", write(1, A, add((), {}))),
            one("q", write(1, A, add(X, 1)), write(2, A, add(Y, 1)), write(3, A, add(("z",), 1))),
            one("p", look(2, deep(A, ("other",), 1))),
        ],
    ),
    "parent_after_fork": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 1})), Commit(2)),
            Fork("b1", "main", 2),
            one("q", write(1, A, replace(X, 2))),
            one("p", look(3, deep(A, X, 1), branch="b1")),
        ],
    ),
    "forgotten_own": (
        Limits(),
        [
            one("p", write(1, A, add((), {"x": 1, "y": 1}))),
            one("p", write(2, A, replace(Y, 2))),
            one("p", Commit(3)),
            Restart(False),
            one("p", look(4, deep(A, X, 1, (3, 3)))),
        ],
    ),
    "layers_over_array": (
        Limits(),
        [
            one("p", write(1, A, add((), ["a", "b"]))),
            one("q", write(1, A, replace((1,), "c"))),
            one("p", Commit(2)),
            one("p", look(3, deep(A, FIRST, 1, (2, 2)))),
        ],
    ),
    "basis_expired": (
        Limits(scan_commits=1),
        [
            one("p", write(1, A, add((), {"x": 1, "y": 1}))),
            one("p", Commit(2)),
            one("p", Commit(3)),
            one("q", write(1, A, increment(Y)), write(2, A, increment(Y))),
            Restart(False),
            one("p", look(4, deep(A, X, 1, (3, 3)))),
        ],
    ),
    "acknowledged": (
        Limits(),
        [
            one("p", write(1, A, add((), 1))),
            one("q", Commit(1)),
            Acknowledge("p", 1),
            Compact(2),
            Restart(False),
            one("p", look(2, deep(B, (), 0, (1, 1)))),
        ],
    ),
}


def test_every_listed_over_approximation_has_a_schedule_that_shows_it() -> None:
    assert list(EXTRA) == list(KINDS)


@pytest.mark.parametrize("kind", EXTRA)
def test_the_engine_rejects_more_than_it_must(kind: str) -> None:
    limits, steps = EXTRA[kind]
    counts: Counter[str] = Counter()
    assert replay(0, profile(limits), steps, counts) is None
    assert counts["extra"] == 1
    assert counts[kind] == 1


def profile(limits: Limits) -> Profile:
    return Profile(steps=0, sessions=4, lie=0.0, eager=0.0, docs=DOCS, reads=(0,), limits=limits)


def test_a_failure_shows_its_limits_and_its_steps() -> None:
    steps = (one("p", write(1, A, add((), 1))), Restart(True))
    text = str(Failure(3, "they disagree", profile(Limits(page=2)), steps))
    assert "seed 3: they disagree" in text
    assert "limits other than the defaults: page=2" in text
    assert "  1. submit p: commit 1 write space:a[add / 1]" in text
    assert "  2. Restart(clean=True)" in text


def test_a_schedule_that_agrees_is_not_shortened() -> None:
    steps: list[Step] = [one("p", Commit(1)), Look(0)]
    assert shortened(0, profile(Limits()), steps) == tuple(steps)
