"""I7 for materializers: one that is dirty runs when nothing else has to, or before whoever reads what it may write.

It is made dirty by what it read, as any node; its envelope makes nobody dirty. After it ran, those run that read what
it really changed. A process that comes back does what one that stayed would have done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import Cell, Piece, cell, computed, effect, handler, materializer
from headwater.protocol.messages import FromEngine, Watched
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
from tests.scenario.wire_kit import Wire

SPACE = "shop"


class Posts(Piece, name="i07.Posts"):
    items: Cell[Mapping[str, int]] = cell(default={})
    factor: Cell[int] = cell(default=2)
    unread: Cell[int] = cell(default=0)
    board: Cell[Mapping[str, int]] = cell(default={})
    seen: Cell[int] = cell(default=0)

    @materializer(envelope=(board,))
    def posted(self) -> int:
        """One post for each item; those that are gone are taken down."""
        items, factor = self.items.get(), self.factor.get()
        for key in [key for key in self.board.get() if key not in items]:
            self.board.key(key).delete()
        for key, n in items.items():
            self.board.key(key).set(n * factor)
        return len(items)

    @computed
    def first(self) -> int:
        return self.board.key("k0").get(0) + 1

    @computed
    def second(self) -> int:
        return self.board.key("k1").get(0) + 1

    @computed
    def both(self) -> int:
        return self.first.get() * 100 + self.second.get()

    @effect
    def show(self) -> None:
        self.both.get()

    @handler
    def look(self) -> int:
        """What is on the board, once everything that may be written there was."""
        found = self.board.key("k0").get(0)
        self.seen.set(found)
        return found


def _change(rng: Random) -> Write:
    chosen = [
        (rng.choice(["item", "item", "gone", "factor", "unread"]), f"k{rng.randrange(3)}", rng.randrange(4))
        for _ in range(rng.randrange(1, 3))
    ]

    async def write(one: Site) -> None:
        posts: Any = one.space(SPACE).piece(Posts, "p")

        def act() -> None:
            for what, key, n in chosen:
                match what:
                    case "item":
                        posts.items.key(key).set(n)
                    case "gone":
                        if posts.items.key(key).exists():
                            posts.items.key(key).delete()
                    case _:
                        getattr(posts, what).set(n)

        await one.space(SPACE).transact(act)

    return write


async def _expected(posts: Any) -> tuple[dict[str, int], int, int]:
    items, factor = await posts.items.pull(), await posts.factor.pull()
    board = {key: n * factor for key, n in items.items()}
    return board, board.get("k0", 0) + 1, board.get("k1", 0) + 1


async def _check(posts: Any) -> None:
    board, first, second = await _expected(posts)
    assert (dict(await posts.board.pull()), await posts.both.pull()) == (board, first * 100 + second)


async def _begun(one: Site) -> Any:
    """A board with something on it, and every cell written: only a reader that runs knows what a default is."""
    (posts,) = await opened(one, [(SPACE, Posts, "p")])
    await one.space(SPACE).transact(posts.items.set, {"k2": 1})
    await one.space(SPACE).transact(posts.factor.set, 3)
    await one.space(SPACE).transact(posts.unread.set, 1)
    await one.settled()
    return posts


def _has(cell: str) -> Callable[[FromEngine], bool]:
    """Whether a message of the engine brings this cell."""

    def has(message: FromEngine) -> bool:
        return isinstance(message, Watched) and any(each.doc.id == f"p:{cell}" for each in message.documents)

    return has


async def _demanded_late(one: Site, how: str, wire: Wire, cell: str) -> tuple[Any, int | None]:
    """The same where a cell that the materializer reads arrives after the demand: a reader has to wait for both."""
    wire.hold(_has(cell), alone=True)
    asked = asyncio.ensure_future(_demanded(one, how))
    for number in range(20):
        await one.rt.cell(SPACE, f"nothing {number}", int, default=0).pull()
    wire.let_go()
    return await asked


async def _demanded(one: Site, how: str) -> tuple[Any, int | None]:
    """Open the piece, and look at the board before the materializer ran: one more than what was seen there."""
    named: Any = one.space(SPACE).piece(Posts, "p")
    opening = asyncio.ensure_future(one.space(SPACE).open(Posts, "p"))
    got: int | None = None
    if how != "idle":
        await one.rt.until(lambda: f"{SPACE}/p:posted" in one.registered or opening.done())
        got = await named.first.pull() if how == "reader" else await named.look.send() + 1
    return await opening, got


async def _history(seed: int, folder: Path, rounds: int = 4) -> int:
    rng = Random(seed)
    at, was_killed, came_back = folder / "comes", False, 0
    async with embedded(folder / "stays") as stays, site(stays) as alive:
        posts = await _begun(alive)
        async with embedded(at) as data:
            async with site(data) as first:
                await _begun(first)
            async with site(data) as first:
                (again,) = await opened(first, [(SPACE, Posts, "p")])
                await _check(again)  # Whoever read the board before there was one is compared, and runs.
        for number in range(rounds):
            write, later = _change(rng), _change(rng)
            alive.taken()
            await alive.heard(await written(stays, write))
            expected = alive.taken()
            async with embedded(at) as data:
                await written(data, write)
                wire = Wire(data)
                async with site(wire) as again:
                    how = rng.choice(["idle", "reader", "event"])
                    late = rng.choice(["items", "factor"])
                    came, got = await _demanded_late(again, how, wire, late)
                    await again.settled()
                    _, first_is, _ = await _expected(came)
                    assert got is None or got == first_is, f"what {how} saw was not written yet"
                    ran = again.taken()
                    compared(expected, ran, may_run_more=was_killed)
                    came_back += len(set(alive.order) - ran)
                    await _check(came)
                    await _check(posts)
                    if how == "event":
                        await posts.look.send()
                        await alive.settled()
                    alive.taken(), again.taken()
                    await again.heard(await written(data, later))
                    await alive.heard(await written(stays, later))
                    assert again.taken() == alive.taken(), "it does not go on like one that stayed"
                    await _check(came)
                    assert not again.errors, again.errors_told
                    was_killed = rng.random() < 0.3
                    if was_killed:
                        at = killed(at, folder / f"comes {number}")
    return came_back


@pytest.mark.random
def test_a_materializer_runs_when_one_that_stayed_would_have_and_so_do_its_readers(tmp_path: Path) -> None:
    seeds = count(100)
    came_back = stories(_history, tmp_path, range(seeds))
    assert came_back > 2 * seeds, "hardly anything came back: then this says nothing"


# ---- one by one ------------------------------------------------------------------------------------


async def _before(folder: Path) -> None:
    async with embedded(folder) as data, site(data) as first:
        (posts,) = await opened(first, [(SPACE, Posts, "p")])
        await first.space(SPACE).transact(posts.items.set, {"k0": 1, "k1": 1})
        await first.settled()
        await _check(posts)


def _writes(**items: int) -> Write:
    async def write(one: Site) -> None:
        posts: Any = one.space(SPACE).piece(Posts, "p")
        await one.space(SPACE).transact(lambda: [posts.items.key(key).set(n) for key, n in items.items()])

    return write


def _named(*names: str) -> set[str]:
    return {f"{SPACE}/p:{name}" for name in names}


def test_a_clean_one_does_not_run(tmp_path: Path) -> None:
    async def story() -> None:
        await _before(tmp_path)
        async with embedded(tmp_path) as data, site(data) as again:
            (posts,) = await opened(again, [(SPACE, Posts, "p")])
            assert again.taken() == set()
            await _check(posts)
            assert again.taken() == set()

    run(story)


def test_a_dirty_one_runs_by_itself_and_then_exactly_those_who_read_what_it_changed(tmp_path: Path) -> None:
    async def story() -> None:
        await _before(tmp_path)
        async with embedded(tmp_path) as data:
            await written(data, _writes(k1=5))
            async with site(data) as again:
                await opened(again, [(SPACE, Posts, "p")])
                assert again.taken() == _named("posted", "second", "both", "show")
            await written(data, _writes(k2=5))
            async with site(data) as again:
                await opened(again, [(SPACE, Posts, "p")])
                assert again.taken() == _named("posted"), "nobody reads what it wrote"

    run(story)


@pytest.mark.parametrize("demand", ["reader", "event"])
def test_a_dirty_one_runs_before_whoever_reads_inside_its_envelope(tmp_path: Path, demand: str) -> None:
    async def story() -> None:
        await _before(tmp_path)
        async with embedded(tmp_path) as data:
            await written(data, _writes(k0=5))
            async with site(data) as again:
                _, got = await _demanded(again, demand)
                assert got == 11
                assert again.order[0] == f"{SPACE}/p:posted"
                await again.settled()
                assert again.order.count(f"{SPACE}/p:posted") == again.order.count(f"{SPACE}/p:first") == 1

    run(story)


def test_a_reader_waits_for_one_that_waits_for_a_document(tmp_path: Path) -> None:
    async def story() -> None:
        await _before(tmp_path)
        async with embedded(tmp_path) as data:
            await written(data, _writes(k0=5))
            wire = Wire(data)
            wire.hold(_has("items"), alone=True)
            async with site(wire) as again:
                pulled = asyncio.ensure_future(_demanded(again, "reader"))
                await wire.holding.wait()
                for number in range(20):
                    await again.rt.cell(SPACE, f"nothing {number}", int, default=0).pull()
                assert not pulled.done(), "what it reads may still be written"
                wire.let_go()
                _, got = await pulled
                assert got == 11

    run(story)
