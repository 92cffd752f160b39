"""What an attempt needs runs while that waits where it is: how often, how deep, and what stops it all the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headwater.data.trace import Suspended
from headwater.data.value import ABSENT
from headwater.errors import UpstreamFailedError
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import CLEAN
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.graphs import FAILING, KINDS, Built, random_plan
from headwater.testing.scheduler.kit import Handle, World
from tests.counts import scaled


def doubled(source: Handle) -> Any:
    return lambda: source.get() * 2


@pytest.mark.parametrize("count", [100, 400, 1_600])
def test_a_reader_of_many_that_never_ran_is_attempted_a_few_times_however_many_there_are(count: int) -> None:
    world = World()
    cells = [world.cell(number) for number in range(count)]
    parts = [world.computed(doubled(each)) for each in cells]
    total = world.computed(lambda: sum(each.get() for each in parts), id="total")
    seen = world.look(total, id="eye")
    world.settle()
    assert seen == [sum(range(count)) * 2]
    assert all(world.node(each).attempts == 1 for each in parts)
    assert world.node("total").attempts <= 1 + count // 500
    assert sum(node.attempts for node in world.nodes()) <= count + 8
    check_world(world)


def test_a_reader_of_many_that_nobody_looked_at_for_a_while_is_attempted_once() -> None:
    world = World()
    is_shown = world.cell(True)
    source = world.cell(1)
    base = [world.computed(lambda n=n: source.get() + n) for n in range(50)]  # type: ignore[misc]
    parts = [world.computed(doubled(each)) for each in base]
    seen = world.look(world.computed(lambda: sum(each.get() for each in parts) if is_shown.get() else 0, id="total"))
    world.settle()
    is_shown.set(False)
    world.settle()
    source.set(5)
    world.settle()
    before = world.node("total").attempts
    is_shown.set(True)
    world.settle()
    assert seen == [2 * (50 + sum(range(50))), 0, 2 * (250 + sum(range(50)))]
    assert world.node("total").attempts == before + 1
    assert {world.node(each).runs for each in (*base, *parts)} == {2}
    check_world(world)


@pytest.mark.parametrize("depth", [0, 1, 16])
def test_a_long_chain_is_attempted_twice_each_but_where_a_slice_ends(depth: int) -> None:
    world = World(limits=SchedulerLimits(nested_depth=depth))
    at = world.cell(0)
    source = at
    for _ in range(5_000):
        at = world.computed(lambda below=at: below.get() + 1)  # type: ignore[misc]
    seen = world.look(at)
    world.settle()
    assert seen == [5_000]
    assert max(node.attempts for node in world.nodes()) <= 4
    assert sum(node.attempts for node in world.nodes()) <= 2 * 5_000 + 32 * (2 * 5_000 // 500)
    source.set(1)
    world.settle()
    assert seen == [5_000, 5_001]


def test_the_event_loop_gets_its_turn_while_many_run_for_one() -> None:
    world = World(limits=SchedulerLimits(slice_runs=10))
    parts = [world.computed(lambda n=n: n) for n in range(300)]  # type: ignore[misc]
    seen = world.look(world.computed(lambda: sum(each.get() for each in parts), id="total"))
    ticks = 0
    while world.tick():
        ticks += 1
    assert seen == [sum(range(300))]
    assert ticks >= 300 // 40
    assert world.node("total").attempts <= 2 + 300 // 40
    assert all(world.node(each).attempts == 1 for each in parts)


def test_what_a_listener_writes_meanwhile_has_the_reader_begun_anew() -> None:
    world = World()
    source, part_of = world.cell(1), world.cell(10)
    part = world.computed(lambda: part_of.get(), id="part")

    def answer(notification: Any) -> None:
        if notification.document is part.document and source.peek() == 1:
            source.set(2)

    world.replica.feed.subscribe(answer)
    seen = world.look(world.computed(lambda: (source.get(), part.get(), source.get()), id="both"))
    world.settle()
    assert seen == [(2, 10, 2)]
    check_world(world)


def test_the_failure_of_one_that_ran_meanwhile_is_shown_to_its_reader_and_ends_with_it() -> None:
    world = World()
    source = world.cell(0)
    part = world.computed(lambda: 10 // source.get(), id="part")

    def careful() -> Any:
        try:
            return part.get()
        except UpstreamFailedError:
            return "failed"

    seen = world.look(world.computed(careful))
    world.settle()
    source.set(2)
    world.settle()
    assert seen == ["failed", 5]
    check_world(world)


def test_a_place_that_both_look_at_is_read_once() -> None:
    world = World()
    source = world.cell({"a": 1, "b": 2})
    part = world.computed(lambda: Handle(world, source.document, ("a",)).get(), id="part")

    def both() -> Any:
        first = Handle(world, source.document, ("a",)).get()
        return first, part.get(), Handle(world, source.document, ("a",)).get(), source.get()["b"]

    seen = world.look(world.computed(both, id="both"))
    world.settle()
    assert seen == [(1, 1, 1, 2)]
    check_world(world)
    source.at("a").set(5)
    world.settle()
    assert seen == [(1, 1, 1, 2), (5, 5, 5, 2)]
    check_world(world)


def test_one_that_is_removed_while_it_waits_leaves_nothing() -> None:
    world = World()

    def remove() -> int:
        world.scheduler.remove(world.node("reader"))
        return 1

    part = world.computed(remove, id="part")
    reader = world.effect(part.get, id="reader")
    world.settle()
    assert reader.removed
    assert not world.scheduler.pass_.stopped()
    check_world(world)


def test_an_interrupt_comes_through_and_both_run_later() -> None:
    world = World()
    is_first = [True]

    def part() -> int:
        if is_first:
            is_first.clear()
            raise KeyboardInterrupt
        return 7

    made = world.computed(part, id="part")
    seen = world.look(made, id="eye")
    with pytest.raises(KeyboardInterrupt):
        world.settle()
    assert not world.scheduler.pass_.stopped()
    assert world.scheduler.current.run is None
    world.settle()
    assert seen == [7]
    check_world(world)


def test_one_that_has_written_is_stopped_as_ever() -> None:
    world = World()
    side = world.absent_cell("side")
    part = world.computed(lambda: 3, id="part")

    def fn() -> Any:
        side.set(1)
        return part.get()

    seen = world.look(world.computed(fn, id="writer", writes=(side,)), id="eye")
    world.settle()
    assert seen == [3]
    assert [event.node for event in world.trace.of(Suspended)] == ["eye", "writer", "eye", "writer"]
    check_world(world)


def test_round_a_cycle_nobody_waits_for_itself() -> None:
    world = World()
    source = world.cell(1)
    one, two = Handle(world, world.document("one")), Handle(world, world.document("two"))

    def get(handle: Handle) -> Any:
        found = handle.get()
        return found if isinstance(found, int) else 0

    world.computed(lambda: min(get(two), 3) + source.get(), id="one", output=one.document)
    world.computed(lambda: min(get(one), 3), id="two", output=two.document)
    seen = world.look(one)
    world.settle()
    world.advance(10_000)
    assert seen[-1] == 4
    assert all(node.status == CLEAN for node in world.nodes())
    check_world(world)


def test_why_one_ran_names_what_changed_while_it_waited() -> None:
    world = World()
    is_on, source = world.cell(False), world.cell(1)
    part = world.computed(lambda: source.get(), id="part")
    world.look(world.computed(lambda: part.get() if is_on.get() else 0, id="reader"))
    world.settle()
    is_on.set(True)
    world.settle()
    is_on.set(False)
    world.settle()
    reader = world.node("reader")
    assert [spot.document for spot in reader.last_causes or ()] == [is_on.document]
    source.set(2)
    is_on.set(True)
    world.settle()
    assert is_on.document in [spot.document for spot in reader.last_causes or ()]
    assert reader.runs == 4
    check_world(world)


def test_one_that_has_read_what_runs_meanwhile_is_begun_anew_and_sees_no_mixture() -> None:
    """At the last sweep of a pass an effect reads what is still to run; then something that it needs has it run."""
    world = World(limits=SchedulerLimits(pass_iterations=1))
    source, is_on = world.cell(1), world.cell(False)
    part = world.computed(lambda: source.get(), id="part")
    tenfold = world.computed(lambda: part.get() * 10, id="tenfold")
    late = world.computed(lambda: is_on.get(), id="late")
    seen: list[Any] = []
    world.effect(lambda: seen.append((part.get(), tenfold.get() if is_on.get() else None)), id="eye")
    world.look(late)

    def answer(notification: Any) -> None:
        if notification.document is late.document and is_on.peek() and source.peek() == 1:
            source.set(2)

    world.settle()
    world.replica.feed.subscribe(answer)
    is_on.set(True)
    world.settle()
    assert seen == [(1, None), (2, 20)]
    check_world(world)


@pytest.mark.random
def test_the_same_runs_come_in_the_same_order_as_if_each_reader_had_been_stopped() -> None:
    for seed in range(scaled(1_000)):
        stories = []
        for depth in (16, 0):
            rng = random.Random(seed)
            world = World(limits=SchedulerLimits(nested_depth=depth))
            built = Built(world, random_plan(rng, kinds=rng.choice((KINDS, FAILING))))
            names = [*built.plan.nodes, *built.plan.effects]
            rng.shuffle(names)
            story = []
            for name in names:
                built.register(name)
                if rng.random() < 0.3:
                    world.settle()
                    story.append(world.ran())
            for _ in range(6):
                world.settle()
                story.append(world.ran())
                for _ in range(rng.choice((1, 1, 3))):
                    built.change(rng)
            check_world(world)
            stories.append(story)
        assert stories[0] == stories[1], f"seed {seed}"


def test_reader_of_a_delayed_node_without_a_value_has_it_run() -> None:
    """A reader uses the last value of a node that is held back by time. Here there is none: its result was dropped."""
    world = World()
    source = world.cell(0)
    slow = world.computed(lambda: source.get() or ABSENT, id="slow", debounce_ms=500)
    seen: list[object] = []
    first = world.effect(slow.get)
    world.settle()
    world.scheduler.remove(first)
    source.set(5)
    world.effect(lambda: seen.append(slow.get()))
    world.settle()
    assert seen == [5]
    source.set(6)
    world.settle()
    assert seen == [5]  # It has a value, and waits for its debounce.
    world.advance(500)
    assert seen == [5, 6]
