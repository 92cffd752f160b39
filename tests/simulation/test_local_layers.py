"""What is derived without the right to write stays in its process, whatever else happens there and elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import add, replace
from headwater.testing.simulation.attempts import CheckedTransaction
from headwater.testing.simulation.process import ReplicaProcess
from headwater.testing.simulation.server import READER
from headwater.testing.simulation.simulation import NO_FAULTS, Simulation

SOURCE, DERIVED = DocKey("space", "source"), DocKey("space", "derived")
OWN = DocKey(f"user:{READER}", "own")


def with_a_reader() -> Simulation:
    return Simulation(seed=1, users=("ann", READER), faults=NO_FAULTS, keeps_derived=True)


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with with_a_reader() as made:
        for process in made.replicas:
            process.watch(SOURCE)
            process.watch(DERIVED)
        made.replicas[1].watch(OWN)
        made.settle()
        write(made, 1)
        yield made


def write(sim: Simulation, n: int) -> None:
    patch = replace((), {"n": n}) if n == 1 else add(("n",), n)
    sim.replicas[0].transact(f"source {n}", lambda t: t.write(SOURCE, patch))
    sim.settle()


def derive(process: ReplicaProcess, tag: str) -> None:
    def work(t: CheckedTransaction) -> None:
        n = t.read(SOURCE, ("n",))
        assert isinstance(n, int)
        t.write(DERIVED, replace((), {"twice": 2 * n}))

    process.transact(tag, work, derived=True)
    process.flush()


def test_it_is_shown_here_and_nowhere_else(sim: Simulation) -> None:
    writer, reader = sim.replicas
    derive(reader, "derived")
    sim.settle()
    assert reader.replica.visible(DERIVED) == {"twice": 2}
    assert DERIVED not in sim.oracle.docs()
    assert writer.replica.visible(DERIVED) != {"twice": 2}


def test_it_yields_to_what_somebody_writes_in_its_place(sim: Simulation) -> None:
    writer, reader = sim.replicas
    derive(reader, "derived")
    sim.settle()
    writer.transact("by hand", lambda t: t.write(DERIVED, replace((), {"twice": 7})))
    sim.settle()
    assert reader.replica.visible(DERIVED) == {"twice": 7}
    assert sim.trace.counts["layers that yielded"] == 1


def test_a_commit_that_looked_at_it_lands_if_what_it_was_made_of_still_holds(sim: Simulation) -> None:
    reader = sim.replicas[1]
    derive(reader, "derived")
    sim.settle()
    intent = reader.transact("look", lambda t: t.write(OWN, replace((), {"saw": t.read(DERIVED, ("twice",))})))
    sim.settle()
    assert intent.status == "landed"
    assert sim.trace.counts["reads through a layer kept here"] > 0


def test_a_commit_that_looked_at_one_that_was_derived_again_lands(sim: Simulation) -> None:
    """What is derived again replaces what was derived before: nobody looks at that any more."""
    reader = sim.replicas[1]
    derive(reader, "derived")
    sim.settle()
    write(sim, 2)
    derive(reader, "derived again")
    sim.settle()
    assert reader.replica.visible(DERIVED) == {"twice": 4}
    intent = reader.transact("look", lambda t: t.write(OWN, replace((), {"saw": t.read(DERIVED, ("twice",))})))
    sim.advance(600_000_000)
    assert intent.status == "landed"
