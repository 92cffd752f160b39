"""`python -m model [quick|full|vast] [--jobs N]`: check the rules, refute the mistakes, print what was seen.

Exits 1 if a rule of the true protocol is broken, or if a mistake is not found.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from headwater.clock import RealClock
from model.checker import Outcome, Summary, check_scope, check_workload
from model.derived.__main__ import check_level as check_derived
from model.messages import NAMES
from model.rules import TRUE_RULES, Rules
from model.scopes import LEVELS, TWO_AND_ONE
from model.variants import ALTERNATIVES, MISTAKES, Variant
from model.workload import Scope, parsed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m model", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("level", nargs="?", choices=LEVELS, default="quick", help="how much to check; quick by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes to use")
    options = parser.parse_args(arguments)
    say("The rules: C1, C3, C4, C5, C6, C10, and that everything settles once faults cease.")
    failed = [scope.name for scope in LEVELS[options.level] if not holds(scope, TRUE_RULES, options.jobs)]
    for alternative in ALTERNATIVES:
        say(f"\nAn alternative that must hold too, {alternative.name}: {alternative.says}.")
        if not holds(TWO_AND_ONE, alternative.rules, options.jobs):
            failed.append(alternative.name)
    say("\nMistakes that must be found:")
    failed += [mistake.name for mistake in MISTAKES if not is_found(mistake)]
    failed += check_derived(options.level)
    say(f"\nFAILED: {', '.join(failed)}" if failed else "\nThe rules hold, and every mistake was found.")
    return 1 if failed else 0


def holds(scope: Scope, rules: Rules, jobs: int) -> bool:
    clock = RealClock()
    started_us = clock.monotonic_us()
    summary = check_scope(scope, rules, jobs)
    say(f"{figures(scope, summary)}, {(clock.monotonic_us() - started_us) / 1e6:6.1f} s")
    if summary.refuted is not None:
        say(story(summary.refuted))
    return summary.refuted is None


def is_found(mistake: Variant) -> bool:
    outcome = check_workload(parsed(mistake.workload), mistake.rules, mistake.conditions)
    say(f"\n{mistake.name}: {mistake.says}.")
    if outcome.violation is None:
        say(f"  not found in {outcome.states:,} states")
        return False
    say(story(outcome))
    return outcome.violation.rule in mistake.breaks


def figures(scope: Scope, summary: Summary) -> str:
    return (
        f"{'holds  ' if summary.refuted is None else 'BROKEN '} {scope.name:<20} {summary.workloads:>4} workloads "
        f"{summary.states:>11,} states {summary.steps:>12,} steps, depth {summary.depth:>2}"
    )


def story(outcome: Outcome) -> str:
    """A violation as a person reads it: who does what, step by step, and which rule is broken in the end."""
    if outcome.violation is None:
        return ""
    programs = [f"{NAMES[number]}: {' '.join(map(str, program))}" for number, program in enumerate(outcome.workload)]
    steps = [f"  {number:>3}. {what}" for number, what in enumerate(outcome.violation.trace, 1)]
    broken = f"  {outcome.violation.rule} is broken: {outcome.violation.why} ({outcome.states:,} states seen)"
    return "\n".join([f"  with {'; '.join(programs)}", *steps, broken])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
