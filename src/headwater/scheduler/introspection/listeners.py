"""Listeners: one place where diagnostics listen to the trace and to completed runs. Costs nothing without listeners.

`Listeners` isolates errors: an error that a listener raises is handed to `on_error` and never reaches the observed run.
It never drops or changes an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headwater.data.trace import Trace, TraceEvent
from headwater.replica.document import TierEntry
from headwater.replica.pending import Layer
from headwater.scheduler.failures import INTERRUPTS, as_failure
from headwater.scheduler.node import Node
from headwater.scheduler.pass_ import Pass
from headwater.scheduler.runner import Runner

__all__ = ["Listeners"]

OnEvent = Callable[[TraceEvent], object]
OnRan = Callable[[Node, "Layer | TierEntry | None"], object]
Listener = TypeVar("Listener")


class Listeners:
    """Listeners in the order in which they were added, each once."""

    __slots__ = ("_on_error", "_on_event", "_on_ran", "_pass", "_runner", "_set_trace")

    def __init__(
        self,
        runner: Runner,
        pass_: Pass,
        set_trace: Callable[[Trace | None], object],
        on_error: Callable[[Exception], object],
    ) -> None:
        self._runner = runner
        self._pass = pass_
        self._set_trace = set_trace
        self._on_error = on_error
        self._on_event: tuple[OnEvent, ...] = ()
        self._on_ran: tuple[OnRan, ...] = ()

    def on_event(self, listener: OnEvent, on: bool) -> None:
        """Start or stop calling a listener with every trace event."""
        self._on_event = _switched(self._on_event, listener, on)
        self._set_trace(self if self._on_event else None)

    def on_ran(self, listener: OnRan, on: bool) -> None:
        """Start or stop calling a listener after the commit of every completed run."""
        self._on_ran = _switched(self._on_ran, listener, on)
        self._runner.on_ran = self._ran if self._on_ran else None

    def on_passes(self, exhausted: Callable[[Node], object], ended: Callable[[], object]) -> None:
        """Set the one listener, always on, for nodes that used all their runs in a pass and for ended passes."""

        def on_exhausted(node: Node) -> None:
            try:
                exhausted(node)
            except INTERRUPTS:
                raise
            except BaseException as error:  # P10, as below.
                self._on_error(as_failure(error))

        def on_pass_end() -> None:
            try:
                ended()
            except INTERRUPTS:
                raise
            except BaseException as error:  # P10, as below.
                self._on_error(as_failure(error))

        self._pass.on_exhausted = on_exhausted
        self._pass.on_pass_end = on_pass_end

    def emit(self, event: TraceEvent) -> None:
        """Hand a trace event of a component to every listener."""
        for listener in self._on_event:
            try:
                listener(event)
            except INTERRUPTS:
                raise
            except BaseException as error:  # P10: a listener does not decide, not even by failing.
                self._on_error(as_failure(error))

    def _ran(self, node: Node, layer: Layer | TierEntry | None) -> None:
        for listener in self._on_ran:
            try:
                listener(node, layer)
            except INTERRUPTS:
                raise
            except BaseException as error:  # P10, as above.
                self._on_error(as_failure(error))


def _switched(listeners: tuple[Listener, ...], listener: Listener, on: bool) -> tuple[Listener, ...]:
    others = tuple(other for other in listeners if other != listener)
    return (*others, listener) if on else others
