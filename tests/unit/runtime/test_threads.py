"""Other threads: `rt.call` calls a function on the runtime's thread and, if there is something to await, awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headwater import AuthoringError, Cell, Piece, Refused, Runtime, SessionExpiredError, cell, computed, handler
from headwater.runtime.api.threads import ThreadCalls
from tests.unit.runtime.kit import run


class Till(Piece):
    cents: Cell[int] = cell(default=0)

    @computed
    def euros(self) -> int:
        return self.cents.get() // 100

    @handler
    def take(self, cents: int) -> int:
        if cents < 0:
            raise Refused("nothing is given back")
        self.cents.increment(cents)
        return cents


def elsewhere(work: Callable[[Runtime, Till], Any]) -> Any:
    """What a function answers that is called in another thread than the runtime's."""
    answers: list[Any] = []

    async def main() -> None:
        async with Runtime() as rt:
            till = await rt.space("s").open(Till, "t")
            answers.append(await asyncio.to_thread(work, rt, till))

    run(main)
    return answers[0]


def test_a_thread_sends_and_waits_until_that_is_durable() -> None:
    def work(rt: Runtime, till: Till) -> list[int]:
        return [rt.call(till.take.send, 3), rt.call(lambda: till.take.send(4)), rt.call(till.cents.pull)]

    assert elsewhere(work) == [3, 4, 7]


def test_a_thread_calls_an_async_function() -> None:
    async def both(till: Till, cents: int) -> int:
        await till.take.send(cents)
        await till.take.send(cents)
        return till.cents.get()

    assert elsewhere(lambda rt, till: rt.call(both, till, cents=5)) == 10


def test_what_an_async_function_raises_is_raised_in_the_thread() -> None:
    def work(rt: Runtime, till: Till) -> str:
        with pytest.raises(Refused) as refused:
            rt.call(till.take.send, -1)
        return refused.value.reason

    assert elsewhere(work) == "nothing is given back"


def test_what_is_cancelled_there_is_cancelled_here() -> None:
    async def ends() -> None:
        raise asyncio.CancelledError

    def work(rt: Runtime, till: Till) -> bool:
        try:
            rt.call(ends)
        except BaseException as error:
            return type(error).__name__ == "CancelledError"
        return False

    assert elsewhere(work) is True


def test_two_hundred_threads_lose_nothing() -> None:
    async def main() -> None:
        async with Runtime() as rt:
            till = await rt.space("s").open(Till, "t")
            sends = [asyncio.to_thread(rt.call, till.take.send, 1) for _ in range(200)]
            assert await asyncio.gather(*sends) == [1] * 200
            assert await till.cents.pull() == 200

    run(main)


def test_the_runtime_s_own_thread_awaits_instead() -> None:
    async def main() -> None:
        async with Runtime() as rt:
            till = await rt.space("s").open(Till, "t")
            assert rt.call(till.cents.get) == 0
            with pytest.raises(AuthoringError, match=r"Handler\.send\) on the runtime's own thread, .*: await it"):
                rt.call(till.take.send, 1)

    run(main)


def test_a_coroutine_is_no_function_and_is_told_so_on_any_thread() -> None:
    async def work() -> int:
        return 1

    def call(rt: Runtime, till: Till) -> str:
        with pytest.raises(AuthoringError, match=r"write rt.call\(work, 1\), not") as refused:
            rt.call(work())  # type: ignore[call-overload]
        return str(refused.value)

    assert "takes a function" in elsewhere(call)


def test_member_is_obtained_in_another_thread_and_used_in_its_own() -> None:
    def work(rt: Runtime, till: Till) -> int:
        with pytest.raises(AuthoringError, match=r"as in rt\.call\(piece\.total\.pull\)"):
            till.euros.get()
        return rt.call(till.euros.pull)

    assert elsewhere(work) == 0


def test_leaving_the_runtime_ends_a_call_that_would_never_end() -> None:
    began: list[str] = []
    cancelled: list[str] = []

    async def endless() -> None:
        began.append("endless")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append("endless")
            raise

    async def stubborn() -> None:
        began.append("stubborn")
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append("stubborn")
                if len(cancelled) > 2:
                    raise

    async def main() -> None:
        async with Runtime() as rt:
            calls = [asyncio.create_task(asyncio.to_thread(rt.call, each)) for each in (endless, stubborn)]
            while len(began) < 2:
                await asyncio.sleep(0)
        for call, name in zip(calls, ("endless", "stubborn"), strict=True):
            with pytest.raises(SessionExpiredError, match=rf"during rt\.call\(.*{name}\), which was cancelled"):
                await call
        for left in [each for each in asyncio.all_tasks() if each.get_name() == "rt.call"]:
            left.cancel()
            await asyncio.wait([left])

    run(main)
    assert sorted(cancelled) == ["endless", "stubborn", "stubborn"]


def test_a_thread_may_close_the_runtime_and_comes_too_late_after_that() -> None:
    async def main() -> None:
        rt = Runtime()
        await asyncio.to_thread(rt.call, rt.close)
        with pytest.raises(AuthoringError, match="is closed"):
            await asyncio.to_thread(rt.call, lambda: 1)

    run(main)


def test_a_call_that_is_taken_up_after_the_end_says_so() -> None:
    async def main() -> None:
        rt = Runtime()
        late = ThreadCalls(asyncio.get_running_loop())
        late.close(None)
        with pytest.raises(SessionExpiredError, match="closed before"):
            await asyncio.to_thread(late.there, main, (), {})
        await rt.close()

    run(main)


def test_a_call_that_had_no_turn_yet_ends_with_the_runtime_too() -> None:
    async def main() -> None:
        async with Runtime() as rt:
            call = asyncio.create_task(asyncio.to_thread(rt.call, main))
            while not [each for each in asyncio.all_tasks() if each.get_name() == "rt.call"]:
                await asyncio.sleep(0)
        with pytest.raises(SessionExpiredError, match=r"during rt\.call"):
            await call

    run(main)
