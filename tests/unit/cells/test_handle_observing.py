"""Looking from outside: pulls, sinks and watches, each value once and never a backlog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater.clock import RealClock
from headwater.errors import AbsentError, UpstreamFailedError
from headwater.replica.detached import Detached
from headwater.replica.replica import Replica
from headwater.runtime.api.runtime import AsyncioTickLoop
from headwater.runtime.core.core import Core
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from tests.unit.cells.handle_kit import Card, Cards, Hand


def test_a_sink_is_called_with_the_value_now_and_after_each_change() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    seen: list[int] = []
    cell.sink(seen.append)
    hand.settle()
    cell.set(2)
    hand.settle()
    cell.set(2)
    hand.settle()
    assert seen == [1, 2]


def test_a_sink_hears_the_latest_and_not_what_was_in_between() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    seen: list[int] = []
    cell.sink(seen.append)
    hand.settle()
    for number in range(5):
        cell.set(number + 10)
    hand.settle()
    assert seen == [1, 14]


def test_a_closed_sink_is_silent_and_leaves_nothing_behind() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    seen: list[int] = []
    subscription = cell.sink(seen.append)
    hand.settle()
    subscription.close()
    subscription.close()
    cell.set(2)
    hand.settle()
    assert seen == [1]
    assert len(hand.core.scheduler.registry) == 0
    assert cell.document.twig is None or cell.document.twig.is_empty()


def test_a_sink_demands_what_it_looks_at() -> None:
    hand = Hand()
    source = hand.cell(int, 1)
    total = hand.computed(lambda: source.get() * 2)
    seen: list[int] = []
    subscription = total.sink(seen.append)
    hand.settle()
    source.set(5)
    hand.settle()
    subscription.close()
    source.set(7)
    hand.settle()
    assert seen == [2, 10]
    node = hand.core.scheduler.registry.get("computed2")
    assert node is not None
    assert node.runs == 2


def test_a_sink_on_something_absent_waits_and_tells_no_error() -> None:
    hand = Hand()
    cell = hand.cell(int)
    seen: list[int] = []
    cell.sink(seen.append)
    hand.settle()
    cell.set(1)
    hand.settle()
    cell.delete()
    hand.settle()
    cell.set(1)
    hand.settle()
    assert seen == [1, 1]
    assert not hand.errors


def test_a_sink_that_raises_is_told_and_goes_on() -> None:
    hand = Hand()
    cell = hand.cell(int, 0)
    seen: list[float] = []
    cell.sink(lambda n: seen.append(1 / n))
    hand.settle()
    cell.set(2)
    hand.settle()
    assert seen == [0.5]
    assert [type(failure.error) for failure in hand.errors] == [ZeroDivisionError]


def test_a_sink_may_write_and_is_called_for_what_follows() -> None:
    hand = Hand()
    cell = hand.cell(int, 0)
    seen: list[int] = []

    def up(n: int) -> None:
        seen.append(n)
        if n < 3:
            cell.set(n + 1)

    cell.sink(up)
    hand.settle()
    assert seen == [0, 1, 2, 3]


# ---- groups ------------------------------------------------------------------------------------------


def test_a_sink_with_a_group_does_not_hear_changes_of_that_group() -> None:
    hand = Hand()
    cell = hand.cell(str, "a")
    editor = object()
    seen: list[str] = []
    cell.sink(seen.append, group=editor)
    hand.settle()
    cell.set("b", group=editor)
    hand.settle()
    assert seen == ["a"]
    cell.set("c", group=object())
    hand.settle()
    cell.set("d")
    hand.settle()
    assert seen == ["a", "c", "d"]


@pytest.mark.parametrize("own_last", [True, False])
def test_a_change_of_somebody_else_is_heard_however_close_it_is_to_an_own_one(own_last: bool) -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="1"), "b": Card(title="1")})
    editor = object()
    seen: list[str] = []
    cards.sink(lambda all_: seen.append("".join(card.title for card in all_.values())), group=editor)
    hand.settle()

    def own() -> None:
        cards.key("a").at(lambda c: c.title).set("2", group=editor)

    def others() -> None:
        cards.key("b").at(lambda c: c.title).set("3")

    for act in (others, own) if own_last else (own, others):
        act()
    hand.settle()
    assert seen == ["11", "23"]
    cards.key("a").at(lambda c: c.title).set("4", group=editor)
    hand.settle()
    assert seen == ["11", "23"]


def test_what_others_change_elsewhere_does_not_turn_an_own_change_into_news() -> None:
    hand = Hand()
    cards = hand.cell(Cards, {"a": Card(title="1"), "b": Card(title="1")})
    editor = object()
    seen: list[str] = []
    cards.key("a").at(lambda c: c.title).sink(seen.append, group=editor)
    hand.settle()
    cards.key("b").at(lambda c: c.title).set("3")
    cards.key("a").at(lambda c: c.title).set("2", group=editor)
    hand.settle()
    assert seen == ["1"]


@pytest.mark.parametrize(
    "write",
    [
        lambda c, g: c.increment(5, group=g),
        lambda c, g: c.update(lambda n: n + 1, group=g),
        lambda c, g: c.set(9, group=g),
    ],
)
def test_every_kind_of_write_can_have_a_group(write: Callable[[Any, object], object]) -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    editor = object()
    mine: list[int] = []
    others: list[int] = []
    cell.sink(mine.append, group=editor)
    cell.sink(others.append)
    hand.settle()
    write(cell, editor)
    hand.settle()
    assert (len(mine), len(others)) == (1, 2)


def test_the_scheduler_never_looks_at_groups() -> None:
    hand = Hand()
    cell = hand.cell(int, 1)
    editor = object()
    total = hand.computed(lambda: cell.get() * 2)
    seen: list[int] = []
    total.sink(seen.append, group=editor)
    hand.settle()
    cell.set(2, group=editor)
    hand.settle()
    assert seen == [2, 4]  # The computed changed it, not the editor.


# ---- with an event loop ------------------------------------------------------------------------------


class Awake:
    """A runtime on asyncio's loop."""

    def __init__(self) -> None:
        loop = AsyncioTickLoop(asyncio.get_running_loop())
        self.core = Core(RealClock(), loop)
        loop.drive(self.core)
        self.replica = Replica()
        self.space = self.core.add_space("shop", self.replica, Detached(self.replica))

    def computed(self, id: str, fn: Callable[[], int]) -> Any:
        cell = self.core.cell("shop", id, int)
        self.core.register(
            NodeSpec(id=id, kind=NodeKind.COMPUTATION, fn=fn, home=self.replica, outputs=(cell.document,))
        )
        return cell


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(bounded())


def test_a_pull_brings_up_to_date_and_lets_go() -> None:
    async def work() -> None:
        awake = Awake()
        source = awake.core.cell("shop", "n", int)
        source.set(1)
        total = awake.computed("total", lambda: source.get() * 2)
        assert await total.pull() == 2
        source.set(4)
        assert await total.pull() == 8
        node = awake.core.scheduler.registry.get("total")
        assert node is not None
        assert not node.live
        assert len(awake.core.scheduler.registry) == 1

    run(work)


def test_a_pull_raises_what_its_reader_would_get_and_tells_nobody_else() -> None:
    async def work() -> None:
        awake = Awake()
        errors: list[Any] = []
        awake.core.on_error(errors.append)
        with pytest.raises(AbsentError):
            await awake.core.cell("shop", "n", int).pull()
        assert errors == []
        broken = awake.computed("broken", lambda: 1 // 0)
        with pytest.raises(UpstreamFailedError, match="broken could not be computed"):
            await broken.pull()
        assert [failure.node for failure in errors] == ["broken"]

    run(work)


def test_a_watch_gives_the_value_now_and_then_the_latest() -> None:
    async def work() -> None:
        awake = Awake()
        cell = awake.core.cell("shop", "n", int)
        cell.set(1)
        seen: list[int] = []
        async for value in cell.watch():
            seen.append(value)
            if value == 1:
                for number in range(2, 8):
                    cell.set(number)
            if value == 7:
                break
        assert seen == [1, 7]

    run(work)


def test_a_watch_that_is_left_leaves_nothing_behind() -> None:
    async def work() -> None:
        awake = Awake()
        cell = awake.core.cell("shop", "n", int)
        cell.set(1)
        watching = cell.watch()
        assert await anext(watching) == 1
        assert len(awake.core.scheduler.registry) == 1
        await watching.aclose()  # type: ignore[attr-defined]
        assert len(awake.core.scheduler.registry) == 0

    run(work)


def test_a_pull_that_is_cancelled_leaves_nothing_behind() -> None:
    async def work() -> None:
        awake = Awake()
        pulling = asyncio.get_running_loop().create_task(awake.core.cell("shop", "n", int, default=1).pull())
        await asyncio.sleep(0)
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        assert len(awake.core.scheduler.registry) == 0

    run(work)
