"""I8: every transaction of a run says which node it was and which changed reads made it run."""

from __future__ import annotations

import random

import pytest

from headwater.data.address import Depth
from headwater.errors import UpstreamFailedError
from headwater.protocol.verdict import Collision, Conflict, RuleRefused
from headwater.scheduler import CLEAN, INVALID
from headwater.testing.scheduler.graphs import KINDS, Built, random_plan
from headwater.testing.scheduler.kit import Handle, World
from headwater.testing.scheduler.watcher import Watcher
from tests.counts import scaled


def settle_without_confirming(world: World) -> None:
    """Everything runs, and every commit is told as it would be sent."""
    for _ in range(100):
        if not world.tick():
            break
    world.replica.make_commits()


@pytest.mark.random
@pytest.mark.parametrize("cycles", [False, True], ids=["acyclic", "cyclic"])
def test_every_commit_names_its_node_and_exactly_what_made_it_run(cycles: bool) -> None:
    checked = 0
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world, watcher = Watcher.world_of()
        built = Built(world, random_plan(rng, cycles=cycles, kinds=KINDS))
        for name in [*built.plan.nodes, *built.plan.effects]:
            built.register(name)
        for _ in range(4):
            settle_without_confirming(world)
            for node, causes, layer in watcher.completed:
                if layer is None:
                    continue
                provenance = layer.commit.provenance
                assert layer.source is node, f"seed {seed}"
                assert (provenance.node, provenance.derived) == (node.id, True), f"seed {seed}"
                assert frozenset(provenance.causes) == causes, f"seed {seed}: {node.id}"
                checked += 1
            watcher.completed.clear()
            world.wire.flush()
            built.change(rng)
    assert checked > scaled(2_500)


def side_writer(world: World, source: Handle, side: Handle) -> Handle:
    def fn() -> int:
        side.set(source.get())
        return int(source.get())

    return world.computed(fn, writes=[side], id="node")


@pytest.mark.parametrize("writes_by_itself", [False, True], ids=["result", "side write"])
def test_causes_come_back_when_the_commit_is_rejected(writes_by_itself: bool) -> None:
    world = World()
    source, side = world.cell(1), world.cell(0)
    result = side_writer(world, source, side) if writes_by_itself else world.computed(source.get, id="node")
    world.look(result)
    world.settle()
    source.set(2)
    settle_without_confirming(world)
    node = world.node("node")
    (layer,) = world.layers_of(node)
    causes = [(source.document.key, ())]
    assert list(layer.commit.provenance.causes) == causes
    runs = node.runs
    world.replica.rejected(layer.local_seq, Conflict())
    assert node.status == INVALID
    assert [(spot.document.key, spot.path) for spot in node.causes or ()] == causes  # type: ignore[attr-defined]
    settle_without_confirming(world)
    assert node.runs == runs + 1
    again = world.layers_of(node)
    assert [list(layer.commit.provenance.causes) for layer in again] == [causes]


def test_causes_that_came_meanwhile_are_kept_beside_those_that_come_back() -> None:
    world = World()
    first, second = world.cell(1), world.cell(1)
    world.look(world.computed(lambda: first.get() + second.get(), id="node"))
    world.settle()
    first.set(2)
    settle_without_confirming(world)
    node = world.node("node")
    (layer,) = world.layers_of(node)
    second.set(2)
    world.replica.rejected(layer.local_seq, Conflict())
    assert {spot.document for spot in node.causes or ()} == {first.document, second.document}


def test_a_rejected_first_run_is_run_again_without_causes() -> None:
    world = World()
    source = world.cell(1)
    seen = world.look(world.computed(source.get, id="node"))
    settle_without_confirming(world)
    node = world.node("node")
    (layer,) = world.layers_of(node)
    world.replica.rejected(layer.local_seq, Conflict())
    settle_without_confirming(world)
    assert node.status == CLEAN
    assert node.runs == 2
    assert seen[-1] == 1


def test_a_refusal_that_is_no_conflict_is_told_once_and_not_repeated() -> None:
    world = World()
    source = world.cell(1)
    world.look(world.computed(source.get, id="node"))
    settle_without_confirming(world)
    node = world.node("node")
    (layer,) = world.layers_of(node)
    world.replica.rejected(layer.local_seq, RuleRefused("size", "too large"))
    settle_without_confirming(world)
    assert node.runs == 1
    own = [failure for failure in world.driver.failures if not isinstance(failure.error, UpstreamFailedError)]
    assert [failure.node for failure in own] == ["node"]


def test_what_stood_on_a_rejected_run_is_run_again_too() -> None:
    world = World()
    source = world.cell(1)
    first = world.computed(lambda: source.get() + 1, id="first")
    second = world.computed(lambda: first.get() + 1, id="second")
    seen = world.look(second)
    world.settle()
    source.set(5)
    settle_without_confirming(world)
    (layer,) = world.layers_of(world.node("first"))
    world.replica.rejected(layer.local_seq, Conflict())
    settle_without_confirming(world)
    assert (first.peek(), second.peek()) == (6, 7)
    assert seen[-1] == 7
    assert all(node.status == CLEAN for node in world.nodes())


def test_a_rejected_commit_waits_for_what_won_against_it() -> None:
    world = World()
    source = world.cell(1)
    is_here = [False]
    world.driver.is_winner_here = lambda _: is_here[0]
    world.look(world.computed(source.get, id="node"))
    settle_without_confirming(world)
    node = world.node("node")
    (layer,) = world.layers_of(node)
    collision = Collision(source.document.key, (), Depth.DEEP, 0, 1, "other", "")
    world.replica.rejected(layer.local_seq, Conflict((collision,)))
    settle_without_confirming(world)
    assert node.runs == 1
    world.scheduler.heard()
    settle_without_confirming(world)
    assert node.runs == 1
    is_here[0] = True
    world.scheduler.heard()
    settle_without_confirming(world)
    assert node.runs == 2
