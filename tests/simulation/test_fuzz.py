"""Frames that no honest peer sends: mutated messages in odd orders, and noise.

Whatever comes, nothing but the project's own errors leaves the engine's end, a refused frame changes nothing, what was
accepted is exactly what was answered, and the next honest peer is served as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from headwater.clock import VirtualClock
from headwater.data.address import Depth, DocKey, Link
from headwater.data.patch import Patch, add, append, increment, remove, replace
from headwater.engine import Engine, InlineHost, Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import verify_file
from headwater.errors import AccessError, HeadwaterError
from headwater.protocol.commit import Commit, EntityAbsent, LeaseHeld, Operation, OriginCommitted, Read, SentEvent
from headwater.protocol.messages import (
    Ack,
    Bye,
    Encoding,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Opened,
    Problem,
    Query,
    Renew,
    Selector,
    Transact,
    Unwatch,
    Verdicts,
    Watch,
    decode_from_engine,
    decode_from_replica,
    encode,
)
from headwater.protocol.verdict import Accepted
from headwater.runtime import ConnectionEnd, WebSocket
from tests.counts import scaled, seldom
from tests.unit.runtime.kit import Rig, address, run, serving

FRAMES = 100_000
FRAMES_ON_A_SOCKET = 5_000
PARTS = 2
SPACE = "shop"
LIMITS = Limits(watches=40, watch_selectors=10, commit_bytes=20_000, frame_commits=5, in_flight=64, query_documents=10)
USERS = ("ann", "bob", "sid")
DOCS = tuple(DocKey("space", f"d{n}") for n in range(4))

JUNK: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(math.inf, -math.inf, math.nan, 1.5, "", "x", "\x00", "$link", "é" * 50, "x" * 10_000, b"", b"\xff" * 9),
    *([], {}, [[]], [None] * 40, {"": {"": {}}}, {"$bytes": 1}, {"$link": []}, "space", "hello", "transact"),
    *(msgspec.msgpack.Ext(1, b""), msgspec.msgpack.Ext(1, b"\x94\xc0\xa1x\xa1y\x90"), msgspec.msgpack.Ext(77, b"x")),
)


class Fuzzer:
    """Draws messages: good ones for the state the peer is in, and what becomes of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.next_local_seq: Counter[str] = Counter()

    def message(self, session: str, seq: int) -> FromReplica:
        draw = self.random
        match draw.choices(range(9), (1, 2, 12, 3, 2, 3, 3, 0.3, 0.3))[0]:
            case 0:
                return Hello((draw.choice((1, 1, 1, 2)),), ("waves",), draw.choice((*USERS, *USERS, "nobody", "")))
            case 1:
                space = draw.choice((SPACE, SPACE, SPACE, "other", "NO"))
                resume = draw.choice((f"t{session}", f"t{session}", "", "x"))
                return Open(space, session, resume, f"t{session}", seen=draw.randint(0, seq), acked=draw.randint(0, 2))
            case 2:
                return Transact(tuple(self.commit(session, seq) for _ in range(draw.choice((1, 1, 1, 2, 6)))))
            case 3:
                docs = [*DOCS, DocKey("user:ann", "x"), DocKey("session:s1.0", "x"), DocKey("space", "$access")]
                chosen = draw.choices(docs, k=draw.randint(0, 12))
                return Watch(draw.randint(1, 9), tuple(Selector(doc, draw.random() < 0.3) for doc in chosen))
            case 4:
                return Unwatch(draw.randint(1, 9))
            case 5:
                at = draw.choice((None, 0, 1, seq, seq + 1))
                return Query(draw.randint(1, 9), draw.choice(("space", "user:bob", "")), draw.choice(("", "d1")), at)
            case 6:
                return Ack(draw.randint(0, seq), draw.randint(0, max(0, self.next_local_seq[session] - 3)))
            case 7:
                return Bye(draw.randint(0, 3))
            case _:
                return Renew(draw.choice((*USERS, "nobody", "")))

    def commit(self, session: str, seq: int) -> Commit:
        draw = self.random
        self.next_local_seq[session] += draw.choice((1, 1, 1, 1, 0, 2))
        number = self.next_local_seq[session]
        docs = draw.sample(DOCS, draw.randint(0, 2))
        reads = tuple(
            Read(doc, draw.choice(((), ("a",), ("l", 0))), draw.choice((Depth.DEEP, Depth.SHAPE)), draw.randint(0, seq))
            for doc in draw.sample(DOCS, draw.randint(0, 2))
        )
        if draw.random() < 0.2 and number > 1:
            reads += (Read(DOCS[0], (), Depth.DEEP, seq, ((number - 1, number - 1),)),)
        preconditions: tuple[Any, ...] = ()
        if draw.random() < 0.1:
            preconditions = (
                draw.choice(
                    (EntityAbsent(DOCS[3]), OriginCommitted(number - 1), LeaseHeld("lease", draw.randint(0, 2)))
                ),
            )
        events = (SentEvent(f"e{draw.randint(0, 99)}", "s", {"n": 1}, draw.randint(0, 5)),) * (draw.random() < 0.1)
        operations = tuple(Operation(doc, (self.patch(),)) for doc in docs)
        return Commit(number, operations, reads, preconditions, draw.choice(("main",) * 9 + ("b",)), events)

    def patch(self) -> Patch:
        draw = self.random
        return draw.choice(
            (
                replace((), {"a": draw.randint(0, 9), "l": [1, 2], "to": Link(id="d2")}),
                replace(("a",), draw.randint(0, 9)),
                add((f"k{draw.randint(0, 3)}",), "x" * draw.choice((1, 10, 10, 10, 30_000))),
                append(("l",), [draw.randint(0, 9)], keep=8),
                increment(("a",), 1),
                remove(("a",)),
            )
        )

    # ---- what becomes of them ----------------------------------------------------------------------

    def bytes_of(self, message: FromReplica, encoding: Encoding) -> bytes:
        """The message as it is, mutated as a structure, mutated as bytes, or noise instead of it."""
        draw = self.random
        data = encode(message, encoding)
        fate = draw.random()
        if fate < 0.45:
            return data
        if fate < 0.8:
            return self.mutated(data, encoding)
        if fate < 0.93:
            return self.spoiled(data)
        if fate < 0.935:
            return (b"[" if encoding == "json" else b"\x91") * draw.choice((1_000, 50_000))
        return draw.randbytes(draw.choice((0, 1, 2, 7, 40, 400)))

    def mutated(self, data: bytes, encoding: Encoding) -> bytes:
        plain = msgspec.json.decode(data) if encoding == "json" else msgspec.msgpack.decode(data)
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            plain = self._changed(plain)
        if encoding == "msgpack":
            return msgspec.msgpack.encode(plain, enc_hook=str)
        return msgspec.json.encode(plain, enc_hook=str)

    def _changed(self, node: Any) -> Any:
        """One random place of a structure, changed."""
        draw = self.random
        if isinstance(node, list) and node and draw.random() < 0.85:
            place = draw.randrange(len(node))
            match draw.choices(range(6), (8, 1, 1, 1, 1, 0.3))[0]:
                case 0:
                    node[place] = self._changed(node[place])
                case 1:
                    del node[place]
                case 2:
                    node.insert(place, deepcopy(draw.choice(JUNK)))
                case 3:
                    node.append(deepcopy(node[place]))
                case 4:
                    draw.shuffle(node)
                case _:
                    node[place] = _deep(draw.choice((10, 100, 300)))
            return node
        if isinstance(node, dict) and node and draw.random() < 0.7:
            key = draw.choice(list(node))
            node[key] = self._changed(node[key])
            return node
        if type(node) is int and draw.random() < 0.5:
            return max(-(2**63), min(node + draw.choice((-1, 1, 1_000, -1_000)), 2**64 - 1))
        return deepcopy(draw.choice(JUNK))

    def spoiled(self, data: bytes) -> bytes:
        draw = self.random
        spoiled = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 8))):
            if spoiled:
                spoiled[draw.randrange(len(spoiled))] = draw.randrange(256)
        if draw.random() < 0.3:
            del spoiled[draw.randrange(len(spoiled) + 1) :]
        return bytes(spoiled)


def _deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


class Peer:
    """One connection of the fuzzer."""

    def __init__(self, host: InlineHost, session: str, encoding: Encoding) -> None:
        self.session = session
        self.encoding: Encoding = encoding
        self.told: list[FromEngine] = []
        self.connection_end = ConnectionEnd(self.told.append, authenticate, lambda _: host, LIMITS)

    def is_over(self) -> bool:
        return any(isinstance(message, Problem) and message.fatal for message in self.told)


def authenticate(token: str) -> str:
    if token not in USERS:
        raise AccessError("no such user")
    return token


class World:
    """A space in which everything is known that was accepted."""

    def __init__(self, file: Path) -> None:
        clock = VirtualClock()
        self.engine = Engine(SqliteStore(file, synchronous="OFF"), clock=clock, limits=LIMITS, access=True)
        self.host = InlineHost(self.engine, clock=clock, limits=LIMITS)
        self.accepted = 0
        self.refused = 0

    def state(self) -> list[Any]:
        found = [self.engine.read(doc) for doc in DOCS]
        return [self.engine.last_seq, *((document.seq, document.value) for document in found)]

    def give(self, peer: Peer, data: bytes) -> None:
        before = self.state()
        peer.told.clear()
        landed = 0
        error: HeadwaterError | None = None
        try:
            peer.connection_end.receive(decode_from_replica(data, peer.encoding, LIMITS.values))
        except HeadwaterError as refusal:  # and nothing else
            error = refusal
            peer.told.append(Problem("protocol", str(refusal)))
        for message in peer.told:
            if self.refused % 8 == 0:  # costs more than everything else here
                assert decode_from_engine(encode(message, peer.encoding), peer.encoding) is not None
            if isinstance(message, Verdicts):
                landed += sum(isinstance(v, Accepted) and not v.replayed for v in message.verdicts)
        self.accepted += landed
        self.refused += error is not None or peer.is_over()
        if not landed:
            assert self.state()[1:] == before[1:], (data, peer.told)


def peers(world: World, fuzzer: Fuzzer) -> Iterator[Peer]:
    """Connections, most of them with an open session. A session that cannot be opened any more has a successor."""
    generation: Counter[int] = Counter()
    while True:
        number = fuzzer.random.randint(0, 4)
        encoding: Encoding = fuzzer.random.choice(("msgpack", "json"))
        session = f"s{number}.{generation[number]}"
        peer = Peer(world.host, session, encoding)
        if fuzzer.random.random() < 0.9:
            world.give(peer, encode(Hello((1,), (), "ann"), encoding))
            world.give(peer, encode(Open(SPACE, session, f"t{session}", f"t{session}"), encoding))
            if not any(isinstance(message, Opened) for message in peer.told):
                generation[number] += 1
                session = f"s{number}.{generation[number]}"
                peer = Peer(world.host, session, encoding)
                world.give(peer, encode(Hello((1,), (), "ann"), encoding))
                world.give(peer, encode(Open(SPACE, session, "", f"t{session}"), encoding))
        yield peer


@pytest.mark.random
@pytest.mark.parametrize("part", range(PARTS))
def test_no_frame_breaks_the_engine_s_end_or_changes_what_it_should_not(tmp_path: Path, part: int) -> None:
    world = World(tmp_path / "shop.space")
    fuzzer = Fuzzer(part)
    coming = peers(world, fuzzer)
    open_peers = [next(coming) for _ in range(4)]
    count = max(500, seldom(FRAMES) // PARTS)
    for _ in range(count):
        place = fuzzer.random.randrange(len(open_peers))
        peer = open_peers[place]
        if peer.is_over() or fuzzer.random.random() < 0.01:
            peer.connection_end.lost()
            peer = open_peers[place] = next(coming)
        message = fuzzer.message(peer.session, world.engine.last_seq)
        world.give(peer, fuzzer.bytes_of(message, peer.encoding))
    # The log holds what was answered with yes, and the founding of the space, and nothing else.
    assert world.engine.last_seq == world.accepted + 1
    assert world.accepted > count // 200
    assert world.refused > count // 10
    honest = Peer(world.host, "honest", "msgpack")
    commit = Commit(1, (Operation(DOCS[0], (replace((), "fine"),)),))
    for message in (Hello((1,), (), "ann"), Open(SPACE, "honest", "", "t"), Transact((commit,))):
        world.give(honest, encode(message))
    assert world.engine.read(DOCS[0]).value == "fine", honest.told
    world.engine.close()
    assert verify_file(tmp_path / "shop.space").ok


@pytest.mark.random
def test_no_frame_brings_a_server_down(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            count = scaled(FRAMES_ON_A_SOCKET)
            await asyncio.gather(*(noise(address(server), seed, count // 4 + 1) for seed in range(4)))
            rig = Rig(WebSocket(address(server)), lambda work: None)
            honest = rig.client("honest", space=SPACE)
            await honest.create("fine", {"n": 1})
            await honest.count_up("fine")
            assert honest.shown("fine") == {"n": 2}
            await rig.close()

    run(story, scaled(FRAMES_ON_A_SOCKET) // 20 + 30)
    logged = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert "listening" in logged
    assert "space failed" not in logged


async def noise(url: str, seed: int, frames: int) -> None:
    """One connection after the other, each until the server has had enough of it."""
    fuzzer = Fuzzer(1_000 + seed)
    left = frames
    while left > 0:
        encoding: Encoding = fuzzer.random.choice(("msgpack", "json"))
        session = f"s{seed}"
        try:
            async with connect(f"{url}/v1/sync", subprotocols=[Subprotocol(f"headwater.v1.{encoding}")]) as socket:
                left -= 1
                hearing = asyncio.ensure_future(_hear(socket))
                for opening in (Hello((1,)), Open(SPACE, session, f"t{session}", f"t{session}")):
                    if fuzzer.random.random() < 0.8:
                        await _say(socket, encode(opening, encoding), encoding)
                for _ in range(fuzzer.random.randint(1, 60)):
                    left -= 1
                    data = fuzzer.bytes_of(fuzzer.message(session, 5), encoding)
                    await _say(socket, data, fuzzer.random.choice((encoding,) * 30 + ("msgpack", "json")))
                    if hearing.done():
                        break
                hearing.cancel()
        except (OSError, WebSocketException):
            left -= 1


async def _say(socket: Any, data: bytes, encoding: Encoding) -> None:
    await socket.send(data if encoding == "msgpack" else data.decode("utf-8", "replace"))


async def _hear(socket: Any) -> None:
    try:
        async for _ in socket:
            pass
    except ConnectionClosed:
        return
