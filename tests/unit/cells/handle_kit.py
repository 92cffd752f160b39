"""What the tests of handles share: a runtime in the test's hands, with spaces that have no engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.cells.model import Model
from headwater.clock import VirtualClock
from headwater.data.value import ABSENT
from headwater.replica.detached import Detached
from headwater.replica.replica import Replica
from headwater.runtime.core.core import Core
from headwater.runtime.core.local_space import LocalSpace
from headwater.scheduler.failures import Failure
from headwater.scheduler.node import Node, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.testing.scheduler.tick_loops import ManualTickLoop


class Line(Model):
    sku: str
    cents: int
    qty: int = 1


class Address(Model):
    street: str = "unknown"
    town: str = "unknown"


class Card(Model):
    title: str
    column: str = "todo"
    points: int = 1
    address: Address = Address()


Cards = Mapping[str, Card]


class Hand:
    """A runtime that nobody moves but the test."""

    def __init__(self, *spaces: str) -> None:
        self.clock = VirtualClock(seed=1)
        self.core = Core(self.clock, ManualTickLoop())
        self.errors: list[Failure] = []
        self.core.on_error(self.errors.append)
        self._count = 0
        self.spaces: dict[str, LocalSpace] = {}
        for name in spaces or ("shop",):
            replica = Replica()
            self.spaces[name] = self.core.add_space(name, replica, Detached(replica))

    def cell(
        self, of: Any, value: Any = ABSENT, *, id: str = "", default: Any = ABSENT, space: str = "shop"
    ) -> Cell[Any]:
        """A cell whose document is here."""
        self._count += 1
        cell = self.core.cell(space, id or f"c{self._count}", of, default=default)
        self.spaces[space].load(cell.document)
        if value is not ABSENT:
            cell.set(value)
        return cell

    def computed(self, fn: Callable[[], Any], of: Any = int, **options: Any) -> Input[Any]:
        self._count += 1
        cell = self.core.cell("shop", f"computed{self._count}", of)
        writes = options.pop("writes", ())
        self.core.register(
            NodeSpec(
                id=f"computed{self._count}",
                kind=NodeKind.COMPUTATION,
                fn=fn,
                home=cell.document.home,
                outputs=(cell.document, *writes),
                **options,
            )
        )
        return cell

    def effect(self, fn: Callable[[], Any]) -> Node:
        self._count += 1
        home = self.spaces[next(iter(self.spaces))].replica
        return self.core.register(
            NodeSpec(id=f"effect{self._count}", kind=NodeKind.EFFECT, fn=fn, home=home, returns=False)
        )

    def seen(self, look: Callable[[], Any]) -> list[Any]:
        """What an effect that looks sees, one entry per run."""
        seen: list[Any] = []
        self.effect(lambda: seen.append(look()))
        self.core.settle()
        return seen

    def settle(self) -> None:
        self.core.settle()

    def advance(self, ms: float) -> None:
        self.clock.advance(round(ms * 1_000))
        self.core.wake()
        self.core.settle()

    def stored(self, cell: Input[Any]) -> Any:
        """What is in the document, as it is stored."""
        return cell.document.value
