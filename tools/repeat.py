"""A pytest plugin that repeats tests which touch the world outside: sockets, threads, processes, real time.

Python's audit events tell of sockets, processes and sleeping, whichever library does it; a thread that is started and
an event loop that waits for a moment in real time are noted where they happen. Such a test runs HEADWATER_REPEAT times,
one after the other in the same worker; every other test runs once. Used by `./dev flaky`, which reads the outcomes from
the file that HEADWATER_OUTCOMES names.
"""

from __future__ import annotations

import functools
import json
import os
import selectors
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

EVENTS = frozenset(
    {
        "os.fork",
        "os.posix_spawn",
        "socket.bind",
        "socket.connect",
        "subprocess.Popen",
        "time.sleep",
    }
)
_seen: set[str] = set()
_runs: dict[str, int] = {}
_failures: dict[str, int] = {}


def _note(event: str, _arguments: object) -> None:
    if event in EVENTS:
        _seen.add(event)


def pytest_configure() -> None:
    sys.addaudithook(_note)
    threading.Thread.start = _noted(threading.Thread.start, "thread", lambda *_: True)  # type: ignore[method-assign]
    selector: Any = selectors.DefaultSelector
    selector.select = _noted(selector.select, "timer", lambda _, timeout=None: bool(timeout and timeout > 0))


def _noted(function: Callable[..., Any], event: str, counts: Callable[..., bool]) -> Callable[..., Any]:
    """Return a function that notes an event if `counts` says so of its arguments, and calls `function`."""

    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        if counts(*args, **kwargs):
            _seen.add(event)
        return function(*args, **kwargs)

    return noting


class _Again:
    """Stands for the next test while a test is repeated: fixtures of its module and class stay, its own do not."""

    def __init__(self, item: pytest.Item) -> None:
        self._chain = item.listchain()[:-1]

    def listchain(self) -> list[Any]:
        return list(self._chain)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test, and again as often as asked if it touched the world outside."""
    again: Any = _Again(item)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    _seen.clear()
    runtestprotocol(item, nextitem=again)
    for _ in range(int(os.environ["HEADWATER_REPEAT"]) - 1 if _seen else 0):
        assert isinstance(item, pytest.Function)
        item._initrequest()
        runtestprotocol(item, nextitem=again)
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "setup":
        _runs[report.nodeid] = _runs.get(report.nodeid, 0) + 1
    if report.failed:
        _failures[report.nodeid] = _failures.get(report.nodeid, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # Only the process that hears of all tests writes.
        outcomes = {"runs": _runs, "failures": _failures}
        Path(os.environ["HEADWATER_OUTCOMES"]).write_text(json.dumps(outcomes))
