"""Compiles the hot modules with mypyc into a copy of the package, for those who have a C compiler.

    .venv/bin/python -m tools.compiled [--force]

The sources stay as they are and run as they are; the copy in build/compiled is the same package with some modules as
native code, put in front with PYTHONPATH. Nothing is compiled anew while no source has changed. Answers 0 if the copy
is there and current, 3 if there is no compiler.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "headwater"
TARGET: Final = ROOT / "build" / "compiled"
STAMP: Final = TARGET / "stamp"
NO_COMPILER: Final = 3

HOT: Final = (
    "cells/cell.py",
    "cells/handle.py",
    "cells/open_run.py",
    "data/reader_trie.py",
    "replica/confirmed.py",
    "replica/detached.py",
    "replica/document.py",
    "replica/feed.py",
    "replica/number_ranges.py",
    "replica/observation_queue.py",
    "replica/pending.py",
    "replica/replica.py",
    "replica/tier.py",
    "runtime/core/nodes.py",
    "runtime/core/plain_writes.py",
    "runtime/pieces/handles.py",
    "scheduler/commit_verdicts.py",
    "scheduler/freshness.py",
    "scheduler/gates.py",
    "scheduler/graph/edges.py",
    "scheduler/graph/graph.py",
    "scheduler/invalidation.py",
    "scheduler/nested_runs.py",
    "scheduler/node.py",
    "scheduler/pass_.py",
    "scheduler/registry.py",
    "scheduler/run_reporter.py",
    "scheduler/runner.py",
    "scheduler/scheduler.py",
    "scheduler/suspension.py",
    "scheduler/waiting_nodes.py",
)
"""What a run of a node goes through: node objects that hold node objects, typed throughout."""

EXTENDED: Final = (
    ("cells/cell.py", "Cell"),
    ("cells/handle.py", "Input"),
    ("replica/confirmed.py", "NotHere"),
    ("replica/detached.py", "Detached"),
    ("replica/document.py", "Document"),
)
"""Classes of these modules that others extend which are not compiled."""

SETTINGS: Final = """\
[mypy]
strict = True
ignore_missing_imports = True
follow_imports = silent
"""


def main(arguments: list[str]) -> int:
    if "--force" not in arguments and is_current():
        return 0
    now = fingerprint()  # Of what is copied below, should a source change meanwhile.
    if shutil.which(os.environ.get("CC", "cc")) is None:
        print(
            "compiled: there is no C compiler (cc): the package runs uncompiled. Install gcc or clang.", file=sys.stderr
        )
        return NO_COMPILER
    print(f"compiled: compiling {len(HOT)} modules, about half a minute", file=sys.stderr, flush=True)
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(SOURCE, TARGET / "headwater", ignore=shutil.ignore_patterns("__pycache__"))
    for module in HOT:
        path = TARGET / "headwater" / module
        path.write_text(without_hints(path.read_text()))
    for module, name in EXTENDED:
        path = TARGET / "headwater" / module
        path.write_text(extensible(path.read_text(), name))
    (TARGET / "mypy.ini").write_text(SETTINGS)
    command = [
        str(Path(sys.executable).parent / "mypyc"),
        "--config-file",
        "mypy.ini",
        *(f"headwater/{m}" for m in HOT),
    ]
    built = subprocess.run(command, cwd=TARGET, capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stdout[-4_000:] + built.stderr[-4_000:], file=sys.stderr)
        print("compiled: mypyc failed; what it said is above", file=sys.stderr)
        return 1
    shutil.rmtree(TARGET / "build", ignore_errors=True)
    if refusal := import_failure():
        print(refusal, file=sys.stderr)
        print("compiled: the copy was compiled, and cannot be imported; the traceback is above", file=sys.stderr)
        return 1
    STAMP.write_text(now)
    return 0


def import_failure() -> str:
    """What an interpreter prints that imports every compiled module of the copy; empty if all can be imported."""
    modules = [f"headwater.{module.removesuffix('.py').replace('/', '.')}" for module in HOT]
    code = f"import importlib\nfor module in {modules}: importlib.import_module(module)"
    variables = {**os.environ, "PYTHONPATH": str(TARGET)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=TARGET, env=variables, capture_output=True, text=True, check=False
    )
    return ran.stderr[-4_000:] or f"exit code {ran.returncode}" if ran.returncode else ""


def without_hints(source: str) -> str:
    """The same without what classes declare for type checkers alone: a native class takes no `if` in its body."""
    lines = source.splitlines(keepends=True)
    bodies = [found.body for found in ast.walk(ast.parse(source)) if isinstance(found, ast.ClassDef)]
    for each in (each for body in bodies for each in body if isinstance(each, ast.If) and not each.orelse):
        if isinstance(each.test, ast.Name) and each.test.id == "TYPE_CHECKING" and each.end_lineno is not None:
            lines[each.lineno - 1 : each.end_lineno] = ["\n"] * (each.end_lineno - each.lineno + 1)
    return "".join(lines)


def extensible(source: str, name: str) -> str:
    """The same with a class that says that others extend it: that costs its methods something, its fields nothing."""
    lines = source.splitlines(keepends=True)
    tree = ast.parse(source)
    (found,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    imports = next(each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module != "__future__")
    lines.insert(found.lineno - 1, "@mypyc_attr(allow_interpreted_subclasses=True)\n")
    lines.insert(imports.lineno - 1, "from mypy_extensions import mypyc_attr\n")
    return "".join(lines)


def is_current() -> bool:
    """Whether the copy is there and was made from the sources as they are."""
    return STAMP.is_file() and STAMP.read_text() == fingerprint()


def fingerprint() -> str:
    """Of every source, since a compiled module knows the types of those it uses, and of which are compiled."""
    digest = hashlib.sha256("\0".join((sys.version, *HOT)).encode())
    for path in sorted(SOURCE.rglob("*.py")):
        digest.update(str(path.relative_to(SOURCE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
