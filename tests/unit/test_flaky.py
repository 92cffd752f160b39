"""`./dev flaky` repeats the tests that touch the world outside, and names those that failed at least once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import flaky

ROOT = Path(flaky.__file__).resolve().parents[1]

TESTS = """
import asyncio
import threading
from pathlib import Path

import pytest

@pytest.fixture(scope="module")
def kept() -> list[int]:
    return []

def test_inside(tmp_path: Path) -> None:
    Path("inside.txt").open("a").write("x")

def test_outside(tmp_path: Path, kept: list[int]) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    thread = threading.Thread(target=lambda: kept.append(1))
    thread.start()
    thread.join()

def test_sometimes(tmp_path: Path, kept: list[int]) -> None:
    thread = threading.Thread(target=lambda: kept.append(1))
    thread.start()
    thread.join()
    assert len(kept) != 6

def test_timer() -> None:
    asyncio.run(asyncio.sleep(0.001))

def test_loop() -> None:
    asyncio.run(asyncio.sleep(0))

def test_last(kept: list[int]) -> None:
    assert len(kept) == 8
"""


def test_only_tests_that_touch_the_world_outside_are_repeated(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    environment = {
        **os.environ,
        "HEADWATER_REPEAT": "4",
        "HEADWATER_OUTCOMES": str(tmp_path / "outcomes.json"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.repeat", "-p", "no:cacheprovider", "test_some.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == flaky.TESTS_FAILED, done.stdout
    runs, failures = flaky.read_outcomes(tmp_path / "outcomes.json")
    assert {name.partition("::")[2]: count for name, count in runs.items()} == {
        "test_inside": 1,
        "test_outside": 4,
        "test_sometimes": 4,
        "test_timer": 4,
        "test_loop": 1,
        "test_last": 1,
    }
    assert {name.partition("::")[2]: count for name, count in failures.items()} == {"test_sometimes": 1}


def test_busy_loops_end_with_the_block() -> None:
    with flaky.busy_loops(1) as (pid,):
        os.kill(pid, 0)
    assert not Path(f"/proc/{pid}").exists()


def test_folders_that_are_left_out_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flaky, "run_tests", lambda *_: ({}, {}))
    assert flaky.main([]) == 0
    said = capsys.readouterr().err.splitlines()[0]
    assert said.startswith("./dev flaky: left out: tests/browser, tests/tools, tests/types (")
    assert flaky.left_out(["tests"]) == list(flaky.NOT_INSTALLED)
    assert flaky.left_out(["tests/unit", "tests/browser"]) == []
