"""Calls from other threads: a function that is called on the runtime's thread, while its caller waits for the result.

What the function makes that is to be awaited is awaited on the runtime's loop. Never called by the runtime itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headwater.errors import AuthoringError

Function = Callable[..., Any]


def check_function(fn: object) -> None:
    """A coroutine was made on the wrong thread already."""
    if inspect.iscoroutine(fn):
        fn.close()
        raise AuthoringError("rt.call takes a function and its arguments: write rt.call(work, 1), not rt.call(work(1))")


def called_here(fn: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The same on the runtime's own thread, which cannot wait for itself."""
    made = fn(*args, **kwargs)
    if inspect.iscoroutine(made):
        made.close()
        name = getattr(fn, "__qualname__", repr(fn))
        raise AuthoringError(f"rt.call({name}) on the runtime's own thread, which would wait for itself: await it")
    return made


def called_there(
    loop: asyncio.AbstractEventLoop, fn: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Call it on the loop's thread, and wait."""
    result: concurrent.futures.Future[Any] = concurrent.futures.Future()
    waiting: set[asyncio.Task[Any]] = set()  # A loop does not keep its tasks: whoever waits does.

    def work() -> None:
        try:
            made = fn(*args, **kwargs)
            if not inspect.isawaitable(made):
                result.set_result(made)
                return
            task = loop.create_task(_awaited(made), name="rt.call")
            waiting.add(task)
            task.add_done_callback(over)
        except BaseException as error:  # The thread that waits raises it.
            result.set_exception(error)

    def over(task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            result.cancel()
            return
        error = task.exception()
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    loop.call_soon_threadsafe(work)
    return result.result()


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made
