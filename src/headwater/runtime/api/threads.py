"""Calls from other threads: a function that is called on the runtime's thread, while its caller waits for the result.

What the function makes that is to be awaited is awaited on the runtime's loop, and ends with the runtime: a thread does
not wait for what nobody does any more. Never called by the runtime itself.
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
    """A coroutine was made on the wrong thread already."""
    if inspect.iscoroutine(fn):
        fn.close()
        raise AuthoringError("rt.call takes a function and its arguments: write rt.call(work, 1), not rt.call(work(1))")


def called_here(fn: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The same on the runtime's own thread, which cannot wait for itself."""
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
        # Touched on the runtime's thread only. A loop does not keep its tasks: this does.
        self._under_way: dict[asyncio.Task[Any], tuple[concurrent.futures.Future[Any], Function]] = {}

    def there(self, fn: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call it on the loop's thread, and wait."""
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
                # Not around a coroutine: of a task that is cancelled before it begins, what it would await never is.
                work = made if inspect.iscoroutine(made) else _awaited(made)
                task = self._loop.create_task(work, name="rt.call")
            except BaseException as error:  # The thread that waits raises it.
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
            return  # Its thread was told that the runtime is over.
        if task.cancelled():
            result.cancel()
        elif error is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    def close(self, closing: asyncio.Task[Any] | None) -> None:
        """The runtime is over: nothing that it was called for goes on, but for the call that closes it."""
        self._is_closed = True
        for task, (result, fn) in tuple(self._under_way.items()):
            if task is not closing:
                task.cancel()
                # At once: what does not let itself be cancelled keeps nobody waiting.
                result.set_exception(_closed(fn, "was closed during"))


def _closed(fn: Function, when: str) -> SessionExpiredError:
    return SessionExpiredError(
        f"this runtime {when} rt.call({_name(fn)}), which was cancelled: let threads end before you leave it, or look "
        "in another one what became of it"
    )


def _name(fn: Function) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made
