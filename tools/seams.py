"""Check that tests use the product through its seams: `python -m tools.seams`.

Suites that describe behaviour (`SUITES`), and the files under tests/ that they import, use the public API and the
modules listed in tests/seams.txt, and nothing else. They touch no private attribute, and neither replace nor assign an
attribute of a product object. Unit tests may import any module; the lines of those files that use something private are
counted and bounded.

Reads source only, with the standard library; runs no test.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SEAMS = ROOT / "tests" / "seams.txt"
SUITES = (
    "tests/scenario",
    "tests/invariants",
    "tests/simulation",
    "tests/contract",
    "tests/aid",
    "tests/promises",
    "tests/promises",
    "src/headwater/testing",
)
UNIT = "tests/unit"
PRODUCT = "headwater"
UNIT_LINES_MOST = 1_700
"""How many lines the unit-test files that use something private may have together."""

INNER = frozenset(
    {
        "core",
        "gates",
        "graph",
        "loads",
        "pending",
        "pieces",
        "queries",
        "reaction_spaces",
        "registry",
        "service",
        "spaces",
    }
)
"""Attributes of a runtime, scheduler, replica, session or server that lead to its inner components."""

COMPONENTS = frozenset(
    {"channel", "driver", "engine", "hub", "peer", "replica", "rt", "scheduler", "service", "session"}
)
"""Names that variables and attributes for objects of the product have in all tests."""

# Public methods of the standard library that begin with an underscore.
_NOT_PRIVATE = frozenset({"_replace", "_asdict", "_fields", "_make", "_field_defaults"})
_REPLACING = frozenset({"setattr", "delattr", "object", "multiple", "dict"})
_BY_NAME = frozenset({"getattr", "setattr", "delattr", "hasattr", "object"})
# An import in the text of a program that a test runs.
_IMPORT_IN_TEXT = re.compile(r"^\s*(?:from|import)\s+(headwater\.[\w.]+)", re.MULTILINE)


class Breach(NamedTuple):
    """One use of something that is not a seam."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class Seams:
    """The modules that tests of behaviour may import."""

    def __init__(self, lines: Sequence[str]) -> None:
        words = [line.split() for line in lines if line.strip() and not line.startswith("#")]
        names = [first for first, *_ in words if ":" not in first]
        self._files = {first: frozenset(files) for first, *files in words if ":" in first}
        self._exact = {name for name in names if not name.endswith(".*")}
        self._below = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))

    def allow(self, module: str) -> bool:
        return module in self._exact or any(module == name or module.startswith(f"{name}.") for name in self._below)

    def allow_name(self, module: str, name: str, path: Path) -> bool:
        """Whether a file may import a name of a module that tests may import."""
        files = self._files.get(f"{module}:{name}")
        return files is None or path.as_posix() in files


def main() -> int:
    seams = Seams(SEAMS.read_text().splitlines())
    inner: list[Breach] = []
    private: list[Breach] = []
    for source in with_kits(path for suite in SUITES for path in sorted((ROOT / suite).rglob("*.py"))):
        inner += [*source.inner_imports(seams), *source.inner_attributes()]
        private += [*source.private_uses(), *source.replaced_attributes()]
    for breach in [*inner, *private]:
        print(breach)
    unit = {path: Source(path) for path in sorted((ROOT / UNIT).rglob("*.py"))}
    using = [source for source in unit.values() if any(source.private_uses())]
    lines = sum(source.lines for source in using)
    if lines > UNIT_LINES_MOST:
        for source in using:
            for breach in source.private_uses():
                print(breach)
    print(f"uses of inner modules by the suites: {len(inner)} (at most 0)")
    print(f"private or replaced attributes in the suites: {len(private)} (at most 0)")
    print(f"lines of unit-test files with private uses: {lines} in {len(using)} files (at most {UNIT_LINES_MOST})")
    return 1 if inner or private or lines > UNIT_LINES_MOST else 0


def with_kits(paths: Iterable[Path]) -> Iterator[Source]:
    """The files, and those under tests/ that they import, wherever these are."""
    waiting = list(paths)
    known = set(waiting)
    for path in waiting:
        source = source_of(path)
        yield source
        new = [kit for kit in source.kits if kit.is_relative_to(ROOT / "tests") and kit not in known]
        waiting += new
        known.update(new)


@functools.cache
def source_of(path: Path) -> Source:
    return Source(path)


class Source:
    """One test file and the uses of the product in it."""

    def __init__(self, path: Path) -> None:
        text = path.read_text()
        self._file = path
        self.path = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        self._nodes = list(ast.walk(ast.parse(text)))
        self.lines = text.count("\n")
        self._imported = dict(_imported_names(self._nodes))
        # A name that the product defines, too, may be the product's.
        self._own = set(_defined_names(self._nodes)) - _product_private_names()
        self.attributes = set(_attributes(self._nodes))

    @functools.cached_property
    def kits(self) -> list[Path]:
        """The files of tests and of `headwater.testing` that this file imports."""
        return list(dict.fromkeys(self._imported_kits()))

    def _imported_kits(self) -> Iterator[Path]:
        for node in self._nodes:
            if isinstance(node, ast.ImportFrom) and node.module is not None and _is_kit(node.module):
                folder = ROOT / "src" if _is_product(node.module) else ROOT
                for module in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    place = folder.joinpath(*module.split("."))
                    yield from (kit for kit in (place.with_suffix(".py"), place / "__init__.py") if kit.is_file())

    def product_imports(self) -> Iterator[tuple[ast.AST, str]]:
        """Imports of product modules and where they are: in functions, for type checkers, in texts of programs too."""
        for node in self._nodes:
            yield from ((node, module) for module in _product_modules(node))

    def inner_imports(self, seams: Seams) -> Iterator[Breach]:
        """Imports of product modules that are not seams."""
        for node, module in self.product_imports():
            if not seams.allow(module):
                yield self._breach(node, f"imports the inner module {module}")
        for node in self._nodes:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    if not seams.allow_name(node.module, alias.name, self.path):
                        yield self._breach(node, f"imports {alias.name}, which is for other files")

    def inner_attributes(self) -> Iterator[Breach]:
        """Attributes that lead from a seam to inner components, except names that this file defines itself.

        A method of the same name that is called, such as `runtime.graph()`, is no such attribute.
        """
        inner = INNER - self._own
        called = {id(node.func) for node in self._nodes if isinstance(node, ast.Call)}
        for node in self._nodes:
            if not isinstance(node, ast.Attribute):
                continue
            owner = node.value
            is_bare = node.attr in INNER and id(node) not in called and _is_component(owner)
            # Of a component, the attribute itself is the breach.
            is_passed = isinstance(owner, ast.Attribute) and owner.attr in inner and not _is_component(owner.value)
            if is_bare or is_passed:
                yield self._breach(node, f"reaches an inner component by {ast.unparse(node)}")

    def private_uses(self) -> Iterator[Breach]:
        """Private attributes and private imports, except names that this file defines itself."""
        for node in self._nodes:
            if isinstance(node, ast.Attribute) and self._is_private(node.attr) and not _is_self(node.value):
                yield self._breach(node, f"uses the private attribute {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom) and _is_product(node.module):
                for alias in node.names:
                    if self._is_private(alias.name):
                        yield self._breach(node, f"imports the private name {alias.name}")
            elif isinstance(node, ast.Call) and _called_name(node) in _BY_NAME and len(node.args) > 1:
                name = node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str) and self._is_private(name.value):
                    yield self._breach(node, f"uses the private attribute {name.value!r} by its name")

    def replaced_attributes(self) -> Iterator[Breach]:
        """Attributes of product objects that are replaced: by a fixture, a mock, `__setattr__`, or plain assignment.

        A callback `on_...` is for the owner of a component to assign.
        """
        for node in self._nodes:
            if isinstance(node, ast.Call) and self._is_replacing(node) and node.args:
                target = node.args[0]
                if self._may_be_product(target):
                    yield self._breach(node, f"replaces an attribute of {ast.unparse(target)}")
            for target in _assigned(node):
                if isinstance(target, ast.Attribute) and (
                    self._is_imported_product(target.value) or self._is_of_product(target)
                ):
                    yield self._breach(node, f"assigns {ast.unparse(target)}")

    def _is_replacing(self, call: ast.Call) -> bool:
        function = call.func
        if isinstance(function, ast.Name):
            return function.id == "patch" and "patch" not in self._own
        if _called_name(call) == "__setattr__":
            return bool(call.args) and not _is_self(call.args[0])
        if not isinstance(function, ast.Attribute) or function.attr not in _REPLACING:
            return False
        owner = ast.unparse(function.value)
        return any(word in owner for word in ("patch", "mock", "monkey", "context"))

    def _may_be_product(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Constant):
            return isinstance(target.value, str) and _is_product(target.value)
        root = _root_name(target)
        return root is None or root not in self._imported or _is_product(self._imported[root])

    def _is_imported_product(self, target: ast.expr) -> bool:
        root = _root_name(target)
        return root is not None and _is_product(self._imported.get(root))

    def _is_of_product(self, target: ast.Attribute) -> bool:
        """Whether classes of the product define that attribute, and none of this file and its kits does.

        A kit that defines an attribute of the same name does not make it its own on an object that has the name of a
        component, such as `client.session`.
        """
        if _is_self(target.value) or target.attr.startswith("on_") or target.attr not in _product_attributes():
            return False
        return _is_component(target.value) or target.attr not in self._attributes_of_kits

    @functools.cached_property
    def _attributes_of_kits(self) -> set[str]:
        """The attributes that classes of this file define, and of the kits that it imports, directly or not."""
        waiting, names = [self._file], set(self.attributes)
        for path in waiting:
            source = self if path == self._file else source_of(path)
            names |= source.attributes
            waiting += [kit for kit in source.kits if kit not in waiting]
        return names

    def _is_private(self, name: str) -> bool:
        return name.startswith("_") and not name.startswith("__") and name not in _NOT_PRIVATE and name not in self._own

    def _breach(self, node: ast.AST, text: str) -> Breach:
        return Breach(self.path, getattr(node, "lineno", 0), text)


def _product_modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if _is_product(alias.name))
    elif isinstance(node, ast.ImportFrom) and node.module is not None and _is_product(node.module):
        for alias in node.names:
            # `from headwater.engine import hub` imports a module, not a name of the package.
            inner = f"{node.module}.{alias.name}"
            yield inner if _is_module(inner) else node.module
    elif isinstance(node, ast.Call) and _called_name(node) == "import_module" and node.args:
        name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and _is_product(name.value):
            yield name.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _IMPORT_IN_TEXT.findall(node.value)


def _is_module(name: str) -> bool:
    path = ROOT.joinpath("src", *name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def _imported_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, node.module or "") for alias in node.names)


def _defined_names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        for target in _assigned(node):
            if isinstance(target, ast.Name):
                yield target.id
            elif isinstance(target, ast.Attribute) and _is_self(target.value):
                yield target.attr


def _attributes(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The names of attributes that the classes of a file define."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from (each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            for each in node.body:
                yield from (target.id for target in _assigned(each) if isinstance(target, ast.Name))
        for target in _assigned(node):
            if isinstance(target, ast.Attribute) and _is_self(target.value):
                yield target.attr


def _assigned(node: ast.AST) -> list[ast.expr]:
    """The targets that a statement binds or deletes, those inside tuples and lists included."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        targets = [node.optional_vars]
    return [each for target in targets for each in _unpacked(target)]


def _unpacked(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Starred):
        return _unpacked(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return [each for element in target.elts for each in _unpacked(element)]
    return [target]


def _called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _is_component(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in COMPONENTS


def _root_name(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


@functools.cache
def _product_private_names() -> frozenset[str]:
    """Private names that some module of the product defines, kits excepted."""
    return frozenset(name for name in _defined_names(_product_nodes()) if name.startswith("_"))


@functools.cache
def _product_attributes() -> frozenset[str]:
    """The attributes that classes of the product define, kits excepted."""
    return frozenset(_attributes(_product_nodes()))


@functools.cache
def _product_nodes() -> list[ast.AST]:
    kits = ROOT / "src" / PRODUCT / "testing"
    paths = [path for path in (ROOT / "src" / PRODUCT).rglob("*.py") if not path.is_relative_to(kits)]
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]


def _is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_kit(module: str) -> bool:
    return f"{module}.".startswith(("tests.", f"{PRODUCT}.testing."))


def _is_product(module: str | None) -> bool:
    return module is not None and (module == PRODUCT or module.startswith(f"{PRODUCT}."))


if __name__ == "__main__":
    sys.exit(main())
