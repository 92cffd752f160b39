"""`headwater new` makes a project that runs at once, and whose tests pass."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli.app import run
from tests.unit.cli.kit_app import imported
from tests.unit.cli.test_run import LIMIT_S, running

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


def test_a_new_project_runs_and_its_page_and_its_list_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "groceries"]) == 0
    assert "headwater run app.py --insecure-local --reload" in capsys.readouterr().out
    folder = tmp_path / "groceries"
    with running(folder, "app.py", "--json") as served:
        url = served.url()
        with urllib.request.urlopen(url, timeout=LIMIT_S) as page:
            text = page.read().decode()
        assert "<title>groceries</title>" in text
        assert "`${left} left`" in text
        assert run(["send", url, "groceries", "main.add", 'text="tea"', "--user", "ann"]) == 0
        capsys.readouterr()
        assert run(["get", url, "groceries", "main.left"]) == 0
        assert json.loads(capsys.readouterr().out) == 1
        assert served.stop()[0] == 0


def test_its_tests_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "groceries"]) == 0
    (tmp_path / "groceries" / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "headwater.cli", "test", ".", "--json"]
    ran = subprocess.run(command, cwd=tmp_path / "groceries", capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "warning" not in ran.stderr.lower()


def test_what_is_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("mine")
    assert run(["new", "shop"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert [each.name for each in (tmp_path / "shop").iterdir()] == ["mine.txt"]


def test_a_name_that_no_space_can_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", str(tmp_path / "My Shop")]) == 1
    assert "cannot name a space" in capsys.readouterr().err
    assert not (tmp_path / "My Shop").exists()


def test_the_files_are_listed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", str(tmp_path / "shop"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert all((tmp_path / "shop" / file).is_file() for file in made["files"])
