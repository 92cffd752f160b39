"""The budget of a peer depends on what it has proved: nothing, a token, or a right."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.sync.hub import Hub
from headwater.errors import LimitError
from headwater.protocol.messages import Hello, Open, Opened, Problem, Transact, Welcome, decode_from_engine, encode
from headwater.server import DEFAULT_SERVER_LIMITS, Server, ServerLimits, new_key, new_token
from headwater.server.operation.accounts import Accounts
from headwater.server.operation.limits import Budget
from tests.aid.serving import WITHIN_S

COMMANDS = "/v1/desk"


def limits(**budgets: dict[str, Any]) -> ServerLimits:
    """The default limits with some budgets changed."""
    changed: dict[str, Any] = {
        proof: replace(getattr(DEFAULT_SERVER_LIMITS, proof), **fields) for proof, fields in budgets.items()
    }
    return replace(DEFAULT_SERVER_LIMITS, **changed)


def play(folder: Path, bounds: ServerLimits, story: Callable[[Server], Awaitable[None]]) -> None:
    """Serve a directory with keys. Every user may found spaces."""

    async def run() -> None:
        new_key(folder)
        server = Server(folder, port=0, anyone_founds=True, classes=(), limits=bounds)
        running = asyncio.create_task(server.run_until_stopped())
        try:
            async with asyncio.timeout(WITHIN_S):
                await story(server)
        finally:
            server.stop()
            await running

    asyncio.run(run())


class Replica:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, *messages: Any) -> None:
        for message in messages:
            await self.socket.send(encode(message))

    async def hear(self) -> Any:
        data = await self.socket.recv()
        assert isinstance(data, bytes)
        return decode_from_engine(data)

    async def opened(self, space: str, session: str, token: str) -> Any:
        """Open a session, and return the answer: Opened or a problem."""
        await self.say(Hello((1,), token=token), Open(space, session, "", "t"))
        answer = await self.hear()
        return await self.hear() if isinstance(answer, Welcome) else answer


@asynccontextmanager
async def replica(server: Server) -> AsyncIterator[Replica]:
    url = f"ws://127.0.0.1:{server.address[1]}/v1/sync"
    async with connect(url, subprotocols=[Subprotocol("headwater.v1.msgpack")], max_size=None) as socket:
        yield Replica(socket)


async def question(server: Server, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask a question of a command, and return the status and the answer."""
    data = json.dumps(body).encode()
    return await posted(server, token, len(data), data)


async def posted(server: Server, token: str, length: int, data: bytes) -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_connection(*server.address)
    head = f"POST {COMMANDS} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: bearer {token}\r\ncontent-length: {length}"
    writer.write(head.encode() + b"\r\n\r\n" + data)
    answer = await reader.readuntil(b"\r\n\r\n")
    size = int(answer.lower().partition(b"content-length:")[2].split()[0])
    told = json.loads(await reader.readexactly(size))
    writer.close()
    return int(answer.split()[1]), told


# ---- nothing -------------------------------------------------------------------------------------------


def test_oldest_stranger_makes_room_also_if_it_became_a_websocket(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        async with replica(server) as known, replica(server) as first:
            assert isinstance(await known.opened("a", "s", new_token(tmp_path, "ann")), Opened)
            async with replica(server), replica(server):
                with pytest.raises(ConnectionClosed):
                    await first.hear()
            await known.say(Transact(()))  # It has proved a right, and stays.

    play(tmp_path, limits(nothing={"connections": 2}), story)


def test_request_that_never_becomes_a_websocket_is_let_go(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(
            b"POST /v1/sync HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\ncontent-length: 9\r\n\r\n"
        )
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    play(tmp_path, limits(nothing={"seconds": 0.2}), story)


def test_peer_that_does_not_take_an_answer_is_let_go(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        _, writer = await asyncio.open_connection(*server.address, limit=1_000)
        # More answers than all buffers between the two hold, and none of them is read.
        writer.write(b"GET /headwater.js HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 2_000)
        there = server.server_state.connections
        while not there:
            await asyncio.sleep(0.01)
        while there:
            await asyncio.sleep(0.01)
        writer.close()

    play(tmp_path, limits(nothing={"seconds": 0.2}), story)


# ---- a token -------------------------------------------------------------------------------------------


def test_body_that_arrives_too_slowly_is_refused(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        status, told = await posted(server, new_token(tmp_path, "ann"), 100, b"{")
        assert status == 408
        assert "did not arrive within 0.2 s" in told["error"]

    play(tmp_path, limits(token={"seconds": 0.2}), story)


def test_connection_without_open_is_ended(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        async with replica(server) as one:
            await one.say(Hello((1,), token=new_token(tmp_path, "ann")))
            assert isinstance(await one.hear(), Welcome)
            problem = await one.hear()
            assert isinstance(problem, Problem)
            assert "no Open came within 0.2 s" in problem.message

    play(tmp_path, limits(token={"seconds": 0.2}), story)


def test_long_message_needs_a_right(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        token = new_token(tmp_path, "ann")
        async with replica(server) as one:
            await one.say(Hello((1,), token=token))
            assert isinstance(await one.hear(), Welcome)
            await one.socket.send(b"x" * 20_000)
            with pytest.raises(ConnectionClosed):
                await one.hear()
        async with replica(server) as other:
            assert isinstance(await other.opened("a", "s", token), Opened)
            await other.socket.send(b"x" * 20_000)
            assert isinstance(await other.hear(), Problem)  # It is read, and is no message.

    play(tmp_path, limits(token={"message_bytes": 10_000}), story)


def test_connections_of_one_user_leave_room_for_others(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        ann, bob = new_token(tmp_path, "ann"), new_token(tmp_path, "bob")
        async with replica(server) as one, replica(server) as two, replica(server) as three:
            for number, each in enumerate((one, two)):
                assert isinstance(await each.opened("a", f"s{number}", ann), Opened)
            refused = await three.opened("a", "s3", ann)
            assert isinstance(refused, Problem)
            assert refused.code == "limit"
            async with replica(server) as other:
                assert isinstance(await other.opened("b", "s4", bob), Opened)
        while len(server.service.accounts):  # Each connection gives back its share.
            await asyncio.sleep(0.01)

    play(tmp_path, limits(token={"connections": 2}), story)


def test_spaces_without_a_commit_are_few_for_one_user_and_keep_none_from_their_own(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        directory.space("old").fork("b")  # It has a file.

    async def story(server: Server) -> None:
        ann = new_token(tmp_path, "ann")
        async with replica(server) as one, replica(server) as two, replica(server) as three:
            assert isinstance(await one.opened("new", "s", ann), Opened)
            refused = await two.opened("newer", "s", ann)
            assert isinstance(refused, Problem)
            assert refused.code == "limit"
            assert isinstance(await three.opened("old", "s", ann), Opened)

    bounds = replace(limits(token={"spaces": 1}), spaces=1, unwritten_spaces=1)
    play(tmp_path, bounds, story)


def test_questions_to_a_busy_space_keep_no_other_space_from_its_answers(tmp_path: Path) -> None:
    """More questions than the process has threads for calls wait for one space."""
    with Directory(tmp_path) as directory:
        for name in ("busy", "quiet"):
            directory.space(name).fork("b")

    async def story(server: Server) -> None:
        token = new_token(tmp_path, "root")
        go_on = threading.Event()

        def block(_: Engine, __: Hub) -> None:
            go_on.wait()

        spaces = server.service.spaces
        await spaces.enter("busy", visits=True)
        spaces.host_of("busy").ask(block, lambda _: None, lambda _: None)
        try:
            waiting = [
                asyncio.create_task(question(server, token, {"what": "log", "space": "busy"})) for _ in range(40)
            ]
            while len(waiting) > 16:
                done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    status, told = each.result()
                    assert (status, told["kind"]) == (400, "LimitError")
                waiting = list(rest)
            status, _ = await question(server, new_token(tmp_path, "owner"), {"what": "log", "space": "quiet"})
            assert status == 200
        finally:
            go_on.set()
        for each in waiting:
            assert (await each)[0] == 403

    async def run() -> None:
        new_key(tmp_path)
        server = Server(
            tmp_path, port=0, owner="owner", classes=(), limits=replace(DEFAULT_SERVER_LIMITS, space_questions=16)
        )
        running = asyncio.create_task(server.run_until_stopped())
        try:
            async with asyncio.timeout(WITHIN_S):
                await story(server)
        finally:
            server.stop()
            await running

    asyncio.run(run())


# ---- accounts ------------------------------------------------------------------------------------------


def test_trusted_users_are_not_bounded_and_empty_accounts_are_dropped() -> None:
    small = Budget(connections=1, message_bytes=1, body_bytes=1, seconds=1.0, questions=1, spaces=1)
    accounts = Accounts(replace(DEFAULT_SERVER_LIMITS, token=small, right=small), ["owner"])
    for _ in range(3):
        accounts.connect("owner")
        accounts.enter_space("owner", f"s{_}", is_written=False)
    accounts.connect("ann")
    with pytest.raises(LimitError):
        accounts.connect("ann")
    accounts.enter_space("ann", "a", is_written=True)
    with pytest.raises(LimitError):
        accounts.enter_space("ann", "a", is_written=True)
    with pytest.raises(LimitError):
        accounts.enter_space("ann", "b", is_written=True)
    with accounts.question("ann"), pytest.raises(LimitError), accounts.question("ann"):
        pass
    accounts.leave_space("ann", "a")
    accounts.disconnect("ann")
    assert len(accounts) == 1
