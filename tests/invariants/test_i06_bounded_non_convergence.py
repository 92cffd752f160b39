"""I6: what does not converge is bounded within a pass, goes on behind growing gates only, and starves nobody."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from headwater.data.trace import PassEnded, Ran, TraceEvent
from headwater.scheduler import SchedulerLimits
from headwater.testing.scheduler.checks import check_world, unsettled
from headwater.testing.scheduler.graphs import FAILING, Built, random_plan
from headwater.testing.scheduler.kit import Handle, World
from tests.counts import scaled


def passes(events: list[TraceEvent]) -> list[Counter[str]]:
    """Runs of each node, by pass."""
    found: list[Counter[str]] = [Counter()]
    for event in events:
        if isinstance(event, PassEnded):
            found.append(Counter())
        elif isinstance(event, Ran):
            found[-1][event.node] += 1
    return found


def wild(world: World, rng: random.Random, size: int, gates: tuple[dict[str, Any], ...] = ({},)) -> list[Handle]:
    """Counters that read each other at random and never come to rest."""
    handles = [world.cell(0, id=f"wild{index}") for index in range(size)]
    for index in range(size):
        read = rng.sample(handles, rng.randint(1, min(3, size)))
        world.computed(
            lambda read=read: max(handle.get() for handle in read) + 1,  # type: ignore[misc]
            id=f"wild{index}",
            output=handles[index].document,
            **rng.choice(gates),
        )
    return handles


@pytest.mark.random
def test_passes_and_waits_are_bounded_whatever_the_graph() -> None:
    """Random graphs of counters that feed each other: every settle ends, every pass keeps its bounds, time goes on."""
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        limits = SchedulerLimits(pass_iterations=rng.choice((2, 5, 10)), node_runs=rng.choice((2, 5, 10)))
        world = World(limits=limits)
        handles = wild(world, rng, rng.randint(2, 8))
        for handle in rng.sample(handles, rng.randint(1, len(handles))):
            world.effect(handle.get)
        calm = world.cell(0)
        seen = world.look(calm)
        for turn in range(1, 5):
            before = sum(node.runs for node in world.nodes())
            world.settle(50)
            runs = sum(node.runs for node in world.nodes()) - before
            assert runs <= 4 * limits.node_runs * len(world.nodes()), f"seed {seed}: {runs} runs without a pause"
            calm.set(turn)
            world.settle(50)
            assert seen[-1] == turn, f"seed {seed}: others are starved"
            world.advance(rng.choice((1, 100, 300, 2_500)))
            check_world(world, heights=False)
        for counts in passes(list(world.trace.events)):
            assert all(count <= limits.node_runs for count in counts.values()), f"seed {seed}: {counts}"
        assert unsettled(world) == [], f"seed {seed}"


def wait_for_idle(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    for handle in wild(world, rng, rng.randint(2, 6)):
        world.effect(handle.get)
    world.settle(50)
    for _ in range(40):
        if world.scheduler.is_quiet():
            break
        at = world.driver.timer_at
        assert at is not None, f"seed {seed}: it waits for nothing"
        world.advance((at - world.clock.monotonic_us()) / 1_000)
    assert world.scheduler.is_quiet(), f"seed {seed}: idle never comes"
    assert world.clock.monotonic_us() <= 5_000_000, f"seed {seed}"


@pytest.mark.random
def test_idle_comes_whatever_the_graph() -> None:
    """Nobody holds up those who wait for quiet for longer than its third exhaustion."""
    for seed in range(scaled(2_500)):
        wait_for_idle(seed)


@pytest.mark.parametrize("seed", [414])
def test_idle_comes_where_it_once_did_not(seed: int) -> None:
    """A part of a cycle was forgiven each time because the rest of it was held back."""
    wait_for_idle(seed)


@pytest.mark.random
def test_graphs_that_can_converge_do() -> None:
    """Cyclic graphs of rules with few values: either at rest, or held back by a gate that opens again."""
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world = World()
        built = Built(world, random_plan(rng, cycles=True, kinds=FAILING))
        for name in [*built.plan.nodes, *built.plan.effects]:
            built.register(name)
        for _ in range(4):
            world.settle(50)
            assert unsettled(world) == [], f"seed {seed}"
            built.change(rng)
            world.advance(rng.choice((0, 200, 3_000)))
        waiting = [node for node in world.nodes() if node.is_runnable]
        if waiting:
            assert world.driver.timer_at is not None, f"seed {seed}"
        else:
            world.advance(10_000)
            assert world.driver.timer_at is None, f"seed {seed}"


@pytest.mark.random
def test_slices_of_one_attempt_keep_the_same_bounds() -> None:
    """Cyclic graphs while cells change and nodes go between two attempts: it comes to rest, or waits for a gate."""
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world = World(limits=SchedulerLimits(slice_runs=1))
        built = Built(world, random_plan(rng, cycles=True, kinds=FAILING))
        names = [*built.plan.nodes, *built.plan.effects]
        rng.shuffle(names)
        gone = list(names)
        for _ in range(60):
            choice = rng.random()
            if choice < 0.25 and gone:
                built.register(gone.pop())
            elif choice < 0.33 and len(gone) < len(names):
                name = rng.choice([name for name in names if name not in gone])
                world.scheduler.remove(world.node(name))
                gone.append(name)
            elif choice < 0.45:
                built.change(rng)
            elif choice < 0.5:
                world.clock.advance(rng.choice((1_000, 300_000)))
            else:
                world.tick()
        world.settle(5_000)
        check_world(world, heights=False)
        assert unsettled(world) == [], f"seed {seed}"


SLOW: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"debounce_ms": 2},
    {"debounce_ms": 30},
    {"throttle_ms": 1},
    {"throttle_ms": 40},
)


@pytest.mark.random
def test_what_goes_round_slowly_is_held_back_longer_each_time_as_well() -> None:
    """A debounce or a throttle on the way round is no quiet: in a minute nobody runs more often than waits allow."""
    for seed in range(scaled(5_000)):
        rng = random.Random(seed)
        limits = SchedulerLimits(node_runs=rng.choice((2, 5)))
        world = World(limits=limits, traced=False)
        handles = wild(world, rng, rng.randint(2, 5), SLOW)
        for handle in handles:
            world.effect(handle.get, **rng.choice(SLOW))
        world.settle()
        world.advance(10_000)
        before = {node: node.runs for node in world.nodes()}
        told = len(world.driver.failures)
        world.advance(20_000)
        # By now each wait is two seconds. Several cycles may drive one node, and each has its own waits.
        most = max(node.runs - before[node] for node in world.nodes())
        assert most <= 12 * (limits.node_runs + 1) * len(handles), f"seed {seed}: {most} runs in 20 s"
        assert len(world.driver.failures) == told, f"seed {seed}: told again"


def test_a_steady_input_starves_no_computation() -> None:
    """Changes come faster than a pass ends: the sweep begins anew for them, but not for ever."""
    world = World(limits=SchedulerLimits(slice_runs=20))
    source = world.cell(0)
    handles = [world.computed(source.get, id=f"n{index}") for index in range(100)]
    for handle in handles:
        world.effect(handle.get)
    world.settle()
    world.forget()
    for turn in range(200):
        source.set(turn + 1)
        world.tick()
    counts = Counter(world.ran())
    assert min(counts[f"n{index}"] for index in range(100)) >= 10
