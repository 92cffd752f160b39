"""Every bound of the server, in one place. The engine's own are in `engine.limits`.

How fast one connection may send: a bucket of tokens that refills with time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.engine.limits import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds on what connections may ask for and on what they cost."""

    engine: Limits = field(default=DEFAULT_LIMITS)

    connections: int = 10_000
    requests: int = 1_000  # sockets that are no WebSocket connections yet; beyond it the one that waits longest goes
    spaces: int = 256  # open at once; one that nobody is connected to makes room
    message_bytes: int = 24 * 1024 * 1024  # a longer one is not taken in; a commit is at most 12 MiB, more as JSON
    answer_bytes: int = 128 * 1024 * 1024  # of one message to a peer; instead of a longer one it hears a problem
    refused_bytes: int = 64 * 1024 * 1024  # a frame that is not even read to its end
    rate: int = 20_000  # messages a second of one connection; a faster one is read more slowly
    burst: int = 40_000  # messages that may come at once before that
    in_flight_bytes: int = 64 * 1024 * 1024  # of frames without a verdict; beyond it the connection is read no further
    asks: int = 64  # watches and queries of one connection without an answer; fewer where answers are long
    outgoing_bytes: int = 64 * 1024 * 1024  # waiting behind what the peer is taking; beyond it the connection is closed
    hello_s: float = 10.0  # until a new socket has made its request, and until its connection has introduced itself
    hello_bytes: int = 64 * 1024  # of a message before that; a longer one is refused by its header
    page_bytes: int = 4 * 1024 * 1024  # of one message of a page; the call of a longer one fails
    command_bytes: int = 1_000_000  # of one question of a command; nothing of a longer one is kept
    aside_bytes: int = 64 * 1024  # a longer message, page or question is decoded on another thread
    ping_s: float = 20.0  # between two pings, and until one must be answered
    metrics_s: float = 1.0  # /metrics waits for a space; then, and for as long, it shows what the space said last
    drain_s: float = 10.0  # how long a shutdown waits for peers to take their answers


DEFAULT_SERVER_LIMITS = ServerLimits()


class Rate:
    """Allows `burst` messages at once and `rate` a second in the long run."""

    __slots__ = ("_burst", "_clock", "_filled_us", "_left", "_rate")

    def __init__(self, rate: int, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._filled_us = clock.monotonic_us()

    def spend(self, messages: int) -> None:
        """What was just counted costs as much as so many messages more."""
        self._left -= messages

    def take(self) -> float:
        """Count one message. Answers how many seconds to wait before it is looked at."""
        now_us = self._clock.monotonic_us()
        self._left = min(self._burst, self._left + (now_us - self._filled_us) * self._rate / 1e6)
        self._filled_us = now_us
        self._left -= 1
        return -self._left / self._rate if self._left < 0 else 0.0
