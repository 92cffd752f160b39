"""Where the spaces of a runtime are: in a directory of this process, behind a server, or only in memory.

`LocalDirectory` owns the hosts of its spaces, and several runtimes of one process may share it. A space is opened at
the first connection to it, off the event loop. A space whose host failed is opened again: the disk decides.
"""

from __future__ import annotations

import asyncio
from os import PathLike
from typing import Protocol

from headwater.clock import Clock, RealClock
from headwater.data.address import check_space
from headwater.engine.directory import Directory
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.store.database import Synchronous
from headwater.engine.sync.error_codes import LASTING
from headwater.engine.sync.host import ThreadHost
from headwater.errors import HeadwaterError, MovedError, StorageError
from headwater.runtime.channel.loopback import Loopback, LoopbackConnection
from headwater.runtime.channel.transport import Heard, Lost, Transport


class Backend(Protocol):
    """Where the spaces of a runtime are: `InMemory`, a `LocalDirectory` or a `RemoteServer`."""

    token: str  # identifies the user, if the backend checks it
    life: str  # names this process as the owner of the spaces, until it ends; empty: another process may own them
    is_only: bool  # no other process connects to the spaces

    def transport(self, space: str) -> Transport | None:
        """Return the transport to the engine of a space. None: the space has no engine."""

    async def close(self) -> None:
        """Release all resources. Closing twice is harmless."""


class InMemory:
    """No engine: writes are confirmed at once, and gone with the process."""

    __slots__ = ("is_only", "life", "token")

    def __init__(self) -> None:
        self.token = ""
        self.life = ""
        self.is_only = False

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return None

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def _web_socket(address: str) -> Transport:
    """Return the transport to a server. Programs with their own directory do not import its library."""
    from headwater.runtime.channel.websocket import WebSocket  # noqa: PLC0415

    return WebSocket(address)


class RemoteServer:
    """A server, by its address `ws://host:port` or `wss://host:port`."""

    __slots__ = ("_address", "is_only", "life", "token")

    def __init__(self, address: str, *, token: str = "") -> None:
        _web_socket(address)  # Refuses an invalid address here.
        self._address = address
        self.token = token
        self.life = ""
        self.is_only = False

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return _web_socket(self._address)

    async def close(self) -> None:
        """Do nothing: each connection is closed by its driver."""


class LocalDirectory:
    """A directory that this process owns: one file and one host per space.

    A host has a thread of its own, and processes small work on the thread of the event loop while the disk is quick
    (`ThreadHost.lend_thread`).
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_hosts",
        "_lock",
        "_opening",
        "closed",
        "is_only",
        "life",
        "limits",
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
        self.limits = limits
        self._directory = Directory(str(path), clock=self._clock, limits=limits, synchronous=synchronous)
        self.life = self._directory.life  # of the owning process: work that an earlier process began is abandoned
        self.is_only = True  # no other process connects to the directory
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
        """Return the host of a space; opens the space if it is not open or if its host failed."""
        task = self._opening.get(space)
        if task is None:
            task = self._opening[space] = asyncio.get_running_loop().create_task(self._opened(space))
            task.add_done_callback(lambda done: self._over(space, done))
        # Shielded: the caller may be cancelled, but a host that a thread opens has to be known here, to be closed.
        return await asyncio.shield(task)

    def _over(self, space: str, task: asyncio.Task[ThreadHost]) -> None:
        del self._opening[space]
        if not task.cancelled():
            task.exception()  # Mark as retrieved: waiting callers get it, and without one it is no news.

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
        return ThreadHost(self._directory.open_engine(space), clock=self._clock, limits=self.limits, name=space)

    def newest(self, space: str) -> int | None:
        """Return the last seq of a space's log, if the space is open here.

        The seq is at least the highest that a session was told of, perhaps higher.
        """
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
    """Makes connections to one space of a directory."""

    __slots__ = ("_directory", "_space")

    def __init__(self, directory: LocalDirectory, space: str) -> None:
        self._directory = directory
        self._space = space

    async def connect(self, heard: Heard, lost: Lost) -> LoopbackConnection:
        try:
            host = await self._directory.host(self._space)
        # fault driver.damaged_space_tried_again: except ZeroDivisionError:
        except tuple(LASTING.values()):
            raise
        except HeadwaterError as error:
            # Reported by the driver, which tries again: a disk may be repaired while the program runs.
            raise ConnectionError(f"space {self._space!r} cannot be opened: {error}") from error
        host.lend_thread(asyncio.get_running_loop().call_soon)  # While the disk is quick, no thread has to be woken.
        return await Loopback(lambda _: host, limits=self._directory.limits).connect(heard, lost)
