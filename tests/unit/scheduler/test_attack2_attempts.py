"""What a second outside attack found about attempts: those that are stopped, cancelled, or remove themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headwater.cells.cell import Cell
from headwater.protocol.verdict import RuleRefused
from headwater.runtime.api.runtime import Runtime
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.kit import World
from tests.unit.cells.handle_kit import Hand
from tests.unit.runtime.kit import run
from tests.unit.runtime.test_core_writing import Scripted


@pytest.mark.parametrize("look", [Cell.get, Cell.exists, lambda cell: len(cell.view())], ids=["get", "exists", "view"])
def test_two_handles_of_one_cell_are_one_read_for_an_attempt_that_starts_again(
    look: Callable[[Cell[Any]], object],
) -> None:
    hand = Hand()
    one = hand.cell(Mapping[str, int], {"a": 1}, id="cell")
    two = hand.core.cell("shop", "cell", Mapping[str, int])
    late = hand.computed(lambda: 1 if look(two) else 0)
    seen: list[object] = []

    def show() -> None:
        look(one)
        seen.append(late.get())

    hand.effect(show)
    hand.settle()
    assert seen == [1]
    one.set({})
    hand.settle()
    assert not hand.errors


def test_a_view_of_a_default_before_something_that_never_ran_is_one_read() -> None:
    hand = Hand()
    cards = hand.cell(Mapping[str, int], id="cards", default={})
    late = hand.computed(lambda: 1)
    seen = hand.seen(lambda: (len(cards.view()), late.get()))
    cards.key("a").set(1)
    hand.settle()
    assert seen == [(0, 1), (1, 1)]


def test_an_attempt_that_is_stopped_leaves_no_nameless_nodes_and_no_sinks_behind() -> None:
    async def work() -> None:
        async with Runtime(None) as rt:
            source = rt.cell("shop", "source", int, default=1)
            parts = [rt.cell("shop", f"part{number}", int) for number in range(3)]
            for part in parts:
                rt.register(lambda: source.get(), output=part, id=str(part.document.key.id))
            ran: list[int] = []
            heard: list[int] = []

            def show() -> None:
                rt.register(lambda: ran.append(source.get()), kind="effect")
                source.sink(heard.append)
                for part in parts:
                    part.get()

            rt.register(show, kind="effect", id="show")
            await rt.idle()
            assert ran == [1]
            assert heard == [1]
            assert len(rt.core.scheduler.registry) == len(parts) + 3

    run(work)


def test_an_effect_that_removes_itself_is_cleaned_up() -> None:
    world = World()
    told: list[str] = []

    def once() -> object:
        world.scheduler.remove(world.node("once"))
        return lambda: told.append("closed")

    world.effect(once, id="once")
    world.settle()
    assert told == ["closed"]


def test_a_computation_that_is_cancelled_has_failed() -> None:
    async def work() -> None:
        rt = Runtime(None, close_s=0.1)
        told: list[BaseException] = []
        rt.on_error(told.append)
        cancelled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        output = rt.cell("shop", "output", int)
        node = rt.register(cancelled.result, output=output, id="node")
        subscription = output.sink(lambda _: None)
        try:
            for _ in range(50):
                await asyncio.sleep(0)
            assert node.node.attempts < 10
            assert told
        finally:
            subscription.close()
            node.remove()
            await rt.close()

    run(work)


def test_whoever_reads_what_was_refused_is_told() -> None:
    shop = Scripted()
    core = shop.core
    n, tenfold = core.cell("shop", "n", int), core.cell("shop", "tenfold", int)
    shop.arrive("n", 1)
    shop.arrive("tenfold")
    spec = NodeSpec(
        id="tenfold",
        kind=NodeKind.COMPUTATION,
        fn=lambda: n.get() * 10,
        home=shop.replica,
        outputs=(tenfold.document,),
    )
    node = core.register(spec)
    tenfold.sink(lambda _: None)
    core.settle()
    shop.confirm()
    core.settle()
    n.set(2)
    core.settle()
    shop.judge_results(RuleRefused("size", "it is too long"))
    core.heard()
    core.settle()
    assert tenfold.document.value == 10
    assert node.error is not None
