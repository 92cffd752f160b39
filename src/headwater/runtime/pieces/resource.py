"""Resources: values from outside the system, fetched while a reader demands them.

A node computes the input for which a result is wanted (`wanted`); it is demanded like any computed. A reader of the
member reads `wanted` and the last result: if they belong together the resource is ready or failed, otherwise it is
pending, which is never stored. The author's function is awaited outside any run. Its result is written in a transaction
that reads the input again, so that admission decides whether the result still holds.

Of several runtimes, the one with the claim fetches. A claim holds until it is released, or expires because it was not
renewed. A runtime that lost its connection continues to fetch, and keeps its claim until it expires. One process at a
time owns a directory. So the owner does not wait for a claim that an earlier process with this directory made, nor, if
no other process can connect to it, for a claim of another process. `Worker` decides whether to wait; it writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.cells.model import Json, Model
from headwater.data.json_form import digest
from headwater.data.value import ABSENT
from headwater.errors import AbsentError
from headwater.pieces.handles import Computed, Failed, Pending, Ready, Resource
from headwater.replica.document import NOT_HERE
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.nodes import encoder
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.cells.codec_base import TypeCodec
    from headwater.pieces.declarations import ResourceMember
    from headwater.runtime.channel.backend import Backend
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView
    from headwater.runtime.writing.transactions import Transactions


class FetchClaim(Model):
    """The runtime that fetches, the input it fetches for, and the time until which the claim holds."""

    wanted: str
    by: str
    until_us: int


class Worker:
    """The name of one runtime in its claims."""

    __slots__ = ("_is_only", "_life", "name")

    def __init__(self, backend: Backend, origin: str) -> None:
        self._life = backend.life
        self._is_only = backend.is_only
        self.name = f"{self._life}/{origin}" if self._life else origin

    def has(self, claim: FetchClaim | None) -> bool:
        return claim is not None and claim.by == self.name

    def waits_for(self, claim: FetchClaim, wanted: str, now_us: int) -> bool:
        """Return whether another runtime has the claim and may still be fetching."""
        if claim.wanted != wanted or claim.by == self.name or claim.until_us <= now_us:
            return False
        life, is_owner, _ = claim.by.partition("/")
        if not self._life:
            return True
        return life == self._life if is_owner else not self._is_only


T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")


class Result(Model):
    """The outcome of a fetch, and the input it was fetched for."""

    wanted: str
    value: Json = None
    error: str | None = None
    has_value: bool = False


class ResourceHandle(Resource[T_co], Generic[T_co]):
    """The handle of a resource for one view."""

    __slots__ = ("_fetching",)

    def __init__(self, fetching: Fetch) -> None:
        core = fetching.core
        super().__init__(core, fetching.wanted.document, codec_for(str))
        self._fetching = fetching
        self.set_maker(fetching.instance.maker_of(self._take_current_fetch))

    def _take_current_fetch(self) -> None:
        """Continue with the current `Fetch` of the view, after the piece of this one was released."""
        self._fetching = self._fetching.made_anew()

    @overload
    def get(self) -> Pending[T_co] | Ready[T_co] | Failed[T_co]: ...
    @overload
    def get(self, default: D) -> Pending[T_co] | Ready[T_co] | Failed[T_co] | D: ...
    def get(self, default: Any = None) -> Any:
        """Return the current state. Inside a run this subscribes to the resource and demands its fetch."""
        wanted: Any = super().get("")
        return self._fetching.read_state(wanted)

    @property
    def values(self) -> TypeCodec[Any]:
        """The codec of the fetched values."""
        return self._fetching.values

    def renew(self) -> None:
        """Invalidate the fetched value after the code of the member changed."""
        self._fetching.renew()


class Fetch:
    """One resource of one view: the wanted input, the stored result, and the running task."""

    __slots__ = (
        "_claim",
        "_given_up",
        "_is_waiting",
        "_member",
        "_node",
        "_task",
        "_tasks",
        "_transactions",
        "_view",
        "_worker",
        "core",
        "result",
        "values",
        "wanted",
    )

    def __init__(
        self,
        core: Core,
        tasks: Tasks,
        transactions: Transactions,
        worker: Worker,
        view: ScopedView,
        member: ResourceMember,
    ) -> None:
        self.core = core
        self._tasks = tasks
        self._transactions = transactions
        self._worker = worker  # the owner of this runtime's claims
        self._view = view
        self._member = member
        instance = view.instance
        self.values = instance.schema.codec(member)
        self.result: Cell[Result] = Cell(core, view.document(f"{member.stored}/result"), codec_for(Result))
        # Apart from the result, so that a change of the claim runs no reader of the result.
        self._claim: Cell[FetchClaim] = Cell(core, view.document(f"{member.stored}/claim"), codec_for(FetchClaim))
        self.wanted: Computed[str] = Computed(core, view.document(member.stored), codec_for(str))
        self._task: tuple[str, asyncio.Task[None]] | None = None
        self._given_up: str | None = None  # the input whose result could not be written
        self._is_waiting = False  # for demand, or for the stored result to arrive
        id = view.node_id(member.stored)
        self._node: Node = instance.register(
            NodeSpec(
                id=id,
                kind=NodeKind.COMPUTATION,
                fn=self._want,
                home=instance.space.replica,
                outputs=(self.wanted.document,),
                encode=encoder(id, self.wanted),
                parent=instance.maker,
                fingerprint=instance.digest(member),
            )
        )

    @property
    def instance(self) -> PieceInstance:
        return self._view.instance

    def made_anew(self) -> Fetch:
        """Return the current `Fetch` of the view."""
        handle: ResourceHandle[Any] = self._view.handle(self._member)
        return handle._fetching

    @property
    def _input(self) -> Input[Any]:
        """The handle of the input. Resolved at each use: the record that names the input may have to arrive first."""
        found: Input[Any] = self._view.handle(self._member.input)
        return found

    # ---- for readers -------------------------------------------------------------------------------

    def read_state(self, wanted: str) -> Any:
        result = self.result.get(None)
        if result is None:
            return Pending()
        # A value read as Json is a view of the stored value.
        last = self.values.decode(codec_for(Json).encode(result.value)) if result.has_value else None
        if result.wanted != wanted:
            return Pending(last)
        return Ready(last) if result.error is None else Failed(result.error, last)

    # ---- its node ----------------------------------------------------------------------------------

    def _want(self) -> str:
        """Return the digest of the wanted input. `_start_or_cancel` checks after the run whether its result exists."""
        source = self._input
        try:
            value = source.get()
        except AbsentError:
            return ""
        wanted = digest(source.memo().merge(ABSENT, value))
        self.core.afterwards(self._start_or_cancel)
        return wanted

    def _start_or_cancel(self) -> None:
        """Start a fetch that is wanted and missing; cancel one that is not wanted any more."""
        node, core = self._node, self.core
        if node.removed or self._tasks.is_closed:
            self._end()
            return
        if not node.live:
            self._end()
            self._wait(lambda: node.live)  # A later demand may find the node clean and not run it.
            return
        if self.result.document.value is NOT_HERE:
            core.load(self.result.document)
            self._wait(lambda: self.result.document.value is not NOT_HERE or not node.live)
            return
        wanted = self.wanted.get("")
        if self._task is not None and self._task[0] != wanted:
            self._end()
        if not wanted or self._task is not None or wanted == self._given_up or self._has_result(wanted):
            return
        task = self._tasks.spawn(self._fetch(wanted), f"resource {node.id}")
        self._task = (wanted, task)
        task.add_done_callback(lambda _: self._on_fetch_done(wanted, task))
        core.observers.when(lambda: not node.live or task.done(), self._unwanted)

    def _wait(self, holds: Callable[[], bool]) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self.core.observers.when(lambda: holds() or self._node.removed, self._woken)

    def _woken(self) -> None:
        self._is_waiting = False
        self.core.afterwards(self._start_or_cancel)

    def _has_result(self, wanted: str) -> bool:
        if self.result.document.value is NOT_HERE:
            return False  # It was evicted, and will arrive again.
        result = self.result.get(None)
        return result is not None and result.wanted == wanted

    def _is_over(self, claim: FetchClaim) -> bool:
        """Return whether the claim of another runtime was released or replaced."""
        return self._claim.document.value is not NOT_HERE and self._claim.get(None) != claim

    def _unwanted(self) -> None:
        if not self._node.live:
            self.core.afterwards(self._start_or_cancel)

    def _on_fetch_done(self, wanted: str, task: asyncio.Task[None]) -> None:
        if self._task is None or self._task[1] is not task:
            return
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._given_up = wanted  # The error was reported. Another input is tried again.
        self.core.afterwards(self._start_or_cancel)

    def _end(self) -> None:
        if self._task is not None:
            task, self._task = self._task[1], None
            task.cancel()

    def renew(self) -> None:
        """Invalidate the fetched value, and fetch again if the resource is demanded."""
        self._end()
        self._given_up = None
        self._tasks.begin(self._renewed(), f"resource {self._node.id}")

    async def _renewed(self) -> None:
        await self._transact(self._outdate)
        self.core.afterwards(self._start_or_cancel)

    def _transact(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call a function in one transaction of the space of the piece."""
        return self._transactions.transact(self._view.instance.space, fn, *args, **kwargs)

    # ---- the work ----------------------------------------------------------------------------------

    async def _fetch(self, wanted: str) -> None:
        if not self._member.speculative:
            await self.core.observers.until(lambda: not self._input.document.is_unconfirmed())
        async with self._tasks.at_most(self._member, self._member.limit):
            # An unconfirmed input is unknown to other runtimes, and no claim on it can be granted: fetch without one.
            is_early = self._member.speculative and self._input.document.is_unconfirmed()
            if not is_early and not await self._claimed(wanted):
                return
            try:
                result = await self._attempts(wanted, self._input.get())
                await self._transact(self._store, wanted, result)
            except asyncio.CancelledError:
                # A plain write, not a task: it is also committed when this runtime is closed in order.
                self.core.write(self._claim, lambda: self._release(wanted), None)
                raise

    async def _claimed(self, wanted: str) -> bool:
        """Wait until this runtime has the claim. Return False if another runtime has stored the result."""
        while True:
            claim = await self._transact(self._take, wanted)
            if claim is None or self._worker.has(claim):
                return claim is not None
            await self._tasks.until(
                lambda claim=claim: self._has_result(wanted) or self._is_over(claim),  # type: ignore[misc]
                claim.until_us - self.core.clock.now_us(),
            )

    async def _attempts(self, wanted: str, value: Any) -> Result:
        """Call the author's function, with retries after a failure if the member declares a backoff."""
        member, tasks = self._member, self._tasks
        tries = 1 if member.backoff is None else RUNTIME_LIMITS.resource_retries + 1
        random = self.core.clock.randomness(f"resource {self._node.id}")
        error = ""
        renewing = tasks.spawn(self._renew(wanted), f"claim of {self._node.id}")
        try:
            for attempt in range(tries):
                try:
                    made = await tasks.within(member.fn(self._view.piece, value), member.timeout_ms)
                    raw: Any = self.values.encode(made)
                    return Result(wanted=wanted, value=raw, has_value=True)
                except Exception as failed:  # The resource shows the failure.
                    error = f"{type(failed).__name__}: {failed}"
                except asyncio.CancelledError:
                    if _is_cancelled():
                        raise
                    error = "CancelledError: something that it awaited was cancelled"
                if attempt + 1 < tries and member.backoff is not None:
                    await tasks.elapsed(member.backoff.delay_us(attempt, random))
        finally:
            renewing.cancel()
        return Result(wanted=wanted, error=error)

    async def _renew(self, wanted: str) -> None:
        while True:
            await self._tasks.elapsed(RUNTIME_LIMITS.claim_us // 2)
            await self._transact(self._take, wanted)

    # ---- transactions ------------------------------------------------------------------------------

    def _take(self, wanted: str) -> FetchClaim | None:
        """Take the claim, unless another runtime has it. Return the valid claim; None: the result exists."""
        if self._has_result(wanted):
            return None
        now_us = self.core.clock.now_us()
        claim = self._claim.get(None)
        if claim is not None and self._worker.waits_for(claim, wanted, now_us):
            return claim
        fresh = FetchClaim(wanted=wanted, by=self._worker.name, until_us=now_us + RUNTIME_LIMITS.claim_us)
        self._claim.set(fresh)
        return fresh

    def _release(self, wanted: str) -> None:
        """Release this runtime's claim on an input that is not wanted here any more."""
        claim = self._claim.get(None)
        if claim is not None and claim.wanted == wanted and self._worker.has(claim):
            self._claim.delete()

    def _outdate(self) -> None:
        """Keep the last value, as the result of no wanted input."""
        last = self.result.get(None)
        if last is not None:
            self.result.set(Result(wanted="", value=last.value, has_value=last.has_value))

    def _store(self, wanted: str, result: Result) -> None:
        """Write the result, if the input is still the one it was fetched for."""
        value = self._input.get(ABSENT)
        if value is ABSENT or digest(self._input.memo().merge(ABSENT, value)) != wanted:
            return
        claim = self._claim.get(None)
        if claim is not None and claim.wanted == wanted and not self._worker.has(claim):
            return  # Another runtime took the claim over.
        last = self.result.get(None)
        if result.error is not None and last is not None and last.has_value:
            result = Result(wanted=wanted, error=result.error, value=last.value, has_value=True)
        self.result.set(result)
        self._claim.delete()


def _is_cancelled() -> bool:
    """Return whether this task itself is being cancelled. A cancellation raised by an awaited call is its failure."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Resources:
    """The resources of one runtime."""

    __slots__ = ("_core", "_tasks", "_transactions", "_worker")

    def __init__(self, core: Core, tasks: Tasks, transactions: Transactions, worker: Worker) -> None:
        self._core = core
        self._tasks = tasks
        self._transactions = transactions
        self._worker = worker

    def make(self, view: ScopedView, member: ResourceMember) -> Resource[Any]:
        """Create the handle of a resource, and register its node."""
        return ResourceHandle(Fetch(self._core, self._tasks, self._transactions, self._worker, view, member))
