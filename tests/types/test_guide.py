"""The programs of the guide pass both type checkers, as strict as they can be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_code_blocks import ROOT, blocks

GUIDE = sorted((ROOT / "docs" / "guide").glob("[0-9]*.md"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each page's Python as a module; lines are those of the page. What a file of its own imports again is left out."""
    folder = tmp_path_factory.mktemp("guide")
    for page in GUIDE:
        lines: list[str] = []
        for block in blocks(page.read_text()):
            if block.language == "python":
                code = block.code.splitlines()
                if code[0] in lines and code[0] == "import headwater":
                    code = ["" if line.startswith(("import headwater", "from headwater ")) else line for line in code]
                lines += [""] * (block.line - 1 - len(lines)) + code
        (folder / f"page_{page.stem.replace('-', '_')}.py").write_text("\n".join(lines) + "\n")
    return folder


def test_mypy_accepts_the_guide(programs: Path) -> None:
    (programs / "mypy.ini").write_text("[mypy]\nstrict = True\npython_version = 3.11\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(programs / "mypy.ini"), "--no-error-summary"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "types"), *map(str, sorted(programs.glob("*.py")))]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_pyright_accepts_the_guide(programs: Path) -> None:
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": [str(programs)]}
    settings |= {"extraPaths": [str(ROOT / "src")]}
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(programs / "pyrightconfig.json"), "--outputjson"]
    said = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True, cwd=programs, check=False
    )
    assert said.returncode in (0, 1), said.stdout + said.stderr
    found = [each for each in json.loads(said.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert not found, [f"{Path(e['file']).name}:{e['range']['start']['line'] + 1}: {e['message']}" for e in found]


def test_there_are_thirteen_pages() -> None:
    assert len(GUIDE) == 13
