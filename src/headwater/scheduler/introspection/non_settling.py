"""Non-settling: reports the nodes that make each other run without end, and the addresses through which they do.

An episode begins when a node uses all its runs, and ends when a pass leaves all its members clean. There is one report
for each episode, however often its nodes are held back; nodes that are only driven by the cycle belong to the episode,
too. Of a cycle through other runtimes only the entrance is known: the episode begins when a change came there over too
many sessions, and ends when that node runs for a change with fewer hops. `NonSettling` never holds back a node; gates
do.

The cycle is found by following causes: from a node to the writers whose commits made it run, and on, until a node
repeats. The search uses the causes that nodes keep, pending ones before those of the last run, and not the edges of the
graph: an edge is a possible influence, a cause an actual one. Each node is entered once, and nothing recurses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headwater.data.reader_trie import Spot
from headwater.replica.feed import Notification
from headwater.scheduler.introspection.causes import Cause, cause_of
from headwater.scheduler.node import CLEAN, Node
from headwater.scheduler.registry import Registry

__all__ = ["Edge", "NonSettling", "NonSettlingReport", "causes_of", "upstream", "way_back", "way_round_above"]


Edge = tuple[Node, Spot, Notification]
"""The writer of a commit, the changed spot, and the notification of the change."""


def causes_of(node: Node) -> Iterator[tuple[Node | None, Spot, Notification]]:
    """Yield the causes of a node's last run and of its present invalidity.

    Each comes with the node that wrote it; None if the writer is not a node, or was removed.
    """
    for spot, told in {**(node.last_causes or {}), **(node.causes or {})}.items():
        writer = told.source
        yield (writer if isinstance(writer, Node) and not writer.removed else None), spot, told


def upstream(node: Node) -> list[Node]:
    """Return the nodes whose commits led to a node's last run, nearest first."""
    seen = {node: None}
    waiting = deque([node])
    while waiting:
        for writer, _, _ in causes_of(waiting.popleft()):
            if writer is not None and writer not in seen:
                seen[writer] = None
                waiting.append(writer)
    del seen[node]
    return list(seen)


def way_back(start: Node) -> list[Edge]:
    """Return the shortest way from a node's commit to its own next run; empty if there is none.

    Each edge leads to the writer of the next one, and the last edge to the start.
    """
    led_to: dict[Node, tuple[Node, Spot, Notification]] = {}
    waiting = deque([start])
    while waiting:
        caused = waiting.popleft()
        for writer, spot, told in causes_of(caused):
            if writer is start:
                way = [(start, spot, told)]
                at = caused
                while at is not start:
                    reader, through, of = led_to[at]
                    way.append((at, through, of))
                    at = reader
                return way
            if writer is not None and writer not in led_to:
                led_to[writer] = (caused, spot, told)
                waiting.append(writer)
    return []


def way_round_above(node: Node) -> list[Edge]:
    """Return some cycle among the nodes whose commits drive a node; empty if there is none.

    Edges have the form of `way_back`.
    """
    path: list[tuple[Node, Iterator[tuple[Node | None, Spot, Notification]]]] = [(node, causes_of(node))]
    taken: list[Edge] = []  # one entry less than `path`: the edge from each node to the one before it
    place = {node: 0}  # position on the path
    done: set[Node] = set()
    while path:
        caused, causes = path[-1]
        for writer, spot, told in causes:
            if writer is None or writer in done:
                continue
            if writer in place:
                return [(writer, spot, told), *reversed(taken[place[writer] :])]
            place[writer] = len(path)
            taken.append((writer, spot, told))
            path.append((writer, causes_of(writer)))
            break
        else:
            done.add(caused)
            del place[caused]
            path.pop()
            if taken:
                taken.pop()
    return []


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NonSettlingReport:
    """One episode. `links` are the cycle: each is a write that made the next node run."""

    node: str  # the first node that used all its runs
    runs: int  # runs of this node without a pause
    nodes: tuple[str, ...]  # the nodes of the cycle, each once; empty: the node is driven from outside
    links: tuple[tuple[str, Cause], ...]  # (the node that was made to run, the cause), in the order of `nodes`
    outside: tuple[Cause, ...]  # causes of the node that were not written by a node
    left_out: int  # nodes of the cycle beyond the bound
    hops: int = 0  # hops of the node's cause over other sessions, if that is the reason; `outside` names the writer

    def __str__(self) -> str:
        lines = [f"{self.node} ran {self.runs} times and does not come to an end"]
        if self.hops:
            lines = [
                f"{self.node} does not come to an end: the change that it runs for has gone from one runtime to "
                f"another {self.hops} times. The cycle leaves this runtime."
            ]
        if self.links:
            more = f" and {self.left_out} more" if self.left_out else ""
            lines.append(f"  these make each other run: {', '.join(self.nodes)}{more}")
            lines += [f"    {node} because of {cause}" for node, cause in self.links]
        else:
            lines += [f"  it is driven by {cause}" for cause in self.outside]
        return "\n".join(lines)


class NonSettling:
    """All episodes in progress, and the newest reports. Nodes are kept by id: a removed node is not kept alive."""

    __slots__ = ("_episodes", "_member_of", "_on_report", "_registry", "_shown", "reports")

    def __init__(
        self, registry: Registry, shown: int, entries: int, on_report: Callable[[NonSettlingReport], object]
    ) -> None:
        self._registry = registry
        self._shown = shown  # links of a report
        self._on_report = on_report
        self._episodes: dict[NonSettlingReport, dict[str, None]] = {}  # with the ids of all members
        self._member_of: dict[str, NonSettlingReport] = {}
        self.reports: deque[NonSettlingReport] = deque(maxlen=entries)

    def under_way(self) -> tuple[NonSettlingReport, ...]:
        """Return the reports of episodes that have not ended."""
        self.pass_ended()
        return tuple(self._episodes)

    def exhausted(self, node: Node) -> None:
        """Add a node that used all its runs and is held back to its episode, or begin one."""
        # fault+ non_settling.reported_each_time: return self._on_report(self._report(node, []))
        if node.id not in self._member_of:
            self._join(node, self._resumed(node) or self._begin(node))

    def pass_ended(self) -> None:
        """End the episodes whose members are all clean after a pass.

        Checks each episode up to its first unsettled member.
        """
        for report in [report for report, members in self._episodes.items() if self._is_settled(members)]:
            for member in self._episodes.pop(report):
                del self._member_of[member]

    def _is_settled(self, members: Iterable[str]) -> bool:
        nodes = (self._registry.get(member) for member in members)
        return all(node is None or not node.live or _is_at_rest(node) for node in nodes)

    def _join(self, node: Node, report: NonSettlingReport) -> None:
        self._episodes[report][node.id] = None
        self._member_of[node.id] = report

    def _resumed(self, node: Node) -> NonSettlingReport | None:
        """Return the episode that a node continues: it had settled, and goes on without an external change."""
        if node.gate is not None and node.gate.exhaustions > 1:
            for report in reversed(self.reports):
                if node.id == report.node or node.id in report.nodes:
                    self._episodes.setdefault(report, {})
                    return report
        return None

    def _begin(self, node: Node) -> NonSettlingReport:
        """Begin an episode, or return the one in progress that drives the node."""
        way = way_back(node)
        for writer in [writer for writer, _, _ in way] or upstream(node):
            if writer.id in self._member_of:
                return self._member_of[writer.id]
        way = way or way_round_above(node)
        report = self._report(node, way)
        self._episodes[report] = {}
        for writer, _, _ in way:
            self._join(writer, report)
        self.reports.append(report)
        self._on_report(report)
        return report

    def _report(self, node: Node, way: list[Edge]) -> NonSettlingReport:
        readers = [writer for writer, _, _ in way[1:]] + [writer for writer, _, _ in way[:1]]
        links = [(reader.id, cause_of(spot, told)) for reader, (_, spot, told) in zip(readers, way, strict=True)]
        is_far = node.gate is not None and node.gate.is_far
        outside = [cause_of(spot, told) for writer, spot, told in causes_of(node) if writer is None]
        if is_far:
            outside.sort(key=lambda cause: cause.hops, reverse=True)  # The writer that drives the node comes first.
        return NonSettlingReport(
            node=node.id,
            runs=node.pass_runs,
            nodes=tuple(writer.id for writer, _, _ in way[: self._shown]),
            links=tuple(links[: self._shown]),
            outside=tuple(outside[: self._shown]),
            left_out=max(0, len(way) - self._shown),
            hops=node.hops if is_far else 0,
        )


def _is_at_rest(node: Node) -> bool:
    """True if the node is clean, and its last run was not for a change that may return from another runtime."""
    return node.status == CLEAN and not (node.gate is not None and node.gate.goes_round)
