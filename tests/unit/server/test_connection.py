"""What a server does with peers that misbehave, are slow, or come at the wrong time; and how it ends."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from headwater.data.patch import append, replace
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.sync.hub import Hub
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import (
    Encoding,
    FromReplica,
    Hello,
    Open,
    Opened,
    Problem,
    Selector,
    Sync,
    Transact,
    Unwatch,
    Verdicts,
    Watch,
    Watched,
    Welcome,
    decode_from_engine,
    encode,
)
from headwater.protocol.verdict import Accepted
from headwater.runtime.channel.websocket import PATH, WebSocket
from headwater.server.operation.health import Phase
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from headwater.server.server import Server
from tests.unit.runtime.kit import SPACE, Rig, address, doc, run, serving

HELLO = Hello((1,), ("waves",))
OPEN = Open(SPACE, "s", "", "t")


def served(folder: Path, tell: Callable[[Server], Any], limits: ServerLimits = DEFAULT_SERVER_LIMITS) -> None:
    async def play() -> None:
        async with serving(folder, insecure_local=True, limits=limits) as server:
            await tell(server)
            await close_all()

    run(play)


SOCKETS: list[ClientConnection] = []


async def close_all() -> None:
    while SOCKETS:
        await SOCKETS.pop().close()


class Raw:
    """A client that says whatever it likes."""

    def __init__(self, socket: ClientConnection, encoding: Encoding) -> None:
        self.socket = socket
        self.encoding: Encoding = encoding

    async def say(self, *messages: FromReplica | bytes | str) -> None:
        for message in messages:
            if isinstance(message, bytes | str):
                await self.socket.send(message)
            else:
                data = encode(message, self.encoding)
                await self.socket.send(data if self.encoding == "msgpack" else data.decode())

    async def hear(self) -> Any:
        data = await self.socket.recv()
        return decode_from_engine(data if isinstance(data, bytes) else data.encode(), self.encoding)

    async def problem(self) -> Problem:
        """The next problem; then the connection is closed."""
        while True:
            message = await self.hear()
            if isinstance(message, Problem):
                break
        with pytest.raises(ConnectionClosed):
            await self.socket.recv()
        return message


async def raw(server: Server, encoding: Encoding = "msgpack", **options: Any) -> Raw:
    name = Subprotocol(f"headwater.v1.{encoding}")
    SOCKETS.append(await connect(address(server) + PATH, subprotocols=[name], compression=None, **options))
    return Raw(SOCKETS[-1], encoding)


async def opened(server: Server, key: str = "s", **options: Any) -> Raw:
    peer = await raw(server, **options)
    await peer.say(HELLO, Open(SPACE, key, "", "t"))
    assert isinstance(await peer.hear(), Welcome)
    assert isinstance(await peer.hear(), Opened)
    return peer


def accepted(data: bytes | str) -> list[int]:
    message = decode_from_engine(data if isinstance(data, bytes) else data.encode())
    return [v.seq for v in message.verdicts if isinstance(v, Accepted)] if isinstance(message, Verdicts) else []


def write(local_seq: int, id: str = "d", value: object = None) -> Transact:
    return Transact((Commit(local_seq, (Operation(doc(id), (replace((), value or {"n": local_seq}),)),)),))


def test_small_answers_do_not_wait_until_the_ones_before_were_acknowledged(tmp_path: Path) -> None:
    """Otherwise each would come 40 ms late, which is how long a machine takes to acknowledge what it got."""

    async def tell(server: Server) -> None:
        await opened(server)
        sockets = [each.transport.get_extra_info("socket") for each in server.server_state.connections]
        assert sockets
        assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)

    served(tmp_path, tell)


# ---- peers outside the protocol ------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((OPEN,), "first message is Hello"),
        ((Unwatch(1),), "Send Hello, then Open"),
        ((HELLO, HELLO), "hello once"),
        ((HELLO, Unwatch(1)), "Send Hello, then Open"),
        ((Hello((7,)),), "speaks version 1"),
        ((Hello(()),), "speaks version 1"),
        ((HELLO, Open("No Such Name!", "s", "", "t")), "cannot name a space"),
        ((HELLO, Open("../x", "s", "", "t")), "cannot name a space"),
        ((HELLO, OPEN, OPEN), "opens one session"),
        ((HELLO, OPEN, Open("other", "s", "", "t")), "is in space"),
        ((HELLO, OPEN, Transact(())), "at least one commit"),
        ((HELLO, OPEN, Transact((Commit(0),))), "local_seq"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_how_and_closed(
    tmp_path: Path, encoding: Encoding, said: tuple[FromReplica, ...], words: str
) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server, encoding)
        await peer.say(*said)
        problem = await peer.problem()
        assert words in problem.message, problem
        assert problem.fatal
        after = await opened(server, key="another")  # the server is as good as before
        await after.say(write(1))
        assert isinstance(await after.hear(), Verdicts)

    served(tmp_path, tell)


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
@pytest.mark.parametrize("data", [b"", b"\xc1", b"[]", b"{}", b'["hello"]', b'["nonsense",1]', b"\xff" * 100])
def test_bytes_that_are_no_message_are_told_so(tmp_path: Path, encoding: Encoding, data: bytes) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server, encoding)
        await peer.say(data if encoding == "msgpack" else data.decode("latin-1"))
        problem = await peer.problem()
        assert problem.code == "protocol"
        assert "not a message of the protocol" in problem.message

    served(tmp_path, tell)


def test_the_wrong_kind_of_frame_is_told_so(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server)
        await peer.say('["hello",[1]]')
        assert "binary frames" in (await peer.problem()).message
        peer = await raw(server, "json")
        await peer.say(b"x")
        assert "text frames" in (await peer.problem()).message

    served(tmp_path, tell)


def test_a_connection_without_a_sub_protocol_is_refused_with_the_names_of_ours(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        with pytest.raises(InvalidStatus) as caught:
            await connect(address(server) + PATH)
        assert caught.value.response.status_code == 400
        assert b"headwater.v1.msgpack" in (caught.value.response.body or b"")

    served(tmp_path, tell)


def test_a_message_over_the_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await opened(server)
        await peer.say(Watch(1, tuple(Selector(doc(f"d{n}")) for n in range(150))))
        problem = await peer.problem()
        assert problem.code == "limit"
        assert "limit of 1000" in problem.message
        peer = await opened(server, key="other")
        await peer.say(write(1, value="x" * 20_000))  # Not even read to its end.
        with pytest.raises(ConnectionClosed):
            await peer.socket.recv()

    served(
        tmp_path,
        tell,
        changed(
            DEFAULT_SERVER_LIMITS, message_bytes=1_000, right=changed(DEFAULT_SERVER_LIMITS.right, message_bytes=5_000)
        ),
    )


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server)
        assert "no Hello came within 0.05 s" in (await peer.problem()).message

    served(tmp_path, tell, changed(DEFAULT_SERVER_LIMITS, nothing=changed(DEFAULT_SERVER_LIMITS.nothing, seconds=0.05)))


def test_too_many_connections_are_asked_to_come_later(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        first, second = await opened(server, key="a"), await opened(server, key="b")
        with pytest.raises(InvalidStatus) as caught:
            await raw(server)
        assert caught.value.response.status_code == 503
        await first.socket.close()
        while len(server.acceptor.connections) > 1:
            await asyncio.sleep(0)
        await opened(server, key="c")
        await second.say(write(1))
        assert isinstance(await second.hear(), Verdicts)

    served(tmp_path, tell, changed(DEFAULT_SERVER_LIMITS, connections=2))


def test_too_many_spaces_make_room_or_are_refused(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        first = await raw(server)
        await first.say(HELLO, Open("one", "s", "", "t"))
        await first.hear()
        assert isinstance(await first.hear(), Opened)
        second = await raw(server)
        await second.say(HELLO, Open("two", "s", "", "t"))
        problem = await second.problem()
        assert problem.code == "limit"
        await first.socket.close()
        while server.acceptor.connections:
            await asyncio.sleep(0)
        third = await raw(server)
        await third.say(HELLO, Open("two", "s", "", "t"))
        await third.hear()
        assert isinstance(await third.hear(), Opened)
        assert list(server.service.spaces.hosts()) == ["two"]

    served(tmp_path, tell, changed(DEFAULT_SERVER_LIMITS, unwritten_spaces=1))


# ---- fast and slow peers -------------------------------------------------------------------------------


def test_a_fast_sender_is_slowed_and_everything_lands(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await opened(server)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await peer.say(*(write(n) for n in range(1, 61)))
        answered = 0
        while answered < 60:
            message = await peer.hear()
            answered += len(message.verdicts) if isinstance(message, Verdicts) else 0
        assert loop.time() - began > 0.15  # 40 messages past the burst, 200 a second

    served(tmp_path, tell, changed(DEFAULT_SERVER_LIMITS, rate=200, burst=20))


def test_a_peer_that_does_not_read_is_closed_and_costs_bounded_memory(tmp_path: Path) -> None:
    limits = changed(
        DEFAULT_SERVER_LIMITS, outgoing_bytes=200_000, engine=changed(DEFAULT_LIMITS, sync_window=1_000_000)
    )

    async def tell(server: Server) -> None:
        lazy = await opened(server, key="lazy", max_queue=1)
        await lazy.say(Watch(1, (Selector(doc("big")),)))
        assert isinstance(await lazy.hear(), Watched)
        lazy.socket.transport.pause_reading()
        SOCKETS.remove(lazy.socket)  # It could not be closed in order.
        busy = await opened(server, key="busy")
        held = 0
        for n in range(1, 2_000):
            await busy.say(write(n, "big", {"n": n, "text": "x" * 20_000}))
            while not isinstance(await busy.hear(), Verdicts):
                pass
            held = max(held, *(connection.queued_bytes for connection in server.acceptor.connections))
            if len(server.acceptor.connections) == 1:
                break
        assert len(server.acceptor.connections) == 1
        assert held < 300_000
        assert server.service.metrics.registry.get_sample_value("headwater_slow_consumers_total") == 1
        lazy.socket.transport.abort()

    served(tmp_path, tell, limits)


# ---- looking after it ----------------------------------------------------------------------------------


def fetched(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.address[1]}{path}") as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_readiness_and_metrics_can_be_asked_for(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await opened(server)
        await peer.say(write(1))
        assert isinstance(await peer.hear(), Verdicts)
        assert await asyncio.to_thread(fetched, server, "/healthz") == (200, "ok\n")
        assert await asyncio.to_thread(fetched, server, "/readyz") == (200, "ok\n")
        status, page = await asyncio.to_thread(fetched, server, "/metrics")
        assert status == 200
        for line in (
            "headwater_connections 1.0",
            'headwater_verdicts_total{verdict="accepted"} 1.0',
            "headwater_spaces_open 1.0",
            "headwater_messages_in_total 3.0",
        ):
            assert line in page.splitlines()
        server.service.health.phase = Phase.STOPPING
        assert (await asyncio.to_thread(fetched, server, "/readyz"))[0] == 503
        assert (await asyncio.to_thread(fetched, server, "/nowhere"))[0] == 404

    served(tmp_path, tell)


def test_a_shutdown_answers_what_it_accepted(tmp_path: Path) -> None:
    async def play() -> None:
        answered: list[int] = []
        async with serving(tmp_path, insecure_local=True) as server:
            peers = [await opened(server, key=f"s{n}") for n in range(4)]
            for peer in peers:
                await peer.say(*(write(n, value={"by": peer.socket.id.hex, "n": n}) for n in range(1, 51)))
            while server.service.spaces.host_of(SPACE).messages < 4:
                await asyncio.sleep(0)
        for peer in peers:
            async for data in peer.socket:  # Ends without an error after code 1000 or 1001 only.
                answered += accepted(data)
            assert peer.socket.close_code == 1001
        async with serving(tmp_path, insecure_local=True) as server:
            await opened(server, key="after")
            await close_all()
            last = server.service.spaces.host_of(SPACE).call(lambda engine, hub: engine.last_seq)
        # Every commit in the log was answered, and every answer is in the log. One is the founding, which may not come
        # before the shutdown.
        assert len(answered) == max(0, last - 1)
        assert set(answered) <= set(range(1, last + 1))

    run(play)


def test_a_server_that_comes_back_finds_its_clients_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            port = server.address[1]
            rig = Rig(WebSocket(address(server)), lambda work: None)
            ann = rig.client("ann")
            await ann.create("d", {"l": []})
            await ann.driver.loaded(doc())
        write_ = asyncio.ensure_future(ann.write("d", append(("l",), [1])))
        await asyncio.sleep(0)
        assert ann.shown("d") == {"l": (1,)}
        again = Server(tmp_path, port=port, insecure_local=True)
        task = asyncio.ensure_future(again.run_until_stopped())
        await write_
        assert ann.shown("d") == {"l": (1,)}
        await rig.close()
        again.stop()
        await task

    run(play)


def test_a_space_whose_host_failed_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        monkeypatch.undo()
        raise AssertionError("a bug")

    async def tell(server: Server) -> None:
        rig = Rig(WebSocket(address(server)), lambda work: None)
        ann = rig.client("ann")
        await ann.create("d", {"l": []})
        host = server.service.spaces.host_of(SPACE)
        monkeypatch.setattr(Hub, "process", broken)
        await ann.write("d", append(("l",), [1]))
        assert host.failed is not None
        assert server.service.spaces.host_of(SPACE) is not host
        await ann.driver.loaded(doc())
        assert ann.shown("d") == {"l": (1,)}
        await rig.close()

    served(tmp_path, tell)


def test_a_sync_reaches_everybody_who_watches(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peers = [await opened(server, key=f"s{n}") for n in range(10)]
        for peer in peers:
            await peer.say(Watch(1, (Selector(doc()),)))
            while not isinstance(await peer.hear(), Watched):
                pass
        await peers[0].say(write(1))
        for peer in peers[1:]:
            message = await peer.hear()
            assert isinstance(message, Sync)
            assert [change.doc for change in message.changes] == [doc()]

    served(tmp_path, tell)
