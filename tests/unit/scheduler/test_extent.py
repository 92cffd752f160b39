"""What a pass costs in proportion to: its work set, never the graph around it. And graphs of 20,000 that go wrong."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest

from headwater.errors import UpstreamFailedError
from headwater.scheduler.limits import SchedulerLimits
from headwater.testing.scheduler.kit import Handle, World

pytestmark = pytest.mark.thorough

DEEP = 20_000


def calls(step: Callable[[], object]) -> int:
    """How many functions a step calls, Python's and built-in ones, wherever they are."""
    count = [0]

    def heard(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    sys.setprofile(heard)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count[0]


@pytest.mark.parametrize("part", ["one key of many", "one document of many"])
def test_a_change_costs_the_same_whether_ten_or_ten_thousand_read_something_else(part: str) -> None:
    """Everything is counted: the write, the match, the marks, the pass and the run."""
    costs = []
    for readers in (10, 10_000):
        world = World(traced=False)
        if part == "one key of many":
            whole = world.cell({f"k{index}": 0 for index in range(10_000)})
            places = [whole.at(f"k{index}") for index in range(10_000)]
        else:
            places = [world.cell(0) for _ in range(readers)]
        for place in places[:readers]:
            world.effect(place.get)
        world.settle()
        places[3].set(1)
        world.settle()  # The first time may cost what later ones do not.
        runs = sum(node.runs for node in world.nodes())

        def change(world: World = world, places: list[Handle] = places) -> None:
            places[3].set(2)
            world.settle()

        costs.append(calls(change))
        assert sum(node.runs for node in world.nodes()) == runs + 1
    assert costs[0] == costs[1]


def taken(step: Callable[[], object]) -> int:
    """Bytes that a step needs at its peak beyond what was there before."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_pass_over_ten_thousand_needs_room_for_its_work_set_and_no_more() -> None:
    world = World(traced=False)
    source = world.cell(0)
    for _ in range(10_000):
        world.effect(source.get)
    world.settle()

    def change() -> None:
        source.set(1)
        world.settle()

    # A turn and a cause for each: a tuple, a number, a dictionary with one entry, and places in lists.
    assert taken(change) / 10_000 < 512


def test_a_small_pass_needs_the_same_room_in_a_graph_of_any_size() -> None:
    rooms = []
    for others in (100, 20_000):
        world = World(traced=False)
        source, still = world.cell(0), world.cell(0)
        for _ in range(100):
            world.effect(source.get)
        for _ in range(others):
            world.effect(still.get)
        world.settle()

        def change(world: World = world, source: Handle = source) -> None:
            source.set(source.peek() + 1)
            world.settle()

        change()
        rooms.append(taken(change))
    assert rooms[1] <= 1.1 * rooms[0] + 1_024


def line(world: World, first: Handle) -> list[Handle]:
    """Each reads the one before it, registered from the end."""
    handles = [Handle(world, world.document(f"n{index}")) for index in range(DEEP)]
    for index in reversed(range(DEEP)):
        below = handles[index - 1] if index else first
        world.computed(lambda below=below: below.get() + 1, id=f"n{index}", output=handles[index].document)  # type: ignore[misc]
    return handles


def test_a_chain_of_20000_waits_for_the_document_at_its_end_and_then_runs_once() -> None:
    world = World()
    first = world.absent_cell("first")
    handles = line(world, first)
    world.driver.lazy = True
    seen = world.look(handles[-1], id="eye")
    world.settle()
    assert seen == []
    assert world.ran() == []
    world.arrive(first, 0)
    world.settle()
    assert seen == [DEEP]
    assert len(world.ran()) == DEEP + 1


def test_a_chain_of_20000_fails_with_its_first_and_mends_with_it() -> None:
    world = World(traced=False)
    source = world.cell("no number")
    handles = line(world, source)
    seen = world.look(handles[-1], id="eye")
    world.settle()
    failed = world.node("eye").error
    assert isinstance(failed, UpstreamFailedError)
    assert isinstance(failed.__cause__, TypeError)
    assert failed.__cause__.__cause__ is None
    source.set(1)
    world.settle()
    assert seen == [DEEP + 1]
    assert {node.runs for node in world.nodes()} == {2}


def test_a_cycle_of_20000_that_never_settles_is_held_back_and_told_once() -> None:
    limits = SchedulerLimits(node_runs=2)
    world = World(limits=limits, traced=False)
    handles = [world.cell(0, id=f"n{index}") for index in range(DEEP)]
    for index, handle in enumerate(handles):
        before = handles[index - 1]
        world.computed(lambda before=before: before.get() + 1, id=f"n{index}", output=handle.document)  # type: ignore[misc]
    world.effect(handles[0].get)
    world.settle(2_000)
    assert max(node.runs for node in world.nodes()) <= limits.node_runs
    assert world.driver.timer_at is not None
    assert len(world.driver.failures) == 1
    assert len(str(world.driver.failures[0].error)) < 10_000
