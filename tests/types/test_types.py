"""What type checkers say of authors' programs: mypy and pyright accept the right ones and find the mistakes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARK = re.compile(r"# (both|mypy|pyright)$")

Found = dict[int, str]


def wanted(file: Path, checker: str) -> set[int]:
    """The lines on which a checker has to find a mistake."""
    marks = {number: MARK.search(line) for number, line in enumerate(file.read_text().splitlines(), 1)}
    return {number for number, mark in marks.items() if mark is not None and mark[1] in ("both", checker)}


def mypy(files: list[Path], scratch: Path) -> dict[Path, Found]:
    (scratch / "mypy.ini").write_text("[mypy]\nstrict = True\npython_version = 3.11\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(scratch / "mypy.ini"), "--no-error-summary"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "types"), *map(str, files)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert said.returncode in (0, 1), said.stdout + said.stderr
    lines = re.findall(r"^(.*?):(\d+): error: (.*)$", said.stdout, re.MULTILINE)
    assert lines or said.returncode == 0, said.stdout
    found: dict[Path, Found] = {file: {} for file in files}
    for name, number, message in lines:
        found[ROOT / name][int(number)] = message
    return found


def pyright(files: list[Path], scratch: Path) -> dict[Path, Found]:
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": [str(file) for file in files]}
    settings |= {"extraPaths": [str(ROOT / "src")]}
    (scratch / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(scratch / "pyrightconfig.json"), "--outputjson"]
    command += ["--pythonpath", sys.executable]
    said = subprocess.run(command, capture_output=True, text=True, cwd=scratch, check=False)
    assert said.returncode in (0, 1), said.stdout + said.stderr
    found: dict[Path, Found] = {file: {} for file in files}
    for each in json.loads(said.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[Path(each["file"])][each["range"]["start"]["line"] + 1] = each["message"]
    return found


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_finds_the_mistakes_and_nothing_else(checker: str, tmp_path: Path) -> None:
    files = [HERE / "accepted.py", HERE / "refused.py"]
    for file, found in CHECKERS[checker](files, tmp_path).items():
        expected = wanted(file, checker)
        lines = file.read_text().splitlines()
        missed = [f"{number}: {lines[number - 1].strip()}" for number in sorted(expected - found.keys())]
        extra = [f"{number}: {found[number]}" for number in sorted(found.keys() - expected)]
        assert not missed, missed
        assert not extra, extra


def test_there_are_mistakes_to_find() -> None:
    assert len(wanted(HERE / "refused.py", "mypy")) >= 40
