"""An event loop in virtual time, moved by a clock and a seed.

Time stands still while a callback is ready, except that a turn may take a moment, drawn from the seed, so that messages
arrive in between, as on a busy machine. When everything waits, time goes on to the next due moment: a timer of the
loop, or of the clock that the network uses. Callbacks run in the order in which they were registered, as asyncio
promises. Nothing sleeps, no thread is made, no socket is opened; the same seed gives the same order. A program that
waits for nothing, or for ever, gets an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

from headwater.clock import VirtualClock
from headwater.errors import LimitError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE_US: Final = 3_600_000_000
"""How long a test may wait, beyond the time that it lets pass by itself."""
TURNS: Final = 200_000
"""Turns of the loop without a wait for time. More is a program that asks for its turn again and again."""
LINGERS: Final = 0.1
"""The share of turns that take a moment,"""
LINGERS_US: Final = 400
"""and how long that is, at most."""


class _Time:
    """Stands in for the selector of an event loop: the one place where it waits."""

    __slots__ = ("_loop",)

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's loop over a virtual clock. `is_busy`: turns take time."""

    # Called by the base class for its platform's loop.
    _selector: _Time

    def __init__(self, clock: VirtualClock, *, is_busy: bool) -> None:
        super().__init__()
        self._selector = _Time(self)
        self._clock_resolution = 1e-6
        self._clock = clock
        self._draws = clock.randomness("turns of the loop")
        self._is_busy = is_busy
        self._turns = 0
        self._patient_until_us = clock.monotonic_us() + PATIENCE_US
        self.stands_still = False  # time does not pass, so that a moment can be examined
        self.waits_for: Callable[[], str] = lambda: "something"

    def time(self) -> float:
        return self._clock.monotonic_us() / 1e6

    def grant(self, us: int) -> None:
        """A test lets time pass by itself: that is not waiting."""
        self._patient_until_us += us

    def begin_clean_up(self) -> None:
        """The test is over, maybe because it used all its turns or all its time: the clean-up has its own."""
        self._turns = 0
        self._patient_until_us = self._clock.monotonic_us() + PATIENCE_US

    def pass_time(self, timeout: float | None) -> None:
        """Let time go on: not at all or for a moment if a callback is ready, otherwise to the next due moment."""
        clock = self._clock
        if timeout is not None and timeout <= 0:
            self._turns += 1
            if self._turns > TURNS:
                raise LimitError(
                    f"the test asked for its turn {TURNS:,} times and let no time pass: does it wait in a loop with "
                    "sleep(0)? Await what you wait for, or sim.settle()."
                )
            lingers = self._is_busy and not self.stands_still and self._draws.random() < LINGERS
            clock.advance(self._draws.randrange(LINGERS_US) if lingers else 0)
            return
        self._turns = 0
        due_us = clock.next_timer_us()
        waits = [] if due_us is None else [max(0, due_us - clock.now_us())]
        if timeout is not None:
            waits.append(-int(-timeout * 1e6 // 1))
        if not waits:
            raise LimitError(f"nothing is left that could happen, and the test still waits for {self.waits_for()}")
        if clock.monotonic_us() > self._patient_until_us:
            raise LimitError(
                f"the test waited an hour of virtual time for {self.waits_for()}. To let more time pass, "
                "await sim.advance(seconds=...)."
            )
        clock.advance(min(waits))

    # ---- the platform, for the base class -----------------------------------------------------------

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no sockets, so that nothing was selected."""

    def _write_to_self(self) -> None:
        """There is no other thread that could wake it up."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call a function for another thread here and now, so that its end is not left to chance."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # Its awaiter gets it.
            done.set_exception(error)
        return done
