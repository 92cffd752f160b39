"""Run tests under coverage, and compare the coverage of `src` without kits with the figures in bench/baseline.json.

`python -m tools.covered run NAME ARGUMENTS...` runs pytest and keeps the data under NAME; data of that name from an
earlier run is removed first. `python -m tools.covered report NAME...` prints line and branch coverage of each of these
runs and of all together, without and with kits, and fails if the one without fell.

Coverage depends on the counts of random suites, so they are printed with it. `./dev check`, and the figures of
bench/baseline.json, are of a run of `./dev test` at a hundredth of the full counts and a run of the other tests and the
random suites at a tenth or less (tests/counts.py); `./dev sim` is not measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "coverage"
BASELINE = ROOT / "bench" / "baseline.json"
KITS = "src/headwater/testing/"
"""Not compared: what kits print of a failure is run by planted bugs, in copies of the product that are not measured."""
FELL_BY = 0.2
"""How many percentage points may be lost before it counts: see `TOLERANCE`."""
TOLERANCE = f"it may fall by {FELL_BY} points: random programs take other paths in threads and processes each time"
SCALE = "HEADWATER_RANDOM_SCALE"
TEST_LINES_LEAST = 85.0
"""Which percentage of the lines `./dev test` has to reach."""


class Covered(NamedTuple):
    """Percentages of some modules that some tests reached."""

    lines: float
    branches: float

    def __str__(self) -> str:
        return f"lines {self.lines:.1f} %, branches {self.branches:.1f} %"


class Both(NamedTuple):
    """What some tests reached of `src`, without and with its kits."""

    product: Covered
    with_kits: Covered

    def __str__(self) -> str:
        return f"{self.product}; with {KITS.rstrip('/')}: {self.with_kits}"


def main(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["run", name, *rest]:
            return run(name, rest)
        case ["report", *names] if names:
            return report(names)
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def run(name: str, arguments: Sequence[str]) -> int:
    """Run pytest with coverage of every process that it starts."""
    folder = KEPT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "scale").write_text(os.environ.get(SCALE, "0.1"))
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-p", "tools.covered", *arguments]
    return subprocess.run(command, cwd=ROOT, env=_environment(folder), check=False).returncode


def pytest_sessionfinish() -> None:
    """Keep the data of a test process when its tests are over: a pytest-xdist worker may be ended before its exit."""
    import coverage  # noqa: PLC0415 (only there for `./dev check`)

    current = coverage.Coverage.current()
    if current is not None:
        current.save()


def report(names: Sequence[str]) -> int:
    """Print what each of the named runs covered. Returns 1 if less is covered than in bench/baseline.json."""
    missing = [name for name in names if not (KEPT / name).is_dir()]
    if missing:
        print(f"not run under coverage: {' '.join(missing)}. python -m tools.covered run NAME", file=sys.stderr)
        return 2
    runs = {name: combined(name, [KEPT / name]) for name in names}
    for name, covered in runs.items():
        print(f"coverage of {name}, at {scale_of(name)} of the full counts: {covered}")
    before = Covered(**json.loads(BASELINE.read_text())["coverage"])
    after = combined("all", [KEPT / name for name in names])
    print(f"coverage before, at the counts of ./dev check: {before}")
    print(f"coverage after, of {' and '.join(names)} together: {after}")
    print(f"compared is the coverage without kits; {TOLERANCE}")
    failures = []
    quick = runs.get("test")
    if quick is not None and quick.product.lines < TEST_LINES_LEAST:
        lines = quick.product.lines
        failures.append(f"./dev test covers {lines:.1f} % of the lines, less than {TEST_LINES_LEAST:.0f} %")
    failures += [
        f"coverage of {name} fell from {old:.1f} % to {new:.1f} %"
        for name, old, new in zip(Covered._fields, before, after.product, strict=True)
        if new < old - FELL_BY
    ]
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def scale_of(name: str) -> str:
    """Which part of their full counts the random suites of a run had, at most."""
    return (KEPT / name / "scale").read_text()


def combined(name: str, folders: Sequence[Path]) -> Both:
    """Coverage of the runs in `folders` together."""
    data = KEPT / "together" / name / ".coverage"  # `combine` looks for files that begin with this name.
    shutil.rmtree(data.parent, ignore_errors=True)
    data.parent.mkdir(parents=True)
    combine = [sys.executable, "-m", "coverage", "combine", "--quiet", "--keep", f"--data-file={data}"]
    subprocess.run([*combine, *map(str, folders)], cwd=ROOT, env=_environment(data.parent), check=True)
    command = [sys.executable, "-m", "coverage", "json", "--quiet", f"--data-file={data}", "-o", "-"]
    done = subprocess.run(command, cwd=ROOT, env=_environment(data.parent), check=True, capture_output=True)
    files = {path: file["summary"] for path, file in json.loads(done.stdout)["files"].items()}
    product = [summary for path, summary in files.items() if not path.startswith(KITS)]
    return Both(percentages(product), percentages(files.values()))


def percentages(summaries: Collection[Mapping[str, int]]) -> Covered:
    """Coverage of modules together, from the summary of each in coverage's report."""
    lines = sum(each["covered_lines"] for each in summaries) / sum(each["num_statements"] for each in summaries)
    branches = sum(each["covered_branches"] for each in summaries) / sum(each["num_branches"] for each in summaries)
    return Covered(round(100 * lines, 2), round(100 * branches, 2))


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HEADWATER_COVERAGE": str(folder)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
