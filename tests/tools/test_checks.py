"""The checks of `./dev check` refuse what they are there to refuse: a mistake is planted for each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = (
    *("__main__", "cli", "testing", "server", "runtime", "scheduler", "reactions", "pieces", "cells"),
    *("engine", "replica", "protocol", "data", "backoff", "clock", "errors", "lazy"),
)


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", "pyproject.toml"]
    environment = {**os.environ, "PYTHONPATH": str(directory / "src"), "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def layered(tmp_path: Path) -> Path:
    """A project with our contract on packages and empty modules, into which a test plants its mistake."""
    contract = "[[tool.importlinter.contracts]]"
    settings, first, *_ = (ROOT / "pyproject.toml").read_text().split(contract)
    (tmp_path / "pyproject.toml").write_text(settings + contract + first)
    package = tmp_path / "src" / "headwater"
    package.mkdir(parents=True)
    for name in ("__init__", *LAYERS):
        (package / f"{name}.py").touch()
    return tmp_path


class TestLayers:
    def test_modules_that_import_downwards_are_accepted(self, layered: Path) -> None:
        (layered / "src/headwater/engine.py").write_text("import headwater.protocol\nimport headwater.errors\n")
        result = lint_imports(layered)
        assert result.returncode == 0, result.stdout

    @pytest.mark.parametrize(
        ("importer", "imported"),
        [
            ("errors", "clock"),
            ("data", "protocol"),
            ("protocol", "engine"),
            ("backoff", "data"),
            ("data", "cli"),
        ],
    )
    def test_an_import_from_a_layer_above_is_refused(self, layered: Path, importer: str, imported: str) -> None:
        (layered / f"src/headwater/{importer}.py").write_text(f"import headwater.{imported}\n")
        result = lint_imports(layered)
        assert result.returncode == 1
        assert f"headwater.{importer} is not allowed to import headwater.{imported}" in result.stdout

    def test_neighbours_in_a_layer_may_not_import_each_other(self, layered: Path) -> None:
        (layered / "src/headwater/replica.py").write_text("import headwater.engine\n")
        result = lint_imports(layered)
        assert result.returncode == 1
        assert "headwater.replica is not allowed to import headwater.engine" in result.stdout

    def test_a_module_that_no_layer_names_is_refused(self, layered: Path) -> None:
        (layered / "src/headwater/helpers.py").touch()
        result = lint_imports(layered)
        assert result.returncode == 1
        assert "helpers" in result.stdout


class TestLint:
    @pytest.mark.parametrize(
        ("place", "code", "rule"),
        [
            ("src/headwater/engine/log/log.py", "import time\n\ntime.time()\n", "TID251"),
            ("src/headwater/testing/sim.py", "import random\n\nrandom.random()\n", "TID251"),
            ("src/headwater/testing/sim.py", "from random import Random\n\nRandom(1)\n", "TID251"),
            (
                "src/headwater/data/ids.py",
                "from datetime import UTC, datetime\n\ndatetime.now(UTC)\n",
                "TID251",
            ),
            ("src/headwater/data/ids.py", "from . import path\n\npath.x\n", "TID252"),
            ("src/headwater/engine/log/log.py", 'print("here")\n', "T201"),
        ],
    )
    def test_what_the_house_rules_forbid_is_refused(self, place: str, code: str, rule: str) -> None:
        assert rule in ruff(place, code)

    @pytest.mark.parametrize(
        ("place", "code"),
        [
            ("src/headwater/clock.py", "import time\n\ntime.time()\n"),
            ("src/headwater/testing/sim.py", "from headwater.clock import Random\n\nRandom(1)\n"),
            ("tests/unit/test_x.py", "import random\n\nrandom.random()\n"),
            ("bench/engine.py", "import time\n\nprint(time.perf_counter())\n"),
            ("src/headwater/cli/main.py", 'print("here")\n'),
        ],
    )
    def test_what_they_allow_passes(self, place: str, code: str) -> None:
        assert ruff(place, code) == ""


def ruff(place: str, code: str) -> str:
    """What ruff would say about the code if it stood at the place."""
    command = [
        *(sys.executable, "-m", "ruff", "check", "--quiet", "--no-cache", "--output-format", "concise"),
        *("--stdin-filename", place, "-"),
    ]
    return subprocess.run(command, cwd=ROOT, input=code, capture_output=True, text=True, check=False).stdout
