"""`Conditions`: waiting until a condition holds. The one way in which code of a runtime waits for something to happen.

The owner calls `check` whenever something happened that a condition may depend on, and `end` when nothing will happen
any more. A waiter is a callback (`when`) or a coroutine (`until`). Nothing polls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Conditions:
    """The conditions that are waited for, in the order in which the waiting began."""

    __slots__ = ("ended", "waiting")

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], bool], Callable[[], object]]] = []
        self.ended: Exception | None = None  # raised to coroutines whose condition does not hold

    def when(self, holds: Callable[[], bool], act: Callable[[], object]) -> None:
        """Call `act` once, as soon as `holds()` is true."""
        if holds():
            act()
        else:
            self.waiting.append((holds, act))

    def check(self) -> None:
        """Check every condition, because something happened."""
        if self.waiting:
            waiting, self.waiting = deque(self.waiting), []
            try:
                while waiting:
                    holds, act = waiting.popleft()
                    if holds():
                        act()
                    else:
                        self.waiting.append((holds, act))
            finally:
                self.waiting += waiting  # If one raises, the others keep waiting.

    async def until(self, holds: Callable[[], bool], *, within_us: int | None = None) -> bool:
        """Wait until `holds()` is true, for at most `within_us`. Returns whether it is true.

        Raises the error that ended the owner, if that comes first, and errors of `holds`.
        """
        if holds():
            return True
        if self.ended is not None:
            raise self.ended
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def is_over() -> bool:
            """Decide at the moment the condition holds or the owner ends: later the condition may be false again."""
            if not future.done():
                try:
                    if holds():
                        future.set_result(True)
                    elif self.ended is not None:
                        future.set_exception(self.ended)
                except Exception as error:  # Raised to this waiter only.
                    future.set_exception(error)
            return future.done()

        self.waiting.append((is_over, _nothing))
        timer = None if within_us is None else loop.call_later(max(0, within_us) / 1e6, _late, future)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()

    def end(self, error: Exception) -> None:
        """End every wait of a coroutine with `error`: nothing will happen any more."""
        self.ended = error
        self.check()


def _late(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


def _nothing() -> None:
    """Do nothing: the condition sets a future."""
