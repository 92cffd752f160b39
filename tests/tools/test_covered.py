"""Coverage is printed with its counts, without and with kits, and compared without them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import covered
from tools.covered import Both, Covered

BEFORE = {"lines": 97.6, "branches": 93.5}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "baseline.json").write_text(json.dumps({"coverage": BEFORE}))
    monkeypatch.setattr(covered, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(covered, "KEPT", tmp_path)
    for name, scale in (("test", "0.01"), ("rest", "0.1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scale").write_text(scale)
    return tmp_path


def report(monkeypatch: pytest.MonkeyPatch, product: Covered) -> int:
    def combined(_name: str, _folders: Sequence[Path]) -> Both:
        return Both(product, Covered(91.0, 88.0))

    monkeypatch.setattr(covered, "combined", combined)
    return covered.main(["report", "test", "rest"])


@pytest.mark.usefixtures("folder")
def test_each_line_says_at_which_counts_and_of_which_modules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(monkeypatch, Covered(97.45, 93.5)) == 0
    after = "lines 97.5 %, branches 93.5 %; with src/headwater/testing: lines 91.0 %, branches 88.0 %"
    assert capsys.readouterr().out.splitlines() == [
        f"coverage of test, at 0.01 of the full counts: {after}",
        f"coverage of rest, at 0.1 of the full counts: {after}",
        "coverage before, at the counts of ./dev check: lines 97.6 %, branches 93.5 %",
        f"coverage after, of test and rest together: {after}",
        "compared is the coverage without kits; it may fall by 0.2 points: random programs take other paths in"
        " threads and processes each time",
    ]


@pytest.mark.usefixtures("folder")
def test_coverage_that_fell_by_more_than_the_tolerance_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(monkeypatch, Covered(97.3, 93.5)) == 1
    assert "FAILED: coverage of lines fell from 97.6 % to 97.3 %" in capsys.readouterr().out
    assert report(monkeypatch, Covered(97.6, 93.2)) == 1
    assert "FAILED: coverage of branches fell from 93.5 % to 93.2 %" in capsys.readouterr().out


def test_a_run_keeps_its_counts_and_is_combined_without_and_with_kits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes are replaced: `./dev check` measures this one, and a second measurement inside it would disturb."""
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    files = {"src/headwater/clock.py": (9, 10, 3, 4), "src/headwater/testing/network.py": (3, 10, 0, 4)}
    reported = {"files": {path: {"summary": dict(zip(names, of, strict=True))} for path, of in files.items()}}
    done = subprocess.CompletedProcess([], 0, json.dumps(reported))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    monkeypatch.setenv(covered.SCALE, "0.02")
    assert covered.main(["run", "some"]) == 0
    assert covered.scale_of("some") == "0.02"
    assert covered.combined("some", [folder / "some"]) == Both(Covered(90.0, 75.0), Covered(60.0, 37.5))
