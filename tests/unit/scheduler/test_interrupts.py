"""An interrupt out of an author's function, and whoever goes away in the middle of a pass: the rest goes on."""

from __future__ import annotations

import pytest

from headwater.scheduler.limits import SchedulerLimits
from headwater.testing.scheduler.checks import check_world, left_behind, unsettled
from headwater.testing.scheduler.kit import World


@pytest.mark.parametrize("kind", ["effect", "computation", "materializer"])
def test_an_interrupted_node_runs_when_the_loop_goes_on(kind: str) -> None:
    world = World()
    source, target = world.cell(1), world.cell({})
    interrupting = [True]
    seen: list[object] = []

    def fn() -> object:
        value = source.get()
        if interrupting:
            interrupting.clear()
            raise KeyboardInterrupt
        seen.append(value)
        return None

    if kind == "effect":
        world.effect(fn)
    elif kind == "materializer":
        world.materializer(fn, [target])
    else:
        world.effect(world.computed(fn).get)
    with pytest.raises(KeyboardInterrupt):
        world.settle()
    assert world.scheduler.current.run is None
    world.settle()
    assert seen == [1]
    assert unsettled(world) == []
    check_world(world)


def test_after_an_interrupt_the_loop_is_asked_for_ticks_again() -> None:
    world = World()
    source = world.cell(1)
    interrupting = [True]

    def fn() -> None:
        source.get()
        if interrupting:
            interrupting.clear()
            raise KeyboardInterrupt

    world.effect(fn)
    asked = world.driver.ticks
    with pytest.raises(KeyboardInterrupt):
        world.settle()
    source.set(2)
    assert world.driver.ticks > asked


def test_what_an_interrupted_run_was_told_meanwhile_is_not_lost() -> None:
    world = World()
    first, second = world.cell(1), world.cell(1)
    interrupting: list[bool] = []
    seen: list[object] = []

    def fn() -> None:
        seen.append((first.get(), second.get()))
        if interrupting:
            interrupting.clear()
            raise KeyboardInterrupt

    node = world.effect(fn)
    world.settle()
    interrupting.append(True)
    first.set(2)
    with pytest.raises(KeyboardInterrupt):
        world.settle()
    assert node.causes is not None
    second.set(2)
    world.settle()
    assert seen[-1] == (2, 2)
    assert node.last_causes is not None
    assert {spot.document for spot in node.last_causes} == {first.document, second.document}


def test_what_a_removed_effect_waited_for_does_not_run_any_more() -> None:
    world = World(limits=SchedulerLimits(slice_runs=1, nested_depth=0))
    source = world.cell(1)
    below = source
    for _ in range(4):
        below = world.computed(lambda below=below: below.get())  # type: ignore[misc]
    node = world.effect(below.get)
    world.tick()
    world.tick()
    world.scheduler.remove(node)
    world.settle()
    assert world.ran() == []
    assert left_behind(world)["turns"] == 0


def test_what_two_effects_wait_for_runs_for_the_one_that_stays() -> None:
    world = World(limits=SchedulerLimits(slice_runs=1))
    source = world.cell(1)
    middle = world.computed(lambda: source.get() + 1)
    result = world.computed(lambda: middle.get() + 1)
    gone = world.effect(result.get)
    seen = world.look(result)
    world.tick()
    world.tick()
    world.scheduler.remove(gone)
    world.settle()
    assert seen == [3]
    check_world(world)
