"""I8: every transaction of a run says which node it was and which changed reads made it run."""

from __future__ import annotations

import random

import pytest

from headwater.errors import UpstreamFailedError
from headwater.protocol.verdict import Conflict, RuleRefused
from headwater.replica import Layer
from headwater.scheduler import CLEAN, INVALID
from headwater.testing.scheduler.graphs import KINDS, Built, random_plan
from headwater.testing.scheduler.kit import Handle, World
from headwater.testing.scheduler.watcher import Place, Watcher
from tests.counts import scaled


def settle_without_confirming(world: World) -> None:
    """Everything runs, and every commit is told as it would be sent."""
    for _ in range(100):
        if not world.tick():
            break


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
            sent = world.send_results()
            joined: dict[str, frozenset[Place]] = {}  # a result that was never sent hands its causes on
            for node, causes, made in watcher.completed:
                if made is None:
                    continue
                assert made.source is node, f"seed {seed}"
                if isinstance(made, Layer):
                    provenance = made.commit.provenance
                    assert (provenance.node, provenance.derived) == (node.id, True), f"seed {seed}"
                    assert frozenset(provenance.causes) == causes, f"seed {seed}: {node.id}"
                else:
                    joined[node.id] = joined.get(node.id, frozenset()) | causes
                checked += 1
            for place, result in enumerate([] if sent is None else sent.commit.results):
                assert sent is not None
                entries = [entry for entry in sent.entries if entry.place == place]
                provenance = result.provenance
                assert provenance.derived, f"seed {seed}"
                if len(entries) == 1:
                    assert provenance.node == entries[0].node, f"seed {seed}"
                    assert frozenset(provenance.causes) == joined[provenance.node], f"seed {seed}: {provenance.node}"
                else:  # results that read each other
                    named = frozenset[Place]().union(*[joined[entry.node] for entry in entries])
                    assert frozenset(provenance.causes) == named, f"seed {seed}: {provenance.node}"
            watcher.completed.clear()
            if sent is not None:
                world.supersede(sent)
            world.wire.flush()
            built.change(rng)
    assert checked > scaled(2_500)


def side_writer(world: World, source: Handle, side: Handle) -> Handle:
    def fn() -> int:
        side.set(source.get())
        return int(source.get())

    return world.computed(fn, writes=[side], id="node")


def test_causes_come_back_when_the_commit_is_rejected() -> None:
    world = World()
    source, side = world.cell(1), world.cell(0)
    world.look(side_writer(world, source, side))
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


@pytest.mark.parametrize("is_sent", [False, True], ids=["never sent", "superseded"])
def test_causes_of_a_replaced_result_are_causes_of_the_next_one(is_sent: bool) -> None:
    world = World()
    first, second = world.cell(1), world.cell(1)
    world.look(world.computed(lambda: first.get() + second.get(), id="node"))
    world.settle()
    first.set(2)
    settle_without_confirming(world)
    sent = world.send_results() if is_sent else None
    second.set(2)
    settle_without_confirming(world)
    if sent is not None:
        world.supersede(sent)
    assert {doc for doc, _ in causes_of(world)} == {first.document.key, second.document.key}


def test_causes_of_an_accepted_result_are_not_causes_of_the_next_one() -> None:
    world = World()
    first, second = world.cell(1), world.cell(1)
    world.look(world.computed(lambda: first.get() + second.get(), id="node"))
    world.settle()
    first.set(2)
    settle_without_confirming(world)
    sent = world.send_results()
    assert sent is not None
    second.set(2)
    settle_without_confirming(world)
    world.replica.wave_judged(sent, world.replica.confirmed.seq, (), 0, {})
    assert {doc for doc, _ in causes_of(world)} == {second.document.key}


def causes_of(world: World) -> tuple[Place, ...]:
    """Send one result, and return what it names as its causes."""
    sent = world.send_results()
    assert sent is not None
    (result,) = sent.commit.results
    return result.provenance.causes


def test_superseded_result_is_sent_again_without_a_run() -> None:
    world = World()
    source = world.cell(1)
    seen = world.look(world.computed(source.get, id="node"))
    settle_without_confirming(world)
    for _ in range(3):
        sent = world.send_results()
        assert sent is not None
        world.supersede(sent)
        settle_without_confirming(world)
    node = world.node("node")
    assert (node.status, node.runs, seen) == (CLEAN, 1, [1])


def test_a_refusal_that_is_no_conflict_is_told_once_and_not_repeated() -> None:
    world = World()
    source = world.cell(1)
    world.look(world.computed(source.get, id="node"))
    settle_without_confirming(world)
    node = world.node("node")
    sent = world.send_results()
    assert sent is not None
    world.replica.wave_judged(sent, 0, (), 0, {0: RuleRefused("size", "too large")})
    settle_without_confirming(world)
    assert node.runs == 1
    own = [failure for failure in world.driver.failures if not isinstance(failure.error, UpstreamFailedError)]
    assert [failure.node for failure in own] == ["node"]


def test_superseded_result_waits_for_the_commit_that_won() -> None:
    world = World()
    source = world.cell(1)
    world.look(world.computed(source.get, id="node"))
    settle_without_confirming(world)
    sent = world.send_results()
    assert sent is not None
    seq = world.replica.confirmed.seq
    world.supersede(sent, newest=seq + 1)
    assert world.send_results() is None
    world.replica.arrive([], seq + 1)
    assert world.send_results() is not None
