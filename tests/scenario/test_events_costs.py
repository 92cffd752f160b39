"""What an event costs the store: transactions and syncs, counted where they happen."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Cell, Link, Piece, Refused, cell, computed, handler, link
from headwater.engine.store.sqlite import SqliteStore
from headwater.testing import Simulation
from headwater.testing.disk.model import DiskOp, OpKind
from tests.scenario.events_kit import outcome, told


class Till(Piece, name="costs.Till"):
    lines: Cell[tuple[int, ...]] = cell(default=())
    far: Cell[Link[Till] | None] = cell(default=None)

    @computed
    def total(self) -> int:
        return sum(self.lines.get())

    @computed
    def taxed(self) -> int:
        return self.total.get() * 2

    @handler
    def add(self, cents: int) -> int:
        self.lines.push(cents)
        return cents

    @handler
    def look(self) -> int:
        """Writes nothing."""
        return len(self.lines.get())

    @handler
    def read(self) -> int:
        self.lines.set((self.taxed.get(),))
        return self.taxed.get()

    @handler
    def twice(self, cents: int) -> None:
        self.lines.push(cents)
        self.add.post(cents)

    @handler
    def elsewhere(self, cents: int) -> None:
        there = self.far.get()
        assert there is not None
        self.ctx.follow(there).add.post(cents)

    @handler
    def refuse(self) -> None:
        raise Refused("no")


class Spent:
    """Store transactions that wrote something, and syncs, of all spaces of a simulated server."""

    def __init__(self, sim: Simulation) -> None:
        """Made before the first space is opened: the stores that are opened from now on are counted."""
        self.transactions = 0
        self.syncs = 0
        sim.server.open_store = self._open
        sim.server.disk.on_op = self._happened

    def clear(self) -> None:
        self.transactions = self.syncs = 0

    def _open(self, path: str, *, vfs: str) -> SqliteStore:
        return CountingStore(path, vfs=vfs, spent=self)

    def _happened(self, op: DiskOp) -> None:
        self.syncs += op.kind is OpKind.SYNC

    def __repr__(self) -> str:
        return f"{self.transactions} transactions and {self.syncs} syncs"


class CountingStore(SqliteStore):
    """The store that ships, with its transactions counted."""

    def __init__(self, path: str, *, vfs: str, spent: Spent) -> None:
        super().__init__(path, vfs=vfs)
        self._spent = spent

    def commit(self) -> None:
        self._spent.transactions += 1
        super().commit()


async def begun(sim: Simulation) -> Till:
    space = sim.runtime("ann").space("s")
    till = await space.open(Till, "t")
    there = await sim.runtime("ann").space("t").open(Till, "u")
    till.far.set(link(there))
    for each in (till, there):
        await each.add.send(1)
    await sim.settle()
    return till


def costs(name: str, *args: Any, most: int, is_watched: bool = False, options: dict[str, Any] | None = None) -> Any:
    """A story: sending this costs so much, until everything is at rest again."""

    async def story(sim: Simulation) -> list[str]:
        spent = Spent(sim)
        till = await begun(sim)
        watched = till.taxed.sink(lambda _: None) if is_watched else None
        await sim.settle()
        spent.clear()
        await outcome(getattr(till, name).options(**(options or {})).send(*args))
        await sim.settle()
        if watched is not None:
            watched.close()
        is_fine = spent.transactions <= most and spent.syncs <= most and (not most or spent.transactions)
        return [] if is_fine else [f"{name} costs {spent}, and {most} of each would do"]

    return story


CASES = {
    "a handler": costs("add", 5, most=1),
    "a handler that writes nothing": costs("look", most=1),
    "a handler and its wave": costs("add", 5, most=2, is_watched=True),
    "what it reads, the handler, and its wave": costs("read", most=3, is_watched=True),
    "a handler and a follow-up": costs("twice", 5, most=2),
    "a follow-up in another space, and that it is over": costs("elsewhere", 5, most=3),
    "a refusal": costs("refuse", most=0),
    "a handler whose event is stored before": costs("add", 5, most=2, options={"durable": True}),
    "a handler with an id of its sender's": costs("add", 5, most=1, options={"id": "k"}),
}


@pytest.mark.parametrize("story", CASES.values(), ids=[name.replace(" ", "_") for name in CASES])
def test_an_event_costs_one_transaction_and_one_sync_and_its_wave_at_most_one_more(story: Any) -> None:
    assert told(story) == []


async def a_second_delivery(sim: Simulation) -> list[str]:
    """What was handled is looked up, and nothing is written."""
    spent = Spent(sim)
    till = await begun(sim)
    await till.add.options(id="k").send(5)
    await sim.settle()
    spent.clear()
    answer = await till.add.options(id="k").send(5)
    await sim.settle()
    return [] if answer == 5 and not spent.transactions else [f"told {answer}, for {spent}"]


def test_a_second_delivery_writes_nothing() -> None:
    assert told(a_second_delivery) == []
