"""What an outside attack found about attempts that are stopped, and about cycles that are slowed down."""

from __future__ import annotations

import pytest

from headwater.errors import UpstreamFailedError
from headwater.replica import Detached, Replica
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, World


def test_an_attempt_that_starts_again_is_shown_the_failure_it_caught_before() -> None:
    """Y21: a failed node's output was taken for a value, because it had been looked at before the attempt stopped."""
    world = World()
    source = world.cell(1)

    def fail() -> object:
        raise ValueError(f"no {source.get()}")

    bad = world.computed(fail, id="bad")
    late = world.computed(lambda: source.get() * 2, id="late")
    seen: list[object] = []

    def look() -> None:
        try:
            first: object = bad.get()
        except UpstreamFailedError:
            first = "failed"
        seen.append((first, late.get()))

    world.effect(look, id="look")
    world.settle()
    assert seen == [("failed", 2)]
    source.set(2)
    world.settle()
    assert seen[-1] == ("failed", 4)
    check_world(world)


def test_an_attempt_that_was_stopped_leaves_no_nodes_behind() -> None:
    """Y2: it registered a child, was stopped, and failed when it registered the same child again."""
    world = World()
    source = world.cell(1)
    late = world.computed(lambda: source.get() * 2, id="late")
    seen: list[object] = []

    def parent() -> None:
        if world.scheduler.registry.get("child") is None or not seen:
            world.effect(lambda: seen.append(source.get()), id="child")
        late.get()

    world.effect(parent, id="parent")
    world.settle()
    assert world.node("parent").error is None
    assert seen == [1]
    check_world(world)


@pytest.mark.parametrize("option", ["debounce_ms", "throttle_ms"])
def test_a_cycle_that_is_slowed_down_is_still_held_back_longer_each_time(option: str) -> None:
    """Y22: every pause counted as quiet, so that it went on at the same pace for ever and nobody was told."""
    world = World()
    one, two = world.cell(0), world.cell(0)
    world.computed(lambda: two.get() + 1, id="one", output=one.document)
    world.computed(lambda: one.get() + 1, id="two", output=two.document, **{option: 5})
    world.effect(lambda: (one.get(), two.get()), id="e")
    world.settle()
    world.advance(2_000)
    assert world.node("one").runs < 100  # in two seconds: 5 ms apart would be 400


def test_an_effect_is_cleaned_up_once_and_before_its_next_attempt_whether_that_is_kept_or_not() -> None:
    """Y23: what a run set up and what the next one sets up are never there together, also if that one is stopped."""
    world = World(lazy=True)
    chosen = world.absent_cell("chosen")
    parts = {name: world.absent_cell(name) for name in ("one", "two")}
    told: list[tuple[str, object]] = []

    def show() -> object:
        name = chosen.get()
        told.append(("try", name))
        value = parts[name].get()
        told.append(("open", value))
        return lambda: told.append(("close", value))

    node = world.effect(show, id="show")
    world.settle()
    world.arrive(chosen, "one")
    world.settle()
    world.arrive(parts["one"], 1)
    world.settle()
    told.clear()
    chosen.set("two")
    world.settle()
    assert told == [("close", 1), ("try", "two")]  # It waits, and nothing that it set up is left.
    world.arrive(parts["two"], 2)
    world.settle()
    assert told[2:] == [("try", "two"), ("open", 2)]
    world.scheduler.remove(node)
    assert told[4:] == [("close", 2)]
    check_world(world)


@pytest.mark.parametrize("option", ["debounce_ms", "throttle_ms"])
def test_a_cycle_that_is_slowed_down_is_told_once(option: str) -> None:
    """Y22: nobody was told at all. Members of one cycle are held back together, twice as long each time."""
    world = World()
    one, two = world.cell(0), world.cell(0)
    world.computed(lambda: two.get() + 1, id="one", output=one.document)
    world.computed(lambda: one.get() + 1, id="two", output=two.document, **{option: 5})
    world.effect(lambda: (one.get(), two.get()), id="e")
    world.settle()
    world.advance(20_000)
    assert len(world.driver.failures) == 1
    exhaustions = [world.scheduler.gates.exhaustions(world.node(id)) for id in ("one", "two")]
    assert min(exhaustions) > 5
    assert abs(exhaustions[0] - exhaustions[1]) <= 1


def test_a_stream_of_changes_through_a_debounce_or_a_throttle_is_no_cycle() -> None:
    world = World()
    source = world.cell(0)
    slow = world.computed(source.get, id="slow", throttle_ms=10)
    seen = world.look(slow)
    late: list[object] = []
    world.effect(lambda: late.append(slow.get()), debounce_ms=5)
    for number in range(1, 200):
        source.set(number)
        world.advance(11)
    world.advance(20)
    assert seen[-1] == late[-1] == 199
    assert seen == list(range(1, 200))
    assert not world.driver.failures
    check_world(world)


def test_nodes_that_are_registered_and_removed_over_and_over_make_no_reader_of_theirs_spend_its_runs() -> None:
    """Each of them is something from outside, as a write would be."""
    world = World()
    document = world.document("shared")
    seen = world.look(Handle(world, document))
    for number in range(50):
        world.computed(lambda number=number: number, id=f"c{number}", output=document)  # type: ignore[misc]
        world.settle()
        world.scheduler.remove(world.node(f"c{number}"))
        world.settle()
    assert seen[-50:] == list(range(50))
    assert not world.driver.failures
    check_world(world)


def test_result_that_is_superseded_over_and_over_is_sent_again_without_a_run() -> None:
    """L17: a conflict costs no budget, and no run while the inputs are the same (I3)."""

    class Silent(Detached):
        """Gives no verdict by itself."""

        def flush(self) -> None:
            """Nothing is confirmed."""

    replica = Replica()
    world = World(replica=replica, wire=Silent(replica))
    source = world.cell(1)
    output = world.computed(lambda: source.get() * 2, id="double")
    seen = world.look(output)
    world.settle()
    node = world.node("double")
    for number in range(2, 40):
        sent = world.send_results()
        assert sent is not None
        world.supersede(sent)
        world.settle()
        assert (node.runs, seen) == (1, [2]), number
    assert not world.driver.failures


def test_a_cycle_that_ended_and_goes_on_without_anything_from_outside_is_held_back_longer() -> None:
    """Y4: an observer that answers goes round outside of any pass, and every pass ends with everybody clean."""
    world = World()
    source = world.cell(0)
    node = world.effect(source.get, id="look")
    marks = world.scheduler.marks
    waits: list[int] = []
    for _ in range(60):
        world.settle()
        if world.driver.timer_at is not None:
            waits.append(world.driver.timer_at - world.clock.monotonic_us())
            world.advance(waits[-1] / 1_000)
        marks.running = node
        source.set(source.peek() + 1)
        marks.running = None
    assert waits[:4] == [250_000, 500_000, 1_000_000, 2_000_000]
    assert len(world.driver.failures) == 1
    source.set(-1)  # It ended, and this is from outside.
    world.advance(60_000)
    assert not world.scheduler.gates.is_exhausted(node)
