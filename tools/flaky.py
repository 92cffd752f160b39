"""Run tests that depend on the world outside many times, and print those that did not pass every time: `./dev flaky`.

The first run executes all tests of `./dev test` and notes which of them opened a socket, started a thread or a process,
or slept in real time (Python's audit events tell). The other runs repeat only those. With --load, more busy loops than
the machine has cores run beside the tests, at the same priority.
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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKERS = "3"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev flaky", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="tests to choose from; all if none is named")
    parser.add_argument("--times", type=int, default=10, metavar="N", help="how often each test runs (default 10)")
    parser.add_argument("--load", action="store_true", help="run busy loops beside the tests")
    options = parser.parse_args(arguments)
    if options.times < 1:
        parser.error("--times takes a whole number of 1 or more")
    failures: Counter[str] = Counter()
    with busy_loops((os.cpu_count() or 1) + 1 if options.load else 0):
        started = time.monotonic()
        outcomes = run_tests(options.paths)
        chosen = sorted(name for name, outcome in outcomes.items() if outcome["touches"])
        failures.update(name for name in outcomes if outcomes[name]["failed"])
        progress(f"run 1 of {options.times}: {len(chosen)} of {len(outcomes)} tests touch the world outside", started)
        for number in range(2, options.times + 1 if chosen else 0):
            outcomes = run_tests(chosen)
            failures.update(name for name in outcomes if outcomes[name]["failed"])
            progress(f"run {number} of {options.times}: {failures.total()} failures so far", started)
    for name, times in sorted(failures.items()):
        print(f"{name}: failed {times} of {options.times} times")
    return 1 if failures else 0


def run_tests(names: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Run tests once. Returns, for each, whether it failed and whether it touched the world outside."""
    with tempfile.TemporaryDirectory(prefix="headwater-flaky-") as scratch:
        report, chosen = Path(scratch) / "report.json", Path(scratch) / "chosen.txt"
        chosen.write_text("\n".join(names))
        environment = {**os.environ, "HEADWATER_TOUCHES": str(report)}
        environment.setdefault("HEADWATER_RANDOM_SCALE", "0.01")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not thorough", "-n", WORKERS, "--dist", "worksteal"]
        command += ["-p", "tools.touches", f"@{chosen}"] if names else ["-p", "tools.touches"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not report.exists() or done.returncode > 1:
            raise SystemExit(
                f"./dev flaky: pytest could not run the tests:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
            )
        if done.returncode == 1:
            print(done.stdout[-20_000:], file=sys.stderr, flush=True)
        outcomes: dict[str, dict[str, bool]] = json.loads(report.read_text())
        return outcomes


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Keep `number` processes busy while the block runs."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=_spin, daemon=True) for _ in range(number)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def _spin() -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # It ends with its parent, however that ends.
        sum(range(10_000))


def progress(text: str, started: float) -> None:
    print(f"./dev flaky: {text} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
