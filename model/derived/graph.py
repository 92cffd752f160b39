"""The documents of the model, and the functions of its nodes.

Nodes `a`, `b`, `c` and `e` belong to a piece that is always there; `d` belongs to the piece with the record `p`, which
is deleted and made anew. A node and its output document have the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Value = int | None
"""The value of a document; None: there is none."""

Read = Callable[[str], Value]

FAILED: Final = -1
"""The result of a node whose result the engine refused, or that read such a node."""

CELLS: Final = ("x", "y")
RECORD: Final = "p"
NODES: Final[tuple[str, ...]] = ("a", "b", "c", "d", "e")
"""In order of heights: a node reads only nodes before it."""

DOCUMENTS: Final = (*CELLS, RECORD, *NODES)
OF_PIECE: Final = "d"
"""The node of the piece with the record `p`."""

PATCHED: Final = "b"
"""The node whose results are sent as differences where a base is known."""

DISPUTED: Final = "a"
"""The node whose function differs between runtimes, in worlds where one does."""

BELOW_DISPUTED: Final = frozenset("abc")
REFUSED: Final = 1
"""The result of `a` that the engine refuses, in worlds where it refuses one."""

MODULUS: Final = 5


class UpstreamFailedError(Exception):
    """A node read the output of a failed node."""


def result_of(node: str, *, differs: bool, read: Read) -> Value:
    """Call the function of a node; FAILED if it reads a failed one."""
    try:
        return _result(node, differs, read)
    except UpstreamFailedError:
        return FAILED


def _result(node: str, differs: bool, read: Read) -> Value:
    def number(document: str) -> int:
        value = read(document)
        if value == FAILED:
            raise UpstreamFailedError
        return value or 0

    match node:
        case "a":
            return (number("x") + differs) % 3
        case "b":
            return number("a") + number("y")
        case "c":
            return number("y") if number("a") == 1 else number("x")
        case "d":
            return number("x") + 1
        case _:
            return 10 * number("d") + number("y")
