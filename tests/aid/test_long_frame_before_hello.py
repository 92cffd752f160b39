"""A frame longer than the hello limit is refused by its header before `hello`."""

from __future__ import annotations

import asyncio
import socket
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from headwater.protocol.messages import Hello, Problem, decode_from_engine, encode
from headwater.server import DEFAULT_SERVER_LIMITS, Server, new_token
from tests.aid.serving import page, place, serving

MB = 1024 * 1024
ANNOUNCED = 60 * MB
STRANGERS = 30
BLOCK = bytes(MB // 16)
PROTOCOLS = {"/v1/sync": "headwater.v1.msgpack", "/v1/page": ""}


def request(path: str) -> bytes:
    """The request that makes a connection a WebSocket."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ]
    if PROTOCOLS[path]:
        lines.append(f"Sec-WebSocket-Protocol: {PROTOCOLS[path]}")
    return "\r\n".join([*lines, "", ""]).encode()


def header(kind: int, length: int) -> bytes:
    """The beginning of a masked frame."""
    return struct.pack("!BBQ", kind, 0x80 | 127, length) + bytes(4)


async def stranger(server: Server, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket connection of somebody who has not said who they are."""
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(request(path))
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What is said until the connection ends."""
    found = bytearray()
    try:
        while data := await reader.read(65_536):
            found += data
    except ConnectionError:
        pass  # It was closed with bytes on the way.
    return bytes(found)


@pytest.mark.parametrize("first", [0x82, 0x81, 0x02], ids=["binary", "text", "first_of_several"])
@pytest.mark.parametrize("path", PROTOCOLS)
def test_frame_longer_than_the_hello_limit_is_refused_by_its_header(tmp_path: Path, path: str, first: int) -> None:
    async def play() -> None:
        async with serving(tmp_path) as server:
            reader, writer = await stranger(server, path)
            writer.write(header(first, ANNOUNCED))  # and nothing behind it
            said = await rest_of(reader)
            assert struct.pack("!H", 1_009) in said
            if path == "/v1/sync":
                assert b"before Hello is over the limit of 65536 bytes" in said
            writer.close()

    asyncio.run(play())


@pytest.mark.parametrize("path", PROTOCOLS)
def test_strangers_with_long_frames_cost_no_memory(tmp_path: Path, path: str) -> None:
    """Each of them announces a frame of 60 MB and sends 4 MB of it, or as much as is taken."""

    async def push(server: Server) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as own:  # which keeps nothing of what is sent
            own.setblocking(False)
            await loop.sock_connect(own, server.address)
            await loop.sock_sendall(own, request(path))
            assert b" 101 " in await loop.sock_recv(own, 4_096)
            try:
                await loop.sock_sendall(own, header(0x82, ANNOUNCED))
                for _ in range(4 * 16):
                    await loop.sock_sendall(own, BLOCK)
                while await loop.sock_recv(own, 4_096):
                    pass
            except ConnectionError:
                pass  # It was closed in between.

    async def play() -> None:
        async with serving(tmp_path) as server:
            await push(server)
            tracemalloc.start()
            try:
                for _ in range(STRANGERS):
                    await push(server)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 4 * MB, f"{peak / MB:.0f} MB"

    asyncio.run(play())


def test_long_messages_are_taken_in_after_hello(tmp_path: Path) -> None:
    async def play() -> None:
        limits = replace(DEFAULT_SERVER_LIMITS, nothing=replace(DEFAULT_SERVER_LIMITS.nothing, message_bytes=1_000))
        async with serving(tmp_path, limits=limits, with_keys=True) as server:
            token = new_token(tmp_path, "ann", ttl_s=60)
            async with page(server, token=token) as ann:
                long = await ann.ask(type="write", place=place("title"), kind="set", value="x" * 100_000)
                assert long["type"] == "done"
            url = f"ws://127.0.0.1:{server.address[1]}/v1/sync"
            async with connect(url, subprotocols=["headwater.v1.msgpack"]) as peer:  # type: ignore[list-item]
                # In one read with the frame behind it: that is looked at when the hello was taken in.
                await peer.send(encode(Hello((1,), (), token), "msgpack"))
                await peer.send(b"\xc1" * 2_000)
                await peer.recv()
                problem = decode_from_engine(bytes(await peer.recv()), "msgpack")  # type: ignore[arg-type]
                assert isinstance(problem, Problem)
                assert "not a message of the protocol" in problem.message

    asyncio.run(play())
