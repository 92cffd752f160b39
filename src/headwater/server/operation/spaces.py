"""The spaces of a server: which are open, and the host that runs each.

A space is opened when somebody asks for it, off the event loop, and stays open; when there are too many, one that
nobody is connected to makes room. One whose host failed is opened again for the next who asks: the disk decides.

What a host's thread has to tell the connections of its space, gathered while it processes one batch.

A connection gets all of it at once, in order, when the batch is done: verdicts and the news that cover them travel
together. Whose turn it is after a conflict hears first, since everybody else waits for it. A connection that cannot be
told ends; the others are told all the same. Belongs to the host's thread alone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from headwater.clock import Clock
from headwater.data.address import check_space
from headwater.engine.admission.access import ANYONE, Founders
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.sync.host import ThreadHost
from headwater.engine.sync.hub import Hub
from headwater.errors import InvalidValueError, LimitError, MovedError, ProtocolError, StorageError
from headwater.protocol.messages import FromEngine, Sync
from headwater.server.operation.limits import ServerLimits


class Addressee(Protocol):
    """Takes messages on any thread."""

    def tell(self, messages: list[FromEngine]) -> None: ...

    def failed(self, error: Exception) -> None:
        """Telling it something raised this."""


class Outbox:
    """Messages on their way to the connections of one space."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Addressee, list[FromEngine]] = {}

    def post(self, to: Addressee, message: FromEngine) -> None:
        self._waiting.setdefault(to, []).append(message)

    def flush(self) -> None:
        """Tell everybody what was said since the last time."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for to in sorted(waiting, key=lambda to: not _has_turn(waiting[to])) if len(waiting) > 1 else waiting:
            try:
                to.tell(waiting[to])
            except Exception as error:
                to.failed(error)


def _has_turn(messages: list[FromEngine]) -> bool:
    return any(isinstance(message, Sync) and message.turn == 0 for message in messages)


OnFailed = Callable[[str, BaseException], object]
OnPeerFailed = Callable[[str, Exception], object]
Attends = Callable[[str, bool], object]


class Spaces:
    """Owns a data directory and the hosts of its spaces. Belongs to the event loop's thread."""

    __slots__ = (
        "_clock",
        "_closing",
        "_directory",
        "_founders",
        "_hosts",
        "_limits",
        "_on_failed",
        "_on_peer_failed",
        "_opening",
        "_outboxes",
        "_users",
        "attends",
        "closed",
    )

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock,
        limits: ServerLimits,
        on_failed: OnFailed,
        on_peer_failed: OnPeerFailed | None = None,
        founders: Founders = ANYONE,
    ) -> None:
        """`founders` may make spaces by being the first to write to them.

        `on_failed` hears of a space that stopped, `on_peer_failed` (or else `on_failed`) of one connection.
        """
        self._directory = Directory(path, clock=clock, limits=limits.engine)
        self._clock = clock
        self._limits = limits
        self._founders = founders
        self._on_failed = on_failed
        self._on_peer_failed = on_peer_failed or on_failed
        self._hosts: OrderedDict[str, ThreadHost] = OrderedDict()
        self._outboxes: dict[str, Outbox] = {}  # of the hosts, by space
        self._users: dict[str, int] = {}  # space -> connections that use it, those that wait for it included
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}  # spaces whose host gives its file back
        # Hears of spaces that somebody enters (True) or leaves (False), or declares a reaction to.
        self.attends: Attends = _nobody
        self.closed = False

    def hosts(self) -> dict[str, ThreadHost]:
        return dict(self._hosts)

    def there(self) -> dict[str, int]:
        """The spaces that are kept here, open or not, and how many bytes the file of each has."""
        return {name: self._directory.file_of(name).stat().st_size for name in self._directory.spaces()}

    def file_of(self, space: str) -> Path:
        """The file of a space."""
        return self._directory.file_of(space)

    def host_of(self, space: str) -> ThreadHost:
        """The host of a space that was entered before."""
        return self._hosts[space]

    def outbox_of(self, space: str) -> Outbox:
        """Where that host's thread puts what it says."""
        return self._outboxes[space]

    async def enter(self, space: str, *, visits: bool = False) -> None:
        """Open a space for one more connection, which calls `leave` at its end. `visits`: only to look at it."""
        try:
            check_space(space)
        except InvalidValueError as error:
            raise ProtocolError(str(error)) from error
        self._users[space] = self._users.get(space, 0) + 1
        try:
            await self._open(space)
        except BaseException:
            self.leave(space, visits=True)
            raise
        if not visits:
            self.attends(space, True)

    def leave(self, space: str, *, visits: bool = False) -> None:
        self._users[space] -= 1
        if not self._users[space]:
            del self._users[space]
        if not (visits or self.closed):
            self.attends(space, False)

    async def _open(self, space: str) -> None:
        host = self._hosts.get(space)
        if host is not None and host.failed is None:
            self._hosts.move_to_end(space)
            return
        task = self._opening.get(space)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._opened(space))
            self._opening[space] = task
        # Shielded: whoever asked first may go away, and the others still want it.
        await asyncio.shield(task)

    async def _opened(self, space: str) -> None:
        try:
            host, outbox = await self._made(space)
            # Here, not where it is waited for: in between it would be neither open nor being opened.
            self._hosts[space], self._outboxes[space] = host, outbox
        finally:
            del self._opening[space]

    async def _made(self, space: str) -> tuple[ThreadHost, Outbox]:
        if self.closed:
            raise StorageError("this server is shutting down. Connect again.")
        failed = self._hosts.get(space)
        if failed is not None and isinstance(failed.failed, MovedError):
            raise failed.failed  # Opened again, it would be another space, or an empty one.
        self._hosts.pop(space, None)
        if failed is not None:
            self._close(space, failed)
        while self._taken_before(space) >= self._limits.spaces:
            await self._make_room()
        if space in self._closing:
            # Its file is another host's until that is done; how it ended is told to whoever closed it.
            await asyncio.wait([self._closing[space]])
        return await asyncio.to_thread(self._make, space, asyncio.get_running_loop())

    def _taken_before(self, space: str) -> int:
        """How many places are taken, by spaces that are open, still open, or were asked for before this one."""
        return len(self._hosts) + len(self._closing.keys() - {space}) + list(self._opening).index(space)

    async def _make_room(self) -> None:
        idle = next((name for name in self._hosts if name not in self._users), None)
        if idle is not None:
            del self._outboxes[idle]
            self._close(idle, self._hosts.pop(idle))
        elif not self._closing:
            raise LimitError(f"{self._limits.spaces} spaces are in use on this server, which is the limit")
        await asyncio.wait(self._closing.values(), return_when=asyncio.FIRST_COMPLETED)

    def _close(self, space: str, host: ThreadHost) -> None:
        """Begin to close a host. It counts, and keeps its space from being opened, until that is done."""
        self._closing[space] = asyncio.get_running_loop().create_task(self._closed(space, host))

    async def _closed(self, space: str, host: ThreadHost) -> None:
        try:
            await asyncio.to_thread(host.close)
        except Exception as error:
            self._on_failed(space, error)  # Nobody waits for it: what is on the disk is what there is.
        finally:
            del self._closing[space]

    def _make(self, space: str, loop: asyncio.AbstractEventLoop) -> tuple[ThreadHost, Outbox]:
        store = self._directory.store_of(space)
        try:
            engine = Engine(store, clock=self._clock, limits=self._limits.engine, access=True, founders=self._founders)
        except BaseException:
            store.close()
            raise
        outbox = Outbox()
        host = ThreadHost(
            engine,
            clock=self._clock,
            limits=self._limits.engine,
            name=space,
            on_processed=outbox.flush,
            on_failed=lambda error: self._on_failed(space, error),
            on_peer_failed=lambda error: self._on_peer_failed(space, error),
        )

        def subscribed() -> None:
            with suppress(RuntimeError):  # The loop is closed, and this with it.
                loop.call_soon_threadsafe(self._subscribed, space)

        def listen(_: Engine, hub: Hub) -> None:
            hub.asking.on_subscribed = subscribed

        host.call(listen)
        return host, outbox

    def _subscribed(self, space: str) -> None:
        if not self.closed:
            self.attends(space, True)

    def drain(self) -> list[tuple[str, Exception]]:
        """Wait until everything taken in so far is answered. Blocks; not for the event loop's thread.

        Answers which spaces could not do that, and why: the others are waited for all the same.
        """
        errors: list[tuple[str, Exception]] = []
        for space, host in tuple(self._hosts.items()):
            if host.failed is None:
                try:
                    host.call(lambda engine, hub: None)
                except Exception as error:
                    errors.append((space, error))
        return errors

    async def settle(self) -> None:
        """Open no more spaces, and wait for those that are being opened or closed."""
        self.closed = True
        tasks = [*self._opening.values(), *self._closing.values()]
        if tasks:
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Answer what was taken in, close every space and let the directory go. Blocks."""
        self.closed = True
        errors: list[Exception] = []
        for host in self._hosts.values():
            try:
                host.close()
            except Exception as error:
                errors.append(error)  # The others, and the directory, are let go all the same.
        self._hosts.clear()
        self._directory.close()
        if errors:
            raise errors[0]


def _nobody(_: str, __: bool) -> None:
    """No application delivers here."""
