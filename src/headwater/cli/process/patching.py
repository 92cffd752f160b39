"""A changed source file, taken into the module that runs: new bodies for its functions, new values for its names.

What is patched keeps its identity: classes stay the classes that pieces were made of, functions stay the functions that
somebody imported. What cannot be patched, because the shape of a class changed, is said (`Reshaped`), and nothing is
done. A file that does not compile, or whose new statements raise, changes nothing either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from headwater.pieces.member import Declaration

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Reshaped(Exception):
    """More changed than the bodies of functions and the values of names: start again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One state of a source file."""

    text: str
    tree: ast.Module

    @classmethod
    def read(cls, file: Path) -> Version:
        """The file as it is now. Raises SyntaxError, OSError or UnicodeDecodeError if it is no program."""
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text, str(file))
        compile(tree, str(file), "exec", dont_inherit=True)
        return cls(text=text, tree=tree)


def patch(module: ModuleType, file: Path, old: Version, new: Version) -> None:
    """Make a module that was loaded from one version what another one says; all of it, or nothing."""
    if _shapes(old.tree) != _shapes(new.tree):
        raise Reshaped("the shape of a class changed")
    names = vars(module)
    before = dict(names)
    replaced: list[tuple[FunctionType, FunctionType]] = []
    codes = list(_methods_with_new_code(module, file, old, new))
    kept = [(function, function.__code__) for function, _ in codes]
    try:
        for statement in _new_statements(old.tree, new.tree):
            exec(compile(ast.Module([statement], []), str(file), "exec", dont_inherit=True), names)
        for name in _bound(old.tree) - _bound(new.tree):
            names.pop(name, None)
        _check_uses(new.tree, before, names)
        for name, value in before.items():
            fresh = names.get(name)
            if isinstance(value, FunctionType) and isinstance(fresh, FunctionType) and fresh is not value:
                if value.__code__.co_freevars or fresh.__code__.co_freevars:
                    raise Reshaped(f"{name} is made by another function")
                replaced.append((value, _copy(value)))
                _become(value, fresh)
                names[name] = value
        for function, code in codes:
            function.__code__ = code
    except BaseException:
        for function, copy in replaced:
            _become(function, copy)
        for function, code in kept:
            function.__code__ = code
        names.clear()
        names.update(before)
        raise


# ---- what a class is ---------------------------------------------------------------------------------


class _Hollow(ast.NodeTransformer):
    """Functions without their bodies, and nothing without effect."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return ast.FunctionDef(
            node.name, node.args, [ast.Pass()], node.decorator_list, node.returns, None, lineno=0, col_offset=0
        )

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return ast.AsyncFunctionDef(
            node.name, node.args, [ast.Pass()], node.decorator_list, node.returns, None, lineno=0, col_offset=0
        )

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def _hollow(tree: ast.Module) -> list[ast.ClassDef]:
    copy = ast.parse(ast.unparse(tree))
    return [_Hollow().visit(each) for each in ast.walk(copy) if isinstance(each, ast.ClassDef)]


def _shapes(tree: ast.Module) -> list[str]:
    return [ast.dump(each) for each in _hollow(tree)]


def _check_uses(tree: ast.Module, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A class is made of what names meant when it was made: if one of those means something else, it is another."""
    used = {name for cls in _hollow(tree) for name in _names(cls)}
    for name in sorted(used):
        was, is_now = before.get(name, now), now.get(name, now)
        if was is not is_now and (type(was) is not type(is_now) or was != is_now):
            raise Reshaped(f"{name}, which a class is made of, changed")


def _names(node: ast.AST) -> Iterator[str]:
    """The names that are looked up when a class is made; what a lambda names is looked up when it is called."""
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Name):
            yield each.id
        waiting += [each.args] if isinstance(each, ast.Lambda) else ast.iter_child_nodes(each)


# ---- statements --------------------------------------------------------------------------------------


def _new_statements(old: ast.Module, new: ast.Module) -> Iterator[ast.stmt]:
    there = {ast.dump(each) for each in old.body}
    for each in new.body:
        if not isinstance(each, ast.ClassDef) and ast.dump(each) not in there:
            yield each


def _bound(tree: ast.Module) -> set[str]:
    """The names that the statements of a module bind, as far as they say so."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            found.add(statement.name)
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            found |= {(each.asname or each.name).partition(".")[0] for each in statement.names}
        else:
            stored = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
            found |= {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return found


# ---- functions ---------------------------------------------------------------------------------------


def _methods_with_new_code(
    module: ModuleType, file: Path, old: Version, new: Version
) -> Iterator[tuple[FunctionType, CodeType]]:
    """The functions of a module's classes, each with the code that it is to have."""
    codes = {version.text: _codes(version.tree, file) for version in (old, new)}
    lines = {(code.co_qualname, code.co_firstlineno): place for place, code in codes[old.text].items()}
    found = set()
    for function in _methods(module):
        code = function.__code__
        place = lines.get((code.co_qualname, code.co_firstlineno))
        if place is None or code.co_filename != str(file):
            continue  # A decorator's, or inherited from elsewhere.
        found.add(place)
        fresh = codes[new.text][place]
        if fresh.co_freevars != code.co_freevars:
            raise Reshaped(f"{code.co_qualname} refers to other names around it")
        yield function, fresh
    then, now = (_bodies(version.tree) for version in (old, new))
    for place, body in now.items():
        if place not in found and then.get(place) != body:
            raise Reshaped(f"{place[0]} is wrapped in something that cannot be changed")


def _codes(tree: ast.Module, file: Path) -> dict[tuple[str, int], CodeType]:
    """The code of every function that stands in a class body, by its name and how many of that name came before."""
    found: dict[tuple[str, int], CodeType] = {}
    classes = {each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)}
    waiting = [(compile(tree, str(file), "exec", dont_inherit=True), "")]
    while waiting:
        outer, prefix = waiting.pop()
        for code in outer.co_consts:
            if not isinstance(code, CodeType):
                continue
            if code.co_name in classes and code.co_qualname == f"{prefix}{code.co_name}":
                waiting.append((code, f"{code.co_qualname}."))
            elif prefix and not code.co_name.startswith("<"):
                number = sum(1 for name, _ in found if name == code.co_qualname)
                found[code.co_qualname, number] = code
    return found


def _bodies(tree: ast.Module) -> dict[tuple[str, int], str]:
    """What every function in a class body says, by the same names."""
    found: dict[tuple[str, int], str] = {}
    waiting: list[tuple[ast.ClassDef, str]] = [(each, "") for each in tree.body if isinstance(each, ast.ClassDef)]
    while waiting:
        cls, prefix = waiting.pop()
        for each in cls.body:
            if isinstance(each, ast.ClassDef):
                waiting.append((each, f"{prefix}{cls.name}."))
            elif isinstance(each, _FUNCTIONS):
                name = f"{prefix}{cls.name}.{each.name}"
                found[name, sum(1 for known, _ in found if known == name)] = ast.dump(each)
    return found


def classes_of(module: ModuleType) -> list[type[Any]]:
    """The classes that a module defines, those inside classes included."""
    found: dict[type[Any], None] = {}
    waiting = list(vars(module).values())
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and each.__module__ == module.__name__ and each not in found:
            found[each] = None
            waiting += vars(each).values()
    return list(found)


def _methods(module: ModuleType) -> Iterator[FunctionType]:
    """Every function that a class of the module holds, in whatever it is wrapped."""
    for cls in classes_of(module):
        for held in vars(cls).values():
            yield from _inside(held)


def _inside(held: object) -> Iterator[FunctionType]:
    match held:
        case FunctionType():
            yield held
        case staticmethod() | classmethod():
            yield from _inside(held.__func__)
        case property():
            for each in (held.fget, held.fset, held.fdel):
                yield from _inside(each)
        case Declaration():
            yield from _inside(getattr(held, "fn", None))
        case _:
            return


def _copy(function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
    copy.__annotations__ = function.__annotations__
    copy.__dict__.update(function.__dict__)
    return copy


def _become(function: FunctionType, other: FunctionType) -> None:
    """Make one function what another one is, for everybody who has it."""
    function.__code__, function.__defaults__ = other.__code__, other.__defaults__
    function.__kwdefaults__, function.__doc__ = other.__kwdefaults__, other.__doc__
    function.__annotations__ = other.__annotations__
    function.__dict__.clear()
    function.__dict__.update(other.__dict__)
