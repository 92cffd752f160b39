"""Keepers: a node whose run decides whether another one exists is demanded with it, and runs before it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headwater.data.value import ABSENT
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, World
from tests.counts import scaled


def test_demand_for_a_kept_node_demands_its_keeper() -> None:
    world = World()
    source, number = world.cell(1), world.cell(1)
    world.computed(source.get, id="keeper")
    kept = world.computed(number.get, id="kept", parent=world.node("keeper"), is_kept=True)
    world.settle()
    assert world.ran() == []
    seen = world.look(kept, id="look")
    assert world.ran_after(lambda: None) == []
    assert (seen, world.node("keeper").runs) == ([1], 1)
    assert world.ran_after(lambda: source.set(2)) == ["keeper"]
    check_world(world)
    world.scheduler.remove(world.node("look"))
    assert world.ran_after(lambda: source.set(3)) == []
    check_world(world)


def test_keeper_runs_before_the_nodes_that_it_keeps() -> None:
    world = World()
    source = world.cell(1)
    one = world.computed(source.get, id="one")
    two = world.computed(one.get, id="two")
    world.computed(two.get, id="keeper")
    kept = world.computed(source.get, id="kept", parent=world.node("keeper"), is_kept=True)
    world.look(kept, id="look")
    assert world.ran_after(lambda: source.set(2)) == ["one", "two", "keeper", "kept", "look"]


def test_node_that_its_keeper_removes_does_not_run_for_the_same_change() -> None:
    world = World()
    source = world.cell(1)
    doubled = world.computed(lambda: source.get() * 2, id="doubled")

    def keep() -> int:
        if doubled.get() > 2:
            node = world.scheduler.find("kept")
            assert node is not None
            world.scheduler.remove(node)
        return 0

    world.computed(keep, id="keeper")
    kept = world.computed(source.get, id="kept", parent=world.node("keeper"), is_kept=True)
    world.look(kept, id="look")
    world.settle()
    assert "kept" not in world.ran_after(lambda: source.set(2))
    check_world(world)


@pytest.mark.random
@pytest.mark.parametrize("cycles", [False, True])
def test_demand_and_order_follow_keepers_through_any_changes(cycles: bool) -> None:
    for seed in range(scaled(400)):
        rng = random.Random(seed)
        world = World(traced=False)
        cells = [world.cell(rng.randrange(3), f"cell{number}") for number in range(2)]
        names = [f"n{number}" for number in range(rng.randint(2, 9))]
        places = {each.document.key.id: each for each in cells}
        places.update({name: Handle(world, world.document(name)) for name in names})
        for index, name in enumerate(names):
            readable = [*places] if cycles else [*places][: index + len(cells)]
            reads = [places[each] for each in rng.sample(readable, rng.randint(1, 2))]
            keeper = world.node(rng.choice(names[:index])) if index and rng.random() < 0.6 else None
            output = places[name].document
            world.computed(_sum_of(reads), id=name, output=output, parent=keeper, is_kept=keeper is not None)
        for number in range(12):
            action = rng.choice(("set", "set", "look", "look", "look away", "remove"))
            if action == "set":
                rng.choice(cells).set(rng.randrange(3))
            elif action == "look":
                world.look(rng.choice([*places.values()]), id=f"look {number}")
            else:
                known = [node for node in world.nodes() if node.id.startswith("look") is (action == "look away")]
                world.scheduler.remove(rng.choice(known)) if known else None
            world.settle()
            check_world(world, heights=not cycles)


def _sum_of(reads: list[Handle]) -> Callable[[], object]:
    return lambda: sum(0 if (value := each.get()) is ABSENT else value for each in reads) % 5
