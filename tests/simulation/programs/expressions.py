"""Draws the expressions and writes that drawn code is made of.

A `Reader` is a way to read one member as an int. All of them are right for every value that the member can have, and
none of them depends on the order of the entries of a Mapping.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["CELL_KINDS", "KEYS", "Source", "condition", "declared", "expression", "write"]

KEYS: Final = ("a", "b", "c")
WORDS: Final = ("", "x", "xy")

CELL_KINDS: Final = {
    "int": ("int", ("0", "1", "2")),
    "text": ("str", ('""', '"x"')),
    "flag": ("bool", ("False", "True")),
    "maybe": ("int | None", ("None", "1")),
    "rec": ("Rec", ("Rec()", 'Rec(n=1, t="x")')),
    "ints": ("Mapping[str, int]", ("{}", '{"a": 1}')),
    "recs": ("Mapping[str, Rec]", ("{}", '{"a": Rec(n=2)}')),
    "items": ("tuple[int, ...]", ("()", "(1, 2)")),
    "tags": ("frozenset[str]", ("frozenset()", 'frozenset({"a"})')),
    "real": ("float", ("0.0", "0.5")),
    "day": ("datetime", ("datetime(2026, 1, 1, tzinfo=UTC)",)),
    "mood": ("Mood", ("Mood.CALM", "Mood.BUSY")),
    "nest": ("Nest", ("Nest()", 'Nest(rec=Rec(n=1, t="x"), k=2, tags=frozenset({"a"}))')),
    "rows": ("tuple[Rec, ...]", ("()", "(Rec(n=1),)")),
    "deep": ("Mapping[str, Mapping[str, int]]", ("{}", '{"a": {"b": 1}}')),
}
"""Kinds of cells: annotation, and defaults."""

_READS: Final = {
    "int": ("{0}.get()",),
    "text": ("len({0}.get())", 'int({0}.get() == "x")'),
    "flag": ("int({0}.get())",),
    "maybe": ("({0}.get() or 0)", "int({0}.get() is None)"),
    "rec": ("{0}.at(lambda r: r.n).get()", "{0}.get().n", "len({0}.at(lambda r: r.t).get())", "{0}.view().n"),
    "ints": (
        '{0}.key("K").get(0)',
        'int({0}.key("K").exists())',
        "sum({0}.get().values())",
        "len({0}.get())",
        "sum({0}.view().values())",
        'int("K" in {0}.view())',
        "len({0}.view())",
    ),
    "recs": (
        '{0}.key("K").at(lambda r: r.n).get(0)',
        'int({0}.key("K").exists())',
        "sum(r.n for r in {0}.get().values())",
        "sum(len(r.t) for r in {0}.view().values())",
        "len({0}.view())",
    ),
    "items": ("sum({0}.get())", "len({0}.get())"),
    "tags": ("len({0}.get())", 'int("K" in {0}.get())'),
    "real": ("int({0}.get() * 2)", "int({0}.get() > 0.5)"),
    "day": ("{0}.get().day", "int({0}.get() > datetime(2026, 1, 2, tzinfo=UTC))"),
    "mood": ("int({0}.get() is Mood.BUSY)", "len({0}.get().value)"),
    "nest": (
        "{0}.at(lambda r: r.rec.n).get()",
        "{0}.at(lambda r: r.rec).get().n",
        "{0}.get().rec.n + {0}.get().k",
        "len({0}.at(lambda r: r.tags).get())",
        "len({0}.view().rec.t)",
    ),
    "rows": ("sum(r.n for r in {0}.get())", "len({0}.get())"),
    "deep": (
        '{0}.key("K").key("K").get(0)',
        'int({0}.key("K").exists())',
        "sum(sum(each.values()) for each in {0}.get().values())",
        "len({0}.view())",
        'len({0}.key("K").get({{}}))',
    ),
    "number": ("{0}.get()",),
    "pair": ("{0}.get()[0]", "sum({0}.get())"),
    "table": ("sum({0}.get().values())", '{0}.get().get("K", 0)'),
    "link": ("(0 if {0}.get() is None else self.ctx.follow({0}.get()).get(0))",),
}
"""Ways to read a member of a kind as an int: cells, and computeds of ints, pairs and Mappings."""

_WRITES: Final = {
    "int": ("{0}.set(N)", "{0}.increment(N)", "{0}.update(lambda was: (was + N) % 7)", "{0}.set(0)", "{0}.delete()"),
    "text": ("{0}.set(W)", '{0}.set(W + "x")', "{0}.delete()"),
    "flag": ("{0}.set(N > 1)", "{0}.update(lambda was: not was)", "{0}.set(True)", "{0}.delete()"),
    "maybe": ("{0}.set(N)", "{0}.set(None)", "{0}.set(N if N % 2 else None)", "{0}.delete()"),
    "rec": (
        "{0}.set(Rec(n=N, t=W))",
        "{0}.at(lambda r: r.n).set(N)",
        "{0}.at(lambda r: r.n).increment(N)",
        "{0}.at(lambda r: r.t).set(W)",
        "{0}.at(lambda r: r.n).delete()",
        "{0}.delete()",
    ),
    "ints": (
        "{0}.key(W).set(N)",
        "{0}.key(W).delete()",
        "{0}.key(W).increment(N)",
        "{0}.set({{W: N}})",
        "{0}.set({{}})",
        "{0}.delete()",
    ),
    "recs": (
        "{0}.key(W).set(Rec(n=N, t=W))",
        "{0}.key(W).delete()",
        '{0}.key("K").set(Rec(n=N))',
        "{0}.set({{W: Rec(n=N)}})",
        "{0}.key(W).at(lambda r: r.t).delete()",
        "{0}.delete()",
    ),
    "items": (
        "{0}.push(N)",
        "{0}.push(N, keep=3)",
        "{0}.set((N,))",
        "{0}.set(())",
        "{0}.push(N, N + 1)",
        "{0}.delete()",
    ),
    "tags": ("{0}.add(W)", "{0}.discard(W)", '{0}.add("K")', "{0}.set(frozenset({{W}}))", "{0}.delete()"),
    "real": ("{0}.set(N / 2)", "{0}.increment(0.5)", "{0}.update(lambda was: was + 1)", "{0}.delete()"),
    "day": ("{0}.set(datetime(2026, 1, 1 + (N) % 9, tzinfo=UTC))", "{0}.delete()"),
    "mood": ("{0}.set(Mood.BUSY if N % 2 else Mood.CALM)", "{0}.set(Mood.BUSY)", "{0}.delete()"),
    "nest": (
        "{0}.set(Nest(rec=Rec(n=N, t=W)))",
        "{0}.set(Nest(rec=Rec(n=1), k=N))",
        "{0}.at(lambda r: r.rec).set(Rec(n=N))",
        "{0}.at(lambda r: r.rec.n).increment(N)",
        "{0}.at(lambda r: r.rec.t).set(W)",
        "{0}.at(lambda r: r.rec.n).delete()",
        "{0}.at(lambda r: r.rec).delete()",
        "{0}.at(lambda r: r.tags).add(W)",
        "{0}.at(lambda r: r.tags).discard(W)",
        "{0}.delete()",
    ),
    "rows": ("{0}.push(Rec(n=N, t=W))", "{0}.push(Rec(n=N), keep=2)", "{0}.set((Rec(t=W),))", "{0}.delete()"),
    "deep": (
        '{0}.key(W).key("K").set(N)',
        '{0}.key(W).key("K").increment(N)',
        '{0}.key(W).key("K").delete()',
        '{0}.key(W).set({{"K": N}})',
        "{0}.key(W).delete()",
        '{0}.set({{W: {{"K": N}}}})',
        "{0}.delete()",
    ),
}

_FRESH_WRITES: Final = {
    "int": ("{0}.set(ID)", "{0}.increment(ID)"),
    "text": ('{0}.set(W + "x" * (ID % 50))',),
    "flag": ("{0}.update(lambda was: not was)",),
    "maybe": ("{0}.set(ID)",),
    "rec": ("{0}.at(lambda r: r.n).set(ID)", "{0}.at(lambda r: r.n).increment(ID)"),
    "ints": ("{0}.key(W).set(ID)", "{0}.key(W).increment(ID)"),
    "recs": ("{0}.key(W).set(Rec(n=ID, t=str(ID)))",),
    "items": ("{0}.push(N)", "{0}.push(N, keep=3)", "{0}.push(N, N + 1)"),
    "tags": ("{0}.add(str(ID))",),
    "real": ("{0}.set(ID / 2)",),
    "day": ("{0}.update(lambda was: was.replace(microsecond=was.microsecond + 1))",),
    "mood": ("{0}.update(lambda was: Mood.CALM if was is Mood.BUSY else Mood.BUSY)",),
    "nest": ("{0}.at(lambda r: r.rec.n).set(ID)", "{0}.at(lambda r: r.k).increment(ID)"),
    "rows": ("{0}.push(Rec(n=ID))",),
    "deep": ('{0}.key(W).key("K").set(ID)',),
}
"""Writes that change something wherever they land, made from the id of the action."""


@dataclass(frozen=True, slots=True)
class Source:
    """Something that code can read: an expression of its handle, its kind, and the members that it uses."""

    handle: str
    kind: str
    uses: frozenset[str]


Text = tuple[str, frozenset[str]]
"""An expression, and the members that it uses."""


def declared(draw: Random, name: str, kind: str, scope: str = "space") -> str:
    """The declaration of a cell."""
    annotation, defaults = CELL_KINDS[kind]
    default = draw.choice(defaults)
    more = "" if scope == "space" else f', scope="{scope}"'
    return f"{name}: Cell[{annotation}] = cell(default={default}{more})"


def expression(draw: Random, sources: Sequence[Source], depth: int = 2) -> Text:
    """An expression of type int."""
    if not sources or draw.random() < 0.05:
        return str(draw.randrange(4)), frozenset()
    if depth == 0 or draw.random() < 0.25:
        return _read(draw, sources)
    one, uses_one = expression(draw, sources, depth - 1)
    two, uses_two = expression(draw, sources, depth - 1)
    match draw.randrange(8):
        case 0 | 1:
            return f"{one} + {two}", uses_one | uses_two
        case 2:
            return f"{one} - {two}", uses_one | uses_two
        case 3:
            return f"min({one}, {two})", uses_one | uses_two
        case 4:
            return f"({one}) // 2", uses_one
        case 5:
            return f"({one}) % 3", uses_one
        case _:
            test, uses = condition(draw, sources)
            return f"({one} if {test} else {two})", uses | uses_one | uses_two


def condition(draw: Random, sources: Sequence[Source]) -> Text:
    """An expression of type bool."""
    one, uses = _read(draw, sources)
    match draw.randrange(4):
        case 0:
            return f"{one} > {draw.randrange(4)}", uses
        case 1:
            return f"{one} % 2 == 0", uses
        case 2:
            two, more = _read(draw, sources)
            return f"{one} > {two}", uses | more
        case _:
            two, more = _read(draw, sources)
            return f"{one} and {two}", uses | more


def _read(draw: Random, sources: Sequence[Source]) -> Text:
    source = draw.choice(sources)
    text = draw.choice(_READS[source.kind]).format(source.handle)
    return text.replace('"K"', f'"{draw.choice(KEYS)}"'), source.uses


def write(draw: Random, source: Source, n: str, w: str, fresh: str | None = None) -> str:
    """A statement that writes a cell, from the expressions `n` of an int and `w` of a key.

    With `fresh`, an expression of the id of an action, it writes a value that was not there before.
    """
    text = draw.choice(_WRITES[source.kind] if fresh is None else _FRESH_WRITES[source.kind])
    text = text.replace('"K"', f'"{draw.choice(KEYS)}"')
    for sign, value in (("N", n), ("W", w), ("ID", fresh or "")):
        text = re.sub(rf"\b{sign}\b", value.replace("{", "{{").replace("}", "}}"), text)
    return text.format(source.handle)
