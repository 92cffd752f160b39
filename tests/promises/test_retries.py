"""What bounds retries: the window of an event, and the attempts and delays of a reaction."""

from __future__ import annotations

import asyncio

from headwater import Cell, Piece, Topic, cell, handler, reaction, topic
from headwater.testing import Simulation, simulated

SPACE = "desk"
OUTAGE_S = 30


class Counter(Piece, name="promises.Counter"):
    n: Cell[int] = cell(default=0)

    @handler(retries=1)
    def up(self) -> None:
        self.n.set(self.n.get() + 1)


@simulated(seeds=4, faults=("delay",))
async def test_a_positive_number_of_retries_does_not_bound_conflicts(sim: Simulation) -> None:
    counters = [await sim.runtime(name).space(SPACE).open(Counter, "c") for name in ("ann", "bob", "cyd", "dan")]
    await sim.settle()
    await asyncio.gather(*(counter.up.options(retries=2).send() for counter in counters for _ in range(3)))
    await sim.settle()
    assert [counter.n.get() for counter in counters] == [12] * 4


class Mail(Piece, name="promises.Mail"):
    sent: Cell[tuple[str, ...]] = cell(default=())
    letters: Topic[str] = topic()

    @handler
    def write(self, text: str) -> None:
        self.letters.emit(text)

    @handler
    def note(self, text: str) -> None:
        self.sent.push(text)

    @reaction(on=letters, then=note)
    async def deliver(self, text: str) -> str:
        if IS_DOWN:
            raise ConnectionError("the mail server is down")
        return text


IS_DOWN: list[bool] = []


@simulated(seeds=4, faults=())
async def test_the_default_retries_of_a_reaction_outlast_a_short_outage(sim: Simulation) -> None:
    mail = await sim.runtime("ann").space(SPACE).open(Mail, "m")
    await sim.settle()
    IS_DOWN[:] = [True]
    await mail.write.send("hello")
    await sim.advance(seconds=OUTAGE_S)
    IS_DOWN.clear()
    await sim.advance(seconds=60)
    await sim.settle()
    assert mail.sent.get() == ("hello",)
