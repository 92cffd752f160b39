"""Work that is awaited for so long at most: what it raises is its caller's, or nobody's."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from headwater import HeadwaterError
from headwater.runtime.api.runtime import Runtime
from tests.unit.runtime.kit import run


@pytest.mark.parametrize("turns", range(5))
def test_whoever_is_cancelled_as_their_work_fails_leaves_nothing_unheard(turns: int) -> None:
    async def work() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with Runtime() as rt:
            begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def fail() -> None:
                await begun
                raise ZeroDivisionError("a failure")

            waiting = asyncio.create_task(rt.tasks.within(fail(), 60_000))
            for _ in range(3):
                await asyncio.sleep(0)
            begun.set_result(None)
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises((asyncio.CancelledError, ZeroDivisionError)):
                await waiting
        del waiting, fail
        gc.collect()
        assert told == []

    run(work)


def test_what_work_raises_in_time_is_its_caller_s() -> None:
    async def work() -> None:
        async def fail() -> None:
            raise ZeroDivisionError("a failure")

        async with Runtime() as rt:
            with pytest.raises(ZeroDivisionError, match="a failure"):
                await rt.tasks.within(fail(), 60_000)

    run(work)


def test_work_that_ends_while_its_runtime_is_closed_leaves_nothing_unheard() -> None:
    async def work() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with Runtime() as rt:
            begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def wait() -> None:
                await begun

            waiting = asyncio.create_task(rt.tasks.within(wait(), 60_000))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            closing = asyncio.create_task(rt.tasks.close(HeadwaterError("closed")))
            begun.set_result(None)
            await waiting
            await closing
        del waiting, closing, wait
        gc.collect()
        assert told == []

    run(work)
