"""The commands that the page on restarts shows print what it says they do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.installed import plain_lines
from tests.docs.test_code_blocks import ROOT, Block, blocks

PAGE = ROOT / "docs" / "guide" / "6-restart-and-renaming.md"
FILE = "meter.py"
LIMIT_S = 60


def _shown() -> tuple[str, list[Block]]:
    """The program of the page, and its blocks of commands behind it."""
    found = list(blocks(PAGE.read_text()))
    at = next(n for n, each in enumerate(found) if each.language == "python" and "class Meter(" in each.code)
    return found[at].code, [each for each in found[at:] if each.language == "console"]


def test_they_print_what_the_page_says(tmp_path: Path) -> None:
    program, commands = _shown()
    (tmp_path / FILE).write_text(program)
    _called([sys.executable, FILE], tmp_path)
    count = 0
    for block in commands:
        for shown in block.code.split("$ ")[1:]:
            line, _, expected = shown.partition("\n")
            words = line.split()
            if words[0] == "headwater":
                printed = _called([sys.executable, "-m", "headwater.cli", *words[1:]], tmp_path)
                assert plain_lines(printed) == plain_lines(expected), line
                count += 1
            else:
                _edited(line, tmp_path / FILE)
    assert count >= 5


def _called(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def _edited(line: str, file: Path) -> None:
    """The only other command is an edit of the program."""
    found = re.fullmatch(r"sed -i 's/(.+)/(.+)/' meter\.py", line)
    if found is None:
        pytest.fail(f"the page shows {line!r}, which this test does not know")
    old, new = found.groups()
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
