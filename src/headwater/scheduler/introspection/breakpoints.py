"""Breakpoints: somebody is called before an attempt of a node, in the middle of the pass, and may look at everything.

Owns which nodes stop and who is called. The callback is called outside of any run, before the node is changed, and the
attempt goes on when it returns; it cannot say no, so that a breakpoint decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from headwater.data.trace import RunStarted, TraceEvent
from headwater.scheduler.introspection.taps import Taps
from headwater.scheduler.node import Node
from headwater.scheduler.registry import Registry

__all__ = ["Breakpoints", "Pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Where it stopped: before this attempt of this node. Its status and causes are those that make it run."""

    node: Node
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Breakpoint:
    node: str | None
    chooses: Callable[[Node], bool] | None
    callback: Callable[[Pause], object]

    def stops_at(self, node: Node) -> bool:
        return node.id == self.node if self.chooses is None else self.chooses(node)


class Breakpoints:
    """All breakpoints of a scheduler."""

    __slots__ = ("_numbers", "_points", "_registry", "_taps")

    def __init__(self, taps: Taps, registry: Registry) -> None:
        self._taps = taps
        self._registry = registry
        self._points: dict[int, _Breakpoint] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._points)

    def add(self, at: str | Callable[[Node], bool], callback: Callable[[Pause], object]) -> Callable[[], None]:
        """Call before each attempt of the node with this id, registered or not yet; or of each node that a predicate
        chooses. Ends when the returned function is called."""
        number = next(self._numbers)
        if isinstance(at, str):
            self._points[number] = _Breakpoint(node=at, chooses=None, callback=callback)
        else:
            self._points[number] = _Breakpoint(node=None, chooses=at, callback=callback)
        self._taps.on_event(self._stop, True)

        def remove() -> None:
            if self._points.pop(number, None) is not None and not self._points:
                self._taps.on_event(self._stop, False)

        return remove

    def _stop(self, event: TraceEvent) -> None:
        if type(event) is not RunStarted:
            return
        node = self._registry.get(event.node)
        if node is None:
            return
        for point in tuple(self._points.values()):  # A callback may add and remove breakpoints.
            if point.stops_at(node):
                point.callback(Pause(node=node, attempt=event.attempt))
