"""`Transactions`: transactions of one runtime outside any run, in spaces with an engine and in spaces without one.

With an engine, the channel of the space retries a transaction until it lands. Without one, no other writer can be
faster and every commit stays, so that only missing documents and stale computeds make an attempt start again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from headwater.errors import AuthoringError
from headwater.replica.document import Document
from headwater.replica.feed import ignore
from headwater.replica.transaction import Transaction
from headwater.runtime.core.demand import with_fresh_values
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.tracker import Missing, TransactionTracker
from headwater.runtime.writing.attempt import RetriedWrite
from headwater.runtime.writing.space_channel import SpaceChannel

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core

P = ParamSpec("P")
R = TypeVar("R")


class Transactions:
    """Runs the transactions of one runtime, and waits for verdicts."""

    __slots__ = ("_channels", "_core", "let_be", "on_missed")

    def __init__(self, core: Core, channels: Mapping[str, SpaceChannel]) -> None:
        self._core = core
        self._channels = channels  # by space; a space without an engine has none
        # Called with a document that an attempt stopped at: requests more, which it adds, and which are let be later.
        self.on_missed: Callable[[Document, dict[Document, None]], object] = ignore
        self.let_be: Callable[[dict[Document, None]], object] = ignore

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
            self.let_be(brought)

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
        write = RetriedWrite(retries)  # Its conflicts count also over attempts that read a stale value.

        async def land() -> R:
            if channel is None:
                return await self._land_here(space, attempt, node)
            return await channel.land(attempt, node=node, write=write)

        made = await with_fresh_values(self._core, who, land)
        self._core.request_tick()
        return made

    async def _land_here(self, space: LocalSpace, attempt: Callable[[Transaction], R], node: str) -> R:
        """Commit in a space without an engine."""
        core, replica = self._core, space.replica
        while True:
            core.plain_writes.catch_up()
            transaction = replica.begin(node=node)
            try:
                made = attempt(transaction)
            except Missing as missing:
                replica.drop(transaction)
                await core.loaded(*missing.documents)
                continue
            except BaseException:
                replica.drop(transaction)
                raise
            core.plain_writes.commit(replica, transaction)
            core.request_tick()
            await self.await_verdicts()
            return made

    # ---- verdicts ----------------------------------------------------------------------------------

    async def await_verdicts(self) -> None:
        """Wait until every commit made so far has its verdict. Raise the error of an ended space that owes one."""
        core = self._core
        await core.observers.until(self.have_verdicts)
        for space in core.spaces():
            if space.ended is not None and not self._is_durable(space):
                raise space.ended

    def have_verdicts(self) -> bool:
        """Return whether no commit or write waits for a verdict that may still come."""
        core = self._core
        return not core.plain_writes.waits() and all(
            self._is_durable(space) or space.ended is not None for space in core.spaces()
        )

    def _is_durable(self, space: LocalSpace) -> bool:
        channel = self._channels.get(space.name)
        return space.channel.is_durable() and not space.deferred() and (channel is None or not channel.retries)


def _name(fn: Callable[..., object]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)
