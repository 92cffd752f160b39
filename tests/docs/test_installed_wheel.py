"""Every Python block and every command of README and guide runs from an installed wheel, in an empty folder.

The Python blocks of a page are one program, saved as a file, as the guide says. Commands run in the order of their
page, in stages: each stage is a new folder with the files that the page names. A command whose output the page shows
has to print it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.installed import FINGERPRINT, LIMIT_S, ROOT, Environment, Shell, plain_lines, shell
from tests.docs.test_code_blocks import blocks

pytestmark = pytest.mark.thorough

GUIDE = ROOT / "docs" / "guide"
PAGES = [ROOT / "README.md", GUIDE / "README.md", *sorted(GUIDE.glob("[0-9]*.md"))]
NOT_RUN = {
    "pip install '../headwater[cli,server]' pytest": "the environment of these tests stands for it",
    "./dev demo": "needs a clone",
    "./dev test": "needs a clone",
}


def codes(page: Path, language: str = "python") -> list[str]:
    return [block.code for block in blocks(page.read_text()) if block.language == language]


def commands(page: Path) -> list[tuple[str, str]]:
    """The commands of a page, without comments, and the output that the page shows for each."""
    found = []
    for code in codes(page, "console"):
        for shown in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
            line, _, output = shown.partition("\n")
            found.append((re.sub(r" {2,}# .*", "", line).strip(), output))
    return found


def program(page: str, *, until: str = "") -> str:
    """The Python blocks of a page of the guide as one file, or the part of it before a text."""
    text = "\n\n".join(codes(GUIDE / page))
    return text if not until else text[: text.index(until)].rstrip() + "\n"


def guarded(text: str) -> str:
    return f'{text}\n\nif __name__ == "__main__":\n    headwater.run(main)\n'


def example(folder: str) -> dict[str, str]:
    """The files of an example, under their paths in the project."""
    files = [file for file in sorted((ROOT / folder).rglob("*")) if file.suffix in (".py", ".html", ".css", ".js")]
    return {file.relative_to(ROOT).as_posix(): file.read_text() for file in files}


def has_page(shell: Shell) -> None:
    assert '<script type="module"' in shell.fetch("/")
    assert "export function connect" in shell.fetch("/headwater.js")


def streams(shell: Shell) -> None:
    assert json.loads(shell.fetch("/choose/tea", method="POST"))["text"]
    assert shell.fetch("/live").startswith("data: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Commands of a page that follow one another, in one folder."""

    commands: int
    files: Callable[[], Mapping[str, str]] = dict
    first: tuple[str, ...] = ()  # commands that the text of the page asks for before
    check: Callable[[Shell], None] = field(default=lambda _: None)


STAGES: dict[str, tuple[Stage, ...]] = {
    "README.md": (
        Stage(commands=3, check=has_page),
        Stage(commands=1, files=lambda: example("examples/board"), check=has_page),
    ),
    "docs/guide/README.md": (Stage(commands=3, check=has_page),),
    "docs/guide/1-first-piece.md": (
        Stage(
            commands=4,
            files=lambda: {
                "first/shop.py": program("1-first-piece.md", until="async def start("),
                "shop.py": "\n\n".join(codes(GUIDE / "1-first-piece.md")[i] for i in (0, -1)),
            },
            first=("cd first", "python shop.py", "cd .."),
        ),
    ),
    "docs/guide/4-async-work.md": (
        Stage(commands=1, files=lambda: {"prices.py": program("4-async-work.md")}, check=streams),
    ),
    "docs/guide/5-testing.md": (
        Stage(commands=2, files=lambda: {"test_auction.py": program("5-testing.md", until="\ntest_the_highest")}),
    ),
    "docs/guide/6-restart-and-renaming.md": (
        Stage(
            commands=7,
            files=lambda: {
                "meter.py": next(code for code in codes(GUIDE / "6-restart-and-renaming.md") if "Meter(" in code)
            },
            first=("python meter.py",),
        ),
    ),
    "docs/guide/7-sharing.md": (
        Stage(commands=5, files=lambda: sharing()),
        Stage(commands=1, files=lambda: sharing(), check=has_page),
    ),
    "docs/guide/9-performance.md": (
        Stage(
            commands=7,
            files=lambda: {
                "books.py": program("9-performance.md", until="@simulated(")
                + "\n\n"
                + codes(GUIDE / "9-performance.md")[-1]
            },
        ),
    ),
    "docs/guide/10-events.md": (
        Stage(commands=3, files=lambda: {"hall.py": program("10-events.md")}, first=("python hall.py",)),
    ),
    "docs/guide/11-reactions.md": (
        Stage(commands=2, files=lambda: {"shop.py": program("11-reactions.md")}),
        Stage(
            commands=4,
            files=lambda: {"shop.py": guarded(program("11-reactions.md", until="        # Remove the cause of"))},
            first=("python shop.py",),
        ),
    ),
}
"""The stages of each page that has commands."""


def sharing() -> dict[str, str]:
    (page,) = codes(GUIDE / "7-sharing.md", "html")
    return {"app.py": program("7-sharing.md"), "page/index.html": page}


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment of this run of pytest: its workers share one."""
    folder = tmp_path_factory.getbasetemp()
    return Environment.shared(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder)


def run_program(environment: Environment, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Save a program in a new folder and run it there."""
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(text)
    return subprocess.run(
        [environment.python, "program.py"],
        cwd=folder,
        env=environment.variables(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize("page", [page for page in PAGES if codes(page)], ids=lambda page: page.stem)
def test_page_is_a_program_that_runs_from_the_wheel(environment: Environment, page: Path, tmp_path: Path) -> None:
    done = run_program(environment, tmp_path / "empty", "\n\n".join(codes(page)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", STAGES)
def test_commands_of_a_page_run_from_the_wheel(environment: Environment, name: str, tmp_path: Path) -> None:
    printed_as: dict[str, str] = {}  # each fingerprint of the page, as it is here
    left = [(line, output) for line, output in commands(ROOT / name) if line not in NOT_RUN]
    for number, stage in enumerate(STAGES[name]):
        with shell(environment, tmp_path / str(number), stage.files()) as here:
            for line in stage.first:
                here.run(line)
            for line, output in left[: stage.commands]:
                printed = here.run(FINGERPRINT.sub(lambda found: printed_as.get(found[0], found[0]), line))
                if output:
                    assert plain_lines(printed) == plain_lines(output), line
                    printed_as.update(zip(FINGERPRINT.findall(output), FINGERPRINT.findall(printed), strict=True))
            stage.check(here)
        left = left[stage.commands :]
    assert not left, "commands that no stage runs"


def test_every_page_with_commands_has_stages() -> None:
    with_commands = [page for page in PAGES if any(line not in NOT_RUN for line, _ in commands(page))]
    assert sorted(with_commands) == sorted(ROOT / name for name in STAGES)
    shown = {line for page in PAGES for line, _ in commands(page)}
    assert shown >= NOT_RUN.keys()


def test_program_uses_the_wheel_and_nothing_of_the_checkout(environment: Environment, tmp_path: Path) -> None:
    text = "import sys, headwater\nprint(headwater.__file__, *sys.path, sep='\\n')\n"
    done = run_program(environment, tmp_path / "a", text)
    module, *path = done.stdout.splitlines()
    assert Path(module).is_relative_to(environment.packages)
    sources = {str(ROOT), str(ROOT / "src")}
    assert not sources & set(path)
    for name in ("tests", "tools", "headwater.not_there"):
        missing = run_program(environment, tmp_path / name, f"import {name}\n")
        assert f"No module named '{name}'" in missing.stderr
