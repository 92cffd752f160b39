"""Fault points: the list matches the product, and each fault makes a module that still compiles."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tools import planted as tool
from tools.flaky import NOT_INSTALLED
from tools.planted import LIST, ROOT, SOURCE, Planted, fault_points, planted_text, read_list


def test_list_and_product_name_the_same_faults() -> None:
    listed = read_list(LIST.read_text())
    repeated = Counter((planted.name, planted.test) for planted in listed)
    assert [each for each, times in repeated.items() if times > 1] == []
    points = {match["name"] for path in SOURCE.rglob("*.py") for _, match in fault_points(path.read_text())}
    assert points == {planted.name for planted in listed}


def test_every_planted_fault_compiles_and_changes_its_module() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for name in {match["name"] for _, match in fault_points(text)}:
            changed, count = planted_text(text, name)
            assert count
            assert changed != text
            compile(changed, f"{path} with {name}", "exec")


def test_every_listed_test_exists() -> None:
    for planted in read_list(LIST.read_text()):
        path, *parts = planted.test.partition(" ")[0].split("::")
        source = Path(ROOT, path).read_text()
        for part in parts:
            assert f"{part.partition('[')[0]}(" in source or f"class {part}" in source, planted.test


def test_no_listed_test_needs_packages_that_only_the_check_installs() -> None:
    assert [one.test for one in read_list(LIST.read_text()) if one.test.startswith(NOT_INSTALLED)] == []


def test_sound_product_is_tested_once_per_test_in_the_largest_count() -> None:
    listed = [Planted("b", 3, "t.py::two"), Planted("a", 20, "t.py::one"), Planted("c", 80, "t.py::one")]
    assert tool.largest_counts(listed) == [Planted("", 80, "t.py::one"), Planted("", 3, "t.py::two")]


def test_listed_test_that_does_not_end_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_end(*_: object) -> None:
        raise subprocess.TimeoutExpired("pytest", tool.SECONDS_MOST)

    first = read_list(LIST.read_text())[0]
    monkeypatch.setattr(tool, "run_test", no_end)
    assert tool.main([first.name]) == 1
    assert f"{first.test} did not end within {tool.SECONDS_MOST} s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "planted"),
    [
        ("# fault a.b: x = 2\nx = 1\n", "# fault a.b: x = 2\nx = 2\n"),
        ("# fault a.b: x = 2\nx = f(\n    1,\n)\ny = 1\n", "# fault a.b: x = 2\nx = 2\ny = 1\n"),
        ("# fault a.b: if False:\nif f(\n    x\n):\n    y = 1\n", "# fault a.b: if False:\nif False:\n    y = 1\n"),
        ("# fault a.b:\nx = 1\n", "# fault a.b:\npass\n"),
        ("# fault+ a.b: y = 2\nx = 1\n", "# fault+ a.b: y = 2\ny = 2\nx = 1\n"),
        ("# fault a.b: x = 2\n# fault a.c: x = 3\nx = 1\n", "# fault a.b: x = 2\n# fault a.c: x = 3\nx = 2\n"),
        ("# fault a.c: x = 2\nx = 1\n", "# fault a.c: x = 2\nx = 1\n"),
    ],
    ids=["statement", "long statement", "header", "nothing", "insertion", "two faults", "another fault"],
)
def test_fault_replaces_statement_below_its_comment(text: str, planted: str) -> None:
    assert planted_text(text, "a.b")[0] == planted
