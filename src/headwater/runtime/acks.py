"""Acknowledgements that are held back: one stands for all before it, the engine needs one now and then, none is urgent.

So few are sent that they cost nothing, and so many that the engine never waits for one while it has news. Owns the
timer for the last of them; what is due is sent by whoever it is given to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headwater.protocol.messages import Ack

TOGETHER: Final = 4  # acknowledgements that become one: half of what an engine has on the way to one peer
HELD_S: Final = 0.01  # how long one is held back


class Acks:
    """The acknowledgements of one driver."""

    __slots__ = ("_count", "_last", "_send", "_timer")

    def __init__(self, send: Callable[[Ack], object]) -> None:
        self._send = send
        self._last: Ack | None = None  # held back, and how many it stands for
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, acks: list[Ack]) -> Ack | None:
        """Some more. One that should be sent now, with everything else, or None."""
        self._last = acks[-1]
        self._count += len(acks)
        if self._count >= TOGETHER:
            now = self._last
            self.forget()
            return now
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HELD_S, self._overdue)
        return None

    def forget(self) -> None:
        """Nothing is held back: all was sent, or the connection that it was about is gone."""
        self._last, self._count = None, 0

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        self._timer = None
        if self._last is not None:
            last = self._last
            self.forget()
            self._send(last)
