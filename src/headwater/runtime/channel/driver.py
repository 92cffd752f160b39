"""The driver of one session: connects, moves messages, reconnects, and lets coroutines wait for conditions.

`Driver` owns the session's connection and its timers. It resends nothing by itself: the session knows which messages
have to be replayed. Everything happens on the event loop's thread. An error that reconnecting cannot repair (no access,
an expired session, a damaged file) ends the driver and is raised to every waiter.

Acknowledgements are held back. One stands for all before it, the engine needs one now and then, and none is urgent.
Most of them travel with another message, and the last one is sent after a while.

`ReconnectBackoff` counts failed connections and gives the delay before the next one. An established connection alone is
no success: an engine that refuses a message that is sent on every connection accepts the connection each time. It never
waits and never connects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from headwater.backoff import Backoff
from headwater.clock import Clock, RealClock
from headwater.data.address import DocKey
from headwater.data.value import MAX_INT
from headwater.engine.sync.error_codes import lasting_error
from headwater.errors import AccessError, HeadwaterError, LoadError, ProtocolError, SessionExpiredError, StorageError
from headwater.protocol.messages import (
    Answer,
    ClaimCode,
    CodeClaimed,
    FromEngine,
    ObservationAnswer,
    ObservationQuestion,
    Opened,
    Problem,
    Query,
    StoredEvents,
    Sync,
    Verdicts,
)
from headwater.replica.pending import Fate
from headwater.replica.session import LinkState, Session
from headwater.runtime.channel.transport import Connection, Heard, Lost, Transport
from headwater.runtime.core.conditions import Conditions
from headwater.runtime.core.limits import RUNTIME_LIMITS

T = TypeVar("T")


class ReconnectBackoff:
    """The failed connections of one driver, and the time without a connection."""

    __slots__ = (
        "_backoff",
        "_began_us",
        "_clock",
        "_down_from_us",
        "_down_us",
        "_failures",
        "_random",
        "achieved",
        "refused",
    )

    def __init__(self, backoff: Backoff, clock: Clock, name: str) -> None:
        self._backoff = backoff
        self._clock = clock
        self._random = clock.randomness(name)
        self._failures = 0  # since the last success
        self._began_us = 0
        self._down_us = 0  # total time without a connection,
        self._down_from_us: int | None = clock.monotonic_us()  # and since when there is none; None: there is one
        self.achieved = False  # the engine answered or sent something on this connection
        self.refused = False  # it was ended for a message that may be sent again on the next one

    def began(self) -> None:
        """Record that a connection is established."""
        self._began_us = self._clock.monotonic_us()
        if self._down_from_us is not None:
            self._down_us += self._began_us - self._down_from_us
            self._down_from_us = None
        self.achieved = self.refused = False

    def ended(self) -> None:
        """Record that the connection is gone."""
        self._down_from_us = self._clock.monotonic_us()
        lasted_us = self._clock.monotonic_us() - self._began_us
        if self.achieved and lasted_us >= (
            RUNTIME_LIMITS.long_connection_us if self.refused else RUNTIME_LIMITS.sound_connection_us
        ):
            self._failures = 0

    def connected_us(self) -> int:
        """Return the time of a clock that stands still while there is no connection."""
        now_us = self._clock.monotonic_us() if self._down_from_us is None else self._down_from_us
        return now_us - self._down_us

    def delay_us(self) -> int:
        """Return the delay before the next connection, and count that connection."""
        self._failures += 1
        return self._backoff.delay_us(self._failures - 1, self._random)


def taken_back(ends: int, seen: int) -> Problem:
    """Return the problem of a log that lost commits which this session saw: the session cannot go on."""
    return Problem(
        "session_gone",
        f"the log of this space ends at seq {ends}, and seq {seen} was seen here. The server was given an older state "
        "of it, as by restoring a backup. Open a new session.",
    )


class Driver:
    """Runs one session over any number of connections. Use it as an asynchronous context manager."""

    __slots__ = (
        "_ack_timer",
        "_after",
        "_agenda",
        "_closing",
        "_complained",
        "_conditions",
        "_connection",
        "_connection_number",
        "_expected",
        "_failed_loads",
        "_flushing",
        "_gone",
        "_has_told_end",
        "_has_turn",
        "_later",
        "_loop",
        "_on_error",
        "_taking_in",
        "_task",
        "_transport",
        "_yielding",
        "on_ended",
        "place_in_queue",
        "reconnect_backoff",
        "reconnects",
        "session",
    )

    def __init__(
        self,
        session: Session,
        transport: Transport,
        *,
        clock: Clock | None = None,
        backoff: Backoff = RUNTIME_LIMITS.reconnect,
        on_error: Callable[[HeadwaterError], object] | None = None,
    ) -> None:
        self.session = session
        self.reconnects = 0
        # after a conflict: number of writers before this session, if the engine sent it
        self.place_in_queue: int | None = None
        self._transport = transport
        self.reconnect_backoff = ReconnectBackoff(backoff, clock or RealClock(), f"driver of {session.key}")
        self._on_error = on_error
        self._complained: HeadwaterError | None = None  # the last error that was reported
        self._connection_number = 0  # of the current connection; callbacks of others are ignored
        self._connection: Connection | None = None
        self._flushing = False
        self._yielding = False  # verdicts came in this turn of the loop, and their waiters run first
        self._later: deque[FromEngine] = deque()  # messages that came after them in the same turn
        self._ack_timer: asyncio.TimerHandle | None = None
        self._gone: asyncio.Event = asyncio.Event()
        self._conditions = Conditions()
        self._agenda: deque[Callable[[], object]] = deque()  # to be done in the next turn of the event loop
        self._after: deque[Callable[[], object]] = deque()  # to be done when a message was taken in
        self._has_turn = False  # that turn is scheduled
        self._taking_in = False  # the session is being given a message
        self._has_told_end = False
        self.on_ended: list[
            Callable[[HeadwaterError], object]
        ] = []  # called once, with the error that ended the driver
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
        """Begin to connect, in a task. The replica can be used at once."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"driver of {self.session.key}")

    async def close(self, why: HeadwaterError | None = None) -> None:
        """End the connection.

        With no pending commit the session sends goodbye and is over; otherwise it stays as it is, and another driver
        can take it up. `why` is raised to every waiter.
        """
        if self._closing is None:
            text = f"the driver of session {self.session.key!r} was closed: take the session up with another driver"
            self._closing = why or SessionExpiredError(text)
        if self.session.link is LinkState.UP and self.session.replica.is_confirmed():
            self.session.close()
            self.flush()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
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
        """Send the session's outgoing messages. Call it after every call that may have produced one."""
        session, connection = self.session, self._connection
        session.flush()
        if connection is None:
            return
        # With another message a little earlier than it has to be.
        if session.unacknowledged >= RUNTIME_LIMITS.acks_together - bool(session.outgoing):
            session.acknowledge()
        if session.outgoing:
            messages = list(session.outgoing)
            session.outgoing.clear()
            connection.send(messages)

    def _hold_acknowledgement(self) -> None:
        """Have an acknowledgement travel with the next message, or be sent after a while."""
        if self.session.unacknowledged >= RUNTIME_LIMITS.acks_together:
            self.flush_soon()
        elif self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(RUNTIME_LIMITS.ack_delay_s, self._acknowledge)

    def _acknowledge(self) -> None:
        self._ack_timer = None
        self.session.acknowledge()
        self.flush()

    def watch(self, docs: Iterable[DocKey], *, follow: bool = False) -> None:
        """Request documents, and every change of them."""
        wanted = tuple(docs)
        for doc in wanted:
            self._failed_loads.pop(doc, None)
        self.session.watch(wanted, follow=follow)
        self.flush()

    def renew(self, token: str) -> None:
        """Use another access token from now on. If it is renewed before the old one expires, the connection stays."""
        self.session.renew(token)
        self.flush()

    def unwatch(self, doc: DocKey) -> bool:
        """Drop a document and its watch. False: a pending commit is on top of it."""
        gone = self.session.unwatch(doc)
        self.flush()
        return gone

    async def _run(self) -> None:
        """Connect the session again and again, until it is closed or has ended."""
        try:
            await self._run_connections()
        except Exception as error:
            # A bug of the transport or of Headwater: no coroutine may wait for a driver that has stopped.
            self._listener_failed(error)
            stopped = SessionExpiredError(f"the driver of session {self.session.key!r} stopped: {error!r}")
            stopped.__cause__ = error
            self._complain(stopped)
            self._end()

    async def _run_connections(self) -> None:
        while self._closing is None:
            self._gone.clear()
            self._connection_number += 1
            try:
                self._connection = await self._transport.connect(*self._callbacks_of(self._connection_number))
            except (OSError, TimeoutError) as error:
                self._complain(ProtocolError(f"no connection: {error}"))
            except StorageError as error:
                self._closing = self._closing or error
                self._complain(error)
            else:
                self.reconnect_backoff.began()
                self.session.connected()
                self.flush()
                await self._gone.wait()
                self._connection = None
                self.place_in_queue = None  # A turn is valid on its connection only.
                self.reconnect_backoff.ended()
                self.session.lost()
                self.reconnects += 1
            if self.session.link is LinkState.GONE:
                self._closing = self._closing or SessionExpiredError(f"session {self.session.key!r} is over")
            self._wake()
            if self._closing is None:
                await asyncio.sleep(self.reconnect_backoff.delay_us() / 1e6)

    def _callbacks_of(self, number: int) -> tuple[Heard, Lost]:
        """Return the callbacks of one connection. They may be called long after the next connection was made."""

        def heard(message: FromEngine) -> None:
            if number == self._connection_number:
                self._heard(message)

        def lost(reason: str) -> None:
            if number == self._connection_number:
                self._lost(reason)

        return heard, lost

    def _heard(self, message: FromEngine) -> None:
        """Take in a message, or keep it for the next turn of the loop.

        A `Sync` follows nearly every verdict in the same bytes. The coroutines that wait for the verdicts run first, so
        that their next messages are on the way while the rest is taken in.
        """
        are_verdicts = isinstance(message, Verdicts)
        if self._yielding and (self._later or not are_verdicts):
            self._later.append(message)
            return
        self._take_in(message)
        if are_verdicts and not self._yielding:
            self._yielding = True
            self.wake()  # After the coroutines woken just now.

    def soon(self, act: Callable[[], object]) -> None:
        """Call `act` in the next turn of the event loop, before another message is taken in."""
        self._agenda.append(act)
        self.wake()

    def after_message(self, act: Callable[[], object]) -> None:
        """Call `act` as soon as the message that is being taken in was; in the next turn if none is."""
        if self._taking_in:
            self._after.append(act)
        else:
            self.soon(act)

    def wake(self) -> None:
        """Check every condition in the next turn of the event loop."""
        if not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        agenda, self._agenda = self._agenda, deque()
        _call_each(agenda)
        self._yielding = False
        if not self._later:  # Otherwise they are checked after a message was taken in.
            self._check()
        while self._later and not self._yielding:
            self._heard(self._later.popleft())

    def _hear_rest(self) -> None:
        """Take in all kept messages before the state of the connection changes."""
        while self._later:
            self._take_in(self._later.popleft())

    def _take_in(self, message: FromEngine) -> None:
        """Give a message to the session; then check every condition. `EngineChannel._listen` waits for one."""
        if isinstance(message, Problem) and message.code == "access" and message.fatal:
            self._closing = AccessError(message.message)
            self._end()
            return
        # fault driver.damaged_space_tried_again: lasting = None
        lasting = lasting_error(message) if isinstance(message, Problem) else None
        if lasting is not None:
            self._closing = lasting
            self._complain(lasting)
            self._end()
            return
        if isinstance(message, Sync) and message.turn is not None:
            self.place_in_queue = message.turn
        elif isinstance(message, Opened) and message.seq < self.session.replica.confirmed.seq:
            message = taken_back(message.seq, self.session.replica.confirmed.seq)
        self._taking_in = True
        try:
            self.session.receive(message)
        except ProtocolError as error:
            if error is not self._complained:  # Problems of the engine came through `on_error`.
                self._complain(error)
            self.reconnect_backoff.refused = True
            self._end()  # In both cases this connection cannot go on.
            return
        finally:
            self._taking_in = False
            if self._after:
                after, self._after = self._after, deque()
                _call_each(after)
        if self.session.link is LinkState.UP:
            if not isinstance(message, Opened | Problem):
                self.reconnect_backoff.achieved = True
        elif self.session.link is LinkState.GONE:
            self._end()
            return
        if not isinstance(message, Verdicts):  # After them the conditions are checked once their waiters have run.
            self._check()
        if self.session.outgoing:
            self.flush_soon()
        elif self.session.unacknowledged:
            self._hold_acknowledgement()

    def flush_soon(self) -> None:
        """Flush after the coroutines woken just now have run, so that their messages are sent with the others."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flushing = False
        self.flush()

    def _lost(self, reason: str) -> None:
        self._hear_rest()
        if self._closing is None and not self._gone.is_set():
            self._complain(ProtocolError(f"the connection was lost: {reason}"))
        self._connection_number += 1
        self._gone.set()

    def _end(self) -> None:
        self._connection_number += 1
        self._later.clear()
        if self._connection is not None:
            self._connection.close()
        self._gone.set()
        self._wake()

    def _complain(self, error: HeadwaterError) -> None:
        if isinstance(error, SessionExpiredError) and self._closing is None:
            self._closing = error  # The reason is raised to every waiter.
        self._complained = error
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception as raised:
                self._listener_failed(raised)

    def _listener_failed(self, error: Exception) -> None:
        """Report an error of a listener or callback of the program. The session took the message in all the same."""
        message = f"a listener of session {self.session.key!r} raised an error"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _load_failed(self, docs: tuple[DocKey, ...], error: LoadError) -> None:
        for doc in docs:
            self._failed_loads[doc] = error

    # ---- waiting -----------------------------------------------------------------------------------

    def when(self, holds: Callable[[], bool], act: Callable[[], object]) -> None:
        """Call `act` once, as soon as `holds()` is true. It is not called if the driver ends before."""
        self._conditions.when(holds, act)

    async def until(self, holds: Callable[[], bool], *, within_us: int | None = None) -> bool:
        """Wait until `holds()` is true, for at most `within_us`. Returns whether it is true.

        Raises the error that ended the driver, if that comes first.
        """
        return await self._conditions.until(holds, within_us=within_us)

    @property
    def ended(self) -> Exception | None:
        """The error that ended the driver. None: it has not ended."""
        return self._closing

    def _check(self) -> None:
        if self._closing is None:
            self._conditions.check()
        else:
            self._conditions.end(self._closing)

    def _wake(self) -> None:
        self.wake()
        if self._closing is not None:
            for future in self._expected:
                if not future.done():  # A done future leaves the set only in the next turn of the loop.
                    future.set_exception(self._closing)
            self._expected.clear()
            if not self._has_told_end:
                self._has_told_end = True
                for told in self.on_ended:
                    told(self._closing)

    def expected(self) -> asyncio.Future[Any]:
        """Return a future for a result that the session will deliver. The future fails if the driver ends before."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._expected.add(future)
        future.add_done_callback(self._expected.discard)
        if self._closing is not None:
            future.set_exception(self._closing)
        return future

    async def opened(self) -> None:
        """Wait until the session is open over a connection."""
        await self.until(lambda: self.session.link is LinkState.UP)

    async def loaded(self, *docs: DocKey, follow: bool = False) -> None:
        """Wait until documents are watched and here. LoadError: the engine refused one of them."""
        self.watch(docs, follow=follow)
        replica, failed = self.session.replica, self._failed_loads
        await self.until(lambda: all(replica.is_here(doc) or doc in failed for doc in docs))
        for doc in docs:
            if doc in failed:
                raise failed.pop(doc)

    def is_refused(self, doc: DocKey) -> bool:
        """True if the engine refused a document that was requested."""
        return doc in self._failed_loads

    def take_refusal(self, doc: DocKey) -> LoadError | None:
        """Return the error with which a document was refused, and forget it. None: it was not refused."""
        return self._failed_loads.pop(doc, None)

    async def durable(self) -> None:
        """Wait until every commit made so far, and every result, has its verdict."""
        self.flush()
        last = max((layer.local_seq for layer in self.session.replica.pending.live()), default=0)
        await self.until(lambda: not self._waits_for_verdict(last))

    def _waits_for_verdict(self, last: int) -> bool:
        live = self.session.replica.pending.live()
        if any(layer.local_seq <= last and layer.fate is not Fate.ACCEPTED for layer in live):
            return True
        return self.session.replica.tier.is_waiting()

    async def synced(self) -> None:
        """Wait until no commit is pending and no document is loading: the visible state is that of the engine's log."""
        session = self.session
        await self.until(
            lambda: session.link is LinkState.UP and session.replica.is_confirmed() and not session.is_loading()
        )

    async def query(self, query: Query) -> Answer:
        """Send a query once and return its answer. LoadError: the query was refused, or there is no connection."""
        return await self._ask(lambda reply: self.session.query(query, reply))

    async def answer_of(self, query: Query) -> Answer:
        """Send a query and return its answer; on the next connection, if this one is lost. LoadError: it was refused.

        Raises the error that ended the driver, if that comes first.
        """
        return await self._answer_of(lambda reply: self.session.query(query, reply))

    async def claim_code(self, question: ClaimCode) -> bool:
        """Claim the code of a class, and return whether it was granted. Waits and raises as `answer_of` does."""

        def send(reply: Callable[[CodeClaimed | LoadError], object]) -> None:
            self.session.queries.claim_code(question, reply)

        return (await self._answer_of(send)).is_granted

    async def _answer_of(self, send: Callable[[Callable[[T | LoadError], object]], object]) -> T:
        while True:
            number = self._connection_number
            try:
                return await self._ask(send)
            except LoadError:
                if number == self._connection_number and self.session.link is LinkState.UP:
                    raise

    async def look(self, question: ObservationQuestion) -> ObservationAnswer:
        """Send a question about nodes or their reads once and return its answer. LoadError: as for `query`."""
        return await self._ask(lambda reply: self.session.queries.look(question, reply))

    async def stored_events(
        self, *, due_by_us: int = MAX_INT, after: tuple[int, str] = (0, ""), limit: int
    ) -> StoredEvents:
        """Return a page of the stored events that are due at `due_by_us` or before. LoadError: as for `query`."""
        return await self._ask(
            lambda reply: self.session.queries.ask_events(reply, due_by_us=due_by_us, after=after, limit=limit)
        )

    async def _ask(self, send: Callable[[Callable[[T | LoadError], object]], object]) -> T:
        await self.opened()
        reply: asyncio.Future[T | LoadError] = asyncio.get_running_loop().create_future()

        def answered(answer: T | LoadError) -> None:
            if not reply.done():
                reply.set_result(answer)

        send(answered)
        self.flush()
        await self.until(lambda: reply.done() or self.session.link is not LinkState.UP)
        if not reply.done():
            raise LoadError("the connection was lost before the answer came. Ask again.")
        answer = reply.result()
        if isinstance(answer, LoadError):
            raise answer
        return answer


def _call_each(calls: deque[Callable[[], object]]) -> None:
    """Make each call. A bug or an interrupt is raised in a callback of its own: the others, and messages, go on."""
    while calls:
        try:
            calls.popleft()()
        except BaseException as error:
            asyncio.get_running_loop().call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error
