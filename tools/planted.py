"""Plant each known bug in a copy of the product and run the test that has to find it: `./dev sim --planted`.

A fault point is a comment in the product, and costs nothing there:

    # fault admission.stale_reads_pass: if False:
    if newest > read.seq:
        ...

With the fault `admission.stale_reads_pass` planted, the statement below the comment (of a compound statement only its
header, of an expression over several lines only the line) is replaced by the text behind the colon.
`# fault+ NAME: text` inserts the text in front of that statement instead. A name may stand in several places; all of
them are planted together. tests/planted.txt lists every fault with the test that finds it.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
LIST = ROOT / "tests" / "planted.txt"
TOGETHER = 2
"""How many copies are tested at a time."""
SECONDS_MOST = 600
"""How long one test may look for its bug."""

_FAULT = re.compile(r"^(?P<indent> *)# fault(?P<insert>\+?) (?P<name>[a-z0-9_]+(\.[a-z0-9_]+)+):(?P<text>.*)$")
_SEED = re.compile(r"\bseed[ =:]+(\d+)")
_TESTS_FAILED = 1  # pytest's exit code; 2 and above mean that it could not run them


class Planted(NamedTuple):
    """One line of tests/planted.txt: a fault, the cases in which it has to be found, and the test that finds it."""

    name: str
    seeds: int
    test: str


class Result(NamedTuple):
    """Whether the test found the fault, and how."""

    planted: Planted
    is_found: bool
    text: str


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev sim --planted", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults to plant, by the beginning of their names")
    parser.add_argument("--list", action="store_true", help="print the faults and plant none")
    options = parser.parse_args(arguments)
    listed = read_list(LIST.read_text())
    chosen = [one for one in listed if not options.names or one.name.startswith(tuple(options.names))]
    if not chosen:
        parser.error(f"no fault in {LIST.relative_to(ROOT)} begins with {' or '.join(options.names)}")
    if options.list:
        print(*(f"{one.name}  {one.test}" for one in chosen), sep="\n")
        return 0
    sound = largest_counts(chosen)
    missed = []
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        for number, (one, code) in enumerate(zip(sound, pool.map(test_sound_product, sound), strict=True), 1):
            if code is None:
                print(f"{one.test} did not end within {SECONDS_MOST} s in a product without a planted bug")
                return 1
            if code != 0:
                print(f"{one.test} fails in {one.seeds} cases of a product without a planted bug: mend that first")
                return 1
            print(f"without a bug {number}/{len(sound)}: {one.test} passes in {one.seeds} cases", flush=True)
        for number, result in enumerate(pool.map(find, chosen), 1):
            print(f"{number}/{len(chosen)} {result.planted.name}: {result.text}", flush=True)
            if not result.is_found:
                missed.append(result.planted.name)
    print(f"planted bugs: {len(chosen) - len(missed)} of {len(chosen)} found")
    if missed:
        print("not found:", *missed, sep="\n  ")
    return 1 if missed else 0


def read_list(text: str) -> list[Planted]:
    """Parse tests/planted.txt: name, number of cases and test on each line, comments and empty lines between."""
    rows = [line.split(maxsplit=2) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Planted(name, int(seeds), test) for name, seeds, test in rows]


def largest_counts(chosen: Sequence[Planted]) -> list[Planted]:
    """Return each test once, without a fault, in the largest number of cases that is listed for it."""
    counts: dict[str, int] = {}
    for one in chosen:
        counts[one.test] = max(one.seeds, counts.get(one.test, 0))
    return [Planted("", seeds, test) for test, seeds in sorted(counts.items())]


def test_sound_product(planted: Planted) -> int | None:
    """Run a listed test without a fault: only a test that passes then can find one. None: it did not end."""
    try:
        return run_test(planted, SOURCE).returncode
    except subprocess.TimeoutExpired:
        return None


def find(planted: Planted) -> Result:
    """Run the test of one fault against a copy of the product that has the fault."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-planted-") as scratch:
        copy = Path(scratch) / "src"
        shutil.copytree(SOURCE, copy)  # Times of files are kept, so that compiled bytecode stays valid.
        if not plant(planted.name, copy):
            return Result(planted, False, "the product has no such fault point")
        try:
            done = run_test(planted, copy)
        except subprocess.TimeoutExpired:
            return Result(planted, False, f"NOT FOUND: {planted.test} did not end within {SECONDS_MOST} s")
    seconds = time.monotonic() - started
    if done.returncode == _TESTS_FAILED:
        seed = _SEED.search(done.stdout)
        where = f" at seed {seed[1]}" if seed else ""
        return Result(planted, True, f"found{where} after {seconds:.1f} s")
    if done.returncode == 0:
        return Result(planted, False, f"NOT FOUND by {planted.test} in {planted.seeds} cases, {seconds:.1f} s")
    return Result(planted, False, f"pytest could not run {planted.test}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def run_test(planted: Planted, source: Path) -> subprocess.CompletedProcess[str]:
    """Run the test that is listed with a fault against the product in `source`."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", planted.test]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
        "HEADWATER_SEEDS": str(planted.seeds),
        "HEADWATER_SHRINK": "0",  # With a planted bug, a smaller program may not end.
    }
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MOST
    )


def plant(name: str, source: Path) -> int:
    """Rewrite the modules below `source` that have the fault. Return the number of places."""
    places = 0
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        if f" {name}:" in text:
            text, count = planted_text(text, name)
            if count:
                path.write_text(text)
                places += count
    return places


def planted_text(text: str, name: str) -> tuple[str, int]:
    """Return a module's source with one fault planted, and in how many places it stands."""
    lines = text.split("\n")
    spans = _statement_spans(text)
    count = 0
    for number, match in reversed(list(fault_points(text))):
        if match["name"] != name:
            continue
        first = number + 1
        while _FAULT.match(lines[first]):
            first += 1
        last = first if match["insert"] else spans.get(first, first + 1)
        lines[first:last] = [match["indent"] + (match["text"].strip() or "pass")]
        count += 1
    return "\n".join(lines), count


def fault_points(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Each fault point of a module: the index of its line, and the parts of the comment."""
    for number, line in enumerate(text.split("\n")):
        if match := _FAULT.match(line):
            yield number, match


def _statement_spans(text: str) -> dict[int, int]:
    """For each line on which a statement begins: the line behind it, or behind the header of a compound one."""
    spans = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            body: list[ast.stmt] = getattr(node, "body", None) or getattr(node, "cases", None) or []
            end = node.end_lineno or node.lineno
            spans[node.lineno - 1] = _first_line(body[0]) - 1 if body else end
    return spans


def _first_line(node: ast.stmt | ast.match_case) -> int:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
