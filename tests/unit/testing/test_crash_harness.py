"""The crash harness looks at everything it says it looks at, and says what it found."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headwater.data.address import DocKey
from headwater.engine.commit_group import Outcome
from headwater.engine.verify.report import Report
from headwater.engine.verify.report import Violation as Found
from headwater.errors import LimitError, ProtocolError
from headwater.protocol.verdict import Accepted, Conflict, PreconditionFailed, Rejected
from headwater.testing.disk.comparison import (
    DERIVED,
    Violation,
    acknowledged,
    after_steps,
    check_history,
    compare_documents,
    compare_outcomes,
    compare_tables,
    logged_commits,
    opened,
)
from headwater.testing.disk.crash import Suite, Summary, evenly, run
from headwater.testing.disk.crash_points import crash_points
from headwater.testing.disk.faults import CallFault, Trials
from headwater.testing.disk.faulty_disk import Fault, Mode
from headwater.testing.disk.machine import Rig, harness
from headwater.testing.disk.model import DiskOp, OpKind
from headwater.testing.disk.steps import Frames, Step
from headwater.testing.disk.tape import Answered, Tables, Tape, record

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def tape() -> Tape:
    with harness():
        return record(Rig(), seed=0, commits=200)


# ---- the workload ----------------------------------------------------------------------------------


def test_the_workload_asks_for_everything_there_is(tape: Tape) -> None:
    assert {type(step) for step in tape.steps} == set(Step.__args__)
    frames = [step for step in tape.steps if isinstance(step, Frames)]
    assert any(len(step.batch) > 1 for step in frames), "groups"
    commits = [commit for step in frames for _, frame in step.batch for commit in frame]
    assert any(len(frame) > 1 for step in frames for _, frame in step.batch), "waves"
    assert len({commit.branch for commit in commits}) > 3
    assert any(commit.events and not commit.operations for commit in commits)
    assert any(read.layers for commit in commits for read in commit.reads)


def test_the_workload_hears_every_kind_of_answer(tape: Tape) -> None:
    verdicts = [v for answer in tape.answers for outcome in answer if isinstance(outcome, tuple) for v in outcome]
    rejections = {type(v.rejection) for v in verdicts if isinstance(v, Rejected)}
    assert rejections >= {Conflict, PreconditionFailed}
    assert any(isinstance(v, Rejected) and v.rejection == Conflict(dead_layers=(v.local_seq - 1,)) for v in verdicts)
    assert any(isinstance(v, Accepted) and v.replayed for v in verdicts)
    assert not [outcome for answer in tape.answers for outcome in answer if isinstance(outcome, Exception)]
    assert tape.commits >= 200


def test_the_workload_meets_everything_that_is_stored(tape: Tape) -> None:
    full = {table for state in tape.states for table, rows in state.items() if len(rows) > 1}
    assert full == set(tape.states[-1]) - {"parked", "attempts"}, "nothing fails there: no two tries are alike"
    ops = {(moment.kind, moment.file) for moment in tape.moments if isinstance(moment, DiskOp)}
    assert (OpKind.SYNC, "crash.space") in ops, "a checkpoint"
    assert (OpKind.DELETE, "crash.space-wal") in ops
    assert (OpKind.DELETE, "crash.space-journal") in ops


def test_every_state_of_the_workload_grew_from_the_one_before(tape: Tape) -> None:
    assert tape.states[0] == {}
    assert opened(tape) >= 2
    assert after_steps(tape)[-1] < len(tape.states)
    logs = [logged_commits(state)[0] for state in tape.states]
    assert all(max(before, default=0) <= max(after, default=0) for before, after in pairwise(logs))


def test_everything_acknowledged_is_in_the_log_of_its_step(tape: Tape) -> None:
    for step, state in enumerate(after_steps(tape)):
        logged, kept_from = logged_commits(tape.states[state])
        for seq, commit in acknowledged(tape)[step]:
            assert seq < kept_from or logged[seq] == commit


# ---- what is tried ---------------------------------------------------------------------------------


def test_there_is_a_crash_point_after_every_operation_and_every_answer(tape: Tape) -> None:
    moments = {point.moment for point in crash_points(tape)}
    for number, moment in enumerate(tape.moments, 1):
        if isinstance(moment, DiskOp | Answered):
            assert number in moments


def test_every_operation_read_and_call_fails_once(tape: Tape) -> None:
    with harness():
        trials = list(Trials(Rig(), tape, seed=0).all())
    modes = {trial.fault.mode for trial in trials if isinstance(trial.fault, Fault)}
    assert modes == set(Mode)
    kills = [trial for trial in trials if isinstance(trial.fault, CallFault) and trial.fault.kill]
    fails = [trial for trial in trials if isinstance(trial.fault, CallFault) and not trial.fault.kill]
    assert len(kills) == len(fails) > tape.calls // 2
    assert {trial.step for trial in trials} == set(range(len(tape.steps)))


@pytest.mark.parametrize(("count", "expected"), [(10, list(range(10))), (99, list(range(10))), (4, [0, 3, 6, 9])])
def test_a_choice_is_spread_evenly(count: int, expected: list[int]) -> None:
    assert evenly(range(10), count) == expected


def test_a_choice_of_few_is_that_few() -> None:
    assert (evenly(range(10), 1), evenly(range(10), 0)) == ([0], [])
    assert all(len(set(evenly(range(1_000), count))) == count for count in (2, 3, 7, 100, 999))


def test_the_parts_of_a_run_are_the_run() -> None:
    whole = run(commits=20, chosen=lambda total: 31)
    parts = [run(commits=20, chosen=lambda total: 31, part=part, parts=3) for part in range(3)]
    assert whole.crash_points_tried == sum(part.crash_points_tried for part in parts) == 31
    assert whole.faults_tried == sum(part.faults_tried for part in parts) == 31


def test_one_suite_can_be_run_by_itself() -> None:
    crashes = run(commits=20, chosen=lambda total: 5, suites=[Suite.CRASHES])
    faults = run(commits=20, chosen=lambda total: 5, suites=[Suite.FAULTS])
    assert (crashes.crash_points_tried, crashes.faults_tried) == (5, 0)
    assert (faults.crash_points_tried, faults.faults_tried) == (0, 5)


def test_a_summary_says_what_was_done() -> None:
    summary = Summary(
        commits=200,
        operations=2_000,
        calls=3_000,
        crash_points=9_000,
        faults=20_000,
        crash_points_tried=900,
        faults_tried=2_000,
        acknowledged_checked=12_345,
        frames_resent=67,
        violations=("moment 3 (process killed, idle): Violation: gone",),
    )
    assert str(summary) == (
        "900 of 9000 crash points and 2000 of 20000 faults, in 2000 disk operations and 3000 store calls of a "
        "workload of 200 commits; 12345 acknowledged commits checked, 67 frames sent again; 1 violations\n"
        "  moment 3 (process killed, idle): Violation: gone"
    )


# ---- what counts as different ----------------------------------------------------------------------

STATE: Tables = {"log": [("seq", "x"), (1, 1), (2, 2)], "sessions": [("key", "judged"), ("ann", 3)]}


def test_equal_tables_pass_and_a_missing_row_does_not() -> None:
    compare_tables(STATE, STATE, "now")
    with pytest.raises(Violation, match=r"now: table log lacks \[\(2, 2\)\] and has \[\(9, 9\)\] instead"):
        compare_tables(STATE, {**STATE, "log": [("seq", "x"), (1, 1), (9, 9)]}, "now")
    with pytest.raises(Violation, match=r"now: table sessions lacks .*judged"):
        compare_tables(STATE, {"log": STATE["log"]}, "now")


def test_what_depends_on_memory_is_left_out_when_asked() -> None:
    forgotten: Tables = {**STATE, "sessions": [("key", "judged"), ("ann", 0)], "heads": [("doc",), (1,)]}
    compare_tables(STATE, forgotten, "now", DERIVED)
    with pytest.raises(Violation, match="heads"):
        compare_tables(STATE, forgotten, "now")


def test_a_row_of_the_log_that_cannot_be_read_is_a_violation() -> None:
    with pytest.raises(Violation, match="the log row of seq 4 cannot be read"):
        logged_commits({"log": [("seq", "body"), (4, b"\xc1")]})


def test_a_document_that_reads_differently_is_a_violation() -> None:
    at = ("main", DocKey("space", "a"))
    compare_documents({at: (1, 1)}, {at: (1, 1)}, "now")
    with pytest.raises(Violation, match=r"now: .*'a'.* reads \(2, 1\), not \(1, 1\)"):
        compare_documents({at: (1, 1)}, {at: (2, 1)}, "now")
    with pytest.raises(Violation, match=r"reads 'nothing', not \(1, 1\)"):
        compare_documents({at: (1, 1)}, {}, "now")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ((Accepted(1, 7),), (Rejected(1, Conflict()),), r"answered Rejected.*, before it was Accepted"),
        ((Rejected(1, Conflict()),), (Accepted(1, 7),), r"answered Accepted.*, before it was Rejected"),
        ((Accepted(1, 7),), (Accepted(1, 8),), r"accepted at seq 8, before it was 7"),
        ((Accepted(1, 7),), ProtocolError("no"), r"answered ProtocolError\('no'\), before it was \(Accepted"),
        (LimitError("much"), ProtocolError("no"), r"answered ProtocolError"),
    ],
)
def test_another_fate_is_a_violation(before: Outcome, after: Outcome, message: str) -> None:
    with pytest.raises(Violation, match=f"again: {message}"):
        compare_outcomes([before], [after], "again")


def test_the_same_fate_may_come_without_its_reason() -> None:
    refused = Rejected(2, PreconditionFailed("entity_absent", "it is there"))
    compare_outcomes([(Accepted(1, 7), refused)], [(Accepted(1, 7, replayed=True), Rejected(2, Conflict()))], "again")
    compare_outcomes([ProtocolError("one")], [ProtocolError("another")], "again")


def test_what_the_history_oracle_finds_is_a_violation() -> None:
    good = Report(commits=1, documents=1, branches=1, violation=None, notes=())
    check_history(good)
    bad = Report(commits=1, documents=1, branches=1, violation=Found(rule="C1", seq=3, message="missed"), notes=())
    with pytest.raises(Violation, match="the history oracle: C1 at seq 3: missed"):
        check_history(bad)
