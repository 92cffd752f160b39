"""The program of I7's versions: five pieces in two spaces, of which each version is made anew, with one thing other.

What a version changes is reached in every way there is: named by a member's own code, called by it, as the default of a
cell that it names or that it is only given, and as a field of a type that it never names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import astuple

from headwater import Cell, Input, Model, Piece, cell, computed, each, effect, given
from tests.invariants.i07_kit import Site

HERE, AWAY = "here", "away"
KEYS: Final = ("k0", "k1", "k2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What of the program is other than in other versions."""

    constant: int = 2
    helper: int = 10
    default: int = 1
    default_away: int = 5
    is_wide: bool = False  # whether the Model has one field more
    unread: int = 0  # of a member that nobody demands


def _entry(version: Version) -> Any:
    class Slim(Model):
        n: int

    class Wide(Model):
        n: int
        more: int = 7

    made: Any = Wide if version.is_wide else Slim
    made.__name__ = made.__qualname__ = "Entry"  # The same name for both: nobody goes by that.
    return made


def _base(version: Version, entry: Any) -> type[Piece]:
    constant, added, said = version.constant, version.helper, version.unread
    Entry = entry  # A type that is local to its program.

    def helped_by(n: int) -> int:
        return n + added

    class Base(Piece, name="i07.versions.Base"):
        a: Cell[int] = cell(default=version.default)
        b: Cell[int] = cell(default=2)
        c: Cell[int] = cell(default=3)
        entry: Cell[Entry | None] = cell(default=None)  # type: ignore[valid-type]
        unread: Cell[int] = cell(default=0)

        @computed
        def scaled(self) -> int:
            return self.a.get() * constant

        @computed
        def helped(self) -> int:
            return helped_by(self.a.get())

        @computed
        def quiet(self) -> int:
            return self.a.get() // 3

        @computed
        def chosen(self) -> int:
            return self.b.get() if self.quiet.get() % 2 else self.c.get()

        @computed
        def all(self) -> int:
            return self.scaled.get() + self.helped.get() + self.quiet.get() + self.chosen.get()

        @computed
        def text(self) -> str:
            return str(summed(self.entry.get()))

        @computed
        def idle(self) -> int:
            return said

        @effect
        def show(self) -> None:
            self.all.get(), self.text.get()

    return Base


def summed(entry: Any) -> int:
    """All fields of a record, whichever it has."""
    return 0 if entry is None else sum(astuple(entry))


def _source(version: Version) -> type[Piece]:
    class Source(Piece, name="i07.versions.Source"):
        n: Cell[int] = cell(default=version.default_away)
        unread: Cell[int] = cell(default=0)

    return Source


class Reader(Piece, name="i07.versions.Reader"):
    """The same in every version. What it is given is not what it says: a type checker would tell."""

    a: Input[int] = given()
    cost: Input[int] = given()
    far: Input[int] = given()
    entry: Input[int] = given()

    @computed
    def got(self) -> int:
        return self.a.get() + 1

    @computed
    def bill(self) -> int:
        return self.cost.get() * 2

    @computed
    def away(self) -> int:
        return self.far.get() + 1

    @computed
    def look(self) -> int:
        return summed(self.entry.get())

    @effect
    def show(self) -> None:
        self.got.get(), self.bill.get(), self.away.get(), self.look.get()


class Taker(Piece, name="i07.versions.Taker"):
    """It reads nothing but a cell that it was given, and may sleep: nothing of its own ever changes."""

    a: Input[int] = given()

    @computed
    def more(self) -> int:
        return self.a.get() + 2

    @effect
    def show(self) -> None:
        self.more.get()


def _sheet(version: Version) -> type[Piece]:
    constant = version.constant

    class Row(Piece, name="i07.versions.Row"):
        n: Cell[int] = given()
        rate: Input[int] = given()

        @computed
        def cost(self) -> int:
            return self.n.get() * self.rate.get() * constant

    class Sheet(Piece, name="i07.versions.Sheet"):
        a: Input[int] = given()
        items: Cell[Mapping[str, int]] = cell(default={})

        @each(items)
        def rows(self, n: Cell[int]) -> Row:
            return Row(n=n, rate=self.a)

        @computed
        def total(self) -> int:
            return sum(row.cost.get() for row in self.rows.get().values())

        @effect
        def show(self) -> None:
            self.total.get()

    return Sheet


class Program:
    """The classes of one version. Made last, they are the newest of their names: those that records mean."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.entry = _entry(version)
        self.pieces: dict[str, tuple[str, Any]] = {
            "b": (HERE, _base(version, self.entry)),
            "s": (AWAY, _source(version)),
            "t": (HERE, _sheet(version)),
        }

    async def started(self, one: Site) -> dict[str, Any]:
        """Open the pieces, by name, and wait for what follows."""
        (_, base_class), (_, source_class), (_, sheet_class) = self.pieces.values()
        base: Any = await one.space(HERE).open(base_class, "b")
        source: Any = await one.space(AWAY).open(source_class, "s")
        made: Any = Reader(a=base.a, cost=base.all, far=source.n, entry=base.entry)
        reader = await one.space(HERE).open(made, "r")
        taker = await one.space(HERE).open(Taker(a=base.a), "g")
        sheet = await one.space(HERE).open(sheet_class(a=base.a), "t")
        await one.settled()
        return {"b": base, "s": source, "r": reader, "g": taker, "t": sheet}

    async def write(self, one: Site, cells: Mapping[str, int]) -> None:
        """One transaction for each space: cells by their documents, the elements of one behind a slash."""
        for space in (HERE, AWAY):
            chosen = {name: n for name, n in cells.items() if self.pieces[name.partition(":")[0]][0] == space}

            def act(chosen: dict[str, int] = chosen, space: str = space) -> None:
                for name, n in chosen.items():
                    piece, _, place = name.partition(":")
                    member, _, key = place.partition("/")
                    handle: Any = getattr(one.space(space).piece(self.pieces[piece][1], piece), member)
                    value = self.entry(n=n) if member == "entry" else n
                    (handle.key(key) if key else handle).set(value)

            if chosen:
                await one.space(space).transact(act)
