"""Calls from other threads: the runtime's thread calls a function, while the calling thread waits for the result.

If the function returns an awaitable, the runtime's loop awaits it. It ends with the runtime, so that no thread waits
for work that does not go on. Never called by the runtime itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headwater.errors import AuthoringError, SessionExpiredError

Function = Callable[..., Any]


def check_function(fn: object) -> None:
    """Refuse a coroutine: it was made on the wrong thread already."""
    if inspect.iscoroutine(fn):
        fn.close()
        raise AuthoringError("rt.call takes a function and its arguments: write rt.call(work, 1), not rt.call(work(1))")


def called_here(fn: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function on the runtime's own thread, which cannot wait for itself."""
    made = fn(*args, **kwargs)
    if inspect.iscoroutine(made):
        made.close()
        raise AuthoringError(f"rt.call({_name(fn)}) on the runtime's own thread, which would wait for itself: await it")
    return made


class ThreadCalls:
    """The calls of other threads that are under way in one runtime."""

    __slots__ = ("_is_closed", "_loop", "_under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_closed = False
        # Used on the runtime's thread only. An event loop does not keep its tasks alive: this dict does.
        self._under_way: dict[asyncio.Task[Any], tuple[concurrent.futures.Future[Any], Function]] = {}

    def there(self, fn: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function on the loop's thread, and wait for its result."""
        result: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def call() -> None:
            if self._is_closed:
                result.set_exception(_closed(fn, "was closed before"))
                return
            try:
                made = fn(*args, **kwargs)
                if not inspect.isawaitable(made):
                    result.set_result(made)
                    return
                # A coroutine is not wrapped: in a task cancelled before it begins, the wrapped one would never be
                # awaited.
                work = made if inspect.iscoroutine(made) else _awaited(made)
                task = self._loop.create_task(work, name="rt.call")
            except BaseException as error:  # Raised in the waiting thread.
                result.set_exception(error)
            else:
                self._under_way[task] = (result, fn)
                task.add_done_callback(self._over)

        self._loop.call_soon_threadsafe(call)
        return result.result()

    def _over(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        result, _ = self._under_way.pop(task)
        if result.done():
            return  # The thread was told that the runtime is closed.
        if task.cancelled():
            result.cancel()
        elif error is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    def close(self, closing: asyncio.Task[Any] | None) -> None:
        """Cancel every call under way, except the call that closes the runtime."""
        self._is_closed = True
        for task, (result, fn) in tuple(self._under_way.items()):
            if task is not closing:
                task.cancel()
                # At once: a task that resists cancellation keeps no thread waiting.
                result.set_exception(_closed(fn, "was closed during"))


def _closed(fn: Function, when: str) -> SessionExpiredError:
    return SessionExpiredError(
        f"this runtime {when} rt.call({_name(fn)}), which was cancelled: let threads end before you leave it, or "
        "open another one and look whether it was done"
    )


def _name(fn: Function) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made
