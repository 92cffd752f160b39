"""Failures: told once with their causes, shown to readers, bounded where they may pass, with words that help."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from headwater.data.patch import replace
from headwater.data.value import ABSENT
from headwater.errors import AuthoringError, InvalidValueError, UpstreamFailedError
from headwater.scheduler.failures import UndeclaredWriteError
from headwater.scheduler.node import CLEAN, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import World


def test_a_failure_is_told_once_with_its_node_and_causes_and_the_node_stays_subscribed() -> None:
    world = World()
    divisor = world.cell(1)
    node = world.effect(lambda: 1 // divisor.get(), id="eye")
    world.settle()
    divisor.set(0)
    world.settle()
    world.advance(60_000)
    (failure,) = world.driver.failures
    assert failure.node == "eye"
    assert isinstance(failure.error, ZeroDivisionError)
    assert len(failure.causes) == 1
    assert node.status == CLEAN
    divisor.set(1)
    world.settle()
    assert node.error is None
    assert node.runs == 3


def test_a_failed_run_commits_nothing() -> None:
    world = World()
    source, side = world.cell(1), world.cell(0)

    def fn() -> int:
        side.set(source.get())
        if source.get() == 2:
            raise RuntimeError("after the write")
        return int(source.get())

    result = world.computed(fn, writes=[side])
    world.effect(lambda: world.cell(id="d2").peek())
    world.look(side)
    world.look(result)
    world.settle()
    source.set(2)
    world.settle()
    assert (side.peek(), result.peek()) == (1, 1)


def test_readers_see_which_node_failed_and_the_first_cause() -> None:
    world = World()
    source = world.cell(0)
    first = world.computed(lambda: 1 // source.get(), id="first")
    second = world.computed(lambda: first.get(), id="second")
    errors: list[BaseException] = []

    def eye() -> None:
        try:
            second.get()
        except UpstreamFailedError as error:
            errors.append(error)

    world.effect(eye)
    world.settle()
    (error,) = errors
    assert "second could not be computed" in str(error)
    first_cause: BaseException | None = error
    while first_cause is not None and isinstance(first_cause, UpstreamFailedError):
        first_cause = first_cause.__cause__
    assert isinstance(first_cause, ZeroDivisionError)


def test_the_same_failure_again_runs_no_reader_again() -> None:
    """I3: nothing that the reader could see is different."""
    world = World()
    source = world.cell(1)

    def fn() -> int:
        source.get()
        raise RuntimeError("always")

    result = world.computed(fn, id="result")
    world.effect(result.get, id="eye")
    assert world.ran_after(lambda: source.set(2)) == ["result"]


@pytest.mark.parametrize("times", [1, 3, 5])
def test_a_transient_failure_is_tried_again_after_growing_waits(times: int) -> None:
    world = World()
    source = world.cell(1)
    at: list[int] = []

    def fn() -> int:
        at.append(world.clock.monotonic_us())
        if len(at) <= times:
            raise OSError("not now")
        return int(source.get())

    result = world.computed(fn, transient=(OSError,), id="result")
    seen = world.look(result)
    world.settle()
    world.advance(60_000)
    assert seen == [1]
    waits = [later - earlier for earlier, later in pairwise(at)]
    assert waits == sorted(waits)
    assert len(at) == times + 1
    assert world.node("result").failures == 0


def test_a_transient_failure_that_stays_is_given_up_and_a_change_begins_anew() -> None:
    world = World()
    source = world.cell(1)
    failing = [True]

    def fn() -> int:
        value = int(source.get())
        if failing:
            raise OSError("never")
        return value

    node_of = world.computed(fn, transient=(OSError,), id="result")
    seen = world.look(node_of)
    world.settle()
    world.advance(600_000)
    node = world.node("result")
    assert node.runs == 1 + world.scheduler.limits.transient_retries
    assert world.driver.timer_at is None
    failing.clear()
    source.set(2)
    world.settle()
    world.advance(600_000)
    assert seen == [2]


async def waiting() -> int:
    return 1


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (lambda: waiting(), AuthoringError, "a run never awaits"),
        (lambda: object(), InvalidValueError, ""),
        (lambda: float("nan"), InvalidValueError, ""),
        (lambda: 2**60, InvalidValueError, ""),
    ],
    ids=["coroutine", "object", "nan", "too large"],
)
def test_a_result_that_is_no_value_is_the_nodes_failure(
    result: Callable[[], object], error: type[Exception], words: str
) -> None:
    world = World()
    source = world.cell(1)
    output = world.computed(lambda: result() if source.get() else 7, id="result")
    world.effect(output.get, id="eye")
    world.settle()
    told = [failure for failure in world.driver.failures if failure.node == "result"]
    assert [type(failure.error) for failure in told] == [error]
    assert words in str(told[0].error)
    source.set(0)
    world.settle()
    assert output.peek() == 7
    check_world(world)


def test_absent_as_a_result_takes_the_document_away() -> None:
    world = World()
    source = world.cell(1)
    seen = world.look(world.computed(lambda: source.get() or ABSENT))
    world.settle()
    source.set(0)
    world.settle()
    source.set(2)
    world.settle()
    assert seen == [1, ABSENT, 2]


@pytest.mark.parametrize("kind", ["computation", "effect"])
def test_an_undeclared_write_raises_where_it_happens_and_says_what_to_declare(kind: str) -> None:
    world = World()
    source, other = world.cell(1), world.cell(0)

    def fn() -> None:
        source.get()
        other.set(1)

    if kind == "effect":
        world.effect(fn, id="node")
    else:
        world.effect(world.computed(fn, id="node").get)
    world.settle()
    errors = [failure.error for failure in world.driver.failures if failure.node == "node"]
    assert [type(error) for error in errors] == [UndeclaredWriteError]
    assert "node writes space:d2" in str(errors[0])
    assert ("writes=(...)" if kind == "computation" else "Make it a computation") in str(errors[0])
    assert other.peek() == 0


def test_what_cannot_be_registered_says_what_to_write_instead() -> None:
    world = World()
    other_space = World()
    document, foreign = world.document("d"), other_space.document("d")
    cases: list[tuple[str, dict[str, object]]] = [
        ("make it a computation", {"kind": NodeKind.EFFECT, "outputs": (document,)}),
        ("say which document", {"kind": NodeKind.COMPUTATION}),
        (
            "make it a materializer",
            {"kind": NodeKind.COMPUTATION, "outputs": (document,), "envelope": ((document, ()),)},
        ),
        ("say inside which documents", {"kind": NodeKind.MATERIALIZER}),
        ("of another space", {"kind": NodeKind.COMPUTATION, "outputs": (foreign,)}),
    ]
    for words, options in cases:
        with pytest.raises(AuthoringError, match=words):
            world.scheduler.register(NodeSpec(id="n", fn=int, home=world.replica, **options))  # type: ignore[arg-type]
        assert world.nodes() == []
    world.computed(int, id="n", output=document)
    with pytest.raises(AuthoringError, match="there is a node 'n' already"):
        world.computed(int, id="n", output=document)
    assert len(document.writers) == 1


def test_a_refused_patch_in_a_run_is_the_nodes_failure_and_leaves_no_transaction() -> None:
    world = World()
    source, side = world.cell(1), world.cell({"a": 1})

    def fn() -> int:
        if source.get() == 2:
            side.at("nowhere", "deeper").set(1)
        return int(source.get())

    world.look(world.computed(fn, writes=[side], id="node"))
    world.settle()
    source.set(2)
    world.settle()
    assert [failure.node for failure in world.driver.failures][:1] == ["node"]
    transaction = world.replica.begin()
    transaction.write(side.document.key, replace((), {"b": 1}))
    world.replica.commit(transaction)
    source.set(3)
    world.settle()
    assert world.node("node").error is None
    assert side.peek() == {"b": 1}


@pytest.mark.parametrize("kind", ["effect", "materializer"])
def test_a_coroutine_that_nobody_would_look_at_is_a_failure_too(kind: str) -> None:
    """Y19: nothing happened and nobody heard of it."""
    world = World()
    if kind == "effect":
        node = world.effect(waiting)
    else:
        node = world.materializer(waiting, [world.cell({})])
    world.settle()
    assert "returned a coroutine: a run never awaits" in str(node.error)
    assert len(world.driver.failures) == 1


def test_an_effect_that_writes_is_told_what_to_do_instead() -> None:
    """Y20: it was told to declare what an effect may not declare."""
    world = World()
    cell = world.cell(1, "count")
    node = world.effect(lambda: cell.set(2))
    world.settle()
    assert str(node.error).endswith(
        "did not declare: an effect writes nothing. Make it a computation, or do it in a handler."
    )
