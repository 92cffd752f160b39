"""The engine and the naive model play the same random schedules, and the harness is shown to find planted bugs.

`./dev sim` plays 20,000 schedules, `./dev test` a two-hundredth of them. The parts are for running side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from headwater.data.address import Depth, DocKey
from headwater.data.patch import add, append, increment, remove_value, replace, splice
from headwater.data.path import Path
from headwater.data.value import ABSENT
from headwater.engine import Limits, admission
from headwater.engine.admission import Admission
from headwater.engine.branches import Branch
from headwater.engine.group import Group
from headwater.engine.heads import Head, Heads
from headwater.engine.log import Log
from headwater.engine.marks import NOBODY, Marks
from headwater.engine.reads import Reads
from headwater.engine.sessions import Session, Sessions
from headwater.engine.verify import NaiveSpace
from headwater.errors import CorruptionError
from headwater.protocol.commit import Commit, Frame, Operation, Read
from headwater.protocol.verdict import Accepted, Verdict
from headwater.testing.approximations import KINDS
from headwater.testing.differential import Failure, Summary, main, play, replay, run, shortened
from headwater.testing.draws import DOCS
from headwater.testing.schedules import Acknowledge, Compact, Fork, Look, MergeBranch, Profile, Restart, Step, Submit
from tests.counts import is_exploring, seldom

SCHEDULES = 20_000
PARTS = 4
A, B = DOCS[0], DOCS[1]


@pytest.mark.random
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_the_engine_accepts_nothing_that_the_naive_model_refuses(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    count = max(1, (seldom(SCHEDULES) if is_exploring() else seldom(SCHEDULES) // 2) // PARTS)
    summary = run(count, start=part * SCHEDULES)
    with capsys.disabled():
        print(f"\n{summary}")
    assert summary.schedules == count
    assert summary.ok, str(summary)


def test_schedules_meet_everything_that_can_happen_to_a_frame() -> None:
    """A harness that never meets something says nothing about it."""
    summary = run(40, start=1_000_000)
    assert summary.ok, str(summary)
    for name in ("accepted", "rejected", "replayed", "refused frames", "reads", "verified", "extra"):
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
        for seed in range(10):
            assert play(seed, summary.counts) is None
    assert first.counts == second.counts


# ---- planted bugs ----------------------------------------------------------------------------------------------------

Ranges = tuple[tuple[int, int], ...]
Plant = Callable[[pytest.MonkeyPatch], None]


def name_only_the_top_layer(patch: pytest.MonkeyPatch) -> None:
    real = Admission._dead_layers

    def planted(self: Admission, session: Session, branch: Branch, layers: Ranges) -> list[int]:
        return real(self, session, branch, ((layers[-1][1], layers[-1][1]),))

    patch.setattr(Admission, "_dead_layers", planted)


def ignore_what_became_of_layers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "_dead_layers", lambda *_: [])


def forget_the_basis_over_layers(patch: pytest.MonkeyPatch) -> None:
    """Staleness from the top layer's seq on: misses a foreign write between the basis and the layer."""
    real = Admission._latest_beside_layers

    def planted(self: Admission, session: Session, branch: Branch, head: Head, read: Read) -> tuple[int, bool]:
        places = [self._sessions.place_of(session, last) for _, last in read.layers]
        top = max([read.seq, *[place[0] for place in places if place is not None]])
        return real(self, session, branch, head, msgspec.structs.replace(read, seq=top))

    patch.setattr(Admission, "_latest_beside_layers", planted)


def skip_the_cascade(patch: pytest.MonkeyPatch) -> None:
    """A commit over a rejected layer is judged as if the layer had never been named."""
    real = Admission._dead_layers

    def planted(self: Admission, session: Session, branch: Branch, layers: Ranges) -> list[int]:
        return [layer for layer in real(self, session, branch, layers) if layer not in session.refused]

    patch.setattr(Admission, "_dead_layers", planted)


def leave_out_all_own_commits(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Admission, session: Session, branch: Branch, head: Head, read: Read) -> tuple[int, bool]:
        return self._latest(branch, head, read, session.id), False

    patch.setattr(Admission, "_latest_beside_layers", planted)


def ignore_key_sets_in_shape_reads(patch: pytest.MonkeyPatch) -> None:
    real = Marks.latest

    def planted(self: Marks, path: Path, depth: Depth, leave_out: int = NOBODY) -> int:
        if depth == Depth.DEEP:
            return real(self, path, depth, leave_out)
        # What lies below a path that nobody wrote is written exactly when the path or something above it is.
        return real(self, (*path, "nobody writes here"), Depth.SHAPE, leave_out)

    patch.setattr(Marks, "latest", planted)


def forget_writes_above_the_path(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Marks, path: Path, depth: Depth, leave_out: int = NOBODY) -> int:
        node = self.root
        for step in path:
            child = node.children.get(step) if node.children else None
            if child is None:
                return node.floor
            node = child
        return max(node.at_seq, node.below_seq if depth == Depth.DEEP else node.keys_seq)

    patch.setattr(Marks, "latest", planted)


def take_layers_of_any_branch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Branch, "shows", lambda *_: True)


def see_the_parent_after_the_fork(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Heads, branch: Branch, key: DocKey, doc: int) -> object:
        return self.value_at(branch.parent, key, doc, self._log.last_seq) if branch.parent else (ABSENT, 0)

    patch.setattr(Heads, "_inherited", planted)


def lean_on_writes_of_other_frames(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "is_in_frame", lambda *_: True)


def judge_replays_again(patch: pytest.MonkeyPatch) -> None:
    real = Group._replayed

    def planted(self: Group, session: Session, frame: Frame) -> list[Verdict]:
        known = real(self, session, frame)
        return [
            Accepted(verdict.local_seq, verdict.seq + 1, replayed=True) if isinstance(verdict, Accepted) else verdict
            for verdict in known
        ]

    patch.setattr(Group, "_replayed", planted)


def forget_where_commits_of_a_session_are(patch: pytest.MonkeyPatch) -> None:
    real = Sessions.place_of

    def planted(self: Sessions, session: Session, local_seq: int) -> tuple[int, int] | None:
        return real(self, session, local_seq) if local_seq in session.landed else None

    patch.setattr(Sessions, "place_of", planted)


PLANTS: list[Plant] = [
    name_only_the_top_layer,
    ignore_what_became_of_layers,
    forget_the_basis_over_layers,
    skip_the_cascade,
    leave_out_all_own_commits,
    ignore_key_sets_in_shape_reads,
    forget_writes_above_the_path,
    see_the_parent_after_the_fork,
    lean_on_writes_of_other_frames,
    judge_replays_again,
]
FOUND_LATE: list[Plant] = [take_layers_of_any_branch, forget_where_commits_of_a_session_are]
"""What takes dozens of schedules: `./dev sim` looks for it."""


@pytest.mark.parametrize("plant", PLANTS + FOUND_LATE if is_exploring() else PLANTS, ids=lambda plant: plant.__name__)
def test_the_harness_finds_an_engine_that_would(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    summary = run(300)
    assert not summary.ok, f"nothing was found in {summary.schedules} schedules"
    failure = summary.failures[0]
    assert f"python -m headwater.testing.differential --seed {failure.seed}" in str(failure)
    assert "the steps that are needed:" in str(failure)


def test_a_failing_schedule_is_shortened_to_the_steps_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    ignore_what_became_of_layers(monkeypatch)
    failure = run(50).failures[0]
    found = play(failure.seed)
    assert found == failure  # The same seed fails in the same way, and is shortened to the same steps.
    assert replay(failure.seed, failure.profile, failure.steps) is not None
    for place, _ in enumerate(failure.steps):
        fewer = [*failure.steps[:place], *failure.steps[place + 1 :]]
        assert replay(failure.seed, failure.profile, fewer) is None
    commits = [
        commit for step in failure.steps if isinstance(step, Submit) for _, frame in step.batch for commit in frame
    ]
    assert len(commits) <= 4


def crash(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug of our own")


def test_an_error_of_the_engine_is_a_disagreement_that_says_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_: object) -> None:
        try:
            crash()
        except ZeroDivisionError:
            raise CorruptionError("nothing can be read") from None

    monkeypatch.setattr(Reads, "read", damaged)
    failure = play(7)
    assert failure is not None
    assert (
        "made the engine raise CorruptionError: nothing can be read (after ZeroDivisionError: a bug" in failure.message
    )
    assert len(failure.steps) == 1


def test_a_crash_of_the_harness_says_which_seed_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NaiveSpace, "judge", crash)
    with pytest.raises(ZeroDivisionError) as caught:
        run(1, start=7)
    assert caught.value.__notes__ == ["in a schedule: python -m headwater.testing.differential --seed 7"]


def test_the_command_plays_one_seed_and_says_whether_it_agrees(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--seed", "7"]) == 0
    assert "1 schedules, " in capsys.readouterr().out
    assert main(["--seeds", "3", "--start", "5"]) == 0
    assert "3 schedules, " in capsys.readouterr().out
    ignore_what_became_of_layers(monkeypatch)
    assert main(["--seeds", "50"]) == 1
    assert "repeat it with: python -m headwater.testing.differential --seed " in capsys.readouterr().out


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
            one("q", write(1, A, replace(X, 2), replace(X, 1))),
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


def test_planting_nothing_finds_nothing() -> None:
    assert admission.Admission is Admission
    assert run(20).ok
