"""Functions: their code, and the objects that the code refers to.

`take_apart` turns a code object into bytes without line numbers, file names, comments and docstrings. Constants are
numbered by their first use, so that a docstring, which no instruction loads, leaves no trace. The names of local
variables are kept: renaming one is a change, since `locals()` could show it.

`function_form` resolves the names in the code: closures, defaults, the types in annotations, globals, imports inside
the function. A name that the code takes from one of the application's modules at once (`helpers.tax`) is that object.
A module that is passed on (`f(helpers)`) is a reference, of which every name counts that any code of the closure uses.
The objects themselves are described elsewhere (`fingerprint.Forms`).
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import dis
import importlib
import importlib.util
import operator
import sys
import typing
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final

from headwater.pieces.fingerprints.form import Form, FormWriter, Unfingerprintable, atom
from headwater.pieces.fingerprints.origin import CodeOrigin, Origins, canonical_module
from headwater.pieces.fingerprints.values import FormOf

__all__ = [
    "CODE",
    "CONSTANT",
    "DEFAULT",
    "INNER_CODE",
    "TYPE",
    "CodeParts",
    "Import",
    "annotations_form",
    "function_form",
    "take_apart",
]


_GLOBAL: Final = frozenset(
    dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS") if name in dis.opmap
)
_ATTRIBUTE: Final = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap)
_CONSTANT: Final = frozenset(dis.hasconst)
_LOAD_NAME: Final = dis.opmap["LOAD_NAME"]
_STORE_NAME: Final = dis.opmap["STORE_NAME"]
_IMPORT_NAME: Final = dis.opmap["IMPORT_NAME"]
_EXTENDED_ARG: Final = dis.EXTENDED_ARG
_CACHE: Final = 0

# Some instructions keep a flag in the lowest bit of the argument that numbers their name.
_FLAG_BITS: Final = {dis.opmap["LOAD_GLOBAL"]: 1, dis.opmap["LOAD_ATTR"]: 1 if sys.version_info >= (3, 12) else 0}

# Names that a class body stores about its text and not about its behaviour.
_ABOUT_THE_TEXT: Final = frozenset({"__doc__", "__firstlineno__", "__static_attributes__"})


_HAS_DOCSTRING: Final = 0x4000000  # a flag of Python 3.14

INNER_CODE: Final = "<code>"


@dataclasses.dataclass(frozen=True, slots=True)
class Import:
    """An import inside a function."""

    module: str
    level: int
    names: tuple[str, ...]


@dataclasses.dataclass(slots=True)
class CodeParts:
    """The behaviour of a code object, with the code inside it."""

    shape: list[bytes] = dataclasses.field(default_factory=list)
    constants: list[object] = dataclasses.field(default_factory=list)
    chains: dict[tuple[str, ...], None] = dataclasses.field(default_factory=dict)  # in order of first use
    imports: dict[Import, None] = dataclasses.field(default_factory=dict)
    names: set[str] = dataclasses.field(default_factory=set)
    own_names: set[str] = dataclasses.field(default_factory=set)  # of a class body; a global may have the same name


def take_apart(code: CodeType) -> CodeParts:
    """The parts of `code` and of all code inside it. Nesting is bounded by Python's parser."""
    parts = CodeParts()
    waiting = [code]
    while waiting:
        inner = _take(waiting.pop(), parts)
        waiting.extend(reversed(inner))
    return parts


def _take(code: CodeType, parts: CodeParts) -> list[CodeType]:
    header = (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & ~_HAS_DOCSTRING,
        code.co_varnames,
        code.co_cellvars,
        code.co_freevars,
        code.co_names,
    )
    instructions = list(_instructions(code.co_code))
    order: dict[int, int] = {}  # which constant is which, by first use
    ignored = _about_the_text(code, instructions)
    shape = bytearray()
    for at, (opcode, argument) in enumerate(instructions):
        shown = argument
        if opcode in _CONSTANT:
            shown = -1 if at in ignored else order.setdefault(argument, len(order))
        shape += b"%d %d," % (opcode, shown)
    parts.shape += [repr(header).encode("utf-8", "surrogatepass"), bytes(shape), code.co_exceptiontable]
    parts.names.update(code.co_names)
    _take_names(code, instructions, parts)
    # The first is the docstring's place. Others that no instruction seems to load count nevertheless: an instruction
    # that a later Python adds must not hide one.
    skipped = {0} | {instructions[at][1] for at in ignored}
    unused = [number for number in range(len(code.co_consts)) if number not in order and number not in skipped]
    constants = [code.co_consts[number] for number in (*order, *unused)]
    # Code inside keeps its place among the constants by a mark; its parts follow in the same order.
    parts.constants += [INNER_CODE if isinstance(constant, CodeType) else constant for constant in constants]
    return [constant for constant in constants if isinstance(constant, CodeType)]


def _about_the_text(code: CodeType, instructions: list[tuple[int, int]]) -> set[int]:
    """Return the instructions that load facts about the text of a class body."""
    return {
        at - 1
        for at, (opcode, argument) in enumerate(instructions)
        if opcode == _STORE_NAME
        and at
        and code.co_names[argument] in _ABOUT_THE_TEXT
        and instructions[at - 1][0] in _CONSTANT
    }


def _take_names(code: CodeType, instructions: list[tuple[int, int]], parts: CodeParts) -> None:
    stored = {code.co_names[argument] for opcode, argument in instructions if opcode == _STORE_NAME}
    chain: tuple[str, ...] = ()
    before: list[object] = [None, None]  # loaded by the last two instructions
    for opcode, argument in instructions:
        if opcode in _ATTRIBUTE and chain:
            chain = (*chain, code.co_names[argument >> _FLAG_BITS.get(opcode, 0)])
            continue
        if chain:
            parts.chains[chain] = None
        chain = ()
        if opcode in _GLOBAL:
            name = code.co_names[argument >> _FLAG_BITS.get(opcode, 0)]
            if opcode != _LOAD_NAME or name != "__name__":  # A class body reads that one to know its module.
                chain = (name,)
            if opcode == _LOAD_NAME and (name in stored or name == "__qualname__"):
                parts.own_names.add(name)
        elif opcode == _IMPORT_NAME:
            level, names = before
            wanted = tuple(str(name) for name in names) if isinstance(names, tuple) else ()
            parts.imports[Import(code.co_names[argument], level if isinstance(level, int) else 0, wanted)] = None
        before = [before[1], code.co_consts[argument] if opcode in _CONSTANT else argument]
    if chain:
        parts.chains[chain] = None


def _instructions(code: bytes) -> Iterator[tuple[int, int]]:
    """Opcode and whole argument of each instruction. The adaptive interpreter's notes are no part of the code."""
    high = 0
    for at in range(0, len(code), 2):
        opcode = code[at]
        argument = high | code[at + 1]
        if opcode == _EXTENDED_ARG:
            high = argument << 8
            continue
        high = 0
        if opcode != _CACHE:
            yield opcode, argument


# The parts of a function.
CODE: Final = "code"
CONSTANT: Final = "constant"
DEFAULT: Final = "default"
TYPE: Final = "type"

# Facts of a module about itself. They differ between machines, and between a script and the same file imported.
_ABOUT_THE_MODULE: Final = frozenset(
    {"__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__package__", "__path__", "__spec__"}
)
# With these, the names that the code uses are not all in the code.
_LOOKS_UP: Final = (getattr, vars, dir, operator.attrgetter, operator.methodcaller)
_RUNS_ANYTHING: Final = (eval, exec, compile, globals, __import__, importlib.import_module)


def function_form(function: FunctionType, origins: Origins, form_of: FormOf) -> Form:
    """Return the form of a function by itself. Library code counts by its version, and by its closure."""
    writer = FormWriter("function")
    module = function.__globals__.get("__name__")
    version = origins.stands_for(function)
    if version is None:
        _put_code(writer, function, take_apart(function.__code__), origins, form_of)
        writer.of_kind(DEFAULT)
        _put(writer, function.__defaults__, " -> defaults", form_of)
        _put(writer, function.__kwdefaults__, " -> defaults", form_of)
        writer.of_kind(TYPE)
        writer.put(annotations_form(function, function.__globals__, form_of), "")
        writer.of_kind(CONSTANT)
        _put(writer, sorted(vars(function).items()), " -> attributes", form_of)
    else:
        writer.of_kind(CODE)
        writer.put(atom("version", f"{version} {module}.{function.__qualname__}", version))
        writer.of_kind(CONSTANT)
    registry = getattr(function, "registry", None)
    if module == "functools" and registry is not None:  # singledispatch: the rest of its closure is a cache
        _put(writer, list(registry.items()), " -> registry", form_of)
        return writer.form()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        writer.text(name)
        _put(writer, _content(cell, name), f" -> {name}", form_of)
    return writer.form()


def _content(cell: CellType, name: str) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        raise Unfingerprintable(
            "is a variable of the function around it that has no value yet", f" -> {name}"
        ) from None


def _put(writer: FormWriter, value: object, step: str, form_of: FormOf) -> None:
    try:
        writer.put(form_of(value, 0), step)
    except Unfingerprintable as problem:
        problem.steps.append(step)
        raise


def _put_code(writer: FormWriter, function: FunctionType, parts: CodeParts, origins: Origins, form_of: FormOf) -> None:
    writer.of_kind(CODE)
    for piece in parts.shape:
        writer.bytes(piece)
    for constant in parts.constants:
        writer.put(form_of(constant, 0))
    writer.of_kind(CONSTANT)
    is_dynamic = "__dict__" in parts.names
    for chain in parts.chains:
        if chain[0] in _ABOUT_THE_MODULE:
            continue
        if chain[0] == "__name__":
            writer.text(canonical_module(str(function.__globals__.get("__name__"))))
            continue
        found, used = _resolve(chain, function.__globals__, parts.own_names, origins)
        if found is _NOTHING:
            continue
        step = f" -> {'.'.join(used)}"
        if any(found is each for each in _RUNS_ANYTHING):
            raise Unfingerprintable("reaches code that only shows when it runs", step)
        is_dynamic |= any(found is each for each in _LOOKS_UP)
        writer.of_kind(CODE)
        writer.text(".".join(used))
        writer.of_kind(CONSTANT)
        _put(writer, found, step, form_of)
    for wanted in parts.imports:
        _put_import(writer, wanted, function, origins, form_of)
    writer.uses(parts.names, is_dynamic=is_dynamic)


_NOTHING: Final = object()


def _resolve(
    chain: tuple[str, ...], names: dict[str, Any], own_names: set[str], origins: Origins
) -> tuple[object, tuple[str, ...]]:
    """The object that the chain leads to through the application's modules, and the names that led there."""
    first = chain[0]
    if first in names:
        found = names[first]
    elif hasattr(builtins, first):
        found = getattr(builtins, first)
    elif first in own_names:
        return _NOTHING, ()
    else:
        raise Unfingerprintable("is a name that is not defined", f" -> {first}")
    for at, name in enumerate(chain[1:], 1):
        if not isinstance(found, ModuleType):
            return found, chain[:at]
        if origins.stands_for(found) is not None:
            # Its version stands for its contents, and the code says which name it takes. Some change the rules.
            taken = vars(found).get(name)
            is_special = any(taken is each for each in (*_LOOKS_UP, *_RUNS_ANYTHING))
            return (taken, chain[: at + 1]) if is_special else (found, chain[:at])
        found = _of_module(found, name, chain[: at + 1])
    return found, chain


def _of_module(module: ModuleType, name: str, way: tuple[str, ...]) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise Unfingerprintable("is a name that is not defined", f" -> {'.'.join(way)}") from None


def _put_import(writer: FormWriter, wanted: Import, function: FunctionType, origins: Origins, form_of: FormOf) -> None:
    name = wanted.module
    step = f" -> import {name}"
    if wanted.level:
        package = function.__globals__.get("__package__") or ""
        try:
            name = importlib.util.resolve_name("." * wanted.level + wanted.module, package)
        except ImportError:
            raise Unfingerprintable("is imported from a package that is not known", step) from None
    if origins.of(name) is not CodeOrigin.APPLICATION:
        writer.put(atom("import", f"{origins.version(name)} {name}", origins.version(name)))
        return
    module = sys.modules.get(name)
    if module is None:
        raise Unfingerprintable("is imported only while the code runs: import it where the module begins", step)
    if not wanted.names:
        _put(writer, sys.modules[name.partition(".")[0]], step, form_of)
        _put(writer, module, step, form_of)
    for each in wanted.names:
        found = sys.modules.get(f"{name}.{each}") if not hasattr(module, each) else getattr(module, each)
        if found is None and not hasattr(module, each):
            raise Unfingerprintable("is a name that is not defined", f" -> {name}.{each}")
        writer.of_kind(CODE)
        writer.text(each)
        writer.of_kind(CONSTANT)
        _put(writer, found, f" -> {name}.{each}", form_of)


def annotations_form(thing: Any, names: dict[str, Any], form_of: FormOf, local: dict[str, Any] | None = None) -> Form:
    """The types in the annotations of a function or class. One that cannot be resolved counts by its text."""
    writer = FormWriter("annotations")
    try:
        written: dict[str, Any] = getattr(thing, "__annotations__", {})
    except NameError:  # Python 3.14 resolves them when they are asked for, and all or none.
        annotate = getattr(thing, "__annotate__", None)
        writer.put(Form(b"lazy", ((" -> annotations", annotate),)))
        return writer.form()
    if not written:
        return writer.form()
    try:
        types = typing.get_type_hints(thing, names, local, include_extras=True)
    except Exception:  # A name that only a type checker sees, or any other text: each for itself, then.
        types = {}
        for name, annotation in written.items():
            with contextlib.suppress(Exception):
                alone = SimpleNamespace(__annotations__={name: annotation})
                types |= typing.get_type_hints(alone, names, local, include_extras=True)
    for name, annotation in written.items():
        writer.text(name)
        _put(writer, types.get(name, annotation), f" -> {name}", form_of)
    return writer.form()
