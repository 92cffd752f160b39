"""Looks that answer themselves are held back, `settled` waits for whoever waits for its time, ends say what to do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.data.address import DocKey
from headwater.errors import AuthoringError, HeadwaterError, LimitError, NotSettlingError, UpstreamFailedError
from headwater.replica.replica import Replica
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import LocalDirectory
from headwater.scheduler.failures import Failure
from headwater.scheduler.limits import SchedulerLimits
from tests.unit.cells.handle_kit import Hand
from tests.unit.runtime.kit import run
from tests.unit.runtime.test_core_time import Timed

RUNS = SchedulerLimits().node_runs


def go(hand: Hand, slices: int = 1_000) -> None:
    """Settle, and fail if it takes for ever."""
    hand.core.settle(slices)


# ---- I6: looks that answer themselves ----------------------------------------------------------------


def test_a_sink_that_writes_what_it_looks_at_is_held_back_and_reported_once() -> None:
    hand = Hand()
    n = hand.cell(int, 0)
    n.sink(lambda value: n.set(value + 1))
    go(hand)
    assert n.get() == RUNS
    reports = [failure for failure in hand.errors if isinstance(failure.error, NotSettlingError)]
    assert len(reports) == 1
    assert "sink" in reports[0].node
    hand.advance(250)
    assert n.get() == 2 * RUNS
    hand.advance(250)
    assert n.get() == 2 * RUNS  # The second pause is longer.


def test_two_sinks_that_answer_each_other_are_held_back() -> None:
    hand = Hand()
    a, b = hand.cell(int, 0), hand.cell(int, 0)
    a.sink(lambda value: b.set(value + 1))
    b.sink(lambda value: a.set(value + 1))
    go(hand)
    assert a.get() <= 3 * RUNS


def test_a_sink_that_answers_through_a_computation_is_held_back() -> None:
    hand = Hand()
    n = hand.cell(int, 0)
    double = hand.computed(lambda: n.get() * 2)
    double.sink(lambda value: n.update(lambda old: old + 1))
    go(hand)
    assert n.get() <= 3 * RUNS


def test_a_sink_that_comes_to_an_end_is_not_held_back() -> None:
    hand = Hand()
    n = hand.cell(int, 0)
    n.sink(lambda value: n.set(min(value + 1, 5)))
    go(hand)
    assert n.get() == 5
    assert hand.errors == []


def test_what_comes_from_outside_is_never_counted_against_a_sink() -> None:
    hand = Hand()
    n, copy = hand.cell(int, 0), hand.cell(int, 0)
    n.sink(copy.set)
    seen = hand.seen(copy.get)
    for value in range(1, 20 * RUNS):
        n.set(value)
        hand.settle()
    assert seen == list(range(20 * RUNS))
    assert hand.errors == []


def test_many_sinks_that_write_when_they_are_made_are_no_cycle() -> None:
    hand = Hand()
    n, total = hand.cell(int, 1), hand.cell(int, 0)
    seen = hand.seen(total.get)
    for _ in range(5 * RUNS):
        n.sink(lambda value: total.increment(value))
        hand.settle()
    assert seen == list(range(5 * RUNS + 1))
    assert hand.errors == []


def test_a_listener_of_errors_that_brings_the_error_about_again_is_held_back() -> None:
    hand = Hand()
    n = hand.cell(int, 0)
    hand.core.on_error(lambda failure: n.increment())

    def fail(value: int) -> None:
        raise ValueError(str(value))

    n.sink(fail)
    go(hand)
    assert n.get() <= 2 * RUNS
    assert any(isinstance(failure.error, NotSettlingError) for failure in hand.errors)


def test_a_listener_of_errors_that_makes_a_failing_node_run_again_is_held_back() -> None:
    hand = Hand()
    n = hand.cell(int, 0)
    hand.core.on_error(lambda failure: n.increment())
    hand.effect(lambda: 1 // (n.get() * 0))
    go(hand)
    assert n.get() <= 2 * RUNS


def test_a_watch_whose_body_writes_what_it_watches_is_held_back() -> None:
    async def work() -> None:
        async with Runtime(close_s=5) as rt:
            failures: list[Failure] = []
            rt.core.on_error(failures.append)
            n = rt.cell("shop", "n", int, default=0)

            async def answer() -> None:
                async for value in n.watch():
                    n.set(value + 1)

            task = asyncio.ensure_future(answer())
            for _ in range(40 * RUNS):
                await asyncio.sleep(0)
            assert n.get() <= 2 * RUNS
            assert [type(failure.error) for failure in failures] == [NotSettlingError]
            task.cancel()
            await asyncio.wait([task])

    run(work)


@pytest.mark.parametrize("does_wait", [False, True], ids=["at once", "later"])
def test_what_another_task_writes_after_a_watch_comes_from_outside(does_wait: bool) -> None:
    async def work() -> None:
        async with Runtime() as rt:
            failures: list[Failure] = []
            rt.core.on_error(failures.append)
            n, copy = (rt.cell("shop", id, int, default=0) for id in "nc")
            seen: list[int] = []
            copy.sink(seen.append)

            async def follow() -> None:
                async for value in n.watch():
                    if does_wait:
                        await asyncio.sleep(0)
                    copy.set(value)

            task = asyncio.ensure_future(follow())
            for value in range(1, 5 * RUNS):
                n.set(value)
                for _ in range(6):
                    await asyncio.sleep(0)
            await rt.settled()
            assert seen[-1] == 5 * RUNS - 1
            assert len(seen) > 4 * RUNS
            assert failures == []
            task.cancel()
            await asyncio.wait([task])

    run(work)


def test_a_sink_that_is_an_async_function_is_refused() -> None:
    async def later(value: int) -> None:
        raise AssertionError("nobody awaits this")

    hand = Hand()
    n = hand.cell(int, 0)
    with pytest.raises(AuthoringError, match=r"is an async function: write `async for v in x\.watch\(\)` instead"):
        n.sink(later)
    n.sink(lambda value: later(value))
    hand.settle()
    assert [str(failure.error) for failure in hand.errors] == [
        f"sink 1 of {n!r} returned a coroutine: nothing awaits it. Write watch() instead."
    ]


# ---- settled -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"debounce_ms": 100}, {"throttle_ms": 100}], ids=["debounce", "throttle"])
def test_nothing_is_settled_while_a_reader_waits_for_its_time(options: dict[str, Any]) -> None:
    timed = Timed()
    n = timed.core.cell("shop", "n", int, default=0)
    seen: list[int] = []
    rt_register(timed, lambda: seen.append(n.get()), **options)
    timed.clock.advance(100_000)
    assert timed.core.is_settled()
    n.set(2)
    timed.clock.advance(0)
    n.set(3)
    timed.clock.advance(0)
    assert timed.core.is_quiet()  # It is not runnable now,
    assert not timed.core.is_settled()  # and has not seen what is shown.
    timed.clock.advance(100_000)
    assert seen[-1] == 3
    assert timed.core.is_settled()


def rt_register(timed: Timed, fn: Callable[[], object], **options: Any) -> Any:
    from headwater.runtime.core.nodes import register  # noqa: PLC0415 (the shell's registration without its loop)

    given = {"debounce_ms": 0.0, "throttle_ms": 0.0, **options}
    return register(
        timed.core,
        fn,
        kind="effect",
        id=None,
        output=None,
        writes=(),
        envelope=(),
        reads=(),
        transient=(),
        parent=None,
        **given,
    )


def test_settled_waits_for_a_debounced_effect_and_not_for_one_that_was_removed() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            n = rt.cell("shop", "n", int, default=0)
            seen: list[int] = []
            rt.register(lambda: seen.append(n.get()), kind="effect", debounce_ms=5)
            await rt.settled()
            n.set(2)
            await rt.settled()
            assert seen == [0, 2]
            never = rt.register(lambda: seen.append(-n.get()), kind="effect", debounce_ms=3_600_000)
            await rt.settled()
            n.set(3)
            await rt.idle()
            waiting = asyncio.ensure_future(rt.settled())
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
            never.remove()
            await waiting
            assert seen == [0, 2, -2, 3]

    run(work)


def test_settled_waits_for_a_reader_behind_a_node_that_was_found_clean() -> None:
    """Until the next tick, the reader waits behind a node that waits for nothing any more."""
    hand = Hand()
    n = hand.cell(int, 1)
    double = hand.computed(lambda: n.get() * 2)
    scheduler = hand.core.scheduler
    (node,) = (each for each in scheduler.nodes() if double.document in each.outputs)
    until = Replica().documents.of(DocKey("space", "what is known"))
    scheduler.hold(node, until)
    seen: list[str] = []
    hand.effect(lambda: seen.append(str(double.get(0))))
    go(hand)
    assert seen == []
    assert scheduler.resume(node, [], 0)
    scheduler.release_held(until)
    assert not hand.core.is_quiet()
    assert not hand.core.is_settled()
    go(hand)
    assert seen == ["0"]
    assert hand.core.is_settled()


def test_settled_does_not_wait_for_ever_for_what_does_not_settle() -> None:
    timed = Timed()
    a, b = timed.core.cell("shop", "a", int, default=0), timed.core.cell("shop", "b", int, default=0)
    a.sink(lambda value: b.set(value + 1))
    b.sink(lambda value: a.set(value + 1))
    timed.clock.advance(0)
    assert not timed.core.is_settled()
    timed.clock.advance(3_000_000)
    assert timed.core.is_settled()


# ---- pulls ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_pull_waits_while_a_failure_is_tried_again(depth: int) -> None:
    async def work() -> None:
        async with Runtime() as rt:
            rt.core.on_error(lambda failure: None)
            source = out = rt.cell("shop", "out", int)
            tries: list[int] = []

            def fetch() -> int:
                tries.append(1)
                if len(tries) < 3:
                    raise ConnectionError("not now")
                return 7

            rt.register(fetch, output=source, transient=(ConnectionError,))
            for number in range(depth):
                before, out = out, rt.cell("shop", f"out{number}", int)
                rt.register(before.get, output=out)
            assert await out.pull() == 7
            assert len(tries) == 3

    run(work)


def test_a_pull_raises_once_nothing_more_is_tried() -> None:
    async def work() -> None:
        async with Runtime() as rt:
            rt.core.on_error(lambda failure: None)
            out = rt.cell("shop", "out", int)
            tries: list[int] = []

            def fetch() -> int:
                tries.append(1)
                raise ConnectionError("never")

            rt.register(fetch, output=out, transient=(ConnectionError,))
            with pytest.raises(UpstreamFailedError, match="never"):
                await out.pull()
            assert len(tries) == 1 + rt.core.scheduler.limits.transient_retries

    run(work)


# ---- the end -------------------------------------------------------------------------------------------


def test_whoever_waits_when_a_runtime_is_closed_is_told_that_and_what_to_do(tmp_path: Path) -> None:
    async def work() -> None:
        rt = Runtime("ws://127.0.0.1:9", close_s=0.01)
        space = rt.space("shop")
        n = space.cell("n", int)
        watching: AsyncIterator[int] = n.watch()
        waiting = [
            asyncio.ensure_future(each)
            for each in (n.pull(), space.transact(n.get), rt.settled(through=5), anext(watching), rt.settled())
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        await rt.close()
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, HeadwaterError)
            assert re.search("this runtime was closed while this was waited for: open another one", str(each))

    run(work)


def test_closing_says_which_nodes_go_on() -> None:
    async def work() -> None:
        rt = Runtime(close_s=0.05)
        a, b = (rt.cell("shop", id, int, default=0) for id in "ab")
        rt.register(lambda: b.get() + 1, output=a, id="one")
        rt.register(lambda: a.get() + 1, output=b, id="two")
        a.sink(lambda value: None)
        with pytest.raises(LimitError, match=r"closing waited 0\.05 s and \d nodes still run \(.*(one|two)"):
            await rt.close()
        assert rt.core.is_closed
        assert len(rt.core.scheduler.registry) == 0

    run(work)


def test_closing_that_is_cancelled_halfway_goes_on_and_is_awaited_by_the_next(tmp_path: Path) -> None:
    async def work() -> None:
        rt = Runtime(tmp_path)
        rt.cell("shop", "n", int).set(1)
        cleaned_up = asyncio.Event()
        rt.register(lambda: cleaned_up.set, kind="effect")
        await rt.settled()
        first = asyncio.ensure_future(rt.close())
        await cleaned_up.wait()
        first.cancel()
        await rt.close()
        assert first.cancelled()
        async with LocalDirectory(tmp_path) as again, Runtime(again) as rt:
            assert await rt.cell("shop", "n", int).pull() == 1

    run(work)


def test_letting_go_of_a_look_after_the_end_is_harmless() -> None:
    async def work() -> None:
        rt = Runtime()
        subscription = rt.cell("shop", "n", int, default=0).sink(lambda value: None)
        node = rt.register(lambda: None, kind="effect")
        await rt.close()
        subscription.close()
        node.remove()

    run(work)


def test_what_is_written_while_effects_are_cleaned_up_at_the_end_lands(tmp_path: Path) -> None:
    async def work() -> None:
        async with Runtime(tmp_path) as rt:
            here = rt.cell("shop", "here", Mapping[str, bool], default={})
            here.key("ann").set(True)
            rt.register(lambda: lambda: here.key("ann").delete(), kind="effect")
        async with Runtime(tmp_path) as rt:
            assert dict(await rt.cell("shop", "here", Mapping[str, bool], default={}).pull()) == {}

    run(work)
