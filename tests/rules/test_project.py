"""House rules that a person would have to remember, as tests."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater import errors
from tools import dev

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headwater"
MODULES = sorted(SOURCE.rglob("*.py"))

CLOCK_ONLY_MODULES = {"time", "random", "uuid", "secrets"}
CLOCK_ONLY_CALLS = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "os.urandom"}


def in_source(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    """Every text file of the project, as far as it would be committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # An archive of the project, without git.
        ours = ("src", "tests", "bench", "docs", "examples", "tools", ".ci")
        paths = [path for name in ours for path in (ROOT / name).rglob("*")]
        paths += [path for path in ROOT.iterdir() if path.name not in (".git", ".dev-lock")]
    found = {}
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            data = path.read_bytes()
            if b"\0" not in data:
                found[path] = data.decode()
    return found


# --- the shape of the sources ----------------------------------------------------------------------------


def test_every_module_has_a_docstring_and_lazy_annotations() -> None:
    for path in MODULES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), f"{in_source(path)} has no docstring"
        if len(tree.body) > 1:  # A package whose __init__ is only a docstring has nothing to annotate.
            assert "from __future__ import annotations" in path.read_text(), in_source(path)


# --- time and randomness ---------------------------------------------------------------------------------


def clock_only_uses(code: str) -> Iterator[str]:
    """What the code takes from time or chance by itself."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] in CLOCK_ONLY_MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in CLOCK_ONLY_MODULES:
                yield module
            case ast.Attribute():
                dotted = ".".join(ast.unparse(node).split(".")[-2:])
                if dotted in CLOCK_ONLY_CALLS:
                    yield dotted
            case _:
                pass


def test_only_the_clock_reads_time_or_draws_randomness() -> None:
    found = {in_source(path): list(clock_only_uses(path.read_text())) for path in MODULES}
    assert {path: uses for path, uses in found.items() if uses} == {
        "src/headwater/clock.py": found["src/headwater/clock.py"]
    }


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import os, random as r",
        "from time import monotonic",
        "def f():\n    from uuid import uuid4",
        "import datetime\ndatetime.datetime.now(tz)",
        "from datetime import datetime\nclock = datetime.now",
        "import os\nos.urandom(8)",
    ],
)
def test_the_search_for_clocks_finds_them(code: str) -> None:
    assert list(clock_only_uses(code))


def test_the_clock_itself_is_where_they_are() -> None:
    assert set(clock_only_uses((SOURCE / "clock.py").read_text())) == {"time", "random", "secrets"}


# --- the package -----------------------------------------------------------------------------------------


def test_public_names_are_sorted_and_all_of_them_load() -> None:
    assert sorted(headwater.__all__) == headwater.__all__
    assert set(headwater.__all__) <= set(dir(headwater))
    for name in headwater.__all__:
        assert getattr(headwater, name) is not None


def test_every_error_is_public() -> None:
    assert set(errors.__all__) <= set(headwater.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headwater' has no attribute 'nonsense'"):
        _ = headwater.nonsense


def test_importing_the_package_loads_no_layer_and_no_dependency() -> None:
    code = (
        "import sys; before = set(sys.modules); import headwater;"
        "print(sorted(n for n in set(sys.modules) - before if not n.startswith('_')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded_names = set(ast.literal_eval(loaded))
    assert {name for name in loaded_names if name.startswith("headwater.")} == {"headwater.errors", "headwater.lazy"}
    assert not loaded_names & {"apsw", "msgspec", "dataclasses", "asyncio", "sqlite3"}


def test_runtime_without_a_server_imports_no_library_of_connections() -> None:
    code = "import sys, headwater.runtime.api.entry_points; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "headwater.runtime.channel.loopback" in loaded
    assert not {"websockets", "uvicorn", "starlette", "httpx", "jwt"} & set(loaded)


def test_the_version_is_written_the_same_in_both_places() -> None:
    assert headwater.__version__ == pyproject()["project"]["version"]


def pyproject() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


# --- what is committed -----------------------------------------------------------------------------------


def private_places(text: str) -> list[str]:
    """Directories of somebody's machine, and hosts that packages come from."""
    # Written in pieces, so that this file does not find itself.
    directories = "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers", "op" + "t", "mn" + "t"))
    hosts = "|".join((r"pypi\." + "org", "python" + "hosted", r"npmjs\." + "org", r"debian\." + "org"))
    pattern = rf"(?<![\w.<>*])/(?:{directories})/\w[\w./-]*|[\w.-]*(?:{hosts})"
    return re.findall(pattern, text)


def test_no_file_names_a_machine_s_directories_or_a_package_host(texts: dict[Path, str]) -> None:
    assert texts
    assert {in_source(path): found for path, text in texts.items() if (found := private_places(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "see /ro" + "ot/x",
        '"/ho' + 'me/ann/src"',
        "from https://py" + "pi.org/simple",
        "files.python" + "hosted.org",
    ],
)
def test_the_search_for_private_places_finds_them(text: str) -> None:
    assert private_places(text)


def test_no_line_ends_in_a_space_and_every_file_ends_in_a_newline(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        assert not text or text.endswith("\n"), f"{in_source(path)} does not end in a newline"
        ragged = [n for n, line in enumerate(text.split("\n"), 1) if line != line.rstrip()]
        assert not ragged, f"{in_source(path)} has spaces at the end of lines {ragged[:5]}"


@pytest.mark.parametrize("name", ["dev", ".ci/run"])
def test_commands_are_executable(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


# --- the lock --------------------------------------------------------------------------------------------


TIERS = pytest.mark.parametrize("tier", dev.TIERS)


def locked(tier: str) -> dict[str, list[str]]:
    """Each pinned package of a lock with its hashes."""
    text = dev.lock_of(tier).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {line.split("==")[0]: re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line) for line in lines}


def normal(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@TIERS
def test_every_locked_package_is_pinned_and_hashed(tier: str) -> None:
    packages = locked(tier)
    assert len(packages) > 20
    for package, hashes in packages.items():
        assert re.fullmatch(r"[a-z0-9-]+", package), f"not a pin: {package}"
        assert hashes, f"{package} has no hash"


@TIERS
def test_the_lock_names_no_host_and_sets_no_option(tier: str) -> None:
    text = dev.lock_of(tier).read_text()
    assert "://" not in text
    options = set(re.findall(r"(?:^|\s)(--?[a-z][a-z-]*)", text, flags=re.MULTILINE))
    assert options == {"--hash"}


def test_tiers_agree_on_versions() -> None:
    pins = [set(re.findall(r"^[a-z0-9-]+==\S+", dev.lock_of(tier).read_text(), re.MULTILINE)) for tier in dev.TIERS]
    assert pins[0] < pins[1] < pins[2]


@TIERS
def test_everything_that_pyproject_asks_for_is_locked(tier: str) -> None:
    missing = {normal(wanted) for wanted in dev.requirements(tier)} - set(locked(tier))
    assert not missing, f"run ./dev lock: {sorted(missing)}"


# --- random suites ---------------------------------------------------------------------------------------

MARKED = "pytest.mark.random"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def unmarked_random_tests(code: str) -> list[str]:
    """The tests of a module that call `scaled` or `seldom` without the mark `random`; the module, if none has it."""
    tree = ast.parse(code)
    if not any(is_count(node) for node in ast.walk(tree)) or MARKED in "".join(
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)
    ):
        return []
    tests = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name.startswith("test_")]
    marked = [test for test in tests if any(MARKED in ast.unparse(each) for each in test.decorator_list)]
    found = [test.name for test in tests if test not in marked and any(is_count(node) for node in ast.walk(test))]
    return found if marked or found else ["the module"]


def is_count(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("scaled", "seldom")


def test_random_suites_have_their_mark() -> None:
    """`./dev sim` runs the tests with this mark at their full counts."""
    paths = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.name != "test_counts.py"]
    found = {in_source(path): unmarked_random_tests(path.read_text()) for path in paths}
    assert {path: tests for path, tests in found.items() if tests} == {}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def test_a():\n    scaled(5)", ["test_a"]),
        ("@pytest.mark.random\ndef test_a():\n    scaled(5)\ndef test_b():\n    seldom(5)", ["test_b"]),
        ("N = scaled(5)\ndef test_a(): ...", ["the module"]),
        ("N = scaled(5)\n@pytest.mark.random\ndef test_a(): ...", []),
        ("pytestmark = pytest.mark.random\ndef test_a():\n    scaled(5)", []),
        ("def test_a(): ...", []),
    ],
)
def test_random_suites_without_their_mark_are_found(code: str, found: list[str]) -> None:
    assert unmarked_random_tests(code) == found
