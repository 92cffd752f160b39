"""What one record costs, from the event that emits it to its acknowledgement: counted, never timed."""

from __future__ import annotations

import asyncio

from headwater import Piece, Topic, handler, reaction, topic
from headwater.engine import Engine
from headwater.protocol.messages import FromReplica
from headwater.protocol.reactions import Claim, Finish
from headwater.testing import Simulation
from tests.scenario.events_kit import told
from tests.scenario.test_events_costs import Spent

RECORDS = 40
SLOTS = 16
"""Targets that a worker delivers to at once, unless told otherwise."""
BEGUN: list[int] = []


class Counted(Piece, name="cost.Counted"):
    asked: Topic[int] = topic()

    @handler
    def ask(self, number: int) -> None:
        self.asked.emit(number)

    @reaction(on=asked)
    async def does(self, number: int) -> None:
        BEGUN.append(number)


class Counts:
    """Store transactions of the server of a simulation, and what workers ask it."""

    def __init__(self, sim: Simulation) -> None:
        self.spent = Spent(sim)
        self.claims = self.outcomes = 0
        sim.server.front = self._arrived

    def clear(self) -> None:
        self.spent.clear()
        self.claims = self.outcomes = 0

    def _arrived(self, engine: Engine, message: FromReplica) -> FromReplica:
        self.claims += isinstance(message, Claim)
        self.outcomes += isinstance(message, Finish)
        return message


async def a_record_after_another(sim: Simulation) -> list[str]:
    BEGUN.clear()
    counts = Counts(sim)
    rt = sim.runtime("ann")
    piece = await rt.space("shop").open(Counted, "one")
    await piece.ask.send(-1)
    await rt.reactions.drained()
    BEGUN.clear()
    counts.clear()
    for number in range(RECORDS):
        await piece.ask.send(number)
        while not BEGUN or BEGUN[-1] != number:
            await sim.advance(seconds=0.001)
    claims, transactions = counts.claims, counts.spent.transactions
    await rt.reactions.drained()
    wrong = [] if list(range(RECORDS)) == BEGUN else [f"{BEGUN} was begun"]
    # What is left of a claim lasts for as many records as the worker has slots, or for half of them, where the
    # acknowledgement of one comes before the next is emitted and where it comes after it.
    if claims > 2 * RECORDS / SLOTS + 2:
        wrong.append(f"{claims} claims")
    return wrong if transactions <= 2 * RECORDS + claims + 2 else [*wrong, f"{transactions} transactions"]


def test_a_record_costs_its_commit_and_its_acknowledgement_and_hardly_a_claim() -> None:
    assert told(a_record_after_another) == []


async def records_of_many_targets(sim: Simulation) -> list[str]:
    counts = Counts(sim)
    rt = sim.runtime("ann")
    space = rt.space("shop")
    pieces = [await space.open(Counted, f"piece {number}") for number in range(RECORDS)]
    await pieces[0].ask.send(-1)
    await rt.reactions.drained()
    await rt.reactions.pause("cost.Counted.does")
    await asyncio.gather(*(piece.ask.send(number) for number, piece in enumerate(pieces)))
    BEGUN.clear()
    counts.clear()
    await rt.reactions.resume("cost.Counted.does")
    await rt.reactions.drained()
    wrong = [] if sorted(BEGUN) == list(range(RECORDS)) else [f"{BEGUN} was begun"]
    asked = counts.claims + counts.outcomes
    return wrong if asked <= RECORDS / 4 else [*wrong, f"{asked} claims and outcomes for {RECORDS} records"]


def test_records_of_many_targets_at_once_are_claimed_together() -> None:
    assert told(records_of_many_targets) == []
