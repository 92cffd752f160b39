"""The compiled build: which modules, and that the same tests hold for it where there is a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counts import scaled
from tools import compiled


def test_every_module_that_is_compiled_is_there() -> None:
    assert [name for name in compiled.HOT if not (compiled.SOURCE / name).is_file()] == []
    assert list(compiled.HOT) == sorted(compiled.HOT)


def test_a_change_of_any_source_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(compiled.SOURCE, tmp_path / "headwater", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "SOURCE", tmp_path / "headwater")
    before = compiled.fingerprint()
    with (tmp_path / "headwater" / "errors.py").open("a") as file:
        file.write("# changed\n")
    assert compiled.fingerprint() != before


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(compiled, "STAMP", Path("/nowhere/stamp"))
    assert compiled.main([]) == compiled.NO_COMPILER
    assert "Install gcc" in capsys.readouterr().err


@pytest.mark.random
@pytest.mark.skipif(scaled(10) < 10, reason="compiling takes half a minute: ./dev sim does it")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_the_scheduler_and_the_replica_hold_as_native_code_too() -> None:
    assert compiled.main([]) == 0
    tests = ["tests/unit/scheduler", "tests/unit/replica", "tests/scenario/test_derived_results.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-o", "pythonpath=.", *tests]
    variables = {**os.environ, "PYTHONPATH": str(compiled.TARGET), "HEADWATER_RANDOM_SCALE": "0.1"}
    ran = subprocess.run(command, cwd=compiled.ROOT, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3_000:]
