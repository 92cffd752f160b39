"""Freshness by suspension: what an attempt waits for, and what no author can do about it."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.data.patch import replace
from headwater.data.trace import Suspended
from headwater.data.value import ABSENT
from headwater.errors import UpstreamFailedError
from headwater.scheduler.limits import SchedulerLimits
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, World


def plus_one(below: Handle) -> object:
    return lambda: below.get() + 1


def test_catching_everything_does_not_swallow_the_signal() -> None:
    world = World()
    source = world.cell(1)
    late = Handle(world, world.document("late"))

    def fn() -> object:
        try:
            return late.get()
        except BaseException:
            return "swallowed"

    seen = world.look(world.computed(fn))
    world.computed(lambda: source.get(), id="late", output=late.document)
    world.settle()
    assert seen == [1]


def test_catching_everything_twice_does_not_swallow_either_signal() -> None:
    world = World()
    source = world.cell(1)
    late = [Handle(world, world.document(f"late{index}")) for index in range(2)]

    def fn() -> object:
        found = []
        for each in late:
            try:
                found.append(each.get())
            except BaseException:
                found.append("swallowed")
        return found

    seen = world.look(world.computed(fn))
    for index, each in enumerate(late):
        world.computed(lambda index=index: source.get() + index, id=f"late{index}", output=each.document)  # type: ignore[misc]
    world.settle()
    assert seen == [(1, 2)]


def test_what_an_attempt_wrote_before_it_was_stopped_is_dropped() -> None:
    world = World()
    source, side = world.cell(1), world.cell(0)
    late = Handle(world, world.document("late"))
    shown: list[object] = []

    def fn() -> object:
        shown.append(side.peek())
        side.set(7)
        return late.get()

    world.look(world.computed(fn, writes=[side]))
    world.computed(lambda: source.get(), id="late", output=late.document)
    world.settle()
    assert shown == [0, 0]
    assert side.peek() == 7


def test_an_interrupt_leaves_the_node_as_it_was_and_nothing_of_its_transaction() -> None:
    world = World()
    source, side = world.cell(1), world.cell(0)
    interrupting = [True]

    def fn() -> int:
        if interrupting:
            source.get()
            side.set(99)
            interrupting.clear()
            raise KeyboardInterrupt
        return int(source.get())

    result = world.computed(fn, writes=[side])
    other = world.computed(lambda: source.get() * 10)
    world.look(result)
    world.look(other)
    with pytest.raises(KeyboardInterrupt):
        world.settle()
    assert world.scheduler.current.run is None
    world.settle()
    assert (result.peek(), other.peek(), side.peek()) == (1, 10, 0)
    check_world(world)


def test_a_cycle_of_nodes_that_never_ran_is_entered_somewhere() -> None:
    world = World()
    names = ["x", "y", "z"]
    handles = {name: Handle(world, world.document(name)) for name in names}
    for name, above in zip(names, ["z", "x", "y"], strict=True):
        handle = handles[above]
        world.computed(
            lambda handle=handle: min(3, 0 if handle.get() is ABSENT else handle.get() + 1),  # type: ignore[misc]
            id=name,
            output=handles[name].document,
        )
    seen = world.look(handles["y"])
    world.settle()
    assert {handle.peek() for handle in handles.values()} == {3}
    assert seen[-1] == 3
    check_world(world)


def test_demand_wakes_an_invalid_node_two_levels_above_a_clean_dormant_one() -> None:
    world = World()
    source, is_on = world.cell(0), world.cell(True)
    top = world.computed(lambda: source.get(), id="top")
    middle = world.computed(lambda: top.get(), id="middle")
    bottom = world.computed(lambda: middle.get(), id="bottom")
    seen: list[object] = []
    world.effect(lambda: seen.append(bottom.get() if is_on.get() else "off"), id="eye")
    world.settle()
    is_on.set(False)
    world.settle()
    source.set(1)
    world.settle()
    assert world.ran_after(lambda: is_on.set(True)) == ["top", "middle", "bottom", "eye"]
    assert seen == [0, "off", 1]


def test_a_new_edge_to_a_higher_node_waits_for_what_is_invalid_in_between() -> None:
    world = World()
    source, selector = world.cell(0), world.cell(0)
    below = source
    for level in range(6):
        below = world.computed(plus_one(below), id=f"level{level}")  # type: ignore[arg-type]
    deep = below
    world.look(deep)
    seen: list[object] = []
    world.effect(lambda: seen.append((source.get(), deep.get() if selector.get() else None)), id="eye")
    world.settle()
    transaction = world.replica.begin()
    transaction.write(source.document.key, replace((), 10))
    transaction.write(selector.document.key, replace((), 1))
    world.replica.commit(transaction)
    world.settle()
    assert seen == [(0, None), (10, 16)]


def test_a_new_edge_waits_for_what_is_suspended_above_it() -> None:
    """S waits for a deep chain; V reads S and is clean; T runs meanwhile and begins to read V."""
    world = World()
    source, selector = world.cell(0), world.cell(0)
    below = source
    for level in range(6):
        below = world.computed(plus_one(below), id=f"level{level}")  # type: ignore[arg-type]
    deep = below
    world.look(deep)
    s = world.computed(lambda: source.get() + (deep.get() * 100 if selector.get() else 0), id="S")
    v = world.computed(lambda: s.get() + 1, id="V")
    world.look(v)
    first = world.computed(lambda: source.get())
    second = world.computed(lambda: first.get())
    t = world.computed(lambda: (second.get(), v.get()) if selector.get() else second.get(), id="T")
    seen = world.look(t)
    world.settle()
    world.forget()
    transaction = world.replica.begin()
    transaction.write(source.document.key, replace((), 1))
    transaction.write(selector.document.key, replace((), 1))
    world.replica.commit(transaction)
    world.settle()
    assert seen == [0, (1, 702)]
    assert max(Counter(world.ran()).values()) == 1


def test_a_node_registered_in_a_run_is_run_before_what_reads_it_is_read() -> None:
    world = World()
    source = world.cell(0)
    child = Handle(world, world.document("child"))
    reader = world.computed(lambda: 0 if child.get() is ABSENT else child.get())
    world.look(reader)
    first = world.computed(lambda: source.get())
    second = world.computed(lambda: first.get())
    seen: list[object] = []

    def parent() -> object:
        if second.get() == 0:
            return None
        if world.scheduler.registry.get("child") is None:
            world.computed(lambda: 42, id="child", output=child.document)
        seen.append(reader.get())
        return seen[-1]

    world.look(world.computed(parent))
    world.settle()
    source.set(1)
    world.settle()
    assert seen == [42]


def test_a_reader_does_not_wait_for_itself_round_a_node_that_waits_for_a_document() -> None:
    """The upstream of something clean and dormant waits for a load; its reader waits, too, and not for ever."""
    world = World()
    selector, is_on = world.cell(0), world.cell(True)
    missing = world.absent_cell("missing")
    outputs = [world.document("upper"), world.document("lower")]
    world.driver.lazy = True
    upper = world.computed(lambda: missing.get() if selector.get() else 0, id="upper", output=outputs[0])
    lower = world.computed(lambda: upper.get(), id="lower", output=outputs[1])
    seen: list[object] = []
    world.effect(lambda: seen.append(lower.get() if is_on.get() else "off"))
    world.settle()
    selector.set(1)
    world.settle()
    is_on.set(False)
    world.settle()
    is_on.set(True)
    world.settle(200)
    world.arrive(missing, 7)
    world.settle(200)
    assert seen[-1] == 7


def test_a_known_reader_waits_for_an_upstream_that_waits_for_a_document() -> None:
    world = World()
    selector = world.cell(0)
    missing = world.absent_cell("missing")
    output = world.document("upper")
    world.driver.lazy = True
    upper = world.computed(lambda: missing.get() if selector.get() else 0, id="upper", output=output)
    seen: list[object] = []
    world.effect(lambda: seen.append((selector.get(), upper.get())))
    world.settle()
    selector.set(1)
    world.settle()
    world.arrive(missing, 9)
    world.settle()
    assert seen == [(0, 0), (1, 9)]


def test_an_output_that_arrives_later_lets_its_node_run() -> None:
    world = World(lazy=True)
    source = world.cell(1)
    result = world.computed(lambda: source.get())
    seen: list[object] = []
    world.effect(lambda: seen.append(result.get()))
    world.settle()
    assert seen == []
    world.arrive(result)
    world.settle()
    assert seen == [1]


def test_a_stopped_attempt_counts_as_no_run() -> None:
    world = World(limits=SchedulerLimits(nested_depth=0))
    late = Handle(world, world.document("late"))
    node = world.effect(late.get, id="eye")
    world.computed(lambda: 1, id="late", output=late.document)
    world.settle()
    assert (node.attempts, node.runs) == (2, 1)
    assert [event.waits_for for event in world.trace.of(Suspended)] == [("late",)]


def test_a_failed_upstream_raises_in_its_reader_also_while_it_waits_to_try_again() -> None:
    world = World()
    source = world.cell(1)
    failing = [True]

    def fn() -> int:
        source.get()
        if failing:
            raise OSError("not now")
        return 5

    result = world.computed(fn, transient=(OSError,))
    seen: list[object] = []

    def eye() -> None:
        try:
            seen.append(result.get())
        except UpstreamFailedError:
            seen.append("failed")

    world.effect(eye)
    world.settle()
    assert ABSENT not in seen
    failing.clear()
    world.advance(60_000)
    assert seen[-1] == 5


def test_an_upstream_recovers_while_its_reader_is_dormant() -> None:
    world = World()
    source, is_on = world.cell(1), world.cell(True)
    upper = world.computed(lambda: 10 // source.get(), id="upper")
    lower = world.computed(lambda: upper.get() + 1, id="lower")
    seen: list[object] = []

    def eye() -> None:
        try:
            seen.append(lower.get() if is_on.get() else "off")
        except UpstreamFailedError:
            seen.append("failed")

    world.effect(eye)
    world.settle()
    source.set(0)
    world.settle()
    is_on.set(False)
    world.settle()
    source.set(2)
    world.settle()
    is_on.set(True)
    world.settle()
    assert seen == [11, "failed", "off", 6]
    check_world(world)
