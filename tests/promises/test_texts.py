"""Statements of the texts about messages, options and diagnosis."""

from __future__ import annotations

import itertools

import pytest

import headwater
from headwater import (
    AuthoringError,
    Cell,
    Piece,
    PreconditionFailedError,
    Topic,
    cell,
    computed,
    handler,
    reaction,
    topic,
)
from headwater.data.address import DocKey
from headwater.protocol.commit import EntityAbsent, LeaseHeld, OriginCommitted, Precondition
from headwater.testing import Simulation, simulated


@simulated(seeds=1, faults=())
async def test_failed_precondition_is_named(sim: Simulation) -> None:
    space = sim.runtime("ann").space("s")
    space.cell("made", int).set(1)
    await sim.settle()

    async def rejected(condition: Precondition) -> PreconditionFailedError:
        with pytest.raises(PreconditionFailedError) as raised:
            await space.land(lambda transaction: transaction.preconditions.append(condition))
        return raised.value

    error = await rejected(EntityAbsent(DocKey("space", "made")))
    assert error.precondition == "entity_absent"
    assert "its precondition entity_absent is false: space:made was already created" in str(error)
    error = await rejected(OriginCommitted(2))  # the commit that was just rejected
    assert error.precondition == "origin_committed"
    assert "its precondition origin_committed is false: its origin, commit 2" in str(error)
    error = await rejected(LeaseHeld("jobs", 1))
    assert error.precondition == "lease_held"
    assert "its precondition lease_held is false: lease 'jobs'" in str(error)


def test_unknown_option_of_a_reaction_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"@reaction\(retries=\.\.\.\) has no such option: .*max_retries"):

        class Cart(Piece):
            placed: Topic[str] = topic()

            @reaction(on=placed, retries=3)  # type: ignore[call-overload, untyped-decorator]
            async def mail(self, order: str) -> None: ...


class Counted(Piece):
    n: Cell[int] = cell(default=1)

    @computed
    def twice(self) -> int:
        return self.n.get() * 2

    @handler
    def add(self) -> None:
        self.n.increment(1)


@simulated(seeds=1, faults=())
async def test_introspection_is_public(sim: Simulation) -> None:
    """Its operations, with the types that an application can name."""
    rt = sim.runtime("ann")
    counted = await rt.space("s").open(Counted, "p")
    looking = rt.introspection
    looking.traces.switch("Ran", on=True)
    looking.run_stats.switch(on=True)
    stops: list[headwater.Pause] = []
    remove = looking.breakpoints.add("s/p:twice", stops.append)
    assert await counted.twice.pull() == 2
    await counted.add.send()
    assert await counted.twice.pull() == 4
    remove()
    snapshot: headwater.GraphSnapshot = looking.snapshot()
    record: headwater.NodeRecord = snapshot.node("s/p:twice")
    stats: headwater.NodeStats = looking.node_stats("s/p:twice")
    total: headwater.Stats = looking.stats()
    why: headwater.Explanation = looking.why("s/p:twice")
    events: list[headwater.TraceEvent] = looking.traces.events()
    assert (record.runs, stats.runs, len(stops)) == (2, 2, 2)
    assert total.nodes == len(snapshot.nodes)
    assert "s/p:twice" in str(why)
    assert "s/p:twice" in [event.node for event in events]
    assert "digraph" in looking.dot()
    assert isinstance(looking, headwater.Introspection)


numbers = itertools.count()


class Odd(Piece):
    n: Cell[int] = cell(default=0)

    @computed
    def number(self) -> int:
        return self.n.get() + next(numbers)

    @computed
    def pure(self) -> int:
        return self.n.get()


@simulated(seeds=1, faults=())
async def test_expected_run_that_is_not_idempotent_does_not_fail_a_test(sim: Simulation) -> None:
    odd = sim.runtime("ann").space("s").piece(Odd, "p")
    with sim.expect_non_idempotent(Odd.number):
        await odd.number.pull()
        await odd.pure.pull()


def test_unexpected_run_that_is_not_idempotent_fails_a_test() -> None:
    @simulated(seeds=1, faults=())
    async def looks(sim: Simulation) -> None:
        await sim.runtime("ann").space("s").piece(Odd, "p").number.pull()

    with pytest.raises(AssertionError, match="s/p:number is not idempotent"):
        looks()


@simulated(seeds=1, faults=())
async def test_expected_run_that_is_idempotent_fails_a_test(sim: Simulation) -> None:
    odd = sim.runtime("ann").space("s").piece(Odd, "p")

    async def look() -> None:
        with sim.expect_non_idempotent(Odd.number, Odd.pure):
            await odd.number.pull()
            await odd.pure.pull()

    with pytest.raises(AssertionError, match=r"expected not to be idempotent, and nothing was found: .*Odd\.pure"):
        await look()
