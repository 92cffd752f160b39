"""The loop of simulations: time is virtual, the order is asyncio's, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater.clock import VirtualClock
from headwater.errors import LimitError
from headwater.testing.author.loop import LINGERS_US, PATIENCE_US, VirtualLoop


def run(
    main: Callable[[], Coroutine[Any, Any, Any]], *, is_busy: bool = False, clock: VirtualClock | None = None
) -> tuple[Any, float]:
    """What a program answers, and how long that took."""
    loop = VirtualLoop(clock or VirtualClock(seed=0), is_busy=is_busy)
    try:
        return loop.run_until_complete(main()), loop.time()
    finally:
        loop.close()


def test_sleeping_an_hour_takes_an_hour_of_virtual_time() -> None:
    async def main() -> None:
        await asyncio.sleep(3_600)

    assert run(main) == (None, 3_600.0)


def test_timers_go_off_in_their_order_and_at_their_times() -> None:
    async def main() -> list[tuple[float, int]]:
        loop, seen = asyncio.get_running_loop(), list[tuple[float, int]]()

        async def nap(seconds: float, number: int) -> None:
            await asyncio.sleep(seconds)
            seen.append((loop.time(), number))

        await asyncio.gather(nap(0.3, 3), nap(0.1, 1), nap(0.2, 2))
        return seen

    assert run(main)[0] == [(0.1, 1), (0.2, 2), (0.3, 3)]


def test_callbacks_have_their_turns_in_the_order_in_which_they_came() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(50):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(0)
        return seen

    for seed in range(5):
        assert run(main, clock=VirtualClock(seed=seed), is_busy=True)[0] == list(range(50))


def test_timers_of_the_clock_are_waited_for_like_those_of_the_loop() -> None:
    clock = VirtualClock(seed=0)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[float] = loop.create_future()
        clock.call_at(clock.now_us() + 250_000, lambda: over.set_result(loop.time()))
        return await over

    assert run(main, clock=clock)[0] == 0.25


def test_a_busy_loop_lets_things_arrive_between_two_turns() -> None:
    """Otherwise nothing could ever come in between what is ready, and no seed would try that."""

    def turns_until_it_arrives(seed: int) -> int:
        clock = VirtualClock(seed=seed)

        async def main() -> int:
            arrived: list[int] = []
            clock.call_at(clock.now_us() + LINGERS_US, lambda: arrived.append(1))
            turns = 0
            while not arrived and turns < 1_000:
                turns += 1
                await asyncio.sleep(0)
            return turns

        answer: int = run(main, clock=clock, is_busy=True)[0]
        return answer

    turns = [turns_until_it_arrives(seed) for seed in range(10)]
    assert all(1 < each < 1_000 for each in turns)
    assert len(set(turns)) > 1
    assert turns == [turns_until_it_arrives(seed) for seed in range(10)]


def test_work_for_a_thread_is_done_here_and_its_error_is_raised_where_it_is_awaited() -> None:
    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(pow, 2, 10)

    assert run(main)[0] == 1_024


def test_waiting_for_what_cannot_happen_is_an_error_and_no_hang() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(LimitError, match="nothing is left that could happen, and the test still waits for something"):
        run(main)


def test_waiting_for_ever_is_an_error_and_no_hang() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(30)

    with pytest.raises(LimitError, match="waited an hour of virtual time"):
        run(main)


def test_asking_for_a_turn_again_and_again_is_an_error_and_no_hang() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LimitError, match="sleep"):
        run(main)


def test_time_that_a_test_lets_pass_is_not_waiting() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.grant(3 * PATIENCE_US)
        for _ in range(3):
            await asyncio.sleep(PATIENCE_US / 1e6)

    assert run(main)[1] == 3 * PATIENCE_US / 1e6
