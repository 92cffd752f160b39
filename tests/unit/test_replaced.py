"""tests/replaced.txt names files and modules that exist, and tests of behaviour that are no unit tests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = "tests/unit/"
SUITES = ("tests/scenario/", "tests/invariants/", "tests/simulation/", "tests/contract/")


class Line(NamedTuple):
    """One line of the file."""

    unit_test: str
    modules: tuple[str, ...]
    seam_tests: tuple[str, ...]


def parse(text: str) -> list[Line]:
    rows = [line.split("|") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Line(unit.strip(), tuple(modules.split()), tuple(seams.split())) for unit, modules, seams in rows]


LINES = parse((ROOT / "tests" / "replaced.txt").read_text())


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


def test_no_unit_test_is_listed_twice() -> None:
    assert len({line.unit_test for line in LINES}) == len(LINES)
