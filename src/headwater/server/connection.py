"""One WebSocket connection of the server: bytes in, bytes out, and every way in which a peer can misbehave.

Reads one message at a time and no faster than the limits allow, so that a fast sender is slowed by its own socket. What
the peer does not take is held up to a bound; beyond it the connection is closed, and its session comes back later. A
peer outside the protocol gets one `Problem` that says what was wrong, and then the end of the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from headwater.engine.hub import problem_code
from headwater.errors import AccessError, HeadwaterError, LimitError, ProtocolError
from headwater.protocol.messages import (
    Encoding,
    FromEngine,
    Open,
    Problem,
    Transact,
    Verdicts,
    decode_from_replica,
    encode,
)
from headwater.runtime.reception import Reception
from headwater.server.rate import Rate
from headwater.server.service import Service

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendEvent = Callable[[MutableMapping[str, Any]], Awaitable[None]]

GOING_AWAY: Final = 1001
REFUSED: Final = 1008


class Connection:
    """One peer, from its acceptance to its end. Belongs to the event loop's thread."""

    __slots__ = (
        "_abort",
        "_closing",
        "_encoding",
        "_hello_timer",
        "_queue",
        "_queued_bytes",
        "_rate",
        "_receive",
        "_reception",
        "_room",
        "_send",
        "_service",
        "_space",
        "_token_timer",
        "_writer",
    )

    def __init__(
        self, service: Service, encoding: Encoding, receive: Receive, send: SendEvent, abort: Callable[[], None]
    ) -> None:
        limits = service.limits
        self._service = service
        self._encoding: Encoding = encoding
        self._receive = receive
        self._send = send
        self._abort = abort
        self._reception = Reception(
            lambda message: service.outbox.post(self, message),
            self._authenticate,
            service.spaces.host_of,
            limits.engine,
        )
        self._rate = Rate(limits.rate, limits.burst, service.clock)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._closing: int | None = None  # the code to close with, after what is queued
        self._space = ""
        self._hello_timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve the peer until it goes or has to."""
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(self._service.limits.hello_s, self._silent)
        try:
            while self._closing is None:
                event = await self._receive()
                if event["type"] == "websocket.disconnect":
                    break
                await self._take(event)
        finally:
            for timer in (self._hello_timer, self._token_timer):
                if timer is not None:
                    timer.cancel()
            if self._space:
                self._reception.lost()
                self._service.spaces.leave(self._space)
        await self.flushed()

    # ---- from the peer -----------------------------------------------------------------------------

    async def _take(self, event: MutableMapping[str, Any]) -> None:
        try:
            data = self._data(event)
            wait_s = self._rate.take()
            if wait_s:
                await asyncio.sleep(wait_s)
            message = decode_from_replica(data, self._encoding, self._service.limits.engine.values)
            if isinstance(message, Open) and not self._space and self._reception.is_greeted:
                await self._service.spaces.enter(message.space)
                self._space = message.space
            self._reception.receive(message)
            if isinstance(message, Transact):
                await self._until_room()
        except HeadwaterError as error:
            self.refuse(error)

    def _data(self, event: MutableMapping[str, Any]) -> bytes:
        text = event.get("text")
        if (text is not None) is not (self._encoding == "json"):
            kind = "text" if self._encoding == "json" else "binary"
            raise ProtocolError(f"this sub-protocol puts its messages into {kind} frames")
        data: bytes = event["bytes"] if text is None else text.encode()
        limit = self._service.limits.message_bytes
        if len(data) > limit:
            raise LimitError(f"a message of {len(data)} bytes is over the limit of {limit}. Send several smaller ones.")
        metrics = self._service.metrics
        metrics.messages_in += 1
        metrics.bytes_in += len(data)
        return data

    def _authenticate(self, token: str) -> str:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        user, lasts_s = self._service.authenticate(token)
        if lasts_s is not None:
            self._token_timer = asyncio.get_running_loop().call_later(min(lasts_s, 86_400 * 365), self._outlived)
        return user

    async def _until_room(self) -> None:
        """A session has so many commits in flight: no more are read until some have their verdict."""
        while self._closing is None and not self._reception.has_room:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _silent(self) -> None:
        self.refuse(ProtocolError(f"no Hello came within {self._service.limits.hello_s:g} s"))

    def _outlived(self) -> None:
        self.refuse(AccessError("the token is over. Connect again with a new one."))

    @property
    def behind(self) -> int:
        return self._reception.behind

    # ---- to the peer -------------------------------------------------------------------------------

    def refuse(self, error: HeadwaterError) -> None:
        """Say what was wrong and end the connection."""
        code = problem_code(error)
        self._service.log.info("refused", code=code, problem=str(error), space=self._space)
        self.deliver(Problem(code, str(error)))

    def deliver(self, message: FromEngine) -> None:
        """Queue a message for the peer. After a fatal problem nothing more is said."""
        if self._closing is not None:
            return
        service = self._service
        service.metrics.told(message)
        data = encode(message, self._encoding)
        self._queue.append(data)
        self._queued_bytes += len(data)
        if isinstance(message, Problem) and message.fatal:
            self.close(REFUSED)
        elif isinstance(message, Verdicts):
            self._free()
        if self._queued_bytes > service.limits.outgoing_bytes and len(self._queue) > 1:
            # A peer that does not read: what it misses it is told when it comes back.
            service.metrics.slow.inc()
            service.log.info("too slow", queued_bytes=self._queued_bytes, space=self._space)
            self._queue.clear()
            self.close(REFUSED)
            self._abort()
        elif self._writer is None:
            self._start_writer()

    def close(self, code: int) -> None:
        """End the connection after what is queued."""
        if self._closing is None:
            self._closing = code
            self._free()
            if self._writer is None:
                self._start_writer()

    def _free(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _start_writer(self) -> None:
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Give the socket what is queued, as fast as it takes it; then stop until there is more."""
        try:
            kind = "bytes" if self._encoding == "msgpack" else "text"
            while self._queue:
                data = self._queue[0]
                await self._send({"type": "websocket.send", kind: data if kind == "bytes" else data.decode()})
                self._service.metrics.bytes_out += len(data)
                if self._queue:
                    self._queue.popleft()
                    self._queued_bytes -= len(data)
            if self._closing is not None:
                await self._send({"type": "websocket.close", "code": self._closing, "reason": ""})
        except (OSError, RuntimeError):
            self._queue.clear()  # The peer is gone: `run` hears it, too.
        finally:
            self._writer = None

    async def flushed(self) -> None:
        """What is queued has been given to the socket, or cannot be any more."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
