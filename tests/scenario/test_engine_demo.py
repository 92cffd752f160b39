"""The demo keeps what it promises: it runs, it tells, it checks, and it leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def demo(folder: Path, *arguments: str, without_rich: bool = False) -> subprocess.CompletedProcess[str]:
    code = "import runpy, sys; sys.argv[0] = 'demo'; "
    code += "sys.modules['rich'] = None; " if without_rich else ""
    code += "runpy.run_module('examples.demo', run_name='__main__')"
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_check_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--check")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("demo: 12 chapters, ")
    assert ran.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("without_rich", [False, True])
def test_the_story_is_told_with_and_without_rich(tmp_path: Path, without_rich: bool) -> None:
    ran = demo(tmp_path, without_rich=without_rich)
    assert (ran.returncode, ran.stderr) == (0, "")
    for chapter in range(1, 13):
        assert f"\n{chapter}. " in ran.stdout
    assert "space:shopping#/tea/qty was read at seq 3 and written at seq 4 by ann" in ran.stdout
    assert "every rule holds" in ran.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_argument_is_answered_with_the_usage(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--nonsense")
    assert ran.returncode == 2
    assert "usage: python -m examples.demo [--check]" in ran.stderr
