"""Headwater as a contender: replica, feed and waves on, with the engine detached or attached.

Cells and nodes are made through the same calls as in an application. `runs()` is what the nodes say: a run that was
suspended has called its function without being a run.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from bench.reactive.contender import Contender
from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.containers import JsonCodec
from headwater.cells.handle import Input
from headwater.cells.open_run import Run
from headwater.clock import RealClock
from headwater.data.address import DocKey
from headwater.data.value import equal
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS
from headwater.engine.store.database import Synchronous
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.hub import Hub
from headwater.engine.sync.peer import Peer, PeerState
from headwater.protocol.messages import FromEngine, Hello, Welcome
from headwater.protocol.verdict import Conflict
from headwater.replica.detached import Detached
from headwater.replica.feed import Kind, Notification
from headwater.replica.replica import Replica
from headwater.replica.session import Session
from headwater.runtime.core.core import Core
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.tick_loops import ManualTickLoop

NUMBER = codec_for(int)
ANYTHING = JsonCodec()
ANYTHING.exact = int  # A number is what it is, without a look at what else it could be.
LIMITS = replace(DEFAULT_LIMITS, watches=100_000)  # An engine of one's own does not guard against one.


class Detach:
    """A runtime with one space that has no engine."""

    def __init__(self) -> None:
        self.core = Core(RealClock(), ManualTickLoop())
        self.replica = Replica()
        self.session = Detached(self.replica)
        self.space = self.core.add_space("bench", self.replica, self.session)
        self._count = 0
        self._nodes: dict[Node, None] = {}
        self._gone = 0  # runs of effects that ended
        self.handles: list[Input[Any]] = []

    def signal(self, value: Any, /) -> Cell[Any]:
        self._count += 1
        document = self.space.document(f"c{self._count}")
        self.ask(document.key)
        cell: Cell[Any] = Cell(self.core, document, NUMBER, (), value)  # declared with its default, as cells are
        return cell

    def ask(self, key: DocKey) -> None:
        self.session.watch((key,))

    def computed(self, fn: Callable[[], Any], /) -> Input[Any]:
        self._count += 1
        document = self.space.document(f"c{self._count}")
        node = self.core.register(
            NodeSpec(id=f"c{self._count}", kind=NodeKind.COMPUTATION, fn=fn, home=self.replica, outputs=(document,))
        )
        self._nodes[node] = None
        handle: Input[Any] = Input(self.core, document, ANYTHING)
        self.handles.append(handle)
        return handle

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        self._count += 1
        node = self.core.register(
            NodeSpec(id=f"e{self._count}", kind=NodeKind.EFFECT, fn=fn, home=self.replica, returns=False)
        )
        self._nodes[node] = None

        def end() -> None:
            self.core.remove(node)
            self._gone += node.runs
            del self._nodes[node]

        return end

    def batch(self, write: Callable[[], None], /) -> None:
        write()

    def settle(self) -> None:
        self.core.settle()

    def dispose(self) -> None:
        for node in self._nodes:
            self.core.remove(node)
        self._nodes.clear()

    def runs(self) -> int:
        return self._gone + sum(node.runs for node in self._nodes)


class Attach(Detach):
    """The same with the embedded engine on a file: every settle is durable before it ends."""

    def __init__(self, synchronous: Synchronous) -> None:
        super().__init__()
        self._folder = TemporaryDirectory(prefix="headwater-bench-")
        clock = RealClock()
        store = SqliteStore(str(Path(self._folder.name) / "bench.space"), synchronous=synchronous)
        self._engine = Engine(store, clock=clock)
        self._hub = Hub(self._engine, clock, LIMITS)
        self._inbox: deque[FromEngine] = deque()
        self._peer = Peer(self._inbox.append, LIMITS)
        self.replica = Replica()
        self._session = Session(self.replica, space="bench", key=clock.new_token(), new_token=clock.new_token)
        self.space = self.core.add_space("attached", self.replica, Inline(self))
        self.session = self.space.channel  # type: ignore[assignment]  # It is asked to watch, and no more.
        self._session.connected()
        self.talk()

    def ask(self, key: DocKey) -> None:
        self._session.watch((key,))  # It travels with the others that are made before something is run.

    def settle(self) -> None:
        self.converse()
        super().settle()

    def talk(self) -> None:
        """Say everything, and hear everything, until nobody has anything to say."""
        self._session.flush()
        self.converse()

    def converse(self) -> None:
        """The same without the wave that is being made: that leaves when its slice is over."""
        session = self._session
        while session.outgoing or self._inbox:
            said = list(session.outgoing)
            session.outgoing.clear()
            if any(isinstance(message, Hello) for message in said):
                self._peer.state = PeerState.GREETED
                self._inbox.append(Welcome(1))
            else:
                self._hub.process([(self._peer, message) for message in said])  # As one group, like a host's.
            while self._inbox:
                session.receive(self._inbox.popleft())
        self.core.heard()

    @property
    def wire(self) -> Session:
        return self._session

    def dispose(self) -> None:
        super().dispose()
        self.talk()
        self._engine.close()
        self._folder.cleanup()


class Inline:
    """Speaks for the space: every message is answered before the call ends."""

    def __init__(self, owner: Attach) -> None:
        self._owner = owner

    def watch(self, docs: Iterable[DocKey], *, is_ahead: bool = False) -> None:
        missing = [doc for doc in docs if not self._owner.replica.is_here(doc)]
        if missing:
            self._owner.wire.watch(missing)
            self._owner.converse()

    def unwatch(self, doc: DocKey) -> bool:
        return self._owner.wire.unwatch(doc)

    def flush(self) -> None:
        if self._owner.wire.has_unsent() or self._owner.wire.outgoing:
            self._owner.talk()

    def is_ready(self, conflict: Conflict) -> bool:
        return self._owner.wire.ready(conflict)

    def is_durable(self) -> bool:
        return not len(self._owner.replica.pending)


def detached() -> Contender:
    """No engine: transactions commit into the replica, and nothing is sent."""
    return Detach()


def attached_normal() -> Contender:
    """The embedded engine on a file, `synchronous=NORMAL`."""
    return Attach("NORMAL")


def attached_full() -> Contender:
    """The embedded engine on a file, `synchronous=FULL`."""
    return Attach("FULL")


# ---- where the time goes ---------------------------------------------------------------------------------

STEPS = 2_000


def steps() -> Mapping[str, float]:
    """Microseconds of a run by step, each timed by itself on the objects of a chain; the whole run for comparison."""
    root = Detach()
    source = root.signal(0)
    last: Any = source
    for _ in range(STEPS):
        last = root.computed(_plus_one(last))
    root.effect(_look(last))
    root.settle()
    nodes = [node for node in root.core.scheduler.registry if node.returns]

    def update(turn: int) -> None:
        source.set(turn + 1)
        root.settle()

    whole = _best(update, STEPS)
    run = Run(root.core.scheduler.runner)
    run.reads = nodes[5].reads
    handle: Any = root.handles[4]
    notice = Notification(Kind.COMMIT, nodes[4].outputs[0], 0, 1, ((),), True, 0, nodes[4])
    reader = nodes[5]
    replica, document = Replica(), None
    Detached(replica).watch((DocKey("space", "x"),))
    document = replica.documents.of(DocKey("space", "x"))

    def read(turn: int) -> None:
        for each in range(STEPS):
            run.number, run.place = turn * STEPS + each + 1, 0
            handle.get()

    def match(_: int) -> None:
        for _ in range(STEPS):
            reader.status, reader.causes, reader.queued = CLEAN, None, 1
            root.core.scheduler.invalidation.on_notification(notice)

    root.core.current.run = run
    reading = _best(read, STEPS)
    root.core.current.run = None
    figures = {
        "whole run": whole,
        "call": _best(lambda turn: [_nothing() for _ in range(STEPS)], STEPS),
        "read log": reading,
        "delta": _best(lambda turn: [reader.reads[1] is None for _ in range(STEPS)], STEPS),
        "match": _best(match, STEPS),
        "compare": _best(lambda turn: [equal(turn, each) for each in range(STEPS)], STEPS),
        "commit record": _best(
            lambda turn: [replica.write_whole(document, turn * STEPS + each + 1, ()) for each in range(STEPS)], STEPS
        ),
    }
    reader.status, reader.causes, reader.queued = CLEAN, None, -1
    figures["turn, run record and the rest"] = whole - sum(list(figures.values())[1:])
    return figures


def _plus_one(above: Any) -> Callable[[], int]:
    return lambda: above.get() + 1


def _look(above: Any) -> Callable[[], None]:
    def look() -> None:
        above.get()

    return look


def _nothing() -> int:
    return 1


def _best(work: Callable[[int], object], count: int) -> float:
    """Microseconds each, at best."""
    best = float("inf")
    for turn in range(7):
        began = process_time()
        work(turn)
        best = min(best, process_time() - began)
    return best * 1e6 / count


def memory() -> Mapping[str, float]:
    """Bytes per node by kind, with its handle, its document and its spots."""
    return {
        "dormant with two reads": _weight(is_live=False),
        "live with two reads": _weight(is_live=True),
    }


def _weight(*, is_live: bool) -> float:
    root = Detach()
    first, second = root.signal(1), root.signal(2)
    root.settle()
    gc.collect()
    tracemalloc.start()
    try:
        made = [root.computed(lambda: first.get() + second.get()) for _ in range(STEPS)]
        ends = [root.effect(_look(each)) for each in made]
        root.settle()
        if not is_live:
            for end in ends:
                end()
            ends.clear()
            root.settle()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held / STEPS
