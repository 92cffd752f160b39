"""I7 over several spaces: what a node read elsewhere and was written while it was away makes it run, and nothing else.

A view reads two other spaces, cells and what is derived there, which of it depends on what it reads. The process that
stays hears of every write; the one that comes back finds them. Spaces are written by others, by programs that have no
piece, and by the very process before it ends; it is closed or killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import Cell, Input, Link, Model, Piece, cell, computed, each, effect, given, link
from headwater.protocol.observations import OutdatedReads
from tests.invariants.i07_kit import (
    Site,
    Write,
    compared,
    count,
    embedded,
    ends,
    killed,
    opened,
    put,
    run,
    site,
    stories,
    written,
)
from tests.scenario.wire_kit import Wire

HERE, STOCK, RATES = "here", "stock", "rates"


class Item(Model):
    n: int
    note: str = ""


class Stock(Piece, name="i07.Stock"):
    items: Cell[Mapping[str, Item]] = cell(default={})
    flag: Cell[bool] = cell(default=False)
    unread: Cell[int] = cell(default=0)

    @computed
    def total(self) -> int:
        return sum(item.n for item in self.items.get().values())

    @computed
    def many(self) -> bool:
        return self.total.get() > 5

    @computed
    def few(self) -> bool:
        return self.total.get() < 3


class Rates(Piece, name="i07.Rates"):
    rate: Cell[int] = cell(default=12)
    other: Cell[int] = cell(default=13)


class View(Piece, name="i07.View"):
    own: Cell[int] = cell(default=11)
    at: Cell[Link[Input[bool]] | None] = cell(default=None)
    items: Input[Mapping[str, Item]] = given()
    flag: Input[bool] = given()
    many: Input[bool] = given()
    rate: Input[int] = given()
    other: Input[int] = given()

    @computed
    def notes(self) -> str:
        view = self.items.view()
        return "".join(view[key].note for key in sorted(view))

    @computed
    def priced(self) -> int:
        """Reads one other space, and another one only sometimes."""
        return self.own.get() * (self.rate.get() if self.flag.get() else 1)

    @computed
    def chosen(self) -> int:
        """Reads what is derived elsewhere."""
        return self.priced.get() if self.many.get() else self.other.get()

    @computed
    def near(self) -> int:
        """Reads nothing elsewhere itself."""
        return self.priced.get() + self.own.get()

    @computed
    def followed(self) -> bool:
        """Reads what a link points at, which is derived elsewhere."""
        at = self.at.get()
        return False if at is None else self.ctx.follow(at).get()

    @each(items)
    def lines(self, item: Input[Item]) -> int:
        return item.at(lambda item: item.n).get() * self.rate.get()

    @effect
    def show(self) -> None:
        self.notes.get(), self.chosen.get(), self.near.get(), self.lines.get(), self.followed.get()


LOOKS = ("notes", "priced", "chosen", "near", "followed")


async def open_view(one: Site, *, is_named: bool = False) -> Any:
    """What everybody does; who comes back may know the name of the view alone: its record says what it was given."""
    made: Any
    if is_named:
        (made,) = await opened(one, [(HERE, View, "v")])
        return made
    stock, rates = await opened(one, [(STOCK, Stock, "s"), (RATES, Rates, "r")])
    view = View(items=stock.items, flag=stock.flag, many=stock.many, rate=rates.rate, other=rates.other)
    (made,) = await opened(one, [(HERE, view, "v")])
    if made.at.get() is None:
        await one.space(HERE).transact(lambda: made.at.set(link(stock.few)))
        # A first write of the default runs no reader that is here, and others after a restart: there is none later.
        await one.space(STOCK).transact(lambda: stock.flag.set(True))
    await one.settled()
    return made


KINDS: dict[str, list[str]] = {
    STOCK: ["item", "item", "note", "gone", "flag", "unread"],
    RATES: ["rate", "other"],
    HERE: ["own"],
}


BARE = {"flag": "s:flag", "unread": "s:unread", "rate": "r:rate", "other": "r:other", "own": "v:own"}
"""Cells whose document is their value."""


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction, and the space that it is made in."""

    space: str
    write: Write

    async def __call__(self, one: Site) -> None:
        await self.write(one)


def random_change(rng: Random, cls: type[View] = View) -> Change:
    """One transaction that somebody makes in one of the spaces."""
    name = rng.choice([STOCK, STOCK, RATES, HERE])
    chosen = [(rng.choice(KINDS[name]), f"k{rng.randrange(3)}", rng.randrange(5)) for _ in range(rng.randrange(1, 4))]

    # Sometimes it is no piece's transaction, but somebody's who knows where things are stored.
    is_bare = rng.random() < 0.3 and chosen[0][0] in BARE

    async def write(one: Site) -> None:
        stock: Any = one.space(STOCK).piece(Stock, "s")
        rates: Any = one.space(RATES).piece(Rates, "r")
        view: Any = one.space(HERE).piece(cls, "v")

        def act() -> None:
            for what, key, n in chosen:
                item = stock.items.key(key)
                match what:
                    case "item":
                        item.set(Item(n=n, note=str(n)))
                    case "note":
                        if item.exists():
                            item.at(lambda item: item.note).set(f"t{n}")
                    case "gone":
                        if item.exists():
                            item.delete()
                    case "flag":
                        stock.flag.set(n % 2 == 0)
                    case "unread":
                        stock.unread.set(n)
                    case "own":
                        view.own.set(n)
                    case _:
                        getattr(rates, what).set(n)

        if is_bare:
            for what, _, n in chosen[:1]:
                await put(one, name, BARE[what], n % 2 == 0 if what == "flag" else n)
        else:
            await one.space(name).transact(act)

    return Change(name, write)


async def _shown(view: Any) -> list[object]:
    return [*[await getattr(view, name).pull() for name in LOOKS], dict(view.lines.get())]


async def _history(seed: int, folder: Path, rounds: int = 3) -> int:
    """Raises where the two differ. Answers how many nodes came back without a run although they read another space."""
    rng = Random(seed)
    at, ended, came_back = folder / "comes", "closed", 0
    first = random_change(rng)
    async with embedded(folder / "stays") as stays, site(stays) as alive:
        view = await open_view(alive)
        await first(alive)
        await alive.heard(await ends(stays, alive))
        async with embedded(at) as data, site(data) as before:
            await open_view(before)
            await first(before)
            await before.heard(await ends(data, before))
        for number in range(rounds):
            write, later, last = random_change(rng), random_change(rng), random_change(rng)
            alive.taken()
            await alive.heard(await written(stays, write))
            expected = alive.taken()
            async with embedded(at) as data:
                await written(data, write)
                async with site(data) as again:
                    came = await open_view(again, is_named=rng.random() < 0.5)
                    ran = again.taken()
                    if ended != "killed at once":
                        compared(expected, ran, may_run_more=ended == "killed")
                    of_view = {name for name in alive.order if name.startswith(f"{HERE}/v")}
                    came_back += len(of_view - ran)
                    assert await _shown(came) == await _shown(view)
                    alive.taken(), again.taken()
                    await again.heard(await written(data, later))
                    await alive.heard(await written(stays, later))
                    assert again.taken() == alive.taken(), "it does not go on like one that stayed"
                    assert await _shown(came) == await _shown(view)
                    await last(again)  # What it derives itself stands on what has no verdict yet.
                    await last(alive)
                    # Killed at once, it has not derived what follows from its last write: the next one may undo that.
                    ended, former = rng.choice(["closed", "closed", "closed", "killed", "killed at once"]), at
                    if ended == "killed at once":
                        at = killed(former, folder / f"comes {number}")
                    await again.heard(await ends(data, again))
                    await alive.heard(await ends(stays, alive))
                    if ended == "killed":
                        at = killed(former, folder / f"comes {number}")
                    assert await _shown(came) == await _shown(view)
                    assert not again.errors, again.errors_told
    return came_back


@pytest.mark.random
def test_what_comes_back_runs_what_one_that_stayed_would_have_run(tmp_path: Path) -> None:
    seeds = count(100)
    came_back = stories(_history, tmp_path, range(seeds))
    assert came_back > 10 * seeds, "hardly anything came back: then this says nothing"


# ---- while it comes back ---------------------------------------------------------------------------


async def _between(folder: Path) -> None:
    """Somebody writes in another space after that has said that nothing was written."""
    async with embedded(folder) as data:
        async with site(data) as before:
            await open_view(before)
            view: Any = before.space(HERE).piece(View, "v")
            for n in range(5):  # So that its own log is longer than the other one.
                await before.space(HERE).transact(view.own.set, 7 + n)
                await before.settled()
            stock: Any = before.space(STOCK).piece(Stock, "s")
            await before.space(STOCK).transact(lambda: stock.flag.set(True))
            await before.settled()
        async with site(data, identity=None) as other:
            rates: Any = other.space(RATES).piece(Rates, "r")
            wire = Wire(data)
            wire.hold(lambda message: isinstance(message, OutdatedReads))
            async with site(wire) as again:
                opening = asyncio.ensure_future(open_view(again, is_named=True))
                await wire.holding.wait()
                await other.space(RATES).transact(lambda: rates.rate.set(100))
                wire.let_go()
                view = await opening
                await again.heard({RATES: other.space(RATES).seq})
                assert await view.priced.pull() == 1_100
                assert {"here/v:priced", "here/v:near"} <= again.taken()


def test_a_write_between_the_answer_and_its_use_is_not_missed(tmp_path: Path) -> None:
    run(lambda: _between(tmp_path))
