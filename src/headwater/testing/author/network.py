"""The transport between the runtimes of an author's simulation and its server, over the simulated network.

`Client` is one user's end of all connections. It keeps each verdict that a runtime received, so that a test can check
afterwards whether the log still has it. Delay, loss and order are the network's. Messages cross as bytes, as they do
over a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from headwater.clock import Random, VirtualClock
from headwater.data.address import check_space
from headwater.errors import ProtocolError
from headwater.protocol.messages import (
    FromEngine,
    FromReplica,
    Open,
    Problem,
    Verdicts,
    decode_from_engine,
    encode,
)
from headwater.protocol.verdict import Accepted
from headwater.runtime import Heard, Lost, Transport
from headwater.testing.author.server import SimulatedServer
from headwater.testing.author.trace import Trace
from headwater.testing.network import Connection, Network

CONNECT_US = (100, 3_000)
PROMISES = 1_000_000


class ClientConnection:
    """A runtime's end of one connection."""

    __slots__ = ("_client", "_connection", "_heard", "_lost", "session", "space")

    def __init__(self, client: Client, connection: Connection, heard: Heard, lost: Lost) -> None:
        self._client = client
        self._connection = connection
        self._heard = heard
        self._lost = lost
        self.space = ""
        self.session = ""

    def send(self, messages: Iterable[FromReplica]) -> None:
        for message in messages:
            if not self._connection.near_open:
                return
            if isinstance(message, Open):
                self.space, self.session = message.space, message.session
            self._client.say(self._connection, message)

    def close(self) -> None:
        self._connection.end_near()

    def hear(self, message: FromEngine) -> None:
        self._heard(message)
        if isinstance(message, Problem) and message.fatal:
            self._connection.end_near()

    def end(self) -> None:
        self._lost("it broke")


class Client:
    """One user's machine: all connections of its runtime."""

    __slots__ = (
        "_clock",
        "_connections",
        "_draws",
        "_network",
        "_server",
        "_trace",
        "ambush",
        "is_dead",
        "is_offline",
        "promised",
        "user",
    )

    def __init__(self, user: str, clock: VirtualClock, network: Network, server: SimulatedServer, trace: Trace) -> None:
        self.user = user
        self._clock = clock
        self._draws: Random = clock.randomness(f"connections of {user}")
        self._network = network
        self._server = server
        self._trace = trace
        self._connections: dict[Connection, ClientConnection] = {}
        self.is_offline = False
        self.is_dead = False  # its process is gone
        self.ambush: Callable[[Connection, FromReplica], object] | None = None  # sees messages to be sent
        self.promised: dict[tuple[str, str, int], int] = {}  # space, session and number of a commit: its seq

    async def connect(self, heard: Heard, lost: Lost) -> ClientConnection:
        await asyncio.sleep(self._draws.randint(*CONNECT_US) / 1e6)
        connection = self._network.connect(self, self._server, "msgpack") if self._is_reachable() else None
        if connection is None:
            raise ConnectionError("the server cannot be reached")
        self._trace.note(self.user, "connects:", connection.number)
        self._server.accept(connection)
        line = self._connections[connection] = ClientConnection(self, connection, heard, lost)
        return line

    def _is_reachable(self) -> bool:
        return self._server.is_up and not self.is_offline and not self.is_dead

    def say(self, connection: Connection, message: FromReplica) -> None:
        if self.ambush is not None:
            self.ambush(connection, message)
        data = encode(message, connection.encoding)
        self._trace.said(self.user, f"connection {connection.number}", message, data)
        connection.up.send(data)

    # ---- the near end ------------------------------------------------------------------------------

    def take(self, connection: Connection, data: bytes) -> None:
        line = self._connections.get(connection)
        if line is None:
            return
        message = decode_from_engine(data, connection.encoding)
        if isinstance(message, Verdicts):
            for verdict in message.verdicts:
                if isinstance(verdict, Accepted) and len(self.promised) < PROMISES:
                    self.promised[line.space, line.session, verdict.local_seq] = verdict.seq
        try:
            line.hear(message)
        except ProtocolError:
            connection.end_near()
            raise

    def hang_up(self, connection: Connection) -> None:
        line = self._connections.pop(connection, None)
        if line is not None:
            self._trace.note(self.user, "sees the end of connection", connection.number)
            line.end()

    # ---- faults --------------------------------------------------------------------------------------

    def go_offline(self) -> None:
        """Its connections end here and now, and none can be made."""
        self.is_offline = True
        self._network.partition(self)
        for connection in self._network.of(self):
            connection.end_near()

    def go_online(self) -> None:
        self.is_offline = False
        self._network.mend(self)

    def die(self) -> None:
        """Kill its process: messages that it sent may still arrive, and no end is notified."""
        self.is_dead = True
        self._network.drop(self)
        lines, self._connections = self._connections, {}
        for line in lines.values():
            line.end()


class Route:
    """Where the spaces of a simulated runtime are."""

    __slots__ = ("_client", "is_only", "life", "token")

    def __init__(self, client: Client) -> None:
        self._client = client
        self.token = ""
        self.life = ""
        self.is_only = False

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return self._client

    async def close(self) -> None:
        """Do nothing: each connection is closed by its opener."""
