"""The pytest plugin for `@simulated` tests: shows the progress of their seeds, and counts them in the end.

It runs such a test seed by seed, so that it can draw a bar on a terminal, calls the hook `pytest_headwater_seeds`, and
sums up. Without it these tests run all the same, silently. It is loaded with every pytest of its environment: it
imports nothing that takes time.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from headwater.testing.author.seeds import Simulated

SEEDS: Final = "headwater seeds"
BAR: Final = 20
"""How many steps a bar has: it is drawn again with each, not with each seed."""
SAVE, ERASE, RESTORE = "\x1b7", "\x1b[K", "\x1b8"  # the place of the cursor; the rest of the line


class Hooks:
    """The hooks that a plugin may implement."""

    @pytest.hookspec
    def pytest_headwater_seeds(self, item: pytest.Item, done: int, total: int) -> None:
        """So many seeds of a test are done."""


class Bar:
    """A bar on the terminal, behind the output of pytest, that is wiped away when its test is over."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._steps = -1

    def pytest_headwater_seeds(self, item: pytest.Item, done: int, total: int) -> None:
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None or not reporter.isatty or self._config.get_verbosity() < -1:
            return
        steps = done * BAR // max(total, 1)
        if steps == self._steps and done not in (0, total):
            return
        self._steps = steps
        bar = "" if done == total else f" {'#' * steps}{'.' * (BAR - steps)} {done} of {total} seeds of {item.name}"
        room = shutil.get_terminal_size().columns - self._config.get_terminal_writer().width_of_current_line - 1
        self._draw(bar[: max(0, room)])

    def _draw(self, bar: str) -> None:
        """Write it where the cursor is, and leave the cursor there: pytest goes on as if nothing had been."""
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        with contextlib.nullcontext() if capture is None else capture.global_and_fixture_disabled():
            sys.stdout.write(f"{SAVE}{ERASE}{bar}{RESTORE}")
            sys.stdout.flush()


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Bar(config), "headwater-bar")


def simulated_of(item: pytest.Item) -> Simulated | None:
    """The simulated test of an item, if it is one."""
    found: Simulated | None = getattr(getattr(item, "obj", None), "__simulated__", None)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    __tracebackhide__ = True
    test = simulated_of(pyfuncitem)
    if test is None:
        return None
    ran = 0

    def progress(done: int, total: int) -> None:
        nonlocal ran
        ran = done
        pyfuncitem.ihook.pytest_headwater_seeds(item=pyfuncitem, done=done, total=total)

    on = getattr(pyfuncitem.obj, "__self__", None)  # the object that it is a method of
    given = {name: pyfuncitem.funcargs[name] for name in test.signature().parameters if name in pyfuncitem.funcargs}
    try:
        test.run(progress, hint=f"pytest '{pyfuncitem.nodeid}'", args=() if on is None else (on,), kwargs=given)
    finally:
        pyfuncitem.user_properties.append((SEEDS, ran))
        pyfuncitem.ihook.pytest_headwater_seeds(item=pyfuncitem, done=ran, total=ran)  # The rest does not come.
    return True


def seeds_of(report: pytest.TestReport) -> int:
    """How many seeds of a test went well."""
    return sum(int(str(value)) for name, value in report.user_properties if name == SEEDS)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    simulated = [
        each for each in reports if each.when == "call" and any(name == SEEDS for name, _ in each.user_properties)
    ]
    if simulated:
        seeds = sum(seeds_of(report) for report in simulated)
        failed = sum(report.failed for report in simulated)
        ended = f", {failed} of them ended by a seed that failed" if failed else ""
        what = f"{_counted(seeds, 'seed')} of {_counted(len(simulated), 'test')}"
        terminalreporter.write_line(f"simulated: {what} went well{ended}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
