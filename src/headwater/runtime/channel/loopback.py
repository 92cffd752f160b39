"""The loopback transport: a session and its engine in one process, without encoding.

Messages are immutable, so they are passed as they are. Messages may come from the host's thread or from this one; both
go through one wake-up of the loop. A host refuses messages while too many wait for its space. A session of the same
process is not refused: its messages wait here, in order, until the host has room.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable

from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.sync.error_codes import problem_code
from headwater.engine.sync.host import Host
from headwater.errors import HeadwaterError, LimitError
from headwater.protocol.messages import FromEngine, FromReplica, Problem
from headwater.runtime.channel.connection_end import Authenticate, ConnectionEnd
from headwater.runtime.channel.transport import Heard, Lost
from headwater.runtime.core.limits import RUNTIME_LIMITS


def trusted(_: str) -> str:
    """Return the principal of this process, which has no name and may do anything."""
    return ""


class Loopback:
    """Makes connections to hosts of this process."""

    __slots__ = ("_authenticate", "_host_of", "_limits")

    def __init__(
        self,
        host_of: Callable[[str], Host],
        *,
        authenticate: Authenticate = trusted,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._host_of = host_of
        self._authenticate = authenticate
        self._limits = limits

    async def connect(self, heard: Heard, lost: Lost) -> LoopbackConnection:
        connection = LoopbackConnection(heard, lost, asyncio.get_running_loop())
        connection.connection_end = ConnectionEnd(
            connection.deliver, self._authenticate, self._host_of, self._limits, is_own=True
        )
        return connection


class LoopbackConnection:
    """Both ends of a connection that cannot fail, only be closed."""

    __slots__ = ("_closed", "_heard", "_inbox", "_loop", "_lost", "_scheduled", "_thread", "_unsent", "connection_end")

    connection_end: ConnectionEnd

    def __init__(self, heard: Heard, lost: Lost, loop: asyncio.AbstractEventLoop) -> None:
        self._heard = heard
        self._lost = lost
        self._loop = loop
        self._thread = threading.get_ident()  # of the loop
        self._inbox: deque[FromEngine] = deque()
        self._unsent: deque[FromReplica] = deque()  # messages that the host has no room for yet
        self._scheduled = False
        self._closed = False

    def send(self, messages: Iterable[FromReplica]) -> None:
        """Give messages to the engine's end. If its host is full, they wait here, in order."""
        is_waiting = bool(self._unsent)
        self._unsent.extend(messages)
        if not is_waiting:
            self._send_unsent()

    def _send_unsent(self) -> None:
        while self._unsent and not self._closed:
            try:
                self.connection_end.receive(self._unsent[0])
            except LimitError:
                # fault loopback.full_host_ends_connection: self._end("the host is full")
                self._loop.call_later(RUNTIME_LIMITS.full_host_s, self._send_unsent)
                return
            except HeadwaterError as error:
                self.deliver(Problem(problem_code(error), str(error)))
            if self._unsent:  # Empty if the connection was closed meanwhile.
                self._unsent.popleft()

    def close(self) -> None:
        self._end("it was closed here")

    def deliver(self, message: FromEngine) -> None:
        """Queue a message for the event loop. Called on any thread.

        Appends first: a caller that finds a wake-up scheduled knows that the wake-up will see its message, too.
        """
        if self._closed:
            return
        self._inbox.append(message)
        if self._scheduled and not self._loop.is_closed():
            return
        self._scheduled = True
        is_here = threading.get_ident() == self._thread
        schedule = self._loop.call_soon if is_here else self._loop.call_soon_threadsafe  # That wakes the loop up.
        try:
            schedule(self._drain)
        except RuntimeError:
            # The loop was closed while this connection was open. The engine's thread must not fail for it.
            self._closed = True
            self.connection_end.lost()

    def _drain(self) -> None:
        self._scheduled = False
        while self._inbox and not self._closed:
            message = self._inbox.popleft()
            self._heard(message)
            if isinstance(message, Problem) and message.fatal:
                self._end(message.message)

    def _end(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            self._unsent.clear()
            self.connection_end.lost()
            self._loop.call_soon(self._lost, reason)
