"""The classes of pieces that are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import headwater
from headwater import Cell, Computed, Piece, cell, computed, each, effect, handler

SHOWN: Final[list[int]] = []  # totals of carts in this process
EACH_SHOWN: Final[list[Callable[[], object]]] = []  # called when a cart showed its total


class Line(headwater.Model):
    sku: str
    cents: int
    qty: int = 1


class Cart(Piece, name="bench.author.Cart"):
    """One cell, one computed, one effect: the smallest application."""

    lines: Cell[tuple[Line, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(line.cents * line.qty for line in self.lines.get())

    @effect
    def show(self) -> None:
        SHOWN.append(self.total.get())
        for hear in EACH_SHOWN:
            hear()

    @handler
    def add(self, line: Line) -> None:
        self.lines.push(line)


class Counter(Piece, name="bench.author.Counter"):
    """As the cart, with a cell that does not grow."""

    n: Cell[int] = cell(default=0)

    @computed
    def double(self) -> int:
        return 2 * self.n.get()

    @effect
    def show(self) -> None:
        self.double.get()

    @handler
    def add(self) -> None:
        self.n.increment(1)


class Table(Piece, name="bench.author.Table"):
    """An `each` with a value for every row. A table of n rows has n + 2 nodes."""

    rows: Cell[Mapping[str, int]] = cell(default={})
    rate: Cell[int] = cell(default=2)

    @each(rows)
    def priced(self, row: Cell[int]) -> int:
        return row.get() * self.rate.get()

    @computed
    def first(self) -> int:
        return self.rows.key("r0").get() + self.rate.get()


class Link(Piece, name="bench.author.Link"):
    """One of a chain of pieces, each of which names the next one. A chain that is closed to a ring has no end."""

    points: Cell[int] = cell(default=1)
    next: Cell[str] = cell(default="")
    is_ring: Cell[bool] = cell(default=False)

    @computed
    def total(self) -> int:
        name = self.next.get()
        if not name:
            return self.points.get()
        there: Computed[int] = self.ctx.space.piece(Link, name).total
        if self.is_ring.get():
            return max(self.points.get(), there.get(0))
        return self.points.get() + there.get()


def rows(count: int) -> dict[str, int]:
    return {f"r{number}": number for number in range(count)}


def wide(width: int) -> type[Any]:
    """Make a class with a cell, `width` computeds that read it, one that sums them, and a handler that writes it."""
    names = tuple(f"c{number}" for number in range(width))

    def total(self: Any) -> int:
        return sum([getattr(self, name).get() for name in names])

    def change(self: Any, value: int) -> None:
        self.source.set(value)

    members: dict[str, Any] = {name: computed(_plus(number)) for number, name in enumerate(names)}
    members.update(source=cell(default=1), total=computed(total), change=handler(change))
    members["__annotations__"] = {"source": Cell[int]}
    make: Any = type
    made: type[Any] = make(f"Wide{width}", (Piece,), members, name=f"bench.author.Wide{width}")
    return made


def _plus(number: int) -> Callable[[Any], int]:
    def plus(self: Any) -> int:
        value: int = self.source.get() + number
        return value

    return plus


def wide_total(width: int, source: int) -> int:
    """The sum that a piece of `wide(width)` shows."""
    return width * source + width * (width - 1) // 2
