"""Asynchronous work of a runtime: tasks without an awaiting caller, timed waits, and limits on concurrency.

Time is the runtime's clock, so that a virtual clock moves it. A task that fails without an awaiting caller is reported
on the error channel. All tasks and timed waits end with the runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from headwater.errors import HeadwaterError
    from headwater.runtime.core.core import Core

T = TypeVar("T")


def _looked_at(task: asyncio.Task[Any]) -> None:
    """Retrieve a task's exception, which asyncio would log if the waiter was cancelled as the task ended."""
    if not task.cancelled():
        task.exception()


class Tasks:
    """The tasks of one runtime."""

    __slots__ = ("_closed", "_core", "_endless", "_limits", "_running", "_timed", "on_close")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._running: set[asyncio.Task[Any]] = set()
        self._endless: set[asyncio.Task[Any]] = set()  # those of them that run until they are cancelled
        self._limits: dict[object, asyncio.Semaphore] = {}
        self._timed: set[asyncio.Future[None]] = set()  # waits of `elapsed`
        self._closed: HeadwaterError | None = None
        self.on_close: list[Callable[[], object]] = []  # called when the runtime closes, before its tasks are cancelled

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    def __len__(self) -> int:
        """Return the number of tasks that end by themselves."""
        return len(self._running) - len(self._endless)

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task that runs to its end even if the caller stops waiting."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def keep(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that runs until it is cancelled. Waits for the runtime's tasks do not include it."""
        task = self.spawn(work, name)
        self._endless.add(task)
        return task

    def begin(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start a task that no caller awaits. A closed runtime starts none."""
        if self.is_closed:
            work.close()
        else:
            task = self.spawn(work, name)
            assert not task.done()

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._endless.discard(task)
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, Exception):
                self._core.report(task.get_name(), error)
        self._core.observers.check_conditions()

    async def elapsed(self, us: int) -> None:
        """Wait for `us` microseconds of the runtime's clock. Raises the error that closed the runtime meanwhile."""
        core = self._core
        if self._closed is not None:
            raise self._closed
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timed.add(over)
        cancel = core.scheduler.gates.alarm(
            core.clock.monotonic_us() + max(0, us), lambda: None if over.done() else over.set_result(None)
        )
        try:
            await over
        finally:
            self._timed.discard(over)
            cancel()

    async def until(self, holds: Callable[[], bool], us: int) -> None:
        """Wait until `holds()` is true, for at most `us` microseconds."""
        late: list[None] = []

        def over() -> None:
            late.append(None)
            self._core.observers.check_conditions()

        cancel = self._core.scheduler.gates.alarm(self._core.clock.monotonic_us() + max(0, us), over)
        try:
            await self._core.observers.until(lambda: bool(late) or holds())
        finally:
            cancel()

    async def within(self, work: Coroutine[Any, Any, T], timeout_ms: float | None) -> T:
        """Await `work` for at most `timeout_ms`. TimeoutError: it took longer, and was cancelled."""
        if timeout_ms is None:
            return await work
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_looked_at)
        late = asyncio.get_running_loop().create_task(self.elapsed(round(timeout_ms * 1_000)))
        late.add_done_callback(
            _looked_at
        )  # It fails, too, if the runtime is closed in the moment in which `work` ends.
        try:
            await asyncio.wait((task, late), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            late.result()  # Raises if the runtime was closed.
            raise TimeoutError(f"it took longer than {timeout_ms:g} ms")
        finally:
            for each in (task, late):
                if not each.done():
                    each.cancel()
            await asyncio.wait((task, late))

    def at_most(self, what: object, limit: int) -> asyncio.Semaphore:
        """Return the semaphore that admits `limit` tasks of the kind `what` at once."""
        found = self._limits.get(what)
        if found is None:
            found = self._limits[what] = asyncio.Semaphore(limit)
        return found

    async def close(self, why: HeadwaterError) -> None:
        """Cancel all tasks and wait until they have ended. Timed waits of other callers raise `why`."""
        self._closed = why
        for told in self.on_close:
            told()
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(tuple(self._running))
        for over in self._timed:
            if not over.done():
                over.set_exception(why)
