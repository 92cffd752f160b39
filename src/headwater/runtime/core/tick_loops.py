"""The loops that call a runtime's ticks: by hand, by a virtual clock, or by asyncio.

A tick loop implements `core.Loop` and calls `Core.tick` soon after it was requested. By hand and by the virtual clock
nothing runs until the program says so, as tests and simulations need it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headwater.clock import Timer, VirtualClock

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core


class ByHand:
    """Calls nothing: `Core.settle` does all work, and time stands still."""

    __slots__ = ()

    def request_tick(self) -> None:
        """Do nothing: `Core.settle` finds the work."""

    def set_timer(self, at_us: int | None) -> None:
        """Do nothing: the caller that moves the clock calls `Core.wake`."""


class ByVirtualClock:
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


class ByAsyncio:
    """Callbacks of an asyncio loop. Each callback does one slice of work, so that other tasks run in between."""

    __slots__ = ("_core", "_is_asked", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._core: Core | None = None
        self._is_asked = False
        self._timer: asyncio.TimerHandle | None = None

    def drive(self, core: Core) -> None:
        self._core = core
        self.request_tick()

    def stop(self) -> None:
        """Call the core no more."""
        self._core = None
        self.set_timer(None)

    def request_tick(self) -> None:
        if not self._is_asked and self._core is not None:
            self._is_asked = True
            self._loop.call_soon(self._ticked)

    def _ticked(self) -> None:
        self._is_asked = False
        core = self._core
        if core is not None:
            try:
                core.tick()
            except Exception as error:  # Author code never fails here: a bug of Headwater.
                self.stop()
                core.broken(error)
                raise

    def set_timer(self, at_us: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_us is not None and self._core is not None:
            delay_us = max(0, at_us - self._core.clock.monotonic_us())
            self._timer = self._loop.call_later(delay_us / 1e6, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if self._core is not None:
            self._core.wake()
            self.request_tick()
