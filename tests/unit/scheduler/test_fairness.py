"""Work that does not end: a steady input holds nobody back for good, and costs stay in proportion."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.data.trace import Exhausted
from headwater.scheduler.graph import edges
from headwater.scheduler.limits import SchedulerLimits
from headwater.testing.scheduler.kit import Handle, World


def test_a_steady_input_starves_nobody_and_is_not_taken_for_a_cycle() -> None:
    """More changes than slices have room for: everybody has a turn, and nobody is held back for not settling."""
    world = World(limits=SchedulerLimits(slice_runs=50))
    source = world.cell(0)
    names = [f"eye{index}" for index in range(300)]
    for name in names:
        world.effect(source.get, id=name)
    world.settle()
    world.forget()
    for turn in range(120):
        if turn % 4 == 0:
            source.set(turn + 1)
        world.tick()
    counts = Counter(world.ran())
    assert world.trace.of(Exhausted) == []
    assert min(counts[name] for name in names) >= 10
    world.settle()
    assert {node.runs for node in world.nodes()} <= set(range(10, 60))


def test_a_change_between_slices_reaches_effects_that_wait_behind_others() -> None:
    world = World(limits=SchedulerLimits(slice_runs=10))
    busy, rare = world.cell(0), world.cell(0)
    for _ in range(40):
        world.effect(busy.get)
    seen = world.look(rare, id="last")
    world.settle()
    rare.set(1)
    for turn in range(20):
        busy.set(turn + 1)
        world.tick()
    assert seen == [0, 1]


@pytest.mark.parametrize("is_loading", [False, True], ids=["nothing is loading", "a document is loading"])
def test_a_first_pass_costs_its_edges_also_while_something_else_is_loading(
    monkeypatch: pytest.MonkeyPatch, is_loading: bool
) -> None:
    """Counted: how often somebody asks for the writers above a node, on chains of 200 and 800."""
    costs = []
    for length in (200, 800):
        world = World(traced=False)
        source, missing = world.cell(0), world.absent_cell("missing")
        handles = [Handle(world, world.document(f"n{index}")) for index in range(length)]
        world.driver.lazy = True
        if is_loading:
            world.effect(missing.get)
        for index, handle in enumerate(handles):
            below = handles[index - 1] if index else source
            world.computed(lambda below=below: below.get() + 1, id=f"n{index}", output=handle.document)  # type: ignore[misc]
        world.effect(handles[-1].get)
        counter = _count_edges(monkeypatch)
        world.settle()
        costs.append(counter[0])
        monkeypatch.undo()
    assert costs[1] <= 5 * costs[0]


def _count_edges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts calls of `writers_above` wherever it is used."""
    counter = [0]
    real = edges.writers_above

    def counted(node: object) -> object:
        counter[0] += 1
        return real(node)  # type: ignore[arg-type]

    for module in ("suspension", "waiting_nodes", "graph.graph", "pass_"):
        monkeypatch.setattr(f"headwater.scheduler.{module}.writers_above", counted, raising=False)
    return counter
