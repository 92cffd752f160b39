"""Introspection: one object that composes the diagnostics and delegates to them.

Every operation is read-only, or switches a diagnosis on and off; a diagnosis that is off costs nothing. Switching one
changes no decision (P10): the same history gives the same runs and commits with and without it.

`Traces` keeps a bounded number of the newest events of the kinds that were switched on, all kinds together, in the
order in which they happened.

`Breakpoints` call back before an attempt of a node, in the middle of the pass; the callback may inspect everything. It
is called outside of any run, before the node is changed, and the attempt goes on when it returns: a breakpoint cannot
prevent an attempt, and decides nothing.

`dot_text` draws a snapshot in the language of Graphviz. Nodes of the picture are named by numbers, not by ids: an id
may contain anything, and a DOT string cannot end with a backslash. Ids and addresses are labels; printable labels are
shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

from headwater.cells.open_run import Current
from headwater.data.trace import Recorder, RunStarted, Trace, TraceEvent
from headwater.errors import AuthoringError
from headwater.replica.document import TierEntry
from headwater.replica.pending import Layer
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.introspection.causes import Explanation, why
from headwater.scheduler.introspection.idempotency import Idempotency
from headwater.scheduler.introspection.listeners import Listeners
from headwater.scheduler.introspection.non_settling import NonSettling, NonSettlingReport
from headwater.scheduler.introspection.snapshot import GraphSnapshot, NodeRecord, take
from headwater.scheduler.introspection.stats import NodeStats, RunStats, Stats, totals
from headwater.scheduler.limits import SchedulerLimits
from headwater.scheduler.node import Node
from headwater.scheduler.pass_ import Pass
from headwater.scheduler.registry import Registry
from headwater.scheduler.runner import Runner

__all__ = ["Breakpoints", "Pause", "Traces", "dot_text", "kind_named", "quoted"]


E = TypeVar("E", bound=TraceEvent)


class Traces:
    """A recorder that keeps some kinds of event only."""

    __slots__ = ("_kinds", "_recorder", "_taps")

    def __init__(self, taps: Listeners, entries: int) -> None:
        self._taps = taps
        self._recorder = Recorder(entries)
        self._kinds: frozenset[type[TraceEvent]] = frozenset()

    @property
    def kinds(self) -> frozenset[type[TraceEvent]]:
        """The kinds that are switched on."""
        return self._kinds

    def switch(self, *kinds: type[TraceEvent] | str, on: bool) -> None:
        """Start or stop keeping events of these kinds; of every kind if none is named."""
        named = _resolved(kinds) if kinds else frozenset(_all_kinds().values())
        self._kinds = self._kinds | named if on else self._kinds - named
        self._taps.on_event(self._keep, bool(self._kinds))

    def of(self, kind: type[E]) -> list[E]:
        """Return the newest events of a kind, oldest first."""
        return self._recorder.of(kind)

    def events(self) -> list[TraceEvent]:
        return list(self._recorder)

    def runs(self) -> list[str]:
        """Return the nodes that completed a run, in order, as far as `Ran` and `Failed` are switched on."""
        return self._recorder.runs()

    def clear(self) -> None:
        self._recorder.events.clear()

    def _keep(self, event: TraceEvent) -> None:
        if type(event) in self._kinds:
            self._recorder.emit(event)


def kind_named(name: str) -> type[TraceEvent]:
    """Return the kind of event with this name."""
    kinds = _all_kinds()
    if name not in kinds:
        raise AuthoringError(f"there is no trace event {name!r}: it is one of {', '.join(sorted(kinds))}")
    return kinds[name]


def _resolved(kinds: Iterable[type[TraceEvent] | str]) -> frozenset[type[TraceEvent]]:
    return frozenset(kind_named(kind) if isinstance(kind, str) else kind for kind in kinds)


def _all_kinds() -> dict[str, type[TraceEvent]]:
    return {kind.__name__: kind for kind in TraceEvent.__subclasses__()}


_SHAPES: Final = {"computation": "ellipse", "effect": "box", "materializer": "hexagon"}
_FILLS: Final = {"never-ran": "white", "clean": "palegreen", "invalid": "khaki"}
_FAILED: Final = "lightcoral"
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def dot_text(snapshot: GraphSnapshot) -> str:
    """Draw the graph from left to right: written documents, then their readers. Dormant nodes are dashed."""
    names = {record.id: f"n{record.number}" for record in snapshot.nodes}
    lines = ["digraph headwater {", '  charset="UTF-8";', "  rankdir=LR;", "  node [style=filled];"]
    sources: dict[str, str] = {}  # addresses without a writer in the picture
    edges: dict[tuple[str, str, str], None] = {}
    for record in snapshot.nodes:
        lines.append(_node_line(names[record.id], record))
        for read in record.reads:
            label = read.address if read.depth == "deep" else f"{read.address} ({read.depth})"
            inside = [names[writer] for writer in read.writers if writer in names]
            if not inside:
                inside = [sources.setdefault(read.address, f"d{len(sources)}")]
                label = "" if read.depth == "deep" else f"({read.depth})"
            for writer in inside:
                edges[writer, names[record.id], label] = None
    for address, name in sources.items():
        lines.append(f"  {name} [shape=note, fillcolor=white, label={quoted(address)}];")
    for writer, reader, label in edges:
        lines.append(f"  {writer} -> {reader} [label={quoted(label)}];")
    for record in snapshot.nodes:
        if record.parent is not None and record.parent in names:
            lines.append(f"  {names[record.parent]} -> {names[record.id]} [style=dotted, arrowhead=none];")
    return "\n".join([*lines, "}", ""])


def _node_line(name: str, record: NodeRecord) -> str:
    label = f"{record.id}\nheight {record.height}, {record.runs} runs"
    if record.error is not None:
        label += f"\n{record.error}"
    style = "filled" if record.live else "filled,dashed"
    fill = _FILLS[record.status] if record.error is None else _FAILED
    shape = _SHAPES[record.kind]
    return f'  {name} [shape={shape}, style="{style}", fillcolor={fill}, label={quoted(label)}];'


def quoted(text: str) -> str:
    """Return text as a label in quotes, with every character escaped that DOT or its labels would interpret."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;").replace("\n", "\\n")
    return f'"{_UNPRINTABLE.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    """Return a character that cannot be printed as its number."""
    return f"\\\\u{ord(found[0]):04x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A stop before an attempt of a node. The node's status and causes are those that make it run."""

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

    def __init__(self, taps: Listeners, registry: Registry) -> None:
        self._taps = taps
        self._registry = registry
        self._points: dict[int, _Breakpoint] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._points)

    def add(self, at: str | Callable[[Node], bool], callback: Callable[[Pause], object]) -> Callable[[], None]:
        """Call back before each attempt of the node with this id, or of each node that a predicate chooses.

        The node need not be registered yet. Calling the returned function removes the breakpoint.
        """
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


class Introspection:
    """All diagnostics of one scheduler."""

    __slots__ = (
        "_gates",
        "_graph",
        "_limits",
        "_pass",
        "_registry",
        "_taps",
        "breakpoints",
        "check_thread",
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
        pass_: Pass,
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
        self._pass = pass_
        self._limits = limits
        self.check_thread: Callable[[], object] = lambda: None  # raises where the graph may change meanwhile
        self._taps = taps = Listeners(runner, pass_, set_trace, on_error)
        self.traces = Traces(taps, limits.trace_entries)
        self.run_stats = RunStats(taps, gates, limits.counted_attempts)
        self.breakpoints = Breakpoints(taps, registry)
        self.idempotency = Idempotency(current, graph, taps, limits.trace_entries)
        self.non_settling = NonSettling(registry, limits.causes_shown, limits.trace_entries, on_non_settling)
        taps.on_passes(self.non_settling.exhausted, self.non_settling.pass_ended)

    def snapshot(self, only: Callable[[Node], bool] | None = None) -> GraphSnapshot:
        """Return a snapshot of the graph, or of the nodes that a predicate chooses."""
        self.check_thread()
        return take(self._registry, only)

    def dot(self, only: Callable[[Node], bool] | None = None) -> str:
        """Return the snapshot as a picture, for Graphviz."""
        return dot_text(self.snapshot(only))

    def on_event(self, listener: Callable[[TraceEvent], object]) -> None:
        """Call a listener with every trace event from now on."""
        self._taps.on_event(listener, True)

    def on_ran(self, listener: Callable[[Node, Layer | TierEntry | None], object]) -> None:
        """Call a listener after the commit of every completed run from now on."""
        self._taps.on_ran(listener, True)

    def stats(self) -> Stats:
        self.check_thread()
        return totals(self._registry, self._graph, self._gates, self._pass)

    def node_stats(self, node: Node | str) -> NodeStats:
        self.check_thread()
        return self.run_stats.of(self._node(node))

    def why(self, node: Node | str) -> Explanation:
        """Return the chain of causes of a node's last run."""
        self.check_thread()
        return why(self._node(node), self._limits.causes_shown)

    def has(self, node: str) -> bool:
        """True if a node with this id is registered."""
        return self._registry.get(node) is not None

    def _node(self, node: Node | str) -> Node:
        found = self._registry.get(node) if isinstance(node, str) else node
        if found is None:
            raise AuthoringError(f"there is no node {node!r}: `snapshot` lists those that there are")
        return found
