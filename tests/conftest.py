"""Settings for all tests: how many cases the random ones try, which those are, and what `./dev test` leaves out."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import hypothesis
import pytest

from tests.counts import is_exploring, scaled
from tools.dev import is_quick

_FULL_EXAMPLES = 1_000
_VARIABLES = ("HEADWATER_RANDOM_SCALE", "HEADWATER_SEEDS")
_COLLECTED_AFTER = 100_000
"""Objects that are made before the collector looks for those that nobody has any more, instead of 700."""

_TESTS = Path(__file__).parent
_NOT_INSTALLED = (
    _TESTS / "browser",  # a browser
    _TESTS / "tools",  # linters, a compiler, and the libraries and databases that benchmarks compare with
    _TESTS / "types",  # type checkers
)
"""Folders whose tests are all thorough, and what they need that `./dev test` does not install."""
_LONG = (
    _TESTS / "rules",  # read all of the source again and again
    _TESTS / "unit" / "cli",  # start commands
    _TESTS / "unit" / "engine",  # write and damage files
    _TESTS / "unit" / "server",  # serve and connect
    _TESTS / "unit" / "testing",  # play whole simulations
)
"""Folders whose tests are thorough unless the command line names the folder, or a file in it."""

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


def pytest_configure() -> None:
    # A shell starts a command in the background with SIGINT ignored, and child processes inherit that. Tests send it.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    settings = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    return f"random suites: {' '.join(settings) or 'a tenth of their counts'}"


def pytest_collection_finish() -> None:
    # Ten thousand tests and all modules are a million objects that stay: the collector needs not go over them again and
    # again. It still finds all that a test leaves behind.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path in _thorough_folders(config) and is_quick(config.option.markexpr) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thorough = _thorough_folders(config)
    for item in items:
        if not thorough.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.thorough)
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.random)
    # The long ones first, so that all workers end together. The order is the same in every run.
    items.sort(key=lambda item: "simulation" not in item.path.parts)


def _thorough_folders(config: pytest.Config) -> frozenset[Path]:
    """Return the folders whose tests are all thorough in this run."""
    named = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    asked_for = {folder for folder in _LONG for path in named if folder == path or folder in path.parents}
    return frozenset({*_NOT_INSTALLED, *_LONG} - asked_for)
