"""Steady: the engine's wall clock as targets know it, which does not go back over a restart.

Due times and the ends of leases are stored. On a machine whose clock is behind that of the one before, all of them
would be as far off as that is. So time goes on from the last moment that is known to have been, and what was to last a
second lasts that. Owns how far it is ahead of the machine's clock; never writes.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.clock import Clock, Random


class Steady:
    """A clock for durations that outlive the process."""

    __slots__ = ("_ahead_us", "_clock", "_last_known_us", "_opened_us")

    def __init__(self, clock: Clock, last_known_us: Callable[[], int]) -> None:
        """`last_known_us` is asked once, when time is asked for first: what was stored last, and when."""
        self._clock = clock
        self._opened_us = clock.now_us()
        self._last_known_us = last_known_us
        self._ahead_us: int | None = None

    def now_us(self) -> int:
        now_us = self._clock.now_us()
        if self._ahead_us is None:
            self._ahead_us = max(0, self._last_known_us() - self._opened_us)
        return now_us + self._ahead_us

    def age_us(self, since_us: int) -> int:
        """How long ago that was, by whichever of both clocks it was stored."""
        now_us = self._clock.now_us()
        return now_us - since_us if since_us <= now_us else max(0, self.now_us() - since_us)

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    def randomness(self, label: str) -> Random:
        return self._clock.randomness(label)

    def new_token(self, nbytes: int = 16) -> str:
        return self._clock.new_token(nbytes)
