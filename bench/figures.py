"""How a figure is measured and printed: one JSON line each, with its goal and whether it was met."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """Collects the figures of one run."""

    missed: list[str] = field(default_factory=list)

    def report(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        against: str = "",
        ratio: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Print one figure. The goal bounds the ratio if there is one, otherwise the value."""
        judged = value if ratio is None else ratio
        goal, met = "", True
        if at_least is not None:
            goal, met = f">= {at_least:g}", judged >= at_least
        if at_most is not None:
            goal, met = f"<= {at_most:g}", judged <= at_most
        line = {
            "name": name,
            "value": _rounded(value),
            "unit": unit,
            "against": against or None,
            "ratio": None if ratio is None else _rounded(ratio),
            "goal": goal or None,
            "met": met,
        }
        print(json.dumps(line), flush=True)
        if not met:
            self.missed.append(name)


def print_missing(name: str, unit: str, why: str) -> None:
    """Print a figure that could not be had in the place and form of the others, with the reason."""
    note(f"  !! {name}: {why}")
    line = {"name": name, "value": None, "unit": unit, "against": None, "ratio": None, "goal": None, "met": None}
    print(json.dumps({**line, "why": why}), flush=True)


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def interleaved(contenders: Mapping[str, Callable[[], int]], rounds: int = 5) -> dict[str, float]:
    """Seconds per unit of each contender: the minimum over rounds in which all of them take turns.

    A contender does its work and answers how many units it did. Taking turns spreads whatever else the
    machine does over all of them.
    """
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds):
        note(f"  round {turn + 1} of {rounds}")
        for name, work in contenders.items():
            started = time.perf_counter()
            units = work()
            best[name] = min(best[name], (time.perf_counter() - started) / units)
    return best


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def note(text: str) -> None:
    """Progress, on standard error, so that standard output holds figures only."""
    print(text, file=sys.stderr, flush=True)
