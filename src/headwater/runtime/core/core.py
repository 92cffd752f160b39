"""The core of a runtime, without an event loop: spaces, handles and nodes, and what moves them.

Whoever owns the loop calls `tick`, `wake` and `heard`, and is asked for ticks and timers through the `Loop` port; the
simulator's loop and asyncio's are two of those. Implements the port that handles use (`cells.host.Host`) and the one
that the scheduler uses (`scheduler.Driver`). Everything happens on one thread.

Nodes that stand on each other: which way leads from one of them back to itself. For messages; decides nothing.

The way is looked for in what nodes read in their last runs and in what their code names. One that leads through a child
is in neither, as long as no attempt came to its end; but then these attempts wait for each other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol
from weakref import ref

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Stream, Subscription, Topic
from headwater.cells.selector import Selector
from headwater.clock import Clock
from headwater.data.address import DocKey, Link, check_id, check_scope, doc_text
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, Value
from headwater.errors import AuthoringError, HeadwaterError, InvalidValueError, NotReadyError
from headwater.protocol.verdict import Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.runtime.core.error_channel import ErrorChannel
from headwater.runtime.core.local_space import Channel, LocalSpace
from headwater.runtime.core.observers import Observers
from headwater.runtime.core.time_documents import TimeDocuments
from headwater.runtime.writing.plain_writes import PlainWrites
from headwater.runtime.writing.tracker import TransactionTracker, check_computed
from headwater.scheduler.failures import INTERRUPTS, as_failure
from headwater.scheduler.graph.edges import writers_above, writers_of
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.scheduler.scheduler import Failure, Scheduler


def circle(node: Node, document: Document, stopped: Sequence[Node]) -> tuple[str, ...]:
    """A way from a node through a document that it reads back to itself, by name; empty: there is none.

    `stopped` are attempts that wait, each for the next one and the last for the node.
    """
    came_from: dict[Node, Node] = {}
    waiting = []
    for writer in writers_of(document):
        came_from.setdefault(writer, node)
        waiting.append(writer)
    writers = set(waiting)
    for each in waiting:  # It grows: the nearest come first.
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
    """What it read in its last run, and what its code names: an attempt that was stopped leaves no reads."""
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


TRIMMED = 256
"""Documents that nobody reads and that are let go, at most, whenever something is heard."""


class Loop(Protocol):
    """Whoever owns the loop."""

    def request_tick(self) -> None:
        """Call `Core.tick` soon, once."""

    def set_timer(self, at_us: int | None) -> None:
        """Call `Core.wake` at that moment of the monotonic clock, and forget the one said before."""


class Sending(Protocol):
    """Whoever takes events and records: the door for what comes with handlers and reactions."""

    def post(self, stream: Stream[Any], payload: Value) -> None: ...

    def emit(self, topic: Topic[Any], record: Value) -> None: ...


_ON_THREAD: dict[int, list[ref[Core]]] = {}
"""The runtimes of each thread. While a run of one is open, the handles of the others refuse."""


class Core:
    """One runtime."""

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
        self.selector = Selector()
        self.scheduler = Scheduler(clock, self, limits)
        self.current = self.scheduler.current
        self.time = TimeDocuments(clock, self.current, self.scheduler.gates.alarm)
        self.scheduler.attach(self.time.replica, is_shared=False)
        self.observing = Observers(self)
        self.writing = PlainWrites(self)
        self.sending: Sending | None = None
        self.on_missed: Callable[[Document], object] = id  # a run needs a document that is not here
        self.check_link: Callable[[Document, Document], None] | None = None  # raises where a run may not be led
        self.on_ended: list[Callable[[LocalSpace], object]] = []  # told of spaces from which nothing will be heard
        self.open_space: Callable[[str], LocalSpace] | None = None  # for a space that nobody named before

    # ---- spaces ------------------------------------------------------------------------------------

    def add_space(self, name: str, replica: Replica, channel: Channel) -> LocalSpace:
        """Take part in a space from now on."""
        if name in self._spaces:
            raise AuthoringError(f"this runtime has a space {name!r} already")
        space = self._spaces[name] = self._of_replica[replica] = LocalSpace(name, replica, channel)
        self.scheduler.attach(replica)
        self.observing.follow(replica)
        return space

    def add_replica(self, name: str, replica: Replica, channel: Channel) -> None:
        """Documents that runs may wait for and that are of no space that anybody names."""
        self._of_replica[replica] = LocalSpace(name, replica, channel)
        self.scheduler.attach(replica)

    def space(self, name: str) -> LocalSpace:
        space = self._spaces.get(name)
        if space is not None:
            return space
        if self.open_space is not None:
            return self.open_space(name)
        raise AuthoringError(f"this runtime has no space {name!r}: open it first")

    def space_of(self, document: Document) -> LocalSpace:
        return self._of_replica[document.home]

    def space_name(self, document: Document) -> str:
        return self._of_replica[document.home].name

    def space_of_replica(self, replica: Replica) -> LocalSpace:
        return self._of_replica[replica]

    def name_of(self, replica: Replica) -> str | None:
        """What the space of a replica is called. None: it is none, like the time and the past."""
        space = self._of_replica.get(replica)
        return space.name if space is not None and self._spaces.get(space.name) is space else None

    def spaces(self) -> tuple[LocalSpace, ...]:
        return tuple(self._spaces.values())

    def cell(self, space: str, id: str, of: Any, *, scope: str = "space", default: Any = ABSENT) -> Cell[Any]:
        """The handle of a document: what is there, and its type."""
        codec = codec_for(of)
        try:
            raw: MaybeValue = ABSENT if default is ABSENT else codec.encode(default)
        except InvalidValueError as error:
            raise InvalidValueError(f"the default of {space}/{id} does not fit: {error}", path=error.path) from error
        return Cell(self, self._document(space, id, scope), codec, (), raw)

    def stream(self, space: str, id: str, of: Any, *, scope: str = "space") -> Stream[Any]:
        """The handle of a stream of events."""
        return Stream(self, self._document(space, id, scope), codec_for(of))

    def topic(self, space: str, id: str, of: Any, *, scope: str = "space") -> Topic[Any]:
        """The handle of a topic of records."""
        return Topic(self, self._document(space, id, scope), codec_for(of))

    def _document(self, space: str, id: str, scope: str) -> Document:
        self.check_thread()
        return self.space(space).document(check_id(id), check_scope(scope))

    # ---- nodes -------------------------------------------------------------------------------------

    def register(self, spec: NodeSpec, *, rooted: bool | None = None) -> Node:
        """Enter a node. It runs when somebody demands it, not before (I2)."""
        self._check_structural()
        return self.scheduler.register(spec, rooted=rooted)

    def _check_structural(self) -> None:
        self.check_thread()
        run = self.current.run
        if run is not None and isinstance(run.tracker, TransactionTracker):
            raise AuthoringError("nodes are registered and removed outside a transaction: it may be called again")

    def next_number(self) -> int:
        """A number for a node that has no name of its own."""
        self._numbered += 1
        return self._numbered

    def remove(self, node: Node) -> None:
        if node.removed:
            return  # As all are once the runtime is closed: whoever lets go of a look late does no harm.
        self._check_structural()
        self.scheduler.remove(node)
        if self.observing.is_awaited():
            self._loop.request_tick()  # Somebody may have waited for its turn.

    # ---- moving ------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """One slice of work, and what follows from it. True: there is more."""
        for space in tuple(self._spaces.values()):
            space.arrived()  # What was written before it arrived is there before anybody reads it.
        self.writing.catch_up()
        self.scheduler.tick()
        for space in self._spaces.values():
            space.channel.flush()
        for _ in range(len(self._after)):  # Those who come meanwhile have their turn in the next slice.
            act = self._after.popleft()
            try:
                act()
            except INTERRUPTS:
                self._loop.request_tick()  # The others are still to come.
                raise
            except BaseException as error:  # An observer's failure is its own.
                self.report("an observer", as_failure(error))
        self.observing.look()
        # Observers may have written: whether there is more is only known now.
        more = bool(self._after) or bool(self.writing) or not self.scheduler.settle.is_quiet()
        if more:
            self._loop.request_tick()
        return more

    def wake(self) -> None:
        """The timer went off."""
        self.scheduler.wake()

    def heard(self) -> None:
        """Something arrived from an engine."""
        for space in tuple(self._spaces.values()):
            space.arrived()
            space.trim(TRIMMED)
        self.scheduler.heard()
        self.observing.look()
        self._loop.request_tick()

    def load_failed(self, space: LocalSpace, docs: Iterable[DocKey], error: HeadwaterError) -> None:
        """The engine refuses documents: whoever reads them waits on, whoever awaits or writes them is told."""
        named = space.asked_for(docs)
        dropped = space.load_failed(named, error)
        for doc in named:
            self.report(f"{space.name}/{doc_text(doc)}", error)
        for each in dropped:
            self.report("a write outside any run", error)
            each()
        self.observing.look()

    def broken(self, error: Exception) -> None:
        """Something happened that must not: whoever waits is told, and nothing here is to be trusted any more."""
        self.report("the runtime itself", error)
        self.observing.end(HeadwaterError(f"this runtime broke: {error}. Report it, and open another one."))

    def ended(self, space: LocalSpace, error: Exception) -> None:
        """Nothing will be heard from a space any more."""
        space.ended = error
        self.report(f"space {space.name}", error)
        for listener in self.on_ended:
            listener(space)
        self.observing.look()

    def check_decidable(self, layers: Sequence[Layer]) -> None:
        """Raise why a space ended that will not say any more what became of one of these commits."""
        for space in self._spaces.values():
            if space.ended is not None and space.is_pending(layers):
                raise space.ended

    def why_not(self, document: Document) -> Exception | None:
        """Why a document will not arrive, if that is known."""
        space = self._of_replica.get(document.home)
        return None if space is None else space.why_not(document)

    async def loaded(self, document: Document) -> None:
        """Wait until a document is here. Raises why it will not come, if that is known."""
        self.load(document)
        await self.observing.until(lambda: document.value is not NOT_HERE or self.why_not(document) is not None)
        error = self.why_not(document)
        if document.value is NOT_HERE and error is not None:
            raise error

    def afterwards(self, act: Callable[[], object]) -> None:
        """Call outside any run, when this slice is over."""
        self._after.append(act)
        self._loop.request_tick()

    def is_quiet(self) -> bool:
        """Nothing is runnable, running or parked on local work. What waits for the network does not count."""
        return self.scheduler.is_quiet() and not self._after and not self.writing

    def is_settled(self) -> bool:
        """Quiet, and nothing waits for its time, or for a document that may still arrive.

        What does not come to an end is waited for as long as quiet is (`is_quiet`), and then no more.
        """
        if not self.is_quiet() or any(space.deferred() for space in self._spaces.values()):
            return False
        gates = self.scheduler.gates
        if any(node.is_runnable and not gates.is_exhausted(node) for node in gates.waiting()):
            return False
        if not self.scheduler.loads:
            return True
        waiting = [node.loading for node in self.scheduler.registry if node.loading is not None and node.live]
        return all(self.why_not(document) is not None for document in waiting)

    def settle(self, slices: int = 1_000_000) -> None:
        """Run until there is nothing to run now. For programs without a loop, and for tests."""
        for _ in range(slices):
            if not self.tick():
                return
        raise HeadwaterError(f"the graph did not settle in {slices} slices")

    # ---- errors ------------------------------------------------------------------------------------

    def on_error(self, listener: Callable[[Failure], object]) -> Subscription:
        """Hear every failure that nobody awaits, also those from before somebody listened."""
        self.check_thread()
        return self.failures.listen(listener)

    def on_failure(self, failure: Failure) -> None:
        """The error channel."""
        self.failures.tell(failure)

    def report(self, who: str, error: Exception) -> None:
        self.on_failure(Failure(who, error))

    # ---- the host of handles -----------------------------------------------------------------------

    def check_thread(self) -> None:
        if self.is_closed:
            raise AuthoringError("this runtime was closed, and nothing runs in it any more: open another one")
        if threading.get_ident() != self._thread:
            raise AuthoringError(
                "a runtime belongs to one thread: call rt.call(fn) to have fn called there, all of it: "
                "rt.call(lambda: piece.total.pull())"
            )
        if len(self._beside) > 1 and self.current.run is None:
            for each in self._beside:
                other = each()
                if other is not None and other.current.run is not None:
                    raise AuthoringError("a run of another runtime is open: inside it, use the handles of that runtime")

    def close(self) -> None:
        """Nothing runs here any more, and no other core of this thread looks out for its runs."""
        self.is_closed = True
        self._beside[:] = [each for each in self._beside if each() is not self]

    def visible(self, document: Document) -> MaybeValue:
        self.check_thread()
        value = document.value
        if value is NOT_HERE and self.why_not(document) is None:
            value = document.stale  # After a gap what was shown is visible until it arrives again. Runs wait for that.
        if document.writers and not check_computed(document) and (value is ABSENT or value is NOT_HERE):
            raise NotReadyError(f"{doc_text(document.key)} was never computed: await pull() first")
        if value is NOT_HERE:
            raise NotReadyError(f"{doc_text(document.key)} has not arrived yet: await pull() first")
        return value

    def circle(self, document: Document) -> tuple[str, ...]:
        run = self.current.run
        if run is None or not isinstance(run.node, Node):
            return ()
        return circle(run.node, document, [frame.node for frame in self.scheduler.settle.stopped()])

    def resolve(self, document: Document, link: Link) -> tuple[Document, Path]:
        home = self.space_of(document) if link.space is None else self.space(link.space)
        found = home.document(link.id, link.scope)
        if self.check_link is not None:
            self.check_link(document, found)
        return found, link.path

    def put(self, document: Document, value: Value, again: Callable[[], object], group: object | None) -> bool:
        return self.writing.put(document, value, again, group)

    def write(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        self.writing.write(cell, act, group)

    def pull(self, handle: Input[Any]) -> Coroutine[Any, Any, Any]:
        return self.observing.pull(handle)

    def sink(self, handle: Input[Any], fn: Callable[[Any], object], group: object | None) -> Subscription:
        return self.observing.sink(handle, fn, group)

    def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        return self.observing.watch(handle)

    def post(self, stream: Stream[Any], payload: Value) -> None:
        self._sending("posts to", stream).post(stream, payload)

    def emit(self, topic: Topic[Any], record: Value) -> None:
        self._sending("emits to", topic).emit(topic, record)

    def _sending(self, does: str, where: Stream[Any] | Topic[Any]) -> Sending:
        """Whoever sends events and records, unless the run that asks for it is one that may be repeated."""
        self.check_thread()
        node = None if self.current.run is None else self.current.run.node
        if isinstance(node, Node):
            what = "an effect" if node.kind is NodeKind.EFFECT else f"a {node.kind.value}"
            raise AuthoringError(f"{node.id} {does} {where!r}: {what} is repeated. Do it in a handler.")
        if self.sending is None:
            raise AuthoringError(f"nothing here takes what is sent to {where!r}: this runtime has no handlers")
        return self.sending

    # ---- the driver of the scheduler ---------------------------------------------------------------

    def request_tick(self) -> None:
        self._loop.request_tick()

    def set_timer(self, at_us: int | None) -> None:
        self._loop.set_timer(at_us)

    def load(self, document: Document) -> None:
        space = self._of_replica.get(document.home)
        if space is not None:  # The time needs nobody to fetch it.
            space.load(document)
            if document.value is NOT_HERE:
                self.on_missed(document)

    def release(self, document: Document) -> None:
        space = self._of_replica.get(document.home)
        if space is not None:
            space.release(document)
        elif document.home is self.time.replica:
            self.time.release(document)

    def is_ready(self, replica: Replica, conflict: Conflict) -> bool:
        space = self._of_replica.get(replica)
        return space is None or space.channel.is_ready(conflict)
