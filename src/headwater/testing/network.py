"""A network in virtual time: connections that are slow, break, freeze and are noticed late.

Within one direction of one connection bytes arrive in order or not at all, as with TCP; between connections there is no
order, so that bytes of an abandoned connection may arrive after its successor has spoken. Each end notices a broken
connection in its own time. The content of messages is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headwater.clock import Random, VirtualClock
from headwater.protocol.messages import Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How a network behaves. Times are microseconds."""

    delay_us: tuple[int, int] = (100, 5_000)  # on the way
    slow_share: float = 0.05  # of the messages take up to `slow_us`
    slow_us: int = 400_000
    lingers_share: float = 0.5  # of the broken directions still deliver messages that are under way
    notice_us: tuple[int, int] = (0, 3_000_000)  # until an end sees that its connection broke


class End(Protocol):
    """One end of connections."""

    def take(self, connection: Connection, data: bytes) -> None:
        """Bytes of one message arrived."""
        ...

    def hang_up(self, connection: Connection) -> None:
        """The connection is over, as far as this end is concerned."""
        ...


class _Direction:
    """Bytes from one end to the other, in order."""

    __slots__ = (
        "_clock",
        "_deliver",
        "_draws",
        "_held",
        "_last_us",
        "_weather",
        "carries",
        "frozen",
        "late_us",
        "listens",
        "lost",
    )

    def __init__(
        self, clock: VirtualClock, draws: Random, weather: Weather, deliver: Callable[[bytes | None], None]
    ) -> None:
        self._clock = clock
        self._draws = draws
        self._weather = weather
        self._deliver = deliver
        self._held: list[bytes | None] = []
        self._last_us = 0
        self.carries = True  # False: messages sent now are lost
        self.listens = True  # False: the receiver is gone
        self.frozen = False
        self.late_us = 0  # added to the delay of messages
        self.lost = False  # True: also messages that are under way are lost

    def send(self, data: bytes | None) -> None:
        """None is the end of the stream, in its place in the order."""
        if not self.carries:
            return
        draws, weather = self._draws, self._weather
        delay = self.late_us + draws.randint(*weather.delay_us)
        if draws.random() < weather.slow_share:
            delay += draws.randrange(weather.slow_us)
        # By monotonic time: a wall clock that is set does not change the order.
        clock, elapsed_us = self._clock, self._clock.monotonic_us()
        self._last_us = max(self._last_us, elapsed_us + delay)
        clock.call_at(clock.now_us() + self._last_us - elapsed_us, lambda: self._arrive(data))

    def _arrive(self, data: bytes | None) -> None:
        if self.frozen:
            self._held.append(data)
        elif self.listens and not self.lost:
            self._deliver(data)

    def thaw(self) -> None:
        """Deliver the held messages, before any that are still under way."""
        held, self._held = self._held, []
        self.frozen = False
        for data in held:
            self._arrive(data)


class Connection:
    """One connection between a replica (near) and the server (far)."""

    __slots__ = ("_far", "_near", "down", "encoding", "far_open", "is_broken", "near_open", "number", "up")

    def __init__(
        self, clock: VirtualClock, draws: Random, weather: Weather, number: int, encoding: Encoding, near: End, far: End
    ) -> None:
        self.number = number
        self.encoding = encoding
        self.near_open = True
        self.far_open = True
        self.is_broken = False  # noticed or not
        self._near = near
        self._far = far
        self.up = _Direction(clock, draws, weather, self._to_far)
        self.down = _Direction(clock, draws, weather, self._to_near)

    def _to_far(self, data: bytes | None) -> None:
        if data is None:
            self.end_far()
        else:
            self._far.take(self, data)

    def _to_near(self, data: bytes | None) -> None:
        if data is None:
            self.end_near()
        else:
            self._near.take(self, data)

    @property
    def near(self) -> End:
        return self._near

    def end_near(self) -> None:
        """The replica's end closes, or sees that the connection is gone."""
        if self.near_open:
            self.near_open = False
            self.down.listens = False
            self.up.send(None)
            self.up.carries = False
            self._near.hang_up(self)

    def end_far(self) -> None:
        """The server's end closes, or sees that the connection is gone."""
        if self.far_open:
            self.far_open = False
            self.up.listens = False
            self.down.send(None)
            self.down.carries = False
            self._far.hang_up(self)


class Network:
    """All connections to one server."""

    __slots__ = ("_blocked", "_clock", "_connections", "_draws", "_made", "_weather")

    def __init__(self, clock: VirtualClock, draws: Random, weather: Weather) -> None:
        self._clock = clock
        self._draws = draws
        self._weather = weather
        self._blocked: set[int] = set()
        self._connections: list[Connection] = []
        self._made = 0

    def calm(self) -> None:
        """End delays and breaks from now on; broken connections are noticed."""
        self._weather = Weather(slow_share=0.0, lingers_share=0.0, notice_us=(0, 1_000))
        for connection in [connection for connection in self._connections if connection.is_broken]:
            connection.end_near()
            connection.end_far()

    def connect(self, near: End, far: End, encoding: Encoding) -> Connection | None:
        """A connection, or None: there is no way through now."""
        if id(near) in self._blocked:
            return None
        self._made += 1
        connection = Connection(self._clock, self._draws, self._weather, self._made, encoding, near, far)
        self._connections = [c for c in self._connections if c.near_open or c.far_open]
        self._connections.append(connection)
        return connection

    def of(self, near: End) -> list[Connection]:
        return [c for c in self._connections if c.near is near and (c.near_open or c.far_open)]

    # ---- faults --------------------------------------------------------------------------------------

    def cut(self, connection: Connection) -> None:
        """Break a connection. Each direction may still deliver its messages under way, each end notices by itself."""
        draws, weather = self._draws, self._weather
        connection.is_broken = True
        for direction in (connection.up, connection.down):
            lingers = draws.random() < weather.lingers_share
            takes_more = draws.random() < 0.3  # until it is noticed
            # Never back to better: a stream that lost a part may not deliver the rest.
            direction.carries &= lingers and takes_more
            direction.lost |= not lingers
        now = self._clock.now_us()
        self._clock.call_at(now + draws.randint(*weather.notice_us), connection.end_near)
        self._clock.call_at(now + draws.randint(*weather.notice_us), connection.end_far)

    def strand(self, connection: Connection, late_us: int) -> None:
        """Let the replica's next messages arrive, perhaps late; no answer comes back, and the replica soon gives up."""
        connection.is_broken = True
        connection.up.late_us = late_us
        connection.down.lost, connection.down.carries = True, False
        now = self._clock.now_us()
        self._clock.call_at(now + self._draws.randint(1_000, 200_000), connection.end_near)

    def sever(self, connection: Connection) -> None:
        """The server's process died: its end is gone at once, nothing on the way up is read."""
        connection.is_broken = True
        connection.far_open = False
        connection.up.listens = False
        connection.down.lost |= self._draws.random() >= self._weather.lingers_share
        connection.down.send(None)
        connection.down.carries = False
        self._clock.call_at(self._clock.now_us() + self._draws.randint(*self._weather.notice_us), connection.end_near)

    def drop(self, near: End) -> None:
        """Drop the end of a replica whose process died; messages that it sent may still arrive."""
        for connection in self.of(near):
            connection.is_broken = True
            connection.near_open = False
            connection.down.listens = False
            connection.up.lost |= self._draws.random() >= self._weather.lingers_share
            connection.up.carries = False
            self._clock.call_at(
                self._clock.now_us() + self._draws.randint(*self._weather.notice_us), connection.end_far
            )

    def partition(self, near: End) -> None:
        """Let nothing pass in either direction, unnoticed, until an end loses patience or it is mended."""
        self._blocked.add(id(near))
        for connection in self.of(near):
            connection.up.frozen = connection.down.frozen = True
            now = self._clock.now_us()
            near_us, far_us = self._draws.randint(1_000_000, 20_000_000), self._draws.randint(1_000_000, 60_000_000)
            self._clock.call_at(now + near_us, lambda c=connection: self._impatient(c, c.end_near))  # type: ignore[misc]
            self._clock.call_at(now + far_us, lambda c=connection: self._impatient(c, c.end_far))  # type: ignore[misc]

    @staticmethod
    def _impatient(connection: Connection, end: Callable[[], None]) -> None:
        if connection.up.frozen:
            end()

    def mend(self, near: End) -> None:
        """End a partition. Held messages arrive, if their end still listens."""
        self._blocked.discard(id(near))
        for connection in self.of(near):
            connection.up.thaw()
            connection.down.thaw()
