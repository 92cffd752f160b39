"""I7: a process that comes back runs what one that had stayed would have run, and never less.

Two processes have the same program and hear of the same writes. One of them stays; the other one is closed, or killed,
and opened again. After each write both have run the same nodes, and show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import Cell, Input, Model, Piece, cell, computed, each, effect, fold, given
from tests.invariants.i07_kit import (
    Site,
    Write,
    compared,
    count,
    embedded,
    killed,
    opened,
    run,
    site,
    stories,
    written,
)

SPACE = "shop"


class Entry(Model):
    n: int
    text: str = ""


class Leaf(Piece, name="i07.Leaf"):
    entry: Input[Entry] = given()
    factor: Input[int] = given()

    @computed
    def value(self) -> int:
        return self.entry.at(lambda entry: entry.n).get() * self.factor.get()


class Web(Piece, name="i07.Web"):
    # No first write makes a default: it runs no reader that is here, but readers that come back (INVARIANTS.md, I7).
    a: Cell[int] = cell(default=11)
    b: Cell[int] = cell(default=12)
    c: Cell[int] = cell(default=13)
    entries: Cell[Mapping[str, Entry]] = cell(default={})
    listed: Cell[tuple[Entry, ...]] = cell(default=())
    unread: Cell[int] = cell(default=0)

    @computed
    def sum(self) -> int:
        return self.a.get() + self.b.get()

    @computed
    def parity(self) -> bool:
        return self.sum.get() % 2 == 0

    @computed
    def chosen(self) -> int:
        """Reads what the parity says."""
        return self.c.get() if self.parity.get() else self.last.get()

    @computed
    def last(self) -> int:
        return sum(entry.n for entry in self.listed.get())

    @computed
    def texts(self) -> str:
        view = self.entries.view()
        return "".join(view[key].text for key in sorted(view))

    @each(entries)
    def leaves(self, entry: Cell[Entry]) -> Leaf:
        return Leaf(entry=entry, factor=self.c)

    @each(listed, key=lambda entry: entry.text)
    def sizes(self, entry: Cell[Entry]) -> int:
        return entry.get().n // 2

    total = fold(entries, start=0, add=lambda n, entry: n + entry.n, remove=lambda n, entry: n - entry.n)

    @computed
    def all(self) -> int:
        return sum(leaf.value.get() for leaf in self.leaves.get().values()) + self.chosen.get()

    @effect
    def show(self) -> None:
        self.all.get(), self.texts.get(), self.total.get(), self.sizes.get()


ALWAYS = ("sum", "parity", "chosen", "texts", "total", "all")
"""Those that the effect demands, whatever the parity."""
LOOKS = ("sum", "parity", "chosen", "last", "texts", "total", "all")


class Changes:
    """Draws transactions. Every part of a transaction changes a value, most of the time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._has_entries = False  # whether one of them wrote `entries`

    def draw(self) -> Callable[[Any], None]:
        rng, kinds = self._rng, ["a", "b", "c", "entry", "text", "gone", "listed", "unread"]
        chosen = [(rng.choice(kinds), rng.randrange(5), rng.randrange(4)) for _ in range(rng.randrange(1, 4))]
        if not self._has_entries:
            # The first write of `entries` does not leave it empty, which is its default.
            chosen = [each for each in chosen if each[0] != "gone"]
        self._has_entries |= any(what == "entry" for what, _, _ in chosen)
        return _write(chosen)


def _write(chosen: list[tuple[str, int, int]]) -> Callable[[Any], None]:
    def write(web: Any) -> None:
        for what, key, n in chosen:
            entry = web.entries.key(f"k{key}")
            match what:
                case "a" | "b" | "c" | "unread":
                    getattr(web, what).set(n)
                case "entry":
                    entry.set(Entry(n=n, text=str(n)))
                case "text":
                    if entry.exists():
                        entry.at(lambda entry: entry.text).set(f"t{n}")
                case "gone":
                    if entry.exists():
                        entry.delete()
                case _:
                    rest = tuple(each for each in web.listed.get() if each.text != f"e{key}")
                    web.listed.set((Entry(n=n, text=f"e{key}"), *rest))

    return write


def _by(write: Callable[[Any], None]) -> Write:
    async def act(one: Site) -> None:
        web = one.space(SPACE).piece(Web, "w")
        await one.space(SPACE).transact(lambda: write(web))

    return act


async def _shown(web: Any) -> list[object]:
    return [await getattr(web, name).pull() for name in LOOKS]


async def _history(seed: int, folder: Path, rounds: int = 4) -> int:
    """Raises where the two differ. Answers how many nodes came back without a run."""
    rng, looks = Random(seed), Random(f"looks {seed}")
    changes = Changes(rng)
    came_back = 0
    at, was_killed = folder / "comes", False
    async with embedded(folder / "stays") as stays, site(stays) as alive:
        (web,) = await opened(alive, [(SPACE, Web, "w")])
        async with embedded(at) as data, site(data) as first:
            await opened(first, [(SPACE, Web, "w")])
            await _left(first, seed)
        for number in range(rounds):
            write, later = _by(changes.draw()), _by(changes.draw())
            alive.taken()
            await alive.heard(await written(stays, write))
            expected = alive.taken()
            before = at
            async with embedded(before) as data:
                await written(data, write)
                async with site(data) as again:
                    (came,) = await opened(again, [(SPACE, Web, "w")])
                    if looks.random() < 0.5:
                        await getattr(came, looks.choice(ALWAYS)).pull()  # It is demanded anyway, and comes first.
                        await again.settled()
                    ran = again.taken()
                    # I7: never less. What was not told yet when it was killed runs again.
                    compared(expected, ran, may_run_more=was_killed)
                    came_back += len(set(alive.order) - ran)
                    assert await _shown(came) == await _shown(web)
                    alive.taken(), again.taken()
                    await again.heard(await written(data, later))
                    await alive.heard(await written(stays, later))
                    assert again.taken() == alive.taken(), "it does not go on like one that stayed"
                    assert await _shown(came) == await _shown(web)
                    assert not again.errors, again.errors_told
                    was_killed = rng.random() < 0.3
                    if was_killed:
                        at = killed(before, folder / f"comes {number}")
                    await _left(again, seed)
    return came_back


async def _left(one: Site, seed: int) -> None:
    """What is open for two users is not known to be clean as a whole: its nodes come back one by one."""
    if seed % 2:
        await one.rt.space(SPACE, user="bob").open(Web, "w")
        await one.settled()


@pytest.mark.random
def test_what_comes_back_runs_what_one_that_stayed_would_have_run(tmp_path: Path) -> None:
    seeds = count(100)
    came_back = stories(_history, tmp_path, range(seeds))
    assert came_back > 20 * seeds, "hardly anything came back: then this says nothing"


@pytest.mark.parametrize("seed", [34, 138])
def test_a_history_that_once_went_wrong(tmp_path: Path, seed: int) -> None:
    """34: the first write of a mapping sets a key and deletes it, and so writes the default of the mapping.

    138: a key that left while nobody was there came back, and with it what was known of it before.
    """

    async def story() -> None:
        await _history(seed, tmp_path)

    run(story, too_long_s=120)
