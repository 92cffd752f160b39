"""A class that cannot be is refused where it is made, by an AuthoringError that shows the line to write."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headwater.errors import AuthoringError
from tests.unit.pieces.declaring import module


@dataclass(frozen=True)
class Wrong:
    """A mistake, who is named and what is to be written instead."""

    body: str
    says: tuple[str, ...]
    before: str = ""
    head: str = "class Cart(Piece):"


def _wrong(body: str, *says: str, before: str = "", head: str = "class Cart(Piece):") -> Wrong:
    return Wrong(body, says, before, head)


CASES = {
    # ---- cells
    "a list in a cell": _wrong("lines: Cell[list[int]] = cell(default=[])", "Cart.lines", "tuple[int, ...]"),
    "a dict in a cell": _wrong("lines: Cell[dict[str, int]] = cell(default={})", "Cart.lines", "Mapping[str, int]"),
    "a set in a cell": _wrong("lines: Cell[set[int]] = cell(default=set())", "Cart.lines", "frozenset[int]"),
    "a list inside a tuple": _wrong("lines: Cell[tuple[list[int], ...]] = cell(default=())", "Cart.lines", "tuple"),
    "a mutable dataclass": _wrong(
        "line: Cell[Loose | None] = cell(default=None)",
        "Cart.line",
        "frozen",
        before="@dataclass\nclass Loose:\n    id: str = ''",
    ),
    "an unknown class in a cell": _wrong(
        "line: Cell[Odd | None] = cell(default=None)", "Cart.line", before="class Odd: pass"
    ),
    "a default of another type": _wrong("n: Cell[int] = cell(default='0')", "Cart.n", "'0'", "n: Cell[int] = cell("),
    "a default of a tuple that is a list": _wrong("n: Cell[tuple[int, ...]] = cell(default=[])", "Cart.n", "tuple"),
    "a default with a wrong element": _wrong("n: Cell[tuple[int, ...]] = cell(default=('a',))", "Cart.n", "'a'"),
    "a default of None where that is no value": _wrong("n: Cell[int] = cell(default=None)", "Cart.n", "None"),
    "a cell without an annotation": _wrong("n = cell(default=0)", "Cart.n", "n: Cell[int] = cell(default=0)"),
    "a cell annotated as its value": _wrong("n: int = cell(default=0)", "Cart.n", "n: Cell[int] = cell(default=0)"),
    "a cell of nothing": _wrong("n: Cell = cell(default=0)", "Cart.n", "n: Cell[int] = cell(default=0)"),
    "an unknown scope": _wrong(
        "n: Cell[int] = cell(default=0, scope='team')", "'team'", "'space', 'user' or 'session'"
    ),
    "a former name that is none": _wrong("n: Cell[int] = cell(default=0, was='a b')", "'a b'", "was="),
    # ---- names
    "a bare annotation": _wrong("n: Cell[int]", "Cart.n", "n: Cell[int] = given()", "= cell(default=...)"),
    "a bare input": _wrong("n: Input[int]", "Cart.n", "n: Input[int] = given()"),
    "a bare handler": _wrong("done: Handler[[int], None]", "Cart.done", "= given()"),
    "ctx as a cell": _wrong("ctx: Cell[int] = cell(default=0)", "Cart.ctx", "something else"),
    "ctx as a method": _wrong("def ctx(self) -> int: return 1", "Cart.ctx", "something else"),
    "ctx as a bare annotation": _wrong("ctx: Input[int]", "Cart.ctx"),
    "two handlers on one stream": _wrong(
        "@handler\ndef add(self) -> None: ...\n@handler(was='add')\ndef put(self) -> None: ...",
        "two handlers on one stream",
        "'add'",
        "was=",
    ),
    "two members in one place": _wrong(
        "a: Cell[int] = cell(default=0)\nb: Cell[int] = cell(default=0, was='a')", "Cart.a", ".b", "was="
    ),
    "a member under two names": _wrong("a: Cell[int] = cell(default=0)\nb = a", "Cart.b", "one name"),
    "a node that a subclass overrides": _wrong(
        "@computed\ndef total(self) -> int: return 2",
        "Cart.total",
        "overrides 'total' of Base",
        before="class Base(Piece):\n    @computed\n    def total(self) -> int: return 1",
        head="class Cart(Base):",
    ),
    "a node that a plain method overrides": _wrong(
        "def total(self) -> int: return 2",
        "overrides 'total' of Base",
        before="class Base(Piece):\n    @computed\n    def total(self) -> int: return 1",
        head="class Cart(Base):",
    ),
    "a cell that a subclass declares again": _wrong(
        "n: Cell[int] = cell(default=1)",
        "overrides 'n' of Base",
        before="class Base(Piece):\n    n: Cell[int] = cell(default=0)",
        head="class Cart(Base):",
    ),
    "two bases with the same member": _wrong(
        "pass",
        "'n'",
        "One",
        "Two",
        before="class One(Piece):\n    n: Cell[int] = cell(default=0)\n"
        "class Two(Piece):\n    n: Cell[int] = cell(default=1)",
        head="class Cart(One, Two):",
    ),
    "a constructor of its own": _wrong("def __init__(self) -> None: ...", "Cart.__init__", "given()"),
    "a class name that is empty": _wrong("pass", "name=''", "name='shop.Cart'", head="class Cart(Piece, name=''):"),
    "a former class name that is no text": _wrong("pass", "was=3", head="class Cart(Piece, was=3):"),
    "a mixin with members": _wrong(
        "@computed\ndef twice(self) -> int: return 2",
        "Mixin.twice",
        "class Mixin(Piece)",
        before="class Mixin:\n    @computed\n    def twice(self) -> int: return 2",
        head="class Cart(Mixin, Piece):",
    ),
    # ---- inputs
    "an input without an annotation": _wrong("n = given()", "Cart.n", "n: Input[int] = given()"),
    "an input annotated as its value": _wrong("n: int = given()", "Cart.n", "n: Input[int] = given()"),
    # ---- functions
    "an async computed": _wrong("@computed\nasync def n(self) -> int: return 1", "@computed n", "@resource"),
    "an async effect": _wrong("@effect\nasync def n(self) -> None: ...", "@effect n", "@resource"),
    "an async handler": _wrong("@handler\nasync def n(self) -> None: ...", "@handler n", "@resource"),
    "an async each": _wrong(
        "m: Cell[Mapping[str, int]] = cell(default={})\n@each(m)\nasync def n(self, x: Cell[int]) -> int: return 1",
        "@each n",
    ),
    "a computed that yields": _wrong("@computed\ndef n(self) -> int:\n    yield 1", "@computed n", "tuple"),
    "a handler that yields asynchronously": _wrong("@handler\nasync def n(self) -> None:\n    yield 1", "@handler n"),
    "a plain resource": _wrong(
        "m: Cell[int] = cell(default=0)\n@resource(m)\ndef n(self, m: int) -> int: return 1",
        "@resource n",
        "async def n(...)",
    ),
    "a computed on no function": _wrong("n = computed(3)", "@computed", "method"),
    "a computed that takes an argument": _wrong("@computed\ndef n(self, x: int) -> int: return x", "Cart.n", "self"),
    "an effect that takes an argument": _wrong("@effect\ndef n(self, x: int) -> None: ...", "Cart.n", "def n(self)"),
    "a computed without self": _wrong("@computed\ndef n() -> int: return 1", "Cart.n", "def n(self"),
    "a computed that does not say what it returns": _wrong(
        "@computed\ndef n(self): return 1", "Cart.n", "def n(self) -> int"
    ),
    "a computed that returns a list": _wrong("@computed\ndef n(self) -> list[int]: return []", "Cart.n", "tuple[int"),
    "a handler that does not say what it returns": _wrong("@handler\ndef n(self): ...", "Cart.n", "-> None"),
    "a handler argument without a type": _wrong("@handler\ndef n(self, x) -> None: ...", "'x'", "def n(self, x: str)"),
    "a handler that takes a list": _wrong("@handler\ndef n(self, x: list[int]) -> None: ...", "Cart.n", "tuple[int"),
    "a handler with *args": _wrong("@handler\ndef n(self, *x: int) -> None: ...", "Cart.n", "*x"),
    "a handler with **kwargs": _wrong("@handler\ndef n(self, **x: int) -> None: ...", "Cart.n", "*x"),
    "a default argument that does not fit": _wrong("@handler\ndef n(self, x: int = 'a') -> None: ...", "Cart.n", "'a'"),
    "unknown rights": _wrong("@handler(allow='all')\ndef n(self) -> None: ...", "allow='all'", "'writer'"),
    "retries below zero": _wrong("@handler(retries=-1)\ndef n(self) -> None: ...", "retries=-1"),
    "a period of nothing": _wrong("@handler(every_ms=0)\ndef n(self) -> None: ...", "every_ms=0"),
    "a period with arguments": _wrong("@handler(every_ms=5)\ndef n(self, x: int) -> None: ...", "n takes arguments"),
    "coalescing in an unknown way": _wrong("@handler(coalesce='all')\ndef n(self) -> None: ...", "'all'", "'last'"),
    "a debounce below zero": _wrong("@effect(debounce_ms=-1)\ndef n(self) -> None: ...", "debounce_ms=-1"),
    "side writes of a computed": _wrong(
        "@computed\ndef a(self) -> int: return 1\n@computed(writes=(a,))\ndef n(self) -> int: return 1",
        "writes=",
        "cells only",
    ),
    "a materializer without an envelope": _wrong(
        "@materializer(envelope=())\ndef n(self) -> None: ...", "@materializer n", "envelope=(cell, ...)"
    ),
    # ---- resources, topics and reactions
    "a resource of a topic": _wrong(
        "t: Topic[int] = topic()\n@resource(t)\nasync def n(self, x: int) -> int: return 1", "@resource n"
    ),
    "a resource that takes nothing": _wrong(
        "m: Cell[int] = cell(default=0)\n@resource(m)\nasync def n(self) -> int: return 1", "Cart.n", "async def n(self"
    ),
    "a resource with a limit of nothing": _wrong(
        "m: Cell[int] = cell(default=0)\n@resource(m, limit=0)\nasync def n(self, x: int) -> int: return 1", "limit=0"
    ),
    "a resource of a narrower cell": _wrong(
        "m: Cell[int] = cell(default=0, scope='user')\n@resource(m)\nasync def n(self, x: int) -> int: return 1",
        "Cart.n",
        "scope='user'",
    ),
    "a topic without an annotation": _wrong("t = topic()", "Cart.t", "t: Topic[Order] = topic()"),
    "a reaction to a cell": _wrong(
        "m: Cell[int] = cell(default=0)\n@reaction(on=m)\nasync def n(self, x: int) -> None: ...",
        "@reaction n",
        "topic",
    ),
    "a reaction then a computed": _wrong(
        "t: Topic[int] = topic()\n@computed\ndef c(self) -> int: return 1\n"
        "@reaction(on=t, then=c)\nasync def n(self, x: int) -> int: return 1",
        "@reaction n",
        "handler",
    ),
    "a reaction that takes nothing": _wrong(
        "t: Topic[int] = topic()\n@reaction(on=t)\nasync def n(self) -> None: ...", "Cart.n", "Delivery"
    ),
    # ---- graphs that change shape
    "an each over a tuple without a key": _wrong(
        "rows: Cell[tuple[Line, ...]] = cell(default=())\n@each(rows)\ndef n(self, row: Cell[Line]) -> int: return 1",
        "Cart.n",
        "@each(rows, key=lambda row: row.id)",
    ),
    "an each over a Mapping with a key": _wrong(
        "rows: Cell[Mapping[str, Line]] = cell(default={})\n"
        "@each(rows, key=lambda row: row.id)\ndef n(self, row: Cell[Line]) -> int: return 1",
        "Cart.n",
        "@each(rows)",
    ),
    "an each over a number": _wrong(
        "rows: Cell[int] = cell(default=0)\n@each(rows)\ndef n(self, row: Cell[int]) -> int: return 1",
        "Cart.n",
        "Mapping[str, Row]",
    ),
    "an each with key and order": _wrong(
        "rows: Cell[tuple[Line, ...]] = cell(default=())\n"
        "@each(rows, key=lambda r: r.id, order=lambda r: r.id)\ndef n(self, row: Cell[Line]) -> int: return 1",
        "@each n",
    ),
    "an argument without a name": _wrong(
        "@handler\ndef n(self, a: int, /, b: int) -> None: ...", "Cart.n", "'a'", "without the /"
    ),
    "a list on the class": _wrong("seen = []", "Cart.seen", "Cell[...] = cell(default=...)"),
    "a dict on the class": _wrong("_seen = {}", "Cart._seen", "outside the class"),
    "an each over a topic": _wrong(
        "t: Topic[int] = topic()\n@each(t)\ndef n(self, row: Cell[int]) -> int: return 1", "@each n"
    ),
    "an each over a cell of one user": _wrong(
        "rows: Cell[Mapping[str, Line]] = cell(default={}, scope='user')\n"
        "@each(rows)\ndef n(self, row: Cell[Line]) -> int: return 1",
        "Cart.n",
        "one user",
    ),
    "an each whose method takes nothing": _wrong(
        "rows: Cell[Mapping[str, Line]] = cell(default={})\n@each(rows)\ndef n(self) -> int: return 1",
        "Cart.n",
        "def n(self, row: Cell[Row])",
    ),
    "an each that does not say what it makes": _wrong(
        "rows: Cell[Mapping[str, Line]] = cell(default={})\n@each(rows)\ndef n(self, row: Cell[Line]): return 1",
        "Cart.n",
        "returns",
    ),
    "an each of pieces and values": _wrong(
        "rows: Cell[Mapping[str, Line]] = cell(default={})\n"
        "@each(rows)\ndef n(self, row: Cell[Line]) -> View | int: ...",
        "Cart.n",
        "pieces and values",
        before="class View(Piece): pass",
    ),
    "a child that takes something": _wrong(
        "@child\ndef n(self, x: int) -> View: ...", "Cart.n", before="class View(Piece): pass"
    ),
    "a child that is a value": _wrong("@child\ndef n(self) -> int: return 1", "Cart.n", "@computed"),
    "a fold over a number": _wrong(
        "m: Cell[int] = cell(default=0)\nn = fold(m, start=0, add=lambda n, x: n, remove=lambda n, x: n)", "Cart.n"
    ),
    "a fold over the results of an each": _wrong(
        "m: Cell[Mapping[str, int]] = cell(default={})\n@each(m)\ndef rows(self, row: Input[int]) -> tuple[int, ...]:\n"
        "    return (row.get(),)\nn = fold(rows, start=0, add=lambda n, x: n, remove=lambda n, x: n)",
        "Cart.n",
        "each Cart.rows",
        "a @computed that returns the elements of 'rows'",
    ),
    "an each over the results of another": _wrong(
        "m: Cell[Mapping[str, int]] = cell(default={})\n@each(m)\ndef rows(self, row: Input[int]) -> Leaf:\n"
        "    return Leaf()\n@each(rows)\ndef more(self, leaf: Input[int]) -> int:\n    return 1",
        "Cart.more",
        "each Cart.rows",
        "a @computed",
        before="class Leaf(Piece): pass",
    ),
    "a fold over a resource": _wrong(
        "m: Cell[str] = cell(default='')\n@resource(m)\nasync def r(self, m: str) -> tuple[int, ...]:\n    return ()\n"
        "n = fold(r, start=0, add=lambda n, x: n, remove=lambda n, x: n)",
        "Cart.n",
        "resource Cart.r",
        "a @computed",
    ),
    "a fold without add": _wrong(
        "m: Cell[tuple[int, ...]] = cell(default=())\nn = fold(m, start=0, add=None, remove=lambda n, x: n)", "add="
    ),
    "a fold whose type nobody knows": _wrong(
        "m: Cell[tuple[int, ...]] = cell(default=())\nn = fold(m, start=(), add=lambda n, x: n, remove=lambda n, x: n)",
        "Cart.n",
        "n: Computed[tuple[int, ...]] = fold(...)",
    ),
    "a fold whose start does not fit": _wrong(
        "m: Cell[tuple[int, ...]] = cell(default=())\n"
        "n: Computed[int] = fold(m, start='', add=lambda n, x: n, remove=lambda n, x: n)",
        "Cart.n",
        "start=''",
    ),
}


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "evaluated"])
@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_refused_where_the_class_is_made(name: str, lazy: bool) -> None:
    case = CASES[name]
    body = "\n".join(f"    {line}" for line in case.body.splitlines())
    with pytest.raises(AuthoringError) as refused, module(f"{case.before}\n{case.head}\n{body}\n", lazy=lazy):
        raise AssertionError("it was not refused")
    message = str(refused.value)
    missing = [part for part in case.says if part not in message]
    assert not missing, f"{message}\nlacks {missing}"
