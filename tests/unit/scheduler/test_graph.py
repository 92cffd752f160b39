"""The graph equals a full rebuild after every mutation: liveness, counts and heights (L1, L2).

Nothing runs here: nodes are registered, removed, rooted and given reads in random order, cycles and root-free graphs
included, and everything is derived anew after each step.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headwater.data.address import Depth
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.replica.document import Document
from headwater.scheduler.node import Node
from headwater.testing.scheduler.checks import check_world, has_cycle, left_behind, out_of_order
from headwater.testing.scheduler.kit import World
from tests.counts import scaled

PATHS: tuple[Path, ...] = ((), ("a",), ("b",), ("a", "x"))


def nothing() -> None:
    """Never runs."""


class Mutations:
    """Random mutations of a graph of at most so many nodes."""

    def __init__(self, seed: int, *, roots: float, cycles: bool, size: int = 8) -> None:
        self.rng = random.Random(seed)
        self.world = World(traced=False)
        self.documents = [self.world.document(f"n{index}") for index in range(size)]
        self.nodes: dict[int, Node] = {}
        self.effects: list[Node] = []
        self.roots = roots
        self.cycles = cycles
        for _ in range(self.rng.randrange(size)):
            self.register()

    def step(self) -> str:
        rng = self.rng
        choice = rng.random()
        if choice < 0.15:
            return self.register()
        if choice < 0.22:
            return self.remove()
        if choice < 0.22 + self.roots:
            return self.root()
        return self.read()

    def register(self) -> str:
        index = self.rng.randrange(len(self.documents))
        if index in self.nodes:
            return "nothing"
        handle = self.world.computed(nothing, id=f"n{index}", output=self.documents[index])
        self.nodes[index] = self.world.node(handle)
        return f"register {index}"

    def remove(self) -> str:
        if self.effects and self.rng.random() < 0.5:
            node = self.effects.pop(self.rng.randrange(len(self.effects)))
            self.world.scheduler.remove(node)
            return f"remove {node.id}"
        if not self.nodes:
            return "nothing"
        index = self.rng.choice(list(self.nodes))
        self.world.scheduler.remove(self.nodes.pop(index))
        return f"remove {index}"

    def root(self) -> str:
        if self.rng.random() < 0.5 and len(self.effects) < 4:
            self.effects.append(self.world.effect(nothing))
            return "effect"
        if not self.nodes:
            return "nothing"
        node = self.rng.choice(list(self.nodes.values()))
        self.world.scheduler.graph.liveness.set_root(node, not node.rooted)
        return f"root {node.id} {node.rooted}"

    def read(self) -> str:
        readers = [*self.nodes.items(), *((len(self.documents), effect) for effect in self.effects)]
        if not readers:
            return "nothing"
        index, node = self.rng.choice(readers)
        known = [place for place in range(len(self.documents)) if self.cycles or place < index]
        chosen = self.rng.sample(known, min(len(known), self.rng.randrange(4)))
        places = {(place, *self.place()): None for place in chosen for _ in range(self.rng.choice((1, 1, 2)))}
        canonical = self.world.scheduler.graph.canonical
        spots = [canonical(Spot(self.documents[place], path, depth)) for place, path, depth in places]
        self.world.scheduler.graph.apply_read_delta(node, [*spots, None])
        return f"read {node.id} {chosen}"

    def place(self) -> tuple[Path, Depth]:
        return self.rng.choice(PATHS), self.rng.choice((Depth.DEEP, Depth.DEEP, Depth.SHAPE))


def play(seed: int, *, roots: float, cycles: bool, steps: int = 40) -> bool:
    """Whether there was a cycle at some time."""
    mutations = Mutations(seed, roots=roots, cycles=cycles, size=(8, 8, 16)[seed % 3])
    was_cyclic, done = False, []
    together = (1, 3, 8)[seed // 3 % 3]  # mutations between two checks, each of which settles demand
    for turn in range(steps):
        done.append(mutations.step())
        if mutations.rng.random() < 0.3:
            mutations.world.scheduler.graph.tidy()
            done.append("tidy")
        is_cyclic = has_cycle(mutations.world.nodes())
        was_cyclic |= is_cyclic
        if turn % together:
            continue
        try:
            check_world(mutations.world, heights=not was_cyclic)
        except Exception as error:
            error.add_note(f"seed {seed}: {done}")
            raise
    for node in mutations.world.nodes():
        mutations.world.scheduler.remove(node)
    mutations.world.settle()
    assert left_behind(mutations.world) == dict.fromkeys(left_behind(mutations.world), 0), f"seed {seed}"
    return was_cyclic


@pytest.mark.random
@pytest.mark.parametrize("roots", [0.0, 0.05, 0.25], ids=["no roots", "few roots", "many roots"])
def test_liveness_and_counts_equal_a_rebuild_with_cycles(roots: float) -> None:
    cyclic = sum(play(seed, roots=roots, cycles=True) for seed in range(scaled(2_000)))
    assert cyclic > scaled(2_000) // 3, "too few cycles to mean anything"


@pytest.mark.random
@pytest.mark.parametrize("roots", [0.0, 0.05, 0.25], ids=["no roots", "few roots", "many roots"])
def test_liveness_and_heights_equal_a_rebuild_without_cycles(roots: float) -> None:
    for seed in range(scaled(2_000)):
        play(seed, roots=roots, cycles=False)


@pytest.mark.random
def test_heights_are_in_order_again_when_the_last_cycle_is_gone() -> None:
    """While there is a cycle, order is looked after where nodes run (I9); without one, by heights alone."""
    restored = 0
    for seed in range(scaled(2_000)):
        mutations = Mutations(seed, roots=0.1, cycles=True)
        graph = mutations.world.scheduler.graph
        done: list[str] = []
        for _ in range(40):
            done.append(mutations.step())
            was_cyclic = graph.is_cyclic
            if mutations.rng.random() < 0.5:
                graph.tidy()  # As at the end of every pass.
                done.append("tidy")
            restored += was_cyclic and not graph.is_cyclic
            nodes = mutations.world.nodes()
            if not graph.is_cyclic:
                assert not has_cycle(nodes), f"seed {seed}: {done}"
                assert out_of_order(nodes) == [], f"seed {seed}: {done}"
    assert restored > scaled(2_000) // 4, "too few cycles went away to mean anything"


def test_two_spots_of_one_output_are_withdrawn_together_beside_a_cycle() -> None:
    world = World()
    documents = {name: world.document(name) for name in "xyz"}
    for name in "xyz":
        world.computed(nothing, id=name, output=documents[name])
    x, y, z = (world.node(name) for name in "xyz")
    graph = world.scheduler.graph
    graph.apply_read_delta(x, [Spot(documents["y"], (), Depth.DEEP), None])
    graph.apply_read_delta(y, [Spot(documents["x"], (), Depth.DEEP), None])
    reader = world.effect(nothing)
    spots = [Spot(documents["z"], (key,), Depth.DEEP) for key in "pq"]
    graph.apply_read_delta(reader, [*spots, None])
    assert z.live_refs == 2
    graph.apply_read_delta(reader, [None])
    check_world(world, heights=False)
    assert z.live_refs == 0


def test_a_cycle_does_not_keep_itself_alive() -> None:
    world = World()
    documents = {name: world.document(name) for name in "xyz"}
    for name in "xyz":
        world.computed(nothing, id=name, output=documents[name])
    graph = world.scheduler.graph
    for name, above in ("xy", "yz", "zx"):
        graph.apply_read_delta(world.node(name), [Spot(documents[above], (), Depth.DEEP), None])
    reader = world.effect(nothing)
    graph.apply_read_delta(reader, [graph.canonical(Spot(documents["x"], (), Depth.DEEP)), None])
    assert all(node.live for node in world.nodes())
    world.scheduler.remove(reader)
    world.scheduler.settle_demand()
    assert not any(node.live for node in world.nodes())
    check_world(world, heights=False)


def ring(world: World, length: int) -> list[Document]:
    """Nodes each of which reads the next one's document, the last one the first one's."""
    documents = [world.document(f"n{index}") for index in range(length)]
    graph = world.scheduler.graph
    for index, document in enumerate(documents):
        world.computed(nothing, id=f"n{index}", output=document)
    for index in range(length):
        above = documents[(index + 1) % length]
        graph.apply_read_delta(world.node(f"n{index}"), [Spot(above, (), Depth.DEEP), None])
    return documents


def test_withdrawing_many_demands_on_a_cycle_costs_its_nodes_once() -> None:
    world = World()
    graph = world.scheduler.graph
    documents = ring(world, 200)
    readers = [world.effect(nothing) for _ in documents]
    for reader, document in zip(readers, documents, strict=True):
        graph.apply_read_delta(reader, [graph.canonical(Spot(document, (), Depth.DEEP)), None])
    before = graph.liveness.steps
    for reader in readers:
        world.scheduler.remove(reader)
    world.settle()
    assert not any(node.live for node in world.nodes())
    assert graph.liveness.steps - before <= 3 * 200
    check_world(world, heights=False)


def in_order(places: range) -> list[int]:
    return [*places]


def backward(places: range) -> list[int]:
    return [*reversed(places)]


def from_both_ends(places: range) -> list[int]:
    return [place for pair in zip(places, reversed(places), strict=True) for place in pair][: len(places)]


def every_second_first(places: range) -> list[int]:
    """Every second one, then every second one of the others, and so on: the longest ways between nodes with demand."""
    left, order = [*places], list[int]()
    while left:
        order += left[::2]
        left = left[1::2]
    return order


def in_random_order(places: range) -> list[int]:
    return random.Random(1).sample(places, len(places))


ORDERS = (in_order, backward, from_both_ends, every_second_first, in_random_order)


@pytest.mark.parametrize("order", ORDERS)
def test_withdrawing_demands_on_a_cycle_one_by_one_costs_in_proportion_to_them(
    order: Callable[[range], list[int]],
) -> None:
    """Each demand takes effect before the next one is withdrawn."""

    def steps(length: int) -> int:
        world = World(traced=False)
        graph = world.scheduler.graph
        documents = ring(world, length)
        readers = [world.effect(nothing) for _ in documents]
        for reader, document in zip(readers, documents, strict=True):
            graph.apply_read_delta(reader, [graph.canonical(Spot(document, (), Depth.DEEP)), None])
        before = graph.liveness.steps + graph.heights.steps
        for closed, place in enumerate(order(range(length))):
            assert world.node("n0").live, f"{closed} demands are withdrawn"
            world.scheduler.remove(readers[place])
            graph.tidy()
            world.scheduler.settle_demand()
        assert not any(node.live for node in world.nodes())
        assert graph.is_cyclic
        return graph.liveness.steps + graph.heights.steps - before

    assert steps(100) <= 100 * 12
    assert steps(800) <= 800 * 15


@pytest.mark.parametrize("order", ORDERS)
def test_withdrawing_the_readers_of_one_node_beside_a_cycle_costs_in_proportion_to_them(
    order: Callable[[range], list[int]],
) -> None:
    world = World(traced=False)
    graph = world.scheduler.graph
    documents = ring(world, 3)
    graph.apply_read_delta(world.effect(nothing), [graph.canonical(Spot(documents[0], (), Depth.DEEP)), None])
    world.computed(nothing, id="hub", output=(hub := world.document("hub")))
    rows = []
    for index in range(300):
        world.computed(nothing, id=f"row{index}", output=(row := world.document(f"row{index}")))
        graph.apply_read_delta(world.node(f"row{index}"), [graph.canonical(Spot(hub, (), Depth.DEEP)), None])
        rows.append(world.effect(nothing))
        graph.apply_read_delta(rows[-1], [graph.canonical(Spot(row, (), Depth.DEEP)), None])
    before = graph.liveness.steps
    for place in order(range(300)):
        assert world.node("hub").live
        world.scheduler.remove(rows[place])
        graph.tidy()
        world.scheduler.settle_demand()
    assert graph.is_cyclic
    assert not world.node("hub").live
    assert graph.liveness.steps - before <= 300 * 4
    check_world(world, heights=False)


def test_many_cycles_that_are_broken_one_by_one_cost_in_proportion_to_them() -> None:
    def steps(count: int) -> int:
        world = World(traced=False)
        graph = world.scheduler.graph
        for pair in range(count):
            documents = [world.document(f"{pair}.{name}") for name in "xy"]
            for name, document in zip("xy", documents, strict=True):
                world.computed(nothing, id=f"{pair}.{name}", output=document)
            for name, document in zip("yx", documents, strict=True):
                graph.apply_read_delta(world.node(f"{pair}.{name}"), [Spot(document, (), Depth.DEEP), None])
        before = graph.heights.steps
        for pair in range(count):
            graph.apply_read_delta(world.node(f"{pair}.x"), [None])
            graph.tidy()
        assert not graph.is_cyclic
        check_world(world)
        return graph.heights.steps - before

    assert steps(50) <= 50 * 100
    assert steps(200) <= 200 * 100


def test_chain_that_is_discovered_from_its_end_is_not_raised_for_each_node() -> None:
    """A node is registered when the node before it reads it, and both wait for documents."""
    world = World()
    graph = world.scheduler.graph
    documents = [world.document(f"n{index}") for index in range(200)]
    world.computed(nothing, id="n0", output=documents[0])
    for index in range(1, len(documents)):
        world.computed(nothing, id=f"n{index}", output=documents[index])
        graph.add_reads(world.node(f"n{index - 1}"), [Spot(documents[index], (), Depth.DEEP)])
    assert graph.heights.steps <= 10
    check_world(world)


def test_withdrawing_demand_costs_what_it_concerns() -> None:
    """L1: a list that grows by one card each time must not derive everything anew each time."""
    world = World()
    graph = world.scheduler.graph
    board = world.effect(nothing)
    cards: list[Document] = []
    for index in range(200):
        cards.append(world.document(f"card{index}"))
        world.computed(nothing, id=f"card{index}", output=cards[-1])
        spots = [graph.canonical(Spot(document, (), Depth.DEEP)) for document in cards]
        graph.apply_read_delta(board, [*spots, None])
    assert graph.liveness.steps <= 2 * 200 + 10
    before = graph.liveness.steps
    for index in range(199, -1, -1):
        spots = [graph.canonical(Spot(document, (), Depth.DEEP)) for document in cards[:index]]
        graph.apply_read_delta(board, [*spots, None])
    assert graph.liveness.steps - before <= 200


@pytest.mark.random
def test_registering_and_removing_leaves_nothing_behind() -> None:
    """A million in `./dev sim`, a tenth of it in `./dev check`, a hundredth in `./dev test`."""
    world = World(traced=False)
    source, target = world.cell(0), world.cell({})
    output = world.document("output")
    remove = world.scheduler.remove
    documents = len(world.replica.documents.held())
    count = scaled(1_000_000)
    for turn in range(count // 4):
        world.computed(source.get, id="c", output=output)
        first = world.node("c")
        second = world.effect(source.get, id="e", parent=first, debounce_ms=5 if turn % 3 else 0)
        third = world.materializer(source.get, [target], id="m")
        child = world.effect(source.get, id="child", parent=third)
        if turn % 50 == 0:
            world.settle()
            source.set(turn)
            if turn % 100 == 0:
                world.settle()
        remove(first)
        remove(third)
        assert second.removed
        assert child.removed
    world.settle()
    assert left_behind(world) == dict.fromkeys(left_behind(world), 0)
    assert len(world.replica.documents.held()) == documents
    assert len(world.replica.pending) == 0
