"""Traces by kind, tallies, breakpoints and reports of what does not settle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.data.trace import Invalidated, Ran, Registered, RunFailed, RunStarted, TraceEvent
from headwater.errors import AuthoringError
from headwater.scheduler.introspection.introspection import Pause
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import INVALID, Node
from headwater.testing.scheduler.kit import Handle, World
from tests.unit.scheduler.introspection_kit import Inspected

# ---- traces ----------------------------------------------------------------------------------------


def test_only_the_kinds_that_are_on_are_kept() -> None:
    world = World(traced=False)
    source = world.cell(0)
    inspected = Inspected(world)
    traces = inspected.look.traces
    traces.switch(Ran, "Invalidated", on=True)
    world.look(source, id="show")
    world.settle()
    source.set(1)
    world.settle()
    assert [type(event) for event in traces.events()] == [Ran, Invalidated, Ran]
    assert traces.runs() == ["show", "show"]
    traces.switch("Ran", on=False)
    source.set(2)
    world.settle()
    assert len(traces.of(Ran)) == 2
    assert len(traces.of(Invalidated)) == 2
    traces.clear()
    assert traces.events() == []


def test_nobody_listens_when_everything_is_off() -> None:
    world = World(traced=False)
    inspected = Inspected(world)
    traces, runner = inspected.look.traces, world.scheduler.runner

    def hears() -> tuple[bool, bool]:
        return runner.trace is not None, runner.on_ran is not None

    traces.switch(on=True)
    assert hears() == (True, False)
    assert Registered in traces.kinds
    traces.switch(on=False)
    assert hears() == (False, False)
    inspected.look.idempotency.switch(on=True)
    assert hears() == (False, True)
    inspected.look.idempotency.switch(on=False)
    assert hears() == (False, False)


def test_one_diagnosis_that_is_switched_off_leaves_the_others_on() -> None:
    world = World(traced=False)
    source = world.cell(0)
    look = Inspected(world).look
    look.traces.switch(Ran, on=True)
    look.run_stats.switch(on=True)
    look.run_stats.switch(on=False)
    world.look(source, id="show")
    world.settle()
    assert look.traces.runs() == ["show"]


def test_a_trace_keeps_the_newest() -> None:
    world = World(traced=False, limits=SchedulerLimits(trace_entries=3))
    source = world.cell(0)
    look = Inspected(world).look
    look.traces.switch(RunStarted, on=True)
    world.look(source, id="show")
    world.settle()
    for value in range(1, 10):
        source.set(value)
        world.settle()
    assert [event.attempt for event in look.traces.of(RunStarted)] == [8, 9, 10]


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do() -> None:
    look = Inspected(World(traced=False)).look
    with pytest.raises(AuthoringError, match=r"there is no trace event 'Rann': it is one of .*Parked, .*Ran, "):
        look.traces.switch("Rann", on=True)


# ---- tallies ---------------------------------------------------------------------------------------


def test_tallies_count_runs_failures_and_time_of_what_ran_while_another_waited_apart() -> None:
    world = World(traced=False)
    source = world.cell(1)
    look = Inspected(world).look
    look.run_stats.switch(on=True)

    def slow() -> Any:
        world.clock.advance(2_000 * source.get())
        return 10 // source.get()

    ratio = world.computed(slow, id="ratio")
    world.look(ratio, id="show")
    world.settle()
    source.set(3)
    world.settle()
    source.set(0)
    world.settle()
    stats = look.node_stats("ratio")
    assert (stats.runs, stats.attempts) == (3, 3)
    assert stats.tally is not None
    assert (stats.tally.runs, stats.tally.failures) == (3, 1)
    assert (stats.tally.spent_us, stats.tally.longest_us) == (8_000, 6_000)
    shown = look.node_stats("show").tally
    assert shown is not None
    assert (shown.suspensions, shown.spent_us) == (0, 0)  # What it reads ran while its first attempt waited.
    assert look.run_stats.slowest(1)[0][0] == "ratio"


def test_tallies_count_attempts_that_were_stopped() -> None:
    world = World(traced=False, limits=SchedulerLimits(nested_depth=0))
    look = Inspected(world).look
    look.run_stats.switch(on=True)
    world.look(world.computed(lambda: 1), id="show")
    world.settle()
    tally = look.node_stats("show").tally
    assert tally is not None
    assert (tally.runs, tally.suspensions) == (1, 1)  # Its first attempt came before what it reads had run.


def test_tallies_leave_with_their_node_and_with_the_switch() -> None:
    world = World(traced=False)
    source = world.cell(1)
    look = Inspected(world).look
    look.run_stats.switch(on=True)
    for number in range(100):
        node = world.effect(source.get, id=f"e{number}")
        world.settle()
        world.scheduler.remove(node)
    assert look.run_stats.slowest(10) == []
    world.effect(source.get, id="show")
    world.settle()
    assert [id for id, _ in look.run_stats.slowest(10)] == ["show"]
    look.run_stats.switch(on=False)
    assert look.node_stats("show").tally is None
    assert look.node_stats("show").runs == 1


# ---- breakpoints -----------------------------------------------------------------------------------


def test_a_breakpoint_stops_before_each_attempt_and_sees_why_it_runs() -> None:
    world = World(traced=False)
    source = world.cell(1, id="source")
    ran: list[int] = []
    world.effect(lambda: ran.append(source.get()), id="show")
    world.effect(source.get, id="other")
    inspected = Inspected(world)
    pauses: list[tuple[int, list[int], str]] = []

    def stop(pause: Pause) -> None:
        assert world.scheduler.current.run is None
        assert pause.node.status != 1
        pauses.append((pause.attempt, list(ran), str(inspected.look.why(pause.node))))

    remove = inspected.look.breakpoints.add("show", stop)
    world.settle()
    source.set(2)
    world.settle()
    assert [(attempt, before) for attempt, before, _ in pauses] == [(1, []), (2, [1])]
    assert "it is invalid because of\n    space:source: 1 -> 2" in pauses[1][2]
    remove()
    remove()
    source.set(3)
    world.settle()
    assert len(pauses) == 2
    assert len(inspected.look.breakpoints) == 0
    assert world.scheduler.runner.trace is None


def test_a_breakpoint_by_predicate_chooses_nodes_by_what_they_are() -> None:
    world = World(traced=False)
    source = world.cell(1)
    world.effect(source.get, id="first")
    world.effect(source.get, id="second")
    world.settle()
    look = Inspected(world).look
    stopped: list[str] = []
    look.breakpoints.add(
        lambda node: node.status == INVALID and node.order % 2 == 0, lambda p: stopped.append(p.node.id)
    )
    source.set(2)
    world.settle()
    assert stopped == ["second"]


def test_a_breakpoint_for_a_node_that_comes_later() -> None:
    world = World(traced=False)
    source = world.cell(1)
    stopped: list[int] = []
    Inspected(world).look.breakpoints.add("late", lambda pause: stopped.append(pause.attempt))
    world.effect(source.get, id="late")
    world.settle()
    assert stopped == [1]


def test_a_callback_that_raises_is_told_and_stops_nobody() -> None:
    world = World(traced=False)
    source = world.cell(1)
    inspected = Inspected(world)
    seen: list[TraceEvent] = []

    def broken(pause: Pause) -> None:
        raise ValueError("in the debugger")

    inspected.look.breakpoints.add("show", broken)
    inspected.look.traces.switch(Ran, RunFailed, on=True)
    world.look(source, id="show")
    world.settle()
    seen += inspected.look.traces.events()
    assert [type(event) for event in seen] == [Ran]
    assert [str(error) for error in inspected.errors] == ["in the debugger"]
    assert world.driver.failures == []


# ---- what does not settle --------------------------------------------------------------------------


def number(handle: Handle) -> int:
    value = handle.get()
    return value if type(value) is int else 0


def ring(world: World, size: int, step: Callable[[int], int], prefix: str = "r") -> list[Handle]:
    """Each node reads the one before it, and the first one the last."""
    handles = [Handle(world, world.document(f"{prefix}{place}")) for place in range(size)]

    def of(place: int) -> Callable[[], int]:
        before = handles[place - 1]
        return (lambda: step(number(before))) if place == 0 else (lambda: number(before))

    for place, handle in enumerate(handles):
        world.computed(of(place), id=f"{prefix}{place}", output=handle.document)
    return handles


def test_a_cycle_that_never_settles_is_reported_once_for_the_whole_episode() -> None:
    world = World(traced=False)
    inspected = Inspected(world)
    world.look(ring(world, 3, lambda value: value + 1)[2], id="show")
    world.settle()
    for _ in range(20):
        world.advance(2_500)
    (report,) = inspected.reports
    assert sorted(report.nodes) == ["r0", "r1", "r2"]
    assert report.runs == world.scheduler.limits.node_runs
    written = dict(zip(report.nodes, report.nodes[1:] + report.nodes[:1], strict=True))
    for (reader, cause), writer in zip(report.links, report.nodes, strict=True):
        assert cause.writer == writer
        assert cause.address == f"space:{writer}"
        assert written[writer] == reader
        assert cause.before != cause.after
    assert inspected.look.non_settling.under_way() == (report,)
    assert "these make each other run" in str(report)
    assert inspected.errors == []


def test_the_values_that_alternate_are_in_the_report() -> None:
    world = World(traced=False)
    inspected = Inspected(world)
    world.look(ring(world, 2, lambda value: 1 - value)[1], id="show")
    world.settle()
    (report,) = inspected.reports
    assert all({cause.before, cause.after} == {0, 1} for _, cause in report.links)


def test_an_episode_ends_when_everybody_has_settled_and_a_new_one_is_reported_again() -> None:
    world = World(traced=False)
    inspected = Inspected(world)
    goes_on = world.cell(True)
    handles = ring(world, 2, lambda value: value + 1 if goes_on.get() else value)
    world.look(handles[1], id="show")
    world.settle()
    world.advance(5_000)
    assert len(inspected.reports) == 1
    goes_on.set(False)
    for _ in range(5):
        world.advance(5_000)
    assert inspected.look.non_settling.under_way() == ()
    goes_on.set(True)
    world.settle()
    world.advance(5_000)
    assert len(inspected.reports) == 2
    assert len(inspected.look.non_settling.reports) == 2


def test_two_cycles_are_two_episodes() -> None:
    world = World(traced=False)
    inspected = Inspected(world)
    for prefix in ("a", "b"):
        world.look(ring(world, 2, lambda value: value + 1, prefix)[1], id=f"show-{prefix}")
    world.settle()
    for _ in range(10):
        world.advance(2_500)
    assert sorted(sorted(report.nodes) for report in inspected.reports) == [["a0", "a1"], ["b0", "b1"]]
    assert len(inspected.look.non_settling.under_way()) == 2


def test_whoever_is_only_driven_by_a_cycle_belongs_to_its_episode() -> None:
    world = World(traced=False, limits=SchedulerLimits(node_runs=4))
    inspected = Inspected(world)
    handles = ring(world, 2, lambda value: value + 1)
    tail = world.computed(lambda: number(handles[1]) * 2, id="tail")
    for place in range(5):
        world.look(tail, id=f"show{place}")
    world.settle()
    for _ in range(10):
        world.advance(2_500)
    (report,) = inspected.reports
    assert sorted(report.nodes) == ["r0", "r1"]


def test_a_long_way_round_is_bounded_in_the_report() -> None:
    world = World(traced=False, limits=SchedulerLimits(causes_shown=4))
    inspected = Inspected(world)
    world.look(ring(world, 50, lambda value: value + 1)[49], id="show")
    world.settle()
    (report,) = inspected.reports
    assert (len(report.nodes), len(report.links), report.left_out) == (4, 4, 46)
    assert "and 46 more" in str(report)


def test_what_is_driven_from_outside_names_the_writes() -> None:
    world = World(traced=False, limits=SchedulerLimits(node_runs=3))
    inspected = Inspected(world)
    source = world.cell(0, id="source")

    echo = world.computed(lambda: source.get() + 1, id="echo")
    world.look(echo, id="show")
    world.settle()

    def answer(notification: object) -> None:
        if getattr(getattr(notification, "source", None), "id", "") == "echo":
            source.set(echo.peek())  # A listener that answers each result with another input.

    world.replica.feed.subscribe(answer)
    source.set(10)
    world.settle()
    world.advance(3_000)
    (report,) = inspected.reports
    assert (report.node, report.nodes) == ("echo", ())
    assert [cause.address for cause in report.outside] == ["space:source"]
    assert "it is driven by space:source" in str(report)


def test_nodes_that_are_removed_end_their_episode_and_are_not_kept() -> None:
    world = World(traced=False)
    inspected = Inspected(world)
    for _ in range(20):
        handles = ring(world, 2, lambda value: value + 1, "x-")
        effect = world.effect(handles[1].get, id="show")
        world.settle()
        nodes: list[Node] = [effect, world.node(handles[0]), world.node(handles[1])]
        for node in nodes:
            world.scheduler.remove(node)
        assert inspected.look.non_settling.under_way() == ()
    assert len(inspected.reports) == 20, "nodes of the same names are reported again"


def test_a_graph_that_settles_is_never_reported() -> None:
    world = World(traced=False)
    inspected = Inspected(world)
    source = world.cell(0)
    last = source
    for place in range(30):
        last = world.computed(lambda above=last: above.get() + 1, id=f"c{place}")  # type: ignore[misc]
    world.look(last, id="show")
    for value in range(30):
        source.set(value)
        world.settle()
    assert inspected.reports == []
