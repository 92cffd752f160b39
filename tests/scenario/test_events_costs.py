"""What an event costs the store: transactions and syncs, counted where they happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from headwater import Cell, Link, Piece, Refused, cell, computed, handler, link
from headwater.engine.store.sqlite import SqliteStore
from headwater.runtime.binding.course import Course
from headwater.testing import Simulation
from headwater.testing.disk_model import DiskOp, OpKind
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
    """Store transactions that wrote something, and syncs, of all spaces."""

    def __init__(self) -> None:
        self.transactions = 0
        self.syncs = 0

    def happened(self, op: DiskOp) -> None:
        self.syncs += op.kind is OpKind.SYNC

    def __repr__(self) -> str:
        return f"{self.transactions} transactions and {self.syncs} syncs"


@contextmanager
def counting(sim: Simulation) -> Iterator[Spent]:
    spent = Spent()
    real = SqliteStore.commit

    def commit(self: SqliteStore) -> None:
        spent.transactions += 1
        real(self)

    disk = sim._server.disk
    with patch.object(SqliteStore, "commit", commit), patch.object(disk, "_on_op", spent.happened):
        yield spent


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
        till = await begun(sim)
        watched = till.taxed.sink(lambda _: None) if is_watched else None
        await sim.settle()
        with counting(sim) as spent:
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


def test_if_the_receipt_were_written_after_the_verdict_a_send_would_cost_two() -> None:
    """Counting sees it: the same story complains."""
    real = Course.settled

    def settled(self: Course, layer: Any, rejection: Any) -> None:
        real(self, layer, rejection)
        pieces = self._handling.pieces
        pieces.core.afterwards(lambda: pieces.runtime.space("s").cell("receipt", str).set(self._event.id))

    with patch.object(Course, "settled", settled):
        assert "costs 2 transactions and 2 syncs" in str(told(CASES["a handler"]))


async def a_second_delivery(sim: Simulation) -> list[str]:
    """What was handled is looked up, and nothing is written."""
    till = await begun(sim)
    await till.add.options(id="k").send(5)
    await sim.settle()
    with counting(sim) as spent:
        answer = await till.add.options(id="k").send(5)
        await sim.settle()
    return [] if answer == 5 and not spent.transactions else [f"told {answer}, for {spent}"]


def test_a_second_delivery_writes_nothing() -> None:
    assert told(a_second_delivery) == []
