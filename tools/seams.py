"""Check that tests use the product through its seams: `python -m tools.seams`.

Suites that describe behaviour (`SUITES`), and the files under tests/ that they import, use the public API and the
modules listed in tests/seams.txt, and nothing else. They touch no private attribute, and neither replace nor assign an
attribute of a product object. Unit tests may import any module; the lines of those files that use something private are
counted and bounded.

An attribute or a module that is named by a text counts as if it were written out. A text that the check cannot know is
refused where it is sure to name a product's: an import by a computed name, a computed attribute of a component. The
names of private attributes and inner modules are refused as texts wherever they stand, and program texts are checked
as programs. What is left is code that computes such a name from parts.

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

from tools.named_by_text import (
    BY_NAME,
    GETTERS,
    SETTING,
    assigned,
    called_name,
    is_by_name,
    leading_text,
    literals,
    named_by_text,
    programs_in,
    set_by_name,
    text_of,
    texts_of,
)

ROOT = Path(__file__).resolve().parent.parent
SEAMS = ROOT / "tests" / "seams.txt"
SUITES = (
    "tests/scenario",
    "tests/invariants",
    "tests/simulation",
    "tests/contract",
    "tests/aid",
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
_REPLACING = frozenset({"object", "multiple", "dict"})
# An import in the text of a program that a test runs.
_IMPORT_IN_TEXT = re.compile(r"(?:^|[;:])[ \t]*(?:from|import)\s+(headwater\.[\w.]+)", re.MULTILINE)
_MODULE_IN_TEXT = re.compile(r"(headwater(?:\.\w+)+)(?::[\w.]*)?")
_IMPORTING = frozenset({"import_module", "__import__", "importorskip", "find_spec", "resolve_name"})
# Attributes and functions that lead past the names of attributes.
_PAST_NAMES = frozenset({"__globals__", "__closure__", "__self__", "__func__", "__getattribute__", "cell_contents"})
_PAST_NAMES_CALLED = frozenset({"getattr_static", "getmembers_static", "get_referrers", "get_referents"})


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
        private += [*source.private_uses(), *source.replaced_attributes(), *source.uses_by_text()]
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
        tree = ast.parse(text)
        self._nodes = list(ast.walk(tree))
        self._texts = texts_of(tree)
        for program in list(programs_in(self._texts)):
            self._nodes += ast.walk(program)
        self._nodes += [made for node in self._nodes for made in named_by_text(node)]
        self.lines = text.count("\n")
        self._imported = dict(_imported_names(self._nodes))
        self._original = dict(_original_names(self._nodes))
        self._literals = literals(self._nodes)
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
        for node, module in self._modules_by_attributes():
            yield node, module
        for node in self._texts:
            if isinstance(node, ast.Constant) and (found := _MODULE_IN_TEXT.fullmatch(text_of(node))):
                yield node, _longest_module(found[1])

    def _modules_by_attributes(self) -> Iterator[tuple[ast.AST, str]]:
        """Product modules that are reached as attributes of an imported package."""
        for node in self._nodes:
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            root, *steps = _dotted(node) or [""]
            package = self._original.get(root)
            if package is not None and _is_product(package) and _is_module(package):
                module = f"{package}.{'.'.join(steps)}"
                # `headwater.open` is a function of the package, whatever modules there are.
                if _is_module(module) and steps[-1] not in _names_of_package(module.rpartition(".")[0]):
                    yield node, module

    def inner_imports(self, seams: Seams) -> Iterator[Breach]:
        """Imports of product modules that are not seams."""
        found: set[tuple[int, str]] = set()
        for node, module in self.product_imports():
            place = (getattr(node, "lineno", 0), module)
            if not seams.allow(module) and place not in found:
                found.add(place)
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
            elif isinstance(node, ast.MatchClass):
                for name in node.kwd_attrs:
                    if self._is_private(name):
                        yield self._breach(node, f"uses the private attribute {name!r} in a pattern")
            elif isinstance(node, ast.ImportFrom) and _is_product(node.module):
                for alias in node.names:
                    if self._is_private(alias.name):
                        yield self._breach(node, f"imports the private name {alias.name}")
            elif isinstance(node, ast.Call) and called_name(node) in BY_NAME and len(node.args) > 1:
                named = node.args[1]
                if isinstance(named, ast.Constant) and isinstance(named.value, str) and self._is_private(named.value):
                    yield self._breach(node, f"uses the private attribute {named.value!r} by its name")

    def replaced_attributes(self) -> Iterator[Breach]:
        """Attributes of product objects that are replaced: by a fixture, a mock, `__setattr__`, or plain assignment.

        A callback `on_...` is for the owner of a component to assign.
        """
        called = {id(node.func) for node in self._nodes if isinstance(node, ast.Call)}
        for node in self._nodes:
            if isinstance(node, ast.Call) and self._is_replacing(node) and node.args:
                target = node.args[0]
                if self._may_be_product(target):
                    yield self._breach(node, f"replaces an attribute of {ast.unparse(target)}")
            if isinstance(node, ast.Attribute) and node.attr in SETTING and id(node) not in called:
                yield self._breach(node, f"passes on {ast.unparse(node)}")
            for target in [*assigned(node), *set_by_name(node)]:
                if isinstance(target, ast.Attribute) and (
                    self._is_imported_product(target.value) or self._is_of_product(target)
                ):
                    yield self._breach(node, f"assigns {ast.unparse(target)}")

    def uses_by_text(self) -> Iterator[Breach]:
        """Names of private attributes in texts, names that are computed, and ways past all names."""
        by_name = {id(node.args[1]) for node in self._nodes if isinstance(node, ast.Call) and is_by_name(node)}
        for node in self._texts:
            name = text_of(node)
            is_plain = isinstance(node, ast.Constant) and id(node) not in by_name
            if is_plain and len(name) > 1 and name in _product_private_names() and self._is_private(name):
                yield self._breach(node, f"names the private attribute {name!r}")
        for each in self._nodes:
            yield from self._ways_past_names(each)

    def _ways_past_names(self, node: ast.AST) -> Iterator[Breach]:
        if isinstance(node, ast.ImportFrom):
            if node.level and PRODUCT in (node.module or "").split("."):
                yield self._breach(node, f"imports {node.module} relatively")
        elif isinstance(node, ast.Subscript):
            is_module = _dotted(node.value) == ["sys", "modules"] and ast.unparse(node.slice) != "__name__"
            if is_module and self._constants(node.slice) is None:
                yield self._breach(node, f"names a module by {ast.unparse(node.slice)}")
        elif isinstance(node, ast.Attribute):
            is_dictionary = node.attr == "__dict__" and self._is_component_or_product(node.value)
            if is_dictionary or (node.attr in _PAST_NAMES and not _is_self(node.value)):
                yield self._breach(node, f"reaches past names by {ast.unparse(node)}")
        elif isinstance(node, ast.Call):
            if called_name(node) == "vars" and node.args and self._is_component_or_product(node.args[0]):
                yield self._breach(node, f"reaches past names by {ast.unparse(node)}")
            yield from self._computed_names(node)

    def _computed_names(self, call: ast.Call) -> Iterator[Breach]:
        """Calls with the name of a module or an attribute that the check cannot know, or that is private."""
        name = self._original.get(called_name(call), called_name(call)).rpartition(".")[2]
        if name in _PAST_NAMES_CALLED:
            yield self._breach(call, f"reaches past names by {ast.unparse(call.func)}")
        elif name in _IMPORTING and call.args:
            if self._constants(call.args[0]) is None:
                yield self._breach(call, f"imports a module by {ast.unparse(call.args[0])}")
        elif is_by_name(call) or (name in GETTERS and call.args):
            named = call.args[1] if is_by_name(call) else call.args[0]
            if isinstance(named, ast.Constant):
                return
            is_product = name in GETTERS or self._is_component_or_product(call.args[0])
            if leading_text(named).startswith("_") or (is_product and self._constants(named) is None):
                yield self._breach(call, f"uses an attribute by {ast.unparse(named)}")

    def _constants(self, expression: ast.expr) -> list[str] | None:
        """The texts that an expression can be. None: the file does not say."""
        if isinstance(expression, ast.Constant):
            return [expression.value] if isinstance(expression.value, str) else []
        if isinstance(expression, ast.Subscript):
            expression = expression.value
        return self._literals.get(expression.id) if isinstance(expression, ast.Name) else None

    def _is_component_or_product(self, node: ast.expr) -> bool:
        return _is_component(node) or self._is_imported_product(node)

    def _is_replacing(self, call: ast.Call) -> bool:
        function = call.func
        name = called_name(call)
        if name in SETTING:
            # A builtin is one by its name; every other, such as a fixture's, by the name of its method.
            return isinstance(function, ast.Attribute) and not _is_self(function.value)
        if isinstance(function, ast.Name):
            is_patch = self._original.get(name, "").startswith("unittest.mock.patch") or name == "patch"
            return is_patch and name not in self._own
        if name == "patch":
            return True
        if called_name(call) == "__setattr__":
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
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _IMPORT_IN_TEXT.findall(node.value)


def _dotted(node: ast.expr) -> list[str] | None:
    """The names of `a.b.c`."""
    steps: list[str] = []
    while isinstance(node, ast.Attribute):
        steps.append(node.attr)
        node = node.value
    return [node.id, *reversed(steps)] if isinstance(node, ast.Name) else None


def _longest_module(name: str) -> str:
    while not _is_module(name):
        name = name.rpartition(".")[0]
    return name


@functools.cache
def _names_of_package(name: str) -> frozenset[str]:
    """The names that the `__init__` of a package defines, imports or lists: they are no modules of it."""
    path = ROOT.joinpath("src", *name.split("."), "__init__.py")
    if not path.exists():
        return frozenset()
    nodes = list(ast.walk(ast.parse(path.read_text())))
    listed = (each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return frozenset([*_defined_names(nodes), *(local for local, _ in _imported_names(nodes)), *listed])


def _is_module(name: str) -> bool:
    path = ROOT.joinpath("src", *name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def _imported_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, node.module or "") for alias in node.names)


def _original_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Local names of imports, and the full names of what they stand for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (
                (each.asname, each.name) if each.asname else (each.name.partition(".")[0],) * 2 for each in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def _defined_names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        for target in assigned(node):
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
                yield from (target.id for target in assigned(each) if isinstance(target, ast.Name))
        for target in assigned(node):
            if isinstance(target, ast.Attribute) and _is_self(target.value):
                yield target.attr


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
