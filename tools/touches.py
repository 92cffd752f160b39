"""A pytest plugin that notes which tests touch the world outside: sockets, threads, processes, real time.

Python's audit events say so, whichever library does it. The plugin runs in every pytest-xdist worker; the process that
collects the reports writes them to the file that the variable HEADWATER_TOUCHES names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EVENTS = frozenset(
    {
        "_thread.start_new_thread",
        "os.fork",
        "os.posix_spawn",
        "socket.bind",
        "socket.connect",
        "subprocess.Popen",
        "time.sleep",
    }
)
_seen: set[str] = set()
_outcomes: dict[str, dict[str, bool]] = {}


def _note(event: str, _arguments: object) -> None:
    if event in EVENTS:
        _seen.add(event)


def pytest_configure() -> None:
    sys.addaudithook(_note)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _seen.clear()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    item.user_properties[:] = [("touches", event) for event in sorted(_seen)]
    yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    outcome = _outcomes.setdefault(report.nodeid, {"failed": False, "touches": False})
    outcome["failed"] |= report.failed
    outcome["touches"] |= any(name == "touches" for name, _ in report.user_properties)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # Only the process that hears of all tests writes.
        Path(os.environ["HEADWATER_TOUCHES"]).write_text(json.dumps(_outcomes))
