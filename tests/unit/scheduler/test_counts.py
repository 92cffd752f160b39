"""Exact counts on the trace: one run per node and per update, in any registration order, first pass included."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from headwater.data.trace import Suspended
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, World
from tests.counts import scaled

Nodes = dict[str, tuple[tuple[str, ...], Callable[..., object]]]
"""By name: what it reads, and what it makes of it. The cell is called `source`, effects begin with `eye`."""


def add(*values: int) -> int:
    return sum(values)


def chain(length: int = 12) -> Nodes:
    names = ["source", *(f"n{index}" for index in range(length))]
    nodes: Nodes = {name: ((below,), lambda value: value + 1) for below, name in pairwise(names)}
    return {**nodes, "eye": ((names[-1],), add)}


def fan_out(width: int = 12) -> Nodes:
    nodes: Nodes = {f"n{index}": (("source",), lambda value: value * 3) for index in range(width)}
    return {**nodes, **{f"eye{index}": ((f"n{index}",), add) for index in range(width)}}


def diamond(width: int = 6) -> Nodes:
    nodes: Nodes = {f"n{index}": (("source",), lambda value: value + 1) for index in range(width)}
    return {**nodes, "sum": (tuple(nodes), add), "eye": (("sum",), add)}


def triangle(size: int = 8) -> Nodes:
    """Each reads all before it, of every depth."""
    names = [f"n{index}" for index in range(size)]
    nodes: Nodes = {name: (("source", *names[:index]), add) for index, name in enumerate(names)}
    return {**nodes, "eye": (tuple(names), add)}


def grid(width: int = 5, height: int = 5) -> Nodes:
    nodes: Nodes = {}
    for row in range(height):
        for column in range(width):
            reads = tuple(f"r{row - 1}c{place}" if row else "source" for place in (column, (column + 1) % width))
            nodes[f"r{row}c{column}"] = (tuple(dict.fromkeys(reads)), add)
    return {**nodes, "eye": (tuple(f"r{height - 1}c{column}" for column in range(width)), add)}


SHAPES = {"chain": chain, "fan-out": fan_out, "diamond": diamond, "triangle": triangle, "grid": grid}


def build(world: World, nodes: Nodes, order: list[str]) -> dict[str, Handle]:
    """Register a graph in some order; a node may come after its readers."""
    handles = {name: world.cell(id=name) for name in ["source", *nodes]}
    handles["source"].set(1)
    for name in order:
        reads, fn = nodes[name]

        def run(reads: tuple[str, ...] = reads, fn: Callable[..., object] = fn) -> object:
            return fn(*[handles[read].get() for read in reads])

        if name.startswith("eye"):
            world.effect(lambda run=run: run() and None, id=name)  # type: ignore[misc]
        else:
            world.computed(run, id=name, output=handles[name].document)
    return handles


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["forwards", "backwards", *(f"seed {seed}" for seed in range(6))])
def test_every_node_runs_once_in_the_first_pass_and_once_per_update(shape: str, order: str) -> None:
    nodes = SHAPES[shape]()
    names = list(nodes)
    if order == "backwards":
        names.reverse()
    elif order.startswith("seed"):
        random.Random(order).shuffle(names)
    world = World()
    handles = build(world, nodes, names)
    world.settle()
    assert Counter(world.ran()) == dict.fromkeys(nodes, 1), "first pass"
    for value in range(2, 6):
        assert Counter(world.ran_after(partial(handles["source"].set, value))) == dict.fromkeys(nodes, 1)
        assert world.trace.of(Suspended) == [], "what is known is in order"
    assert world.ran_after(lambda: handles["source"].set(5)) == []
    check_world(world)


@pytest.mark.random
def test_random_graphs_run_every_node_once_in_any_order() -> None:
    for seed in range(scaled(2_000)):
        rng = random.Random(seed)
        names = [f"n{index}" for index in range(rng.randint(1, 10))]
        nodes: Nodes = {}
        for index, name in enumerate(names):
            above = ["source", *names[:index]]
            nodes[name] = (("source", *rng.sample(above[1:], rng.randint(0, len(above) - 1))), add)
        for index in range(rng.randint(1, 3)):
            nodes[f"eye{index}"] = (tuple(rng.sample(names, rng.randint(1, len(names)))), add)
        order = list(nodes)
        rng.shuffle(order)
        world = World()
        handles = build(world, nodes, order)
        world.settle()
        live = {node.id for node in world.nodes() if node.live}
        assert Counter(world.ran()) == dict.fromkeys(live, 1), f"seed {seed}, first pass"
        for value in (2, 3):
            ran = Counter(world.ran_after(partial(handles["source"].set, value)))
            assert ran == dict.fromkeys(live, 1), f"seed {seed}"


def test_an_equal_result_runs_nothing_below_it() -> None:
    world = World()
    source = world.cell(1)
    parity = world.computed(lambda: source.get() % 2, id="parity")
    below = world.computed(lambda: parity.get() * 10, id="below")
    world.effect(below.get, id="eye")
    assert world.ran_after(lambda: source.set(3)) == ["parity"]
    assert world.ran_after(lambda: source.set(4)) == ["parity", "below", "eye"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, 1.0), ({"a": [1, 2]}, {"a": [1, 2]}), ([], []), ("é", "é")],
    ids=["number", "object", "empty", "text"],
)
def test_equality_is_of_values_and_not_of_objects(first: object, second: object) -> None:
    world = World()
    source = world.cell(0)
    result = world.computed(lambda: second if source.get() else first, id="result")
    world.effect(result.get, id="eye")
    assert world.ran_after(lambda: source.set(1)) == ["result"]


def test_true_is_not_one() -> None:
    world = World()
    source = world.cell(0)
    result = world.computed(lambda: True if source.get() else 1, id="result")
    seen = world.look(result, id="eye")
    assert world.ran_after(lambda: source.set(1)) == ["result", "eye"]
    assert seen[-1] is True


def test_a_dynamic_graph_runs_each_node_once_and_drops_what_it_no_longer_reads() -> None:
    world = World()
    which, left, right = world.cell("left"), world.cell(1), world.cell(2)
    on_left = world.computed(lambda: left.get() * 10, id="left*10")
    on_right = world.computed(lambda: right.get() * 10, id="right*10")
    chosen = world.computed(lambda: (on_left if which.get() == "left" else on_right).get(), id="chosen")
    seen = world.look(chosen, id="eye")
    world.settle()
    assert Counter(world.ran()) == {"left*10": 1, "chosen": 1, "eye": 1}
    assert world.ran_after(lambda: right.set(3)) == []
    assert Counter(world.ran_after(lambda: which.set("right"))) == {"right*10": 1, "chosen": 1, "eye": 1}
    assert world.ran_after(lambda: left.set(5)) == []
    assert world.ran_after(lambda: right.set(4)) == ["right*10", "chosen", "eye"]
    assert seen == [10, 30, 40]
    check_world(world)


def test_a_dormant_chain_of_3000_never_runs_and_reads_nothing() -> None:
    world = World()
    source = world.cell(0)
    loads = world.driver.load_count
    below = source
    for _ in range(3_000):
        below = world.computed(lambda below=below: below.get() + 1)  # type: ignore[misc]
    for value in range(1, 5):
        source.set(value)
        world.settle()
    assert world.ran() == []
    assert all(node.attempts == 0 for node in world.nodes())
    assert world.driver.load_count == loads
    assert world.driver.ticks == 0


@pytest.mark.thorough
def test_a_chain_of_20000_neither_overflows_nor_runs_anything_twice() -> None:
    world = World()
    source = world.cell(0)
    length = 20_000
    handles = [world.cell(id=f"n{index}") for index in range(length)]
    world.effect(handles[-1].get, id="eye")
    for index in reversed(range(length)):
        below = handles[index - 1] if index else source
        world.computed(lambda below=below: below.get() + 1, id=f"n{index}", output=handles[index].document)  # type: ignore[misc]
    world.settle()
    assert len(world.ran()) == length + 1
    assert len(world.ran_after(lambda: source.set(1))) == length + 1
    assert handles[-1].peek() == length + 1
    world.scheduler.remove(world.node("eye"))
    assert not any(node.live for node in world.nodes())


@pytest.mark.thorough
def test_a_cycle_of_20000_neither_overflows_nor_hangs() -> None:
    world = World()
    limit = world.cell(2)
    size = 20_000
    handles = [world.cell(0, id=f"n{index}") for index in range(size)]
    for index in range(size):
        before = handles[index - 1]
        world.computed(
            lambda before=before, index=index: min(limit.get(), before.get() + (index == 0)),  # type: ignore[misc]
            id=f"n{index}",
            output=handles[index].document,
        )
    eye = world.effect(handles[size // 2].get, id="eye")
    world.settle()
    assert {handle.peek() for handle in handles} == {2}
    assert max(Counter(world.ran()).values()) <= world.scheduler.limits.node_runs
    world.scheduler.remove(eye)
    world.settle()
    assert not any(node.live for node in world.nodes())


def test_one_place_read_through_two_handles_is_one_read() -> None:
    world = World()
    source = world.cell({"x": 1})
    node = world.effect(lambda: source.at("x").get() + source.at("x").get(), id="eye")
    world.settle()
    assert world.driver.failures == []
    assert len(node.reads) == 2
    source.at("x").set(2)
    world.settle()
    assert node.runs == 2
    check_world(world)


def test_the_same_reads_in_another_order_change_nothing_but_their_order() -> None:
    world = World()
    order, a, b = world.cell(0), world.cell(1), world.cell(2)
    node = world.effect(lambda: [cell.get() for cell in ((a, b) if order.get() else (b, a))] and None)
    world.settle()
    deltas = world.scheduler.graph.deltas
    for turn in range(5):
        order.set(turn % 2)
        world.settle()
    assert world.scheduler.graph.deltas == deltas
    assert len(node.reads) == 4


def test_a_pass_yields_to_the_loop_and_goes_on_where_it_was() -> None:
    world = World()
    source = world.cell(0)
    for _ in range(2_000):
        world.effect(source.get)
    assert world.tick()
    assert len(world.ran()) <= 1_000
    slices = 1
    while world.tick():
        slices += 1
    assert slices >= 2
    assert len(world.ran()) == 2_000


def test_a_read_that_another_run_made_for_the_first_time_is_not_taken_for_this_one() -> None:
    """What one run noted as new is forgotten with it: the next run that looks there subscribes by itself."""
    world = World()
    known, place, selector = world.cell(1), world.cell(1), world.cell(0)
    world.look(known)
    seen: list[object] = []

    def fn() -> None:
        chosen = selector.get()
        seen.append((known.get(), Handle(world, place.document).get()) if chosen else None)

    node = world.effect(fn)
    world.settle()
    other = world.effect(lambda: Handle(world, place.document).get())
    world.settle()
    world.scheduler.remove(other)
    selector.set(1)
    world.settle()
    assert len(node.reads) == 4
    place.set(2)
    world.settle()
    assert seen == [None, (1, 1), (1, 2)]
