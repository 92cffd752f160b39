"""What an outside attack found about ends: closing, removing, and looks that never come to one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.data.address import Link
from headwater.errors import AuthoringError
from headwater.runtime.api.runtime import Runtime
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec
from tests.unit.runtime.kit import run
from tests.unit.runtime.test_core_time import SECOND, Timed
from tests.unit.runtime.test_core_writing import Scripted


def test_closing_that_was_cancelled_lets_go_of_the_directory(tmp_path: Path) -> None:
    """Y3: nothing was closed, and closing again did nothing."""

    async def work() -> None:
        rt = Runtime(tmp_path)
        n = rt.cell("shop", "n", int, default=0)
        n.set(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await rt.close()
        await rt.close()
        async with Runtime(tmp_path) as again:
            assert await again.cell("shop", "n", int, default=0).pull() in (0, 1)

    run(work)


def test_a_sink_that_answers_itself_is_held_back() -> None:
    """Y4, I6: every delivery counted as something from outside, so that no budget was ever spent."""
    shop = Scripted()
    n = shop.core.cell("shop", "n", int, default=0)
    shop.arrive("n", 0)
    n.sink(lambda value: n.set(value + 1))
    for _ in range(400):
        if not shop.core.tick():
            break
    assert n.get() < 200


def test_moments_that_nobody_reads_any_more_are_not_waited_for() -> None:
    """Y5: each stayed, with its alarm, until it came."""
    timed = Timed()
    for seconds in range(100):
        _, node = timed.seen(lambda seconds=seconds: timed.time.past(timed.start_us + (10_000 + seconds) * SECOND))
        timed.core.remove(node)
    timed.clock.advance(1)
    assert timed.time.moments() == 0
    assert timed.timers() is None


def test_a_document_that_was_only_written_is_let_go_with_its_materializer() -> None:
    """Y14: it was watched for ever."""
    shop = Scripted()
    shop.space.kept_unread = 0
    n = shop.core.cell("shop", "n", int, default=0)
    big = shop.core.cell("shop", "big", Mapping[str, int], default={})
    shop.arrive("n", 1)
    node = shop.core.register(
        NodeSpec(
            id="m",
            kind=NodeKind.MATERIALIZER,
            fn=lambda: big.key("k").set(n.get()),
            home=shop.replica,
            envelope=((big.document, ()),),
        )
    )
    shop.core.settle()
    shop.arrive("big", {})
    shop.confirm()
    shop.core.remove(node)
    shop.core.settle()
    assert big.document.key in shop.left


def test_a_document_behind_a_link_is_let_go_if_its_reader_leaves_before_it_arrives() -> None:
    """Y17: it had no reader yet whose leaving could be noticed."""
    shop = Scripted()
    shop.space.kept_unread = 0
    n = shop.core.cell("shop", "n", int)
    shop.arrive("n", Link(None, "space", "far", ()))
    node = shop.core.register(
        NodeSpec(id="e", kind=NodeKind.EFFECT, fn=lambda: (n.get(), None)[1], home=shop.replica, returns=False)
    )
    shop.core.settle()
    far = shop.space.document("far")
    assert node.loading is far
    shop.core.remove(node)
    shop.core.settle()
    assert far.key in shop.left


def test_a_document_that_is_loaded_first_does_not_use_up_the_throttle() -> None:
    """Y1: the first attempt was stopped, and the first run came a whole window late."""
    shop = Scripted()
    n = shop.core.cell("shop", "n", int)
    seen: list[int] = []
    shop.core.register(
        NodeSpec(
            id="e",
            kind=NodeKind.EFFECT,
            fn=lambda: seen.append(n.get()),
            home=shop.replica,
            returns=False,
            throttle_ms=5_000,
        )
    )
    shop.core.settle()
    assert seen == []
    shop.arrive("n", 3)
    assert seen == [3]


def test_a_node_whose_options_are_refused_is_not_there() -> None:
    """Y18."""

    async def work() -> None:
        async with Runtime() as rt:
            for wrong in (-1.0, float("nan"), float("inf")):
                with pytest.raises(AuthoringError):
                    rt.register(lambda: None, kind="effect", id="e", debounce_ms=wrong)
            rt.register(lambda: None, kind="effect", id="e", debounce_ms=1)

    run(work)


def test_an_effect_that_returns_a_coroutine_is_told_so() -> None:
    """Y19: nothing happened and nobody heard of it."""

    async def work() -> None:
        async def later() -> None:
            raise AssertionError("a run never awaits")

        async with Runtime() as rt:
            failures: list[str] = []
            rt.core.on_error(lambda failure: failures.append(str(failure.error)))
            returned = later()
            rt.register(lambda: returned, kind="effect")
            await rt.idle()
            returned.close()
            assert len(failures) == 1
            assert "never awaits" in failures[0]

    run(work)


def test_a_moment_that_one_reader_saw_come_has_come_for_all() -> None:
    """Y13: the wall clock moved and the monotonic one did not, as when a machine sleeps."""
    timed = Timed()
    clock = timed.wall
    when = timed.start_us + 3_600 * SECOND
    first, _ = timed.seen(lambda: timed.time.past(when))
    assert first == [False]
    clock.ahead_us = 7_200 * SECOND
    second, _ = timed.seen(lambda: timed.time.past(when))
    timed.clock.advance(1)
    assert second == [True]
    assert first == [False, True]
