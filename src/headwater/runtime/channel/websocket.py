"""The WebSocket transport, client side: one message per frame, MessagePack in binary frames or JSON in text frames.

Built on the protocol engine of `websockets` without its streams: a message is written at the moment it is sent and
passed on at the moment it arrives, without a task in between, and without that protocol engine if it is one whole
frame. A server that sends nothing for too long, not even a ping, is taken for dead. The transport never reconnects; the
driver does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidState, InvalidURI
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI, parse_uri

from headwater.clock import Clock, RealClock
from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.errors import AuthoringError, ProtocolError
from headwater.protocol.framing import BINARY, MASKED, TEXT, find_frame, make_masked_frame
from headwater.protocol.messages import Encoding, FromReplica, decode_from_engine, encode
from headwater.runtime.channel.transport import Heard, Lost

SUBPROTOCOLS: Final[dict[str, Encoding]] = {"headwater.v1.msgpack": "msgpack", "headwater.v1.json": "json"}
PATH: Final = "/v1/sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketLimits:
    """Bounds of one connection, seen from the client."""

    connect_s: float = 10.0  # until the connection is established
    silence_s: float = 60.0  # without any byte from the server, which pings three times as often
    message_bytes: int = 256 * 1024 * 1024  # a whole document, and a margin
    masks: int = 64  # of frames, drawn at once
    values: ValueLimits = DEFAULT_VALUE_LIMITS


class WebSocket:
    """Makes connections to a server. The address is `ws://host:port` or `wss://host:port`, with or without a path."""

    __slots__ = ("_clock", "_encoding", "_limits", "_tls", "_uri")

    def __init__(
        self,
        address: str,
        *,
        encoding: Encoding = "msgpack",
        tls: ssl.SSLContext | None = None,
        limits: WebSocketLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        try:
            self._uri = parse_uri(address if address.count("/") > 2 else address + PATH)
        except (InvalidURI, ValueError) as error:
            raise AuthoringError(f"{address!r} is not the address of a server: write ws://host:port") from error
        self._encoding: Encoding = encoding
        self._tls = tls
        self._limits = limits or WebSocketLimits()
        self._clock = clock or RealClock()

    async def connect(self, heard: Heard, lost: Lost) -> WebSocketConnection:
        loop = asyncio.get_running_loop()
        tls = (self._tls or ssl.create_default_context()) if self._uri.secure else None
        wire: WebSocketConnection | None = None

        def make() -> WebSocketConnection:
            return WebSocketConnection(self._uri, self._encoding, self._limits, heard, lost, loop, self._clock)

        try:
            async with asyncio.timeout(self._limits.connect_s):
                _, wire = await loop.create_connection(make, self._uri.host, self._uri.port, ssl=tls)
                await wire.ready
        except BaseException as error:
            if wire is not None:
                wire.abort()
            if isinstance(error, ValueError | OverflowError):
                raise ConnectionError(f"{self._uri.host!r} cannot be looked up: {error}") from error
            raise
        return wire


class WebSocketConnection(asyncio.Protocol):
    """One connection and the state of its WebSocket."""

    def __init__(
        self,
        uri: WebSocketURI,
        encoding: Encoding,
        limits: WebSocketLimits,
        heard: Heard,
        lost: Lost,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        name = next(name for name, spoken in SUBPROTOCOLS.items() if spoken == encoding)
        self._protocol = ClientProtocol(uri, subprotocols=[Subprotocol(name)], max_size=limits.message_bytes)
        self._encoding: Encoding = encoding
        self._limits = limits
        self._heard = heard
        self._lost = lost
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._kind = BINARY if encoding == "msgpack" else TEXT
        self._clock = clock
        self._masks: list[bytes] = []
        self._is_open = False  # the handshake is over, and the protocol engine is between two frames
        self._is_broken = False  # no more messages are taken in
        self._rest = bytearray()  # the beginning of a frame, and how many bytes have to be there to go on
        self._needed = 0
        self._parts: list[bytes] = []
        self._reason = "the server closed the connection"
        self._last_byte_at = loop.time()
        self._watchdog: asyncio.TimerHandle | None = None
        self.ready: asyncio.Future[None] = loop.create_future()

    def send(self, messages: Iterable[FromReplica]) -> None:
        if self._transport is None or self._protocol.state is not State.OPEN:
            return  # Gone, or closing: `lost` is called for it.
        encoding, text = self._encoding, self._kind == TEXT
        frames = [make_masked_frame(encode(message, encoding), self._mask(), text=text) for message in messages]
        if frames:
            self._transport.write(b"".join(frames) if len(frames) > 1 else frames[0])

    def _mask(self) -> bytes:
        if not self._masks:
            drawn = bytes.fromhex(self._clock.new_token(self._limits.masks * 4))
            self._masks = [drawn[at : at + 4] for at in range(0, len(drawn), 4)]
        return self._masks.pop()

    def close(self) -> None:
        self._reason = "it was closed here"
        try:
            self._protocol.send_close(1000)
        except InvalidState:
            self.abort()
            return
        self._write()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now, without waiting for bytes on their way."""
        if self._transport is not None:
            self._transport.abort()

    # ---- called by the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._protocol.send_request(self._protocol.connect())
        self._write()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take in messages of one whole frame here; pass all other frames to the protocol engine, one by one."""
        self._last_byte_at = self._loop.time()
        if not self._is_open:
            _, ended, behind = data.partition(b"\r\n\r\n")
            was_answered = self.ready.done()
            self._parse(data)
            # With bytes behind the answer the state of the protocol engine is unknown, and it parses all that follows.
            self._is_open = bool(ended) and not behind and not was_answered and self.ready.done()
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data, self._rest = bytes(self._rest), bytearray()
        at, size, most = 0, len(data), self._limits.message_bytes
        while at < size and self._protocol.state is State.OPEN:
            begin, end = find_frame(data, at)
            is_short = end - begin <= most
            if end == 0 or (end > size and is_short):
                self._rest, self._needed = bytearray(data[at:]), end - at
                return
            if data[at] == self._kind and not data[at + 1] & MASKED and is_short and not self._parts:
                self._hear(data[begin:end])
            else:
                self._parse(data[at:end])
            at = end
        if at < size:
            self._parse(data[at:])  # Closing: only a parser knows which bytes still count.

    def _parse(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
            elif isinstance(event, Response):
                self._answered()
        self._write()
        if self._protocol.handshake_exc is not None:
            self._answered()  # An invalid response is no event.
        if self._protocol.parser_exc is not None:
            self._end(f"the server broke the WebSocket protocol: {self._protocol.parser_exc}")
        elif self._transport is not None and self._protocol.close_expected():
            self._transport.close()

    def eof_received(self) -> None:
        self._protocol.receive_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        if exc is not None:
            self._reason = str(exc)
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(self._reason))
            self.ready.exception()  # Mark as retrieved: the caller of `connect` may be gone.
        elif not self.ready.cancelled() and self.ready.exception() is None:
            self._lost(self._reason)

    # ---- bytes -------------------------------------------------------------------------------------

    def _answered(self) -> None:
        refusal = self._protocol.handshake_exc
        if self.ready.done():
            return
        if refusal is not None:
            self.ready.set_exception(ConnectionError(f"the server did not accept the connection: {refusal}"))
        elif self._protocol.subprotocol is None:
            self.ready.set_exception(ConnectionError("the server speaks no version of this protocol"))
            self.abort()
        else:
            self.ready.set_result(None)

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if not frame.fin:
                return
            data, self._parts = b"".join(self._parts), []
            self._hear(data)
        elif frame.opcode is Opcode.CLOSE:
            reason = self._protocol.close_rcvd
            if reason is not None:
                self._reason = f"the server closed the connection: {reason.code} {reason.reason}".rstrip()

    def _hear(self, data: bytes) -> None:
        if self._is_broken:
            return
        try:
            self._heard(decode_from_engine(data, self._encoding, self._limits.values))
        except ProtocolError as error:
            self._end(str(error))

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._is_broken = True
        self.abort()

    def _write(self) -> None:
        output = self._protocol.data_to_send()
        if self._transport is None or not output:
            return
        if output[-1] == b"":  # An empty part marks the end of the stream.
            self._transport.write(b"".join(output))
            self._transport.close()
        else:
            self._transport.write(b"".join(output) if len(output) > 1 else output[0])

    def _watch(self) -> None:
        quiet_s = self._loop.time() - self._last_byte_at
        if quiet_s >= self._limits.silence_s:
            self._end(f"the server said nothing for {quiet_s:.0f} s")
            return
        self._watchdog = self._loop.call_later(self._limits.silence_s - quiet_s, self._watch)
