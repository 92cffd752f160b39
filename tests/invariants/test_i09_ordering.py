"""I9: within a sweep a writer runs, or is skipped, before its reader. Nobody sees half of a change."""

from __future__ import annotations

import random
from functools import partial

import pytest

from headwater.data.trace import Exhausted, Ran, RunStarted
from headwater.scheduler import CLEAN, Node, SchedulerLimits
from headwater.testing.scheduler.checks import check_world, is_delayed, nodes_above, reachable
from headwater.testing.scheduler.graphs import KINDS, Built, random_plan
from headwater.testing.scheduler.kit import World
from tests.counts import scaled


def watch_order(world: World) -> list[str]:
    """What completed runs saw that was not in order: a known writer that was invalid and could have run before."""
    problems: list[str] = []

    def on_ran(node: Node, _: object) -> None:
        above = reachable(world.nodes())
        for writer in set(nodes_above(node)):
            if writer.status == CLEAN or writer.suspended or node in above[writer]:
                continue  # What is suspended waits for this very node: a cycle that is not known yet.
            if not is_delayed(world, writer):
                problems.append(f"{node.id} ran although {writer.id} above it is {writer!r}")

    world.scheduler.introspection.on_ran(on_ran)
    return problems


def completed_runs(world: World) -> list[str]:
    """A list to which each node is added when it completes a run."""
    ran: list[str] = []
    world.scheduler.introspection.on_ran(lambda node, _: ran.append(node.id))
    return ran


@pytest.mark.random
@pytest.mark.parametrize("cycles", [False, True], ids=["acyclic", "cyclic"])
def test_a_run_has_nothing_invalid_directly_above_it_that_is_on_no_cycle_with_it(cycles: bool) -> None:
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world = World(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        problems = watch_order(world)
        built = Built(world, random_plan(rng, cycles=cycles, kinds=KINDS))
        names = [*built.plan.nodes, *built.plan.effects]
        rng.shuffle(names)
        for name in names:
            built.register(name)
        for step in range(6):
            world.settle()
            if not cycles:
                assert problems == [], f"seed {seed} step {step}"
            for _ in range(rng.choice((1, 2))):
                built.change(rng)
        if not world.trace.of(Exhausted):
            # Whoever spent its runs is read as it is.
            assert problems == [], f"seed {seed}"


class Torn:
    """A graph whose every value says from which version of the cell it was made, and who saw two versions at once."""

    def __init__(self, rng: random.Random) -> None:
        self.world = World()
        self.source = self.world.cell(0)
        self.size = rng.randint(2, 10)
        self.handles = [self.world.cell([0], id=f"n{index}") for index in range(self.size)]
        self.chosen = [rng.sample(range(index), rng.randint(0, index)) for index in range(self.size)]
        self.seen: list[str] = []
        order = list(range(self.size))
        rng.shuffle(order)
        for index in order:
            self.world.computed(partial(self.run, index), id=f"n{index}", output=self.handles[index].document)
        for index in rng.sample(range(self.size), rng.randint(1, self.size)):
            self.world.effect(self.handles[index].get)

    def run(self, index: int) -> object:
        now = int(self.source.get())
        which = self.chosen[index] if now % 3 else self.chosen[index][: now % 2 + 1]
        for above in which:
            version = self.handles[above].get()[0]
            if version != now:
                self.seen.append(f"n{index} at {now} saw n{above} at {version}")
        return [now, index]


@pytest.mark.random
def test_every_run_sees_one_state_of_the_cells() -> None:
    """No glitches: in every run all that is read is made from the same cells."""
    for seed in range(scaled(2_500)):
        torn = Torn(random.Random(seed))
        for value in range(1, 7):
            torn.world.settle()
            torn.source.set(value)
        torn.world.settle()
        assert torn.seen == [], f"seed {seed}"
        check_world(torn.world)


def test_ties_break_by_registration_and_stay_so() -> None:
    world = World()
    source = world.cell(0)
    names = [f"eye{index}" for index in range(20)]
    for name in names:
        world.effect(source.get, id=name)
    world.settle()
    assert world.ran() == names
    for value in range(1, 6):
        assert world.ran_after(lambda value=value: source.set(value)) == names  # type: ignore[misc]


def test_parents_come_before_children_on_ties() -> None:
    world = World()
    source = world.cell(0)
    parent = world.effect(lambda: None, id="unrelated")
    late = world.effect(source.get, id="grandchild", parent=world.effect(source.get, id="child", parent=parent))
    world.effect(source.get, id="second parent")
    world.settle()
    assert late.rank == 2
    assert world.ran_after(lambda: source.set(1)) == ["second parent", "child", "grandchild"]


@pytest.mark.random
def test_the_same_seed_gives_the_same_trace_with_and_without_a_listener() -> None:
    """P10: who listens changes nothing."""
    for seed in range(scaled(500)):
        traces = []
        for is_listening in (True, False):
            rng = random.Random(seed)
            limits = SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3])
            world = World(traced=is_listening, limits=limits)
            built = Built(world, random_plan(rng, cycles=rng.random() < 0.5))
            ran = completed_runs(world)
            for name in [*built.plan.nodes, *built.plan.effects]:
                built.register(name)
            for _ in range(4):
                world.settle()
                built.change(rng)
            world.advance(3_000)
            traces.append(ran)
            if is_listening:
                starts = [event.node for event in world.trace.of(RunStarted)]
                assert len(starts) >= len(world.trace.of(Ran))
        assert traces[0] == traces[1], f"seed {seed}"


def test_what_comes_between_two_slices_reaches_writers_before_their_readers() -> None:
    """The sweep has passed the writer: it goes back for it, and nobody in front of it runs before."""
    world = World(limits=SchedulerLimits(slice_runs=1))
    source = world.cell(1)
    seen: list[tuple[int, int]] = []
    first = world.computed(source.get, id="first")

    def both() -> int:
        seen.append((source.get(), first.get()))
        return int(first.get())

    world.effect(world.computed(both, id="second").get, id="eye")
    world.settle()
    source.set(2)
    world.tick()
    assert world.ran()[-1] == "first", "the sweep is between the two"
    world.forget()
    source.set(3)
    world.settle()
    assert world.ran() == ["first", "second", "eye"]
    assert all(cell == result for cell, result in seen)


def test_a_child_that_its_parent_removes_does_not_run_because_of_what_came_between_two_slices() -> None:
    world = World(limits=SchedulerLimits(slice_runs=1))
    source = world.cell(1)
    children: list[Node] = []

    def keep() -> None:
        if source.get() < 3 and not children:
            children.append(world.effect(source.get, id="child", parent=world.node("parent")))
        elif source.get() == 3:
            world.scheduler.remove(children.pop())

    world.effect(keep, id="parent")
    world.settle()
    source.set(2)
    world.tick()
    assert world.ran()[-1] == "parent"
    world.forget()
    source.set(3)
    world.settle()
    assert world.ran() == ["parent"]


def test_an_attempt_that_waited_looks_again_at_what_came_meanwhile() -> None:
    """Nobody demanded any of it, so that nothing is in line: what waits is to find out by itself."""
    world = World(limits=SchedulerLimits(slice_runs=1, nested_depth=0))
    left, right, own, is_on = world.cell(1), world.cell(1), world.cell(1), world.cell(True)
    low, other = world.computed(left.get, id="low"), world.computed(right.get, id="other")
    seen: list[tuple[int, int, int]] = []

    def all_three() -> int:
        seen.append((own.get(), low.get(), other.get()))
        return sum(seen[-1])

    high = world.computed(all_three, id="high")
    world.effect(lambda: high.get() if is_on.get() else None, id="eye")
    world.settle()
    is_on.set(False)
    world.settle()
    seen.clear()
    own.set(2)
    left.set(2)
    is_on.set(True)
    world.forget()
    while "low" not in world.ran():
        world.tick()
    assert world.node("high").suspended
    right.set(2)
    world.settle()
    assert seen == [(2, 2, 2)]
    assert world.ran() == ["low", "other", "high", "eye"]
