"""I5: a run's own changes never make its node invalid, and a run that changes nothing schedules nothing."""

from __future__ import annotations

import random

import pytest

from headwater.data.value import ABSENT
from headwater.scheduler import CLEAN
from headwater.testing.scheduler.kit import Handle, World
from headwater.testing.scheduler.watcher import Watcher
from tests.counts import scaled


def test_writing_its_own_input_does_not_loop_and_another_writer_wakes_it() -> None:
    world = World()
    source, own = world.cell(1), world.cell(0)

    def fn() -> int:
        own.set(own.get() + source.get())
        return int(own.get())

    result = world.computed(fn, writes=[own], id="node")
    seen = world.look(result)
    world.settle()
    assert world.node("node").runs == 1
    assert seen == [1]
    own.set(10)
    world.settle()
    assert world.node("node").runs == 2
    assert own.peek() == 11


def test_reading_its_own_output_does_not_loop() -> None:
    world = World()
    source = world.cell(1)
    output = Handle(world, world.document("total"))

    def fn() -> int:
        before = output.get()
        return (0 if before is ABSENT else int(before)) + int(source.get())

    world.computed(fn, id="total", output=output.document)
    seen = world.look(output)
    world.settle()
    source.set(5)
    world.settle()
    assert seen == [1, 6]
    assert world.node("total").runs == 2
    output.set(100)
    world.settle()
    assert seen[-1] == 105


def test_two_instances_with_one_id_text_are_two_nodes() -> None:
    """P5: identity, not the id: what a removed node of the same id wrote does wake the new one."""
    world = World()
    own = world.cell(0)

    def fn() -> int:
        value = int(own.get())
        own.set(value + 1)
        return value

    result = world.computed(fn, writes=[own], id="node")
    world.effect(result.get)
    world.settle()
    first = world.node("node")
    world.scheduler.remove(first)
    world.computed(fn, writes=[own], id="node", output=result.document)
    world.settle()
    assert world.node("node") is not first
    assert world.node("node").runs == 1
    assert own.peek() == 2


def test_a_run_that_changes_nothing_causes_no_activity_at_all() -> None:
    world = World()
    source = world.cell(1)
    result = world.computed(lambda: source.get() * 0, id="zero")
    world.effect(result.get, id="eye")
    world.settle()
    layers = world.replica.next_local_seq
    source.set(2)
    ticks = world.driver.ticks
    world.settle()
    assert world.replica.next_local_seq == layers + 1, "the cell's write and no other"
    assert world.driver.ticks == ticks
    assert all(node.status == CLEAN for node in world.nodes())


@pytest.mark.random
def test_no_node_is_woken_by_its_own_run() -> None:
    """Nodes that write what they read, read what they write, and each other's documents, as far as declared."""
    for seed in range(scaled(5_000)):
        rng = random.Random(seed)
        world, watcher = Watcher.world_of()
        cells = [world.cell(rng.randrange(3)) for _ in range(3)]
        shared = [world.cell(0) for _ in range(3)]
        for index in range(rng.randint(1, 4)):
            mine = rng.sample(shared, rng.randint(1, 2))
            read = rng.sample([*cells, *shared], rng.randint(1, 4))

            def fn(mine: list[Handle] = mine, read: list[Handle] = read) -> int:
                total = int(sum(handle.get() for handle in read) % 5)
                for handle in mine:
                    handle.set(total)
                return total

            result = world.computed(fn, writes=mine, id=f"n{index}")
            world.effect(result.get, id=f"eye{index}")
        for _ in range(4):
            world.settle()
            rng.choice(cells).set(rng.randrange(5))
        world.advance(2_000)
        assert watcher.problems == [], f"seed {seed}"
        assert watcher.unfounded == [], f"seed {seed}"
