"""Work of a space runs on the event loop only if its size is below a limit that is checked first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from headwater.clock import VirtualClock
from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, append, replace
from headwater.engine import DEFAULT_LIMITS
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.messages import (
    Answer,
    FromReplica,
    Hello,
    Open,
    Problem,
    Query,
    Selector,
    Transact,
    Verdicts,
    Watch,
    Watched,
    decode_from_engine,
    encode,
)
from headwater.protocol.verdict import Accepted
from headwater.server import DEFAULT_SERVER_LIMITS, Server
from tests.aid.serving import threads_that_call

SPACE = "shop"
LIMITS = changed(DEFAULT_SERVER_LIMITS, engine=changed(DEFAULT_LIMITS, loop_bytes=10_000))
LARGE = "x" * 20_000
ENGINE = ("Engine.submit_group", "Engine.read", "Engine.read_all", "Engine.documents")


class Replica:
    """The replica's end of a connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._local_seq = 0

    async def say(self, *messages: FromReplica) -> None:
        for message in messages:
            await self._socket.send(encode(message))

    async def hear(self, kind: type[Any]) -> Any:
        """The next message of a kind. A problem is none."""
        while True:
            data = await self._socket.recv()
            assert isinstance(data, bytes)
            message = decode_from_engine(data)
            assert not isinstance(message, Problem), message
            if isinstance(message, kind):
                return message

    async def write(self, *patched: tuple[str, Patch], reads: tuple[Read, ...] = ()) -> None:
        """Have one commit accepted."""
        self._local_seq += 1
        operations = tuple(Operation(DocKey("space", doc), (patch,)) for doc, patch in patched)
        await self.say(Transact((Commit(self._local_seq, operations, reads),)))
        (verdict,) = (await self.hear(Verdicts)).verdicts
        assert isinstance(verdict, Accepted), verdict

    async def watch(self, *docs: str) -> None:
        await self.say(Watch(1, tuple(Selector(DocKey("space", doc)) for doc in docs)))
        await self.hear(Watched)


@asynccontextmanager
async def replica(server: Server, session: str = "s") -> AsyncIterator[Replica]:
    url = f"ws://127.0.0.1:{server.address[1]}/v1/sync"
    async with connect(url, subprotocols=[Subprotocol("headwater.v1.msgpack")], max_size=None) as socket:
        made = Replica(socket)
        await made.say(Hello((1,)), Open(SPACE, session, "", "t"))
        await made.watch("nothing")
        yield made


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Server]:
    """A server on this loop. Its clock stands still, so that no disk is too slow for small work on the loop."""
    server = Server(directory, port=0, insecure_local=True, clock=VirtualClock(), limits=LIMITS)
    running = asyncio.create_task(server.run_until_stopped())
    try:
        async with asyncio.timeout(20):
            yield server
    finally:
        server.stop()
        await running


def play(directory: Path, story: Callable[[Server, set[int]], Awaitable[None]]) -> None:
    """Tell a story with the threads that the engine was used on since they were last cleared."""

    async def run() -> None:
        with threads_that_call(*ENGINE) as threads:
            async with serving(directory) as server:
                await story(server, threads)

    asyncio.run(run())


class Seen:
    """On which threads the engine was used for what one replica asked."""

    def __init__(self, threads: set[int], one: Replica) -> None:
        self._threads = threads
        self._one = one

    async def was_on_loop(self, work: Awaitable[None]) -> bool:
        self._threads.clear()
        await work
        assert self._threads
        return threading.get_ident() in self._threads

    async def never(self, work: Awaitable[None]) -> bool:
        """Whether work is not done on the loop, at a moment when the loop does what is small.

        What comes while the space's thread ends its last step is taken by that thread, whatever its size.
        """
        await self.until_on_loop(lambda: self._one.write(("quiet", replace((), 1))))
        return not await self.was_on_loop(work)

    async def until_on_loop(self, work: Callable[[], Awaitable[None]]) -> None:
        while not await self.was_on_loop(work()):
            pass


async def asked(one: Replica, question: Query) -> None:
    await one.say(question)
    await one.hear(Answer)


def test_large_commits_do_not_run_on_the_loop(tmp_path: Path) -> None:
    async def story(server: Server, threads: set[int]) -> None:
        async with replica(server) as one:
            seen = Seen(threads, one)
            assert await seen.never(one.write(("large", replace((), LARGE))))
            assert await seen.never(one.write(*((f"d{n}", replace((), n)) for n in range(30))))
            reads = tuple(Read(DocKey("space", f"absent{n}"), (), Depth.DEEP, 0) for n in range(30))
            assert await seen.never(one.write(("small", replace((), 2)), reads=reads))
            assert await seen.never(one.write(("small", replace((), {f"k{n}": "x" * 200 for n in range(100)}))))

    play(tmp_path, story)


def test_small_patch_to_a_large_document_does_not_run_on_the_loop(tmp_path: Path) -> None:
    async def story(server: Server, threads: set[int]) -> None:
        async with replica(server) as one:
            await one.write(("large", replace((), (LARGE,))))
            assert await Seen(threads, one).never(one.write(("large", append((), ("y",)))))

    play(tmp_path, story)


def test_document_that_has_to_be_read_from_disk_is_not_read_on_the_loop(tmp_path: Path) -> None:
    async def first(server: Server, threads: set[int]) -> None:
        async with replica(server) as one:
            await one.write(("small", replace((), 1)))

    async def then(server: Server, threads: set[int]) -> None:
        async with replica(server, "other") as one:
            seen = Seen(threads, one)
            assert await seen.never(one.write(("small", replace((), 2))))
            await seen.until_on_loop(lambda: one.write(("small", replace((), 3))))  # It is in memory now.

    play(tmp_path, first)
    play(tmp_path, then)


def test_questions_without_a_known_size_are_not_answered_on_the_loop(tmp_path: Path) -> None:
    async def story(server: Server, threads: set[int]) -> None:
        async with replica(server) as one:
            seen = Seen(threads, one)
            await one.write(("small", replace((), 1)))
            await one.write(("large", replace((), LARGE)))
            await seen.until_on_loop(lambda: asked(one, Query(1, "space", "small", None, "", 10)))
            assert await seen.never(asked(one, Query(1, "space", "large", None, "", 10)))
            assert await seen.never(asked(one, Query(1, "space", "small", 2, "", 10)))  # the past
            assert await seen.never(asked(one, Query(1, "space", "", None, "", 10)))  # a page
            await seen.until_on_loop(lambda: one.watch("small"))
            assert await seen.never(one.watch("small", "large"))

    play(tmp_path, story)


def test_small_commit_that_many_watch_does_not_run_on_the_loop(tmp_path: Path) -> None:
    async def story(server: Server, threads: set[int]) -> None:
        async with AsyncExitStack() as watchers:
            for number in range(20):
                watcher = await watchers.enter_async_context(replica(server, f"w{number}"))
                await watcher.watch("small")
            async with replica(server) as one:
                assert await Seen(threads, one).never(one.write(("small", replace((), 1))))

    play(tmp_path, story)
