"""Names of attributes and modules in the texts of a Python file: for `tools.seams`.

Finds program texts, calls such as `getattr` that name an attribute by a text, and the texts that a variable can be.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

PRODUCT_IN_TEXT = re.compile(r"\b(?:from|import)\s+headwater\b")
GETTERS = frozenset({"attrgetter", "methodcaller"})
SETTING = frozenset({"setattr", "delattr"})
BY_NAME = frozenset({"getattr", "setattr", "delattr", "hasattr", "object"})


def texts_of(tree: ast.AST) -> list[ast.Constant | ast.JoinedStr]:
    """The texts of a file, but for docstrings, the parts of other texts, and `__slots__`."""
    found: list[ast.Constant | ast.JoinedStr] = []
    waiting = [tree]
    for node in waiting:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            found.append(node)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) and not _is_slots(node):
            waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.JoinedStr):
            waiting += [each.value for each in node.values if isinstance(each, ast.FormattedValue)]
    return found


def _is_slots(node: ast.AST) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__slots__" for target in assigned(node))


def programs_in(texts: Iterable[ast.Constant | ast.JoinedStr]) -> Iterator[ast.AST]:
    """The programs and expressions in texts, as far as they may use the product."""
    for node in texts:
        text = text_of(node)
        if not PRODUCT_IN_TEXT.search(text) and "._" not in text:
            continue
        try:
            program = ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError):
            continue  # prose, or a template
        for each in ast.walk(program):
            if hasattr(each, "lineno"):
                each.lineno = node.lineno
        yield program


def text_of(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in node.values)


def named_by_text(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a call names by a constant text, as if they were written out; private ones excepted."""
    if not isinstance(node, ast.Call) or not node.args:
        return
    is_getter = called_name(node) in GETTERS
    named = node.args[0] if is_getter else node.args[1] if is_by_name(node) else None
    if not isinstance(named, ast.Constant) or not isinstance(named.value, str):
        return
    owner: ast.expr = ast.Name("it", ast.Load()) if is_getter else node.args[0]
    for name in named.value.split("."):
        if not is_getter and name.startswith("_"):
            return  # Found as a private attribute that is used by its name.
        owner = ast.copy_location(ast.Attribute(owner, name, ast.Load()), node)
        yield owner


def set_by_name(node: ast.AST) -> list[ast.expr]:
    """The attribute that the builtin `setattr` or `delattr` sets."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in SETTING
        and len(node.args) > 1
    ):
        name = node.args[1]
        attribute = str(name.value) if isinstance(name, ast.Constant) else "computed"
        return [ast.copy_location(ast.Attribute(node.args[0], attribute, ast.Store()), node)]
    return []


def is_by_name(call: ast.Call) -> bool:
    return called_name(call) in BY_NAME and len(call.args) > 1


def leading_text(expression: ast.expr) -> str:
    """What a computed text begins with, as far as it is written there."""
    while isinstance(expression, ast.BinOp):
        expression = expression.left
    if isinstance(expression, ast.JoinedStr) and expression.values:
        expression = expression.values[0]
    return str(expression.value) if isinstance(expression, ast.Constant) else ""


def literals(nodes: Sequence[ast.AST]) -> dict[str, list[str]]:
    """The texts in the literals that are assigned to a name, for names to which nothing else is assigned."""
    found: dict[str, list[str]] = {}
    unknown: set[str] = set()
    rows: dict[str, str] = {}  # a variable of a loop, and the name that it goes over
    for node in nodes:
        for target in assigned(node):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if not isinstance(target, ast.Name):
                continue
            if isinstance(node, ast.For | ast.comprehension):
                value = node.iter
                if isinstance(value, ast.Name):
                    if rows.setdefault(target.id, value.id) == value.id:
                        continue
                    value = None
            if value is None or not _is_literal(value):
                unknown.add(target.id)
            else:
                texts = [each.value for each in ast.walk(value) if isinstance(each, ast.Constant)]
                found.setdefault(target.id, []).extend(text for text in texts if isinstance(text, str))
        if isinstance(node, ast.arg):
            unknown.add(node.arg)
    for name, over in rows.items():
        if over in unknown or over not in found:
            unknown.add(name)
        else:
            found.setdefault(name, []).extend(found[over])
    return {name: texts for name, texts in found.items() if name not in unknown}


def _is_literal(value: ast.expr) -> bool:
    parts = (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.expr_context)
    return all(isinstance(each, parts) for each in ast.walk(value))


def assigned(node: ast.AST) -> list[ast.expr]:
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


def called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""
