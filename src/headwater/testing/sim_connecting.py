"""How a simulated process comes to a connection: it tries, waits longer each time, and stays away when it is offline.

Owns the backoff and the one connection that there is. What is said on it is the process's. Never looks at a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.backoff import Backoff
from headwater.clock import Random, VirtualClock
from headwater.protocol.messages import Encoding
from headwater.testing.sim_network import Connection, End, Network
from headwater.testing.sim_server import ServerProcess

RECONNECT: Final = Backoff.exponential(base_ms=25, max_ms=30_000, jitter=0.2)
TURNED_AWAY_US: Final = 240_000_000


class Connecting:
    """The connection of one process, or the wait for it."""

    __slots__ = (
        "_clock",
        "_draws",
        "_failures",
        "_is_waiting",
        "_life",
        "_near",
        "_network",
        "_server",
        "connection",
        "is_offline",
        "on_connected",
        "turned",
    )

    def __init__(self, near: End, clock: VirtualClock, draws: Random, network: Network, server: ServerProcess) -> None:
        self._near = near
        self._clock = clock
        self._draws = draws
        self._network = network
        self._server = server
        self._life = 0
        self._failures = 0
        self._is_waiting = False
        self.turned = 0  # how often it was turned away since it was let in
        self.connection: Connection | None = None
        self.is_offline = False
        self.on_connected: Callable[[Connection], object] = _nobody

    def begin(self) -> None:
        """Another life: what was begun in the last one is not its own."""
        self._life += 1
        self._is_waiting = False
        self._failures = 0
        self.connection = None
        self.soon(0)

    def opened(self) -> None:
        """It was let in."""
        self._failures = self.turned = 0

    def soon(self, us: int | None = None) -> None:
        """Try to connect, after the backoff's delay unless told when."""
        if self._is_waiting:
            return
        self._is_waiting = True
        delay = RECONNECT.delay_us(self._failures, self._draws) if us is None else us
        self._failures += 1
        life = self._life
        self._clock.call_at(self._clock.now_us() + delay, lambda: self._connect(life))

    def _connect(self, life: int) -> None:
        if life != self._life:
            return
        self._is_waiting = False
        if self.connection is not None or self.is_offline:
            return
        encoding: Encoding = self._draws.choice(("msgpack", "json"))
        connection = self._network.connect(self._near, self._server, encoding) if self._server.is_up else None
        if connection is None:
            self.soon()
            return
        self._server.accept(connection)
        self.connection = connection
        self.on_connected(connection)

    def ended(self) -> None:
        """The connection is gone."""
        self.connection = None

    def again(self) -> None:
        """After a lost connection, unless nobody wants one."""
        if not self.is_offline:
            self.soon(min(1_000_000 << self.turned, TURNED_AWAY_US) if self.turned else None)

    def go_offline(self) -> None:
        self.is_offline = True
        if self.connection is not None:
            self.connection.end_near()

    def go_online(self) -> None:
        self.is_offline = False
        self._failures = 0
        if self.connection is None:
            self.soon(0)


def _nobody(_: Connection) -> None:
    """It is not known yet who speaks on it."""
