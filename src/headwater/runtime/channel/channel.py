"""The channel of a space that has an engine: a session, its driver and its writer.

The session takes in the engine's messages; afterwards the channel calls `Core.heard`. Waves and plain writes are sent
at the end of a slice, transactions of the writer at once. The writer retries transactions that were rejected for a
stale view. The channel makes no decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError, LimitError, LoadError, SessionExpiredError
from headwater.protocol.verdict import Conflict, RuleRefused
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.replica.session import Link, Session
from headwater.replica.transaction import Transaction
from headwater.runtime.channel.driver import Driver
from headwater.runtime.channel.transport import Transport
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.writing.attempt import WriteAttempt
from headwater.runtime.writing.retry import RetryPolicy, Writer
from headwater.runtime.writing.tracker import Missing, call_in

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core

T = TypeVar("T")
MAX_RETRIES = 1_000
"""Maximum number of writes outside any run that are retried at the same time."""


class _Elsewhere(Exception):
    """A document of another space is missing, which this space's writer cannot fetch."""

    def __init__(self, missing: Missing) -> None:
        self.missing = missing


class _Broken(Exception):
    """A bug of Headwater showed while messages of the engine were taken in."""


class EngineChannel:
    """The channel of one space of a runtime to its engine."""

    __slots__ = ("_closing", "_complained", "_core", "_listening", "_local", "_retries", "driver", "replica", "writer")

    def __init__(
        self, core: Core, name: str, transport: Transport, *, token: str = "", policy: RetryPolicy | None = None
    ) -> None:
        self._core = core
        self.replica = Replica()
        session = Session(
            self.replica, space=name, key=core.clock.new_token(), new_token=core.clock.new_token, token=token
        )
        session.keeps_derived = True
        self.driver = Driver(session, transport, clock=core.clock, on_error=self._complain)
        self.writer = Writer(self.driver, policy=policy, clock=core.clock)
        session.on_released = core.request_tick
        core.on_ended.append(self._other_ended)
        self._refusals(session)
        self._complained = ""
        self._closing = False
        self._retries: set[asyncio.Task[object]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._local: LocalSpace | None = None

    def start(self, space: LocalSpace) -> None:
        """Connect, and be the channel of this space from now on."""
        self._local = space
        space.retry = self._retry
        self.driver.start()
        self._listening = asyncio.get_running_loop().create_task(self._listen(), name=f"space {space.name}")

    async def close(self, why: HeadwaterError) -> None:
        self._closing = True
        for task in (*self._retries, *((self._listening,) if self._listening is not None else ())):
            task.cancel()
            await asyncio.wait([task])
        await self.driver.close(why)

    # ---- hearing -----------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Call `Core.heard` after every message that the session took in, until the driver ends."""

        def heard() -> bool:
            try:
                self._core.heard()
            except Exception as error:  # A bug of Headwater, and no end of a space.
                self._core.broken(error)
                raise _Broken from error
            return False

        try:
            await self.driver.until(heard)
        except HeadwaterError as error:
            if not self._closing and self._local is not None:
                self._core.ended(self._local, error)
        except _Broken as broken:
            raise broken.__cause__ or broken from None

    def _other_ended(self, other: LocalSpace) -> None:
        """Reject the commits that wait for verdicts of another space that ended."""
        why = f"it read commits of space {other.name}, of which it is not known whether they landed: {other.ended}"
        held = [each.local_seq for each in self.replica.pending.queued() if each.waits and other.is_pending(each.waits)]
        if held:
            self.replica.all_rejected(dict.fromkeys(held, RuleRefused("space_ended", why)))
            self.replica.report()
            self._core.request_tick()

    def _complain(self, error: HeadwaterError) -> None:
        """Report an error of the driver, which tries again. Repetitions of the same error are not reported."""
        if not self._closing and str(error) != self._complained and not isinstance(error, SessionExpiredError):
            self._complained = str(error)
            self._core.report(f"space {self.driver.session.space}", error)

    def _refusals(self, session: Session) -> None:
        to_driver: Callable[[tuple[DocKey, ...], LoadError], object] = session.on_load_failed

        def refused(docs: tuple[DocKey, ...], error: LoadError) -> None:
            to_driver(docs, error)
            if self._local is not None:
                self._core.load_failed(self._local, docs, error)

        session.on_load_failed = refused

    # ---- the channel -------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey]) -> None:
        self.driver.session.watch(docs)
        self._core.request_tick()  # All requests of one slice are sent together.

    def watch_together(self, docs: Iterable[DocKey], ahead: Iterable[DocKey]) -> None:
        """Request many documents at once, with some (`ahead`) that will perhaps be requested next."""
        self.driver.session.watch(docs, ahead=ahead)
        self.driver.flush()

    def unwatch(self, doc: DocKey) -> bool:
        return self.driver.session.unwatch(doc)

    def flush(self) -> None:
        self.driver.flush()

    def tell_runs(self) -> None:
        """Send the observations of runs that changed nothing now, instead of with the next commit."""
        self.driver.session.tell_runs()
        self.driver.flush()

    def is_up(self) -> bool:
        """True if there is a connection."""
        return self.driver.session.link is Link.UP

    def is_ready(self, conflict: Conflict) -> bool:
        return self.driver.session.ready(conflict)

    def is_durable(self) -> bool:
        """True if no commit made here waits for its verdict. Layers that stay local for good do not count."""
        return not self.replica.pending.waiting()

    # ---- writing -----------------------------------------------------------------------------------

    async def transact(self, fn: Callable[[], T]) -> T:
        """Call a function in a transaction until its commit lands, by the one policy of retrying."""
        core, replica = self._core, self.replica
        return await self.land(lambda transaction: call_in(core.current, replica, transaction, core.visible, fn))

    async def land(
        self,
        attempt: Callable[[Transaction], T],
        *,
        node: str = "",
        retries: int | None = None,
        effort: WriteAttempt | None = None,
    ) -> T:
        """Call `attempt` with a transaction until its commit lands. Missing documents of any space are fetched."""
        core, replica, local = self._core, self.replica, self._local
        assert local is not None
        loaded: dict[Document, None] = {}

        def attempted(transaction: Transaction) -> T:
            try:
                made = attempt(transaction)
                if transaction.waits:
                    core.check_decidable(transaction.waits)
                return made
            except Missing as missing:
                if missing.document.home is replica:
                    loaded[missing.document] = None
                    raise
                raise _Elsewhere(missing) from None

        try:
            while True:
                try:
                    return await self.writer.transact(attempted, node=node, retries=retries, effort=effort)
                except _Elsewhere as elsewhere:
                    await core.loaded(elsewhere.missing.document)
        finally:
            for document in loaded:
                local.let_be(document)

    def _retry(self, attempt: Callable[[Transaction], object], over: Callable[[], object]) -> None:
        """Retry a write outside any run that met a conflict until it lands, or report that it failed."""
        if len(self._retries) >= MAX_RETRIES:
            error = LimitError(f"{MAX_RETRIES} writes are tried again at once: await them, or write less often")
            self._core.report("a write outside any run", error)
            over()
            return
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(self.land(attempt))
        self._retries.add(task)
        task.add_done_callback(lambda task: self._retried(task, over))

    def _retried(self, task: asyncio.Task[object], over: Callable[[], object]) -> None:
        self._retries.discard(task)
        over()
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, Exception):
                self._core.report("a write outside any run", error)

    @property
    def retries(self) -> int:
        """Return the number of writes that are being retried."""
        return len(self._retries)

    # ---- a number ----------------------------------------------------------------------------------

    async def reached(self, seq: int) -> None:
        """Wait until every watched document is shown as of `seq` or later."""
        confirmed = self.replica.confirmed
        if confirmed.seq >= seq:
            return
        # The engine sends nothing about commits that no watch here concerns; the answer to a request is as of now.
        marker = DocKey("space", f"barrier {self._core.clock.new_token(8)}")
        await self.driver.loaded(marker)
        self.driver.unwatch(marker)
        if confirmed.seq < seq:
            raise HeadwaterError(
                f"space {self.driver.session.space!r} is at {confirmed.seq}: there is no commit {seq} to wait for"
            )
