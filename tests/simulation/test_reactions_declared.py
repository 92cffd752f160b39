"""Runtimes whose commits declare who hears of what they emit, under every fault of the simulation.

Two runtimes emit to the topic of a child whose class has no handler that anybody calls, so that nothing declares its
reaction but these commits and whoever serves it; the network, the disk and the clock misbehave, the disk mostly where
something is declared, and whoever emitted first often dies right behind it. In the end every record that is in the log
was delivered, in order.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from headwater import Cell, Piece, Topic, cell, child, handler, reaction, topic
from headwater.engine.store.port import SubscriptionRow
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import HeadwaterError, StorageError
from headwater.testing import Simulation
from headwater.testing.author.faults import FAULTS
from headwater.testing.author.seeds import run_seed
from tests.counts import scaled

SEEN: dict[str, list[int]] = {}


class Box(Piece, name="reactions_declared.Box"):
    numbers: Topic[int] = topic()

    @reaction(on=numbers, max_retries=200)
    async def see(self, number: int) -> None:
        SEEN.setdefault(self.ctx.name, []).append(number)


class Shop(Piece, name="reactions_declared.Shop"):
    count: Cell[int] = cell(default=0)

    @child
    def box(self) -> Box:
        return Box()

    @handler
    def go(self) -> None:
        number = self.count.get() + 1
        self.count.set(number)
        self.box.get().numbers.emit(number)


class Refusals:
    """The disk refuses half of what is declared, until it was refused often."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left = 8

    def declare(self) -> None:
        if self._left and self._random.random() < 0.5:
            self._left -= 1
            raise StorageError("the disk is full (planted)")

    def store(self, path: str, *, vfs: str) -> SqliteStore:
        return Refusing(path, vfs, self)


class Refusing(SqliteStore):
    """A store that cannot keep every subscription."""

    def __init__(self, path: str, vfs: str, refusals: Refusals) -> None:
        super().__init__(path, vfs=vfs)
        self.refusals = refusals

    @property
    def delivery(self) -> Any:
        return RefusingTables(super().delivery, self.refusals)


class RefusingTables:
    def __init__(self, tables: Any, refusals: Refusals) -> None:
        self._tables = tables
        self._refusals = refusals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    def put_subscription(self, row: SubscriptionRow) -> None:
        self._refusals.declare()
        self._tables.put_subscription(row)


async def _emits(sim: Simulation, who: str, name: str, random: Random) -> None:
    for _ in range(5):
        try:
            shop = await asyncio.wait_for(sim.runtime(who).space("s").open(Shop, name), 60)
            if random.random() < 0.3:
                shop.go.post()
            else:
                await asyncio.wait_for(shop.go.send(), 60)
        except (HeadwaterError, TimeoutError):
            pass  # Whether it landed is in the log.
        await asyncio.sleep(random.random())


async def _story(sim: Simulation, seed: int) -> None:
    SEEN.clear()
    random = Random(seed)
    for who in ("ann", "bob"):
        sim.runtime(who, reacts=False)  # They emit, and leave delivering to the last one.
    tasks = [asyncio.ensure_future(_emits(sim, who, name, random)) for who in ("ann", "bob") for name in "ab"]
    await asyncio.sleep(random.random())
    for who in random.sample(("ann", "bob", "server"), random.randrange(1, 4)):
        await sim.crash(who)
        await asyncio.sleep(random.random() * 2)
    await asyncio.wait(tasks, timeout=600)
    for task in tasks:
        task.cancel()
    last = sim.runtime("cid")
    shops = {name: await last.space("s").open(Shop, name) for name in "ab"}
    await asyncio.wait_for(last.reactions.drained(), 3_000)
    for name, shop in shops.items():
        seen = [number for whose, numbers in SEEN.items() if whose.startswith(name) for number in numbers]
        wanted = list(range(1, await shop.count.pull() + 1))
        assert list(dict.fromkeys(seen)) == wanted, f"{name}: {SEEN} of {wanted}"


@pytest.mark.random
@pytest.mark.parametrize("seed", range(scaled(200)))
def test_what_a_commit_emits_has_somebody_who_hears_of_it_whatever_fails(seed: int) -> None:
    async def test(sim: Simulation) -> None:
        sim.server.open_store = Refusals(Random(f"disk {seed}")).store
        await _story(sim, seed)

    run_seed(test, seed, FAULTS)
