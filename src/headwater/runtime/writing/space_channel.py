"""`SpaceChannel`: the channel of a space that has an engine, with its writer.

Transactions of the writer are sent at once. The writer retries those that were rejected for a stale view, and fetches
the documents that they read. Plain writes that met a conflict are retried here as well (`LocalSpace.retry`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import HeadwaterError, LimitError
from headwater.replica.document import Document
from headwater.replica.transaction import Transaction
from headwater.runtime.channel.channel import EngineChannel
from headwater.runtime.core.demand import with_fresh_values
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.plain_writes import WHO
from headwater.runtime.core.policy import RetryPolicy
from headwater.runtime.core.tracker import Missing
from headwater.runtime.writing.attempt import RetriedWrite
from headwater.runtime.writing.retry import Writer

if TYPE_CHECKING:
    from headwater.runtime.channel.transport import Transport
    from headwater.runtime.core.core import Core

T = TypeVar("T")


class _Elsewhere(Exception):
    """Documents of other spaces are missing, which this space's writer cannot fetch."""

    def __init__(self, missing: Missing) -> None:
        self.missing = missing


class SpaceChannel(EngineChannel):
    """The channel of one space of a runtime to its engine, and the transactions that are sent over it."""

    __slots__ = ("_retries", "writer")

    def __init__(
        self, core: Core, name: str, transport: Transport, *, token: str = "", policy: RetryPolicy | None = None
    ) -> None:
        super().__init__(core, name, transport, token=token)
        self.writer = Writer(self.driver, core.plain_writes.catch_up, policy=policy, clock=core.clock)
        self._retries: set[asyncio.Task[object]] = set()

    def start(self, space: LocalSpace) -> None:
        """Connect, and be the channel of this space from now on."""
        space.retry = self._retry
        super().start(space)

    async def close(self, why: HeadwaterError) -> None:
        """End the retries and the connection. Callers that wait for an answer get `why`."""
        self._closing = True
        for task in tuple(self._retries):
            task.cancel()
            await asyncio.wait([task])
        await super().close(why)

    async def land(
        self,
        attempt: Callable[[Transaction], T],
        *,
        node: str = "",
        retries: int | None = None,
        write: RetriedWrite | None = None,
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
                here = [document for document in missing.documents if document.home is replica]
                for document in here:
                    local.load(document)
                self.request()
                loaded.update(dict.fromkeys(here))
                if len(here) < len(missing.documents):
                    raise _Elsewhere(missing) from None
                raise

        try:
            while True:
                try:
                    return await self.writer.transact(attempted, node=node, retries=retries, write=write)
                except _Elsewhere as elsewhere:
                    await core.loaded(*elsewhere.missing.documents)
        finally:
            for document in loaded:
                local.let_be(document)

    def _retry(self, attempt: Callable[[Transaction], object], over: Callable[[], object]) -> None:
        """Retry a write outside any run that met a conflict until it lands, or report that it failed."""
        if len(self._retries) >= RUNTIME_LIMITS.retried_writes:
            error = LimitError(
                f"{RUNTIME_LIMITS.retried_writes} writes are tried again at once: await them, or write less often"
            )
            self._core.report(WHO, error)
            over()
            return
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(
            with_fresh_values(self._core, WHO, lambda: self.land(attempt))
        )
        self._retries.add(task)
        task.add_done_callback(lambda task: self._retried(task, over))

    def _retried(self, task: asyncio.Task[object], over: Callable[[], object]) -> None:
        self._retries.discard(task)
        over()
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, Exception):
                self._core.report(WHO, error)

    @property
    def retries(self) -> int:
        """Return the number of writes that are being retried."""
        return len(self._retries)
