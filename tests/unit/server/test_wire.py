"""The wire: bytes that stay in order whoever sends them, and messages however they are put into frames and reads."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.frames import CloseCode, Frame, Opcode
from websockets.streams import StreamReader

from headwater.protocol.framing import make_masked_frame
from headwater.protocol.messages import Answer, Query, Welcome, decode_from_engine, encode
from headwater.server.operation.limits import ServerLimits
from headwater.server.server import Server
from tests.unit.server.test_connection import HELLO, OPEN, opened, served


def test_what_threads_say_at_once_arrives_whole_and_in_the_order_of_each(tmp_path: Path) -> None:
    """Long messages, so that the socket takes only parts of them, from the host's side and the event loop's."""

    async def tell(server: Server) -> None:
        peer = await opened(server)
        (connection,) = server.acceptor.connections

        def talk(first: int) -> None:
            for n in range(first, first + 200):
                connection.send([Answer(n, 0, (), "x" * 20_000)])

        threads = [threading.Thread(target=talk, args=(first,)) for first in (1_000, 2_000)]
        for thread in threads:
            thread.start()
        heard: list[int] = []
        while len(heard) < 400:
            message = await peer.hear()
            assert isinstance(message, Answer)
            heard.append(message.id)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        for first in (1_000, 2_000):
            assert [n for n in heard if first <= n < first + 200] == list(range(first, first + 200))
        await peer.say(Query(7, "space", "d"))
        assert (await peer.hear()).id == 7

    served(tmp_path, tell)


# ---- frames ------------------------------------------------------------------------------------------------

REQUEST = (
    b"GET /v1/sync HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: headwater.v1.msgpack\r\n\r\n"
)
MASK = b"abcd"


class Socket:
    """A peer that decides which bytes go into one write."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def write(self, *parts: bytes) -> None:
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()
            for _ in range(4):
                await asyncio.sleep(0)  # The server is on the same loop, and reads it before the next.

    async def frame(self) -> Frame:
        buffer = StreamReader()
        parser = Frame.parse(buffer.read_exact, mask=False)
        while True:
            try:
                next(parser)
            except StopIteration as read:
                frame: Frame = read.value
                return frame
            byte = await self._reader.read(1)
            if not byte:
                raise EOFError
            buffer.feed_data(byte)

    async def answers(self, count: int) -> list[int]:
        heard = [decode_from_engine(bytes((await self.frame()).data)) for _ in range(count)]
        assert all(isinstance(message, Answer) for message in heard)
        return [message.id for message in heard if isinstance(message, Answer)]

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def connected(server: Server) -> Socket:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    socket = Socket(reader, writer)
    await socket.write(said(HELLO), said(OPEN))
    assert isinstance(decode_from_engine(bytes((await socket.frame()).data)), Welcome)
    await socket.frame()
    return socket


def said(message: object) -> bytes:
    return make_masked_frame(encode(message), MASK, text=False)  # type: ignore[arg-type]


def asked(number: int, length: int = 1) -> bytes:
    return said(Query(number, "space", "d" * length))


def other(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
def test_messages_are_heard_however_they_are_cut_into_reads(tmp_path: Path, size: int) -> None:
    async def tell(server: Server) -> None:
        socket = await connected(server)
        data = b"".join(asked(n, length) for n, length in enumerate((1, 100, 200), 1)) + other(Opcode.PING, b"x")
        data += asked(4)
        await socket.write(*[data[at : at + size] for at in range(0, len(data), size)])
        heard = [await socket.frame() for _ in range(5)]
        assert sorted(frame.opcode.name for frame in heard) == ["BINARY"] * 4 + ["PONG"]
        messages = [decode_from_engine(bytes(frame.data)) for frame in heard if frame.opcode is Opcode.BINARY]
        assert [message.id for message in messages if isinstance(message, Answer)] == [1, 2, 3, 4]
        await socket.close()

    served(tmp_path, tell)


def test_a_message_in_parts_with_a_ping_between_them_is_one_message(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        socket = await connected(server)
        whole = encode(Query(1, "space", "d"))
        await socket.write(
            other(Opcode.BINARY, whole[:3], fin=False)
            + other(Opcode.PING, b"p")
            + other(Opcode.CONT, whole[3:5], fin=False)
        )
        assert (await socket.frame()).opcode is Opcode.PONG
        await socket.write(other(Opcode.CONT, whole[5:]) + asked(2))
        assert await socket.answers(2) == [1, 2]
        await socket.close()

    served(tmp_path, tell)


@pytest.mark.parametrize("turns", range(8))
def test_what_comes_before_the_request_is_answered_is_heard_and_so_is_what_follows(tmp_path: Path, turns: int) -> None:
    async def tell(server: Server) -> None:
        reader, writer = await asyncio.open_connection(*server.address)
        hello = said(HELLO)
        writer.write(REQUEST)
        for _ in range(turns + 2):
            await asyncio.sleep(0)  # Somewhere between the request and the application that takes messages.
        socket = Socket(reader, writer)
        await socket.write(hello[:5])
        await reader.readuntil(b"\r\n\r\n")
        await socket.write(hello[5:])
        assert isinstance(decode_from_engine(bytes((await socket.frame()).data)), Welcome)
        await socket.write(said(OPEN) + asked(1), asked(2))
        await socket.frame()
        assert await socket.answers(2) == [1, 2]
        await socket.close()

    served(tmp_path, tell)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (b"\x82\x01x", CloseCode.PROTOCOL_ERROR),  # not masked
        (b"\xc2\x81abcdx", CloseCode.PROTOCOL_ERROR),  # a reserved bit
        (other(Opcode.CONT, b"x"), CloseCode.PROTOCOL_ERROR),  # the middle of nothing
        (other(Opcode.BINARY, b"x", fin=False) + other(Opcode.BINARY, b"x"), CloseCode.PROTOCOL_ERROR),
        (b"\x82\xff" + (2**40).to_bytes(8, "big") + MASK + b"x", CloseCode.MESSAGE_TOO_BIG),
        (b"\x82\xff" + (2**63).to_bytes(8, "big") + MASK + b"x" * 10_000, CloseCode.MESSAGE_TOO_BIG),
    ],
    ids=["not masked", "a reserved bit", "the middle of nothing", "two beginnings", "too long", "far too long"],
)
def test_who_breaks_the_frames_is_told_so_and_heard_no_more(tmp_path: Path, wrong: bytes, code: CloseCode) -> None:
    async def tell(server: Server) -> None:
        socket = await connected(server)
        await socket.write(asked(1))
        assert await socket.answers(1) == [1]
        await socket.write(wrong + asked(2))
        frame = await socket.frame()
        assert frame.opcode is Opcode.CLOSE
        assert int.from_bytes(bytes(frame.data)[:2], "big") == code
        with pytest.raises((EOFError, ConnectionError)):
            await socket.frame()
        await socket.close()

    served(tmp_path, tell, limits=ServerLimits())
