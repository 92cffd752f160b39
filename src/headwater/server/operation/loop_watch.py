"""How long the event loop of a server was held by one piece of work. Every connection waits meanwhile.

`LoopWatch` asks the loop to call it a little later, again and again. A call that comes later than asked was held back
by other work; the delay is counted, and the longest one of the last minute or two is kept for an operator.
"""

from __future__ import annotations

import asyncio
from typing import Final

from headwater.clock import Clock

MINUTE_US: Final = 60_000_000


class LoopWatch:
    """The counts of one event loop."""

    __slots__ = (
        "_bound_us",
        "_clock",
        "_due_us",
        "_every_us",
        "_former_us",
        "_latest_us",
        "_timer",
        "_until_us",
        "holds",
    )

    def __init__(self, clock: Clock, *, every_s: float, bound_s: float) -> None:
        """Delays over `bound_s` are counted as holds."""
        self._clock = clock
        self._every_us = round(every_s * 1e6)
        self._bound_us = round(bound_s * 1e6)
        self._timer: asyncio.TimerHandle | None = None
        self._due_us = 0
        self._latest_us = 0  # the longest delay of the present minute
        self._former_us = 0  # of the one before it
        self._until_us = 0
        self.holds = 0  # delays over the bound

    def start(self) -> None:
        """Begin on the running loop."""
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def longest_us(self) -> int:
        """The longest delay of the last minute, or of up to two."""
        return max(self._latest_us, self._former_us)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_us = self._clock.monotonic_us() + self._every_us
        self._timer = loop.call_later(self._every_us / 1e6, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now_us = self._clock.monotonic_us()
        late_us = now_us - self._due_us
        if now_us >= self._until_us:
            self._former_us, self._latest_us = self._latest_us, 0
            self._until_us = now_us + MINUTE_US
        self._latest_us = max(self._latest_us, late_us)
        # fault loop_watch.holds_uncounted: if False:
        if late_us > self._bound_us:
            self.holds += 1
        self._schedule(loop)
