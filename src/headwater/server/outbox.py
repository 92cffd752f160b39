"""From the hosts' threads to the event loop: one wake-up for everything that was said meanwhile.

Whoever lost conflicts hears the news first, since the winner knows already what it stands on: the other half of the
fairness that `engine.host` describes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from headwater.protocol.messages import FromEngine


class Addressee(Protocol):
    """Takes messages on the event loop's thread."""

    @property
    def behind(self) -> int:
        """How often in a row its commits were rejected for being stale."""

    def deliver(self, message: FromEngine) -> None: ...


class Outbox:
    """Messages on their way to the connections of one event loop, in order."""

    __slots__ = ("_loop", "_scheduled", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Addressee, FromEngine]] = deque()
        self._scheduled = False

    def post(self, to: Addressee, message: FromEngine) -> None:
        """Any thread. Appending comes first: whoever finds a wake-up scheduled knows that it will see this, too."""
        self._waiting.append((to, message))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        self._scheduled = False
        waiting: dict[Addressee, list[FromEngine]] = {}
        while self._waiting:
            to, message = self._waiting.popleft()
            waiting.setdefault(to, []).append(message)
        for to in sorted(waiting, key=lambda to: -to.behind) if len(waiting) > 1 else waiting:
            for message in waiting[to]:
                to.deliver(message)
