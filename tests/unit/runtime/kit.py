"""What the tests of transports share: a space behind each of them, sessions, and a way to cut connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headwater.backoff import Backoff
from headwater.clock import RealClock
from headwater.data.address import DocKey
from headwater.data.patch import Patch, increment, replace
from headwater.engine import DEFAULT_LIMITS, Engine, Host, Limits, ThreadHost
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import HeadwaterError
from headwater.protocol.messages import Encoding, FromReplica
from headwater.replica import Replica, Session, Transaction
from headwater.runtime import Connection, Driver, Heard, Loopback, Lost, RetryPolicy, Transport, WebSocket, Writer
from headwater.server import Server, ServerLimits

T = TypeVar("T")
SPACE = "shop"
QUICK = Backoff.fixed(base_ms=1)
TOO_LONG_S = 60


def doc(id: str = "d", scope: str = "space") -> DocKey:
    return DocKey(scope, id)


def run(work: Callable[[], Coroutine[Any, Any, None]], too_long_s: float = TOO_LONG_S) -> None:
    """Run a test on an event loop of its own. A hang is a failure."""

    async def bounded() -> None:
        async with asyncio.timeout(too_long_s):
            await work()

    asyncio.run(bounded())


class Cuttable:
    """A transport whose newest connection can be cut, as a network does it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # Returns the message that leaves in place of one that is sent. None: nothing leaves.
        self.leaves: Callable[[FromReplica], FromReplica | None] = lambda message: message
        self.newest: CuttableConnection | None = None
        self.connects = 0

    async def connect(self, heard: Heard, lost: Lost) -> Connection:
        connection = CuttableConnection(self, lost)
        connection.inner = await self._transport.connect(connection.heard_by(heard), connection.is_lost)
        self.connects += 1
        self.newest = connection
        return connection

    def cut(self) -> None:
        if self.newest is not None:
            self.newest.cut()


class CuttableConnection:
    inner: Connection
    hear: Heard  # says something to the driver, as the engine would

    def __init__(self, link: Cuttable, lost: Lost) -> None:
        self._link = link
        self._lost = lost
        self._over = False
        self.deaf = False  # what the engine says does not arrive any more

    def heard_by(self, heard: Heard) -> Heard:
        self.hear = heard
        return lambda message: None if self.deaf or self._over else heard(message)

    def is_lost(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self._lost(reason)

    def cut(self) -> None:
        abort = getattr(self.inner, "abort", self.inner.close)
        abort()
        self.is_lost("cut")

    def send(self, messages: Iterable[FromReplica]) -> None:
        if not self._over:
            leaving = map(self._link.leaves, messages)
            self.inner.send([message for message in leaving if message is not None])

    def close(self) -> None:
        self.inner.close()


@dataclass
class Client:
    """One session with its driver and writer."""

    driver: Driver
    writer: Writer
    link: Cuttable
    errors: list[HeadwaterError] = field(default_factory=list)

    @property
    def replica(self) -> Replica:
        return self.driver.session.replica

    async def write(self, id: str, *patches: Patch) -> None:
        await self.writer.transact(lambda t: t.write(doc(id), *patches))

    async def create(self, id: str, value: object) -> None:
        await self.write(id, replace((), value))

    async def count_up(self, id: str) -> None:
        """Read, modify, write."""

        def step(transaction: Transaction) -> None:
            number = transaction.read(doc(id), ("n",))
            assert isinstance(number, int)
            transaction.write(doc(id), replace(("n",), number + 1))

        await self.writer.transact(step)

    async def add_up(self, id: str) -> None:
        """The same as an intent."""
        await self.write(id, increment(("n",), 1))

    def shown(self, id: str) -> Any:
        return self.replica.visible(doc(id))


@dataclass
class Rig:
    """A space that can be reached over one kind of transport."""

    transport: Transport
    call: Callable[[Callable[[Engine], Any]], Any]
    clients: list[Client] = field(default_factory=list)

    def client(
        self,
        key: str,
        *,
        token: str = "",
        space: str = SPACE,
        policy: RetryPolicy | None = None,
        replica: Replica | None = None,
        new_token: Callable[[], str] | None = None,
    ) -> Client:
        link = Cuttable(self.transport)
        session = Session(
            replica or Replica(), space=space, key=key, new_token=new_token or RealClock().new_token, token=token
        )
        errors: list[HeadwaterError] = []
        driver = Driver(session, link, backoff=QUICK, on_error=errors.append)
        client = Client(driver, Writer(driver, policy=policy), link, errors)
        driver.start()
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            await client.driver.close()


@asynccontextmanager
async def on_loopback(folder: Path, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[Rig]:
    host = ThreadHost(Engine(SqliteStore(folder / f"{SPACE}.space", synchronous="OFF"), limits=limits), limits=limits)

    def host_of(_: str) -> Host:
        return host

    rig = Rig(Loopback(host_of, limits=limits), lambda work: host.call(lambda engine, hub: work(engine)))
    try:
        yield rig
    finally:
        await rig.close()
        await asyncio.to_thread(host.close)


@asynccontextmanager
async def serving(directory: Path, **options: Any) -> AsyncIterator[Server]:
    """A server on a free port, in this process and on this event loop."""
    server = Server(directory, port=0, **options)
    task = asyncio.get_running_loop().create_task(server.run_until_stopped())
    try:
        while not server.started:
            await asyncio.sleep(0)
        yield server
    finally:
        server.stop()
        await task


def address(server: Server) -> str:
    return f"ws://127.0.0.1:{server.address[1]}"


@asynccontextmanager
async def on_websocket(folder: Path, limits: Limits, encoding: Encoding) -> AsyncIterator[Rig]:
    async with serving(folder / "data", insecure_local=True, limits=ServerLimits(engine=limits)) as server:

        def call(work: Callable[[Engine], Any]) -> Any:
            return server.call_in_space(SPACE, work)

        rig = Rig(WebSocket(address(server), encoding=encoding), call)
        try:
            yield rig
        finally:
            await rig.close()


Made = Callable[[Path, Limits], AbstractAsyncContextManager[Rig]]

TRANSPORTS: dict[str, Made] = {
    "loopback": on_loopback,
    "websocket-msgpack": lambda folder, limits: on_websocket(folder, limits, "msgpack"),
    "websocket-json": lambda folder, limits: on_websocket(folder, limits, "json"),
}


async def refused(work: Coroutine[Any, Any, T]) -> BaseException:
    """The error that an awaitable ends with."""
    try:
        await work
    except Exception as error:
        return error
    raise AssertionError("it was not refused")
