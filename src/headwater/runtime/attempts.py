"""How often connecting has led to nothing, how long to wait before the next time, and when there should be none.

Owns the count of a driver's failed connections. A connection that merely stood is no success: one on which the engine
refuses what is said on every connection stands each time. Never waits and never connects.
"""

from __future__ import annotations

from typing import Final

from headwater.backoff import Backoff
from headwater.clock import Clock
from headwater.protocol.messages import Problem

SOUND_US: Final = 1_000_000  # a connection that got something done for so long is a success,
LONG_US: Final = 60_000_000  # and for so long even if it was ended for what was said on it


class Attempts:
    """The connections of one driver, as far as they failed."""

    __slots__ = (
        "_backoff",
        "_began_us",
        "_clock",
        "_down_from_us",
        "_down_us",
        "_failures",
        "_random",
        "achieved",
        "refused",
    )

    def __init__(self, backoff: Backoff, clock: Clock, name: str) -> None:
        self._backoff = backoff
        self._clock = clock
        self._random = clock.randomness(name)
        self._failures = 0  # since the last success
        self._began_us = 0
        self._down_us = 0  # how long there was no connection, so far,
        self._down_from_us: int | None = clock.monotonic_us()  # and since when there is none; None: there is one
        self.achieved = False  # something was answered or told on this connection
        self.refused = False  # it was ended for something that was said on it, which may be said again on the next

    def began(self) -> None:
        """A connection stands."""
        self._began_us = self._clock.monotonic_us()
        if self._down_from_us is not None:
            self._down_us += self._began_us - self._down_from_us
            self._down_from_us = None
        self.achieved = self.refused = False

    def ended(self) -> None:
        """It is gone."""
        self._down_from_us = self._clock.monotonic_us()
        lasted_us = self._clock.monotonic_us() - self._began_us
        if self.achieved and lasted_us >= (LONG_US if self.refused else SOUND_US):
            self._failures = 0

    def connected_us(self) -> int:
        """A clock that stands still while there is no connection."""
        now_us = self._clock.monotonic_us() if self._down_from_us is None else self._down_from_us
        return now_us - self._down_us

    def delay_us(self) -> int:
        """How long to wait before the next one. Counts it."""
        self._failures += 1
        return self._backoff.delay_us(self._failures - 1, self._random)


def taken_back(ends: int, seen: int) -> Problem:
    """What this session shows, and what it was told has landed, is not in the log any more: it cannot go on."""
    return Problem(
        "session_gone",
        f"the log of this space ends at seq {ends}, and seq {seen} was seen here. The server was given an older state "
        "of it, as by restoring a backup. Open a new session.",
    )
