"""How many cases a random suite tries.

A suite states its full count; `./dev test` runs a hundredth of it, `./dev check` a tenth, `./dev sim` all of it, and
`--seeds N` exactly N. `seldom` and some suites run less of it; docs/ARCHITECTURE.md lists them. A suite that says
nothing below some count states that as well. Mark such a suite with `@pytest.mark.random`; tests that use hypothesis
are marked by themselves.

    @pytest.mark.random
    def test_something_holds_for_every_schedule() -> None:
        for seed in range(scaled(20_000)):
            ...
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

__all__ = ["is_exploring", "sampled", "scaled", "seldom"]

T = TypeVar("T")
SAMPLED: Final = 10


def scaled(full: int, *, least: int = 1) -> int:
    """The count to run where `full` is the whole of it, and fewer than `least` mean nothing."""
    seeds = os.environ.get("HEADWATER_SEEDS")
    if seeds is not None:
        return max(1, int(seeds))
    return max(least, round(full * _scale()))


def seldom(full: int, *, least: int = 1) -> int:
    """The count of cases that are expensive each: a tenth of the others where not everything is run."""
    return scaled(full, least=least) if is_exploring() else max(least, scaled(full) // 10)


def sampled(cases: Sequence[T]) -> Sequence[T]:
    """Some of many expensive cases, always the same ones; all of them where everything is run."""
    return cases if is_exploring() else cases[1::SAMPLED]


def is_exploring() -> bool:
    """Whether this run looks for new cases, as `./dev sim` does, instead of repeating known ones."""
    return "HEADWATER_SEEDS" in os.environ or _scale() >= 1


def _scale() -> float:
    return float(os.environ.get("HEADWATER_RANDOM_SCALE", "0.1"))
