"""The beginning of every connection: an HTTP request, which has to come soon, from not too many at once.

Owns the sockets that are not WebSocket connections (yet). Whoever says nothing, or never comes to the end of its
request, is let go; when there are too many of those, the oldest goes first, so that nobody can keep others out by
waiting. Requests themselves are uvicorn's.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwater.server.operation.limits import ServerLimits


class Lobby:
    """The sockets of one server that have not become WebSocket connections, oldest first."""

    __slots__ = ("_waiting", "limits")

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self._waiting: dict[Request, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def came(self, request: Request) -> None:
        self._waiting[request] = None
        if len(self._waiting) > self.limits.requests:
            next(iter(self._waiting)).let_go()

    def left(self, request: Request) -> None:
        self._waiting.pop(request, None)


class Request(H11Protocol):
    """One connection, as uvicorn makes it, until it is a WebSocket or over."""

    def __init__(self, lobby: Lobby, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lobby = lobby
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        self._lobby.came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._leave()
        super().handle_websocket_upgrade(event)

    def let_go(self) -> None:
        """Break it off: whoever is there has had its time."""
        self._leave()
        self.transport.abort()

    def _leave(self) -> None:
        self._lobby.left(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        self._timer = self.loop.call_later(self._lobby.limits.hello_s, self._overdue)

    def _overdue(self) -> None:
        """A connection for plain requests lives as long, and then until its last answer is given."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._watch()
        else:
            self.let_go()
