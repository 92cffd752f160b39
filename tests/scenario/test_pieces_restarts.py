"""Children of an `each` and of a `child`, while the server restarts and what they read has to be fetched."""

from __future__ import annotations

from collections.abc import Mapping

from headwater import Cell, Input, Piece, cell, child, computed, each, given, handler
from headwater.testing import Simulation, simulated


class Book(Piece, name="restarts.Book"):
    rows: Cell[Mapping[str, int]] = cell(default={})

    @each(rows)
    def texts(self, row: Input[int]) -> str:
        return str(row.get())

    @handler
    def put(self, key: str, number: int) -> None:
        self.rows.key(key).set(number)

    @handler
    def drop(self, key: str) -> None:
        self.rows.key(key).delete()


@simulated(seeds=6)
async def test_an_each_that_is_open_survives_a_restart_of_the_server(sim: Simulation) -> None:
    one, other = [await sim.runtime(user).space("s").open(Book, "b") for user in ("ann", "bob")]
    await one.put.send("x", 1)
    await one.put.send("y", 2)
    await sim.settle()
    await sim.crash()
    await one.drop.send("x")
    await other.put.send("z", 3)
    await sim.settle()
    for book in (one, other):
        assert dict(await book.texts.pull()) == {"y": "2", "z": "3"}


class Even(Piece, name="restarts.Even"):
    n: Input[int] = given()

    @computed
    def text(self) -> str:
        return f"even {self.n.get()}"


class Odd(Piece, name="restarts.Odd"):
    n: Input[int] = given()
    more: Cell[int] = cell(default=0)  # It has to be fetched.

    @computed
    def text(self) -> str:
        return f"odd {self.n.get()} {self.more.get()}"


class Parity(Piece, name="restarts.Parity"):
    n: Cell[int] = cell(default=0)

    @child
    def which(self) -> Even | Odd:
        return Odd(n=self.n) if self.n.get() % 2 else Even(n=self.n)

    @computed
    def text(self) -> str:
        return self.which.get().text.get()

    @handler
    def grow(self) -> None:
        self.n.increment()


@simulated(seeds=6)
async def test_a_pull_waits_for_what_a_child_of_another_class_needs(sim: Simulation) -> None:
    piece = sim.runtime("ann").space("s").piece(Parity, "p")
    for n in range(1, 8):
        await piece.grow.send()
        if n % 3:
            assert await piece.text.pull() == (f"odd {n} 0" if n % 2 else f"even {n}")
