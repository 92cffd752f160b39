"""The transport port: how the messages of a session get to an engine and back.

A connection delivers messages in order or is lost; it never drops one and goes on. What is lost with it is the
session's business, which replays. Every call and every callback happens on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headwater.protocol.messages import FromEngine, FromReplica

Heard = Callable[[FromEngine], object]
"""Takes in one message from the engine."""

Lost = Callable[[str], object]
"""Hears, exactly once and with the reason, that a connection is gone. Nothing is heard from it afterwards."""


class Connection(Protocol):
    """One connection, from the moment it is there until it is lost."""

    def send(self, messages: Iterable[FromReplica]) -> None:
        """Send messages in order. Never waits; on a connection that is gone it does nothing."""

    def close(self) -> None:
        """End it after what was sent. `lost` is called once it is gone."""


class Transport(Protocol):
    """Makes connections to one engine."""

    async def connect(self, heard: Heard, lost: Lost) -> Connection:
        """A new connection. OSError: there is none to be had now; trying again later may help."""
