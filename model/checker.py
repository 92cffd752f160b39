"""The search: breadth first over every state that a workload can reach, with a shortest way to a violation.

Knows nothing of the protocol. A check ends when every reachable state was seen, or at the first violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from model.messages import Broken
from model.rules import Rules
from model.system import System
from model.workload import Conditions, Scope, Workload

MAX_STATES: Final = 20_000_000
"""Of one workload. A search that reaches it has shown nothing and says so."""


class TooLargeError(Exception):
    """The bound on states was reached before the search ended: nothing was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The rule that is broken, why, and the steps that lead there from the start."""

    rule: str
    why: str
    trace: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far the search of one workload went, and what it found."""

    workload: Workload
    states: int
    steps: int
    depth: int  # the longest of the shortest ways to a state
    violation: Violation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The searches of a scope, up to the first violation."""

    workloads: int
    states: int
    steps: int
    depth: int
    refuted: Outcome | None


def explore(system: System, *, max_states: int = MAX_STATES, visit: Callable[[int], object] | None = None) -> Outcome:
    """See every state once; `visit` is told of each."""
    came_from = {system.start: system.start}
    frontier = [system.start]
    taken = depth = 0
    violation = None
    while frontier and violation is None:
        found: list[int] = []
        for state in frontier:
            try:
                reached = system.after(state)
            except Broken as broken:
                violation = _violation(system, came_from, state, broken)
                break
            if visit is not None:
                visit(state)
            taken += len(reached)
            for after in reached:
                if after not in came_from:
                    came_from[after] = state
                    found.append(after)
        if len(came_from) > max_states:
            raise TooLargeError(f"more than {max_states:,} states: raise the bound or take a smaller scope")
        frontier = found
        depth += bool(found)
    return Outcome(workload=system.workload, states=len(came_from), steps=taken, depth=depth, violation=violation)


def _violation(system: System, came_from: dict[int, int], state: int, broken: Broken) -> Violation:
    names = [broken.step] if broken.step else []
    while state != system.start:
        before = came_from[state]
        names.append(next(what for what, after in system.steps(before) if after == state))
        state = before
    return Violation(rule=broken.rule, why=broken.why, trace=tuple(reversed(names)))


def check_workload(workload: Workload, rules: Rules, conditions: Conditions) -> Outcome:
    return explore(System(workload, rules, conditions))


def check_scope(scope: Scope, rules: Rules, jobs: int = 1) -> Summary:
    """Every workload of the scope, in as many processes as there are jobs."""
    check = partial(check_workload, rules=rules, conditions=scope.conditions)
    if jobs == 1:
        return _summary(map(check, scope.workloads()))
    with ProcessPoolExecutor(jobs) as pool:
        summary = _summary(pool.map(check, scope.workloads(), chunksize=4))
        pool.shutdown(cancel_futures=True)
        return summary


def _summary(outcomes: Iterable[Outcome]) -> Summary:
    workloads = states = steps = depth = 0
    refuted = None
    for outcome in outcomes:
        workloads += 1
        states += outcome.states
        steps += outcome.steps
        depth = max(depth, outcome.depth)
        if outcome.violation is not None:
            refuted = outcome
            break
    return Summary(workloads=workloads, states=states, steps=steps, depth=depth, refuted=refuted)
