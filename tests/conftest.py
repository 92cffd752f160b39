"""Settings for all tests: how many cases the random ones try, and which they are."""

from __future__ import annotations

import os

import hypothesis
import pytest

from tests.counts import is_exploring, scaled

_FULL_EXAMPLES = 1_000
_VARIABLES = ("HEADWATER_RANDOM_SCALE", "HEADWATER_SEEDS")

hypothesis.settings.register_profile(
    "headwater",
    max_examples=scaled(_FULL_EXAMPLES),
    # The same cases in every run of ./dev test, so that it says something about the change and not about
    # luck. ./dev sim looks for new ones and prints how to repeat what it finds.
    derandomize=not is_exploring(),
    print_blob=True,
    # A machine with other work to do must not fail a test. Costs are gated by counting, in their own tests.
    deadline=None,
)
hypothesis.settings.load_profile("headwater")


def pytest_report_header() -> str:
    settings = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    return f"random suites: {' '.join(settings) or 'a tenth of their counts'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.random)
    # The long ones first, so that two workers end together. The order is the same in every run.
    items.sort(key=lambda item: "simulation" not in item.path.parts)
