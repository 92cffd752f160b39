"""Bounds: budgets, backoff, gates and the one timer. I6."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.data.trace import Exhausted, PassEnded
from headwater.data.value import ABSENT
from headwater.errors import AuthoringError
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.checks import check_world, left_behind, unsettled
from headwater.testing.scheduler.kit import Handle, World


def ring(world: World, size: int, step: Callable[[int], int]) -> list[Handle]:
    """A ring of computations, each of which does a step with what the one before it has."""
    handles = [Handle(world, world.document(f"ring{index}")) for index in range(size)]
    for index in range(size):
        before = handles[index - 1]
        world.computed(
            lambda before=before: step(0 if before.get() is ABSENT else before.get()),  # type: ignore[misc]
            id=f"ring{index}",
            output=handles[index].document,
        )
    return handles


def test_a_cycle_that_does_not_settle_is_held_back_and_others_are_not() -> None:
    world = World()
    handles = ring(world, 2, lambda value: value + 1)
    world.look(handles[0])
    world.settle()
    assert max(node.pass_runs for node in world.nodes()) <= world.scheduler.limits.node_runs
    assert {event.node for event in world.trace.of(Exhausted)} <= {"ring0", "ring1"}
    assert world.driver.timer_at == 250_000
    source = world.cell(0)
    seen = world.look(source)
    source.set(1)
    world.settle()
    assert seen[-1] == 1
    check_world(world, heights=False)


def test_backoff_doubles_up_to_its_cap_and_ends_when_the_cycle_settles() -> None:
    world = World()
    is_growing = world.cell(True)
    handles = ring(world, 2, lambda value: value + 1 if is_growing.get() else 0)
    world.look(handles[0])
    world.settle()
    waits = []
    for _ in range(6):
        assert world.driver.timer_at is not None
        waits.append(world.driver.timer_at - world.clock.monotonic_us())
        world.advance(waits[-1] / 1_000)
    assert waits == [250_000, 500_000, 1_000_000, 2_000_000, 2_000_000, 2_000_000]
    is_growing.set(False)
    world.advance(10_000)
    assert world.driver.timer_at is None
    assert not any(world.scheduler.gates.is_exhausted(node) for node in world.nodes())
    assert [handle.peek() for handle in handles] == [0, 0]


def test_eleven_alternations_settle_after_one_wait() -> None:
    """One more than the budget: held back once, and then it ends and is forgiven."""
    world = World()
    handles = ring(world, 2, lambda value: min(value + 1, 22))
    seen = world.look(handles[1])
    world.settle()
    assert not world.scheduler.is_quiet()
    assert handles[1].peek() < 22
    world.advance(250)
    assert handles[0].peek() == handles[1].peek() == seen[-1] == 22
    assert world.scheduler.is_quiet()
    assert not any(world.scheduler.gates.is_exhausted(node) for node in world.nodes())


@pytest.mark.parametrize("size", [12, 40])
def test_a_graph_of_many_overlapping_cycles_is_held_back_too(size: int) -> None:
    """A token walks down a ladder of edges that go both ways, one step in each sweep: nobody runs often in one pass."""
    world = World()
    handles = [Handle(world, world.document(f"rung{index}")) for index in range(size)]

    def rung(index: int) -> Callable[[], int]:
        def fn() -> int:
            if index:
                handles[index - 1].get()
            value = handles[(index + 1) % size].get()
            return (0 if value is ABSENT else int(value)) + (index == size - 1)

        return fn

    for index in range(size):
        world.computed(rung(index), id=f"rung{index}", output=handles[index].document)
    world.look(handles[0])
    world.settle(100)
    assert world.driver.timer_at is not None
    assert world.trace.of(Exhausted)


def test_idle_is_held_through_two_backoffs_and_released_at_the_third_exhaustion() -> None:
    world = World()
    world.look(ring(world, 2, lambda value: value + 1)[0])
    world.settle()
    began = world.clock.monotonic_us()
    while not world.scheduler.is_quiet():
        assert world.driver.timer_at is not None
        world.advance((world.driver.timer_at - world.clock.monotonic_us()) / 1_000)
    assert world.clock.monotonic_us() - began == 750_000


def test_a_dormant_node_that_did_not_settle_does_not_hold_idle() -> None:
    world = World()
    is_on = world.cell(True)
    handles = ring(world, 2, lambda value: value + 1)
    world.effect(lambda: handles[0].get() if is_on.get() else None)
    world.settle()
    assert not world.scheduler.is_quiet()
    is_on.set(False)
    world.settle()
    assert world.scheduler.is_quiet()


def test_a_pass_has_no_more_sweeps_than_it_may() -> None:
    world = World(limits=SchedulerLimits(pass_iterations=4, node_runs=100))
    world.look(ring(world, 3, lambda value: min(value + 1, 60))[0])
    world.settle()
    assert max(event.iterations for event in world.trace.of(PassEnded)) <= 4
    assert unsettled(world) == []


def test_a_debounce_begins_anew_with_every_change() -> None:
    world = World()
    source = world.cell(0)
    seen: list[int] = []
    world.effect(lambda: seen.append(source.get()), debounce_ms=50)
    world.settle()
    for value in (1, 2, 3):
        source.set(value)
        world.advance(40)
    assert seen == [0]
    world.advance(10)
    assert seen == [0, 3]


def test_a_throttle_runs_at_once_and_then_not_too_often() -> None:
    world = World()
    source = world.cell(0)
    seen: list[tuple[int, int]] = []
    world.effect(lambda: seen.append((world.clock.monotonic_us() // 1_000, source.get())), throttle_ms=100)
    world.settle()
    for value in range(1, 10):
        source.set(value)
        world.advance(30)
    assert seen == [(0, 0), (100, 4), (200, 7)]
    world.advance(1_000)
    assert seen[3:] == [(300, 9)]


def test_one_timer_waits_for_the_earliest_and_a_shorter_debounce_moves_it() -> None:
    world = World()
    source = world.cell(0)
    slow = world.effect(source.get, debounce_ms=500)
    world.effect(source.get, debounce_ms=300)
    world.settle()
    source.set(1)
    world.settle()
    assert world.driver.timer_at == 300_000
    world.scheduler.gates.configure(slow, debounce_us=100_000)
    assert world.driver.timer_at == 100_000
    world.advance(100)
    assert slow.runs == 2
    assert world.driver.timer_at == 300_000


def test_clearing_a_debounce_while_it_waits_lets_the_node_run_now() -> None:
    world = World()
    source = world.cell(0)
    node = world.effect(source.get, debounce_ms=500)
    world.settle()
    source.set(1)
    world.settle()
    world.scheduler.gates.configure(node, debounce_us=0)
    world.advance(1)
    assert node.runs == 2
    assert world.driver.timer_at is None


def test_a_longer_debounce_set_while_waiting_keeps_it_back() -> None:
    world = World()
    source = world.cell(0)
    node = world.effect(source.get, debounce_ms=100)
    world.settle()
    source.set(1)
    world.settle()
    world.scheduler.gates.configure(node, debounce_us=300_000)
    world.advance(200)
    assert node.runs == 1
    world.advance(100)
    assert node.runs == 2


def test_a_gated_upstream_is_read_as_it_is_and_not_run_early() -> None:
    world = World()
    source, is_on = world.cell(0), world.cell(True)
    top = world.computed(lambda: source.get(), debounce_ms=100, id="top")
    middle = world.computed(lambda: top.get(), id="middle")
    bottom = world.computed(lambda: middle.get() + source.get() * 10, id="bottom")
    seen: list[object] = []
    world.effect(lambda: seen.append(bottom.get() if is_on.get() else "off"))
    world.settle()
    is_on.set(False)
    world.settle()
    source.set(1)
    world.settle()
    is_on.set(True)
    world.settle()
    assert seen == [0, "off", 10]
    world.advance(100)
    assert seen == [0, "off", 10, 11]


def test_waiting_nodes_take_one_place_each_however_often_they_are_made_invalid() -> None:
    world = World()
    first, second = world.cell(0), world.cell(0)
    world.effect(first.get, debounce_ms=1_000)
    world.effect(second.get, debounce_ms=5_000)
    world.settle()
    first.set(1)
    for value in range(1_000):
        second.set(value + 1)
        world.clock.advance(100)
        world.settle()
    assert left_behind(world)["gated"] < 20


@pytest.mark.parametrize(
    ("kind", "runs"), [("effect", 3), ("effect that wants none", 6), ("computation", 6)], ids=lambda value: str(value)
)
def test_slow_effects_are_given_quiet_time_and_computations_never(kind: str, runs: int) -> None:
    world = World()
    source = world.cell(0)

    def slowly() -> None:
        source.get()
        world.clock.advance(60_000)

    if kind == "computation":
        result = world.computed(slowly, id="slow")
        world.effect(result.get)
    else:
        world.effect(slowly, id="slow", no_auto_debounce=kind != "effect")
    world.settle()
    for value in range(1, 6):
        source.set(value)
        world.settle()
    assert world.node("slow").runs == runs
    world.advance(100)
    assert world.node("slow").runs == min(6, runs + 1)


@pytest.mark.parametrize("kind", [NodeKind.EFFECT, NodeKind.MATERIALIZER])
def test_a_node_without_an_output_needs_not_say_that_it_returns_nothing(kind: NodeKind) -> None:
    world = World()
    source, target = world.cell(1), world.cell({})
    envelope = ((target.document, ()),) if kind is NodeKind.MATERIALIZER else ()
    node = world.scheduler.register(
        NodeSpec(id="quiet", kind=kind, fn=source.get, home=world.replica, envelope=envelope)
    )
    world.settle()
    assert node.runs == 1
    assert world.driver.failures == []


def test_a_negative_debounce_is_refused() -> None:
    world = World()
    node = world.effect(world.cell(0).get)
    with pytest.raises(AuthoringError, match="write 0 or more"):
        world.scheduler.gates.configure(node, debounce_us=-1)


def test_a_listener_that_answers_every_result_with_a_write_is_no_way_round_the_bounds() -> None:
    """A two-way binding: what is written while a pass is under way was caused by it."""
    world = World()
    source = world.cell(0)
    echo = world.computed(lambda: source.get() + 1, id="echo")
    world.look(echo)
    world.settle()

    def answer(notification: object) -> None:
        if getattr(notification, "source", None) is world.node("echo") and echo.peek() < 1_000:
            source.set(echo.peek())

    world.replica.feed.subscribe(answer)
    source.set(1)
    world.settle(50)
    assert echo.peek() < 50
    assert world.driver.timer_at is not None
