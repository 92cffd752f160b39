"""The transport port: carries the messages of a session to an engine and back.

A connection delivers messages in order or is lost; it never drops one message and continues. The session replays the
messages that are lost with a connection. Every call and every callback happens on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headwater.protocol.messages import FromEngine, FromReplica

Heard = Callable[[FromEngine], object]
"""Receives one message from the engine."""

Lost = Callable[[str], object]
"""Called exactly once, with the reason, when a connection is gone. No message is received from it afterwards."""


class Connection(Protocol):
    """One connection, from the moment it is established until it is lost."""

    def send(self, messages: Iterable[FromReplica]) -> None:
        """Send messages in order. Never waits; does nothing on a connection that is gone."""

    def close(self) -> None:
        """Close the connection after the messages sent so far. `lost` is called once it is gone."""


class Transport(Protocol):
    """Makes connections to one engine.

    `loopback.Loopback` and `backend` have those inside one process, `websocket.WebSocket` those to a server.
    """

    async def connect(self, heard: Heard, lost: Lost) -> Connection:
        """Return a new connection. OSError: none can be made now; trying again later may help."""
