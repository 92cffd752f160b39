"""Code objects without what a reader may change: line numbers, file names, comments, docstrings.

Owns how the instructions of a code object and of those inside it become bytes, and which names they use and how: a
global and the attributes taken from it at once (`helpers.tax`), an import inside the function, any other name. Never
resolves a name: `functions` does.

Constants are numbered by their first use, so that a docstring, which no instruction loads, leaves no trace. The names
of local variables are kept: renaming one is a change, since `locals()` could show it.
"""

from __future__ import annotations

import dataclasses
import dis
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Final

__all__ = ["INNER_CODE", "CodeParts", "Import", "take_apart"]

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

# What a class body stores about its text and not about what it does.
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
    """What a code object does, with the code inside it."""

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
    # Code inside keeps its place among the constants by a mark; what it does follows in the same order.
    parts.constants += [INNER_CODE if isinstance(constant, CodeType) else constant for constant in constants]
    return [constant for constant in constants if isinstance(constant, CodeType)]


def _about_the_text(code: CodeType, instructions: list[tuple[int, int]]) -> set[int]:
    """Which instructions load what a class body stores about its text, and not about what it does."""
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
    before: list[object] = [None, None]  # what the last two instructions loaded
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
