"""`SpaceChannel`: the channel of a space that has an engine, with its writer.

The writer of a runtime's space waits for more than the writer of a session alone: for documents of other spaces, for
values that are not fresh, and for earlier plain writes. Plain writes that met a conflict are retried here as well
(`LocalSpace.retry`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import HeadwaterError, LimitError
from headwater.replica.document import NOT_HERE
from headwater.replica.transaction import Transaction
from headwater.runtime.channel.channel import EngineChannel
from headwater.runtime.core.demand import Demand
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.plain_writes import WHO
from headwater.runtime.core.policy import RetryPolicy
from headwater.runtime.core.tracker import Missing, Overtaking, Stale
from headwater.runtime.writing.attempt import FunctionWrite, RetriedWrite
from headwater.runtime.writing.retry import Writer
from headwater.runtime.writing.states import Happened, WriteState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.replica.document import Document
    from headwater.runtime.channel.transport import Transport
    from headwater.runtime.core.core import Core

T = TypeVar("T")


class SpaceWriter(Writer):
    """The writer of one space of a runtime."""

    __slots__ = ("_core", "_request", "local")

    def __init__(self, core: Core, channel: EngineChannel, policy: RetryPolicy | None) -> None:
        super().__init__(channel.driver, core.plain_writes.catch_up, policy=policy, clock=core.clock)
        self._core = core
        self._request = channel.request
        self.local: LocalSpace | None = None

    def _send_soon(self) -> None:
        """Have a commit sent by the slice that derives results from it: they land together or not at all."""
        self._core.scheduler.pass_.request_tick()

    def _stopped(self, write: RetriedWrite, error: BaseException) -> None:
        if isinstance(error, Missing):
            write.take(Happened.MISSING)
            self._load_documents(write, error.documents)
        elif isinstance(error, Stale):
            write.take(Happened.STALE)
            wait_until_fresh(self._core, write, error.documents, partial(self._fail, write))
        elif isinstance(error, Overtaking):
            write.take(Happened.STALE)
            wait_for_plain_writes(self._core, write, error.documents)
        else:
            super()._stopped(write, error)

    def _load_documents(self, write: RetriedWrite, documents: Sequence[Document]) -> None:
        """Wake a write when documents of any space are here."""
        for document in documents:
            self._core.load(document)
            if document.home is self._driver.session.replica:
                write.loaded[document] = None
        self._request()
        self._driver.flush_soon()
        wait_for_documents(self._core, write, documents, partial(self._arrived, write))

    def _release_documents(self, write: RetriedWrite) -> None:
        assert self.local is not None
        for document in write.loaded:
            self.local.release_if_unread(document)
        write.loaded.clear()


def wait_for_documents(
    core: Core, write: RetriedWrite, documents: Sequence[Document], arrived: Callable[[Exception | None], object]
) -> None:
    """Call `arrived` when documents are here, or one of them will not come, with the reason."""

    def why_not() -> Exception | None:
        missing = (each for each in documents if each.value is NOT_HERE)
        return next((why for each in missing if (why := core.why_not(each)) is not None), None)

    def is_over() -> bool:
        if write.state is not WriteState.LOADING or why_not() is not None:
            return True
        return all(each.value is not NOT_HERE for each in documents)

    def over() -> None:
        if write.state is WriteState.LOADING:
            arrived(why_not())

    core.observers.when(is_over, over)


def wait_until_fresh(
    core: Core, write: RetriedWrite, documents: Sequence[Document], failed: Callable[[Exception], object]
) -> None:
    """Wake a parked write when stale documents are fresh. The documents stay demanded until its end."""
    key = tuple(documents)
    former = write.demands.get(key)
    if former is not None and write.insists:
        waited_for = former
    else:
        waited_for = write.demands[key] = Demand(core, write.who, documents, insists=write.insists)
        if former is not None:  # The values were fresh in between: they have their time again.
            former.end()
    write.parked(documents)

    def over() -> None:
        if write.state is WriteState.PARKED:
            error = waited_for.error()
            if error is not None:
                core.afterwards(lambda: failed(error))
            else:
                write.take(Happened.FRESH)
                write.requeue(write)

    core.observers.when(lambda: write.state is not WriteState.PARKED or waited_for.is_over(), over)


def wait_for_plain_writes(core: Core, write: RetriedWrite, documents: Sequence[Document]) -> None:
    """Wake a parked write when earlier plain writes to documents are made."""
    write.behind(documents)

    def over() -> None:
        if write.state is WriteState.PARKED:
            write.take(Happened.FRESH)
            write.requeue(write)

    core.observers.when(lambda: write.state is not WriteState.PARKED or core.plain_writes.are_made(documents), over)


class SpaceChannel(EngineChannel):
    """The channel of one space of a runtime to its engine, and the transactions that are sent over it."""

    __slots__ = ("retries", "writer")

    def __init__(
        self, core: Core, name: str, transport: Transport, *, token: str = "", policy: RetryPolicy | None = None
    ) -> None:
        super().__init__(core, name, transport, token=token)
        self.writer = SpaceWriter(core, self, policy)
        self.retries = 0  # plain writes that are being retried

    def start(self, space: LocalSpace) -> None:
        """Connect, and be the channel of this space from now on."""
        space.retry = self._retry
        self.writer.local = space
        super().start(space)

    async def land(
        self,
        attempt: Callable[[Transaction], T],
        *,
        node: str = "",
        retries: int | None = None,
        who: str = "a transaction",
    ) -> T:
        """Call `attempt` with a transaction until its commit lands. Documents of any space that it reads are fetched,
        and values that it reads are made fresh."""
        core = self._core

        def attempted(transaction: Transaction) -> T:
            made = attempt(transaction)
            if transaction.waits:
                core.check_decidable(transaction.waits)
            return made

        return await self.writer.result_of(FunctionWrite(attempted, node=node, who=who, retries=retries))

    def _retry(self, attempt: Callable[[Transaction], object], over: Callable[[], object]) -> None:
        """Retry a write outside any run that met a conflict until it lands, or report that it failed."""
        if self.retries >= RUNTIME_LIMITS.retried_writes:
            error = LimitError(
                f"{RUNTIME_LIMITS.retried_writes} writes are tried again at once: await them, or write less often"
            )
            self._core.report(WHO, error)
            over()
            return

        def ended(error: BaseException | None) -> None:
            self.retries -= 1
            over()
            if isinstance(error, Exception) and not (self._closing and isinstance(error, HeadwaterError)):
                self._core.report(WHO, error)

        self.retries += 1
        write = FunctionWrite(attempt, who=WHO, on_over=ended)
        self.writer.submit_soon(write)
