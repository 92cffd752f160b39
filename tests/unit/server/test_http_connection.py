"""Sockets that are no connections yet: nobody keeps others out by waiting, and whoever asks is served."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace as changed
from pathlib import Path

import pytest

from headwater.protocol.messages import Hello, Open, Selector, Watch
from headwater.runtime.channel.websocket import WebSocket
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS
from headwater.server.server import Server
from headwater.server.sync.wire import Wire
from tests.unit.runtime.kit import SPACE, Rig, address, doc, run, serving
from tests.unit.server.test_attack_peers import HANDSHAKE, in_one_segment

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def came(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*server.address)


async def is_let_go(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(30):
            return not await reader.read()
    except ConnectionError:
        return True


def test_whoever_says_nothing_or_never_ends_its_request_is_let_go(tmp_path: Path) -> None:
    async def play() -> None:
        limits = changed(DEFAULT_SERVER_LIMITS, nothing=changed(DEFAULT_SERVER_LIMITS.nothing, seconds=0.1))
        async with serving(tmp_path, insecure_local=True, limits=limits) as server:
            for said in (b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"GET"):
                reader, writer = await came(server)
                writer.write(said)
                assert await is_let_go(reader)
                writer.close()

    run(play)


def test_a_connection_may_ask_again_and_is_let_go_in_the_middle_of_its_second_request(tmp_path: Path) -> None:
    async def play() -> None:
        limits = changed(DEFAULT_SERVER_LIMITS, nothing=changed(DEFAULT_SERVER_LIMITS.nothing, seconds=0.3))
        async with serving(tmp_path, insecure_local=True, limits=limits) as server:
            reader, writer = await came(server)
            for _ in range(2):
                writer.write(GET)
                assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(3) == b"ok\n"
            writer.write(GET[:20])
            assert await is_let_go(reader)
            writer.close()

    run(play)


def test_those_who_wait_longest_make_room_and_those_who_are_connected_stay(tmp_path: Path) -> None:
    async def play() -> None:
        limits = changed(DEFAULT_SERVER_LIMITS, nothing=changed(DEFAULT_SERVER_LIMITS.nothing, connections=3))
        async with serving(tmp_path, insecure_local=True, limits=limits) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            client = rig.client("a")
            await client.create("d", 1)
            idle = [await came(server) for _ in range(10)]
            for reader, _ in idle[:7]:
                assert await is_let_go(reader)
            _, writer = idle[-1]
            writer.write(GET)
            assert b"200 OK" in await idle[-1][0].readuntil(b"\r\n\r\n")
            await rig.client("b").create("d", 2)
            await client.driver.until(lambda: client.shown("d") == 2)
            assert client.link.connects == 1
            for _, writer in idle:
                writer.close()
            await rig.close()

    run(play)


def test_a_peer_that_does_not_take_its_last_words_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told that something is wrong, behind much that it never read."""
    monkeypatch.setattr(Wire, "start_keepalive", lambda wire: None)  # A ping would end it, too.

    async def play() -> None:
        limits = changed(DEFAULT_SERVER_LIMITS, ping_s=0.5, drain_s=30.0)
        async with serving(tmp_path, insecure_local=True, limits=limits) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            client = rig.client("a")
            await client.create("big", "x" * 8_000_000)
            await rig.close()
            before = server.service.metrics.bytes_out
            loop = asyncio.get_running_loop()
            with socket.socket() as deaf:
                await deafly(loop, deaf, server)
                while server.service.metrics.bytes_out < before + 8_000_000:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(server.service.spaces.host_of(SPACE).call, lambda engine, hub: None)
                (connection,) = server.acceptor.connections
                connection.close(1001)
                async with asyncio.timeout(30):
                    await connection.wait_closed()

    run(play)


async def deafly(loop: asyncio.AbstractEventLoop, deaf: socket.socket, server: Server) -> None:
    """Open a session, ask for much and read nothing."""
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    deaf.setblocking(False)
    await loop.sock_connect(deaf, server.address)
    await loop.sock_sendall(deaf, HANDSHAKE)
    await loop.sock_recv(deaf, 4_000)
    watch = Watch(1, (Selector(doc("big")),))
    await loop.sock_sendall(deaf, in_one_segment(Hello((1,)), Open(SPACE, "s", "", "t"), watch))
