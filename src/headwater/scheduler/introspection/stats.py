"""Counts: of all nodes at one moment, and of each node's runs since counting was switched on.

`totals` adds up on request. `RunStats` follows the trace with one tally for each registered node; a tally is dropped
with its node. Times are measured around attempts, suspended ones included.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headwater.data.trace import Parked, Ran, Removed, RunFailed, RunRejected, RunStarted, Suspended, TraceEvent
from headwater.scheduler.gates import Gates
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.introspection.listeners import Listeners
from headwater.scheduler.node import STATUS, Node, NodeKind
from headwater.scheduler.pass_ import Pass
from headwater.scheduler.registry import Registry

__all__ = ["NodeStats", "RunStats", "Stats", "Tally", "totals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """All nodes that are registered now. Runs of removed nodes are not included."""

    nodes: int
    by_kind: dict[str, int]
    by_status: dict[str, int]
    live: int
    dormant: int
    queued: int
    suspended: int
    loading: int
    gated: int  # the wake timer waits for them
    failing: int
    reads: int
    runs: int
    attempts: int
    passes: int  # from one moment of quiet to the next, including passes with nothing to do
    read_deltas: int  # read sets that changed


def totals(registry: Registry, graph: Graph, gates: Gates, pass_: Pass) -> Stats:
    """Add up all nodes. Costs the number of nodes."""
    nodes = list(registry)
    kinds = Counter(node.kind for node in nodes)
    statuses = Counter(node.status for node in nodes)
    live = sum(node.live for node in nodes)
    return Stats(
        nodes=len(nodes),
        by_kind={kind.value: kinds[kind] for kind in NodeKind},
        by_status={name: statuses[status] for status, name in enumerate(STATUS)},
        live=live,
        dormant=len(nodes) - live,
        queued=sum(node.queued >= 0 for node in nodes),
        suspended=sum(node.suspended for node in nodes),
        loading=sum(bool(node.loading) for node in nodes),
        gated=len(gates.waiting()),
        failing=sum(node.error is not None for node in nodes),
        reads=sum(len(node.reads) - 1 for node in nodes),
        runs=sum(node.runs for node in nodes),
        attempts=sum(node.attempts for node in nodes),
        passes=pass_.number - 1,
        read_deltas=graph.deltas,
    )


@dataclass(slots=True)
class Tally:
    """Events of one node since counting was switched on."""

    runs: int = 0  # completed runs, failed ones included
    failures: int = 0
    suspensions: int = 0
    rejections: int = 0
    parked: int = 0
    spent_us: int = 0  # all attempts
    longest_us: int = 0  # one attempt


@dataclass(slots=True)
class _Open:
    """An attempt that is not over."""

    node: str
    began_us: int
    away_us: int = 0  # time of nested runs while it waited


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStats:
    """One node: its own counts since it was registered, and its tally if counting is on."""

    node: str
    runs: int
    attempts: int
    tally: Tally | None


class RunStats:
    """Tallies of nodes, while counting is on."""

    __slots__ = ("_gates", "_is_on", "_most_open", "_open", "_tallies", "_taps")

    def __init__(self, taps: Listeners, gates: Gates, most_open: int) -> None:
        self._taps = taps
        self._most_open = most_open
        self._gates = gates  # for the scheduler's one clock
        self._tallies: dict[str, Tally] = {}
        self._open: list[_Open] = []  # attempts that are not over, each inside the one before it
        self._is_on = False

    def switch(self, *, on: bool) -> None:
        """Begin to count from zero, or stop and drop the counts."""
        if on != self._is_on:
            self._is_on = on
            self._tallies.clear()
            self._taps.on_event(self._count, on)

    def of(self, node: Node) -> NodeStats:
        tally = self._tallies.setdefault(node.id, Tally()) if self._is_on and not node.removed else None
        return NodeStats(node=node.id, runs=node.runs, attempts=node.attempts, tally=tally)

    def slowest(self, count: int) -> list[tuple[str, Tally]]:
        """Return the nodes whose attempts took longest in total."""
        ranked = sorted(self._tallies.items(), key=lambda item: (-item[1].spent_us, item[0]))
        return ranked[:count]

    def _count(self, event: TraceEvent) -> None:
        match event:
            case RunStarted():
                self._open.append(_Open(event.node, self._gates.now_us()))
                del self._open[: -self._most_open]  # The end of an interrupted attempt is never reported.
            case Ran():
                self._attempt(event.node).runs += 1
            case RunFailed():
                tally = self._attempt(event.node)
                tally.runs += 1
                tally.failures += 1
            case Suspended():
                self._attempt(event.node).suspensions += 1
            case RunRejected():
                self._tally(event.node).rejections += 1
            case Parked():
                self._tally(event.node).parked += 1
            case Removed():
                self._tallies.pop(event.node, None)
            case _:
                pass  # The other kinds of event are not counted.

    def _tally(self, node: str) -> Tally:
        tally = self._tallies.get(node)
        if tally is None:
            tally = self._tallies[node] = Tally()
        return tally

    def _attempt(self, node: str) -> Tally:
        """End an attempt. The time of nested runs does not count as its own."""
        tally = self._tally(node)
        place = next((at for at in reversed(range(len(self._open))) if self._open[at].node == node), None)
        if place is None:
            return tally
        taken_us = self._gates.now_us() - self._open[place].began_us
        spent_us = taken_us - self._open[place].away_us
        del self._open[place:]
        if self._open:
            self._open[-1].away_us += taken_us
        tally.spent_us += spent_us
        tally.longest_us = max(tally.longest_us, spent_us)
        return tally
