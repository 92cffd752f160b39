"""Read the source tree of the product: its code lines and its import graph."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "headwater"
APART: Final = "testing"  # ships for authors' tests; its lines are not product code

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


def is_apart(folder: str) -> bool:
    return folder.split("/", 1)[0] == APART


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
