"""I3: a node that ran runs again only if a value in its read set changed, or its commit was rejected.

Every notification is compared with the naive definition: whoever read something that is shown differently becomes
invalid, and nobody else does.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headwater.data.patch import Patch, PatchError, add, append, increment, remove, replace
from headwater.data.value import ABSENT
from headwater.scheduler import SchedulerLimits
from headwater.testing.scheduler.graphs import FAILING, KINDS, Built, random_plan
from headwater.testing.scheduler.kit import World
from headwater.testing.scheduler.watcher import Watcher
from tests.counts import scaled


@pytest.mark.random
@pytest.mark.parametrize("cycles", [False, True], ids=["acyclic", "cyclic"])
def test_only_a_changed_read_makes_a_node_run_again(cycles: bool) -> None:
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world, watcher = Watcher.world_of(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        built = Built(world, random_plan(rng, cycles=cycles, kinds=rng.choice((KINDS, FAILING))))
        names = [*built.plan.nodes, *built.plan.effects]
        rng.shuffle(names)
        for name in names:
            built.register(name)
        for _ in range(6):
            world.settle()
            for _ in range(rng.choice((1, 1, 3))):
                built.change(rng)
        world.advance(5_000)
        assert watcher.problems == [], f"seed {seed}"
        assert watcher.unfounded == [], f"seed {seed}"


@pytest.mark.random
def test_an_acyclic_graph_runs_what_changed_and_nothing_twice() -> None:
    """Rewiring included: after one change every node runs at most once, first pass included."""
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world, watcher = Watcher.world_of(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        built = Built(world, random_plan(rng, kinds=KINDS))
        names = [*built.plan.nodes, *built.plan.effects]
        rng.shuffle(names)
        for name in names:
            built.register(name)
        for step in range(6):
            world.settle()
            twice = [name for name, count in Counter(world.ran()).items() if count > 1]
            assert twice == [], f"seed {seed} step {step}: ran twice"
            assert watcher.unfounded == [], f"seed {seed} step {step}"
            assert [str(failure) for failure in world.driver.failures] == [], f"seed {seed} step {step}"
            world.forget()
            for _ in range(rng.choice((1, 1, 3))):
                built.change(rng)


@pytest.mark.random
def test_readers_of_parts_run_exactly_when_their_part_differs() -> None:
    """Effects on paths and shapes of one document, under random patches of every kind."""
    paths: list[tuple[str | int, ...]] = [(), ("a",), ("b",), ("a", "x"), ("list",), ("list", 0), ("list", 1)]
    for seed in range(scaled(1_000)):
        rng = random.Random(seed)
        world, watcher = Watcher.world_of(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        cell = world.cell({"a": {"x": 1}, "b": 2, "list": [1, 2, 3]})
        for path in paths:
            for depth in ("get", "shape"):
                handle = cell.at(*path)
                world.effect(getattr(handle, depth), id=f"{depth} {path}")
        world.settle()
        for _ in range(10):
            transaction = world.replica.begin()
            for _ in range(rng.choice((1, 1, 2))):
                try:
                    transaction.write(cell.document.key, _patch(rng))
                except PatchError:
                    continue
            world.replica.commit(transaction)
            world.settle()
        assert watcher.problems == [], f"seed {seed}"
        assert watcher.unfounded == [], f"seed {seed}"


def _patch(rng: random.Random) -> Patch:
    path = rng.choice([("a",), ("b",), ("c",), ("a", "x"), ("a", "y"), ("list",), ("list", 0), ("list", 2)])
    value = rng.choice([0, 1, {"x": 1}, {"x": 2, "y": 0}, [1, 2], [], "text", None])
    match rng.randrange(6):
        case 0:
            return append(path, [value])
        case 1:
            return increment(path)
        case 2:
            return remove(path)
        case 3:
            return replace(path, value)
        case _:
            return add(path, value)


def test_a_value_that_comes_back_before_the_pass_may_run_its_reader_once_and_nobody_below() -> None:
    world = World()
    source = world.cell(1)
    result = world.computed(lambda: source.get() * 2, id="result")
    world.effect(result.get, id="eye")
    world.settle()
    world.forget()
    source.set(2)
    source.set(1)
    world.settle()
    assert world.ran() == ["result"]


def test_a_sink_on_something_absent_wakes_when_it_appears() -> None:
    world = World()
    cell = world.cell({})
    seen = world.look(cell.at("later", "deeper"))
    world.settle()
    cell.set({"later": {}})
    world.settle()
    cell.at("later", "deeper").set(1)
    world.settle()
    cell.set(ABSENT)
    world.settle()
    assert seen == [ABSENT, 1, ABSENT]
