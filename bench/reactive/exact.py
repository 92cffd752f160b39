"""The measure for all contenders: a graph that runs exactly what has to run, and what it sees and counts.

A computed runs when it is read and something it read has changed, an effect when something it read has
changed; an equal result changes nothing; what nobody reads does not run. It is no contender: it has no
transactions, no errors and no order but that of creation, and its time is not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.reactive.contender import Contender, Readable


class Node:
    """A signal if it has no function, otherwise a computed or an effect."""

    __slots__ = ("ended", "fn", "graph", "readers", "reads", "stale", "value", "version")

    def __init__(self, graph: Exact, fn: Callable[[], Any] | None, value: Any = None) -> None:
        self.graph = graph
        self.fn = fn
        self.value = value
        # Counts changes of the value, so that a reader can tell whether it has seen this one.
        self.version = 0
        # In the order of reading, with the version that was read.
        self.reads: dict[Node, int] = {}
        self.readers: dict[Node, None] = {}
        # Something above may have changed. Readers of a stale node are stale.
        self.stale = fn is not None
        self.ended = False

    def get(self) -> Any:
        self.refresh()
        running = self.graph.running
        if running:
            running[-1].reads.setdefault(self, self.version)
            self.readers[running[-1]] = None
        return self.value

    def set(self, value: Any, /) -> None:
        if value != self.value:
            self.value = value
            self.version += 1
            self.graph.mark(self)

    def refresh(self) -> None:
        """Run if needed: reads are checked in their order, so that one that is no longer reached is left alone."""
        if not self.stale:
            return
        self.stale = False
        if self.version and not any(self.changed(node, seen) for node, seen in self.reads.items()):
            return
        self.run()

    @staticmethod
    def changed(node: Node, seen: int) -> bool:
        node.refresh()
        return node.version != seen

    def run(self) -> None:
        assert self.fn is not None
        for node in self.reads:
            node.readers.pop(self, None)
        self.reads = {}
        self.graph.running.append(self)
        try:
            value = self.fn()
        finally:
            self.graph.running.pop()
        if not self.version or value != self.value:
            self.value = value
            self.version += 1


class Exact:
    """A `Contender` that recurses where it is simplest."""

    def __init__(self) -> None:
        self.running: list[Node] = []
        self.waiting: dict[Node, None] = {}

    def signal(self, value: Any, /) -> Node:
        return Node(self, None, value)

    def computed(self, fn: Callable[[], Any], /) -> Node:
        return Node(self, fn)

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        node = Effect(self, fn)
        self.waiting[node] = None
        return node.end

    def mark(self, changed: Node) -> None:
        reached = [changed]
        while reached:
            for reader in reached.pop().readers:
                if not reader.stale:
                    reader.stale = True
                    reached.append(reader)
                    if type(reader) is Effect:
                        self.waiting[reader] = None

    def batch(self, write: Callable[[], None], /) -> None:
        write()

    def settle(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for node in waiting:
            if not node.ended:
                node.refresh()

    def dispose(self) -> None:
        self.waiting.clear()

    def runs(self) -> None:
        return None


class Effect(Node):
    __slots__ = ()

    def end(self) -> None:
        self.ended = True
        for node in self.reads:
            node.readers.pop(self, None)


class Counting:
    """A contender whose functions are counted. Used before the timing, never during it."""

    def __init__(self, inner: Contender) -> None:
        self.inner = inner
        self.calls = 0
        self.signal = inner.signal
        self.batch = inner.batch
        self.settle = inner.settle
        self.dispose = inner.dispose

    def computed(self, fn: Callable[[], Any], /) -> Readable:
        return self.inner.computed(self.counted(fn))

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        return self.inner.effect(self.counted(fn))

    def runs(self) -> int:
        own = self.inner.runs()
        return self.calls if own is None else own

    def counted(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            self.calls += 1
            return fn()

        return run
