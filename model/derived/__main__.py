"""`python -m model.derived [quick|full|vast]`: check the rules of the derived tier, and find the mistakes.

Exits 1 if a rule is broken, or if a mistake is not found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from headwater.clock import RealClock
from model.derived.explore import Finding, Script, play, search, shrink, told
from model.derived.rules import TRUE_RULES, Rules
from model.derived.scopes import LEVELS, SEEDS
from model.derived.variants import ALTERNATIVES, MISTAKES, Variant


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m model.derived")
    parser.add_argument("level", nargs="?", choices=LEVELS, default="quick", help="how much to check; quick by default")
    options = parser.parse_args(arguments)
    return 1 if check_level(options.level) else 0


def check_level(level: str) -> list[str]:
    """Check everything of a level and print it; answer the names of the checks that failed."""
    say("\nDerived results as a cache: every schedule of a script, then random ones.")
    failed = [script.name for script in LEVELS[level] if not holds_in_all(script)]
    if not holds("random schedules", TRUE_RULES, SEEDS[level]):
        failed.append("random schedules")
    for alternative in ALTERNATIVES:
        if not holds(f"{alternative.name}: {alternative.says}", alternative.rules, SEEDS[level] // 4):
            failed.append(alternative.name)
    return failed + [mistake.name for mistake in MISTAKES if not is_found(mistake)]


def holds_in_all(script: Script) -> bool:
    clock = RealClock()
    started_us = clock.monotonic_us()
    outcome = search(script, TRUE_RULES)
    seconds = (clock.monotonic_us() - started_us) / 1e6
    verdict = "holds  " if outcome.finding is None else "BROKEN "
    say(f"{verdict} {script.name:<24} {outcome.states:>9,} states {outcome.steps:>10,} steps, {seconds:6.1f} s")
    if outcome.finding is not None:
        say(story(outcome.finding))
    return outcome.finding is None


def holds(name: str, rules: Rules, seeds: int) -> bool:
    finding = next(filter(None, (play(seed, rules) for seed in range(seeds))), None)
    say(f"{'holds  ' if finding is None else 'BROKEN '} in {seeds:,} schedules: {name}")
    if finding is not None:
        say(f"seed {finding.seed}\n{story(shrink(finding, rules))}")
    return finding is None


def is_found(mistake: Variant) -> bool:
    finding = play(mistake.seed, mistake.rules)
    if finding is None:
        say(f"MISSED  {mistake.name}: {mistake.says}")
        return False
    say(f"found   {mistake.name}: {mistake.says}: {finding.rule}, {finding.why}")
    return finding.rule in mistake.breaks


def story(finding: Finding) -> str:
    """A finding as a person reads it."""
    steps = [f"  {number:>3}. {told(move)}" for number, move in enumerate(finding.trace, 1)]
    return "\n".join([f"  with {finding.setting}", *steps, f"  {finding.rule} is broken: {finding.why}"])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
