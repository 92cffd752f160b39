"""`./dev baseline`: measure the project as it is and write bench/baseline.json.

The file has the size of the code (code lines and modules per folder, the lists of paths that later work is measured
by), the cycles of the import graph, the counted walks of `bench.walks`, and the processor time of the shapes of
`bench.author`. Only this command writes the file: the names in it are those of the commit at which it ran, and a commit
that renames a module leaves them as they are. Everything except processor time is counted and does not depend on the
machine. The key `coverage` is not measured here: its present content is kept (see `Baseline`).
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from bench.author.run import BY_CLOCK, MODEST, Figure, measured
from bench.walks import Spread, count_walks
from tools.source_tree import (
    APART,
    PACKAGE,
    ROOT,
    code_lines,
    import_graph,
    is_apart,
    modules_of,
    strongly_connected,
)

TARGET: Final = ROOT / "bench" / "baseline.json"


def _in(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.py" for name in names.split())


# Lists of paths below src/headwater, modules or folders. A path that does not exist is an error: who moves or deletes
# a module moves or deletes it here, too.
#
# From `send` to an outcome: the record of an event, its order, attempts, receipts, storage, and the table of intents.
EVENTS: Final = ("runtime/events",)
# One write: its transaction, attempts, retries and the writes outside any run.
WRITING: Final = ("runtime/writing",)
# From a session to an engine: transports, the driver, the end of the engine, and which sessions there are.
CHANNEL: Final = ("runtime/channel",)
# Stored observations of runs, fingerprints of code, and everything that uses them: resuming, preview,
# shadow runs, and the commands that print it. Versions of classes in one running system (hot_reload, reload) and
# pieces that are kept ready in a process are not restart.
RESTART: Final = (
    "runtime/resume",
    *_in("runtime/pieces", "fold"),
    "engine/observations",
    *_in("protocol", "observations"),
    "replica/observation_queue.py",
    *_in("scheduler", "persistence run_reporter"),
    "pieces/fingerprints",
    *_in("server/commands", "foreign_reads nodes_json safe_copy"),
    *_in("cli/data", "nodes preview stored_nodes verify"),
)
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "events": EVENTS,
    "writing": WRITING,
    "channel": CHANNEL,
    "events_writing_channel": (*EVENTS, *WRITING, *CHANNEL),
    "restart": RESTART,
}


class Size(TypedDict):
    """Code lines, and modules that have at least one: an `__init__` with a docstring only is not counted."""

    code_lines: int
    modules: int


class Group(TypedDict):
    """A list of modules that later work is measured by."""

    code_lines: int
    modules: int
    paths: list[str]


class Cycles(TypedDict):
    """Strongly connected components of more than one module, largest first."""

    sizes: list[int]
    members: list[list[str]]


def sizes_by_folder(package: Path) -> dict[str, Size]:
    """Sizes of the modules directly inside each folder, by its path below `package`; `.` is the package itself."""
    sizes: dict[str, Size] = {}
    for path in modules_of(package):
        folder = path.parent.relative_to(package).as_posix()
        size = sizes.setdefault(folder, {"code_lines": 0, "modules": 0})
        lines = code_lines(path.read_text())
        size["code_lines"] += lines
        size["modules"] += bool(lines)
    return dict(sorted(sizes.items()))


def total(sizes: Iterable[Size]) -> Size:
    every = tuple(sizes)
    return {
        "code_lines": sum(size["code_lines"] for size in every),
        "modules": sum(size["modules"] for size in every),
    }


def group(package: Path, listed: Iterable[str]) -> Group:
    """Resolve a list of modules and folders to its modules and their size. Raises if one of them does not exist."""
    found: set[Path] = set()
    for name in listed:
        path = package / name
        if path.is_dir():
            found.update(modules_of(path))
        elif path.is_file():
            found.add(path)
        else:
            raise FileNotFoundError(f"{path} is listed in tools/baseline.py and does not exist: edit the list")
    lines = {path.relative_to(package).as_posix(): code_lines(path.read_text()) for path in found}
    paths = sorted(path for path, count in lines.items() if count)
    return {"code_lines": sum(lines.values()), "modules": len(paths), "paths": paths}


def cycles(package: Path) -> Cycles:
    components = strongly_connected(import_graph(package))
    return {"sizes": [len(component) for component in components], "members": components}


# ---- the file --------------------------------------------------------------------------------------------


def code(package: Path = PACKAGE) -> dict[str, Any]:
    folders = sizes_by_folder(package)
    return {
        "product": total(size for folder, size in folders.items() if not is_apart(folder)),
        APART: total(size for folder, size in folders.items() if is_apart(folder)),
        "folders": folders,
        "groups": {name: group(package, listed) for name, listed in GROUPS.items()},
        "import_cycles": cycles(package),
    }


def times(figures: Iterable[Figure]) -> dict[str, dict[str, Any]]:
    """Figures of the author bench by name; one that could not be had has the value None, and says why.

    Times by the clock depend on the load of the machine, and are left out.
    """
    return {
        name: {"value": None, "unit": unit, "why": why}
        if value is None
        else {"value": float(f"{value:.4g}"), "unit": unit}
        for name, value, unit, why in figures
        if name.rpartition(".")[2] not in BY_CLOCK
    }


class Baseline(TypedDict):
    """The content of bench/baseline.json."""

    python: str
    code: dict[str, Any]
    walks: dict[str, Spread]  # counted calls, messages, store transactions and ticks
    author: dict[str, dict[str, Any]]  # as `./dev bench author` prints them, of the sizes `MODEST`, in pure Python
    coverage: NotRequired[
        dict[str, float]
    ]  # of src without kits at the counts of `./dev check`, in per cent; commit 768cfd6 had this


def main() -> int:
    kept: Mapping[str, Any] = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    baseline: Baseline = {
        "python": platform.python_version(),
        "code": code(),
        "walks": count_walks(),
        "author": times(measured(MODEST)),
    }
    if "coverage" in kept:
        baseline["coverage"] = kept["coverage"]
    TARGET.write_text(json.dumps(baseline, indent=2) + "\n")
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
