"""Nodes that come and go at the worst moments: in their own runs, while they wait, by their children."""

from __future__ import annotations

import pytest

from headwater.errors import UpstreamFailedError
from headwater.scheduler.node import Node, check_node
from headwater.testing.scheduler.checks import check_world, left_behind
from headwater.testing.scheduler.kit import Handle, World


def test_a_computation_that_removes_itself_leaves_nothing_behind() -> None:
    world = World()
    source = world.cell(0)
    own: list[Node] = []

    def fn() -> int:
        value = int(source.get())
        if value == 1:
            world.scheduler.remove(own[0])
        return value

    result = world.computed(fn)
    own.append(world.node(result))
    seen = world.look(result)
    world.settle()
    source.set(1)
    world.settle()
    check_node(own[0])
    check_world(world)
    assert source.document.twig is None
    assert seen == [0]


def test_an_effect_that_removes_itself_leaves_nothing_behind() -> None:
    world = World()
    source = world.cell(0)
    own: list[Node] = []

    def fn() -> None:
        if source.get() == 1:
            world.scheduler.remove(own[0])

    own.append(world.effect(fn))
    world.settle()
    source.set(1)
    world.settle()
    check_node(own[0])
    assert source.document.twig is None
    assert world.driver.failures == []


def test_a_child_may_remove_its_parent_and_thereby_itself() -> None:
    world = World()
    source = world.cell(0)
    own: list[Node] = []

    def child() -> None:
        source.get()
        world.scheduler.remove(own[0])

    def parent() -> None:
        source.get()
        if world.scheduler.registry.get("child") is None:
            world.effect(child, id="child", parent=own[0])

    own.append(world.effect(parent, id="parent"))
    world.settle()
    assert world.nodes() == []
    assert source.document.twig is None


def test_a_run_may_remove_its_reader() -> None:
    world = World()
    source = world.cell(0)
    readers: list[Node] = []

    def fn() -> int:
        value = int(source.get())
        if value == 1:
            world.scheduler.remove(readers[0])
        return value

    result = world.computed(fn)
    seen: list[int] = []
    readers.append(world.effect(lambda: seen.append(result.get())))
    world.settle()
    source.set(1)
    world.settle()
    check_world(world)
    assert seen == [0]
    assert not world.node(result).live


def test_a_run_may_register_a_reader_of_its_own_output() -> None:
    world = World()
    source = world.cell(0)
    output = Handle(world, world.document("own"))
    seen: list[int] = []

    def fn() -> int:
        if world.scheduler.registry.get("reader") is None:
            world.effect(lambda: seen.append(output.get()), id="reader")
        return int(source.get())

    world.computed(fn, id="own", output=output.document)
    world.effect(lambda: output.get())
    world.settle()
    source.set(5)
    world.settle()
    check_world(world)
    assert seen == [0, 5]


def test_a_node_is_removed_while_an_attempt_of_it_waits() -> None:
    world = World()
    source = world.cell(1)
    late = Handle(world, world.document("late"))
    waiting: list[Node] = []

    def fn() -> int:
        world.scheduler.remove(waiting[0])
        return int(source.get())

    world.computed(fn, id="late", output=late.document)
    waiting.append(world.effect(late.get))
    world.settle()
    check_world(world)
    assert late.peek() == 1
    assert waiting[0].runs == 0
    assert waiting[0].attempts == 1


def test_a_node_is_removed_while_it_waits_for_its_turn() -> None:
    world = World()
    source = world.cell(0)
    node = world.effect(source.get)
    world.settle()
    world.forget()
    source.set(1)
    world.scheduler.remove(node)
    world.settle()
    assert world.ran() == []
    assert source.document.twig is None


def test_a_node_is_removed_while_its_time_has_not_come() -> None:
    world = World()
    source = world.cell(0)
    node = world.effect(source.get, debounce_ms=100)
    world.settle()
    source.set(1)
    world.settle()
    assert left_behind(world)["gated"] == 1
    world.scheduler.remove(node)
    assert world.driver.timer_at is None
    world.advance(1_000)
    assert node.runs == 1


def test_removed_nodes_do_not_stay_behind_a_gate_that_is_due_earlier() -> None:
    world = World()
    first, second = world.cell(0), world.cell(0)
    world.effect(first.get, debounce_ms=1_000)
    world.settle()
    first.set(1)
    world.settle()
    for turn in range(200):
        node = world.effect(second.get, debounce_ms=5_000)
        world.settle()
        second.set(turn + 1)
        world.settle()
        world.scheduler.remove(node)
    assert left_behind(world)["gated"] < 20


def test_a_node_is_removed_while_it_waits_for_a_document() -> None:
    world = World(lazy=True)
    missing = world.absent_cell("missing")
    node = world.effect(missing.get)
    world.settle()
    assert node.loading
    world.scheduler.remove(node)
    assert missing.document.twig is None
    world.arrive(missing, 1)
    world.settle()
    assert node.runs == 0


def test_a_doomed_child_does_not_run() -> None:
    """Parents come before children on ties, and what they remove in the same pass does not run."""
    world = World()
    source = world.cell(0)
    children: list[Node] = []
    ran: list[int] = []

    def parent() -> None:
        value = source.get()
        if children:
            world.scheduler.remove(children.pop())
        if value < 2:
            children.append(world.effect(lambda: ran.append(source.get()), id=f"child{value}", parent=top))

    top = world.effect(parent, id="parent")
    world.settle()
    source.set(1)
    world.settle()
    source.set(2)
    world.settle()
    assert ran == [0, 1]
    assert [node.id for node in world.nodes()] == ["parent"]


def test_a_cleanup_that_raises_keeps_nothing_from_being_removed() -> None:
    world = World()
    source = world.cell(0)

    def broken() -> None:
        raise RuntimeError("cleanup")

    def fn() -> object:
        source.get()
        return broken

    parent = world.effect(fn, id="parent")
    world.effect(fn, id="child", parent=parent)
    world.settle()
    world.scheduler.remove(parent)
    assert world.nodes() == []
    assert source.document.twig is None
    assert sorted(failure.node for failure in world.driver.failures) == ["child", "parent"]


def test_what_a_cleanup_reads_wakes_nobody() -> None:
    world = World()
    source, other = world.cell(0), world.cell(0)

    def fn() -> object:
        source.get()
        return lambda: other.get()

    world.effect(fn)
    world.settle()
    source.set(1)
    assert world.ran_after(lambda: other.set(1)) == []


@pytest.mark.parametrize("kind", ["computation", "effect", "materializer"])
def test_the_same_id_can_be_registered_again_after_removal(kind: str) -> None:
    world = World()
    source, target = world.cell(0), world.cell({})
    for turn in range(3):
        if kind == "computation":
            world.computed(source.get, id="again", output=target.document)
        elif kind == "effect":
            world.effect(source.get, id="again")
        else:
            world.materializer(source.get, [target], id="again")
        world.settle()
        source.set(turn + 1)
        world.settle()
        world.scheduler.remove(world.node("again"))
        check_world(world)
    assert left_behind(world) == dict.fromkeys(left_behind(world), 0)


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "gone"])
def test_a_failure_ends_with_the_node_that_failed(is_replaced: bool) -> None:
    """Its readers look again when it is removed, also if what comes after it makes the value that was there before."""
    world = World()
    divisor = world.cell(2)
    output = world.document("result")
    world.computed(lambda: 10 // divisor.get(), id="result", output=output)
    result = Handle(world, output)
    seen: list[object] = []

    def eye() -> None:
        try:
            seen.append(result.get())
        except UpstreamFailedError:
            seen.append("failed")

    world.effect(eye)
    world.settle()
    divisor.set(0)
    world.settle()
    world.scheduler.remove(world.node("result"))
    divisor.set(2)
    if is_replaced:
        world.computed(lambda: 10 // divisor.get(), id="result", output=output)
    world.settle()
    assert seen == [5, "failed", 5]
