"""I7 on branches: what is known of a node is known on one branch; forking, merging and deleting leave nothing known.

On every branch a process stays, in one directory; in another one a process comes back, on whichever branch. What was
known on the branch before decides what it runs. Nothing that was observed on one branch is believed on another one.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater import Cell, Input, Piece, cell, computed, effect, given
from headwater.protocol.commit import MAIN
from headwater.protocol.verdict import Accepted
from headwater.runtime import LocalDirectory
from tests.invariants.i07_kit import (
    Site,
    Write,
    asked,
    compared,
    count,
    embedded,
    opened,
    run,
    site,
    stories,
    written,
)

SPACE, STOCK = "shop", "stock"


class Sums(Piece, name="i07.Sums"):
    # No write draws a default: the first write of one runs no reader that is here, and others after a restart.
    a: Cell[int] = cell(default=4)
    b: Cell[int] = cell(default=5)
    c: Cell[int] = cell(default=6)

    @computed
    def left(self) -> int:
        return self.a.get() + self.b.get()

    @computed
    def right(self) -> int:
        return self.b.get() * self.c.get()

    @computed
    def larger(self) -> bool:
        return self.left.get() > self.right.get()

    @effect
    def show(self) -> None:
        self.larger.get(), self.left.get()


ALL = {f"{SPACE}/s:{name}" for name in ("left", "right", "larger", "show")}
CELLS = ("a", "b", "c")


def _change(rng: Random) -> Write:
    chosen = [(rng.choice(CELLS), rng.randrange(4)) for _ in range(rng.randrange(1, 3))]

    async def write(one: Site) -> None:
        sums: Any = one.space(SPACE).piece(Sums, "s")

        def act() -> None:
            for name, n in chosen:
                getattr(sums, name).set(n)

        await one.space(SPACE).transact(act)

    return write


async def _shown(one: Site) -> list[object]:
    sums: Any = one.space(SPACE).piece(Sums, "s")
    return [await getattr(sums, name).pull() for name in ("left", "right", "larger")]


class _Lives:
    """The processes that stay, one for each branch, and of which branches nothing is known."""

    def __init__(self, stays: LocalDirectory, comes: LocalDirectory, stack: AsyncExitStack) -> None:
        self.stays, self.comes = stays, comes
        self._stack = stack
        self.alive: dict[str, tuple[Site, AsyncExitStack]] = {}
        self.is_unknown: dict[str, bool] = {}
        self.due: dict[str, list[set[str]]] = {}  # what those that stayed ran, by write, since somebody came back there

    async def begin(self, branch: str) -> None:
        own = await self._stack.enter_async_context(AsyncExitStack())
        one = await own.enter_async_context(site(self.stays, {SPACE: branch}))
        await opened(one, [(SPACE, Sums, "s")])
        one.taken()
        self.alive[branch] = (one, own)
        self.is_unknown[branch], self.due[branch] = True, []

    async def write(self, branch: str, change: Write) -> None:
        heard = await written(self.stays, change, {SPACE: branch})
        await written(self.comes, change, {SPACE: branch})
        one, _ = self.alive[branch]
        await one.heard(heard)
        self.due[branch].append(one.taken())

    async def fork(self, name: str, parent: str) -> None:
        for data in (self.stays, self.comes):
            await asked(data, lambda engine: engine.fork(name, parent=parent), SPACE)
        await self.begin(name)

    async def merge(self, name: str) -> None:
        for branch in (MAIN, name):
            await self.come_back(branch)  # So that both have derived everything there.
        both = (self.stays, self.comes)
        found = [await asked(data, lambda engine: engine.diff(name), SPACE) for data in both]
        if any(diff.collisions or not diff.changes for diff in found):
            return
        for data in both:
            _, verdict = await asked(data, lambda engine: engine.merge(name), SPACE)
            assert isinstance(verdict, Accepted)
        one, _ = self.alive[MAIN]
        await one.heard({SPACE: await asked(self.stays, lambda engine: engine.last_seq, SPACE)})
        self.due[MAIN].append(one.taken())
        self.is_unknown[name] = True

    async def delete(self, name: str) -> None:
        _, own = self.alive.pop(name)
        await own.aclose()
        for data in (self.stays, self.comes):
            await asked(data, lambda engine: engine.delete_branch(name), SPACE)

    async def come_back(self, branch: str) -> int:
        one, _ = self.alive[branch]
        async with site(self.comes, {SPACE: branch}) as again:
            await opened(again, [(SPACE, Sums, "s")])
            ran = again.taken()
            if self.is_unknown[branch]:
                assert ran == ALL, f"something was known on {branch!r}: {sorted(ALL - ran)} did not run"
            else:
                expected = {name for due in self.due[branch] for name in due}
                assert ran <= expected, f"it ran {sorted(ran - expected)} in vain"
                if len(self.due[branch]) < 2:  # Of several writes the last may have made good what the others did.
                    compared(expected, ran, may_run_more=False)
            assert await _shown(again) == await _shown(one)
            assert not again.errors, again.errors_told
            self.is_unknown[branch], self.due[branch] = False, []
            one.taken()
            return len(ALL - ran)


async def _history(seed: int, folder: Path, steps: int = 14) -> int:
    rng = Random(seed)
    came_back, made = 0, 0
    async with AsyncExitStack() as stack:
        stays, comes = [await stack.enter_async_context(embedded(folder / name)) for name in ("stays", "comes")]
        lives = _Lives(stays, comes, stack)
        async with site(comes) as first:
            await opened(first, [(SPACE, Sums, "s")])
        await lives.begin(MAIN)
        lives.is_unknown[MAIN] = False
        for _ in range(steps):
            branches = list(lives.alive)
            branch = rng.choice(branches)
            leaf = rng.choice([name for name in branches if name != MAIN] or [""])
            match rng.choice(["write", "write", "write", "fork", "merge", "delete", "come", "come", "come"]):
                case "write":
                    await lives.write(branch, _change(rng))
                case "fork" if len(branches) < 4:
                    made += 1
                    await lives.fork(f"b{made}", MAIN)
                case "merge" if leaf:
                    await lives.merge(leaf)
                case "delete" if leaf and len(branches) > 2:
                    await lives.delete(leaf)
                case _:
                    came_back += await lives.come_back(branch)
        for branch in list(lives.alive):
            came_back += await lives.come_back(branch)
    return came_back


@pytest.mark.random
def test_what_is_known_is_known_on_one_branch_until_it_is_merged_or_deleted(tmp_path: Path) -> None:
    seeds = count(60)
    assert stories(_history, tmp_path, range(seeds)) > 4 * seeds, "hardly anything came back: then this says nothing"


# ---- a branch of another space ---------------------------------------------------------------------


class Seen(Piece, name="i07.Seen"):
    n: Input[int] = given()

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()

    @effect
    def show(self) -> None:
        self.twice.get()


async def _switched(folder: Path) -> None:
    """It read a branch of another space, and comes back while that is on another one."""
    async with embedded(folder) as data:
        for branch, expected in (("draft", 20), (MAIN, 8), ("draft", 20), ("draft", 20), (MAIN, 8), (MAIN, 8)):
            if not (folder / f"{STOCK}.space").exists():
                async with site(data) as first:
                    await opened(first, [(STOCK, Sums, "s")])
                await asked(data, lambda engine: engine.fork("draft"), STOCK)
                async with site(data, {STOCK: "draft"}) as other:
                    sums: Any = other.space(STOCK).piece(Sums, "s")
                    await other.space(STOCK).transact(sums.a.set, 10)
            async with site(data, {STOCK: branch}) as one:
                sums = one.space(STOCK).piece(Sums, "s")
                (seen,) = await opened(one, [(SPACE, Seen(n=sums.a), "v")])
                assert await seen.twice.pull() == expected
                assert not one.errors, one.errors_told


async def _same_branch(folder: Path) -> None:
    async with embedded(folder) as data:
        async with site(data) as first:
            await opened(first, [(STOCK, Sums, "s")])
        await asked(data, lambda engine: engine.fork("draft"), STOCK)
        for ran in ({f"{SPACE}/v:twice", f"{SPACE}/v:show"}, set(), set()):
            async with site(data, {STOCK: "draft"}) as one:
                sums: Any = one.space(STOCK).piece(Sums, "s")
                await opened(one, [(SPACE, Seen(n=sums.a), "v")])
                assert one.taken() == ran
        await asked(data, lambda engine: engine.delete_branch("draft"), STOCK)


def test_what_was_read_of_another_branch_of_another_space_is_unknown(tmp_path: Path) -> None:
    run(lambda: _switched(tmp_path))


def test_on_the_same_branch_of_another_space_it_comes_back(tmp_path: Path) -> None:
    run(lambda: _same_branch(tmp_path))
