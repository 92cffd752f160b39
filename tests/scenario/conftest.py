"""Simulated tests are random suites: they are marked so, and try a tenth of their seeds unless told otherwise."""

from __future__ import annotations

import os

import pytest

from headwater.testing.author_plugin import simulated_of


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if simulated_of(item) is not None:
            item.add_marker(pytest.mark.random)


@pytest.fixture(autouse=True)
def a_tenth_of_the_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if simulated_of(request.node) is not None and "HEADWATER_RANDOM_SCALE" not in os.environ:
        monkeypatch.setenv("HEADWATER_RANDOM_SCALE", "0.1")
