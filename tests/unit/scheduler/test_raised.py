"""What comes out of an author's function and is no Exception: that function has failed, and nobody is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headwater.errors import AuthoringError, UpstreamFailedError
from headwater.runtime.api.runtime import Runtime
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import CLEAN
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import World
from tests.unit.cells.handle_kit import Hand
from tests.unit.runtime.kit import run


class Halt(BaseException):
    """Somebody's own, for ends of its own."""


def halting() -> None:
    raise Halt("enough")


@pytest.mark.parametrize("raised", [Halt, asyncio.CancelledError, GeneratorExit])
def test_a_run_that_raises_it_has_failed_once_and_runs_again_when_something_changes(
    raised: type[BaseException],
) -> None:
    world = World()
    source = world.cell(1)

    def fn() -> object:
        if source.get() == 1:
            raise raised
        return source.get()

    seen: list[object] = []
    output = world.computed(fn, id="node")

    def look() -> None:
        try:
            seen.append(output.get())
        except UpstreamFailedError as error:
            seen.append(type(error.__cause__))

    world.effect(look)
    world.settle()
    node = world.node("node")
    assert (node.runs, node.status) == (1, CLEAN)
    assert isinstance(node.error, AuthoringError)
    assert isinstance(node.error.__cause__, raised)
    assert [failure.node for failure in world.driver.failures] == ["node"]
    source.set(2)
    world.settle()
    assert seen == [AuthoringError, 2]
    check_world(world)


def test_whoever_pulls_it_is_told() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            output = rt.cell("shop", "output", int)
            rt.register(halting, output=output, id="node")
            with pytest.raises(UpstreamFailedError, match="Halt was raised by a function that is called here"):
                await output.pull()

    run(work)


@pytest.mark.parametrize("where", ["sink", "listener", "cleanup", "write"])
def test_it_keeps_nobody_else_from_being_called(where: str) -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    seen: list[int] = []

    def halt(*_: object) -> None:
        raise Halt

    if where == "sink":
        cell.sink(halt)
    elif where == "listener":
        hand.core.on_error(halt)
        hand.core.report("somebody", ValueError("told"))
    elif where == "cleanup":

        def effect() -> Callable[[], None]:
            cell.get()
            return halt

        hand.effect(effect)
        hand.settle()
        cell.set(2)
    else:
        with pytest.raises(AuthoringError, match="Halt was raised by"):
            cell.update(lambda _: halt())
    cell.sink(seen.append)
    hand.settle()
    assert seen == [cell.get()]
    assert where == "write" or any(isinstance(failure.error.__cause__, Halt) for failure in hand.errors)


def test_a_second_run_that_raises_it_is_a_finding() -> None:
    hand = Hand()
    validator = hand.core.scheduler.introspection.idempotency
    validator.switch(on=True)
    runs: list[None] = []

    def fn() -> int:
        runs.append(None)
        if len(runs) == 2:
            raise Halt
        return 1

    output = hand.computed(fn)
    output.sink(lambda _: None)
    hand.settle()
    with pytest.raises(AssertionError, match="it raises Halt"):
        validator.assert_idempotent()


def test_whoever_interrupts_over_and_over_is_held_back() -> None:
    world = World(limits=SchedulerLimits(node_runs=4))
    source = world.cell(1)
    seen = world.look(source)

    def fn() -> None:
        source.get()
        raise KeyboardInterrupt

    node = world.effect(fn, id="node")
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            world.settle()
    world.settle()  # I6: it has its pause, and the others go on.
    assert world.scheduler.gates.is_exhausted(node)
    source.set(2)
    world.settle()
    assert seen == [1, 2]
    assert node.attempts == 4
