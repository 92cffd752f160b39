"""The same tests of handles, nodes and the runtime's core, against the compiled copy of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from tools import compiled

SUITES: Final = (
    "tests/unit/cells",
    "tests/unit/scheduler",
    "tests/unit/runtime/test_core.py",
    "tests/unit/runtime/test_core_conflicts.py",
    "tests/unit/runtime/test_core_time.py",
    "tests/unit/runtime/test_core_writing.py",
)
OTHERWISE: Final = (
    # A native class that inherits an interpreted one has room for attributes, whatever its slots say.
    "tests/unit/cells/test_handle_reading.py::test_a_handle_has_no_room_for_attributes",
)
"""What is not the same for native code."""


@pytest.mark.skipif(
    not compiled.is_current(),
    reason="LEFT OUT: build/compiled is not made from these sources, and nothing here was tried as native code. "
    "Run ./dev build, then this again.",
)
def test_handles_nodes_and_the_core_hold_as_native_code_too() -> None:
    """Y25: a write to a document that was not here raised TypeError in the compiled copy only, and nobody saw it."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", "pythonpath=.", "-p", "no:cacheprovider", *SUITES]
    command += [
        "--maxfail=3",
        f"--ignore={os.path.relpath(__file__, compiled.ROOT)}",
        *(f"--deselect={each}" for each in OTHERWISE),
    ]
    variables = {**os.environ, "PYTHONPATH": str(compiled.TARGET), "HEADWATER_RANDOM_SCALE": "0.01"}
    variables.pop("HEADWATER_SEEDS", None)
    where = subprocess.run(
        [sys.executable, "-c", "import headwater.scheduler.pass_ as module; print(module.__file__)"],
        cwd=compiled.TARGET,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(compiled.TARGET)), where.stdout
    assert not where.stdout.strip().endswith(".py"), where.stdout
    ran = subprocess.run(command, cwd=compiled.ROOT, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-12_000:] + ran.stderr[-1_000:]


def test_every_suite_that_is_run_as_native_code_is_there() -> None:
    assert [suite for suite in SUITES if not (compiled.ROOT / suite).exists()] == []
    for test in OTHERWISE:
        file, name = test.split("::")
        assert f"def {name}(" in (compiled.ROOT / file).read_text()


def test_a_class_that_others_extend_says_so_where_it_is_compiled() -> None:
    """Pieces did not come up on the compiled copy: handles of theirs extend native ones, which refuse that unasked."""
    source = "from __future__ import annotations\n\nimport enum\nfrom typing import Final\n\n\nclass A:\n    x = 1\n"
    made = compiled.extensible(source, "A")
    assert "from mypy_extensions import mypyc_attr\nfrom typing import Final\n" in made
    assert "@mypyc_attr(allow_interpreted_subclasses=True)\nclass A:\n" in made
    for module, name in compiled.EXTENDED:
        assert module in compiled.HOT
        assert f"class {name}(" in (text := (compiled.SOURCE / module).read_text()) or f"class {name}:" in text


def test_what_only_type_checkers_read_is_left_out_of_native_classes() -> None:
    """A native class takes no `if` in its body. Lines stay where they are, for tracebacks."""
    source = "class A:\n    x = 1\n\n    if TYPE_CHECKING:\n\n        def f(self) -> int: ...\n\n    y = 2\n"
    assert compiled.without_hints(source) == "class A:\n    x = 1\n\n\n\n\n\n    y = 2\n"
    kept = "if TYPE_CHECKING:\n    import b\n\nclass A:\n    if DEBUG:\n        x = 1\n"
    assert compiled.without_hints(kept) == kept
