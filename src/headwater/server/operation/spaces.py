"""The open spaces of a server, and the buffers of messages to their connections.

A space is opened on its first use, off the event loop, and stays open. If too many are open, a space without
connections is closed. A space whose host failed is opened again on its next use: its file decides whether that works.

Each host has a `SendBuffer`. While the host's thread processes a batch, the buffer collects the messages to each
connection; after the batch each connection gets its messages at once and in order, so that verdicts and the changes
that cover them travel together. The connection whose turn it is after a conflict is served first, since the others wait
for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from headwater.clock import Clock
from headwater.data.address import check_space, is_space_name
from headwater.engine.admission.access import ANYONE, Founders
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.sync.host import ThreadHost
from headwater.engine.sync.hub import Hub
from headwater.errors import CorruptionError, InvalidValueError, LimitError, MovedError, ProtocolError, StorageError
from headwater.protocol.messages import FromEngine, Sync
from headwater.server.operation.limits import ServerLimits


class Recipient(Protocol):
    """A connection that accepts messages on any thread, such as a `server.sync.connection.ServerConnection`."""

    def send(self, messages: list[FromEngine]) -> None: ...

    def on_send_failed(self, error: Exception) -> None:
        """End the connection: sending to it raised this error."""


class SendBuffer:
    """Messages to the connections of one space. Used by the thread of the space's host alone."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Recipient, list[FromEngine]] = {}

    def post(self, to: Recipient, message: FromEngine) -> None:
        """Keep a message for a recipient until `flush`."""
        self._waiting.setdefault(to, []).append(message)

    def flush(self) -> None:
        """Send each recipient its messages. A recipient that raises does not keep the others from their messages."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for to in sorted(waiting, key=lambda to: not _has_turn(waiting[to])) if len(waiting) > 1 else waiting:
            try:
                to.send(waiting[to])
            except Exception as error:
                to.on_send_failed(error)


def _has_turn(messages: list[FromEngine]) -> bool:
    return any(isinstance(message, Sync) and message.turn == 0 for message in messages)


OnFailed = Callable[[str, BaseException], object]
OnPeerFailed = Callable[[str, Exception], object]
OnVisit = Callable[[str, bool], object]


class Spaces:
    """A data directory and the hosts of its spaces. Used by the event loop's thread alone."""

    __slots__ = (
        "_clock",
        "_closing",
        "_directory",
        "_hosts",
        "_limits",
        "_on_failed",
        "_on_peer_failed",
        "_opening",
        "_questions",
        "_send_buffers",
        "_unopened",
        "_users",
        "closed",
        "on_visit",
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
        """Open a directory. `founders` may create spaces by writing to them first.

        `on_failed` is called with a space that stopped, `on_peer_failed` (by default `on_failed`) with a connection
        that failed.
        """
        self._directory = Directory(path, clock=clock, limits=limits.engine, access=True, founders=founders)
        self._clock = clock
        self._limits = limits
        self._on_failed = on_failed
        self._on_peer_failed = on_peer_failed or on_failed
        self._hosts: OrderedDict[str, ThreadHost] = OrderedDict()
        self._send_buffers: dict[str, SendBuffer] = {}  # of each host, by space
        self._users: dict[str, int] = {}  # space -> number of connections, those that wait for it included
        self._questions: Counter[str] = Counter()  # of commands, without an answer, by space
        self._unopened: set[str] = set()  # damaged spaces, which could not be opened
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}  # spaces whose host is closing
        # Called when a connection enters a space (True) or leaves it (False), and when a reaction is declared to it
        # (True).
        self.on_visit: OnVisit = _ignore_visit
        self.closed = False

    def hosts(self) -> dict[str, ThreadHost]:
        return dict(self._hosts)

    @property
    def life(self) -> str:
        """The name of this process as the owner of the directory."""
        return self._directory.life

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each space's file, open or not."""
        return {name: self._directory.file_of(name).stat().st_size for name in self._directory.spaces()}

    def file_of(self, space: str) -> Path:
        """Return the path of a space's file."""
        return self._directory.file_of(space)

    def is_written(self, space: str) -> bool:
        """Return whether a space has a file, which its first commit makes. A name that no space can have has none."""
        return is_space_name(space) and self._directory.file_of(space).exists()

    @contextmanager
    def question(self, space: str) -> Iterator[None]:
        """Count a question of a command to a space while it is answered. Raises LimitError if too many are."""
        if self._questions[space] >= self._limits.space_questions:
            raise LimitError(f"{self._questions[space]} questions to this space have no answer yet. Ask again later.")
        self._questions[space] += 1
        try:
            yield
        finally:
            self._questions[space] -= 1
            if not self._questions[space]:
                del self._questions[space]

    def count_broken(self) -> int:
        """Count the spaces that stopped, or could not be opened, and were not opened again since."""
        failed = {space for space, host in self._hosts.items() if host.failed is not None}
        return len(failed | self._unopened)

    def host_of(self, space: str) -> ThreadHost:
        """Return the host of a space that was entered before."""
        return self._hosts[space]

    def send_buffer_of(self, space: str) -> SendBuffer:
        """Return the send buffer of a space that was entered before."""
        return self._send_buffers[space]

    async def enter(self, space: str, *, visits: bool = False) -> None:
        """Open a space for one more connection, which has to call `leave` at its end.

        `visits` says that the caller only reads, and that `on_visit` is not called.
        """
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
            self.on_visit(space, True)

    def leave(self, space: str, *, visits: bool = False) -> None:
        self._users[space] -= 1
        if not self._users[space]:
            del self._users[space]
        if not (visits or self.closed):
            self.on_visit(space, False)

    async def _open(self, space: str) -> None:
        host = self._hosts.get(space)
        if host is not None and host.failed is None:
            self._hosts.move_to_end(space)
            return
        task = self._opening.get(space)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open_and_register(space))
            self._opening[space] = task
        # Shielded: the first caller may be cancelled while others still wait for the space.
        await asyncio.shield(task)

    async def _open_and_register(self, space: str) -> None:
        try:
            try:
                host, send_buffer = await self._open_host(space)
            except CorruptionError:
                self._unopened.add(space)
                raise
            self._unopened.discard(space)
            # Registered here, because a space that is neither open nor being opened would be opened twice.
            self._hosts[space], self._send_buffers[space] = host, send_buffer
        finally:
            del self._opening[space]

    async def _open_host(self, space: str) -> tuple[ThreadHost, SendBuffer]:
        if self.closed:
            raise StorageError("this server is shutting down. Connect again.")
        failed = self._hosts.get(space)
        if failed is not None and isinstance(failed.failed, MovedError):
            raise failed.failed  # A second host would have another space, or an empty one.
        self._hosts.pop(space, None)
        if failed is not None:
            self._start_closing(space, failed)
        # fault spaces.unwritten_counted: is_written = True
        is_written = self.is_written(space)
        most = self._limits.spaces if is_written else self._limits.unwritten_spaces
        while self._count_before(space, is_written=is_written) >= most:
            await self._evict_idle_space(most, is_written=is_written)
        if space in self._closing:
            # The closing host still has the file. An error of the closing is reported by its task.
            await asyncio.wait([self._closing[space]])
        return await asyncio.to_thread(self._create_host, space, asyncio.get_running_loop())

    def _count_before(self, space: str, *, is_written: bool) -> int:
        """Count the spaces that are open, closing, or asked for before this one: those with a file, or those without.

        A space without a commit is anybody's; such spaces must not keep users from their own.
        """
        earlier = list(self._opening)[: list(self._opening).index(space)]
        there = {*self._hosts, *self._closing, *earlier} - {space}
        # fault+ spaces.unwritten_counted: return len(there)
        return sum([self.is_written(name) is is_written for name in there])

    async def _evict_idle_space(self, most: int, *, is_written: bool) -> None:
        alike = (name for name in self._hosts if self.is_written(name) is is_written)
        idle = next((name for name in alike if name not in self._users), None)
        if idle is not None:
            del self._send_buffers[idle]
            self._start_closing(idle, self._hosts.pop(idle))
        elif not self._closing:
            raise LimitError(f"{most} spaces are in use on this server, which is the limit. Come back later.")
        await asyncio.wait(self._closing.values(), return_when=asyncio.FIRST_COMPLETED)

    def _start_closing(self, space: str, host: ThreadHost) -> None:
        """Start to close a host. Until that is done it counts as open, and its space is not opened again."""
        self._closing[space] = asyncio.get_running_loop().create_task(self._finish_closing(space, host))

    async def _finish_closing(self, space: str, host: ThreadHost) -> None:
        try:
            await asyncio.to_thread(host.close)
        except Exception as error:
            self._on_failed(space, error)  # No caller waits for it; the file has whatever was written.
        finally:
            del self._closing[space]

    def _create_host(self, space: str, loop: asyncio.AbstractEventLoop) -> tuple[ThreadHost, SendBuffer]:
        engine = self._directory.open_engine(space)
        send_buffer = SendBuffer()
        host = ThreadHost(
            engine,
            clock=self._clock,
            limits=self._limits.engine,
            name=space,
            on_processed=send_buffer.flush,
            on_failed=lambda error: self._on_failed(space, error),
            on_peer_failed=lambda error: self._on_peer_failed(space, error),
        )

        def notify_loop() -> None:
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(self._on_subscribed, space)

        def listen(_: Engine, hub: Hub) -> None:
            hub.queries.on_subscribed = notify_loop

        host.call(listen)
        return host, send_buffer

    def _on_subscribed(self, space: str) -> None:
        if not self.closed:
            self.on_visit(space, True)

    def drain(self) -> list[tuple[str, Exception]]:
        """Wait until everything received so far is answered, and return the spaces that failed, with their errors.

        Blocks; not for the event loop's thread.
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
        """Answer everything received, close every space and release the directory. Blocks."""
        self.closed = True
        errors: list[Exception] = []
        for host in self._hosts.values():
            try:
                host.close()
            except Exception as error:
                errors.append(error)  # The other spaces and the directory are closed all the same.
        self._hosts.clear()
        self._directory.close()
        if errors:
            raise errors[0]


def _ignore_visit(_: str, __: bool) -> None:
    """Ignore visits while no application delivers reactions."""
