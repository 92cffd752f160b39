"""Measure the layout of the product, print each figure, and fail beyond its bound: `python -m tools.rooms`.

Counts modules, modules per folder, components of the import graph (imports under `TYPE_CHECKING` and inside functions
count), modules that one other module imports and that have no tests of their own, and the share of vague words in
comments and docstrings. The bounds of modules are to become lower, never higher.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.source_tree import (
    PACKAGE,
    ROOT,
    code_lines,
    import_graph,
    is_apart,
    module_name,
    modules_of,
    strongly_connected,
)

MODULES_MOST: Final = 300
FOLDER_MOST: Final = 18
SOLE_IMPORTER_MOST: Final = 10
COMPONENT_MOST: Final = 8
VAGUE_MOST: Final = 3.0

VAGUE: Final = re.compile(r"\b(?:what|whoever|nobody|somebody)\b", re.IGNORECASE)
WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure of the layout: its value, its bound, and where it is exceeded."""

    name: str
    value: float
    bound: float
    places: tuple[str, ...] = ()

    def met(self) -> bool:
        return self.value <= self.bound


def main() -> int:
    figures = tuple(measured(PACKAGE, ROOT / "tests"))
    for figure in figures:
        mark = "ok    " if figure.met() else "FAILED"
        print(f"{mark} {figure.name}: {figure.value:g} (at most {figure.bound:g})")
        if not figure.met():
            for place in figure.places:
                print(f"         {place}")
    return 0 if all(figure.met() for figure in figures) else 1


def measured(package: Path, tests: Path) -> Iterator[Figure]:
    paths = [path for path in modules_of(package) if code_lines(path.read_text())]
    product = [path for path in paths if not is_apart(path.parent.relative_to(package).as_posix())]
    yield Figure("product modules", len(product), MODULES_MOST)
    yield _folders(package, paths)
    graph = import_graph(package)
    yield from _components(graph)
    yield _with_sole_importer(graph, product, package, tests)
    for name, prose_paths in _prose_rooms(package):
        yield _vagueness(name, prose_paths)


# ---- folders ---------------------------------------------------------------------------------------------


def _folders(package: Path, paths: list[Path]) -> Figure:
    sizes: dict[str, int] = {}
    for path in paths:
        if path.name != "__init__.py":
            folder = path.parent.relative_to(package).as_posix()
            sizes[folder] = sizes.get(folder, 0) + 1
    large = {folder: size for folder, size in sizes.items() if size > FOLDER_MOST}
    return Figure(
        f"folders of more than {FOLDER_MOST} modules",
        len(large),
        0,
        tuple(f"{folder}: {size} modules" for folder, size in sorted(large.items())),
    )


# ---- the import graph ------------------------------------------------------------------------------------


def _components(graph: Mapping[str, set[str]]) -> Iterator[Figure]:
    components = strongly_connected(graph)
    largest = components[0] if components else []
    yield Figure("largest component of imports", len(largest), COMPONENT_MOST, tuple(largest))
    across: list[str] = []
    for component in components:
        rooms = {module.rpartition(".")[0] for module in component}
        if len(rooms) > 1:
            across.append(f"{len(component)} modules in {len(rooms)} rooms: {' '.join(component)}")
    yield Figure("components across rooms", len(across), 0, tuple(across))


def _with_sole_importer(graph: Mapping[str, set[str]], product: list[Path], package: Path, tests: Path) -> Figure:
    """Count modules that belong into their only importer: no test imports them, and no file of tests has their name."""
    importers: dict[str, list[str]] = {}
    for module, imported in graph.items():
        for each in imported:
            importers.setdefault(each, []).append(module)
    paths = sorted(tests.rglob("*.py"))
    texts = "\n".join(path.read_text() for path in paths)
    places: list[str] = []
    for path in product:
        module = module_name(package, path)
        above, _, name = module.rpartition(".")
        if path.name == "__init__.py" or len(importers.get(module, ())) != 1:
            continue
        is_named = any(path.stem.startswith("test_") and name.removesuffix("s") in path.stem for path in paths)
        if not is_named and not re.search(rf"{re.escape(module)}\b|{re.escape(above)} import .*\b{name}\b", texts):
            places.append(f"{module} <- {importers[module][0]}")
    return Figure(
        "modules with one importer and without tests of their own", len(places), SOLE_IMPORTER_MOST, tuple(places)
    )


# ---- prose -----------------------------------------------------------------------------------------------


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Each comment and each docstring with its first line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def _prose_rooms(package: Path) -> Iterator[tuple[str, list[Path]]]:
    """The parts of a package whose prose is measured: each folder, of `runtime` each room, and the modules beside."""
    yield "modules beside the packages", sorted(package.glob("*.py"))
    for folder in sorted(path.parent for path in package.glob("*/__init__.py")):
        rooms = sorted(path.parent for path in folder.glob("*/__init__.py")) if folder.name == "runtime" else []
        if rooms:
            yield folder.name, sorted(folder.glob("*.py"))
        for each in rooms or [folder]:
            yield each.relative_to(package).as_posix(), sorted(each.rglob("*.py"))


def _vagueness(name: str, paths: list[Path]) -> Figure:
    words = 0
    places: list[str] = []
    for path in paths:
        for line, text in prose(path.read_text()):
            words += len(WORD.findall(text))
            places += [f"{path.parent.name}/{path.name}:{line}: {match}" for match in VAGUE.findall(text)]
    share = round(1000 * len(places) / words, 2) if words else 0.0
    return Figure(f"vague words per 1,000 words of comments in {name}", share, VAGUE_MOST, tuple(places))


if __name__ == "__main__":
    sys.exit(main())
