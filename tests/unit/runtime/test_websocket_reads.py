"""The client's WebSocket hears every message once and in order, however its bytes are make_frame and cut into reads."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from headwater.clock import VirtualClock
from headwater.protocol.framing import make_frame
from headwater.protocol.messages import Ack, Answer, FromEngine, decode_from_replica, encode
from headwater.runtime.channel.websocket import WebSocketConnection, WebSocketLimits
from tests.unit.runtime.kit import run


class Line:
    """Both ends of a connection without a socket: the client's connection, and a server that does what it is told."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.lost: list[str] = []
        self.server = ServerProtocol(subprotocols=[Subprotocol("headwater.v1.msgpack")])
        self.is_closing = False
        self.written: list[bytes] = []
        loop = asyncio.get_running_loop()
        limits = WebSocketLimits(message_bytes=50_000)
        uri = parse_uri("ws://h:1/v1/sync")
        self.client = WebSocketConnection(uri, "msgpack", limits, self._hear, self.lost.append, loop, VirtualClock())
        self.client.connection_made(cast("Any", self))

    def _hear(self, message: FromEngine) -> None:
        assert isinstance(message, Answer)
        self.heard.append(message.id)

    # ---- the transport ------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.server.receive_data(data)

    def close(self) -> None:
        self.is_closing = True

    def abort(self) -> None:
        self.is_closing = True

    # ---- the server ---------------------------------------------------------------------------------

    def accept(self) -> bytes:
        (request,) = self.server.events_received()
        assert isinstance(request, Request)
        self.server.send_response(self.server.accept(request))
        return b"".join(self.server.data_to_send())

    def say(self, data: bytes, size: int) -> None:
        for at in range(0, len(data), size):
            self.client.data_received(data[at : at + size])


def answer(number: int, length: int = 1) -> bytes:
    return make_frame(encode(Answer(number, 0, (), "x" * length)), text=False)


def other(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=False)


WHOLE = encode(Answer(4, 0, (), "x"))
STREAM = (
    b"".join(answer(n, length) for n, length in ((1, 1), (2, 200), (3, 40_000)))
    + other(Opcode.PING, b"p")
    + other(Opcode.BINARY, WHOLE[:2], fin=False)
    + other(Opcode.PING, b"q")
    + other(Opcode.CONT, WHOLE[2:])
    + answer(5)
)


@pytest.mark.parametrize("size", [1, 2, 3, 9, 100, 20_000, 1_000_000])
def test_messages_are_heard_however_they_are_cut_into_reads(size: int) -> None:
    async def story() -> None:
        line = Line()
        line.client.data_received(line.accept())
        await line.client.ready
        line.say(STREAM, size)
        assert line.heard == [1, 2, 3, 4, 5]
        assert not line.is_closing
        pongs = [bytes(event.data) for event in line.server.events_received() if isinstance(event, Frame)]
        assert pongs == [b"p", b"q"]

    run(story)


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_what_comes_with_the_answer_to_the_request_is_heard_too(size: int) -> None:
    async def story() -> None:
        line = Line()
        line.say(line.accept() + STREAM, size)
        await line.client.ready
        assert line.heard == [1, 2, 3, 4, 5]

    run(story)


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x82\x81abcdx",  # masked
        b"\xc2\x01x",  # a reserved bit
        other(Opcode.CONT, b"x"),  # the middle of nothing
        b"\x82\x7e" + (50_001).to_bytes(2, "big") + b"x",  # too long
        b"\x82\x7f" + (2**62).to_bytes(8, "big") + b"x",
        make_frame(b"no message", text=False),
    ],
)
def test_a_server_that_breaks_the_protocol_is_heard_no_more(wrong: bytes) -> None:
    async def story() -> None:
        line = Line()
        line.client.data_received(line.accept())
        line.say(answer(1) + wrong + answer(2), 1_000_000)
        line.say(answer(3), 1_000_000)
        assert line.heard == [1]
        assert line.is_closing

    run(story)


def test_what_is_sent_is_masked_differently_every_time_and_read_as_it_was_meant() -> None:
    async def story() -> None:
        line = Line()
        line.client.data_received(line.accept())
        for number in range(200):
            line.client.send([Ack(number), Ack(number, 7)])
        frames = [event for event in line.server.events_received() if isinstance(event, Frame)]
        heard = [decode_from_replica(bytes(frame.data)) for frame in frames]
        assert heard == [Ack(number, local_seq) for number in range(200) for local_seq in (0, 7)]
        line.client.send([Ack(1)] * 100)
        data = line.written[-1]
        assert len({data[at + 2 : at + 6] for at in range(0, len(data), len(data) // 100)}) > 90

    run(story)


def test_nothing_is_sent_on_a_connection_that_is_going() -> None:
    async def story() -> None:
        line = Line()
        line.client.data_received(line.accept())
        line.client.close()
        line.client.send([Ack(1)])
        frames = [event for event in line.server.events_received() if isinstance(event, Frame)]
        assert [frame.opcode for frame in frames] == [Opcode.CLOSE]

    run(story)
