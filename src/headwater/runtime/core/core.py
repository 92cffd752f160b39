"""The core of a runtime on one thread: spaces, handles and nodes, and the calls that move them.

This module has no event loop; `observers` and `waiting` use asyncio's. The owner of the event loop calls `tick`, `wake`
and `heard`. The core requests ticks and timers through the `Loop` port, which `api.runtime` implements for asyncio, and
`testing.scheduler.tick_loops` for tests. `Core` implements the port that handles
use (`cells.runtime_port.HandleRuntime`) and the port that the scheduler uses (`scheduler.scheduler.RuntimePort`).

`circle` finds a cycle of nodes for error messages; no decision depends on it. It searches the reads of the nodes' last
runs and the documents that their code names. A cycle through a child is in neither as long as no attempt has completed;
in that case the suspended attempts wait for each other, and `circle` finds the cycle among them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast
from weakref import ref

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Delays, SinkSubscription, Stream, Subscription, Topic, UndecidedPlaces
from headwater.cells.selector import PathSelector
from headwater.clock import Clock
from headwater.data.address import DocKey, Link, check_id, check_scope, doc_text
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, Value
from headwater.errors import AuthoringError, HeadwaterError, InvalidValueError, NotReadyError
from headwater.protocol.verdict import Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.feed import ignore
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from headwater.runtime.core.error_channel import ErrorChannel
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.local_space import Channel, LocalSpace
from headwater.runtime.core.observers import Existence, Observers
from headwater.runtime.core.plain_writes import PlainWrites
from headwater.runtime.core.time_documents import TimeDocuments
from headwater.runtime.core.tracker import TransactionTracker, call_in, check_computed
from headwater.scheduler.failures import INTERRUPTS, Failure, as_failure
from headwater.scheduler.graph.edges import writers_above, writers_of
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.scheduler.scheduler import Scheduler


def circle(node: Node, document: Document, stopped: Sequence[Node]) -> tuple[str, ...]:
    """Return the ids of the nodes on a cycle from `node` through `document` back to `node`; empty if there is none.

    `stopped` are suspended attempts: each waits for the next one, and the last one waits for `node`.
    """
    came_from: dict[Node, Node] = {}
    waiting = []
    for writer in writers_of(document):
        came_from.setdefault(writer, node)
        waiting.append(writer)
    writers = set(waiting)
    for each in waiting:  # The list grows during the walk: breadth first, so the shortest cycle is found.
        if each is node:
            return _names(node, came_from)
        for above in _above(each):
            if above not in came_from:
                came_from[above] = each
                waiting.append(above)
    for place, each in enumerate(stopped):
        if each in writers:
            return (node.id, *(other.id for other in stopped[place:]), node.id)
    return ()


def _above(node: Node) -> Iterator[Node]:
    """Yield the writers of the documents that a node read in its last run or that its code names.

    A suspended attempt leaves no reads, so the last run alone is not enough.
    """
    yield from writers_above(node)
    for document in node.declared:
        yield from writers_of(document)


def _names(node: Node, came_from: dict[Node, Node]) -> tuple[str, ...]:
    way = [node.id]
    each = came_from[node]
    while each is not node:
        way.append(each.id)
        each = came_from[each]
    return (node.id, *reversed(way[1:]), node.id)


class Loop(Protocol):
    """Port to the owner of the event loop: `runtime.api.runtime.AsyncioTickLoop` in a program."""

    def request_tick(self) -> None:
        """Call `Core.tick` soon, once."""

    def set_timer(self, at_us: int | None) -> None:
        """Call `Core.wake` at `at_us` of the monotonic clock; replaces the timer set before. None: no timer."""


class RecordPort(Protocol):
    """Port to the part of a runtime that takes posted events and emitted records (`runtime.events.events.Events`)."""

    def post(self, stream: Stream[Any], payload: Value) -> None:
        """Send an event, with the transaction that is open."""

    def emit(self, topic: Topic[Any], record: Value) -> None:
        """Add a record to a topic, with the transaction that is open."""


_ON_THREAD: dict[int, list[ref[Core]]] = {}
"""The cores of each thread. While a run of one core is open, the handles of the other cores refuse to be used."""


T = TypeVar("T")


class Core:
    """One runtime, without its event loop."""

    def __init__(self, clock: Clock, loop: Loop, limits: SchedulerLimits | None = None) -> None:
        self.clock = clock
        self._loop = loop
        self._thread = threading.get_ident()
        self.is_closed = False
        self._beside = _ON_THREAD.setdefault(self._thread, [])
        self._beside.append(ref(self, self._beside.remove))
        self._spaces: dict[str, LocalSpace] = {}
        self._of_replica: dict[Replica, LocalSpace] = {}
        self.failures = ErrorChannel()
        self._after: deque[Callable[[], object]] = deque()
        self._numbered = 0
        self.selector = PathSelector()
        self.scheduler = Scheduler(clock, self, limits)
        self.current = self.scheduler.current
        self.time = TimeDocuments(clock, self.current, self.scheduler.gates.alarm)
        self.scheduler.attach(self.time.replica, is_shared=False)
        self.observers = Observers(self)
        self.plain_writes = PlainWrites(self)
        self.record_port: RecordPort | None = None
        # The composition of a runtime sets these functions of the rooms above.
        # Calls the handlers of the events whose turn it is (`Events.handle`).
        self.handle_events: Callable[[], object] = _nothing
        # Called with a document that is needed and not here (`Prefetch.prefetch_for_run`).
        self.on_missed: Callable[[Document], object] = ignore
        # Raises if a run may not follow a link (`LinkAccess.check`).
        self.check_link: Callable[[Document, Document], None] | None = None
        # Inside a run: whether the piece of a document exists (`PieceRegistry.find_piece`). None: it is of no piece.
        self.find_piece: Callable[[Document], Existence | None] = ignore
        self.on_ended: list[Callable[[LocalSpace], object]] = []  # called with each space that ended
        self.open_space: Callable[[str], LocalSpace] | None = None  # set by Runtime: opens a space at its first use
        # Set by Runtime: calls a function on the thread of this core, while the calling thread waits.
        self.call_there: Callable[[Callable[[], Any]], Any] | None = None

    # ---- spaces ------------------------------------------------------------------------------------

    def add_space(self, name: str, replica: Replica, channel: Channel) -> LocalSpace:
        """Add a space to this runtime."""
        if name in self._spaces:
            raise AuthoringError(f"this runtime has a space {name!r} already")
        space = self._spaces[name] = self._of_replica[replica] = LocalSpace(name, replica, channel)
        self.scheduler.attach(replica)
        self.observers.follow(replica)
        return space

    def add_replica(self, name: str, replica: Replica, channel: Channel) -> None:
        """Add documents that runs may wait for but that belong to no named space, such as past states of a space."""
        self._of_replica[replica] = LocalSpace(name, replica, channel)
        self.scheduler.attach(replica)

    def space(self, name: str) -> LocalSpace:
        """Return the space of this name, and open it at its first use if the runtime can open spaces."""
        space = self._spaces.get(name)
        if space is not None:
            return space
        if self.open_space is not None:
            return self.open_space(name)
        raise AuthoringError(f"this runtime has no space {name!r}: open it first")

    def space_of(self, document: Document) -> LocalSpace:
        """Return the space of a document."""
        return self._of_replica[document.home]

    def space_name(self, document: Document) -> str:
        """Return the name of the space of a document."""
        return self._of_replica[document.home].name

    def space_of_replica(self, replica: Replica) -> LocalSpace:
        """Return the space of a replica."""
        return self._of_replica[replica]

    def name_of(self, replica: Replica) -> str | None:
        """Return the name of a replica's space. None: the replica is no space, like those of time and of the past."""
        space = self._of_replica.get(replica)
        return space.name if space is not None and self._spaces.get(space.name) is space else None

    def spaces(self) -> tuple[LocalSpace, ...]:
        """Return the spaces that are open."""
        return tuple(self._spaces.values())

    def cell(self, space: str, id: str, of: Any, *, scope: str = "space", default: Any = ABSENT) -> Cell[Any]:
        """Return the handle of a document, typed as `of`."""
        codec = codec_for(of)
        try:
            raw: MaybeValue = ABSENT if default is ABSENT else codec.encode(default)
        except InvalidValueError as error:
            raise InvalidValueError(f"the default of {space}/{id} does not fit: {error}", path=error.path) from error
        return Cell(self, self._document(space, id, scope), codec, (), raw)

    def stream(self, space: str, id: str, of: Any, *, scope: str = "space") -> Stream[Any]:
        """Return the handle of a stream of events."""
        return Stream(self, self._document(space, id, scope), codec_for(of))

    def topic(self, space: str, id: str, of: Any, *, scope: str = "space") -> Topic[Any]:
        """Return the handle of a topic of records."""
        return Topic(self, self._document(space, id, scope), codec_for(of))

    def _document(self, space: str, id: str, scope: str) -> Document:
        self.check_thread()
        return self.space(space).document(check_id(id), check_scope(scope))

    # ---- time --------------------------------------------------------------------------------------

    def has_passed(self, when: datetime) -> bool:
        """Return whether a moment has come. Inside a run, the reading node runs again when it comes."""
        self.check_thread()
        return self.time.has_passed(when)

    def current_time(self, every_ms: float) -> datetime:
        """Return the time, rounded down to a step. Inside a run, the reading node runs again at each step."""
        self.check_thread()
        return self.time.round_down(every_ms)

    # ---- nodes -------------------------------------------------------------------------------------

    def register(self, spec: NodeSpec, *, rooted: bool | None = None) -> Node:
        """Register a node. The node runs when it is demanded, not before (I2)."""
        self._check_structural()
        return self.scheduler.register(spec, rooted=rooted)

    def _check_structural(self) -> None:
        self.check_thread()
        run = self.current.run
        if run is not None and isinstance(run.tracker, TransactionTracker):
            raise AuthoringError("nodes are registered and removed outside a transaction: it may be called again")

    def next_number(self) -> int:
        """Return a number for a node without a name of its own."""
        self._numbered += 1
        return self._numbered

    def outside_run(self, act: Callable[[], T]) -> T:
        """Change the graph outside the open run, so that nodes created by a read are not owned by the reader."""
        current = self.current
        run, current.run = current.run, None
        try:
            return act()
        finally:
            current.run = run

    def invalidate_readers(self, readers: Iterable[Node]) -> None:
        """Invalidate readers whose inputs no node computes any more: their next run has them computed."""
        run = self.current.run
        asking = None if run is None else run.node
        for each in readers:
            if each is not asking:  # I5: a run never invalidates itself. It reads the new nodes.
                self.outside_run(lambda each=each: self.scheduler.outdate(each, keeps_result=True))  # type: ignore[misc]

    def remove(self, node: Node) -> None:
        """Remove a node. Nothing happens if it was removed before."""
        if node.removed:
            return  # After `close` every node is removed: an observer that is closed late does no harm.
        self._check_structural()
        self.scheduler.remove(node)
        if self.observers.is_awaited():
            self._loop.request_tick()  # A waiter may have waited for this node.

    def call_in(
        self, home: Replica, transaction: Transaction, fn: Callable[[], T], tracker: TransactionTracker | None = None
    ) -> T:
        """Call a function in a transaction: `tracker.call_in`, with a tracker of its own if none is passed."""
        tracker = tracker or TransactionTracker(self.scheduler, home, transaction, self.visible)
        try:
            return call_in(self.current, tracker, transaction, fn)
        finally:
            # Nodes that ran for it have results to send, also if the transaction ends here.
            # fault core.nested_results_not_sent: pass
            self.scheduler.pass_.request_tick()

    # ---- moving ------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Do one slice of work and deliver its results to observers. True: there is more work."""
        for space in tuple(self._spaces.values()):
            space.make_deferred_writes()  # Writes that waited for a document are made before a node reads it.
        self.plain_writes.catch_up()
        try:
            self.handle_events()  # Everything that follows from a handler's commit is derived, and sent with it, now.
        except INTERRUPTS:
            self._loop.request_tick()  # The slice that the pass was told to expect is still to come.
            raise
        self.scheduler.tick()
        for space in self._spaces.values():
            space.channel.flush()
        for _ in range(len(self._after)):  # Callbacks added meanwhile are called in the next slice.
            act = self._after.popleft()
            try:
                act()
            except INTERRUPTS:
                self._loop.request_tick()  # The remaining callbacks are still to be called.
                raise
            except BaseException as error:  # The failure of one observer affects no other one.
                self.report("an observer", as_failure(error))
        self.observers.check_conditions()
        more = self._has_work()  # Computed last, because observers may have written.
        if more:
            self._loop.request_tick()
        return more

    def wake(self) -> None:
        """Handle the timer set with `Loop.set_timer`."""
        self.scheduler.wake()

    def heard(self) -> None:
        """Handle messages that a session has taken in from its engine."""
        for space in tuple(self._spaces.values()):
            space.make_deferred_writes()
            space.trim(RUNTIME_LIMITS.dropped_documents)
        self.plain_writes.catch_up()
        self.scheduler.heard()
        self.observers.check_conditions()
        if self._has_work() or self.observers.is_awaited():
            self._loop.request_tick()  # What is awaited may depend on callbacks that run before the tick.

    def _has_work(self) -> bool:
        """True if another slice has something to do now."""
        return bool(self._after) or bool(self.plain_writes) or not self.scheduler.pass_.is_quiet()

    def load_failed(self, space: LocalSpace, docs: Iterable[DocKey], error: HeadwaterError) -> None:
        """Handle documents that the engine refuses to send.

        Nodes that read the documents keep waiting. Callers that await one of the documents get the error, and writes
        that wait for one are dropped and reported.
        """
        named = space.asked_for(docs)
        dropped = space.load_failed(named, error)
        for doc in named:
            self.report(f"{space.name}/{doc_text(doc)}", error)
        for each in dropped:
            self.report("a write outside any run", error)
            each()
        self.observers.check_conditions()

    def broken(self, error: Exception) -> None:
        """Handle a bug of Headwater itself: end every wait with an error.

        The state of this runtime cannot be trusted any more.
        """
        self.report("the runtime itself", error)
        self.observers.end(HeadwaterError(f"this runtime broke: {error}. Report it, and open another one."))

    def ended(self, space: LocalSpace, error: Exception) -> None:
        """Record that a space ended: nothing will be received from its engine any more."""
        space.ended = error
        self.report(f"space {space.name}", error)
        for listener in self.on_ended:
            listener(space)
        self.observers.check_conditions()

    def check_decidable(self, layers: Sequence[Layer]) -> None:
        """Raise the error of an ended space in which one of these commits is pending: its verdict will never come."""
        for space in self._spaces.values():
            if space.ended is not None and space.is_pending(layers):
                raise space.ended

    def is_load_refused(self) -> bool:
        """True if a document will not arrive in one of the spaces."""
        return any(space.failed_loads or space.ended is not None for space in self._spaces.values())

    def why_not(self, document: Document) -> Exception | None:
        """Return the reason why a document will not arrive; None if no reason is known."""
        space = self._of_replica.get(document.home)
        return None if space is None else space.why_not(document)

    async def loaded(self, *documents: Document) -> None:
        """Wait until documents are here. Raises the reason why one of them will not arrive, if one is known."""
        for document in documents:
            self.load(document)
        for document in documents:
            await self._arrived(document)

    async def _arrived(self, document: Document) -> None:
        await self.observers.until(lambda: document.value is not NOT_HERE or self.why_not(document) is not None)
        error = self.why_not(document)
        if document.value is NOT_HERE and error is not None:
            raise error

    def afterwards(self, act: Callable[[], object]) -> None:
        """Call `act` outside any run, at the end of this slice."""
        self._after.append(act)
        self._loop.request_tick()

    def is_quiet(self) -> bool:
        """True if no work is runnable, running or parked on local work. Waiting for the network does not count."""
        # fault idle.freed_nodes_ignored: if False:
        if self.scheduler.loads.is_freeing():
            self._loop.request_tick()
            return False
        return self.scheduler.is_quiet() and not self._after and not self.plain_writes

    def is_settled(self) -> bool:
        """True if the core is quiet and no work waits for its time or for a document that may still arrive.

        A node that was held back because it spent its runs (`gates.is_exhausted`) is waited for only as long as
        `is_quiet` waits for it. Nothing will arrive for writes to a space that has ended.
        """
        # fault settled.writes_to_ended_spaces_awaited: writes = [s.deferred() for s in self._spaces.values()]
        writes = [space.deferred() for space in self._spaces.values() if space.ended is None]
        if not self.is_quiet() or any(writes):
            return False
        gates = self.scheduler.gates
        if any(node.is_runnable and not gates.is_exhausted(node) for node in gates.waiting()):
            return False
        if not self.scheduler.loads:
            return True
        return all(self.why_not(document) is not None for document in self.scheduler.loads.awaited())

    def settle(self, slices: int = RUNTIME_LIMITS.settle_slices) -> None:
        """Call `tick` until there is nothing to run now. For programs without an event loop, and for tests."""
        for _ in range(slices):
            if not self.tick():
                return
        raise HeadwaterError(f"the graph did not settle in {slices} slices")

    # ---- errors ------------------------------------------------------------------------------------

    def on_error(self, listener: Callable[[Failure], object]) -> Subscription:
        """Call `listener` with every failure that no caller awaits, including those from before the first listener."""
        self.check_thread()
        return self.failures.listen(listener)

    def on_failure(self, failure: Failure) -> None:
        """Report a failure on the error channel."""
        self.failures.tell(failure)

    def report(self, who: str, error: Exception) -> None:
        """Report an error that no caller gets, with the name of the code that raised it."""
        self.on_failure(Failure(who, error))

    # ---- the runtime of handles --------------------------------------------------------------------

    def is_own_thread(self) -> bool:
        """Return whether the caller is on the thread of this core."""
        return threading.get_ident() == self._thread

    def on_own_thread(self, make: Callable[[], T]) -> T:
        """Return the result of a function that has to be called on the thread of this core, on whichever thread."""
        if threading.get_ident() == self._thread or self.call_there is None:
            return make()
        return cast(T, self.call_there(make))

    def check_own_thread(self) -> None:
        """Raise an error on another thread. Unlike `check_thread`, a closed runtime and open runs are accepted."""
        if threading.get_ident() != self._thread:
            raise _on_another_thread()

    def check_thread(self) -> None:
        """Raise if the runtime is closed, this is not its thread, or a run of another runtime is open here."""
        if self.is_closed:
            raise AuthoringError("this runtime was closed, and nothing runs in it any more: open another one")
        if threading.get_ident() != self._thread:
            raise _on_another_thread()
        if len(self._beside) > 1 and self.current.run is None:
            for each in self._beside:
                other = each()
                if other is not None and other.current.run is not None:
                    raise AuthoringError("a run of another runtime is open: inside it, use the handles of that runtime")

    def close(self) -> None:
        """Mark this core as closed and remove it from the cores of its thread, which check each other's runs."""
        self.is_closed = True
        self._beside[:] = [each for each in self._beside if each() is not self]

    def visible(self, document: Document) -> MaybeValue:
        """Return the value of a document that a read outside any run sees."""
        self.check_thread()
        value = document.value
        if value is NOT_HERE and self.why_not(document) is None:
            value = document.stale  # Shown until the document arrives again after a gap; runs wait for the arrival.
        if document.writers and not check_computed(document) and (value is ABSENT or value is NOT_HERE):
            raise NotReadyError(f"{doc_text(document.key)} was never computed: await pull() first")
        if value is NOT_HERE:
            raise NotReadyError(f"{doc_text(document.key)} has not arrived yet: await pull() first")
        return value

    def circle(self, document: Document) -> tuple[str, ...]:
        """Return the names of the nodes of the cycle that a read in the open run closes. Empty: it closes none."""
        run = self.current.run
        if run is None or not isinstance(run.node, Node):
            return ()
        found = circle(run.node, document, [frame.node for frame in self.scheduler.pass_.stopped()])
        half = RUNTIME_LIMITS.cycle_names // 2
        # Every node of the cycle fails with this text: all names would take memory by the square of their number.
        # fault core.long_cycles_named: return found
        return found if len(found) <= 2 * half else (*found[:half], f"{len(found) - 2 * half} more", *found[-half:])

    def resolve(self, document: Document, link: Link) -> tuple[Document, Path]:
        """Return the document and the path that a link in a document leads to, if the open run may follow it."""
        home = self.space_of(document) if link.space is None else self.space(link.space)
        found = home.document(link.id, link.scope)
        if self.check_link is not None:
            self.check_link(document, found)
        return found, link.path

    def put(self, document: Document, value: Value, again: Callable[[], object], group: object | None) -> bool:
        """Replace a whole document, outside any run. False: the write depends on earlier ones. Call `write`."""
        return self.plain_writes.put(document, value, again, group)

    def write(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        """Call `act` in a transaction of its own, outside any run, until it is accepted or reported as failed."""
        self.plain_writes.write(cell, act, group)

    def undecided_places(self, document: Document, path: Path) -> UndecidedPlaces:
        """Return whether a write without a verdict replaced the value at a path, and where below they wrote."""
        return self.plain_writes.undecided_places(document, path)

    def unseen_places(self, document: Document) -> Iterable[Path]:
        """Return where earlier writes wrote a document after the write that is being made was asked for."""
        return self.plain_writes.unseen_places(document)

    def pull(self, handle: Input[Any]) -> Coroutine[Any, Any, Any]:
        return self.observers.pull(handle)

    def sink(
        self,
        handle: Input[Any],
        fn: Callable[[Any], object],
        group: object | None,
        delays: Delays,
        on_ended: Callable[[Exception], object] | None = None,
    ) -> SinkSubscription:
        return self.observers.sink(handle, fn, group, delays, on_ended)

    def set_delays(self, node: Node, delays: Delays) -> None:
        """Change the delays of a node, also while it waits."""
        debounce_ms, throttle_ms, auto_debounce = delays
        self.check_thread()
        self.scheduler.set_delays(
            node,
            debounce_us=None if debounce_ms is None else round(debounce_ms * 1_000),
            throttle_us=None if throttle_ms is None else round(throttle_ms * 1_000),
            no_auto=None if auto_debounce is None else not auto_debounce,
        )

    def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        return self.observers.watch(handle)

    def post(self, stream: Stream[Any], payload: Value) -> None:
        self._find_record_port("posts to", stream).post(stream, payload)

    def emit(self, topic: Topic[Any], record: Value) -> None:
        self._find_record_port("emits to", topic).emit(topic, record)

    def _find_record_port(self, does: str, where: Stream[Any] | Topic[Any]) -> RecordPort:
        """Return the port for events and records. Raises inside the run of a node, because that run may be repeated."""
        self.check_thread()
        node = None if self.current.run is None else self.current.run.node
        if isinstance(node, Node):
            what = "an effect" if node.kind is NodeKind.EFFECT else f"a {node.kind.value}"
            raise AuthoringError(f"{node.id} {does} {where!r}: {what} is repeated. Do it in a handler.")
        if self.record_port is None:
            raise AuthoringError(f"{where!r} cannot be sent to: this runtime has no handlers")
        return self.record_port

    # ---- the port of the scheduler -----------------------------------------------------------------

    def request_tick(self) -> None:
        self._loop.request_tick()

    def set_timer(self, at_us: int | None) -> None:
        self._loop.set_timer(at_us)

    def load(self, document: Document) -> None:
        """Request a document that is not here, and those that are likely to be needed with it."""
        space = self._of_replica.get(document.home)
        if space is not None:  # The replica of time documents has no space and loads nothing.
            space.load(document)
            if document.value is NOT_HERE:
                self.on_missed(document)

    def release(self, document: Document) -> None:
        """Note that no node reads a document any more: it may be dropped."""
        space = self._of_replica.get(document.home)
        if space is not None:
            space.release(document)
        elif document.home is self.time.replica:
            self.time.release(document)

    def is_ready(self, replica: Replica, conflict: Conflict) -> bool:
        """Return whether a commit that was rejected for a conflict may be repeated: the write that won is here."""
        space = self._of_replica.get(replica)
        return space is None or space.channel.is_ready(conflict)


def _nothing() -> None:
    """Do nothing: a core without events."""


def _on_another_thread() -> AuthoringError:
    return AuthoringError(
        "a runtime belongs to one thread: call rt.call(fn) to have fn called there, as in rt.call(piece.total.pull)"
    )
