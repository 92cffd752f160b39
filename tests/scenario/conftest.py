"""Simulated tests are random suites whose seeds are expensive each: they are marked so, and try some of them."""

from __future__ import annotations

import os

import pytest

from headwater.testing.author_plugin import simulated_of
from tests.counts import is_exploring

SCALE = "HEADWATER_RANDOM_SCALE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if simulated_of(item) is not None:
            item.add_marker(pytest.mark.random)


@pytest.fixture(autouse=True)
def some_of_the_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if simulated_of(request.node) is not None and not is_exploring():
        monkeypatch.setenv(SCALE, str(0.3 * float(os.environ.get(SCALE, "0.1"))))
