"""Provisional demand: what is created in a live run runs once, whether anybody reads it or not."""

from __future__ import annotations

import pytest

from headwater.data.value import ABSENT
from headwater.errors import AuthoringError
from headwater.scheduler.node import Node
from headwater.testing.scheduler.checks import check_world, left_behind
from headwater.testing.scheduler.kit import Handle, World


def creating(world: World, source: Handle) -> Handle:
    """A computation that creates another one and does not read it."""

    def fn() -> int:
        if world.scheduler.registry.get("child") is None:
            world.computed(lambda: source.get() * 2, id="child")
        return int(source.get())

    return world.computed(fn, id="creator")


def test_a_child_runs_once_in_the_pass_that_creates_it() -> None:
    """Also in the first pass, when its creator runs because somebody's attempt waits for it."""
    world = World()
    source = world.cell(1)
    world.look(creating(world, source))
    world.settle()
    child = world.node("child")
    assert child.runs == 1
    assert child.outputs[0].value == 2
    assert not child.live
    assert world.ran_after(lambda: source.set(2)) == ["creator", "e2"]
    check_world(world)


def test_a_child_of_a_dormant_creator_waits_like_everybody() -> None:
    world = World()
    source = world.cell(1)
    result = creating(world, source)
    world.settle()
    assert world.scheduler.registry.get("child") is None
    world.look(result)
    world.settle()
    assert world.node("child").runs == 1


def test_a_child_that_somebody_reads_in_the_same_pass_stays_live() -> None:
    world = World()
    source = world.cell(1)
    late = Handle(world, world.document("child"))
    seen: list[object] = []
    world.effect(lambda: seen.append(late.get()), id="reader")
    world.look(creating(world, source))
    world.settle()
    assert world.node("child").live
    source.set(3)
    world.settle()
    assert seen[-2:] == [2, 6]


def test_what_a_run_sampled_before_its_child_wrote_it_is_read_again() -> None:
    """D4: a child produces data that its parent has read already; the parent runs again in the same pass."""
    world = World()
    shared = Handle(world, world.document("shared"))
    seen: list[object] = []

    def parent() -> None:
        seen.append(shared.get())
        if world.scheduler.registry.get("shared") is None:
            world.computed(lambda: 7, id="shared", output=shared.document)

    world.effect(parent)
    world.settle()
    assert seen == [ABSENT, 7]


def test_removed_children_leave_no_claim_behind() -> None:
    world = World()
    source = world.cell(1)
    world.look(creating(world, source))
    world.settle()
    world.scheduler.remove(world.node("child"))
    source.set(2)
    world.settle()
    assert left_behind(world)["provisional"] == 0
    assert world.node("child").runs == 1


def test_nobody_becomes_the_child_of_a_node_that_is_gone() -> None:
    world = World()
    source = world.cell(0)
    own: list[Node] = []
    refused: list[AuthoringError] = []

    def fn() -> None:
        source.get()
        world.scheduler.remove(own[0])
        with pytest.raises(AuthoringError) as caught:
            world.effect(source.get, id="orphan", parent=own[0])
        refused.append(caught.value)

    own.append(world.effect(fn))
    world.settle()
    assert len(refused) == 1
    assert world.nodes() == []
    assert source.document.twig is None
