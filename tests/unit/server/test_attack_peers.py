"""Attacks by peers that break the protocol or do not read, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace as changed
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol

from headwater.data.address import Depth
from headwater.data.patch import replace
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.messages import FromReplica, Hello, Open, Selector, Transact, Watch, encode
from headwater.runtime.channel.websocket import PATH, WebSocket
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS
from tests.unit.runtime.kit import SPACE, Rig, address, doc, run, serving

HANDSHAKE = (
    f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Protocol: headwater.v1.msgpack\r\n\r\n"
).encode()


def in_one_segment(*messages: FromReplica) -> bytes:
    return b"".join(Frame(Opcode.BINARY, encode(each)).serialize(mask=True, extensions=[]) for each in messages)


def test_a_peer_that_broke_the_protocol_is_closed_whatever_else_it_said_in_the_same_moment(tmp_path: Path) -> None:
    writes = (Operation(doc("a"), (replace((), 1),)),)
    bad = Transact((Commit(1, writes, reads=(Read(doc("a"), (), Depth.DEEP, 999),)),))
    good = Transact((Commit(2, writes),))

    async def play() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            name = Subprotocol("headwater.v1.msgpack")
            async with connect(address(server) + PATH, subprotocols=[name], ping_interval=None) as peer:
                await peer.send(encode(Hello((1,))))
                await peer.send(encode(Open(SPACE, "s", "", "t")))
                await peer.recv()
                await peer.recv()
                peer.transport.write(in_one_segment(bad, good))
                closed = False
                try:
                    async with asyncio.timeout(30):
                        while True:
                            await peer.recv()
                except ConnectionClosed:
                    closed = True
                except TimeoutError:
                    peer.transport.abort()
                assert closed

    run(play)


def test_a_peer_that_reads_nothing_is_let_go_when_it_does_not_answer_a_ping(tmp_path: Path) -> None:
    limits = changed(DEFAULT_SERVER_LIMITS, ping_s=0.2, drain_s=1.0)

    async def play() -> None:
        async with serving(tmp_path, insecure_local=True, limits=limits) as server:
            rig = Rig(WebSocket(address(server)), lambda _: None)
            await rig.client("a").create("big", "x" * 8_000_000)
            await rig.close()
            loop = asyncio.get_running_loop()
            with socket.socket() as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                deaf.setblocking(False)
                await loop.sock_connect(deaf, ("127.0.0.1", server.address[1]))
                await loop.sock_sendall(deaf, HANDSHAKE)
                await loop.sock_recv(deaf, 4_000)
                watch = Watch(1, (Selector(doc("big")),))
                await loop.sock_sendall(deaf, in_one_segment(Hello((1,)), Open(SPACE, "s", "", "t"), watch))
                until = loop.time() + 3
                while loop.time() < until and (loop.time() < until - 2.5 or server.acceptor.connections):
                    await asyncio.sleep(0.05)
                assert not server.acceptor.connections

    run(play)
