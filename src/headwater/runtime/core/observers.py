"""Observers from outside the graph: pulls, sinks and watches, and waiting for a condition.

Each observer is an effect node of its own, so that demand, freshness and the comparison of values work as for every
other node. Callbacks are called outside any run, with the latest value; their reads are not tracked. Their writes count
as caused by the observer, not as coming from outside: an observer that triggers itself spends its runs and is held back
(I6). An absent value is waited for. A value that could not be computed is reported by the node that failed, and raised
by a pull. An observer of a piece that is gone ends with `GoneError`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from headwater.cells.handle import Input
from headwater.cells.runtime_port import Delays, SinkSubscription
from headwater.data.text import shown
from headwater.errors import (
    AbsentError,
    AuthoringError,
    GoneError,
    HeadwaterError,
    NotSettlingError,
    UpstreamFailedError,
    cut_frames,
)
from headwater.protocol.observations import whose_record
from headwater.replica.document import Document
from headwater.replica.feed import Notification, ignore
from headwater.replica.replica import Replica
from headwater.runtime.core.conditions import Conditions
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.scheduler.failures import INTERRUPTS, UndeclaredWriteError, as_failure, check_plain
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core


T = TypeVar("T")
_NO_DELAYS: Final = Delays()


class Existence(NamedTuple):
    """Whether a piece is there for a run, as its record says, and when that was last written."""

    is_there: bool
    written: int = 0
    is_undecided: bool = False  # the log has no record, and commits of this runtime that wrote one have no verdict

    def was_deleted(self, now: Existence) -> bool:
        """Return True if the piece was there, and is not there now because it was deleted.

        A record that only rejected commits wrote was never there, unless others wrote one since.
        """
        # fault observers.rejected_piece_was_there: is_rejected = False
        is_rejected = self.is_undecided and not now.is_undecided and now.written == self.written
        return self.is_there and not now.is_there and not is_rejected


class Observer:
    """One effect node that reads a handle, and the result of its last run."""

    __slots__ = ("error", "node", "values")

    def __init__(self) -> None:
        self.node: Node | None = None
        self.values: list[Any] = []  # the latest value, if it was not taken yet
        self.error: Exception | None = None

    @property
    def name(self) -> str:
        return "a look" if self.node is None else self.node.id


class Sink(Observer):
    """An observer that calls a function, outside any run, with the latest value.

    It ends when the piece of its handle is gone: `on_ended` is called with the reason. None: the reason is reported.
    """

    __slots__ = ("_core", "_found", "_handle", "_on_closed", "_on_ended", "fn", "foreign", "group", "subscription")

    def __init__(
        self,
        core: Core,
        handle: Input[Any],
        fn: Callable[[Any], object],
        group: object | None,
        on_closed: Callable[[Sink], object],
        on_ended: Callable[[Exception], object] | None,
    ) -> None:
        super().__init__()
        self._core = core
        self._handle = handle
        self._on_closed = on_closed
        self._on_ended = on_ended
        self._found: Existence | None = None  # the piece, as the last run found it
        self.fn = fn
        self.group = group
        self.foreign = True  # whether a writer outside its group changed its input since its last run
        self.subscription = SinkSubscription(self._close, self._set_delays)

    def is_like(self, handle: Input[Any], group: object | None) -> bool:
        known = self._handle
        return known.document is handle.document and known.path == handle.path and self.group == group

    def run(self) -> None:
        """Read the handle and schedule the callback: the function of the effect node."""
        try:
            self._check_piece()
            value = self._handle.get()
        except GoneError as gone:
            why = gone
            self._core.afterwards(lambda: self.end(why))
            return
        except (AbsentError, UpstreamFailedError):
            self.values.clear()
            self.foreign = True  # The next value is delivered, whichever group wrote it.
            return
        # fault sinks.told_of_records: if False:
        if self._is_value_known():
            return
        if self.group is not None:
            foreign, self.foreign = self.foreign, False
            if not foreign:
                return  # The change was made by the sink's own group.
        if not self.values:
            self._core.afterwards(self._deliver)
        self.values[:] = [value]

    def _check_piece(self) -> None:
        """Inside the run: raise `GoneError` if the piece was deleted since an earlier run."""
        before, self._found = self._found, self._core.find_piece(self._handle.document)
        if before is not None and self._found is not None and before.was_deleted(self._found):
            raise GoneError(f"the piece of {self._handle!r} was deleted: open another one, and observe that")

    def _is_value_known(self) -> bool:
        """Inside the run: return whether nothing but the record of a piece has changed since the last run."""
        run, node = self._core.current.run, self.node
        assert run is not None
        if node is None or not node.runs or not run.causes:
            return False
        return all(whose_record(cast(Document, spot.document).key) for spot in run.causes)

    def _deliver(self) -> None:
        """Call the function of the sink with the newest value, outside any run."""
        if self.values:
            marks = self._core.scheduler.marks
            marks.running = self.node  # I6: writes of the callback are caused by this node, not by the outside.
            try:
                result = self.fn(self.values.pop())
                if inspect.iscoroutine(result):
                    result.close()
                    raise AuthoringError(f"{self.name} returned a coroutine: nothing awaits it. Write watch() instead.")
            except INTERRUPTS:
                raise
            except BaseException as error:  # Reported before `marks.running` is reset: listeners act for this observer.
                self._core.report("an observer", as_failure(error))
            finally:
                marks.running = None

    def end(self, why: Exception) -> None:
        """Close the subscription for a reason that its holder is told."""
        if self.node is None or self.node.removed:
            return
        self.subscription.ended = why
        self.subscription.close()
        if self._on_ended is None:
            self._core.report(self.name, why)
        else:
            self._on_ended(why)

    def _set_delays(self, delays: Delays) -> None:
        if self.node is not None and not self.node.removed:
            self._core.set_delays(self.node, delays)

    def _close(self) -> None:
        self.values.clear()
        if self.node is not None:
            self._core.remove(self.node)
        self._on_closed(self)


class WatchStep:
    """One step of the task that consumes a watch: from the delivery of a value until the task next waits."""

    __slots__ = ("_loop", "_task", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)

    def is_open(self) -> bool:
        return self._task is not None and asyncio.current_task(self._loop) is self._task


class Deadline:
    """The end of a wait, counted from the first time that there is something to wait for."""

    __slots__ = ("_cancel", "_core", "_is_over", "_window_us")

    def __init__(self, core: Core, window_us: int) -> None:
        self._core = core
        self._window_us = window_us
        self._cancel: Callable[[], None] | None = None
        self._is_over = False

    def is_over(self) -> bool:
        if self._cancel is None:
            gates = self._core.scheduler.gates
            self._cancel = gates.alarm(gates.now_us() + self._window_us, self._late)
        return self._is_over

    def _late(self) -> None:
        self._is_over = True
        self._core.observers.check_conditions()

    def end(self) -> None:
        if self._cancel is not None:
            self._cancel()


class _FunctionName:
    """A function in ids and messages."""

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[[], object]) -> None:
        self._fn = fn

    def __repr__(self) -> str:
        return str(getattr(self._fn, "__qualname__", None) or type(self._fn).__qualname__)


class Observers:
    """All observers of one runtime, and all waits for conditions."""

    __slots__ = ("_body", "_conditions", "_core", "_count", "_followed", "_grouped", "window_us")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._count = 0
        self._body: WatchStep | None = None  # the step that runs now, if one does
        self._conditions = Conditions()
        self._grouped: dict[Sink, None] = {}  # sinks with a group
        # how long a pull, a transaction or an event waits for nodes that are held back: `Policy.retry_window_ms`
        self.window_us = RUNTIME_LIMITS.pull_window_us
        self._followed: dict[Replica, Callable[[], None]] = {}  # subscriptions; empty while no sink has a group

    # ---- waiting -----------------------------------------------------------------------------------

    def when(self, holds: Callable[[], bool], act: Callable[[], object]) -> None:
        """Call `act` once, as soon as `holds()` is true."""
        self._conditions.when(holds, act)

    @property
    def ended(self) -> Exception | None:
        """The error that ended the runtime. None: it goes on."""
        return self._conditions.ended

    def check_conditions(self) -> None:
        """Check every waiting condition again, because something happened."""
        self._conditions.check()

    def is_awaited(self) -> bool:
        """True if a condition is waited for."""
        return bool(self._conditions.waiting)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true. Raises the error that ended the runtime, if that comes first."""
        await self._conditions.until(holds)

    def end(self, error: HeadwaterError) -> None:
        """End every wait with `error`: the runtime is over."""
        self._conditions.end(error)

    # ---- looking -----------------------------------------------------------------------------------

    def _effect(
        self,
        what: str,
        of: object,
        home: Replica,
        fn: Callable[[], object],
        id: str = "",
        delays: Delays = _NO_DELAYS,
    ) -> Node:
        self._count += 1
        spec = NodeSpec(
            id=id or f"{what} {self._count} of {of!r}",
            kind=NodeKind.EFFECT,
            fn=fn,
            home=home,
            returns=False,
            debounce_ms=delays.debounce_ms or 0,
            throttle_ms=delays.throttle_ms or 0,
            no_auto_debounce=what == "pull" or delays.auto_debounce is False,
        )
        return self._core.register(spec)

    def pull(self, handle: Input[Any]) -> Coroutine[Any, Any, Any]:
        """Demand the handle's value, wait until it is fresh, and end the demand."""
        return self._pull(handle, handle.document.home, handle.get)

    def pull_function(self, fn: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Demand everything that a function reads, wait until it is fresh, and return the function's result."""
        if not callable(fn) or inspect.iscoroutinefunction(fn):
            raise AuthoringError(f"pull({shown(fn)}): write a plain function that reads, as in pull(lambda: a.get())")
        return self._pull(_FunctionName(fn), self._core.time.replica, fn)

    async def _pull(self, of: object, home: Replica, read: Callable[[], Any]) -> Any:
        look = Observer()

        def run() -> None:
            look.values, look.error = [], None
            try:
                value = read()
                check_plain("the pulled function", value)
                look.values = [value]
            except UndeclaredWriteError as error:
                look.error = AuthoringError(
                    f"pull({of!r}) writes {error.address}: a pulled function may be called several times and only "
                    "reads. Write in a handler, or in space.transact(fn)"
                )
            except Exception as error:  # Raised to the caller of `pull`.
                look.error = error

        node = look.node = self._effect("pull", of, home, run)
        outcome: list[tuple[Any, Exception | None]] = []
        patience = Deadline(self._core, self.window_us)

        def is_fresh() -> bool:
            """Take the value at the moment it is fresh: it may change before the awaiting task resumes."""
            if not outcome:
                if self._core.scheduler.is_fresh(node):
                    held = self._held_above(node)
                    if held and not patience.is_over():
                        return False
                    if held:
                        outcome.append(((), self._not_settling(of, held)))
                    elif not (isinstance(look.error, UpstreamFailedError) and self._is_tried_again(node)):
                        outcome.append((look.values, look.error or node.error))
                elif (cannot := self._cannot(node)) is not None:
                    outcome.append(((), cannot))
            return bool(outcome)

        try:
            await self.until(is_fresh)
            values, error = outcome[0]
            if error is not None:
                raise error
        except Exception as raised:
            cut_frames(raised)
            raise
        finally:
            patience.end()
            self._core.remove(node)
        return values[0]

    def _held_above(self, node: Node) -> list[Node]:
        """Return the nodes above an observer that have to run again and wait for their time.

        The values read from them are older than they have to be.
        """
        held = {each for each in self._core.scheduler.gates.waiting() if each.outputs and each.is_runnable}
        return [above for above in self._core.scheduler.graph.above(node) if above in held] if held else []

    def _not_settling(self, of: object, held: list[Node]) -> NotSettlingError:
        return NotSettlingError(
            f"{of!r} did not settle in {self.window_us / 1e6:g} s: look at "
            f"{', '.join(map(self._held_back, held[:5]))}, or read what is visible now with get()"
        )

    def _held_back(self, node: Node) -> str:
        """Return the id of a node that waits for its time and, if its author set a delay, how long it waits."""
        gates = self._core.scheduler.gates
        if node.gate is None or node.gate.is_held:
            return node.id
        return f"{node.id} (its delay holds it back for {(gates.eligible_at(node) - gates.now_us()) / 1e6:.1f} s more)"

    def _cannot(self, node: Node) -> Exception | None:
        """Return the reason why a node will not run, if the document it waits for will not arrive."""
        if self._conditions.ended is not None:
            return self._conditions.ended
        if node.removed:
            return HeadwaterError(f"{node.id} was removed: look again with another pull()")
        if node.loading is not None:
            if not self._core.is_load_refused():
                return None  # Most often: finding the document costs the number of nodes that the observer is behind.
            return self._core.why_not(self._core.scheduler.loads.awaited_by(node) or node.loading)
        graph = self._core.scheduler.graph
        # A materializer that may write the observed document waits for a document that will not arrive.
        waits = [above.loading for above in graph.above(node) if above.loading] if graph.has_envelopes else []
        return next((why for each in waits if (why := self._core.why_not(each)) is not None), None)

    def _is_tried_again(self, node: Node) -> bool:
        """True if a node above an observer failed and retries by itself, so that its failure is not final."""
        seen: dict[Node, None] = {}
        waiting = [node]
        while waiting:
            for spot in waiting.pop().reads:
                for writer in () if spot is None else cast(Document, spot.document).writers:
                    if isinstance(writer, Node) and writer.error is not None and writer not in seen:
                        if writer.failures and writer.status != CLEAN and self._cannot(writer) is None:
                            return True
                        seen[writer] = None
                        waiting.append(writer)
        return False

    def sink(
        self,
        handle: Input[Any],
        fn: Callable[[Any], object],
        group: object | None,
        delays: Delays,
        on_ended: Callable[[Exception], object] | None = None,
    ) -> SinkSubscription:
        """Call `fn` with the value now and after every change that was not made with the same group.

        `on_ended` is called if the piece of the handle is gone. None: that is reported on the error channel.
        """
        if not callable(fn):
            raise AuthoringError(f"sink({shown(fn)}) of {handle!r}: write the function to call, as in sink(print)")
        if inspect.iscoroutinefunction(fn):
            raise AuthoringError(f"sink of {handle!r} is an async function: write `async for v in x.watch()` instead")
        return self._sink(handle, fn, group, delays, on_ended).subscription

    def _sink(
        self,
        handle: Input[Any],
        fn: Callable[[Any], object],
        group: object | None,
        delays: Delays,
        on_ended: Callable[[Exception], object] | None,
    ) -> Sink:
        for node in self._core.scheduler.kept():  # A restarted attempt takes over the sinks of the stopped one.
            known = getattr(node.fn, "__self__", None)
            if isinstance(known, Sink) and known.is_like(handle, group):
                known.fn = fn
                self._effect("sink", handle, handle.document.home, known.run, node.id, delays)
                return known
        sink = Sink(self._core, handle, fn, group, self._ungroup, on_ended)
        sink.node = self._effect("sink", handle, handle.document.home, sink.run, delays=delays)
        if group is not None:
            self._grouped[sink] = None
            for space in self._core.spaces():
                self.follow(space.replica)
        return sink

    def follow(self, replica: Replica) -> None:
        """Subscribe to changes of a replica, after the scheduler: sinks with a group need the group of each change."""
        if self._grouped and replica not in self._followed:
            self._followed[replica] = replica.feed.subscribe(self._note_foreign_change)

    def _ungroup(self, look: Sink) -> None:
        self._grouped.pop(look, None)
        if not self._grouped:
            while self._followed:
                self._followed.popitem()[1]()

    def _note_foreign_change(self, notification: Notification) -> None:
        for look in self._grouped:
            node = look.node
            if node is None or look.foreign or notification.group == look.group:
                continue
            if node.causes and any(cause is notification for cause in node.causes.values()):
                look.foreign = True

    async def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        """Yield the value now, then the latest value whenever it changed. Raises the reason why no value can come."""
        latest: list[Any] = []
        sink = self._sink(handle, lambda value: latest.__setitem__(slice(None), [value]), None, _NO_DELAYS, ignore)
        node = sink.node
        assert node is not None
        cannot: list[Exception] = []

        def is_over() -> bool:
            """Take the reason at the moment it is known: it may be gone before the awaiting task resumes."""
            # fault watch.refusal_not_raised: why = None
            why = (
                None if latest else sink.subscription.ended or self._cannot(node) or self._core.why_not(handle.document)
            )
            cannot[:] = [] if why is None else [why]
            return bool(latest or cannot)

        try:
            while True:
                await self.until(is_over)
                if cannot:
                    raise cannot[0]
                value = latest[-1]
                latest.clear()
                self._body = body = WatchStep(node)
                asyncio.get_running_loop().call_soon(self._passed, body)
                yield value
        finally:
            sink.subscription.close()

    def _passed(self, body: WatchStep) -> None:
        """End a step: later writes of its task are not caused by the watch."""
        if self._body is body:
            self._body = None

    def author(self) -> Node | None:
        """Return the node of the watch whose body is making a write now, if one is."""
        body = self._body
        return body.node if body is not None and body.is_open() else None
