"""The core of a runtime, without an event loop: spaces, handles and nodes, and what moves them.

Whoever owns the loop calls `tick`, `wake` and `heard`, and is asked for ticks and timers through the `Loop` port; the
simulator's loop and asyncio's are two of those. Implements the port that handles use (`cells.host.Host`) and the one
that the scheduler uses (`scheduler.Driver`). Everything happens on one thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.cells.host import Subscription
from headwater.cells.selector import Selector
from headwater.clock import Clock
from headwater.data.link import Link
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError, HeadwaterError
from headwater.protocol.verdict import Conflict, Rejected, Rejection, as_error
from headwater.replica.document import Document
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.runtime.authored import call_in
from headwater.runtime.observing import Observing
from headwater.runtime.space import Channel, LocalSpace
from headwater.runtime.timepiece import Timepiece
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node
from headwater.scheduler.registry import NodeSpec
from headwater.scheduler.scheduler import Failure, Scheduler

T = TypeVar("T")
MAX_ERRORS = 1_000
"""Errors that are kept for whoever asks to hear them first after they happened."""


class Loop(Protocol):
    """Whoever owns the loop."""

    def request_tick(self) -> None:
        """Call `Core.tick` soon, once."""

    def set_timer(self, at_us: int | None) -> None:
        """Call `Core.wake` at that moment of the monotonic clock, and forget the one said before."""


class Core:
    """One runtime."""

    def __init__(self, clock: Clock, loop: Loop, limits: SchedulerLimits | None = None) -> None:
        self.clock = clock
        self._loop = loop
        self._thread = threading.get_ident()
        self._spaces: dict[str, LocalSpace] = {}
        self._of_replica: dict[Replica, LocalSpace] = {}
        self._listeners: list[Callable[[Failure], object]] = []
        self._unheard: deque[Failure] = deque(maxlen=MAX_ERRORS)
        self._after: deque[Callable[[], object]] = deque()
        self.selector = Selector()
        self.scheduler = Scheduler(clock, self, limits)
        self.current = self.scheduler.current
        self.time = Timepiece(clock, self.current, self.scheduler.gates.alarm)
        self.scheduler.attach(self.time.replica)
        self.observing = Observing(self)

    # ---- spaces ------------------------------------------------------------------------------------

    def add_space(self, name: str, replica: Replica, channel: Channel) -> LocalSpace:
        """Take part in a space from now on."""
        if name in self._spaces:
            raise AuthoringError(f"this runtime has a space {name!r} already")
        space = self._spaces[name] = self._of_replica[replica] = LocalSpace(name, replica, channel)
        self.scheduler.attach(replica)
        return space

    def space(self, name: str) -> LocalSpace:
        try:
            return self._spaces[name]
        except KeyError:
            raise AuthoringError(f"this runtime has no space {name!r}: open it first") from None

    def spaces(self) -> tuple[LocalSpace, ...]:
        return tuple(self._spaces.values())

    def cell(self, space: str, id: str, of: Any, *, scope: str = "space", default: Any = ABSENT) -> Cell[Any]:
        """The handle of a document: what is there, and its type."""
        codec = codec_for(of)
        raw: MaybeValue = ABSENT if default is ABSENT else codec.encode(default)
        return Cell(self, self.space(space).document(id, scope), codec, (), raw)

    # ---- nodes -------------------------------------------------------------------------------------

    def register(self, spec: NodeSpec, *, rooted: bool | None = None) -> Node:
        """Enter a node. It runs when somebody demands it, not before (I2)."""
        self.check_thread()
        return self.scheduler.register(spec, rooted=rooted)

    def remove(self, node: Node) -> None:
        self.scheduler.remove(node)

    # ---- moving ------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """One slice of work, and what follows from it. True: there is more."""
        more = self.scheduler.tick()
        for space in self._spaces.values():
            space.channel.flush()
        while self._after:
            act = self._after.popleft()
            try:
                act()
            except Exception as error:  # An observer's failure is its own.
                self.report("an observer", error)
        self.observing.look()
        if more:
            self._loop.request_tick()
        return more

    def wake(self) -> None:
        """The timer went off."""
        self.scheduler.wake()

    def heard(self) -> None:
        """Something arrived from an engine."""
        for space in self._spaces.values():
            space.arrived()
        self.scheduler.heard()
        self.observing.look()

    def afterwards(self, act: Callable[[], object]) -> None:
        """Call outside any run, when this slice is over."""
        self._after.append(act)
        self._loop.request_tick()

    def is_quiet(self) -> bool:
        """Nothing is runnable, running or parked on local work. What waits for the network does not count."""
        return self.scheduler.is_quiet() and not self._after

    def settle(self, slices: int = 1_000_000) -> None:
        """Run until there is nothing to run now. For programs without a loop, and for tests."""
        for _ in range(slices):
            if not self.tick() and not self._after:
                return
        raise HeadwaterError(f"the graph did not settle in {slices} slices")

    # ---- errors ------------------------------------------------------------------------------------

    def on_error(self, listener: Callable[[Failure], object]) -> Subscription:
        """Hear every failure that nobody awaits, also those from before somebody listened."""
        self._listeners.append(listener)
        while self._unheard:
            listener(self._unheard.popleft())
        return Subscription(lambda: self._listeners.remove(listener))

    def on_failure(self, failure: Failure) -> None:
        """The error channel."""
        if not self._listeners:
            self._unheard.append(failure)
        for listener in tuple(self._listeners):
            listener(failure)

    def report(self, who: str, error: Exception) -> None:
        self.on_failure(Failure(who, error))

    # ---- the host of handles -----------------------------------------------------------------------

    def check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise AuthoringError("a runtime belongs to one thread: call rt.call(fn) to have fn called there")

    def resolve(self, document: Document, link: Link) -> tuple[Document, Path]:
        home = self._of_replica[document.home] if link.space is None else self.space(link.space)
        return home.document(link.id, link.scope), link.path

    def write(self, document: Document, patches: tuple[Patch, ...], group: object | None) -> None:
        space = self._of_replica[document.home]
        space.when_here(document, lambda: self._written(space, document, patches, group))

    def _written(self, space: LocalSpace, document: Document, patches: tuple[Patch, ...], group: object | None) -> None:
        replica = document.home
        only = patches[0] if len(patches) == 1 else None
        if only is not None and only.kind == "add" and not only.path:
            replica.write_whole(document, only.arg, (), None, group, "", None, False, self._settled)
        else:
            transaction = replica.begin(group=group)
            try:
                transaction.write(document.key, *patches)
            except BaseException:
                replica.drop(transaction)
                raise
            replica.commit(transaction, self._settled)
        self._loop.request_tick()

    def _settled(self, layer: Layer, rejection: Rejection | None) -> None:
        """A write that nobody awaits: if it does not land, the error channel hears of it."""
        if rejection is not None:
            self.report("a write outside any run", as_error(Rejected(layer.local_seq, rejection)))

    def update(self, handle: Input[Any], fn: Callable[[Any], Any], group: object | None) -> None:
        cell = handle
        assert isinstance(cell, Cell)
        space = self._of_replica[handle._document.home]
        space.when_here(handle._document, lambda: self._updated(space, cell, fn, group))

    def _updated(self, space: LocalSpace, cell: Cell[Any], fn: Callable[[Any], Any], group: object | None) -> None:
        """Read and write in one transaction; once more for each time that somebody else was faster."""
        transaction = space.replica.begin(group=group)
        try:
            call_in(self.current, space.replica, transaction, lambda: cell.set(fn(cell.get())))
        except BaseException:
            space.replica.drop(transaction)
            raise

        def settled(layer: Layer, rejection: Rejection | None) -> None:
            if isinstance(rejection, Conflict):
                self._retry(space, rejection, lambda: self._updated(space, cell, fn, group))
            else:
                self._settled(layer, rejection)

        space.replica.commit(transaction, settled)
        self._loop.request_tick()

    def _retry(self, space: LocalSpace, conflict: Conflict, again: Callable[[], object]) -> None:
        self.observing.when(lambda: space.channel.is_ready(conflict), lambda: self.afterwards(again))

    def pull(self, handle: Input[Any]) -> Coroutine[Any, Any, Any]:
        return self.observing.pull(handle)

    def sink(self, handle: Input[Any], fn: Callable[[Any], object], group: object | None) -> Subscription:
        return self.observing.sink(handle, fn, group)

    def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        return self.observing.watch(handle)

    # ---- the driver of the scheduler ---------------------------------------------------------------

    def request_tick(self) -> None:
        self._loop.request_tick()

    def set_timer(self, at_us: int | None) -> None:
        self._loop.set_timer(at_us)

    def load(self, document: Document) -> None:
        space = self._of_replica.get(document.home)
        if space is not None:  # The time needs nobody to fetch it.
            space.load(document)

    def release(self, document: Document) -> None:
        space = self._of_replica.get(document.home)
        if space is not None:
            space.release(document)

    def is_ready(self, replica: Replica, conflict: Conflict) -> bool:
        space = self._of_replica.get(replica)
        return space is None or space.channel.is_ready(conflict)
