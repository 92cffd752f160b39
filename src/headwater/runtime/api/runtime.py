"""A runtime on asyncio's loop: spaces, handles and nodes over an engine in this process, behind a server, or none.

`Runtime` is the shell around `Core`: it owns the event loop's side, opens and closes, and lets coroutines wait. It
makes no decisions of its own. A runtime belongs to the thread that made it; other threads reach it through `call`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from os import PathLike, fspath
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Subscription
from headwater.clock import Clock, RealClock
from headwater.data.text import shown
from headwater.data.value import ABSENT
from headwater.errors import AuthoringError, HeadwaterError, LimitError, SessionExpiredError, author_call
from headwater.pieces.handles import Effect
from headwater.pieces.piece import Piece
from headwater.reactions.drain import Pace
from headwater.runtime.api.composition import RuntimeParts
from headwater.runtime.api.reactions import Reactions
from headwater.runtime.api.space import Space
from headwater.runtime.api.threads import ThreadCalls, called_here, check_function
from headwater.runtime.channel.backend import Backend, InMemory, LocalDirectory, RemoteServer
from headwater.runtime.core.core import Core
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.nodes import Kind, NodeHandle, register
from headwater.runtime.core.policy import Policy
from headwater.runtime.events.outbox import Outbox
from headwater.runtime.events.table import IntentRow
from headwater.runtime.resume.lazy_resume import explain_asleep
from headwater.runtime.writing.space_channel import SpaceChannel
from headwater.scheduler.failures import Failure
from headwater.scheduler.introspection.causes import Explanation
from headwater.scheduler.introspection.introspection import Introspection
from headwater.scheduler.introspection.snapshot import GraphSnapshot
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node
from headwater.scheduler.scheduler import Scheduler

P = ParamSpec("P")
R = TypeVar("R")


class AsyncioTickLoop:
    """The loop of a core (`core.Loop`) as callbacks of an asyncio loop.

    Each callback does one slice of work, so that other tasks run in between.
    """

    __slots__ = ("_core", "_is_asked", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._core: Core | None = None
        self._is_asked = False
        self._timer: asyncio.TimerHandle | None = None

    def drive(self, core: Core) -> None:
        self._core = core
        self.request_tick()

    def stop(self) -> None:
        """Stop calling the core."""
        self._core = None
        self.set_timer(None)

    def request_tick(self) -> None:
        if not self._is_asked and self._core is not None:
            self._is_asked = True
            self._loop.call_soon(self._ticked)

    def _ticked(self) -> None:
        self._is_asked = False
        core = self._core
        if core is not None:
            try:
                core.tick()
            except Exception as error:  # Author code never fails here: a bug of Headwater.
                self.stop()
                core.broken(error)
                raise

    def set_timer(self, at_us: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_us is not None and self._core is not None:
            delay_us = max(0, at_us - self._core.clock.monotonic_us())
            self._timer = self._loop.call_later(delay_us / 1e6, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if self._core is not None:
            self._core.wake()
            self.request_tick()


class Runtime:
    """One runtime. Use it as an asynchronous context manager.

    `source` is a directory, the address of a server (`ws://...`), a `Backend` that several runtimes share, or None for
    a runtime whose spaces are only in memory.
    """

    def __init__(
        self,
        source: str | PathLike[str] | Backend | None = None,
        *,
        token: str = "",
        clock: Clock | None = None,
        limits: SchedulerLimits | None = None,
        policy: Policy | None = None,
        outbox: str | PathLike[str] | Outbox | None = None,
        close_s: float = RUNTIME_LIMITS.close_s,
        observe: bool = True,
        identity: str | None = None,
        reacts: bool | None = None,
        pace: Pace | None = None,
        branches: Mapping[str, str] | None = None,
    ) -> None:
        """Open a runtime over `source`.

        `reacts` says whether the runtime delivers records to reactions. By default it does if it has a directory for
        itself. `branches` names the branch of each space that is not shown as it is on `main`.
        """
        chosen = _checked_branches(branches)
        self._event_loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._loop = AsyncioTickLoop(self._event_loop)
        self.core = Core(clock or RealClock(), self._loop, limits)
        self.core.open_space = self._open_space
        self.core.scheduler.introspection.check_thread = self.core.check_own_thread
        self.policy = policy or Policy()  # how long it retries, and how much it accepts
        self.core.observers.window_us = round(self.policy.retry_window_ms * 1_000)
        self.close_s = close_s  # how long closing waits for work that is still to be done
        self._closed = False
        self._ending: asyncio.Task[HeadwaterError | None] | None = None  # releases everything, once begun
        self._calls = ThreadCalls(self._event_loop)
        self.core.call_there = self.call
        self._owns = not (source is not None and not isinstance(source, (str, PathLike)))
        self.backend = _backend_of(source, token)
        # The identity of this runtime over restarts. A runtime that has a directory for itself is the only one there.
        is_alone = self._owns and isinstance(self.backend, LocalDirectory)
        self._parts = RuntimeParts(
            self.core,
            self.backend,
            self.policy,
            identity="" if identity is None and is_alone else identity,
            observes=observe,
            branches=chosen,
            make_space=self.acting,
        )
        self.tasks = self._parts.tasks
        self.sessions = self._parts.sessions
        self.transactions = self._parts.transactions
        self.pieces = self._parts.pieces
        self.opener = self._parts.opener
        self.lifecycle = self._parts.lifecycle
        self.events = self._parts.events
        self.resume = self._parts.resume
        self.served = self._parts.served
        if is_alone if reacts is None else reacts:
            self.served.use(pace)
        self.reactions = Reactions(self)
        # Sent events without an outcome: in a file that is closed with this runtime, or in an outbox of the caller.
        self._outbox = Outbox(fspath(outbox), self.policy.in_outbox) if isinstance(outbox, (str, PathLike)) else None
        self._loop.drive(self.core)
        kept = self._outbox if self._outbox is not None else outbox
        if isinstance(kept, Outbox):
            self.events.durable_events.use(kept)

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- spaces and cells --------------------------------------------------------------------------

    @author_call
    def space(self, name: str, /, *, user: str = "", session: str = "") -> Space:
        """Return a space, for a user whom the application has authenticated. Connecting goes on in the background.

        Works on every thread: another thread waits until the runtime's thread has made the space.
        """

        def make() -> Space:
            self.core.check_thread()
            return Space(self, self.core.space(name), user, self.sessions.called(name, user, session))

        return self.core.on_own_thread(make)

    def acting(self, name: str, user: str, session: str) -> Space:
        """Return a space for the session of a run or of a page, which no application named."""
        self.core.check_thread()
        return Space(self, self.core.space(name), user, session)

    def _open_space(self, name: str) -> LocalSpace:
        if self._closed:
            raise AuthoringError("this runtime is closed: open another one")
        return self._parts.open_space(name)

    def class_of(self, space: str, id: str) -> type[Piece] | None:
        """Return the class of a piece that is in use here, by the piece's id, which begins the ids of its nodes."""
        home = self.pieces.find(space, id)
        return None if home is None else home.cls

    def channel(self, name: str) -> SpaceChannel | None:
        """Return the channel of a space to its engine, if it has one."""
        return self._parts.channels.get(name)

    @author_call
    def cell(self, space: str, id: str, of: Any, /, *, scope: str = "space", default: Any = ABSENT) -> Cell[Any]:
        """Return the handle of a document of a space, typed as `of`."""
        return self.core.cell(space, id, of, scope=scope, default=default)

    @author_call
    def pull(self, fn: Callable[[], R], /) -> Coroutine[Any, Any, R]:
        """Bring everything that a function reads up to date, and return its result: `await rt.pull(lambda: a.get())`.

        The function may be called several times, and writes nothing.
        """
        return self.core.observers.pull_function(fn)

    # ---- nodes -------------------------------------------------------------------------------------

    @author_call
    def register(
        self,
        fn: Callable[[], object],
        /,
        *,
        kind: Kind = "computation",
        id: str | None = None,
        output: Input[Any] | None = None,
        writes: Iterable[Input[Any]] = (),
        envelope: Iterable[Input[Any]] = (),
        reads: Iterable[Input[Any]] = (),
        debounce_ms: float = 0,
        throttle_ms: float = 0,
        transient: tuple[type[Exception], ...] = (),
        parent: NodeHandle | None = None,
    ) -> NodeHandle:
        """Register a node: a computation with an output, an effect, or a materializer with an envelope."""
        return register(
            self.core,
            fn,
            kind=kind,
            id=id,
            output=output,
            writes=writes,
            envelope=envelope,
            reads=reads,
            debounce_ms=debounce_ms,
            throttle_ms=throttle_ms,
            transient=transient,
            parent=parent,
        )

    # ---- time --------------------------------------------------------------------------------------

    def past(self, when: datetime) -> bool:
        """True if a moment has come. Inside a run, the reading node runs again when it comes."""
        return self.core.has_passed(when)

    def now(self, *, every_ms: float) -> datetime:
        """Return the time, rounded down to a step. Inside a run, the reading node runs again at each step."""
        return self.core.current_time(every_ms)

    def wake(self) -> None:
        """Run the work that has come due. A program that advances a `VirtualClock` itself calls this afterwards."""
        self.core.wake()

    # ---- waiting -----------------------------------------------------------------------------------

    @author_call
    async def idle(self) -> None:
        """Wait until no work is runnable, running or parked on local work.

        Work that waits for the network is not waited for.
        """
        self.core.check_own_thread()
        await self.core.observers.until(lambda: self.core.is_quiet() and self._parts.is_quiet())

    @author_call
    async def durable(self) -> None:
        """Wait until every commit made so far has its verdict.

        This includes writes that wait for their documents to arrive. Every event that was sent here has its outcome
        then, too, with the events and commits that followed from it, and the documents of children of removed keys are
        erased where their `each` says `forget=True`.
        """
        self.core.check_own_thread()
        await self.core.observers.until(self._parts.has_ended)
        await self.transactions.await_verdicts()

    async def written(self) -> None:
        """Wait until every commit made so far has its verdict."""
        self.core.check_own_thread()
        await self.transactions.await_verdicts()

    @author_call
    async def settled(self, *, through: int | None = None, space: str | None = None) -> None:
        """Wait until every node that follows from a commit of a space, and from the commits before it, has run here.

        Without `through`: from the state shown here now. Like `idle` it waits for events that wait for their turn;
        unlike `idle`, also for documents that are on their way, and for nodes that a debounce, a throttle or a retry
        holds back. For nodes that do not come to an end it waits only as long as `idle`, and for writes to a space that
        has ended not at all: `durable` raises their error.
        """
        self.core.check_own_thread()
        if through is not None:
            names = [each.name for each in self.core.spaces()] if space is None else [space]
            if len(names) != 1:
                raise AuthoringError(
                    f"settled(through={through}): this runtime has {len(names)} spaces; write which one, with space="
                )
            channel = self._parts.channels.get(names[0])
            if channel is not None:
                await channel.reached(through)
        # fault settled.lanes_not_awaited: await self.core.observers.until(lambda: self.core.is_settled())
        await self.core.observers.until(lambda: self.core.is_settled() and self._parts.is_quiet())

    @author_call
    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` is true. It is called again after each change that this runtime shows.

        Raises the reason if the runtime ends first, and any error that `condition` raises.
        """
        self.core.check_own_thread()
        await self.core.observers.until(condition)

    # ---- errors, threads ---------------------------------------------------------------------------

    def on_error(self, fn: Callable[[BaseException], object], /) -> Subscription:
        """Call `fn` with every failure that no caller awaits.

        The notes of the error name the node that failed and the causes of its run.
        """
        return self.core.on_error(lambda failure: fn(failure.noted()))

    def on_failure(self, fn: Callable[[Failure], object], /) -> Subscription:
        """Call `fn` with each failure as `on_error` does, but as a record: node, causes and error."""
        return self.core.on_error(fn)

    @overload
    def call(self, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @author_call
    def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function on the runtime's thread, and wait for its result. For other threads.

        An awaitable result is awaited there: `rt.call(cart.add.send, line)` returns when the event is durable.
        """
        check_function(fn)
        if threading.get_ident() == self._thread:
            return called_here(fn, args, kwargs)
        if self._closed:
            raise AuthoringError("this runtime is closed: open another one")
        return self._calls.there(fn, args, kwargs)

    # ---- looking inside ----------------------------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of this runtime's nodes."""
        return self.core.scheduler

    @property
    def clock(self) -> Clock:
        return self.core.clock

    @property
    def resume_counts(self) -> Counter[str]:
        """How many nodes were resumed without a run ("clean"), and how many were not, by reason."""
        return self.resume.counts

    @property
    def introspection(self) -> Introspection:
        """The diagnostics of this runtime: snapshots, statistics, traces, breakpoints. They decide nothing."""
        return self.core.scheduler.introspection

    @author_call
    def why(self, node: NodeHandle | Input[Any] | Effect | str) -> Explanation:
        """Return the chain of causes of a node's last run: of a node, a member of a piece, or a node by its id.

        For a node of a piece that sleeps, the explanation says that the piece sleeps.
        """
        self.core.check_thread()
        if isinstance(node, NodeHandle):
            return self.introspection.why(node.node)
        id = node if isinstance(node, str) else _node_id(node)
        told = self.introspection.why(id) if self.introspection.has(id) else None
        if told is not None and (told.runs or told.remembered):
            return told
        # A node of a sleeping piece may be registered by its handle and not be resumed yet.
        return explain_asleep(self.resume, id) or self.introspection.why(id)

    def intents(self) -> tuple[IntentRow, ...]:
        """Return every event sent here, from `send` to its outcome: the reason it waits, and the writer it lost to."""
        self.core.check_thread()
        return self.events.intents()

    @author_call
    def graph(self) -> GraphSnapshot:
        """Return all nodes, and which node reads which."""
        return self.introspection.snapshot()

    # ---- the end -----------------------------------------------------------------------------------

    @author_call
    async def close(self) -> None:
        """Wait for work here and on the way to the engine, for at most `close_s`, and release everything."""
        self.core.check_own_thread()
        undone: HeadwaterError | None = None
        if self._ending is None:
            try:
                async with asyncio.timeout(self.close_s):
                    await self.idle()
                    await self.durable()
                    await self._parts.report_clean_pieces()
            except TimeoutError:
                undone = self._undone()
            except HeadwaterError as error:
                undone = error
        for channel in self._parts.channels.values():
            channel.tell_runs()
        # A caller cancelled before this point may call `close` again: nothing was released. From here on closing
        # continues by itself.
        if self._ending is None:
            self._closed = True
            self._calls.close(asyncio.current_task())
            self._ending = self._event_loop.create_task(self._let_go(undone is None), name="closing a runtime")
        left = await asyncio.shield(self._ending)
        undone = undone or left
        if undone is not None:
            raise undone

    def _undone(self) -> LimitError:
        return LimitError(
            f"closing waited {self.close_s:g} s and {self._left()}: wait for idle() and durable() before, or give it "
            "more time with close_s="
        )

    def _left(self) -> str:
        """Describe the work that closing leaves undone."""
        waiting = sum(len(space.replica.pending) + space.deferred() for space in self.core.spaces())
        left = [f"left {waiting} commits without a verdict"] if waiting else []
        events = [row.stream for row in self.intents() if row.ended_us is None]
        if events:
            left.append(f"{len(events)} events had no end ({', '.join(dict.fromkeys(events[:3]))})")
        if not self.core.is_quiet():
            running = [node.id for node in self.core.scheduler.nodes() if node.is_runnable]
            named = f" ({', '.join(running[:3])})" if running else ""
            left.append(f"{len(running) or 'some'} nodes still run{named}")
        return " and ".join(left) or "something was still to be written"

    async def _let_go(self, is_patient: bool) -> HeadwaterError | None:
        """Release everything. Returns an error that names work left undone, if there is some."""
        closed = SessionExpiredError("this runtime was closed while this was waited for: open another one, and look")
        try:
            await self.served.stop()
            await self.tasks.close(closed)
            self.core.observers.end(closed)
            for node in self.core.scheduler.nodes():
                self.core.remove(node)  # Runs the cleanup of effects.
            undone = self._undone() if is_patient and not await self._cleaned_up() else None
            for channel in self._parts.channels.values():
                await channel.close(closed)
        finally:  # Even after an error the directory is free for the next runtime.
            self._loop.stop()
            self.core.close()
            if self._outbox is not None:
                self._outbox.close()
            if self._owns:
                await self.backend.close()
        return undone

    async def _cleaned_up(self) -> bool:
        """Wait until the writes of cleanups have landed, too. False: they did not in `close_s`."""
        landed: asyncio.Future[None] = self._event_loop.create_future()
        self.core.observers.when(
            lambda: landed.done() or self.transactions.have_verdicts(),
            lambda: None if landed.done() else landed.set_result(None),
        )
        self.core.request_tick()
        await asyncio.wait([landed], timeout=self.close_s)
        return landed.done()


def _node_id(member: Input[Any] | Effect) -> str:
    """Return the id of the node that computes a member, or that writes a cell."""
    if isinstance(member, Effect):
        return member.id
    writers = member.document.writers if isinstance(member, Input) else ()
    for writer in writers:
        if isinstance(writer, Node):
            return writer.id
    raise AuthoringError(
        f"why({shown(member)}): no node computes that: name a member that is computed, such as why(cart.total), "
        "or a node by its id"
    )


def _checked_branches(branches: Mapping[str, str] | None) -> dict[str, str]:
    said = {} if branches is None else branches
    if not isinstance(said, Mapping) or not all(type(each) is str for pair in said.items() for each in pair):
        raise AuthoringError(f"branches={shown(branches)}: write the branch of each space, as in {{'shop': 'draft'}}")
    return dict(said)


def _backend_of(source: str | PathLike[str] | Backend | None, token: str) -> Backend:
    if source is None:
        return InMemory()
    if not isinstance(source, (str, PathLike)):
        return source
    where = fspath(source)
    return RemoteServer(where, token=token) if where.startswith(("ws://", "wss://")) else LocalDirectory(where)
