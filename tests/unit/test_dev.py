"""`./dev` prepares an environment once, again when it must, and explains what is missing."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import dev

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["-m", "pytest", "-n", "4", "--dist", "worksteal", "-m", "not thorough"]


class Workshop:
    """A project directory in which making the environment and installing are recorded, not done."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.installs: list[tuple[str, ...]] = []
        self.made = 0
        self.interrupt = False
        (root / "requirements").mkdir()
        for tier in dev.TIERS:
            (root / "requirements" / f"{tier}.lock").write_text(f"{tier}==1\n")
        (root / "pyproject.toml").write_text("[project]\n")
        places = {
            "ROOT": root,
            "VENV": self.venv,
            "PYTHON": self.venv / "bin" / "python",
            "LOCKS": root / "requirements",
            "PYPROJECT": root / "pyproject.toml",
            "STAMP": self.venv / "headwater-stamp",
            "UNFINISHED": self.venv / "headwater-unfinished",
            "MUTEX": root / ".dev-lock",
        }
        for name, value in places.items():
            monkeypatch.setattr(dev, name, value)
        monkeypatch.setattr(dev, "make_environment", self._make)
        monkeypatch.setattr(dev, "install", self._install)
        monkeypatch.setattr(dev, "home_of_venv", lambda: str(self.venv) if self.venv.exists() else "")
        monkeypatch.setattr(dev, "run_quietly", lambda *_: True)

    def _make(self) -> None:
        self.made += 1
        if self.venv.exists():
            for path in self.venv.iterdir():
                path.unlink()
        self.venv.mkdir(exist_ok=True)

    def _install(self, *arguments: str) -> None:
        if self.interrupt:
            raise KeyboardInterrupt
        self.installs.append(arguments)


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


class TestPreparing:
    def test_the_first_call_makes_the_environment_and_installs_by_hash(self, workshop: Workshop) -> None:
        dev.prepare("test")
        assert workshop.made == 1
        assert "--require-hashes" in workshop.installs[0]
        assert {"--no-deps", "--no-build-isolation", "--editable"} <= set(workshop.installs[1])

    def test_a_second_call_does_nothing(self, workshop: Workshop) -> None:
        dev.prepare("test")
        dev.prepare("test")
        assert (workshop.made, len(workshop.installs)) == (1, 2)

    @pytest.mark.parametrize("name", ["requirements/run.lock", "requirements/check.lock", "pyproject.toml"])
    def test_a_changed_lock_or_project_is_installed_over_the_old(self, workshop: Workshop, name: str) -> None:
        dev.prepare("test")
        (workshop.root / name).write_text("changed\n")
        dev.prepare("test")
        assert (workshop.made, len(workshop.installs)) == (1, 4)

    def test_each_tier_installs_its_own_lock(self, workshop: Workshop) -> None:
        for tier in dev.TIERS:
            dev.prepare(tier)
            assert workshop.installs[-2][-1] == str(workshop.root / "requirements" / f"{tier}.lock")
        assert workshop.made == 1

    def test_larger_tier_serves_a_smaller_one(self, workshop: Workshop) -> None:
        dev.prepare("check")
        dev.prepare("run")
        dev.prepare("test")
        assert len(workshop.installs) == 2

    def test_an_interrupted_install_is_done_again_from_nothing(self, workshop: Workshop) -> None:
        workshop.interrupt = True
        with pytest.raises(KeyboardInterrupt):
            dev.prepare("test")
        workshop.interrupt = False
        dev.prepare("test")
        assert (workshop.made, len(workshop.installs)) == (2, 2)
        assert dev.is_prepared("test")

    def test_an_interrupted_update_is_done_again_from_nothing(self, workshop: Workshop) -> None:
        dev.prepare("test")
        (workshop.root / "requirements" / "test.lock").write_text("changed\n")
        workshop.interrupt = True
        with pytest.raises(KeyboardInterrupt):
            dev.prepare("test")
        assert not dev.is_prepared("test")
        workshop.interrupt = False
        dev.prepare("test")
        assert workshop.made == 2

    def test_an_environment_that_somebody_else_made_is_adopted(self, workshop: Workshop) -> None:
        workshop.venv.mkdir()
        dev.prepare("test")
        assert (workshop.made, len(workshop.installs)) == (0, 2)

    def test_an_environment_that_came_from_elsewhere_is_made_anew(self, workshop: Workshop) -> None:
        dev.prepare("test")
        stamp = workshop.venv / "headwater-stamp"
        stamp.write_text(stamp.read_text().replace(str(workshop.venv), "elsewhere"))
        dev.prepare("test")
        assert workshop.made == 2

    def test_two_calls_at_once_install_once(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        waiting = threading.Event()
        monkeypatch.setattr(dev, "say", lambda text: waiting.set() if "another" in text else None)
        with (workshop.root / ".dev-lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            second = threading.Thread(target=dev.prepare, args=("test",))
            second.start()
            assert waiting.wait(10), "the second call says that it waits"
            # The first call finishes its work while the second one waits.
            workshop.venv.mkdir()
            (workshop.venv / "headwater-stamp").write_text(f"test\n{dev.stamp()}")
        second.join(10)
        assert not second.is_alive()
        assert (workshop.made, workshop.installs) == (0, [])


class TestMissingPrerequisites:
    def test_no_venv_module_says_what_to_install(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.undo()  # The real make_environment,
        monkeypatch.setattr(dev, "run_quietly", lambda *_: False)  # on a Python without ensurepip.
        with pytest.raises(dev.Failed) as caught:
            dev.make_environment()
        assert "has no venv module" in str(caught.value)
        assert "apt-get install python3-venv" in str(caught.value)

    @pytest.mark.parametrize(
        ("script", "finding"),
        [
            ('[ "$1" = --version ] && echo Python 3.9.2 || exit 1', "is Python 3.9.2, which is too old"),
            ("exit 127", "does not run"),
        ],
    )
    def test_no_python_new_enough_says_what_to_install(self, tmp_path: Path, script: str, finding: str) -> None:
        python = tmp_path / "python-of-old"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        result = run_dev("test", HEADWATER_PYTHON=str(python))
        assert result.returncode == 1
        assert "./dev needs Python 3.11 or newer and found none." in result.stderr
        assert finding in result.stderr
        assert "apt-get install python3 python3-venv" in result.stderr


class TestCommands:
    def test_help_lists_every_command(self) -> None:
        result = run_dev("--help")
        assert result.returncode == 0
        for command in ("demo", "test", "check", "bench", "baseline", "build", "sim", "flaky", "lock"):
            assert f"\n    {command} " in result.stdout

    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            (["test", "-x", "--help"], ["-m EXPR", "pytest --help"]),
            (["flaky", "--help"], ["PATH", "--times N", "--load"]),
            (["flaky", "-h"], ["PATH", "--times N", "--load"]),
            (["sim", "--help"], ["--seeds N", "--planted [-h] [--list] [NAME ...]"]),
            (["sim", "--planted", "--help"], ["./dev sim --planted [-h] [--list] [NAME ...]", "beginning of their"]),
            (["bench", "--help"], [*dev.BENCHES, "--pure"]),
        ],
    )
    def test_help_of_a_command_installs_nothing(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        arguments: list[str],
        parts: list[str],
    ) -> None:
        def prepare(_: str) -> None:
            raise AssertionError("something was installed")

        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(dev, "prepare", prepare)
        try:
            assert dev.main(arguments) == 0
        except SystemExit as ended:  # as argparse does it
            assert ended.code == 0  # noqa: PT017 (it need not be raised)
        printed = capfd.readouterr().out
        for part in parts:
            assert part in printed

    def test_commands_print_help_without_any_package(self) -> None:
        for name in ("tools.flaky", "tools.planted"):
            code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {name}"
            assert subprocess.run([sys.executable, "-I", "-S", "-c", code], check=False).returncode == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "required: COMMAND"),
            (["nonsense"], "invalid choice: 'nonsense'"),
            (["demo", "--fast"], "unrecognized arguments: --fast"),
            (["sim", "--seeds", "0"], "'0' is not a whole number of 1 or more"),
            (["sim", "--planted", "--seeds", "7"], "--planted takes no --seeds"),
        ],
    )
    def test_a_wrong_call_is_explained(self, arguments: list[str], message: str) -> None:
        result = run_dev(*arguments)
        assert result.returncode == 2
        assert message in result.stderr

    @pytest.mark.parametrize(
        ("arguments", "command", "variables"),
        [
            (["test"], QUICK, {"HEADWATER_RANDOM_SCALE": dev.TEST_SCALE}),
            (["test", "-k", "clock", "-x"], [*QUICK, "-k", "clock", "-x"], {"HEADWATER_RANDOM_SCALE": dev.TEST_SCALE}),
            (
                ["test", "-x", "-m", "random or slow", "tests/unit"],
                [*QUICK[:-1], "(not thorough) and (random or slow)", "-x", "tests/unit"],
                {"HEADWATER_RANDOM_SCALE": dev.TEST_SCALE},
            ),
            (
                ["sim"],
                ["-m", "pytest", "-n", "4", "--dist", "worksteal", "--durations=10"],
                {"HEADWATER_RANDOM_SCALE": "1.0"},
            ),
            (
                ["sim", "--seeds", "7", "-m", "random"],
                ["-m", "pytest", "-n", "4", "--dist", "worksteal", "--durations=10", "-m", "random"],
                {"HEADWATER_RANDOM_SCALE": "1.0", "HEADWATER_SEEDS": "7"},
            ),
            (["bench", "--pure"], ["-m", "bench"], {}),
            (["bench", "engine", "open"], ["-m", "bench", "engine", "open"], {}),
            (["sim", "--planted", "lane"], ["-m", "tools.planted", "lane"], {}),
            (["flaky", "--times", "3"], ["-m", "tools.flaky", "--times", "3"], {}),
            (["demo"], ["-m", "examples.demo"], {}),
            (["demo", "--check"], ["-m", "examples.demo", "--check"], {}),
        ],
    )
    def test_a_command_runs_its_module_in_the_environment(
        self,
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        command: list[str],
        variables: dict[str, str],
    ) -> None:
        ran: list[tuple[list[str], dict[str, str]]] = []

        def run(command: Sequence[str], variables: dict[str, str] | None = None, **_: object) -> int:
            ran.append((list(command), variables or {}))
            return 3

        monkeypatch.delenv("HEADWATER_RANDOM_SCALE", raising=False)
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        monkeypatch.setattr(dev, "prepare", lambda _: None)
        monkeypatch.setattr(dev, "run", run)
        assert dev.main(arguments) == 3
        assert ran == [([str(dev.PYTHON), *command], variables)]

    def test_folders_of_other_tests_are_known_by_the_marker_expression(self) -> None:
        assert dev.is_quick(dev.quick())
        assert dev.is_quick(dev.quick("random or slow"))
        assert not dev.is_quick("")
        assert not dev.is_quick("thorough or random")

    @pytest.mark.parametrize(
        ("arguments", "tier"),
        [
            (["demo"], "run"),
            (["model"], "run"),
            (["test"], "test"),
            (["flaky"], "test"),
            (["sim", "--planted"], "test"),
            (["sim"], "check"),
            (["bench", "--pure"], "check"),
        ],
    )
    def test_a_command_installs_the_smallest_tier_that_it_needs(
        self, monkeypatch: pytest.MonkeyPatch, arguments: list[str], tier: str
    ) -> None:
        prepared: list[str] = []
        monkeypatch.setattr(dev, "prepare", prepared.append)
        monkeypatch.setattr(dev, "run", lambda *_: 0)
        assert dev.main(arguments) == 0
        assert prepared == [tier]

    @pytest.mark.parametrize("command", ["test", "sim"])
    def test_tests_keep_bytecode_where_the_environment_says_not_to(
        self, monkeypatch: pytest.MonkeyPatch, command: str
    ) -> None:
        """An empty variable is none: Python writes bytecode then."""
        given: dict[str, str] = {}
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        monkeypatch.setattr(dev, "prepare", lambda _: None)
        monkeypatch.setattr(dev, "run", lambda _, variables: given.update(variables) or 0)
        assert dev.main([command]) == 0
        assert given["PYTHONDONTWRITEBYTECODE"] == ""


class TestCheck:
    def test_without_a_compiler_the_rest_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dev, "prepare", lambda _: None)
        monkeypatch.setattr(dev, "run", lambda command, *_, **__: 3 if "tools.compiled" in command else 0)
        assert dev.main(["check"]) == 0
        monkeypatch.setattr(dev, "run", lambda command, *_, **__: int("tools.compiled" in command))
        assert dev.main(["check"]) == 1

    def test_it_runs_every_step_and_names_the_ones_that_failed(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(dev, "prepare", lambda _: None)
        monkeypatch.setattr(dev, "browser", lambda: "/usr/bin/chromium")
        monkeypatch.setattr(dev, "run", lambda command, *_, **__: int("mypy" in command))
        assert dev.main(["check"]) == 1
        printed = capsys.readouterr().out
        steps = ["format", "lint", "types", "layers", "rooms", "seams", "native", "test", "rest", "coverage"]
        for step in steps:
            assert f"\n=== {step}: " in printed
        summary = printed.split("=== summary")[1].splitlines()
        verdicts = {step: "FAILED" if step == "types" else "ok" for step in steps}
        assert [line.split()[:2] for line in summary[1:-1]] == [[verdicts[step], step] for step in steps]
        assert summary[-1].startswith("./dev check took ")
        assert "run it alone: .venv/bin/python -m mypy" in printed

    def test_it_passes_when_everything_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dev, "prepare", lambda _: None)
        monkeypatch.setattr(dev, "run", lambda *_, **__: 0)
        assert dev.main(["check"]) == 0

    def test_its_last_line_says_whether_it_took_too_long(self) -> None:
        assert dev.bounded(24.9) == "24.9 minutes (at most 25)"
        assert dev.bounded(25.2) == "25.2 minutes: !! over the bound of 25 minutes"

    def test_its_summary_names_the_tests_that_need_a_browser_where_there_is_none(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(dev, "prepare", lambda _: None)
        monkeypatch.setattr(dev, "run", lambda *_, **__: 0)
        monkeypatch.setattr(dev, "BROWSERS", ("no-browser-has-this-name",))
        monkeypatch.delenv("HEADWATER_BROWSER", raising=False)
        assert dev.main(["check"]) == 0
        said = capsys.readouterr().out.split("=== summary")[1].splitlines()[-2]
        assert said.startswith("NOT RUN: tests/browser/test_board.py, ")
        assert "there is no browser here" in said

        monkeypatch.setenv("HEADWATER_BROWSER", "required")
        dev.main(["check"])
        assert "NOT RUN" not in capsys.readouterr().out


def run_dev(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HEADWATER_PYTHON": sys.executable, "COLUMNS": "200", **variables}
    command = [str(ROOT / "dev"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
