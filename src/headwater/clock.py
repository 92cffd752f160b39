"""Time and randomness, behind one port.

Owns every reading of a clock and every random draw of the project: nothing else imports `time`, `random`,
`uuid`, `secrets` or calls `datetime.now`. Everything above is handed a `Clock` or a `Random`, so that a
simulation can be repeated from its seed. Never sleeps, and knows no event loop.

Time is integer microseconds everywhere.
"""

from __future__ import annotations

import heapq
import secrets
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from headwater.errors import AuthoringError, LimitError

__all__ = ["Clock", "Random", "RealClock", "SteadyWall", "Timer", "VirtualClock", "seeded"]


class Clock(Protocol):
    """Where time and randomness come from.

    Timers are not part of the port: with real time they belong to the event loop that waits for them.
    """

    def now_us(self) -> int:
        """Wall-clock microseconds since 1970 UTC. Never goes backwards or stands still within a process.

        If the system's clock is set, it follows the rule of `SteadyWall`.
        """
        ...

    def monotonic_us(self) -> int:
        """Microseconds since some fixed moment. For measuring durations; means nothing in another process."""
        ...

    def randomness(self, label: str) -> Random:
        """A random source of its own for the named purpose. Draws for one label never disturb another's."""
        ...

    def new_token(self, nbytes: int = 16) -> str:
        """A fresh name, `2 * nbytes` lower-case hexadecimal digits, that no other draw returns."""
        ...


class RealClock:
    """The machine's clock and its entropy. May be shared between threads."""

    __slots__ = ()

    def now_us(self) -> int:
        return _wall.read_us()

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def randomness(self, label: str) -> Random:
        return Random(secrets.randbits(128))

    def new_token(self, nbytes: int = 16) -> str:
        _check_token_size(nbytes)
        return secrets.token_hex(nbytes)


class VirtualClock:
    """Time that moves only when `advance` is called, and randomness that follows from a seed.

    The same seed and the same calls give the same times, draws and tokens, on any machine. Belongs to one
    thread.
    """

    __slots__ = (
        "_advancing",
        "_elapsed_us",
        "_max_firings",
        "_registered",
        "_seed",
        "_set_us",
        "_sources",
        "_start_us",
        "_steady",
        "_timers",
        "_tokens",
    )

    def __init__(
        self,
        *,
        start_us: int = 1_767_225_600_000_000,  # 2026-01-01T00:00:00Z: a date that reads well in a trace
        seed: int = 0,
        max_firings: int = 1_000_000,
    ) -> None:
        """`max_firings` bounds the timers one `advance` may fire, so that a timer that re-arms itself for
        the same moment fails instead of hanging."""
        self._start_us = start_us
        self._seed = seed
        self._max_firings = max_firings
        self._elapsed_us = 0
        self._set_us = 0  # by how much the wall clock was set, in all
        self._steady: SteadyWall | None = None  # once it was set
        self._timers: list[tuple[int, int, Timer]] = []  # by the time that has to have elapsed
        self._registered = 0
        self._advancing = False
        self._sources: dict[str, Random] = {}
        self._tokens = self._derive("tokens", "")

    def now_us(self) -> int:
        if self._steady is not None:
            return self._steady.read(self._start_us + self._elapsed_us + self._set_us, self._elapsed_us)
        return self._start_us + self._elapsed_us

    def monotonic_us(self) -> int:
        return self._elapsed_us

    def randomness(self, label: str) -> Random:
        """The source for `label`; asking again continues it where it stood."""
        source = self._sources.get(label)
        if source is None:
            source = self._sources[label] = self._derive("label", label)
        return source

    def new_token(self, nbytes: int = 16) -> str:
        _check_token_size(nbytes)
        return self._tokens.randbytes(nbytes).hex()

    def call_at(self, when_us: int, fn: Callable[[], object]) -> Timer:
        """Call `fn` during the `advance` that reaches `when_us`. A moment already past is due at once, which
        means at the next `advance`, even of 0; nothing is called from inside `call_at`."""
        timer = Timer(when_us, fn)
        heapq.heappush(self._timers, (self._elapsed_us + when_us - self.now_us(), self._registered, timer))
        self._registered += 1
        return timer

    def next_timer_us(self) -> int | None:
        """When the earliest timer is due, or None. A simulation jumps there when nothing else is left."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self.now_us() + self._timers[0][0] - self._elapsed_us if self._timers else None

    def set_wall_clock(self, by_us: int) -> None:
        """Set the wall clock ahead, or back if `by_us` is negative, as an operator does. Timers go on as before."""
        if self._steady is None:
            self._steady = SteadyWall(self.now_us(), self._elapsed_us)
        self._set_us += by_us

    def advance(self, us: int) -> None:
        """Move time by `us`, firing the timers that fall due on the way, in order of time and then of registration.

        A callback sees its own due time as now, and may register and cancel timers. If it raises, time stays
        where it is and the timers after it stay registered.
        """
        if us < 0:
            raise AuthoringError(f"advance({us}): time does not go backwards; pass 0 or more microseconds")
        if self._advancing:
            raise AuthoringError(f"advance({us}) was called by a timer of the same clock; use call_at there")
        target_us = self._elapsed_us + us
        fired = 0
        self._advancing = True
        try:
            while self.next_timer_us() is not None and self._timers[0][0] <= target_us:
                if fired == self._max_firings:
                    raise LimitError(
                        f"advance({us}) fired {fired} timers and more are due at {self.next_timer_us()}, the limit is "
                        f"max_firings={self._max_firings}; does a timer re-arm itself for the same moment?"
                    )
                fired += 1
                due_us, _, timer = heapq.heappop(self._timers)
                self._elapsed_us = max(self._elapsed_us, due_us)
                timer.fire()
            self._elapsed_us = target_us
        finally:
            self._advancing = False

    def _derive(self, purpose: str, label: str) -> Random:
        # Seeding with text hashes it (SHA-512), so that neighbouring seeds and labels give unrelated draws.
        return Random(f"{self._seed}/{purpose}/{label}")


def seeded(label: str) -> Random:
    """A random source that follows from a label alone, wherever and however often it is made."""
    return Random(f"headwater/{label}")


class Timer:
    """A call that waits for its time. `cancel` may be called at any moment, also after it fired."""

    __slots__ = ("_fn", "due_us")

    def __init__(self, due_us: int, fn: Callable[[], object]) -> None:
        self.due_us = due_us
        self._fn: Callable[[], object] | None = fn

    @property
    def cancelled(self) -> bool:
        """True also after firing: either way it will not be called any more."""
        return self._fn is None

    def cancel(self) -> None:
        self._fn = None  # Also lets go of whatever the call held on to, while the timer still waits.

    def fire(self) -> None:
        """For the clock that owns the timer."""
        fn, self._fn = self._fn, None
        if fn is not None:
            fn()


class SteadyWall:
    """Wall time that goes on by monotonic time, whatever is done to the system's clock.

    The rule: between two readings as much time passes as on the monotonic clock. If the system's clock is ahead of that
    by up to `AT_ONCE_US`, its time counts at once: it was adjusted a little. If it is further ahead, its time counts
    after it was ahead for `LASTS_US` of monotonic time: the machine slept, or the clock was set. If it is behind, it
    does not count: a commit's time must not come before the time of the commit under it, and whatever waits for a
    moment goes on. Then this process is ahead of the system until the system's clock is set again or the process ends.
    """

    AT_ONCE_US: Final = 1_000_000
    LASTS_US: Final = 10_000_000

    __slots__ = ("_ahead_since_us", "_monotonic_us", "_wall_us")

    def __init__(self, wall_us: int, monotonic_us: int) -> None:
        self._wall_us = wall_us  # the latest reading, and when that was
        self._monotonic_us = monotonic_us
        self._ahead_since_us: int | None = None  # since when the system's clock is far ahead

    def read(self, wall_us: int, monotonic_us: int) -> int:
        """The time, where the system's clocks show these."""
        # fault clock.stands_still_when_set_back: now_us = self._wall_us
        now_us = self._wall_us + monotonic_us - self._monotonic_us
        if wall_us <= now_us + self.AT_ONCE_US:
            self._ahead_since_us = None
            now_us = max(now_us, wall_us)
        elif self._ahead_since_us is None:
            self._ahead_since_us = monotonic_us
        # fault clock.jump_ahead_followed_at_once: else:
        elif monotonic_us - self._ahead_since_us >= self.LASTS_US:
            self._ahead_since_us = None
            now_us = wall_us
        self._wall_us, self._monotonic_us = now_us, monotonic_us
        return now_us


class _Wall:
    """The wall time of this process."""

    __slots__ = ("_lock", "_steady")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steady = SteadyWall(time.time_ns() // 1_000, time.monotonic_ns() // 1_000)

    def read_us(self) -> int:
        # Reading under the lock: otherwise a thread could be suspended between reading and returning, and
        # return a time from before one that another thread has already seen. The monotonic clock is read last: a thread
        # that is suspended in between must not take the time that it lost for a clock that is ahead.
        with self._lock:
            wall_us = time.time_ns() // 1_000
            return self._steady.read(wall_us, time.monotonic_ns() // 1_000)


def _check_token_size(nbytes: int) -> None:
    if nbytes < 1:
        raise AuthoringError(f"new_token(nbytes={nbytes}): a token needs at least 1 byte, 16 to be unique")


# One for the process, not one per RealClock: two clocks of a process must not contradict each other.
_wall = _Wall()
