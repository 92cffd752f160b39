"""Run tests that depend on the world outside many times, and print those that did not pass every time: `./dev flaky`.

A test that opens a socket, starts a thread or a process, or sleeps in real time is repeated; the others
run once (`tools.repeat` tells them apart). With --load, more busy loops than the machine has cores run beside the
tests, at the same priority. Folders in `NOT_INSTALLED` are left out unless they are named.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_INSTALLED = ("tests/browser", "tests/tools", "tests/types")
"""Tests of which the packages are only there for `./dev check`."""
WORKERS = "8"
"""Processes that run tests: more than the busy loops, which would have most of the machine otherwise."""
TESTS_FAILED = 1  # pytest's exit code; 2 and above mean that it could not run them


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev flaky", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="tests to choose from; if none is named, all but those in " + ", ".join(NOT_INSTALLED),
    )
    parser.add_argument("--times", type=int, default=10, metavar="N", help="how often each test runs (default 10)")
    parser.add_argument("--load", action="store_true", help="run busy loops beside the tests")
    options = parser.parse_args(arguments)
    if options.times < 1:
        parser.error("--times takes a whole number of 1 or more")
    if folders := left_out(options.paths):
        why = "./dev check installs their packages; name a folder to run it after that"
        print(f"./dev flaky: left out: {', '.join(folders)} ({why})", file=sys.stderr, flush=True)
    started = time.monotonic()
    with busy_loops((os.cpu_count() or 1) + 1 if options.load else 0):
        runs, failures = run_tests(options.paths, options.times)
    repeated = sum(count > 1 for count in runs.values())
    print(
        f"./dev flaky: {len(runs)} tests, of which {repeated} touch the world outside and ran {options.times} times,"
        f" in {time.monotonic() - started:.0f} s",
        file=sys.stderr,
    )
    for name, times in sorted(failures.items()):
        print(f"{name}: failed {times} of {runs[name]} times")
    return 1 if failures else 0


def left_out(paths: Sequence[str]) -> list[str]:
    """The folders below `paths`, or of all tests if there is no path, that are not run. A folder that is named is."""
    named = [Path(path) for path in paths]
    return [one for one in NOT_INSTALLED if not named or any(path in Path(one).parents for path in named)]


def run_tests(paths: Sequence[str], times: int) -> tuple[dict[str, int], dict[str, int]]:
    """Run tests, some of them repeatedly. Returns how often each ran and how often it failed; progress on stderr."""
    with tempfile.TemporaryDirectory(prefix="headwater-flaky-") as scratch:
        outcomes = Path(scratch) / "outcomes.json"
        environment = {**os.environ, "HEADWATER_REPEAT": str(times), "HEADWATER_OUTCOMES": str(outcomes)}
        environment.setdefault("HEADWATER_RANDOM_SCALE", "0.01")
        command = [sys.executable, "-m", "pytest", "-q", "-n", WORKERS, "--dist", "worksteal"]
        command += [f"--ignore={folder}" for folder in NOT_INSTALLED]
        code = subprocess.run(
            [*command, "-p", "tools.repeat", *paths], cwd=ROOT, env=environment, stdout=sys.stderr, check=False
        ).returncode
        if code > TESTS_FAILED or not outcomes.exists():
            raise SystemExit("./dev flaky: pytest could not run the tests; its lines above say why")
        return read_outcomes(outcomes)


def read_outcomes(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """How often each test ran, and how often each of those that failed did."""
    found = json.loads(path.read_text())
    return found["runs"], found["failures"]


@contextmanager
def busy_loops(number: int) -> Iterator[tuple[int, ...]]:
    """Keep `number` processes busy while the block runs. Gives their process ids."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=_spin, daemon=True) for _ in range(number)]
    for loop in loops:
        loop.start()
    try:
        yield tuple(loop.pid for loop in loops if loop.pid is not None)
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def _spin() -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # It ends with its parent, however that ends.
        sum(range(10_000))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
