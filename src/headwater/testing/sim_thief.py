"""Somebody who has heard what a replica said and says it again, on a connection of their own.

Owns the attempts to take a session that is not one's own, and to go on as somebody else. Only an `Open` that was
answered is stolen: its token was used, so that whoever comes with it must be refused, however often the server has died
meanwhile. The token that it chose for the next time is good, but not for another user.
"""

from __future__ import annotations

import msgspec

from headwater.protocol.messages import (
    VERSION,
    Hello,
    Opened,
    Problem,
    Renew,
    Renewed,
    Welcome,
    decode_from_engine,
    encode,
)
from headwater.testing.sim_network import Connection, Network
from headwater.testing.sim_process import ReplicaProcess
from headwater.testing.sim_server import ServerProcess
from headwater.testing.sim_tokens import token_of
from headwater.testing.sim_trace import Trace

WHO = "thief"


class Thief:
    """One attempt: connects, repeats what was heard, and hangs up."""

    __slots__ = ("_trace",)

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def steal(self, process: ReplicaProcess, network: Network, server: ServerProcess, user: str) -> None:
        heard = process.line.answered_open
        if heard is not None and user != process.user:
            heard = msgspec.structs.replace(heard, resume=heard.following)
        if heard is None or not server.is_up:
            return
        connection = network.connect(self, server, "msgpack")
        if connection is None:
            return
        self._trace.note(WHO, "repeats on", connection.number, user, heard)
        server.accept(connection)
        for message in (Hello((VERSION,), (), user), heard):
            connection.up.send(encode(message))

    def pose(self, process: ReplicaProcess, network: Network, server: ServerProcess, user: str) -> None:
        """Somebody greets as themselves, and brings the token of somebody else as if it was their next."""
        connection = network.connect(self, server, "msgpack") if server.is_up and user != process.user else None
        if connection is None:
            return
        self._trace.note(WHO, "poses on", connection.number, user, process.user)
        server.accept(connection)
        for message in (Hello((VERSION,), (), user), Renew(token_of(process.user))):
            connection.up.send(encode(message))

    def take(self, connection: Connection, data: bytes) -> None:
        message = decode_from_engine(data)
        self._trace.note(WHO, f"<- {connection.number}", type(message).__name__)
        if isinstance(message, Opened):
            self._trace.broken(
                "session", WHO, f"session {message.session} was taken with a token that was used, or is not one's own"
            )
        elif isinstance(message, Renewed):
            self._trace.broken("session", WHO, "a connection of one user goes on with the token of another")
        elif isinstance(message, Problem) and message.code == "access" and "the token is of" in message.message:
            self._trace.counts["tokens of somebody else"] += 1
        elif not isinstance(message, Welcome | Problem):
            self._trace.broken("session", WHO, f"it was told {message}")
        if not isinstance(message, Welcome):
            connection.end_near()

    def hang_up(self, connection: Connection) -> None:
        self._trace.note(WHO, "is gone from", connection.number)
