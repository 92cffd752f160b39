"""Fingerprints against many changes of real code, and of many values.

The code is that of modules of the standard library, loaded as if the application had written it.
"""

from __future__ import annotations

import ast
import dis
import importlib
import inspect
import random
import types
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter, fingerprint_of
from tests.counts import scaled
from tests.unit.pieces.fingerprint_kit import program

MODULES = ("textwrap", "heapq", "statistics", "colorsys", "shlex", "difflib", "fnmatch", "calendar", "base64", "quopri")


def source_of(module: str) -> str:
    return inspect.getsource(importlib.import_module(module))


def fingerprints(source: str) -> dict[str, Fingerprint]:
    """Of every function at the top of a module with this text."""
    with program(written=source) as modules:
        module = modules["written"]
        made = Fingerprinter()
        return {
            name: made.of(value)
            for name, value in vars(module).items()
            if isinstance(value, types.FunctionType) and value.__globals__ is vars(module)
        }


@pytest.mark.parametrize("module", MODULES)
def test_writing_a_module_anew_without_its_comments_and_layout_changes_no_fingerprint(module: str) -> None:
    before = fingerprints(source_of(module))
    after = fingerprints("\n\n# moved\n" + ast.unparse(ast.parse(source_of(module))))
    assert before
    assert all(each.digest for each in before.values())
    assert before == after


SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}


def changes(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, object]]:
    """What can be changed in a function, as an attribute of a node and its new value."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(function)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            match node.value:
                case bool():
                    yield node, "value", not node.value
                case int() | float():
                    yield node, "value", node.value + 1
                    yield node, "value", complex(node.value)
                case str():
                    yield node, "value", node.value + "x"
                case bytes():
                    yield node, "value", node.value + b"x"
                case _:
                    yield node, "value", 7
        elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS:
            yield node, "op", SWAPS[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.Attribute):
            yield node, "attr", node.attr + "x"


def instructions(code: types.CodeType) -> list[object]:
    """Return the instructions of a code and of the codes in it, with their operands, types of constants included."""
    found: list[object] = []
    for each in dis.get_instructions(code):
        value = each.argval
        found += [each.opname, instructions(value) if isinstance(value, types.CodeType) else repr(value)]
    return found


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("if 0 and a:\n  a = not a or b", "if 0 and a:\n  a = not a and b", True),  # in `textwrap`
        ("a = b'!'[0] <= b", "a = b'!x'[0] <= b", True),  # in `base64`
        ("while 1:\n  a += 1", "while 2:\n  a += 1", True),  # in `quopri`
        ("if 0 and a:\n  a = b", "if 0 or a:\n  a = b", False),
        ("a = 1", "a = True", False),
        ("a = 0.0", "a = -0.0", False),
        ("def f():\n  return a < b", "def f():\n  return a <= b", False),
    ],
)
def test_instructions_tell_which_changes_the_compiler_drops(old: str, new: str, is_same: bool) -> None:
    one, other = [instructions(compile(source, "written", "exec")) for source in (old, new)]
    assert (one == other) is is_same


@pytest.mark.random
@pytest.mark.parametrize("module", MODULES)
def test_every_change_of_a_function_changes_its_fingerprint(module: str) -> None:
    """Where the compiler drops a change, as in code that never runs, the program is the same."""
    tree = ast.parse(source_of(module))
    before = fingerprints(ast.unparse(tree))
    compiled = instructions(compile(ast.unparse(tree), module, "exec"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in before]
    found = [(function, *change) for function in functions for change in changes(function)]
    for function, node, attribute, new in random.Random(module).sample(found, min(len(found), scaled(100))):
        old = getattr(node, attribute)
        setattr(node, attribute, new)
        changed = ast.unparse(tree)
        setattr(node, attribute, old)
        try:
            if instructions(compile(changed, module, "exec")) == compiled:
                continue
            after = fingerprints(changed)[function.name]
        except (TypeError, AttributeError, SyntaxError, NameError):
            continue  # A default or a decorator that cannot be: no program.
        assert after.digest != before[function.name].digest, changed


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, -0.0, 1.0, 2.5]), st.text("ab", max_size=2),
    st.binary(max_size=2),
)  # fmt: skip
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
values = st.recursive(
    hashables,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hashables, inner, max_size=3) | st.tuples(inner),
    max_leaves=6,
)


def strict(value: object) -> object:
    """Equal for what is the same value, to the type and the order."""
    match value:
        case tuple() | list():
            return (type(value), tuple(strict(each) for each in value))
        case frozenset():
            return (frozenset, frozenset(strict(each) for each in value))
        case dict():
            return (dict, tuple((strict(key), strict(each)) for key, each in value.items()))
        case _:
            return (type(value), repr(value))


@given(one=values, other=values)
def test_two_values_have_one_fingerprint_only_if_they_are_strictly_the_same(one: object, other: object) -> None:
    first, second = fingerprint_of(len, extra=(one,)), fingerprint_of(len, extra=(other,))
    assert first.digest
    assert second.digest
    assert (first == second) is (strict(one) == strict(other))
