"""tests/replaced.txt names files and modules that exist, and tests of behaviour that outlive those modules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tools import seams
from tools.seams import with_kits

ROOT = Path(__file__).resolve().parents[2]
UNIT = "tests/unit/"
SUITES = ("tests/scenario/", "tests/invariants/", "tests/simulation/", "tests/contract/")


class Line(NamedTuple):
    """One line of the file."""

    unit_test: str
    modules: tuple[str, ...]
    seam_tests: tuple[str, ...]


def parse(text: str) -> list[Line]:
    rows = [row for row in fields_of(text) if len(row) == 3]
    return [Line(unit.strip(), tuple(modules.split()), tuple(tests.split())) for unit, modules, tests in rows]


def parse_adapted(text: str) -> set[tuple[str, str]]:
    """The files that are adapted, each with a module whose replacement needs it."""
    rows = [row for row in fields_of(text) if len(row) == 2]
    return {(file.strip(), module) for file, modules in rows for module in modules.split()}


def fields_of(text: str) -> list[list[str]]:
    return [line.split("|") for line in text.splitlines() if line.strip() and not line.startswith("#")]


def imported(seam_tests: Iterable[str]) -> set[tuple[str, str]]:
    """The files of these tests and of their kits under tests/, each with a product module that it imports."""
    sources = with_kits(dict.fromkeys(ROOT / each for each in seam_tests))
    return {(str(source.path), module) for source in sources for _, module in source.product_imports()}


TEXT = (ROOT / "tests" / "replaced.txt").read_text()
LINES = parse(TEXT)


@pytest.mark.parametrize("line", LINES, ids=[line.unit_test for line in LINES])
def test_line_names_what_exists(line: Line) -> None:
    assert line.unit_test.startswith(UNIT)
    assert (ROOT / line.unit_test).is_file()
    assert line.modules
    assert line.seam_tests
    for module in line.modules:
        assert ROOT.joinpath("src", *module.split(".")).with_suffix(".py").is_file(), module
    for seam_test in line.seam_tests:
        assert seam_test.startswith(SUITES), f"{seam_test} is no test at a seam"
        assert (ROOT / seam_test).is_file(), seam_test


def test_no_seam_test_imports_a_module_that_is_going_to_be_replaced() -> None:
    replaced = {module for line in LINES for module in line.modules}
    found = imported(each for line in LINES for each in line.seam_tests)
    assert found
    assert [(path, module) for path, module in sorted(found) if module in replaced] == []


def test_files_at_the_seams_that_import_a_module_to_be_replaced_are_listed() -> None:
    replaced = {module for line in LINES for module in line.modules}
    paths = [str(path.relative_to(ROOT)) for suite in seams.SUITES for path in sorted((ROOT / suite).rglob("*.py"))]
    assert {(path, module) for path, module in imported(paths) if module in replaced} == parse_adapted(TEXT)


def test_imports_of_kits_are_found() -> None:
    found = imported(["tests/scenario/test_resume_elsewhere.py"])
    assert ("tests/scenario/test_resume_elsewhere.py", "headwater.protocol.observations") in found
    assert ("tests/scenario/wire_kit.py", "headwater.protocol.messages") in found


def test_no_unit_test_is_listed_twice() -> None:
    assert len({line.unit_test for line in LINES}) == len(LINES)
