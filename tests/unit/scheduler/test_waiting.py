"""Who waits for documents that are not here: who needs them, and who stands on those, by definition and no longer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headwater.data.address import DocKey
from headwater.replica import Replica
from headwater.scheduler import waiting_nodes
from headwater.scheduler.graph import edges
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.waiting_nodes import WaitingNodes
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.graphs import FAILING, Built, random_cell, random_plan
from headwater.testing.scheduler.kit import Handle, World
from tests.counts import scaled


def test_whoever_waited_behind_another_goes_on_when_that_one_found_another_way() -> None:
    """It showed the same as before, so that nobody was told; and whoever came to read it waited as well."""
    world = World()
    is_far, other = world.cell(False), world.cell(0)
    world.driver.lazy = True
    far = world.absent_cell("far")
    first = world.computed(far.get, id="first", output=world.document("first"))
    second = world.computed(lambda: first.get() if is_far.get() else 5, id="second", output=world.document("second"))
    seen: list[object] = []
    reader = world.effect(lambda: seen.append((other.get(), second.get())))
    world.settle()
    is_far.set(True)
    other.set(1)
    world.settle()
    assert reader.loading is far.document
    is_far.set(False)
    world.settle()
    assert seen == [(0, 5), (1, 5)]
    assert world.look(second) == []
    world.settle()
    assert [node.id for node in world.nodes() if node.loading and node.live] == []
    check_world(world)


@pytest.mark.parametrize("end", ["arrive", "change", "remove"])
def test_what_many_wait_for_costs_each_of_them_once(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that waited no more had all the others looked at anew: two thousand of them took seconds."""
    steps = [0]

    def counted(node: Node) -> Iterator[Node]:
        steps[0] += 1
        return edges.readers_of(node)

    monkeypatch.setattr(waiting_nodes, "readers_of", counted)
    world = World(lazy=True, traced=False)
    source = world.cell(0)
    parts = [world.absent_cell(f"part{index}") for index in range(500)]
    nodes = [world.effect(lambda part=part: (source.get(), part.get())) for part in parts]  # type: ignore[misc]
    world.settle()
    steps[0] = 0
    if end == "arrive":
        for part in parts:
            world.arrive(part, 1)
    elif end == "change":
        source.set(1)
    else:
        for node in nodes:
            world.scheduler.remove(node)
    world.settle()
    assert steps[0] <= 4 * len(parts)


def test_removing_somebody_in_front_asks_for_a_tick() -> None:
    """Nobody else would come to look at those who waited behind it."""
    world = World()
    world.driver.lazy = True
    far = world.absent_cell("far")
    output = world.document("first")
    world.computed(far.get, id="first", output=output)
    seen = world.look(Handle(world, output))
    world.settle()
    ticks = world.driver.ticks
    world.scheduler.remove(world.node("first"))
    assert world.driver.ticks == ticks + 1
    world.settle()
    assert len(seen) == 1


def stale(world: World) -> set[Node]:
    """By definition: who needs a document, and whoever reads or waits behind one of these."""
    waits = world.scheduler.loads
    fronts = {node: waits.in_front_of(node) for node in world.nodes()}
    found = {node for node, front in fronts.items() if node.loading is not None and front is None}
    below = list(found)
    while below:
        node = below.pop()
        for reader in (*edges.readers_of(node), *(each for each, front in fronts.items() if front is node)):
            if reader not in found:
                found.add(reader)
                below.append(reader)
    return found


def waits_for(world: World, node: Node, other: Node) -> bool:
    """By definition: whether `other` is one of the nodes whose waiting holds up a node. Nothing is about to run."""
    waits = world.scheduler.loads
    seen, looked_at = {node}, [node]
    while looked_at:
        at = looked_at.pop()
        front = waits.in_front_of(at)
        above = edges.writers_above(at) if at.loading is None else () if front is None else (front,)
        for each in above:
            if waits.above(each) is not None and each not in seen:
                seen.add(each)
                looked_at.append(each)
    return waits.above(other) is not None and other in seen


def assert_rounds_are_found(world: World, note: str) -> None:
    waits = world.scheduler.loads
    for reader in world.nodes():
        for writer in {each for each in edges.writers_above(reader) if waits.above(each) is not None}:
            assert waits.is_behind(writer, reader) == waits_for(world, writer, reader), note


def assert_nothing_is_left(world: World, note: str) -> None:
    waits = world.scheduler.loads
    assert not waits.is_used, note
    assert not waits.is_untidy(), note
    for node in world.nodes():
        assert (node.loading, waits.above(node), waits.in_front_of(node)) == (None, None, None), f"{note}: {node.id}"


def effects_over_invalid_nodes(world: World) -> list[str]:
    """Return a list that gets each effect which completes a run although some node above it is invalid."""
    torn: list[str] = []

    def on_ran(node: Node, _: object) -> None:
        if node.kind is NodeKind.EFFECT:
            invalid = [above.id for above in world.scheduler.graph.above(node) if above.status != CLEAN]
            torn.extend(f"{node.id} over {id}" for id in invalid)

    world.scheduler.introspection.on_ran(on_ran)
    return torn


@pytest.mark.random
@pytest.mark.parametrize("cycles", [False, True], ids=["without cycles", "with cycles"])
def test_who_is_held_up_equals_the_definition_and_nothing_is_left_at_the_end(cycles: bool) -> None:
    # With cycles, 1390 had a node behind another one that was stale only because of the first: both waited for good.
    for seed in (1390, *range(scaled(5_000))):
        rng = random.Random(seed)
        world = World(traced=False)
        torn = effects_over_invalid_nodes(world)
        plan = random_plan(rng, cycles=cycles, kinds=FAILING)
        for index in range(2):
            plan.cells[f"far{index}"] = random_cell(rng)
            for name in rng.sample([*plan.nodes], min(len(plan.nodes), 2)):
                reads = (*plan.nodes[name].reads, (f"far{index}", ""))
                plan.nodes[name] = replace(plan.nodes[name], kind="switch", reads=reads)
        built = Built(world, plan)
        world.driver.lazy = True
        missing = {f"far{index}": world.absent_cell(f"away{index}") for index in range(2)}
        built.handles.update(missing)
        names = [*plan.nodes, *plan.effects]
        rng.shuffle(names)
        gone = list(names)
        for step in range(20):
            choice = rng.random()
            if choice < 0.3 and gone:
                built.register(gone.pop())
            elif choice < 0.4 and len(gone) < len(names):
                gone.append(rng.choice([name for name in names if name not in gone]))
                world.scheduler.remove(world.node(gone[-1]))
            elif choice < 0.46 and missing:
                name = rng.choice([*missing])
                if missing[name].document in world.driver.asked:
                    world.arrive(missing.pop(name), plan.cells[name])
            else:
                built.change(rng)
            if rng.random() < 0.5:
                world.settle()
                assert cycles or torn == [], f"seed {seed} step {step}"
                held_up = {node for node in world.nodes() if world.scheduler.loads.above(node) is not None}
                assert held_up == stale(world), f"seed {seed} step {step}"
                assert_rounds_are_found(world, f"seed {seed} step {step}")
                check_world(world, heights=not cycles)
        for name in gone:
            built.register(name)
        for name, handle in missing.items():
            world.arrive(handle, plan.cells[name])
        world.advance(20_000)
        assert_nothing_is_left(world, f"seed {seed}")


def test_node_whose_front_is_not_stale_tries_again_although_an_old_read_is() -> None:
    """It may not read that any more."""
    world = World()
    needs_first, needs_second, is_long = world.cell(False), world.cell(False), world.cell(True)
    world.driver.lazy = True
    far_first, far_second = world.absent_cell("far first"), world.absent_cell("far second")
    first = world.computed(
        lambda: (far_first.get() if needs_first.get() else 0) and 0, id="first", output=world.document("first")
    )
    second = world.computed(
        lambda: far_second.get() if needs_second.get() else 5, id="second", output=world.document("second")
    )
    seen: list[tuple[object, ...]] = []

    def show() -> None:
        value = first.get()
        seen.append((value, second.get()) if is_long.get() else (value,))

    world.effect(show)
    world.settle()
    needs_first.set(True)
    needs_second.set(True)
    world.settle()
    is_long.set(False)
    world.settle()
    world.arrive(far_first, 1)
    world.settle()
    assert seen == [(0, 5), (0,)]


def test_node_that_is_freed_in_a_pass_runs_before_the_readers_of_its_output() -> None:
    """It waited behind a node that found another way in the same pass."""
    world = World()
    number, is_far = world.cell(0), world.cell(False)
    world.driver.lazy = True
    far = world.absent_cell("far")
    tops: list[Handle] = []
    low = world.computed(lambda: tops[0].get() if number.get() % 2 else 0, id="low", output=world.document("low"))
    asks = world.computed(is_far.get, id="asks", output=world.document("asks"))
    tops += [world.computed(lambda: far.get() if asks.get() else 10, id="top", output=world.document("top"))]
    last = world.computed(low.get, id="last", output=world.document("last"))
    seen: list[object] = []
    world.effect(tops[0].get)
    world.effect(lambda: seen.append((number.get(), last.get())))
    world.settle()
    is_far.set(True)
    world.settle()
    number.set(1)
    is_far.set(False)
    world.settle()
    assert seen == [(0, 0), (1, 10)]
    check_world(world)


def test_node_behind_a_released_node_without_a_turn_tries_again() -> None:
    """A change released the node in front, which has no turn: it is gated or not demanded."""
    home = Replica()
    freed: list[Node] = []
    loads = WaitingNodes(lambda _: None, freed.append)
    document = home.documents.of(DocKey("space", "d"))
    front, behind = (Node(id=id, kind=NodeKind.COMPUTATION, fn=lambda: None, order=1, home=home) for id in ("a", "b"))
    loads.wait(front, document)
    loads.wait(behind, document, front)
    loads.changed(front, document)
    assert behind.loading is not None
    assert loads.is_untidy()
    loads.tidy()
    assert freed == [behind]
