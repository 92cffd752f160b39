"""`Transactions`: transactions of one runtime outside any run, in spaces with an engine and in spaces without one.

With an engine, the channel of the space retries a transaction until it lands. Without one, no other writer can be
faster and every commit stays, so that only missing documents and stale computeds make an attempt start again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from headwater.errors import AuthoringError
from headwater.replica.document import Document
from headwater.replica.feed import ignore
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.tracker import Missing, Overtaking, Stale, TransactionTracker
from headwater.runtime.writing.attempt import FunctionWrite, RetriedWrite
from headwater.runtime.writing.space_channel import (
    SpaceChannel,
    wait_for_documents,
    wait_for_plain_writes,
    wait_until_fresh,
)
from headwater.runtime.writing.states import Happened, WriteState
from headwater.scheduler.failures import INTERRUPTS

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core

P = ParamSpec("P")
R = TypeVar("R")


class LocalWriter:
    """Takes writes of spaces without an engine through their attempts.

    No other writer can be faster there, and every commit stays.
    """

    __slots__ = ("_core", "_transactions")

    def __init__(self, core: Core, transactions: Transactions) -> None:
        self._core = core
        self._transactions = transactions

    async def result_of(self, space: LocalSpace, write: FunctionWrite[R]) -> R:
        """Submit a write, and wait for its result."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        write.future = future
        self.submit(space, write)
        try:
            return await future
        finally:
            if not write.is_over:
                self.withdraw(write)
                write.take(Happened.OVER)

    def submit(self, space: LocalSpace, write: RetriedWrite) -> None:
        """Take a write through its attempts, beginning now if it has its turn."""
        write.requeue = lambda write: self._core.afterwards(lambda: self.advance(space, write))
        self.advance(space, write)

    def withdraw(self, write: RetriedWrite) -> None:
        """Forget a write that is called no more: its owner ends it."""
        write.end_demands()

    def advance(self, space: LocalSpace, write: RetriedWrite) -> None:
        """Make an attempt of a queued write, if it has its turn."""
        core, replica = self._core, space.replica
        if write.state is not WriteState.QUEUED or not write.has_turn():
            return
        core.plain_writes.catch_up()
        if write.is_over:
            return  # It was withdrawn by an earlier write.
        transaction = replica.begin(node=write.node)
        write.take(Happened.TURN)
        try:
            write.call(transaction)
        except Missing as missing:
            replica.drop(transaction)
            write.take(Happened.MISSING)
            for document in missing.documents:
                core.load(document)
            wait_for_documents(core, write, missing.documents, partial(self._arrived, write))
        except Stale as stale:
            replica.drop(transaction)
            write.take(Happened.STALE)
            wait_until_fresh(core, write, stale.documents, partial(self._fail, write))
        except Overtaking as overtaking:
            replica.drop(transaction)
            write.take(Happened.STALE)
            wait_for_plain_writes(core, write, overtaking.documents)
        except BaseException as error:
            replica.drop(transaction)
            self._fail(write, error)
            if isinstance(error, INTERRUPTS):
                raise
        else:
            self._commit(replica, write, transaction)

    def _arrived(self, write: RetriedWrite, refused: Exception | None) -> None:
        if refused is not None:
            self._core.afterwards(lambda: self._fail(write, refused))
        else:
            write.take(Happened.ARRIVED)
            write.requeue(write)

    def _commit(self, replica: Replica, write: RetriedWrite, transaction: Transaction) -> None:
        core, transactions = self._core, self._transactions
        write.attempts += 1
        write.take(Happened.COMMITTED)
        core.plain_writes.commit(replica, transaction, write.heard)
        write.made(transaction)
        core.request_tick()
        core.observers.when(
            lambda: write.state is not WriteState.SENT or transactions.have_verdicts(), lambda: self._decided(write)
        )

    def _decided(self, write: RetriedWrite) -> None:
        if write.state is WriteState.SENT:
            self._core.afterwards(lambda: self._landed(write))

    def _landed(self, write: RetriedWrite) -> None:
        if write.state is WriteState.SENT:
            ended = self._transactions.ended_with_debts()
            if ended is not None:
                self._fail(write, ended)
            else:
                write.end_demands()
                write.landed()

    def _fail(self, write: RetriedWrite, error: BaseException) -> None:
        if write.is_over:
            return
        write.failed(error)
        self._forget_ended(write)

    def _forget_ended(self, write: RetriedWrite) -> None:
        if write.is_over:  # An event may wait instead, and be called again.
            self.withdraw(write)


class Transactions:
    """Runs the transactions of one runtime, and waits for verdicts."""

    __slots__ = ("_channels", "_core", "local", "on_missed", "release_if_unread")

    def __init__(self, core: Core, channels: Mapping[str, SpaceChannel]) -> None:
        self._core = core
        self._channels = channels  # by space; a space without an engine has none
        self.local = LocalWriter(core, self)
        # Called with a document that an attempt stopped at: requests more, which it adds, and which are let be later.
        self.on_missed: Callable[[Document, dict[Document, None]], object] = ignore
        self.release_if_unread: Callable[[dict[Document, None]], object] = ignore

    async def transact(self, space: LocalSpace, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in one transaction of a space, again if its reads are stale.

        Returns the function's result once the commit is durable.
        """
        core = self._core
        core.check_thread()

        def called() -> R:
            result = fn(*args, **kwargs)
            if inspect.iscoroutine(result):
                result.close()
                raise AuthoringError(
                    f"transact({_name(fn)}) made a coroutine: a transaction never awaits. Do that before."
                )
            return result

        replica = space.replica
        brought: dict[Document, None] = {}

        def attempt(transaction: Transaction) -> R:
            tracker = TransactionTracker(core.scheduler, replica, transaction, core.visible)
            try:
                made = core.call_in(replica, transaction, called, tracker)
            except Missing as missing:
                for document in missing.documents:
                    self.on_missed(document, brought)
                raise
            except Exception:
                # It may have failed because of a value that is about to be replaced.
                core.plain_writes.check_turn(space, transaction, tracker.wrote)
                raise
            core.plain_writes.check_turn(space, transaction, tracker.wrote)
            return made

        try:
            return await self.land(space, attempt, who=f"transact({_name(fn)})")
        finally:
            self.release_if_unread(brought)

    async def land(
        self,
        space: LocalSpace,
        attempt: Callable[[Transaction], R],
        *,
        node: str = "",
        retries: int | None = None,
        who: str = "a transaction",
    ) -> R:
        """Call `attempt` with a transaction of a space, like `transact`, until its commit is durable.

        `who` names the transaction in the error that is raised if a computed that it reads does not settle.
        """
        channel = self._channels.get(space.name)
        if channel is None:
            made = await self.local.result_of(space, FunctionWrite(attempt, node=node, who=who, retries=retries))
        else:
            made = await channel.land(attempt, node=node, who=who, retries=retries)
        self._core.request_tick()
        return made

    # ---- verdicts ----------------------------------------------------------------------------------

    async def await_verdicts(self) -> None:
        """Wait until every commit made so far has its verdict. Raise the error of an ended space that owes one."""
        await self._core.observers.until(self.have_verdicts)
        ended = self.ended_with_debts()
        if ended is not None:
            raise ended

    def ended_with_debts(self) -> Exception | None:
        """Return the error of an ended space that owes a verdict. None: no space does."""
        for space in self._core.spaces():
            if space.ended is not None and not self._is_durable(space):
                return space.ended
        return None

    def have_verdicts(self) -> bool:
        """Return whether no commit or write waits for a verdict that may still come."""
        core = self._core
        if core.plain_writes.waits():
            return False
        for space in core.spaces():  # noqa: SIM110  # A loop, because a generator doubles the cost.
            if not (self._is_durable(space) or space.ended is not None):
                return False
        return True

    def _is_durable(self, space: LocalSpace) -> bool:
        channel = self._channels.get(space.name)
        return space.channel.is_durable() and not space.deferred() and (channel is None or not channel.retries)


def _name(fn: Callable[..., object]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)
