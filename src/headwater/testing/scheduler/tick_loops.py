"""Tick loops for tests of a core without asyncio: by hand, or by a virtual clock.

A tick loop implements `runtime.core.core.Loop`. With these two nothing runs until the test says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.clock import Timer, VirtualClock

if TYPE_CHECKING:
    from headwater.runtime import Core


class ManualTickLoop:
    """Calls nothing: `Core.settle` does all work, and time stands still."""

    __slots__ = ()

    def request_tick(self) -> None:
        """Do nothing: `Core.settle` finds the work."""

    def set_timer(self, at_us: int | None) -> None:
        """Do nothing: the caller that moves the clock calls `Core.wake`."""


class VirtualTickLoop:
    """Timers of a virtual clock: requested work is done at the current virtual time, when the clock is next moved."""

    __slots__ = ("_clock", "_core", "_tick", "_timer")

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._core: Core | None = None
        self._tick: Timer | None = None
        self._timer: Timer | None = None

    def drive(self, core: Core) -> None:
        self._core = core
        self.request_tick()

    def request_tick(self) -> None:
        if self._tick is None and self._core is not None:
            self._tick = self._clock.call_at(self._clock.now_us(), self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        if self._core is not None:
            self._core.tick()

    def set_timer(self, at_us: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_us is not None:
            delay_us = max(0, at_us - self._clock.monotonic_us())
            self._timer = self._clock.call_at(self._clock.now_us() + delay_us, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if self._core is not None:
            self._core.wake()
