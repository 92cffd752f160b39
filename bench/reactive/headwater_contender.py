"""Headwater as a contender: replica, feed and waves on, with the engine detached or attached.

Cells and nodes are made through the same calls as in an application. `runs()` is what the nodes say: a run that was
suspended has called its function without being a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.reactive.contender import Contender
from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.clock import RealClock
from headwater.replica.detached import Detached
from headwater.replica.replica import Replica
from headwater.runtime.core import Core
from headwater.runtime.loops import ByHand
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec

NUMBER = codec_for(int)


class Detach:
    """A runtime with one space that has no engine."""

    def __init__(self) -> None:
        self.core = Core(RealClock(), ByHand())
        self.replica = Replica()
        self.session = Detached(self.replica)
        self.space = self.core.add_space("bench", self.replica, self.session)
        self._count = 0
        self._nodes: list[Node] = []

    def signal(self, value: Any, /) -> Cell[Any]:
        self._count += 1
        document = self.space.document(f"c{self._count}")
        self.session.watch((document.key,))
        cell: Cell[Any] = Cell(self.core, document, NUMBER)
        cell.set(value)
        return cell

    def computed(self, fn: Callable[[], Any], /) -> Input[Any]:
        self._count += 1
        document = self.space.document(f"c{self._count}")
        node = self.core.register(
            NodeSpec(id=f"c{self._count}", kind=NodeKind.COMPUTATION, fn=fn, home=self.replica, outputs=(document,))
        )
        self._nodes.append(node)
        return Input(self.core, document, NUMBER)

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        self._count += 1
        node = self.core.register(
            NodeSpec(id=f"e{self._count}", kind=NodeKind.EFFECT, fn=fn, home=self.replica, returns=False)
        )
        self._nodes.append(node)
        return lambda: self.core.remove(node)

    def batch(self, write: Callable[[], None], /) -> None:
        write()

    def settle(self) -> None:
        self.core.settle()

    def dispose(self) -> None:
        for node in self._nodes:
            self.core.remove(node)
        self._nodes.clear()

    def runs(self) -> int:
        return sum(node.runs for node in self._nodes)


def detached() -> Contender:
    """No engine: transactions commit into the replica, and nothing is sent."""
    return Detach()


def attached_normal() -> Contender:
    """The embedded engine on a file, `synchronous=NORMAL`."""
    raise NotImplementedError("the Headwater contender with its engine has not been written yet")


def attached_full() -> Contender:
    """The embedded engine on a file, `synchronous=FULL`."""
    raise NotImplementedError("the Headwater contender with its engine has not been written yet")


def steps() -> Mapping[str, float]:
    """Microseconds of a run by step: call, read log, delta, match, compare, commit record."""
    raise NotImplementedError("the budget of a run has not been measured yet")


def memory() -> Mapping[str, float]:
    """Bytes per node by kind."""
    raise NotImplementedError("the memory of a node has not been measured yet")
