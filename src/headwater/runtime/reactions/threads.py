"""Threads for plain functions of reactions: each lane of a space has its own, as many as it has slots.

So a slow lane delays no other lane, and nothing else in the process. Threads are started when they are needed and end
with the process: a function that hangs does not keep the process alive. This module owns the threads; a function that
runs in one cannot be stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LaneThreads(Executor):
    """The threads of one lane, at most `most`."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._begun = 0
        self._idle = 0
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("these threads were closed")
            self._waiting.put((future, lambda: fn(*args, **kwargs)))
            if self._idle:
                self._idle -= 1  # An idle thread takes the call.
            elif self._begun < self._most:
                self._begun += 1
                # Daemons: a process that is told to end does not wait for a function that hangs.
                threading.Thread(target=self._run, name=f"{self._name} {self._begun}", daemon=True).start()
        return future

    def _run(self) -> None:
        while (taken := self._waiting.get()) is not None:
            future, call = taken
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # Raised to the awaiting caller.
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del taken, future, call
            with self._lock:
                self._idle += 1

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Start no more calls. Running calls go on, and are not waited for."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                while not self._waiting.empty():
                    taken = self._waiting.get()
                    if taken is not None:
                        taken[0].cancel()
                for _ in range(self._begun):
                    self._waiting.put(None)


class Threads:
    """The threads of all lanes of a runtime."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], LaneThreads] = {}

    def of(self, space: str, lane: str, slots: int) -> LaneThreads:
        found = self._made.get((space, lane))
        if found is None:
            found = self._made[space, lane] = LaneThreads(slots, f"reactions of {space}, lane {lane}")
        return found

    def close(self) -> None:
        for each in self._made.values():
            each.shutdown()
        self._made.clear()
