"""The idempotency validator: finds what a second run would write, names node and place, and leaves no trace itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, cast

import pytest

from headwater.errors import UpstreamFailedError
from headwater.replica.document import Document
from headwater.scheduler.introspection.idempotency import Idempotency
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, World
from tests.unit.scheduler.introspection_kit import Inspected


def checked(world: World) -> Idempotency:
    idempotency = Inspected(world).look.idempotency
    idempotency.switch(on=True)
    return idempotency


def drawing() -> Callable[[], int]:
    """A function that answers something else each time."""
    numbers = count()
    return lambda: next(numbers)


def test_a_graph_of_pure_functions_has_no_findings() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source = world.cell({"x": 1, "y": (1, 2)})
    total = world.computed(lambda: source.at("x").get() + len(source.at("y").get()))
    text = world.computed(lambda: {"total": total.get(), "keys": source.shape()})
    world.look(text)
    world.settle()
    source.at("x").set(5)
    world.settle()
    assert idempotency.checked == 4
    idempotency.assert_idempotent()


def test_a_result_that_differs_is_named_with_its_path() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source, draw = world.cell(1), drawing()
    result = world.computed(lambda: {"same": source.get(), "deep": [0, {"id": draw()}]}, id="minting")
    world.look(result)
    world.settle()
    (finding,) = idempotency.found.values()
    assert (finding.node, finding.kind, finding.address) == ("minting", "computation", "space:minting#/deep/1/id")
    assert (finding.first, finding.second) == (0, 1)
    with pytest.raises(
        AssertionError, match=r"computation minting is not idempotent: .* space:minting#/deep/1/id from 0 to 1"
    ):
        idempotency.assert_idempotent()


def test_a_place_is_named_once_however_often_it_is_found() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source, draw = world.cell(1), drawing()
    world.look(world.computed(lambda: (source.get(), draw()), id="minting"))
    for value in range(5):
        source.set(value)
        world.settle()
    assert list(idempotency.found) == [("minting", "space:minting#/1")]


def test_a_side_write_that_adds_up_is_found() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source, side = world.cell(1), world.cell({"n": 0, "last": 0}, id="side")

    def counting() -> Any:
        side.at("last").set(source.get())
        side.at("n").increment()
        return source.get()

    world.look(world.computed(counting, id="counting", writes=[side]))
    world.settle()
    (finding,) = idempotency.found.values()
    assert (finding.node, finding.address, finding.first, finding.second) == ("counting", "space:side#/n", 1, 2)
    assert side.at("n").peek() == 1


def test_a_side_write_that_says_the_same_again_is_fine() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source, side = world.cell(1), world.cell({"n": 0})

    def both() -> Any:
        side.at("n").set(source.get())
        return side.at("n").get() + 1  # It sees its own write.

    world.look(world.computed(both, writes=[side]))
    world.settle()
    source.set(2)
    world.settle()
    assert idempotency.checked == 2
    idempotency.assert_idempotent()


def test_a_materializer_is_checked_in_its_envelope() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source, big = world.cell(1), world.cell({"log": {}}, id="big")
    draw = drawing()
    world.materializer(lambda: big.at("log", f"k{draw()}").set(source.get()), [big.at("log")], id="m")
    world.settle()
    (finding,) = idempotency.found.values()
    assert (finding.node, finding.kind, finding.address) == ("m", "materializer", "space:big#/log/k1")
    assert big.peek() == {"log": {"k0": 1}}


def test_a_function_that_reads_what_it_wrote_is_found_although_each_run_alone_is_pure() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source, side = world.cell(1), world.cell(0, id="side")

    def doubling() -> int:
        side.set(side.get() + source.get())
        return 0

    world.look(world.computed(doubling, id="doubling", writes=[side]))
    world.settle()
    assert [(finding.address, finding.first, finding.second) for finding in idempotency.found.values()] == [
        ("space:side", 1, 2)
    ]
    assert side.peek() == 1


def test_a_second_run_that_raises_is_found() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    items = [1]
    world.look(world.computed(items.pop, id="popping"))
    world.settle()
    (finding,) = idempotency.found.values()
    assert (finding.node, finding.address, finding.error) == ("popping", "", "IndexError: pop from empty list")
    assert "run again after its commit, it raises IndexError" in str(finding)
    assert world.driver.failures == []
    assert world.node("popping").error is None
    assert world.scheduler.current.run is None


def test_a_result_that_is_no_value_the_second_time_is_found() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    results: list[Any] = [object(), 1]
    world.look(world.computed(results.pop, id="odd"))
    world.settle()
    (finding,) = idempotency.found.values()
    assert finding.error is not None


def test_effects_and_failed_runs_are_not_repeated() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source = world.cell(0)
    calls: list[str] = []

    def failing() -> Any:
        calls.append("failing")
        return 1 // source.get()

    world.effect(lambda: calls.append("effect"))
    world.effect(world.computed(failing).get)
    world.settle()
    assert sorted(calls) == ["effect", "failing"]
    assert idempotency.checked == 0


def test_a_reader_that_copes_with_a_failure_above_is_shown_it_again() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source = world.cell(0)
    ratio = world.computed(lambda: 1 // source.get())

    def coping() -> Any:
        try:
            return ratio.get()
        except UpstreamFailedError as error:
            return str(error)

    world.look(world.computed(coping, id="coping"))
    world.settle()
    assert idempotency.checked == 1
    source.set(1)
    world.settle()
    assert world.node("coping").error is None
    idempotency.assert_idempotent()


def test_expected_non_idempotence_is_no_finding() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    first, second = drawing(), drawing()
    with idempotency.expect_non_idempotent(["expected"]):
        world.look(world.computed(first, id="expected"))
        world.look(world.computed(second, id="other"))
        world.settle()
    assert list(idempotency.found) == [("other", "space:other")]


def test_expecting_it_of_a_node_that_is_idempotent_fails() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source = world.cell(1)
    world.look(world.computed(drawing(), id="minting"))
    world.look(world.computed(source.get, id="pure"))
    expectation = idempotency.expect_non_idempotent(["minting", "pure"])
    with pytest.raises(AssertionError, match=r"nothing was found: pure$"), expectation:
        world.settle()
    idempotency.assert_idempotent()


def test_an_error_inside_the_expectation_is_not_hidden_by_it() -> None:
    idempotency = checked(World(traced=False))
    with pytest.raises(ValueError, match="mine"), idempotency.expect_non_idempotent(["nobody"]):
        raise ValueError("mine")


def test_expectations_inside_one_another_each_hear_of_it() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    with idempotency.expect_non_idempotent(["minting"]), idempotency.expect_non_idempotent(["minting"]):
        world.look(world.computed(drawing(), id="minting"))
        world.settle()
    idempotency.assert_idempotent()


def test_it_is_off_until_it_is_switched_on_and_after_it_is_switched_off() -> None:
    world = World(traced=False)
    idempotency = Inspected(world).look.idempotency
    source, calls = world.cell(0), drawing()
    world.look(world.computed(lambda: (source.get(), calls())[0]))
    world.settle()
    assert calls() == 1
    idempotency.switch(on=True)
    source.set(1)
    world.settle()
    assert calls() == 4
    idempotency.switch(on=False)
    source.set(2)
    world.settle()
    assert calls() == 6
    assert idempotency.checked == 1


def test_a_node_that_makes_nodes_is_left_undecided_and_makes_them_once() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source = world.cell(2)
    made = count()

    def coordinator() -> Any:
        for _ in range(source.get()):
            world.effect(source.get, id=f"child{next(made)}", parent=world.node("parent"))
        return source.get()

    world.look(world.computed(coordinator, id="parent"))
    world.settle()
    children = [node.id for node in world.nodes() if node.id.startswith("child")]
    assert children == ["child0", "child1"]
    assert not idempotency.found
    check_world(world)


def test_a_second_run_that_wanders_off_to_something_unready_is_undecided_and_starts_nothing() -> None:
    world = World(traced=False, lazy=True)
    idempotency = checked(world)
    never_ran = world.computed(lambda: 1, id="never")
    missing = world.absent_cell("missing")
    elsewhere = [missing, never_ran]
    for handle in elsewhere:
        draw = drawing()
        result = world.computed(lambda draw=draw, handle=handle: handle.get() if draw() else 0, id=world.name("w"))  # type: ignore[misc]
        world.arrive(result)
        world.look(result)
        world.settle()
    assert not idempotency.found
    assert idempotency.checked == 0
    assert world.node("never").attempts == 0
    assert missing.document not in world.driver.asked
    check_world(world)


def never_ran(world: World) -> Handle:
    return world.computed(lambda: 1)


def dormant_and_invalid(world: World) -> Handle:
    source = world.cell(1)
    handle = world.computed(source.get)
    effect = world.effect(handle.get)
    world.settle()
    world.scheduler.remove(effect)
    source.set(2)
    return handle


def dormant_below_something_invalid(world: World) -> Handle:
    above = dormant_and_invalid(world)
    handle = world.computed(above.get)
    effect = world.effect(handle.get)
    world.settle()
    world.scheduler.remove(effect)
    source = next(spot.document for spot in world.node(above).reads if spot is not None)
    Handle(world, cast(Document, source)).set(3)
    return handle


def live_and_held_back(world: World) -> Handle:
    source = world.cell(1)
    handle = world.computed(source.get, debounce_ms=1_000)
    world.effect(handle.get)
    world.settle()
    source.set(2)
    return handle


def in_a_dirty_envelope(world: World) -> Handle:
    big, source = world.cell({"n": 5}), world.cell(0)
    world.materializer(lambda: big.at("n").set(source.get()), [big], debounce_ms=1_000)
    world.settle()
    source.set(1)
    return big.at("n")


@pytest.mark.parametrize(
    "make",
    [never_ran, dormant_and_invalid, dormant_below_something_invalid, live_and_held_back, in_a_dirty_envelope],
)
def test_a_second_run_that_looks_at_what_is_not_fresh_is_undecided(make: Callable[[World], Handle]) -> None:
    """A real run would wait for it, or order it first: comparing with what is there now says nothing."""
    world = World(traced=False)
    handle, draw = make(world), drawing()
    world.look(world.computed(lambda: handle.get() if draw() else "first", id="wandering"))
    idempotency = checked(world)
    world.settle()
    assert draw() == 2
    assert not idempotency.found
    assert idempotency.checked == 0


def test_a_second_run_that_raises_last_leaves_no_run_open() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    target, items = world.cell({"n": 0}), [1]
    world.materializer(lambda: target.at("n").set(items.pop()), [target], id="m")
    world.settle()
    assert idempotency.found
    assert world.scheduler.current.run is None
    target.at("n").set(3)  # Outside of any run: it would be the second run's if that were still open.
    assert target.at("n").peek() == 3


def test_somebody_who_answers_a_commit_with_a_write_makes_no_finding() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source = world.cell(1)
    result = world.computed(source.get, id="result")
    world.look(result)

    def overwrite(notification: Any) -> None:
        if notification.source is world.node("result"):
            result.set("taken")

    world.replica.feed.subscribe(overwrite)
    world.settle()
    assert result.peek() == "taken"
    idempotency.assert_idempotent()


def test_a_run_whose_input_changed_in_answer_to_its_commit_is_not_compared() -> None:
    world = World(traced=False)
    idempotency = checked(world)
    source, draw = world.cell(1), drawing()
    result = world.computed(lambda: (source.get(), draw())[0], id="result")
    world.look(result)

    def answer(notification: Any) -> None:
        if notification.source is world.node("result") and source.peek() == 1:
            source.set(2)

    world.replica.feed.subscribe(answer)
    world.settle()
    assert result.peek() == 2
    assert idempotency.checked == 1
    assert draw() == 3  # Two real runs, and one second run: that of the last.
    idempotency.assert_idempotent()


def test_an_author_who_catches_everything_does_not_turn_it_into_a_finding() -> None:
    world = World(traced=False, lazy=True)
    idempotency = checked(world)
    missing, draw = world.absent_cell("missing"), drawing()

    def stubborn() -> Any:
        try:
            return missing.get() if draw() else 0
        except BaseException:
            return "swallowed"

    result = world.computed(stubborn)
    world.arrive(result)
    world.look(result)
    world.settle()
    assert not idempotency.found


def test_nothing_of_a_second_run_stays() -> None:
    """No read, no stamp that a real run could mistake, no open transaction, no frame, no layer."""
    world = World(traced=False)
    idempotency = checked(world)
    source, side, draw = world.cell(1), world.cell({"n": 0}), drawing()
    extra = world.cell(7)

    def wandering() -> Any:
        if draw() % 2:
            extra.get()  # Only ever read by the second run.
        side.at("n").increment()
        return source.get()

    world.look(world.computed(wandering, id="wandering", writes=[side]))
    world.settle()
    assert idempotency.found
    node = world.node("wandering")
    assert [spot.document for spot in node.reads if spot is not None] == [source.document]
    assert extra.document.twig is None
    assert world.replica.open_transactions.count == 0
    assert world.scheduler.current.run is None
    extra.set(8)
    world.settle()
    assert node.runs == 1
    source.set(2)
    world.settle()
    assert node.runs == 2
    assert [spot.document for spot in node.reads if spot is not None] == [source.document]
    check_world(world)
