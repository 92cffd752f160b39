"""How fast one connection may send: a bucket of tokens that refills with time."""

from __future__ import annotations

from headwater.clock import Clock


class Rate:
    """Allows `burst` messages at once and `rate` a second in the long run."""

    __slots__ = ("_burst", "_clock", "_filled_us", "_left", "_rate")

    def __init__(self, rate: int, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._filled_us = clock.monotonic_us()

    def spend(self, messages: int) -> None:
        """What was just counted costs as much as so many messages more."""
        self._left -= messages

    def take(self) -> float:
        """Count one message. Answers how many seconds to wait before it is looked at."""
        now_us = self._clock.monotonic_us()
        self._left = min(self._burst, self._left + (now_us - self._filled_us) * self._rate / 1e6)
        self._filled_us = now_us
        self._left -= 1
        return -self._left / self._rate if self._left < 0 else 0.0
