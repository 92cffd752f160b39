"""The pytest plugin and `headwater test`, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

PASSES = """
from headwater.testing import Simulation, simulated

@simulated(seeds=12, faults=())
async def test_time_passes(sim: Simulation) -> None:
    await sim.advance(seconds=1)

def test_plain() -> None:
    pass
"""
FAILS = """
from headwater.testing import Simulation, simulated

@simulated(seeds=12, faults=())
async def test_fails(sim: Simulation) -> None:
    assert sim.seed < 5
"""
PLUGIN = ("-m", "pytest", "-p", "headwater.testing.author_plugin", "-p", "no:cacheprovider")


def environment_of() -> dict[str, str]:
    chosen = ("HEADWATER_SEED", "HEADWATER_SEEDS", "HEADWATER_RANDOM_SCALE", "PYTEST_ADDOPTS")
    inherited = {name: value for name, value in os.environ.items() if name not in chosen}
    own = {"PYTHONPATH": str(Path(__file__).parents[3] / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**inherited, **own, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # The plugins of others take their time.


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**environment_of(), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def command(folder: Path, paths: tuple[str, ...] = (), **options: object) -> subprocess.CompletedProcess[str]:
    """`headwater test` with these arguments."""
    start = "import sys; from headwater.cli.process.project import run_tests"
    code = f"{start}; sys.exit(run_tests(*{paths!r}, **{options!r}))"
    return run(folder, "-c", code)


def test_the_plugin_collects_simulated_tests_and_sums_up(tmp_path: Path) -> None:
    (tmp_path / "test_passes.py").write_text(PASSES)
    ran = run(tmp_path, *PLUGIN)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
    assert "simulated: 12 seeds of 1 test went well" in ran.stdout


def test_a_failing_seed_is_shown_with_the_command_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text(FAILS)
    ran = run(tmp_path, *PLUGIN)
    assert ran.returncode == 1
    assert "seed 5. To run only this one: HEADWATER_SEED=5 pytest 'test_fails.py::test_fails'" in ran.stdout
    assert "assert 5 < 5" in ran.stdout
    assert "simulated: 5 seeds of 1 test went well, 1 of them ended by a seed that failed" in ran.stdout
    assert "author/seeds.py" not in ran.stdout  # Whoever reads it wants their own lines.
    again = run(tmp_path, *PLUGIN, HEADWATER_SEED="4")
    assert again.returncode == 0
    assert "simulated: 1 seed of 1 test went well" in again.stdout


def test_without_the_plugin_they_run_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text(FAILS)
    ran = run(tmp_path, "-m", "pytest")
    assert ran.returncode == 1
    assert "seed 5. To run only this one: HEADWATER_SEED=5 pytest" in ran.stdout


def test_the_seeds_of_workers_are_summed_up_too(tmp_path: Path) -> None:
    (tmp_path / "test_passes.py").write_text(PASSES)
    ran = run(tmp_path, *PLUGIN, "-p", "xdist", "-n", "2")
    assert "simulated: 12 seeds of 1 test went well" in ran.stdout, ran.stdout + ran.stderr


def test_a_terminal_shows_how_far_the_seeds_are(tmp_path: Path) -> None:
    (tmp_path / "test_passes.py").write_text(PASSES)
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, *PLUGIN], cwd=tmp_path, stdout=theirs, stderr=theirs, env={**environment_of(), "TERM": "xterm"}
    )
    os.close(theirs)
    shown = bytearray()
    try:
        while part := os.read(ours, 4_096):
            shown += part
    except OSError:  # How a terminal says that its program ended.
        assert process.wait() == 0
    os.close(ours)
    text = shown.decode()
    assert "##########.......... 6 of 12 seeds of test_time_passes" in text
    assert "simulated: 12 seeds of 1 test went well" in text


def test_the_plugin_loads_no_runtime(tmp_path: Path) -> None:
    """It is loaded with every pytest of its environment."""
    code = (
        "import sys, headwater.testing.author_plugin; "
        "print([name for name in sys.modules if name.startswith(('headwater.runtime', 'headwater.engine', 'apsw'))])"
    )
    assert run(tmp_path, "-c", code).stdout.strip() == "[]"


def test_headwater_test_says_how_many_tests_and_seeds_there_were(tmp_path: Path) -> None:
    (tmp_path / "test_passes.py").write_text(PASSES)
    ran = command(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("2 tests, 12 seeds: all went well\n")
    assert command(tmp_path, ("test_passes.py",), match="time", seeds=3).stdout.endswith(
        "1 test, 3 seeds: all went well\n"
    )


def test_headwater_test_exits_1_if_a_test_failed(tmp_path: Path) -> None:
    (tmp_path / "test_passes.py").write_text(PASSES)
    (tmp_path / "test_fails.py").write_text(FAILS)
    ran = command(tmp_path, (".",))
    assert ran.returncode == 1
    assert ran.stdout.endswith("3 tests, 17 seeds: 1 test failed\n")
    assert command(tmp_path, (".",), seed=2).returncode == 0


def test_headwater_test_exits_1_if_tests_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    ran = command(tmp_path)
    assert ran.returncode == 1
    assert "nothing_of_that_name" in ran.stdout


@pytest.mark.parametrize(
    ("paths", "options", "said"),
    [
        (("nowhere",), {}, "headwater: nowhere is neither a file nor a folder"),
        ((), {}, "headwater: there are no tests there"),
        ((), {"seeds": 0}, "headwater: --seeds is 1 or more"),
    ],
)
def test_headwater_test_exits_2_if_there_is_nothing_to_run(
    tmp_path: Path, paths: tuple[str, ...], options: dict[str, object], said: str
) -> None:
    ran = command(tmp_path, paths, **options)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_headwater_test_answers_programs_in_json(tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text(FAILS)
    ran = command(tmp_path, json=True)
    answer = json.loads(ran.stdout)
    assert (ran.returncode, answer["ok"], answer["tests"], answer["seeds"]) == (1, False, 1, 5)
    assert answer["failed"][0]["test"] == "test_fails.py::test_fails"
    assert "seed 5. To run only this one" in answer["failed"][0]["message"]


def test_what_stands_beside_the_tests_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("answer = 42\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_shop.py").write_text("import shop\ndef test_it(): assert shop.answer == 42\n")
    assert command(tmp_path, ("tests",)).returncode == 0


TAKES_MORE = """
from pathlib import Path

import pytest
from headwater.testing import Simulation, simulated


@pytest.fixture
def five() -> int:
    return 5


@pytest.mark.parametrize("k", [1, 2])
@simulated(seeds=3, faults=())
async def test_parameters(sim: Simulation, k: int) -> None:
    assert k in (1, 2)


@simulated(seeds=3, faults=())
@pytest.mark.parametrize("k", [1, 2])
async def test_fixtures_before_and_after(k: int, five: int, sim: Simulation, tmp_path: Path) -> None:
    assert (five, tmp_path.is_dir(), k in (1, 2)) == (5, True, True)


class TestInAClass:
    @simulated(seeds=3, faults=())
    async def test_method(self, sim: Simulation) -> None:
        assert isinstance(self, TestInAClass)

    @pytest.mark.parametrize("k", [1, 2])
    @simulated(seeds=3, faults=())
    async def test_method_with_both(self, sim: Simulation, k: int, five: int) -> None:
        assert (isinstance(self, TestInAClass), five) == (True, 5)

    @staticmethod
    @simulated(seeds=3, faults=())
    async def test_static(world: Simulation) -> None:
        assert isinstance(world, Simulation)
"""


@pytest.mark.parametrize("with_plugin", [True, False])
def test_parameters_fixtures_and_methods_are_given_as_to_any_test(tmp_path: Path, with_plugin: bool) -> None:
    (tmp_path / "test_takes_more.py").write_text(TAKES_MORE)
    ran = run(tmp_path, *(PLUGIN if with_plugin else ("-m", "pytest", "-p", "no:cacheprovider")))
    assert ran.returncode == 0, ran.stdout
    assert "8 passed" in ran.stdout
    assert ("simulated: 24 seeds of 8 tests went well" in ran.stdout) is with_plugin


def test_a_failure_shows_the_test_and_nothing_of_the_loop(tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text(FAILS)
    ran = run(tmp_path, *PLUGIN)
    assert "assert sim.seed < 5" in ran.stdout
    assert "run_until_complete" not in ran.stdout
    assert "author/seeds" not in ran.stdout
