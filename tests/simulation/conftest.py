"""What the histories of a run have done, printed at its end: a mechanism that none of them reached was not tested."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headwater.testing.simulation.simulation import Summary
from headwater.testing.simulation.trace import COVERED

_TOTAL: Counter[str] = Counter()
_KEY = "histories"


@pytest.fixture
def covered(record_property: Any) -> Any:
    """Add what a summary counted to what is printed at the end."""

    def add(summary: Summary) -> None:
        record_property(_KEY, {"histories": summary.seeds, **summary.counts})

    return add


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":  # of a worker's process, too
        for name, counted in report.user_properties:
            if name == _KEY and isinstance(counted, dict):
                _TOTAL.update(counted)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _TOTAL:
        terminalreporter.section(f"what {_TOTAL['histories']} simulated histories have done")
        for what in COVERED:
            terminalreporter.line(f"{_TOTAL[what]:8} {what}")
