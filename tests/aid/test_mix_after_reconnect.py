"""Effects show a computed together with the cells that it follows from, also after a reconnect with much to do.

A node that waits for a document goes on as soon as the document is here again. A pass that has no sweep left has the
computeds run that its effects read.
"""

from __future__ import annotations

from headwater.scheduler import SchedulerLimits
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import World


def test_effect_in_the_last_sweep_of_a_pass_runs_after_the_computeds_that_it_reads() -> None:
    world = World(limits=SchedulerLimits(pass_iterations=1, slice_runs=1))
    other, source = world.cell(1), world.cell(1)
    first = world.computed(source.get, id="first")
    seen: list[tuple[int, int]] = []
    world.effect(other.get, id="other eye")
    world.effect(lambda: seen.append((first.get(), source.get())), id="eye")
    world.settle()
    other.set(2)
    world.forget()
    world.tick()
    assert world.ran() == ["other eye"], "the pass has come to its effects"
    other.set(3)
    source.set(2)
    world.settle()
    assert seen == [(1, 1), (2, 2)]
    check_world(world)


def test_effect_in_the_last_sweep_of_a_pass_runs_after_all_computeds_above_those_that_it_reads() -> None:
    world = World(limits=SchedulerLimits(pass_iterations=1, slice_runs=1))
    other, source = world.cell(1), world.cell(1)
    first = world.computed(source.get, id="first")
    second = world.computed(first.get, id="second")
    seen: list[tuple[int, int]] = []
    world.effect(other.get, id="other eye")
    world.effect(other.get, id="last eye")
    world.effect(lambda: seen.append((second.get(), source.get())), id="eye")
    world.settle()
    other.set(2)
    world.forget()
    world.tick()
    assert world.ran() == ["other eye"], "the pass has come to its effects, and one is to run"
    source.set(2)
    world.settle()
    assert seen == [(1, 1), (2, 2)]
    check_world(world)


def test_computed_in_the_last_sweep_of_a_pass_runs_after_the_computeds_that_it_reads() -> None:
    world = World(limits=SchedulerLimits(pass_iterations=1, slice_runs=1))
    other, source = world.cell(1), world.cell(1)
    first = world.computed(source.get, id="first")
    middle = world.computed(lambda: other.get() + 0 * first.get(), id="middle")
    seen: list[tuple[int, int]] = []

    def both() -> int:
        seen.append((first.get(), source.get()))
        return int(middle.get())

    world.effect(world.computed(both, id="high").get, id="eye")
    world.settle()
    other.set(2)
    world.forget()
    while not world.ran():
        world.tick()
    assert world.ran() == ["middle"], "the sweep is above the first computed"
    source.set(2)
    world.settle()
    assert seen[-1] == (2, 2)
    assert all(result == cell for result, cell in seen)
    check_world(world)


def test_readers_of_a_computed_whose_document_is_here_again_are_not_tried_over_and_over() -> None:
    world = World()
    source = world.cell(1)
    low = world.computed(source.get, id="low")
    high = world.computed(lambda: low.get() + source.get(), id="high")
    seen = world.look(high)
    world.settle()
    assert seen == [2]
    world.driver.lazy = True
    world.replica.gap()
    world.arrive(source, 2)
    world.settle()
    waiting = [world.node(each).loading for each in (low, high)]
    assert waiting == [low.document, high.document], "both are going to be replaced"
    world.arrive(high, 2)
    world.scheduler.heard()
    world.arrive(low, 1)  # A slice comes before anybody has heard of that.
    before = world.node(high).attempts
    world.tick()
    assert world.node(high).attempts <= before + 2
    assert world.node(low).loading is None, "its document is here, and it had its turn"
    world.scheduler.heard()
    world.settle()
    assert seen == [2, 4]
    check_world(world)
