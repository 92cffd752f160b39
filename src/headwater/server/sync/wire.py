"""The wire: the bytes of one WebSocket connection of the server, without a task between a message and its socket.

A frame that arrives is handed over in the moment it is parsed; what is sent is written to the socket at once, by
whichever thread says it: a verdict leaves from the host's thread, without waking the event loop. What the socket does
not take waits here, in order, and the event loop gives it on; its callers bound it. A message is at
first at most as long as uvicorn's `ws_max_size` says, which is as long as a hello may be; the caller that has heard one
calls `allow`. A longer one is refused by the header of its frame: nothing of it is kept. Never looks into a message.
Opening, pinging and closing are uvicorn's.

The beginning of every connection: an HTTP request, which has to come soon, from not too many at once.

Owns the sockets that are not WebSocket connections (yet). Whoever says nothing, or never comes to the end of its
request, is let go; when there are too many of those, the oldest goes first, so that nobody can keep others out by
waiting. Requests themselves are uvicorn's.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig
from websockets.protocol import State

from headwater.protocol.framing import BINARY, MASKED, TEXT, cut, unmask
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


EXTENSION: Final = "headwater.wire"  # where an application finds the wire of its connection
FLUSHED: Final = "headwater.flushed"  # the event that tells an application that its last words were given to the socket

Taker = Callable[[bytes, bool], object]
"""Takes in the payload of one message, and whether it came as text."""


class _Shared:
    """A transport that only one thread at a time writes to. Everything else is the event loop's alone."""

    __slots__ = ("_lock", "_transport")

    def __init__(self, transport: asyncio.Transport, lock: threading.Lock) -> None:
        self._transport = transport
        self._lock = lock

    def write(self, data: bytes) -> None:
        with self._lock:
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Wire(WebSocketsSansIOProtocol):
    """One connection, as uvicorn makes it. An application that does not `attach` is served as by uvicorn alone."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.queued_bytes = 0  # given to the wire, and not taken by the socket yet
        self._lock = threading.Lock()  # of all that follows, and of every write
        self._queue: deque[bytes] = deque()
        self._socket: asyncio.Transport | None = None  # until it is gone
        self._file = -1  # to write to from any thread; -1: only the event loop may write
        self._is_woken = False
        self._is_ending = False
        self._deadline: asyncio.TimerHandle | None = None  # until the peer has to have taken its last words
        self._is_cut = True  # uvicorn's parser is between two frames
        self._rest = bytearray()  # the beginning of a frame, and how many bytes it has to have to go on
        self._needed = 0
        self._most = self.config.ws_max_size  # bytes of one message
        self._take: Taker | None = None
        self._overlong: Callable[[], object] | None = None
        self._taken: Callable[[], object] | None = None
        self._given: Callable[[], object] | None = None

    # ---- any thread --------------------------------------------------------------------------------

    def put(self, data: bytes, *, last: bool = False) -> int:
        """Send frames; no more can be sent after the last. Answers how many bytes wait for the socket now.

        On a connection that is gone it does nothing.
        """
        with self._lock:
            if self._socket is None or self._is_ending or self._socket.is_closing():
                return 0
            if last:
                self._is_ending = True
                self._wake()
            # Only behind nothing else: what waits here or in the transport goes first.
            if self._file >= 0 and not self._queue and not self._socket.get_write_buffer_size():
                try:
                    data = data[os.write(self._file, data) :]
                except BlockingIOError:
                    pass  # It takes nothing now.
                except OSError:
                    return 0  # It is gone, and the event loop is about to hear it.
                if not data:
                    return 0
            self._queue.append(data)
            self.queued_bytes += len(data)
            self._wake()
            return self.queued_bytes

    def end(self) -> None:
        """Say no more. When all that was said is given to the socket, the application hears FLUSHED."""
        with self._lock:
            self._is_ending = True
            self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self.loop.call_soon_threadsafe(self._flush)

    # ---- the event loop's thread -------------------------------------------------------------------

    def attach(
        self,
        take: Taker,
        taken: Callable[[], object],
        given: Callable[[], object],
        overlong: Callable[[], object] | None = None,
    ) -> None:
        """From now on messages go to `take`, and `taken` is called after all that came in one read.

        `given` is called when some of what waited was given to the socket, `overlong` when the beginning of a message
        has arrived that is too long, right before the connection ends. The application's `receive` hears of the end
        only.
        """
        self._take, self._taken, self._given, self._overlong = take, taken, given, overlong

    def allow(self, size: int) -> None:
        """Take in messages of up to so many bytes from now on."""
        self._most = self.conn.max_message_size = size

    def drop(self) -> None:
        """Break the connection off: its peer takes nothing any more."""
        with self._lock:
            self._queue.clear()
            self.queued_bytes = 0
        self.transport.abort()

    def hold(self) -> None:
        """Read no more, for now. What was read already is still handed over."""
        if not self.read_paused and not self.disconnected:
            self.read_paused = True
            self.transport.pause_reading()

    def release(self) -> None:
        if self.read_paused and not self.disconnected:
            self.read_paused = False
            self.transport.resume_reading()

    def _flush(self) -> None:
        with self._lock:
            self._is_woken = False
            while self._queue and self._socket is not None and self.writable.is_set():
                data = self._queue.popleft()
                self.queued_bytes -= len(data)
                self._socket.write(data)
            flushed = self._is_ending and not self._queue
            is_ending = self._is_ending
        if self._given is not None and not is_ending:
            self._given()
        if is_ending and self._deadline is None and not self.disconnected:
            # A peer that does not take its last words has as long for them as for answering a ping.
            self._deadline = self.loop.call_later(self.ping_timeout or self.close_timeout, self.transport.abort)
        if flushed and not self.disconnected:
            event: Any = {"type": FLUSHED}
            self.queue.put_nowait(event)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shared: Any = _Shared(transport, self._lock)  # type: ignore[arg-type]
        super().connection_made(shared)
        self._socket = transport  # type: ignore[assignment]
        if transport.get_extra_info("ssl_object") is None:
            self._file = transport.get_extra_info("socket").fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        # Before the transport closes its file: its number may mean another one right after that.
        with self._lock:
            self._socket, self._file = None, -1
            self._queue.clear()
            self.queued_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        # Nobody answers. Closing alone would wait until all that was said is taken, which may be never.
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.loop.call_soon(self._flush)  # Not now: the transport may be in the middle of a write.

    def data_received(self, data: bytes) -> None:
        """Messages in one frame are taken here; everything else is given to uvicorn's parser, frame by frame."""
        if self._take is None or self._taken is None or not self._is_cut:
            self._received_early(data)
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data, self._rest = bytes(self._rest), bytearray()
        at, size = 0, len(data)
        while at < size and self.conn.state is State.OPEN:
            begin, end = cut(data, at)
            # fault wire.length_not_looked_at: is_short = True
            is_short = end - begin <= self._most
            if end == 0 or (end > size and is_short):
                self._rest, self._needed = bytearray(data[at:]), end - at
                break
            if data[at] in (BINARY, TEXT) and data[at + 1] & MASKED and is_short and self.conn.current_size is None:
                if not self.close_sent and not self.disconnected:
                    self._take(unmask(data[begin:end], data[begin - 4 : begin]), data[at] == TEXT)
            else:
                super().data_received(data[at:end])
            at = end
        if at < size and not self._rest:
            super().data_received(data[at:])  # Closing: only a parser knows what still counts.
        self._taken()

    def _received_early(self, data: bytes) -> None:
        """The request of a connection. With anything behind it that nobody takes yet, the parser may be anywhere."""
        _, ended, behind = data.partition(b"\r\n\r\n")
        if self.handshake_initiated or behind or not ended:
            self._is_cut = False
        super().data_received(data)

    async def run_asgi(self) -> None:
        extensions: Any = {**(self.scope["extensions"] or {}), EXTENSION: self}
        self.scope["extensions"] = extensions
        await super().run_asgi()

    def handle_events(self) -> None:
        super().handle_events()
        if self._taken is not None:
            self._taken()

    def handle_parser_exception(self) -> None:
        if isinstance(self.conn.parser_exc, PayloadTooBig) and self._overlong is not None:
            self._overlong()
        super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        if self._take is None:
            super().send_receive_event_to_app()
            return
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if not self.close_sent and not self.disconnected:
            self._take(bytes(data), self.curr_msg_data_type == "text")
