"""Introspection, put together: one object over the other components, that only delegates.

Everything here is read-only, or switches a diagnosis on and off; what is off costs nothing. Turning anything on changes
no decision (P10): the same history gives the same runs and commits with and without.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.cells.open_run import Current
from headwater.data.trace import Trace, TraceEvent
from headwater.errors import AuthoringError
from headwater.replica.layer import Layer
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.introspection.breakpoints import Breakpoints
from headwater.scheduler.introspection.causes import Explanation, why
from headwater.scheduler.introspection.dot import dot_text
from headwater.scheduler.introspection.idempotency import Idempotency
from headwater.scheduler.introspection.non_settling import NonSettling, NonSettlingReport
from headwater.scheduler.introspection.snapshot import GraphSnapshot, take
from headwater.scheduler.introspection.stats import NodeStats, RunStats, Stats, totals
from headwater.scheduler.introspection.taps import Taps
from headwater.scheduler.introspection.traces import Traces
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node
from headwater.scheduler.registry import Registry
from headwater.scheduler.runner import Runner
from headwater.scheduler.settle import Settle


class Introspection:
    """What there is to be looked at."""

    __slots__ = (
        "_gates",
        "_graph",
        "_limits",
        "_registry",
        "_settle",
        "_taps",
        "breakpoints",
        "idempotency",
        "non_settling",
        "run_stats",
        "traces",
    )

    def __init__(
        self,
        current: Current,
        registry: Registry,
        graph: Graph,
        gates: Gates,
        settle: Settle,
        runner: Runner,
        limits: SchedulerLimits,
        *,
        set_trace: Callable[[Trace | None], object],
        on_error: Callable[[Exception], object],
        on_non_settling: Callable[[NonSettlingReport], object],
    ) -> None:
        self._registry = registry
        self._graph = graph
        self._gates = gates
        self._settle = settle
        self._limits = limits
        self._taps = taps = Taps(runner, settle, set_trace, on_error)
        self.traces = Traces(taps, limits.trace_entries)
        self.run_stats = RunStats(taps, gates)
        self.breakpoints = Breakpoints(taps, registry)
        self.idempotency = Idempotency(current, graph, taps, limits.trace_entries)
        self.non_settling = NonSettling(registry, limits.causes_shown, limits.trace_entries, on_non_settling)
        taps.on_passes(self.non_settling.exhausted, self.non_settling.pass_ended)

    def snapshot(self, only: Callable[[Node], bool] | None = None) -> GraphSnapshot:
        """The graph now, or the nodes of it that a predicate chooses."""
        return take(self._registry, only)

    def dot(self, only: Callable[[Node], bool] | None = None) -> str:
        """The same as a picture, for Graphviz."""
        return dot_text(self.snapshot(only))

    def on_event(self, listener: Callable[[TraceEvent], object]) -> None:
        """Hear every event of the trace from now on."""
        self._taps.on_event(listener, True)

    def on_ran(self, listener: Callable[[Node, Layer | None], object]) -> None:
        """Hear of every completed run from now on, after its commit."""
        self._taps.on_ran(listener, True)

    def stats(self) -> Stats:
        return totals(self._registry, self._graph, self._gates, self._settle)

    def node_stats(self, node: Node | str) -> NodeStats:
        return self.run_stats.of(self._node(node))

    def why(self, node: Node | str) -> Explanation:
        """The chain of causes of a node's last run."""
        return why(self._node(node), self._limits.causes_shown)

    def has(self, node: str) -> bool:
        """Whether there is a node of this id."""
        return self._registry.get(node) is not None

    def _node(self, node: Node | str) -> Node:
        found = self._registry.get(node) if isinstance(node, str) else node
        if found is None:
            raise AuthoringError(f"there is no node {node!r}: `snapshot` lists those that there are")
        return found
