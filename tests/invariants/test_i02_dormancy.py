"""I2: a node that is never live never runs. Registering, invalidating and removing dormant nodes reads nothing."""

from __future__ import annotations

import random

import pytest

from headwater.data.trace import Demanded, Suspended
from headwater.replica import Replica
from headwater.scheduler import SchedulerLimits
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.graphs import Built, random_plan
from headwater.testing.scheduler.kit import World
from tests.counts import scaled


@pytest.mark.random
@pytest.mark.parametrize("cycles", [False, True], ids=["acyclic", "cyclic"])
def test_without_a_demand_nothing_ever_runs(cycles: bool) -> None:
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world = World(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        built = Built(world, random_plan(rng, cycles=cycles, effects=0))
        for name in built.plan.nodes:
            built.register(name)
        for _ in range(6):
            built.change(rng)
            if rng.random() < 0.3:
                name = rng.choice(list(built.plan.nodes))
                world.scheduler.remove(world.node(name))
                built.register(name)
            world.settle()
        assert all(node.attempts == 0 for node in world.nodes()), f"seed {seed}"
        assert world.driver.ticks == 0, f"seed {seed}"


@pytest.mark.random
def test_what_lost_its_demand_does_not_run_until_it_is_demanded_again() -> None:
    """Random effects come and go; whoever is dormant while a change settles does not run in it."""
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world = World(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        built = Built(world, random_plan(rng, cycles=rng.random() < 0.3))
        for name in [*built.plan.nodes, *built.plan.effects]:
            built.register(name)
        world.settle()
        world.advance(10_000)
        for _ in range(8):
            name = rng.choice(list(built.plan.effects))
            if world.scheduler.find(name) is None:
                built.register(name)
                world.settle()
                world.advance(10_000)
            elif rng.random() < 0.4:
                world.scheduler.remove(world.node(name))
            before = {node.id for node in world.nodes() if node.live}
            world.forget()
            built.change(rng)
            world.settle()
            world.advance(10_000)
            demanded = {event.node for event in world.trace.of(Demanded)}
            waited_for = {target for event in world.trace.of(Suspended) for target in event.waits_for}
            dormant = set(world.ran()) - before - demanded - waited_for
            assert dormant == set(), f"seed {seed}: ran without demand"
            check_world(world, heights=False)


def test_registering_reads_and_fetches_nothing() -> None:
    """Neither its inputs nor its output are fetched before somebody demands it."""
    world = World(lazy=True)
    source = world.absent_cell("source")
    for index in range(50):
        world.computed(source.get, id=f"n{index}")
    world.settle()
    assert world.driver.load_count == 0
    assert world.driver.ticks == 0
    assert not Replica().documents.held()
    world.look(world.absent_cell("n7"))
    world.settle()
    assert {document.key.id for document in world.driver.asked} <= {"n7", "source"}


def test_a_dormant_node_stays_subscribed_and_is_marked_at_no_other_cost() -> None:
    world = World()
    source, is_on = world.cell(0), world.cell(True)
    result = world.computed(lambda: source.get() + 1, id="result")
    seen: list[object] = []
    world.effect(lambda: seen.append(result.get() if is_on.get() else "off"), id="eye")
    world.settle()
    is_on.set(False)
    world.settle()
    ticks = world.driver.ticks
    for value in range(1, 100):
        source.set(value)
    assert world.driver.ticks == ticks
    assert world.ran_after(lambda: is_on.set(True)) == ["result", "eye"]
    assert seen == [1, "off", 100]


def test_whoever_lost_its_demand_while_it_waited_for_others_does_not_run_and_nor_do_they() -> None:
    """Slices of one attempt: the effect goes while what it needs waits for what that needs."""
    world = World(limits=SchedulerLimits(slice_runs=1, nested_depth=0))
    source, is_on = world.cell(0), world.cell(False)
    low = world.computed(source.get, id="low")
    high = world.computed(lambda: low.get() if is_on.get() else 0, id="high")
    eye = world.effect(high.get, id="eye")
    world.settle()
    is_on.set(True)
    world.tick()
    assert [node.id for node in world.nodes() if node.suspended] == ["high"]
    world.scheduler.remove(eye)
    world.forget()
    world.settle()
    assert world.ran() == []
    assert world.node("low").attempts == 0
    assert world.scheduler.is_quiet()
    world.effect(high.get, id="eye")
    world.settle()
    assert world.ran() == ["low", "high", "eye"]
