"""The sockets of a server: HTTP until the request for a WebSocket, then frames without a task between message and
socket.

A socket belongs to a stranger until its Hello was accepted. `HandshakeLimit` bounds the number of such sockets by
closing the oldest, so that no client can keep others out by waiting. `HttpConnection` ends a socket that has not sent
its request in time, and one whose peer does not take its answer. Requests are parsed by uvicorn.

`Wire` passes each arriving message on when it is parsed. Sent frames are written to the socket at once on the sending
thread: a verdict leaves from the host's thread without waking the event loop. Bytes that the socket does not take wait
in order, and the event loop writes them later; the callers bound them. At first a message may be as long as uvicorn's
`ws_max_size`, the limit of a Hello; `admit` and `allow` raise the limit. A longer message is refused by the header of
its frame. Opening, pinging and closing are uvicorn's.
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

from headwater.protocol.framing import BINARY, MASKED, TEXT, find_frame, unmask
from headwater.server.operation.limits import Budget


class HandshakeLimit:
    """Sockets of one server whose peers have proved nothing yet, oldest first."""

    __slots__ = ("_waiting", "budget")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._waiting: dict[HttpConnection | Wire, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: HttpConnection | Wire) -> None:
        self._waiting[request] = None
        if len(self._waiting) > self.budget.connections:
            next(iter(self._waiting)).abort()

    def remove(self, request: HttpConnection | Wire) -> None:
        self._waiting.pop(request, None)


class HttpConnection(H11Protocol):
    """A socket as an HTTP connection, until it becomes a WebSocket or ends."""

    def __init__(self, handshakes: HandshakeLimit, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._handshakes = handshakes
        self._timer: asyncio.TimerHandle | None = None
        self._is_stalled = False  # bytes of an answer have waited for the peer since the last check

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()
        self._handshakes.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._end_handshake()
        super().handle_websocket_upgrade(event)

    def abort(self) -> None:
        """Close the socket at once."""
        self._end_handshake()
        self.transport.abort()

    def _end_handshake(self) -> None:
        self._handshakes.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        self._is_stalled = self.transport.get_write_buffer_size() > 0
        self._timer = self.loop.call_later(self._handshakes.budget.seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        """Close the socket, unless a plain request is being answered and its peer takes the answer."""
        # fault wire.slow_readers_kept: is_stalled = False
        is_stalled = self._is_stalled and self.transport.get_write_buffer_size() > 0
        if self.cycle is not None and not self.cycle.response_complete and not is_stalled:
            self._start_timer()
        else:
            self.abort()

    def resume_writing(self) -> None:
        """The peer took most of the bytes that waited for it."""
        self._is_stalled = False
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, unless another answer is under way: that one is cut off."""
        if self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
        else:
            self.abort()


EXTENSION: Final = "headwater.wire"  # the key of the wire in an ASGI scope
FLUSHED: Final = "headwater.flushed"  # the event that says that the last frames were given to the socket

Taker = Callable[[bytes, bool], object]
"""Called with the payload of one message, and whether it came as text."""


class _LockedTransport:
    """A transport whose writes are serialized by a lock. All other calls are the event loop's."""

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
    """A WebSocket connection. Without `attach` it works as uvicorn's own."""

    def __init__(self, handshakes: HandshakeLimit, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._handshakes = handshakes
        self._timer: asyncio.TimerHandle | None = None  # for the answer to the request
        self.queued_bytes = 0  # waiting for the socket
        self._lock = threading.Lock()  # of everything below, and of every write
        self._queue: deque[bytes] = deque()
        self._socket: asyncio.Transport | None = None  # None after the connection is lost
        self._file = -1  # the socket's descriptor for writes from any thread; -1: only the event loop may write
        self._is_woken = False
        self._is_ending = False
        self._deadline: asyncio.TimerHandle | None = None  # for the peer to take the last frames
        self._is_cut = True  # uvicorn's parser is between two frames
        self._rest = bytearray()  # the start of a frame, and the bytes needed to go on
        self._needed = 0
        self._most = self.config.ws_max_size  # bytes of one message
        self._take: Taker | None = None
        self._overlong: Callable[[], object] | None = None
        self._taken: Callable[[], object] | None = None
        self._given: Callable[[], object] | None = None

    # ---- any thread --------------------------------------------------------------------------------

    def put(self, data: bytes, *, last: bool = False) -> int:
        """Send frames, and return the number of bytes that wait for the socket. After `last` nothing more is sent.

        On a lost connection it does nothing.
        """
        with self._lock:
            if self._socket is None or self._is_ending or self._socket.is_closing():
                return 0
            if last:
                self._is_ending = True
                self._wake()
            # Only if nothing waits here or in the transport, which would go first.
            if self._file >= 0 and not self._queue and not self._socket.get_write_buffer_size():
                try:
                    data = data[os.write(self._file, data) :]
                except BlockingIOError:
                    pass  # The socket is full.
                except OSError:
                    return 0  # The connection is lost; the event loop will be told.
                if not data:
                    return 0
            self._queue.append(data)
            self.queued_bytes += len(data)
            self._wake()
            return self.queued_bytes

    def end(self) -> None:
        """Send nothing more. The application receives FLUSHED when everything was given to the socket."""
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
        """Pass messages to `take` from now on, and call `taken` after all messages of one read.

        `given` is called after waiting bytes were given to the socket, and `overlong` when a message that is too long
        begins, right before the connection ends. The application's `receive` gets only the end.
        """
        self._take, self._taken, self._given, self._overlong = take, taken, given, overlong

    def admit(self, size: int) -> None:
        """Count the peer as a stranger no more, and set the limit of a message to `size` bytes."""
        self._handshakes.remove(self)
        self.allow(size)

    def abort(self) -> None:
        """Close the socket at once."""
        self._handshakes.remove(self)
        self.transport.abort()

    def allow(self, size: int) -> None:
        """Set the limit of a message to `size` bytes."""
        self._most = self.conn.max_message_size = size

    def drop(self) -> None:
        """Close the connection without waiting for the peer."""
        with self._lock:
            self._queue.clear()
            self.queued_bytes = 0
        self.transport.abort()

    def hold(self) -> None:
        """Stop reading for now. Messages that were read already are still passed on."""
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
            # The peer has as long for the last frames as for the answer to a ping.
            self._deadline = self.loop.call_later(self.ping_timeout or self.close_timeout, self.transport.abort)
        if flushed and not self.disconnected:
            event: Any = {"type": FLUSHED}
            self.queue.put_nowait(event)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shared: Any = _LockedTransport(transport, self._lock)  # type: ignore[arg-type]
        super().connection_made(shared)
        self._socket = transport  # type: ignore[assignment]
        if transport.get_extra_info("ssl_object") is None:
            self._file = transport.get_extra_info("socket").fileno()
        self._handshakes.add(self)
        self._timer = self.loop.call_later(self._handshakes.budget.seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        """Close a socket whose request never became a WebSocket."""
        # fault wire.endless_handshake: if False:
        if not self.handshake_complete:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        # Before the transport closes its descriptor, whose number can be reused at once.
        with self._lock:
            self._socket, self._file = None, -1
            self._queue.clear()
            self.queued_bytes = 0
        self._handshakes.remove(self)
        for timer in (self._deadline, self._timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        # Closing would first wait for the peer to take all frames.
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.loop.call_soon(self._flush)  # Later, because the transport may be in the middle of a write.

    def data_received(self, data: bytes) -> None:
        """Parse messages of one frame here, and pass everything else to uvicorn's parser, frame by frame."""
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
            begin, end = find_frame(data, at)
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
            super().data_received(data[at:])  # While closing, only uvicorn's parser knows which bytes count.
        self._taken()

    def _received_early(self, data: bytes) -> None:
        """Pass on the request of a connection. If bytes follow the request, the position of uvicorn's parser is not
        known.
        """
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
