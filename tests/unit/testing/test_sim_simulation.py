"""The simulation as an author uses it: processes, a clock, a network and faults, driven by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import append, increment, replace
from headwater.engine.sync.hub import Hub
from headwater.engine.sync.peer import Peer
from headwater.errors import AuthoringError
from headwater.protocol.messages import DocChange
from headwater.testing.simulation.attempts import CheckedTransaction
from headwater.testing.simulation.simulation import NO_FAULTS, Load, RuleBroken, Simulation, run_seeds

CART = DocKey("space", "cart")
COUNT = DocKey("space", "count")


def calm(seed: int = 0, replicas: int = 2) -> Simulation:
    return Simulation(seed=seed, users=("ann", "bob", "cyd")[:replicas], faults=NO_FAULTS)


def test_replicas_write_at_once_and_hear_each_other() -> None:
    with calm() as sim:
        ann, bob = sim.replicas
        ann.watch(CART)
        bob.watch(CART)
        sim.settle()
        intent = ann.transact("tea", lambda t: t.write(CART, append((), ["tea"])))
        assert ann.replica.visible(CART) == ("tea",)
        assert not intent.is_over
        sim.settle()
        assert [attempt.seq for attempt in intent.attempts] == [2]  # the space was founded at 1
        assert bob.replica.visible(CART) == ("tea",)


def test_a_conflicted_transaction_is_run_again_until_it_lands() -> None:
    def count(t: CheckedTransaction) -> None:
        n = t.read(COUNT)
        t.write(COUNT, replace((), n + 1 if isinstance(n, int) else 1))

    with calm(replicas=3) as sim:
        for process in sim.replicas:
            process.watch(COUNT)
        sim.settle()
        intents = [process.transact(f"{process.name}-{n}", count) for n in range(4) for process in sim.replicas]
        sim.settle()
        assert {intent.status for intent in intents} == {"landed"}
        assert [process.replica.visible(COUNT) for process in sim.replicas] == [12, 12, 12]


def test_a_replica_works_offline_and_is_heard_when_it_is_back() -> None:
    with calm() as sim:
        ann, bob = sim.replicas
        ann.watch(COUNT)
        bob.watch(COUNT)
        sim.settle()
        sim.offline(ann, for_us=3_600_000_000)
        ann.transact("offline", lambda t: t.write(COUNT, increment((), 5)))
        bob.transact("online", lambda t: t.write(COUNT, increment((), 2)))
        sim.advance(60_000_000)
        assert (ann.replica.visible(COUNT), bob.replica.visible(COUNT)) == (5, 2)
        sim.advance(3_600_000_000)
        sim.settle()
        assert (ann.replica.visible(COUNT), bob.replica.visible(COUNT)) == (7, 7)


def test_what_was_acknowledged_survives_a_crash_of_everybody() -> None:
    with calm() as sim:
        ann, bob = sim.replicas
        ann.watch(CART)
        bob.watch(CART)
        sim.settle()
        ann.transact("tea", lambda t: t.write(CART, append((), ["tea"])))
        sim.settle()
        sim.crash(sim.server, down_us=5_000_000)
        sim.crash(ann)
        sim.crash(bob)
        sim.settle()
        ann.watch(CART)
        sim.settle()
        assert ann.replica.visible(CART) == ("tea",)
        assert sim.server.restarts == 1


def test_a_partition_is_weathered() -> None:
    with calm() as sim:
        ann, bob = sim.replicas
        ann.watch(COUNT)
        bob.watch(COUNT)
        sim.settle()
        sim.partition(ann, for_us=90_000_000)
        ann.transact("a", lambda t: t.write(COUNT, increment((), 1)))
        bob.transact("b", lambda t: t.write(COUNT, increment((), 1)))
        sim.advance(100_000_000)
        sim.settle()
        assert ann.replica.visible(COUNT) == 2


def test_a_pause_inside_a_transaction_keeps_its_snapshot() -> None:
    seen = []

    def slow(t: CheckedTransaction):  # type: ignore[no-untyped-def]
        seen.append(t.read(COUNT))
        yield 10_000_000
        seen.append(t.read(COUNT))

    with calm() as sim:
        ann, bob = sim.replicas
        ann.watch(COUNT)
        bob.watch(COUNT)
        sim.settle()
        ann.transact("slow", slow)
        bob.transact("b", lambda t: t.write(COUNT, replace((), 1)))
        sim.advance(5_000_000)
        assert ann.replica.visible(COUNT) == 1
        sim.advance(10_000_000)
        assert seen[0] is seen[1]


def test_a_broken_rule_is_raised_with_its_seed_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(self: Peer, change: DocChange) -> None:
        """Nobody is told of changes."""

    monkeypatch.setattr(Peer, "note_change", deaf)
    with Simulation(seed=0) as sim, pytest.raises(RuleBroken, match="seed 0: ") as caught:
        sim.play()
    assert caught.value.findings[0].rule in ("C3", "convergence")
    assert "BROKEN" in "\n".join(sim.trace.lines())


def test_a_run_of_seeds_counts_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    summary = run_seeds(3, start=7, progress=lambda done, broken: told.append((done, broken)))
    assert told == [(1, 0), (2, 0), (3, 0)]
    assert summary.seeds == 3
    assert summary.commits > 0
    monkeypatch.setattr(Hub, "process", None)  # a defect that is no broken rule is not hidden
    with pytest.raises(TypeError):
        run_seeds(1)


def test_a_run_of_seeds_stops_after_enough_broken_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "note_change", lambda self, change: None)
    summary = run_seeds(50, stop_at=3)
    assert len(summary.broken) == 3
    assert summary.seeds < 50
    assert "seed " in str(summary)


def test_a_load_can_be_chosen() -> None:
    with Simulation(seed=1, replicas=1, faults=NO_FAULTS, load=Load(steps=(1, 1))) as sim:
        sim.play()
        assert len(sim.replicas[0].intents) <= 4


def test_there_are_only_so_many_users() -> None:
    with pytest.raises(AuthoringError, match="use 1 to 5"):
        Simulation(seed=0, replicas=6)


def test_a_seed_is_replayed_from_the_command_line() -> None:
    command = [sys.executable, "-m", "headwater.testing.simulation.simulation"]
    one = subprocess.run([*command, "--seed", "5"], capture_output=True, text=True, check=True)
    assert one.stdout.rstrip().endswith("every rule held")
    assert "connects 1" in one.stdout
    again = subprocess.run([*command, "--seed", "5"], capture_output=True, text=True, check=True)
    assert again.stdout == one.stdout
    many = subprocess.run([*command, "--seeds", "3", "--start", "2"], capture_output=True, text=True, check=True)
    assert many.stdout.startswith("3 histories, ")
    wrong = subprocess.run([*command, "--sed", "3"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
