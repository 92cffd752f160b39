"""The model of derived results (`model/derived`): its rules and the alternatives hold, every known mistake is found."""

from __future__ import annotations

import pytest

from model.derived.__main__ import check_level, main
from model.derived.explore import Finding, Script, TooLargeError, play, replay, search, shrink, told
from model.derived.graph import FAILED
from model.derived.messages import Fate, Verdict
from model.derived.rules import TRUE_RULES, Rules
from model.derived.runtime import Stage, State
from model.derived.scopes import LEVELS, THERE_AND_BACK
from model.derived.variants import ALTERNATIVES, MISTAKES, Variant
from model.derived.world import World
from tests.counts import is_exploring, scaled, seldom

SCRIPTS = LEVELS["full"] if is_exploring() else LEVELS["quick"][:1]


def mistake(name: str) -> Variant:
    return next(variant for variant in MISTAKES if variant.name == name)


def text_of(finding: Finding) -> str:
    return "\n".join([f"seed {finding.seed}, {finding.setting}", *map(told, finding.trace), finding.rule, finding.why])


@pytest.mark.random
def test_rules_hold_on_random_schedules() -> None:
    for seed in range(seldom(20_000, least=60)):
        finding = play(seed, TRUE_RULES)
        assert finding is None, text_of(shrink(finding, TRUE_RULES))


@pytest.mark.random
@pytest.mark.parametrize("alternative", ALTERNATIVES, ids=lambda variant: variant.name)
def test_rules_hold_for_the_alternatives(alternative: Variant) -> None:
    for seed in range(scaled(2_000, least=20)):
        finding = play(seed, alternative.rules)
        assert finding is None, text_of(shrink(finding, alternative.rules))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_rules_hold_in_every_schedule_of_a_script(script: Script) -> None:
    outcome = search(script, TRUE_RULES)
    assert outcome.finding is None, text_of(outcome.finding)
    assert outcome.states > 1_000


@pytest.mark.parametrize("variant", MISTAKES, ids=lambda variant: variant.name)
def test_mistake_is_found(variant: Variant) -> None:
    finding = play(variant.seed, variant.rules)
    assert finding is not None, variant.says
    assert finding.rule in variant.breaks, finding.why


@pytest.mark.parametrize("variant", MISTAKES, ids=lambda variant: variant.name)
def test_schedule_that_shows_a_mistake_is_harmless_without_it(variant: Variant) -> None:
    assert play(variant.seed, TRUE_RULES) is None


def test_shortest_schedule_of_an_early_elision() -> None:
    """The old result is accepted, but not confirmed yet, when the new one is compared with the confirmed value."""
    finding = search(THERE_AND_BACK, mistake("elided-uncovered").rules).finding
    assert finding is not None
    assert finding.rule == "I1"
    assert [told(move) for move in finding.trace[6:]] == [
        "A sets x to 1",
        "A runs a",
        "A: flush",
        "the engine judges the next message of A",
        "A hears the next verdict or Sync",
        "the engine sends A a Sync up to seq 3",
        "A sets x to 0",
        "A runs a",
        "A: flush",
        "A hears the next verdict or Sync",
    ]


def test_random_schedules_reach_the_situations_that_the_rules_are_about() -> None:
    """A model in which nothing goes wrong would hold, too."""
    seen: set[str] = set()

    def visit(world: World) -> None:
        for runtime in world.runtimes:
            waves = [message for message in runtime.unanswered.values() if message.entries]
            nodes = [entry.node for message in waves for entry in message.entries]
            named = [read.entry for message in waves for entry in message.entries for read in entry.reads]
            heard = [fate for each in runtime.down if isinstance(each, Verdict) for fate in each.fates]
            stages = {entry.stage for entry in runtime.tier.values()}
            seen.update(stage.name for stage in stages)
            seen.update(fate.name for fate in heard)
            facts = {
                "three waves under way": len(waves) == 3,
                "two results of one node under way": len(nodes) > len(set(nodes)),
                "a wave and a commit in one message": any(message.commits for message in waves),
                "a read of an entry of the same wave": any(
                    read.entry and read.entry[0] == message.number
                    for message in waves
                    for entry in message.entries
                    for read in entry.reads
                ),
                "a read of an earlier wave": any(
                    read.entry and read.entry[0] < message.number
                    for message in waves
                    for entry in message.entries
                    for read in entry.reads
                ),
                "a difference": any(entry.base is not None for message in waves for entry in message.entries),
                "a frozen result": any(entry.frozen for entry in runtime.tier.values()),
                "a failed node": any(entry.value == FAILED for entry in runtime.tier.values()),
                "a paused node": any(node.paused for node in runtime.nodes.values()),
                "a clean node over a gated one": runtime.gated
                and runtime.nodes["a"].state is State.INVALID
                and any(runtime.nodes[node].state is State.CLEAN and "a" in runtime.nodes[node].reads for node in "bc"),
                "a node that yields": bool(runtime.yielding()),
                "a document set aside": bool(runtime.aside),
                "an own result not covered": bool(runtime.uncovered),
                "a wave under way without a connection": bool(waves) and not runtime.is_connected,
                "a result of a session without write access": runtime.read_only and Stage.LOCAL in stages,
                "a named result": any(named),
            }
            seen.update(fact for fact, is_so in facts.items() if is_so)

    for seed in range(60):
        play(seed, TRUE_RULES, visit)
    assert seen >= {
        *(stage.name for stage in Stage),
        *(fate.name for fate in Fate),
        "three waves under way",
        "two results of one node under way",
        "a wave and a commit in one message",
        "a read of an entry of the same wave",
        "a read of an earlier wave",
        "a difference",
        "a frozen result",
        "a failed node",
        "a paused node",
        "a clean node over a gated one",
        "a node that yields",
        "a document set aside",
        "an own result not covered",
        "a wave under way without a connection",
        "a result of a session without write access",
        "a named result",
    }


def test_shrunk_schedule_breaks_the_same_property() -> None:
    variant = mistake("net-seqs")
    finding = play(variant.seed, variant.rules)
    assert finding is not None
    short = shrink(finding, variant.rules)
    assert len(short.trace) < len(finding.trace) / 2
    again = replay(short.trace, short.setting, variant.rules)
    assert again is not None
    assert again.rule == finding.rule
    assert replay(short.trace, short.setting, TRUE_RULES) is None


def test_search_that_is_cut_short_says_so() -> None:
    with pytest.raises(TooLargeError, match="more than 100 states"):
        search(THERE_AND_BACK, TRUE_RULES, most=100)


def test_command_fails_if_a_mistake_is_not_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.derived.__main__.LEVELS", {"quick": ()})
    monkeypatch.setattr("model.derived.__main__.SEEDS", {"quick": 8})
    assert main(["quick"]) == 0
    assert "holds   in 8 schedules: random schedules" in capsys.readouterr().out
    harmless = Variant("harmless", "nothing is changed", TRUE_RULES, frozenset({"I1"}), 0)
    monkeypatch.setattr("model.derived.__main__.MISTAKES", (harmless,))
    assert check_level("quick") == ["harmless"]
    assert main(["quick"]) == 1


def test_command_tells_the_schedule_that_breaks_a_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.derived.__main__.LEVELS", {"quick": (THERE_AND_BACK,)})
    monkeypatch.setattr("model.derived.__main__.SEEDS", {"quick": 8})
    monkeypatch.setattr("model.derived.__main__.TRUE_RULES", Rules(shown_until_covered=False))
    assert check_level("quick") == ["there and back", "random schedules"]
    assert "I1 is broken: A shows a" in capsys.readouterr().out
