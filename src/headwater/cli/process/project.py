"""`headwater new NAME` and `headwater test PATH`: create a project, and run its tests.

A new project has an application, its page, its tests and a README, from the folder `templates`; existing files are not
touched. Tests are collected and run by pytest with Headwater's plugin, `@simulated` ones under all their seeds; the
command prints the number of tests and seeds, and the failures.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from headwater.cli.output import (
    BAD_USAGE,
    FAILED,
    INTERRUPTED,
    OK,
    Json,
    count_noun,
    print_answer,
    print_error,
    print_json,
)
from headwater.data.address import check_space
from headwater.data.json_form import JsonForm
from headwater.errors import AuthoringError, StorageError

if TYPE_CHECKING:
    import pytest


FILES: Final = {
    "app.py": "app.py.txt",
    "page/index.html": "page/index.html.txt",
    "test_app.py": "test_app.py.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}


def new(name: str, /, *, json: Json = False) -> int:
    """Make a project: a shared list with a page and tests, to start from.

    Example: `headwater new groceries`

    Parameters
    ----------
    name
        The folder to make. Its last part names the space of the application too: lower-case letters, digits, - and _.
    """
    folder = Path(name)
    space = check_space(folder.name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AuthoringError(f"{folder} is there already: choose another name, or an empty folder")
    templates = resources.files("headwater.cli") / "templates"
    try:
        for file, template in FILES.items():
            text = (templates / template).read_text(encoding="utf-8")
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(Template(text).substitute(name=space), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder} cannot be made: {error}") from error
    if json:
        print_json({"folder": str(folder), "files": list(FILES)})
    else:
        print_answer(
            f"{folder} is there. Try it:",
            f"  cd {folder}",
            "  headwater run app.py --insecure-local --reload",
            "  headwater test .",
        )
    return OK


PLUGIN: Final = "headwater.testing.author_plugin"
QUIET: Final = "ignore:Module already imported so cannot be rewritten; headwater:pytest.PytestAssertRewriteWarning"
"""pytest must not rewrite assertions in this package, whose plugin it loads."""
SEEDS: Final = "headwater seeds"  # the name of the property in the plugin's reports
NO_TESTS: Final = 5  # exit code of pytest
MISUSED: Final = 4
STOPPED: Final = 2


def run_tests(
    *paths: str, seeds: int | None = None, seed: int | None = None, match: str = "", json: Json = False
) -> int:
    """Run tests, with every seed of those that are simulated.

    Exits 0 if all went well, 1 if one failed, 2 if there is none, or nothing that can be run.
    A seed that fails is named, with how to run it alone.

    Example: `headwater test tests --seeds 1000`

    Parameters
    ----------
    paths
        Files or folders with tests. Without any: those of this folder.
    seeds
        How many seeds each simulated test runs, instead of its own number.
    seed
        Only this seed.
    match
        Only tests whose name has this in it; `and`, `or` and `not` work.
    """
    missing = [path for path in paths if not Path(path.partition("::")[0]).exists()]
    if missing:
        print_error(
            f"{missing[0]} is neither a file nor a folder. Write where the tests are, for example: headwater test tests"
        )
        return BAD_USAGE
    if (seeds is not None and seeds < 1) or (seed is not None and seed < 0):
        print_error("--seeds is 1 or more, --seed is 0 or more")
        return BAD_USAGE
    if importlib.util.find_spec("pytest") is None:
        print_error("tests are run by pytest, which is not installed. Try: pip install pytest")
        return BAD_USAGE
    chosen = {"HEADWATER_SEEDS": seeds, "HEADWATER_SEED": seed}
    os.environ.update({name: str(value) for name, value in chosen.items() if value is not None})
    return _run([*paths, *(["-k", match] if match else [])], json=json)


def _run(arguments: list[str], *, json: bool) -> int:
    import pytest  # noqa: PLC0415  # It takes longer than every other command together.

    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # As with `python -m pytest`: modules beside the tests can be imported.
    heard = _TestResults()
    # pytest's output must not be mixed with JSON.
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        options = ["-p", PLUGIN, "-W", QUIET, "-q", "--no-header"]
        code = int(pytest.main([*options, *arguments], plugins=[heard]))
    if json:
        print_json(heard.form(ok=code == OK))
    elif heard.tests:
        said = f"{count_noun(heard.tests, 'test')}, {count_noun(heard.seeds, 'seed')}"
        print_answer(
            f"{said}: {count_noun(len(heard.failed), 'test')} failed" if heard.failed else f"{said}: all went well"
        )
    match code:
        case 0:
            return OK
        case _ if code == NO_TESTS:
            print_error("there are no tests there: a test is a function test_... in a file test_....py")
            return BAD_USAGE
        case _ if code == MISUSED:
            return BAD_USAGE
        case _ if code == STOPPED and heard.is_interrupted:
            return INTERRUPTED
        case _:
            return FAILED


class _TestResults:
    """Results of tests, as pytest reports them."""

    def __init__(self) -> None:
        self.tests = 0
        self.seeds = 0
        self.failed: list[tuple[str, str]] = []
        self.is_interrupted = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests += report.when == "call"
        self.seeds += sum(
            int(str(value)) for name, value in report.user_properties if name == SEEDS and report.when == "call"
        )
        if report.failed:
            self.failed.append((report.nodeid, report.longreprtext))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append((report.nodeid, report.longreprtext))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.is_interrupted = excinfo.type is KeyboardInterrupt  # pytest interrupts itself with another exception.

    def form(self, *, ok: bool) -> JsonForm:
        failed: list[JsonForm] = [{"test": name, "message": text} for name, text in self.failed]
        return {"ok": ok, "tests": self.tests, "seeds": self.seeds, "failed": failed}
