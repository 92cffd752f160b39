"""The driver of one session: connects, moves messages, connects again, and lets coroutines wait for what happens.

Owns the session's connection and its timers. Resends nothing by itself: the session knows what has to be replayed.
Everything happens on the event loop's thread. What cannot be mended by connecting again (no access, a session that is
over) ends the driver, loudly, for everybody who waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from headwater.backoff import Backoff
from headwater.clock import Clock, RealClock
from headwater.data.address import DocKey
from headwater.errors import AccessError, HeadwaterError, LoadError, ProtocolError, SessionExpiredError
from headwater.protocol.messages import Answer, FromEngine, Problem, Query
from headwater.replica.pending import Fate
from headwater.replica.session import Link, Session
from headwater.runtime.transport import Connection, Transport

RECONNECT: Final = Backoff.exponential(base_ms=25, max_ms=30_000, jitter=0.2)


class Driver:
    """Runs one session over any number of connections. Use it as an asynchronous context manager."""

    __slots__ = (
        "_backoff",
        "_clock",
        "_closing",
        "_connection",
        "_expected",
        "_failed_loads",
        "_failures",
        "_flushing",
        "_gone",
        "_loop",
        "_on_error",
        "_random",
        "_task",
        "_transport",
        "_waiters",
        "reconnects",
        "session",
    )

    def __init__(
        self,
        session: Session,
        transport: Transport,
        *,
        clock: Clock | None = None,
        backoff: Backoff = RECONNECT,
        on_error: Callable[[HeadwaterError], object] | None = None,
    ) -> None:
        self.session = session
        self.reconnects = 0
        self._transport = transport
        self._clock = clock or RealClock()
        self._random = self._clock.randomness(f"driver of {session.key}")
        self._backoff = backoff
        self._on_error = on_error
        self._connection: Connection | None = None
        self._flushing = False
        self._failures = 0  # since the session was last open
        self._gone: asyncio.Event = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._expected: set[asyncio.Future[Any]] = set()
        self._failed_loads: dict[DocKey, LoadError] = {}
        self._closing: HeadwaterError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        session.on_error = self._complain
        session.on_load_failed = self._load_failed
        session.replica.on_error = self._listener_failed

    async def __aenter__(self) -> Driver:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to connect. Nothing waits for it: what is here can be used at once."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"driver of {self.session.key}")

    async def close(self) -> None:
        """End the connection. With nothing pending the session says goodbye and is over; otherwise it stays as it is,
        and another driver can take it up."""
        if self._closing is None:
            self._closing = SessionExpiredError(f"the driver of session {self.session.key!r} was closed")
        if self.session.link is Link.UP and not len(self.session.replica.pending):
            self.session.close()
            self.flush()
        if self._connection is not None:
            self._connection.close()
        if self._task is not None:
            self._task.cancel()
            try:
                await self._task
            except asyncio.CancelledError:
                self._task = None
        self._wake()

    # ---- moving messages ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what the session has to say. Call it after anything that made it say something."""
        session = self.session
        session.flush()
        if session.outgoing and self._connection is not None:
            messages = tuple(session.outgoing)
            session.outgoing.clear()
            self._connection.send(messages)

    def watch(self, docs: Iterable[DocKey], *, follow: bool = False) -> None:
        """Ask for documents, and for every change of them."""
        wanted = tuple(docs)
        for doc in wanted:
            self._failed_loads.pop(doc, None)
        self.session.watch(wanted, follow=follow)
        self.flush()

    def unwatch(self, doc: DocKey) -> bool:
        """Let a document go altogether. False: a pending commit is on top of it."""
        gone = self.session.unwatch(doc)
        self.flush()
        return gone

    async def _run(self) -> None:
        while self._closing is None:
            self._gone.clear()
            try:
                self._connection = await self._transport.connect(self._heard, self._lost)
            except (OSError, TimeoutError) as error:
                self._complain(ProtocolError(f"no connection: {error}"))
            else:
                self.session.connected()
                self.flush()
                await self._gone.wait()
                self._connection = None
                self.session.lost()
                self.reconnects += 1
            if self.session.link is Link.GONE:
                self._closing = self._closing or SessionExpiredError(f"session {self.session.key!r} is over")
            self._wake()
            if self._closing is None:
                delay_us = self._backoff.delay_us(self._failures, self._random)
                self._failures += 1
                await asyncio.sleep(delay_us / 1e6)

    def _heard(self, message: FromEngine) -> None:
        if isinstance(message, Problem) and message.code == "access" and message.fatal:
            self._closing = AccessError(message.message)
            self._end()
            return
        try:
            self.session.receive(message)
        except ProtocolError:
            # Said already, through on_error, if it was the engine's; either way this connection cannot go on.
            self._end()
            return
        if self.session.link is Link.UP:
            self._failures = 0
        elif self.session.link is Link.GONE:
            self._end()
            return
        self._wake()
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Send after whoever was woken just now has run: what they have to say travels with it."""
        if self.session.outgoing and not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flushing = False
        self.flush()

    def _lost(self, reason: str) -> None:
        self._gone.set()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._gone.set()
        self._wake()

    def _complain(self, error: HeadwaterError) -> None:
        if isinstance(error, SessionExpiredError) and self._closing is None:
            self._closing = error  # It says why, to everybody who waits.
        if self._on_error is not None:
            self._on_error(error)

    def _listener_failed(self, error: Exception) -> None:
        """A listener or callback of the program raised. The session took the message in all the same."""
        message = f"what session {self.session.key!r} had to say was not taken well"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _load_failed(self, docs: tuple[DocKey, ...], error: LoadError) -> None:
        for doc in docs:
            self._failed_loads[doc] = error

    # ---- waiting -----------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about the session holds. Raises what ended the driver, if that comes first."""
        while not holds():
            if self._closing is not None:
                raise self._closing
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        if self._closing is not None:
            for future in self._expected:
                future.set_exception(self._closing)
            self._expected.clear()

    def expected(self) -> asyncio.Future[Any]:
        """A future for something that the session will say, and that fails if the driver ends before."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._expected.add(future)
        future.add_done_callback(self._expected.discard)
        if self._closing is not None:
            future.set_exception(self._closing)
        return future

    async def opened(self) -> None:
        """The session is open over a connection."""
        await self.until(lambda: self.session.link is Link.UP)

    async def loaded(self, *docs: DocKey, follow: bool = False) -> None:
        """These documents are watched and here. LoadError: the engine refused one of them."""
        self.watch(docs, follow=follow)
        replica, failed = self.session.replica, self._failed_loads
        await self.until(lambda: all(replica.is_here(doc) or doc in failed for doc in docs))
        for doc in docs:
            if doc in failed:
                raise failed.pop(doc)

    async def durable(self) -> None:
        """Every commit made so far has its verdict."""
        last = max((layer.local_seq for layer in self.session.replica.pending.live()), default=0)
        await self.until(lambda: not self._waits_for_verdict(last))

    def _waits_for_verdict(self, last: int) -> bool:
        live = self.session.replica.pending.live()
        return any(layer.local_seq <= last and layer.fate is not Fate.ACCEPTED for layer in live)

    async def synced(self) -> None:
        """Nothing is pending and nothing is loading: what is shown is what the engine's log said."""
        session = self.session
        await self.until(
            lambda: session.link is Link.UP and not len(session.replica.pending) and not session.is_loading()
        )

    async def query(self, query: Query) -> Answer:
        """Ask once. LoadError: refused, or no connection."""
        await self.opened()
        reply: asyncio.Future[Answer | LoadError] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer | LoadError) -> None:
            if not reply.done():
                reply.set_result(answer)

        self.session.query(query, answered)
        self.flush()
        await self.until(lambda: reply.done() or self.session.link is not Link.UP)
        if not reply.done():
            raise LoadError("the connection was lost before the answer came. Ask again.")
        answer = reply.result()
        if isinstance(answer, LoadError):
            raise answer
        return answer
