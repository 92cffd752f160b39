"""Where the spaces of a runtime are: in a directory of this process, behind a server, or nowhere but here.

Owns the hosts of an embedded directory. Several runtimes of one process may share a directory. A space is opened when
somebody connects to it, off the event loop; one whose host failed is opened again: the disk decides.
"""

from __future__ import annotations

import asyncio
from os import PathLike
from typing import Protocol

from headwater.clock import Clock, RealClock
from headwater.data.address import check_space
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.database import Synchronous
from headwater.engine.sync.error_codes import LASTING
from headwater.engine.sync.host import ThreadHost
from headwater.errors import HeadwaterError, MovedError, StorageError
from headwater.runtime.channel.loopback import Loopback, LoopbackConnection
from headwater.runtime.channel.transport import Heard, Lost, Transport
from headwater.runtime.channel.websocket import WebSocket


class Backend(Protocol):
    """Where spaces are."""

    token: str  # proves who asks, where somebody wants to know

    def transport(self, space: str) -> Transport | None:
        """The way to a space's engine. None: it has none."""

    async def close(self) -> None:
        """Let go of everything. Closing twice is harmless."""


class InMemory:
    """No engine: what is written is confirmed at once, and gone with the process."""

    __slots__ = ("token",)

    def __init__(self) -> None:
        self.token = ""

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return None

    async def close(self) -> None:
        """There is nothing to let go of."""


class RemoteServer:
    """A server, by its address `ws://host:port` or `wss://host:port`."""

    __slots__ = ("_address", "token")

    def __init__(self, address: str, *, token: str = "") -> None:
        WebSocket(address)  # An address that is none is refused here.
        self._address = address
        self.token = token

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return WebSocket(self._address)

    async def close(self) -> None:
        """Connections are closed by whoever opened them."""


class LocalDirectory:
    """A directory that this process owns: one file and one host thread per space."""

    __slots__ = (
        "_clock",
        "_directory",
        "_hosts",
        "_limits",
        "_lock",
        "_opening",
        "_synchronous",
        "closed",
        "is_only",
        "life",
        "token",
    )

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        synchronous: Synchronous = "FULL",
    ) -> None:
        self.token = ""
        self._clock = clock or RealClock()
        self._limits = limits
        self._synchronous: Synchronous = synchronous
        self._directory = Directory(str(path), clock=self._clock, limits=limits)
        self.life = self._clock.new_token(8)  # of the process that owns the directory: what an earlier one left is left
        self.is_only = True  # nobody connects to it from elsewhere
        self._hosts: dict[str, ThreadHost] = {}
        self._lock = asyncio.Lock()
        self._opening: dict[str, asyncio.Task[ThreadHost]] = {}
        self.closed = False

    async def __aenter__(self) -> LocalDirectory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return _HostTransport(self, space)

    async def host(self, space: str) -> ThreadHost:
        """The host of a space, opened if it is not open or has failed."""
        task = self._opening.get(space)
        if task is None:
            task = self._opening[space] = asyncio.get_running_loop().create_task(self._opened(space))
            task.add_done_callback(lambda done: self._over(space, done))
        # Shielded: whoever asked may go away, and what a thread opens has to be known here, to be closed.
        return await asyncio.shield(task)

    def _over(self, space: str, task: asyncio.Task[ThreadHost]) -> None:
        del self._opening[space]
        if not task.cancelled():
            task.exception()  # Whoever still waits has it; if nobody does, nobody is to be told.

    async def _opened(self, space: str) -> ThreadHost:
        async with self._lock:
            if self.closed:
                raise StorageError("this directory was closed here. Open it again.")
            host = self._hosts.get(space)
            if host is not None and host.failed is None:
                return host
            if host is not None and isinstance(host.failed, MovedError):
                raise host.failed  # Opened again, it would be another space, or an empty one.
            if host is not None:
                del self._hosts[space]
                await asyncio.to_thread(host.close)
            made = self._hosts[space] = await asyncio.to_thread(self._open, space)
            return made

    def _open(self, space: str) -> ThreadHost:
        store = self._directory.store_of(space, synchronous=self._synchronous)
        try:
            engine = Engine(store, clock=self._clock, limits=self._limits)
        except BaseException:
            store.close()
            raise
        return ThreadHost(engine, clock=self._clock, limits=self._limits, name=space)

    def newest(self, space: str) -> int | None:
        """Where the log of a space ends, if it is open here: at least what anybody was told of, perhaps more."""
        host = self._hosts.get(space)
        return None if host is None else host.last_seq

    async def close(self) -> None:
        async with self._lock:
            if not self.closed:
                self.closed = True
                hosts, self._hosts = tuple(self._hosts.values()), {}
                try:
                    for host in hosts:
                        await asyncio.to_thread(host.close)
                finally:
                    self._directory.close()


class _HostTransport:
    """Connects to one space of a directory."""

    __slots__ = ("_embedded", "_space")

    def __init__(self, embedded: LocalDirectory, space: str) -> None:
        self._embedded = embedded
        self._space = space

    async def connect(self, heard: Heard, lost: Lost) -> LoopbackConnection:
        try:
            host = await self._embedded.host(self._space)
        # fault driver.damaged_space_tried_again: except ZeroDivisionError:
        except tuple(LASTING.values()):
            raise
        except HeadwaterError as error:
            # It is told, and tried again: a disk may be mended while the program runs.
            raise ConnectionError(f"space {self._space!r} cannot be opened: {error}") from error
        host.lend_thread(asyncio.get_running_loop().call_soon)  # As long as the disk is quick: no thread is woken.
        return await Loopback(lambda _: host).connect(heard, lost)
