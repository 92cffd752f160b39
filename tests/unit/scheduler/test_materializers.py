"""Materializers: standing demand at idle priority, promotion, envelopes that order and never mark."""

from __future__ import annotations

import pytest

from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, World


def test_it_runs_without_demand_after_everything_else_and_once_for_many_changes() -> None:
    world = World()
    source, target = world.cell(0), world.cell({"x": 0})
    world.materializer(lambda: target.at("x").set(source.get()), [target], id="m")
    world.effect(source.get, id="e")
    world.settle()
    world.forget()
    for value in range(1, 5):
        source.set(value)
    world.settle()
    assert world.ran() == ["e", "m"]
    assert target.at("x").peek() == 4
    check_world(world)


def test_it_is_promoted_ahead_of_a_reader_inside_its_envelope() -> None:
    world = World()
    source, target = world.cell(0), world.cell({"x": 0})
    world.materializer(lambda: target.at("x").set(source.get()), [target], id="m")
    seen: list[tuple[int, int]] = []
    world.effect(lambda: seen.append((source.get(), target.at("x").get())), id="e")
    world.settle()
    source.set(1)
    world.settle()
    assert seen == [(0, 0), (1, 1)]


def test_it_is_promoted_ahead_of_a_reader_that_is_only_demanded() -> None:
    """The reader is dormant and invalid: it does not wait in the queue, but for somebody's attempt."""
    world = World()
    source, other, is_on = world.cell(0), world.cell(0), world.cell(True)
    target = world.cell({"x": 0})
    world.materializer(lambda: target.at("x").set(source.get()), [target], id="m")
    reader = world.computed(lambda: target.at("x").get() + other.get(), id="c")
    seen: list[object] = []
    world.effect(lambda: seen.append(reader.get() if is_on.get() else "off"), id="e")
    world.settle()
    is_on.set(False)
    world.settle()
    world.forget()
    other.set(100)
    source.set(1)
    is_on.set(True)
    world.settle()
    assert seen == [0, "off", 101]
    assert world.ran() == ["m", "c", "e"]


def test_its_envelope_marks_nobody_but_what_it_writes_does() -> None:
    world = World()
    source, target = world.cell(0), world.cell({"x": 0, "y": 0})
    world.materializer(lambda: target.at("x").set(source.get()), [target], id="m")
    world.effect(target.at("y").get, id="beside")
    world.effect(target.at("x").get, id="inside")
    world.settle()
    world.forget()
    source.set(1)
    world.settle()
    assert world.ran() == ["m", "inside"]


def test_an_equal_result_marks_nobody() -> None:
    world = World()
    source, target = world.cell(0), world.cell({"x": 0})
    world.materializer(lambda: target.at("x").set(source.get() // 10), [target], id="m")
    world.effect(target.get, id="e")
    world.settle()
    world.forget()
    source.set(5)
    world.settle()
    assert world.ran() == ["m"]


@pytest.mark.parametrize("path", [(), ("deep",), ("deep", "x")])
def test_a_write_outside_its_envelope_raises_and_says_what_to_declare(path: tuple[str, ...]) -> None:
    world = World()
    source, target = world.cell(1), world.cell({"deep": {"x": 0, "y": 0}})
    inside = target.at(*path)
    world.materializer(lambda: target.at("deep", "y").set(source.get()), [inside], id="m")
    world.settle()
    errors = [str(failure.error) for failure in world.driver.failures]
    if path == ("deep", "x"):
        (error,) = errors
        assert "space:d2#/deep/y" in error
        assert "envelope=" in error
    else:
        assert errors == []
        assert target.at("deep", "y").peek() == 1


def test_a_document_of_its_envelope_that_is_not_here_is_waited_for() -> None:
    world = World(lazy=True)
    source, target = world.cell(1), world.absent_cell("target")
    world.materializer(lambda: target.set({"x": source.get()}), [target])
    seen = world.look(target)
    world.settle(100)
    assert seen == []
    world.arrive(target, {"x": 0})
    world.settle(100)
    assert target.peek() == {"x": 1}
    assert seen == [{"x": 1}]


def test_two_materializers_that_feed_each_other_settle() -> None:
    world = World()
    target = world.cell({"x": 0, "y": 0})
    x, y = target.at("x"), target.at("y")
    world.materializer(lambda: y.set(x.get()), [y], id="m1")
    world.materializer(lambda: x.set(min(5, y.get() + 1)), [x], id="m2")
    seen = world.look(target)
    world.settle()
    world.advance(10_000)
    assert target.peek() == {"x": 5, "y": 5}
    assert seen[-1] == {"x": 5, "y": 5}


def copying(world: World, source: Handle, target: Handle) -> Handle:
    """A materializer that copies a cell into its envelope and returns it, too."""
    output = Handle(world, world.document("copied"))

    def fn() -> object:
        target.at("x").set(source.get())
        return source.get()

    spec = NodeSpec(
        id="m",
        kind=NodeKind.MATERIALIZER,
        fn=fn,
        home=world.replica,
        outputs=(output.document,),
        envelope=((target.document, ()),),
    )
    world.scheduler.register(spec)
    return output


def test_what_it_returns_is_fresh_for_those_who_read_it() -> None:
    world = World()
    source, target = world.cell(0), world.cell({"x": 0})
    output = copying(world, source, target)
    seen = world.look(world.computed(lambda: (source.get(), output.get())))
    world.settle()
    source.set(1)
    world.settle()
    assert seen == [(0, 0), (1, 1)]


def test_what_it_returns_is_fresh_through_a_node_that_is_read_for_the_first_time() -> None:
    world = World()
    source, selector, target = world.cell(0), world.cell(0), world.cell({"x": 0})
    output = copying(world, source, target)
    between = world.computed(lambda: output.get())
    world.look(between)
    seen = world.look(world.computed(lambda: (source.get(), between.get() if selector.get() else None)))
    world.settle()
    source.set(1)
    selector.set(1)
    world.settle()
    assert seen == [(0, None), (1, 1)]
