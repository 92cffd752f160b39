"""I1: at quiescence every live node's last run saw what is shown now; recomputing everything gives the same."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest

from headwater.data.value import Value, equal, freeze
from headwater.replica import NOT_HERE, Replica
from headwater.scheduler import CLEAN, SchedulerLimits
from headwater.testing.scheduler.checks import check_world, reachable, unsettled
from headwater.testing.scheduler.graphs import (
    FAILING,
    KINDS,
    Built,
    Expected,
    Plan,
    random_cell,
    random_plan,
    random_rule,
)
from headwater.testing.scheduler.kit import Handle, World
from headwater.testing.scheduler.watcher import Watcher
from tests.counts import scaled


def assert_consistent(built: Built, note: str) -> None:
    """Every live node shows what a recomputation from the cells makes."""
    world, expected = built.world, Expected(built.plan)
    for node in world.nodes():
        if not node.live:
            continue
        should = expected.of(node.id)
        if node.id in built.plan.effects:
            assert same(built.made.get(node.id), should), (
                f"{note}: {node.id} made {built.made.get(node.id)}, not {should}"
            )
        elif isinstance(should, type):
            assert type(node.error) is should, f"{note}: {node.id} has error {node.error!r}, not {should}"
        else:
            shown = node.outputs[0].value
            assert node.error is None, f"{note}: {node.id} failed with {node.error!r}"
            assert shown is not NOT_HERE
            assert equal(shown, freeze(should)), f"{note}: {node.id} is {shown!r}, not {should!r}"
    assert unsettled(world) == [], note


def same(a: Any, b: Any) -> bool:
    if isinstance(a, type) or isinstance(b, type) or a is None:
        return a is b
    return equal(freeze(a), freeze(b))


@pytest.mark.random
@pytest.mark.parametrize("kinds", [KINDS, FAILING], ids=["sound", "failing"])
def test_live_nodes_show_what_a_recomputation_makes(kinds: tuple[str, ...]) -> None:
    """Random graphs with reads that rewire, effects that come and go, several changes at once."""
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        world = World(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        built = Built(world, random_plan(rng, kinds=kinds))
        waiting = [*built.plan.nodes, *built.plan.effects]
        rng.shuffle(waiting)
        later = waiting[: rng.randrange(len(waiting) + 1)] if rng.random() < 0.3 else []
        for name in waiting:
            if name not in later:
                built.register(name)
        for step in range(8):
            choice = rng.random()
            if choice < 0.6:
                for _ in range(rng.choice((1, 1, 1, 3))):
                    built.change(rng)
            elif choice < 0.75 and later:
                built.register(later.pop())
            elif choice < 0.85:
                present = [name for name in built.plan.effects if world.scheduler.find(name)]
                if present:
                    name = rng.choice(present)
                    world.scheduler.remove(world.node(name))
                    later.append(name)
            if all(name not in later for name in built.plan.nodes):
                world.settle()
                check_world(world)
                assert_consistent(built, f"seed {seed} step {step}")


@pytest.mark.random
def test_a_graph_whose_rules_change_shows_what_a_recomputation_makes() -> None:
    """A node is removed and registered anew with another rule: its readers see the new one."""
    for seed in range(scaled(1_000)):
        rng = random.Random(seed)
        world = World(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        built = Built(world, random_plan(rng))
        for name in [*built.plan.nodes, *built.plan.effects]:
            built.register(name)
        names = list(built.plan.nodes)
        for step in range(6):
            if rng.random() < 0.5:
                index = rng.randrange(len(names))
                world.scheduler.remove(world.node(names[index]))
                built.plan.nodes[names[index]] = random_rule(rng, [*built.plan.cells, *names[:index]], KINDS)
                if rng.random() < 0.5:
                    built.change(rng)
                    world.settle()
                built.register(names[index])
            else:
                built.change(rng)
            world.settle()
            check_world(world)
            assert_consistent(built, f"seed {seed} step {step}")


@pytest.mark.random
def test_gated_nodes_catch_up_when_their_time_has_come() -> None:
    for seed in range(scaled(1_000)):
        rng = random.Random(seed)
        world = World(limits=SchedulerLimits(nested_depth=(16, 0, 1)[seed % 3]))
        built = Built(world, random_plan(rng, kinds=FAILING))
        for name in [*built.plan.nodes, *built.plan.effects]:
            gate = rng.choice(({}, {"debounce_ms": rng.choice((5, 20))}, {"throttle_ms": rng.choice((5, 20))}))
            built.register(name, **gate)
        for _ in range(8):
            built.change(rng)
            world.advance(rng.choice((0, 1, 4, 10, 30)))
            if rng.random() < 0.2:
                node = rng.choice(world.nodes())
                world.scheduler.set_delays(node, debounce_us=rng.choice((0, 3_000, 50_000)))
        world.advance(1_000)
        check_world(world)
        assert_consistent(built, f"seed {seed}")
        assert world.driver.timer_at is None, f"seed {seed}"


@pytest.mark.random
def test_what_happens_between_two_slices_of_a_pass_is_not_lost() -> None:
    """Slices of one attempt: cells change, nodes come and go while others wait for their turn or for each other."""
    for seed in range(scaled(2_500)):
        rng = random.Random(seed)
        replica = Replica()
        watcher = Watcher(replica)
        world = World(limits=SchedulerLimits(slice_runs=1), replica=replica)
        watcher.join(world)
        built = Built(world, random_plan(rng, kinds=FAILING))
        names = [*built.plan.nodes, *built.plan.effects]
        rng.shuffle(names)
        gone = list(names)
        for step in range(60):
            choice = rng.random()
            if choice < 0.25 and gone:
                built.register(gone.pop())
            elif choice < 0.35 and len(gone) < len(names):
                name = rng.choice([name for name in names if name not in gone])
                world.scheduler.remove(world.node(name))
                gone.append(name)
            elif choice < 0.5:
                built.change(rng)
            else:
                world.tick()
            if step % 5 == 0:
                check_world(world)
        for name in gone:
            built.register(name)
        world.settle(5_000)
        check_world(world)
        assert_consistent(built, f"seed {seed}")
        assert watcher.problems == [], f"seed {seed}"
        assert watcher.unfounded == [], f"seed {seed}"


class Missing(Exception):
    """A recomputation needs a cell that is not here."""


class ExpectedOfSome(Expected):
    """The same where some cells are not here: whoever needs one has no value to show."""

    def __init__(self, plan: Plan, missing: dict[str, Handle]) -> None:
        super().__init__(plan)
        self._missing = missing

    def of(self, name: str) -> Any:
        try:
            return super().of(name)
        except Missing:
            self._known[name] = Missing
            return Missing

    def read(self, name: str, part: str) -> Any:
        if name in self._missing or (name not in self.plan.cells and self.of(name) is Missing):
            raise Missing(name)
        return super().read(name, part)


def part_missing(rng: random.Random, kinds: tuple[str, ...]) -> tuple[Built, dict[str, Handle]]:
    """A graph of which some cells were never fetched, and no node has run."""
    world = World()
    plan = random_plan(rng, kinds=kinds)
    for index in range(2):
        plan.cells[f"far{index}"] = random_cell(rng)
        for name in rng.sample([*plan.nodes], min(len(plan.nodes), 2)):
            rule = plan.nodes[name]
            plan.nodes[name] = replace(rule, kind="switch", reads=(*rule.reads, (f"far{index}", "")))
    built = Built(world, plan)
    world.driver.lazy = True
    missing = {f"far{index}": world.absent_cell(f"away{index}") for index in range(2)}
    built.handles.update(missing)
    return built, missing


def assert_only_those_wait_who_have_to(built: Built, missing: dict[str, Handle], note: str) -> None:
    expected = ExpectedOfSome(built.plan, missing)
    above = reachable(built.world.nodes())
    for node in built.world.nodes():
        if not node.live:
            continue
        should = expected.of(node.id)
        if should is Missing:
            # What it showed before stays, as long as nothing that it read is shown differently.
            held_up = node.loading is not None or (node.status == CLEAN and any(w.loading for w in above[node]))
            assert held_up, f"{note}: {node!r} needs what is not here, and does not wait"
        else:
            assert node.loading is None, f"{note}: {node!r} waits for {node.loading!r} and needs nothing of the kind"
            assert node.status == CLEAN, f"{note}: {node!r}"
            if node.id in built.plan.effects:
                assert same(built.made.get(node.id), should), f"{note}: {node.id} made {built.made.get(node.id)}"
            elif isinstance(should, type):
                assert type(node.error) is should, f"{note}: {node.id} has error {node.error!r}, not {should}"
            else:
                assert equal(cast(Value, node.outputs[0].value), freeze(should)), f"{note}: {node.id}, not {should!r}"


@pytest.mark.random
@pytest.mark.parametrize("kinds", [KINDS, FAILING], ids=["sound", "failing"])
def test_nobody_waits_for_a_document_that_it_does_not_need(kinds: tuple[str, ...]) -> None:
    """Also not because of somebody it reads, who waited once and found another way."""
    for seed in range(scaled(5_000)):
        rng = random.Random(seed)
        built, missing = part_missing(rng, kinds)
        world = built.world
        later = [*built.plan.effects]
        for name in built.plan.nodes:
            built.register(name)
        for step in range(14):
            choice = rng.random()
            if choice < 0.25 and later:
                built.register(later.pop())
            elif choice < 0.33:
                present = [name for name in built.plan.effects if world.scheduler.find(name)]
                if present:
                    later.append(rng.choice(present))
                    world.scheduler.remove(world.node(later[-1]))
            elif choice < 0.4 and missing:
                name = rng.choice([*missing])
                if missing[name].document in world.driver.asked:
                    world.arrive(missing.pop(name), built.plan.cells[name])
            else:
                built.change(rng)
            if rng.random() < 0.7:
                world.settle()
                check_world(world)
                assert_only_those_wait_who_have_to(built, missing, f"seed {seed} step {step}")


def test_result_of_a_removed_node_that_its_successor_found_in_place_is_sent() -> None:
    """A node is registered anew while the result of its predecessor, which is the same, has no verdict."""
    world = World()
    source = world.cell(1)
    result = world.computed(source.get, id="node")
    seen = world.look(result, id="eye")
    while world.tick():
        pass
    sent = world.send_results()
    assert sent is not None
    world.scheduler.remove(world.node("node"))
    world.computed(source.get, id="node", output=result.document)
    while world.tick():
        pass
    assert world.node("node").wrote == 0, "it is there already"
    world.supersede(sent)
    while world.tick():
        pass
    again = world.send_results()
    assert again is not None
    assert [entry.node for entry in again.entries] == ["node"]
    assert result.peek() == 1
    assert seen[-1] == 1
    assert unsettled(world) == []
    check_world(world)
