"""The protocol model (`model/`): our rules hold in every state it can reach, and every known mistake is found.

`./dev check` explores small scopes, `./dev sim` the quick and the full ones. The searches are exhaustive: nothing here
is drawn at random, and a scope is never cut short.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from model import scopes
from model.__main__ import figures, holds, is_found, main, story
from model.checker import Outcome, TooLargeError, check_scope, check_workload, explore
from model.messages import Broken
from model.progress import check_progress
from model.replica import REFUSED, REJECTED, Stage
from model.rules import TRUE_RULES, Rules
from model.shipped import DisagreementError, Shipped, histories
from model.system import System
from model.variants import ALTERNATIVES, MISTAKES, Variant
from model.workload import BLIND, Conditions, Kind, Scope, Workload, parsed, renamings, text_of
from tests.counts import is_exploring

pytestmark = pytest.mark.thorough

SMALL = Scope(name="2+1 of few kinds", commits=(2, 1), kinds=scopes.FEW)
DETAILED = replace(scopes.QUICK[0], name="1+1 of few kinds, in detail", kinds=scopes.FEW)
SCOPES = scopes.LEVELS["full"] if is_exploring() else (DETAILED, SMALL)
NO_REFUSALS = Conditions(refusals=False)


def mistake(name: str) -> Variant:
    return next(variant for variant in MISTAKES if variant.name == name)


def checked(variant: Variant) -> Outcome:
    return check_workload(parsed(variant.workload), variant.rules, variant.conditions)


# --- the rules hold --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_the_rules_hold_in_every_reachable_state_and_everything_settles(
    scope: Scope, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = check_scope(scope, TRUE_RULES)
    with capsys.disabled():
        print(f"\n{figures(scope, summary)}", end="")
    assert summary.refuted is None, story(summary.refuted)
    assert summary.workloads == len(scope.workloads())


@pytest.mark.parametrize("alternative", ALTERNATIVES, ids=lambda variant: variant.name)
@pytest.mark.parametrize("scope", scopes.QUICK if is_exploring() else [SMALL], ids=lambda scope: scope.name)
def test_the_rules_hold_for_the_alternatives_as_well(alternative: Variant, scope: Scope) -> None:
    refuted = check_scope(scope, alternative.rules).refuted
    assert refuted is None, story(refuted)


def test_the_search_reaches_what_the_rules_are_about() -> None:
    """A model in which nothing goes wrong would hold, too."""
    conditions = Conditions(refusals=False, acknowledgements=False, copies=1)
    system = System(parsed("r(x)w(y) r(y)w(y) w(x); w(x)"), TRUE_RULES, conditions)
    seen: set[str] = set()

    def visit(state: int) -> None:
        _, parts = system.parts(state)
        for replica in parts:
            layers = [layer.commit.local for layer in replica.stack]
            seen.update("rejected" for fate in replica.fates if fate == REJECTED)
            seen.update("refused before it was sent" for fate in replica.fates if fate == REFUSED)
            seen.update("over a dead layer, on the wire" for layer in replica.stack if layer.doomed)
            seen.update("accepted beyond the basis" for layer in replica.stack if layer.stage is Stage.ACCEPTED)
            seen.update("repeated" for commit in replica.up if replica.up.count(commit) > 1)
            seen.update("a stack with a hole" for local in layers if layers[0] < local - 1 and local - 1 not in layers)

    assert explore(system, visit=visit).violation is None
    assert seen == {
        "rejected",
        "refused before it was sent",
        "over a dead layer, on the wire",
        "accepted beyond the basis",
        "repeated",
        "a stack with a hole",
    }


# --- the mistakes are found ------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", MISTAKES, ids=lambda variant: variant.name)
def test_a_mistake_in_the_rules_is_found(variant: Variant) -> None:
    violation = checked(variant).violation
    assert violation is not None, f"not found: {variant.says}"
    assert violation.rule in variant.breaks, violation


@pytest.mark.parametrize("variant", MISTAKES, ids=lambda variant: variant.name)
def test_the_workload_that_reveals_a_mistake_is_harmless_without_it(variant: Variant) -> None:
    outcome = check_workload(parsed(variant.workload), TRUE_RULES, variant.conditions)
    assert outcome.violation is None, story(outcome)


def test_a_search_that_is_told_nothing_finds_the_phantom_and_the_missed_write() -> None:
    three_and_one = scopes.QUICK[2]
    for name in ("top-layer-only", "basis-of-top-layer"):
        refuted = check_scope(three_and_one, mistake(name).rules).refuted
        assert refuted is not None
        assert refuted.violation is not None
        assert refuted.violation.rule == "C1"


def test_a_counterexample_reads_as_a_story() -> None:
    told, _, _ = story(checked(mistake("basis-of-top-layer"))).rpartition(" (")  # without how many states were seen
    assert told.splitlines() == [
        "  with A: w(x) r(x)w(y); B: w(x)",
        "    1. A makes A1: writes x",
        "    2. A makes A2: reads x at seq 0 + A1 and writes y",
        "    3. A sends A1",
        "    4. A sends A2",
        "    5. B makes B1: writes x",
        "    6. B sends B1",
        "    7. the engine judges B1: accepted at seq 1",
        "    8. the engine judges A1: accepted at seq 2",
        "    9. the engine judges A2: accepted at seq 3",
        "  C1 is broken: A2 read x as [A1], and the log has [B1, A1]",
    ]


def test_a_layer_whose_fate_never_comes_is_reported_as_not_settling() -> None:
    violation = checked(mistake("silent-replay")).violation
    assert violation is not None
    assert violation.why == "A1 waits for ever for what becomes of it"


def test_a_step_that_could_be_repeated_for_ever_is_reported() -> None:
    with pytest.raises(Broken, match="could be repeated for ever"):
        check_progress("a step", (0, 1), (0, 1))
    check_progress("a step", (0, 1), (0, 0))


# --- what the model leaves out loses nothing --------------------------------------------------------------


STORIES = ("r(x)w(x); r(x)w(x)", "r(x)w(x) r(x)w(y); w(x)", "w(x) r(x)w(y); r(y)w(x)")


def seen_from_outside(workload: Workload, conditions: Conditions) -> set[object]:
    """The log with what each commit read, what each replica confirmed, and what it concluded: in every state."""
    system = System(workload, TRUE_RULES, conditions)
    seen: set[object] = set()

    def visit(state: int) -> None:
        engine, parts = system.parts(state)
        if not engine.group:
            seen.add((engine.log, *((replica.confirmed, replica.fates) for replica in parts)))

    assert explore(system, visit=visit).violation is None
    return seen


@pytest.mark.parametrize(
    "detailed",
    [
        Conditions(groups=True),
        Conditions(offline=True),
        Conditions(frames=True),
        Conditions(groups=True, offline=True, frames=True),
        Conditions(copies=1),
    ],
    ids=["groups", "offline", "frames", "all", "copies"],
)
@pytest.mark.parametrize("text", STORIES if is_exploring() else STORIES[:2])
def test_one_step_instead_of_two_leaves_out_nothing_that_can_be_seen(text: str, detailed: Conditions) -> None:
    workload = parsed(text)
    assert seen_from_outside(workload, Conditions()) == seen_from_outside(workload, detailed)


def test_every_workload_is_checked_up_to_a_renaming() -> None:
    scope = Scope(name="all", commits=(1, 1, 1))
    chosen = scope.workloads()
    covered = [form for workload in chosen for form in set(renamings(workload))]
    assert len(covered) == len(set(covered)) == len(scope.kinds) ** 3


def test_renaming_changes_nothing_about_a_workload() -> None:
    outcomes = [check_workload(form, TRUE_RULES, NO_REFUSALS) for form in renamings(parsed("r(x)w(y); w(y); r(y)w(y)"))]
    assert len(outcomes) == 12
    assert len({(outcome.states, outcome.steps, outcome.depth) for outcome in outcomes}) == 1


# --- the shipped engine decides as the model's does -------------------------------------------------------


def play_all(system: System, conditions: Conditions) -> int:
    """Ask the shipped engine for every decision that the system's engine was seen to make; answers how many."""
    shipped = Shipped()
    try:
        for history in histories(system):
            shipped.play(history, groups=conditions.groups)
    finally:
        shipped.close()
    return shipped.decisions


@pytest.mark.parametrize(
    ("commits", "conditions", "every"),
    [((2, 1), NO_REFUSALS, 30), ((2, 2), NO_REFUSALS, 500), ((1, 1), Conditions(refusals=False, groups=True), 1)],
    ids=["2+1", "2+2", "groups"],
)
def test_the_shipped_engine_comes_to_every_decision_of_the_model(
    commits: tuple[int, ...], conditions: Conditions, every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    decisions = 0
    workloads = Scope(name="shipped", commits=commits).workloads()
    for workload in workloads[:: max(1, every // 30) if is_exploring() else every]:
        system = System(workload, TRUE_RULES, conditions)
        assert explore(system).violation is None
        decisions += play_all(system, conditions)
    with capsys.disabled():
        print(f"\n{decisions:,} decisions compared", end="")
    assert decisions > 1_000


@pytest.mark.parametrize(
    "name", ["basis-of-top-layer", "layers-unchecked", "no-lookup-after-reconnect", "no-lookup", "keys-forgotten"]
)
def test_the_shipped_engine_does_not_follow_a_model_that_is_wrong(name: str) -> None:
    """Otherwise the comparison would compare nothing."""
    variant = mistake(name)
    system = System(parsed(variant.workload), variant.rules, NO_REFUSALS)
    assert explore(system).violation is not None
    with pytest.raises(DisagreementError, match="the model says"):
        play_all(system, NO_REFUSALS)


def test_the_shipped_engine_cannot_know_that_a_replica_names_too_little() -> None:
    """The phantom is the replica's to prevent: given the names of the top layer only, the engine has to accept it."""
    variant = mistake("top-layer-only")
    system = System(parsed(variant.workload), variant.rules, NO_REFUSALS)
    violation = explore(system).violation
    assert violation is not None
    assert violation.rule == "C1"
    play_all(system, NO_REFUSALS)


# --- the checker ------------------------------------------------------------------------------------------


def test_a_search_that_is_cut_short_says_so() -> None:
    with pytest.raises(TooLargeError, match="more than 100 states"):
        explore(System(parsed("w(x); w(x)"), TRUE_RULES, Conditions()), max_states=100)


def test_several_processes_see_what_one_sees() -> None:
    scope = Scope(name="1+1", commits=(1, 1))
    assert check_scope(scope, TRUE_RULES, jobs=2) == check_scope(scope, TRUE_RULES)


def test_a_workload_is_written_as_it_is_read() -> None:
    workload = ((Kind("xy", "x"), Kind("", "y")), (Kind("y", "x"),))
    assert text_of(workload) == "r(xy)w(x) w(y); r(y)w(x)"
    assert parsed(text_of(workload)) == workload
    with pytest.raises(ValueError, match="'w\\(z\\)' is no commit of a program"):
        parsed("w(z)")


def test_the_command_prints_what_it_saw_and_fails_on_what_it_should_not_have_seen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope = Scope(name="blind", commits=(1, 1), kinds=BLIND)
    assert holds(scope, TRUE_RULES, 1)
    assert not holds(scope, Rules(replay_is_answered=False), 1)
    assert is_found(mistake("keys-forgotten"))
    printed = capsys.readouterr().out
    assert "holds   blind                   2 workloads" in printed
    assert "BROKEN  blind" in printed
    assert "settles is broken: A1 waits for ever" in printed
    assert "C10 is broken: A1 is in the log already" in printed


def test_the_command_exits_with_one_if_a_mistake_is_not_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = Scope(name="blind", commits=(1, 1), kinds=BLIND)
    monkeypatch.setattr("model.__main__.LEVELS", {"quick": (blind,)})
    monkeypatch.setattr("model.__main__.TWO_AND_ONE", blind)
    monkeypatch.setattr("model.__main__.check_derived", lambda level: [])
    assert main(["quick", "--jobs", "1"]) == 0
    assert "The rules hold, and every mistake was found." in capsys.readouterr().out
    harmless = Variant(name="harmless", says="nothing is changed", rules=TRUE_RULES, workload="w(x); w(y)")
    monkeypatch.setattr("model.__main__.MISTAKES", (harmless,))
    assert main(["quick", "--jobs", "1"]) == 1
    assert "FAILED: harmless" in capsys.readouterr().out
    monkeypatch.setattr("model.__main__.MISTAKES", ())
    monkeypatch.setattr("model.__main__.check_derived", lambda level: [f"derived at {level}"])
    assert main(["quick", "--jobs", "1"]) == 1
    assert "FAILED: derived at quick" in capsys.readouterr().out
