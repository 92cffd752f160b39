"""`./dev sim --fuzz N`: messages of the protocol that no client would send, to an engine, its hub and a server.

Every message is drawn from the types of the protocol, so that new ones are covered as soon as they are there; some are
changed in places, or in their bytes. Whatever is sent, an engine answers or ends the connection, and after any accepted
commit `verify` holds, which is tried now and then; the memory of the process does not grow. Requests go to a server on
a loopback address: none is answered with 5xx, and its log names no defect. A run is repeated by its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from headwater.clock import RealClock, VirtualClock
from headwater.data.address import DocKey
from headwater.engine.admission.access import ACCESS
from headwater.engine.directory import SUFFIX, Directory
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.sync.host import InlineHost
from headwater.engine.verify.oracle import verify_file
from headwater.errors import HeadwaterError
from headwater.protocol.messages import (
    Encoding,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Opened,
    Verdicts,
    decode_from_replica,
    encode,
)
from headwater.protocol.verdict import Accepted
from headwater.runtime.channel.connection_end import ConnectionEnd
from headwater.server import DEFAULT_SERVER_LIMITS, Server, new_key, new_token
from headwater.server.operation.service import make_logger

SPACE: Final = "fuzz"
USERS: Final = ("ann", "ann", "wes", "wes", "rob", "rob", "eve")
ROLES: Final = {"owners": ["ann"], "writers": ["wes"], "readers": ["rob"]}
DOCS: Final = ("d", "e", "f", "$access", "p:@", "p:total")
SCOPES: Final = ("space", "user:ann", "user:rob", "session:s1", "session:s2")
NUMBERS: Final = (0, 1, 2, 3, 5, 17, 64, 1_000, -1, 2**31, 2**53 - 1, 2**53, 2**63 - 1, 2**63, -(2**63))
TEXTS: Final = ("", "a", "b", "main", "t", "s1", "s2", "*", "\x00", "\ud7ff", "é", "x" * 300, "/", "~1", "space:d")
KINDS: Final = (
    "replace", "add", "remove", "splice", "append", "add_unique", "add_sorted", "remove_value", "increment", "none",
)  # fmt: skip
RESET_AFTER: Final = 10_000
"""Accepted commits after which a new space is begun, so that the memory of the process does not grow with the data."""


class Finding(Exception):
    """Something that must not happen, and the message that caused it."""


class Draw:
    """Random messages of the protocol as plain values."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._types = inspect.type_info(FromReplica)
        self._depth = 0
        self.last_seq = 1

    def message(self) -> Any:
        return self._of(self._types)

    def value(self, depth: int = 0) -> Any:
        chance = self.chance
        kind = chance.randrange(10 if depth < 4 else 6)
        match kind:
            case 0 | 1:
                return chance.choice(NUMBERS)
            case 2 | 3:
                return chance.choice(TEXTS)
            case 4:
                return chance.choice((None, True, False, 0.5, -0.0, 1e308, b"", b"x"))
            case 5:
                return chance.choice((float("inf"), float("nan"), "x" * 2_000))
            case 6 | 7:
                return [self.value(depth + 1) for _ in range(chance.randrange(4))]
            case _:
                return {chance.choice(TEXTS): self.value(depth + 1) for _ in range(chance.randrange(4))}

    def plain(self) -> Any:
        """A value that an engine takes."""
        chance = self.chance
        return chance.choice((1, "a", None, True, [1, 2], {"a": 1}, {"a": [1], "b": {"a": 2}}, [{"a": 1}], 0.5, -7))

    def patch(self) -> Any:
        chance = self.chance
        if chance.random() < 0.6:
            place = chance.choice(([], [], ["a"], ["b"], ["a", "b"]))
            return chance.choice(
                (
                    ["replace", place, self.plain()],
                    ["replace", [], self.plain()],
                    ["remove", place, None],
                    ["append", place, [[self.plain()], None]],
                    ["increment", place, 1],
                )
            )
        path = [chance.choice(("a", "b", 0, 1, -1)) for _ in range(chance.choice((0, 0, 1, 1, 2, 3)))]
        kind = chance.choice(KINDS)
        arg = chance.choice((1, 0.5, -3)) if kind == "increment" else self.value(2)
        if kind in ("append", "add_sorted"):
            arg = [[self.value(3)], None] if chance.random() < 0.8 else arg
        elif kind == "splice":
            arg = [chance.randrange(3), chance.randrange(3), [self.value(3)]] if chance.random() < 0.8 else arg
        return [kind, path, arg]

    def commit(self, local_seq: int) -> Any:
        """A commit that may well be accepted."""
        chance = self.chance
        operations = [
            [["space", id], [self.patch() for _ in range(chance.choice((1, 1, 1, 2)))]]
            for id in chance.sample(DOCS[:3] + DOCS[4:], chance.choice((1, 1, 1, 2, 3)))
        ]
        reads = [
            [["space", chance.choice(DOCS)], [], "deep", max(0, self.last_seq - chance.randrange(3)), []]
            for _ in range(chance.choice((0, 0, 1, 2)))
        ]
        made = [local_seq, operations, reads]
        if chance.random() < 0.2:
            event = [f"e{chance.randrange(10_000)}", "p.go", self.value(2), chance.choice((0, 0, 10**15))]
            made += [[], "main", [event]]
        return made

    def _of(self, kind: inspect.Type) -> Any:
        chance = self.chance
        if chance.random() < 0.02:
            return self.value()
        self._depth += 1
        try:
            match kind:
                case inspect.UnionType():
                    return self._of(chance.choice(kind.types))
                case inspect.StructType() | inspect.NamedTupleType():
                    if isinstance(kind, inspect.NamedTupleType) and kind.cls is DocKey:
                        return [chance.choice(SCOPES), chance.choice(DOCS)]
                    if isinstance(kind, inspect.NamedTupleType):
                        return self.patch()
                    fields = [self._of(field.type) for field in kind.fields]
                    head = [kind.tag] if kind.tag is not None else []
                    return [
                        *head,
                        *fields[: len(fields) if chance.random() < 0.95 else chance.randrange(len(fields) + 1)],
                    ]
                case inspect.VarTupleType():
                    most = 3 if self._depth < 6 else 1
                    return [self._of(kind.item_type) for _ in range(chance.choice((0, 1, 1, most)))]
                case inspect.TupleType():
                    return [self._of(each) for each in kind.item_types]
                case inspect.LiteralType():
                    return chance.choice(kind.values)
                case inspect.EnumType():
                    return chance.choice([each.value for each in kind.cls])
                case inspect.IntType():
                    return chance.choice((*NUMBERS[:6], self.last_seq, chance.choice(NUMBERS)))
                case inspect.BoolType():
                    return chance.random() < 0.5
                case inspect.BytesType():
                    return chance.choice((b"", b"x" * 16, bytes(chance.randrange(256) for _ in range(8))))
                case inspect.StrType():
                    return chance.choice((*TEXTS[:7], chance.choice(DOCS), chance.choice(TEXTS)))
                case inspect.NoneType():
                    return None
                case _:
                    return self.value()
        finally:
            self._depth -= 1

    def changed(self, data: bytes) -> bytes:
        """Change some bytes of a message."""
        chance = self.chance
        found = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(found) + 1)
            match chance.randrange(3):
                case 0 if at < len(found):
                    found[at] = chance.randrange(256)
                case 1:
                    found[at:at] = bytes([chance.randrange(256)])
                case _:
                    del found[at : at + chance.choice((1, 1, 5))]
        return bytes(found)


class EngineFuzz:
    """An engine of a space in a file, and connections of users with different rights."""

    def __init__(self, folder: Path, draw: Draw, verify_every: int) -> None:
        self._folder = folder
        self._draw = draw
        self._verify_every = verify_every
        self._unverified = 0
        self._number = 0
        self.sent = 0
        self.accepted = 0
        self.verified = 0
        self._begin()

    def step(self) -> None:
        """Send one message. Raises Finding."""
        chance, draw = self._draw.chance, self._draw
        at = chance.randrange(len(self._ends))
        user, end, session = self._ends[at]
        encoding: Encoding = "msgpack"
        if end.is_open and chance.random() < (0.8 if user in ("ann", "wes") else 0.2):
            self._local[session] = self._local.get(session, 0) + 1
            raw: Any = ["transact", [draw.commit(self._local[session])], []]
        else:
            raw = draw.message()
        try:
            data = msgspec.msgpack.encode(raw)
            if chance.random() < 0.1:
                data, encoding = msgspec.json.encode(raw), "json"
        except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError):
            return  # It cannot even be written.
        if chance.random() < 0.1:
            data = draw.changed(data)
        self.sent += 1
        try:
            message = decode_from_replica(data, encoding, DEFAULT_LIMITS.values)
            end.receive(message)
        except HeadwaterError:
            end.lost()
            self._connect(at, user)
        except Exception as error:
            raise Finding(f"{type(error).__name__}: {error} after {raw!r} of {user!r}") from error
        else:
            if end.peer.is_closed():
                end.lost()
                self._connect(at, user)
        if self._unverified >= self._verify_every:
            self.verify()

    def verify(self) -> None:
        """Close the space, check its file, and open it again."""
        self._host.close()
        self._unverified = 0
        self.verified += 1
        report = verify_file(self._file)
        if report.violation is not None:
            raise Finding(f"verify: {report.violation.rule} at seq {report.violation.seq}: {report.violation.message}")
        self._directory.close()
        if report.commits >= RESET_AFTER:
            self._number += 1
        self._begin()

    def close(self) -> None:
        self._host.close()
        self._directory.close()

    @property
    def _file(self) -> Path:
        return self._folder / str(self._number) / f"{SPACE}{SUFFIX}"

    def _begin(self) -> None:
        self._directory = Directory(self._folder / str(self._number), access=True, synchronous="OFF")
        engine = self._directory.open_engine(SPACE)
        if not engine.last_seq:
            engine.open_session("root", "")
            commit = [1, [[list(ACCESS), [["replace", [], ROLES]]]], []]
            (frame,) = [decode_from_replica(msgspec.msgpack.encode(["transact", [commit], []]))]
            engine.submit("root", *frame.commits)  # type: ignore[union-attr]
        self._engine = engine
        self._host = InlineHost(engine, clock=VirtualClock())
        self._local: dict[str, int] = {}
        self._ends: list[tuple[str, ConnectionEnd, str]] = []
        for at, user in enumerate(USERS):
            self._connect(at, user)

    def _connect(self, at: int, user: str) -> None:
        session = f"s{self._draw.chance.getrandbits(48):x}"
        end = ConnectionEnd(self._hear, lambda token: token, lambda _: self._host, DEFAULT_LIMITS)
        made = (user, end, session)
        if at < len(self._ends):
            self._ends[at] = made
        else:
            self._ends.append(made)
        try:
            end.receive(Hello((1,), token=user))
            end.receive(Open(SPACE, session, "", "t"))
        except HeadwaterError as error:
            raise Finding(f"a good client cannot connect any more: {error}") from error

    def _hear(self, message: FromEngine) -> None:
        encode(message)  # Whatever the hub says has to be writable.
        if isinstance(message, Verdicts):
            landed = [verdict for verdict in message.verdicts if isinstance(verdict, Accepted)]
            self.accepted += len(landed)
            self._unverified += len(landed)
            if landed:
                self._draw.last_seq = landed[-1].seq
        elif isinstance(message, Opened):
            self._draw.last_seq = max(1, message.seq)


COMMANDS: Final = ("log", "why", "graph", "get", "set", "send", "branch", "intents", "nodes", "backlog", "reactions")
HEADERS: Final = ("host", "origin", "content-length", "transfer-encoding", "authorization", "upgrade", "range")
TEXTS_OF_HEADERS: Final = ("127.0.0.1", "[", "http://[", "websocket", "chunked", "-1", "bytes=0-", "\xff", "a" * 5_000)
PATHS: Final = ("/", "/metrics", "/readyz", "/v1/desk", "/v1/sync", "/v1/page", "/headwater.js", "/%00", "/../x")
TOGETHER: Final = 16  # requests at once
QUICK: Final = replace(DEFAULT_SERVER_LIMITS, nothing=replace(DEFAULT_SERVER_LIMITS.nothing, seconds=0.2))


class RequestFuzz:
    """A server with keys on a loopback address, and requests of all kinds to it."""

    def __init__(self, folder: Path, draw: Draw) -> None:
        self._draw = draw
        self._log = io.StringIO()
        self.sent = 0
        new_key(folder)
        self._tokens = [new_token(folder, user) for user in ("ann", "eve")] + ["", "x.y.z", "\xff"]
        self.server = Server(
            folder, port=0, owner="ann", classes=(), limits=QUICK, log=make_logger(RealClock(), stream=self._log)
        )

    async def run(self, requests: int) -> None:
        running = asyncio.create_task(self.server.run_until_stopped())
        try:
            while not self.server.started:
                await asyncio.sleep(0)
            for first in range(0, requests, TOGETHER):
                asked = [self._request() for _ in range(min(TOGETHER, requests - first))]
                statuses = await asyncio.gather(*map(self._ask, asked))
                self.sent += len(asked)
                said = self._log.getvalue()
                wrong = [(status, data) for status, data in zip(statuses, asked, strict=True) if status >= 500]
                if wrong or '"error"' in said:
                    raise Finding(f"answers {wrong or asked}; the log: {said[:2_000]}")
                self._log.seek(0)
                self._log.truncate()
        finally:
            self.server.stop()
            await running

    async def _ask(self, data: bytes) -> int:
        """Send bytes, and return the status of the first answer; 0 without one."""
        reader, writer = await asyncio.open_connection(*self.server.address)
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(0.5):
                line = await reader.readline()
            return int(line.split()[1]) if line.startswith(b"HTTP/") else 0
        except (OSError, TimeoutError, ValueError, IndexError):
            return 0
        finally:
            writer.transport.abort()

    def _request(self) -> bytes:
        chance = self._draw.chance
        if chance.random() < 0.5:
            asked = {
                "what": chance.choice(COMMANDS),
                "space": chance.choice(("a", "b", "../x", "", self._draw.value())),
            }
            for name in ("place", "value", "user", "since", "limit", "branch", "at", "name", "after"):
                if chance.random() < 0.3:
                    asked[name] = self._draw.value()
            body = json.dumps(asked, default=repr).encode("utf-8", "surrogatepass")
            method, path = "POST", "/v1/desk"
        else:
            body = bytes(chance.randrange(256) for _ in range(chance.randrange(30)))
            method, path = chance.choice(("GET", "POST", "HEAD", "OPTIONS", "PUT", "XX")), chance.choice(PATHS)
        if chance.random() < 0.1:
            body = self._draw.changed(body)
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
        lines.append(f"authorization: bearer {chance.choice(self._tokens)}")
        for _ in range(chance.choice((0, 0, 1, 2))):
            lines.append(f"{chance.choice(HEADERS)}: {chance.choice(TEXTS_OF_HEADERS)}")
        data = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        return self._draw.changed(data) if chance.random() < 0.1 else data


def memory_bytes() -> int:
    """Return the memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def play(
    messages: int,
    seed: int,
    folder: Path,
    *,
    verify_every: int = 500,
    requests_every: int = 50,
    say: Callable[[str], object] = print,
) -> None:
    """Send so many messages, and requests to a server. Raises Finding."""
    draw = Draw(random.Random(seed))
    (folder / "server").mkdir()
    requests = RequestFuzz(folder / "server", draw)
    asyncio.run(requests.run(messages // requests_every))
    say(f"{requests.sent} requests: no 5xx, no defect in the log")
    engine = EngineFuzz(folder / "engine", draw, verify_every)
    began, warm = time.monotonic(), 0
    for number in range(messages):
        engine.step()
        if number == messages // 5:
            warm = memory_bytes()
        if number % 50_000 == 49_999:
            rate = (number + 1) / (time.monotonic() - began)
            say(f"{number + 1} messages, {engine.accepted} accepted, {rate:.0f} a second")
    engine.verify()
    engine.close()
    growth = memory_bytes() - warm
    if growth > 100_000_000:
        raise Finding(f"the memory of the process grew by {growth:,} bytes")
    say(
        f"{engine.sent} messages, {engine.accepted} commits accepted, verify held {engine.verified} times, "
        f"memory {growth / 1e6:+.1f} MB"
    )


def main(argv: list[str]) -> int:
    top = argparse.ArgumentParser(prog="./dev sim --fuzz", description="Send messages that no client would send.")
    top.add_argument("messages", type=int)
    top.add_argument("--seed", type=int, default=None, help="repeat the run of this seed")
    options = top.parse_args(argv)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headwater-fuzz-") as folder:
        try:
            play(options.messages, seed, Path(folder))
        except Finding as found:
            print(f"found with --seed {seed}: {found}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
