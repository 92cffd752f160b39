"""`./dev baseline`: measure the project as it is and write bench/baseline.json.

The file has the size of the code (code lines and modules per folder, the lists of paths that later work is measured
by), the cycles of the import graph, the counted walks of `bench.walks`, and the processor time of the shapes of
`bench.author`. Everything except processor time is counted and does not depend on the machine. The key `coverage`
is not measured here: its present content is kept (see `Baseline`).
"""

from __future__ import annotations

import ast
import io
import json
import platform
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from bench.author.run import BY_CLOCK, MODEST, Figure, measured
from bench.walks import Spread, count_walks

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "headwater"
TARGET: Final = ROOT / "bench" / "baseline.json"
APART: Final = "testing"  # ships for authors' tests; its lines are not product code


def _in(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.py" for name in names.split())


# Lists of paths below src/headwater, modules or folders. A path that does not exist is an error: who moves or deletes
# a module moves or deletes it here, too.
#
# From `send` to an outcome: the record of an event, its order, attempts, receipts, storage, and the table of intents.
EVENTS: Final = (
    *_in(
        "runtime/binding",
        "advice attempting course ends events fresh gone handling intents keeping lanes lineage minting periods "
        "posting principals receipts retention rights stored storing takeover waiting",
    ),
    "runtime/outbox.py",
)
# One write: its transaction, attempts, retries and the writes outside any run.
WRITING: Final = _in("runtime", "authored effort pace retry standing writing")
# From a session to an engine: transports, the driver, the handshake, and which sessions there are.
CHANNEL: Final = _in(
    "runtime", "acks attached attachment attempts driver loopback reception transport websocket windows"
)
# Stored observations of runs, fingerprints of code, and everything that uses them: resuming, preview,
# shadow runs, and the commands that print it. Versions of classes in one running system (generations, reload) and
# pieces that are kept ready in a process are not restart.
RESTART: Final = (
    *_in(
        "runtime/binding",
        "asking at_once bringing drowsing elsewhere folded followed forgetting giving ingredients leaving makers "
        "mirroring observed parts past phases picture previewing questions remaking resuming shadow sleeping standing "
        "whole",
    ),
    *_in(
        "engine",
        "met mirrors names observed observed_form observed_rows observing reader_index remade wholes "
        "store/observed store/observed_tables verify/observed",
    ),
    *_in("protocol", "mirrors observations"),
    "replica/runs.py",
    "scheduler/persistence.py",
    "pieces/fingerprint.py",
    "pieces/fingerprints",
    *_in("server", "abroad copying last_run nodes"),
    *_in("cli", "known nodes preview proof"),
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


# ---- code lines ------------------------------------------------------------------------------------------

LAYOUT: Final = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    )
)


def code_lines(source: str) -> int:
    """Count the lines that have code: no blank lines, no comments, no string that stands as a statement."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def modules_of(package: Path) -> Iterator[Path]:
    return iter(sorted(package.rglob("*.py")))


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


def is_apart(folder: str) -> bool:
    return folder.split("/", 1)[0] == APART


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


# ---- the import graph ------------------------------------------------------------------------------------


def module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(package: Path) -> dict[str, set[str]]:
    """The modules of a package and the modules of it that each imports, wherever the import statement stands.

    Imports under `TYPE_CHECKING` and inside functions count. `from a import b` is an import of the module `a.b` if
    there is one, and of `a` otherwise. That Python also loads the packages above a module does not count.
    """
    sources = {module_name(package, path): path for path in modules_of(package)}
    return {name: set(_imported(name, path, sources)) - {name} for name, path in sources.items()}


def _imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = _base(name, path, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known:
                    yield inner
                elif base in known:
                    yield base


def _base(name: str, path: Path, node: ast.ImportFrom) -> str:
    """The absolute name of the module that a `from` statement names."""
    if not node.level:
        return node.module or ""
    parts = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    above = parts[: len(parts) - (node.level - 1)]
    return ".".join([*above, *([node.module] if node.module else [])])


def strongly_connected(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Find components of more than one node, largest first, each sorted (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    components: list[list[str]] = []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        components.append(sorted(component))
    return sorted(components, key=lambda component: (-len(component), component))


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
    author: dict[str, dict[str, Any]]  # as `./dev bench author` prints them, at modest sizes, in pure Python
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
