"""Non-settling: which nodes go round, through which addresses, when one of them has spent its runs.

Owns what an episode is: it begins when a node spends its runs and ends when a pass leaves everybody in it clean. One
report for each, however often its nodes are held back, and whoever is only driven by them belongs to it. The way round
is found in what made nodes run, so that it is what really happened. Of a cycle through other runtimes only the place is
known where it comes in: it begins when something came there over too many sessions, and ends when that node runs for
something that did not. Never holds anybody back: gates do.

Ways through what made nodes run: from a node to whoever's commit made it run, and on, until one comes back.

Owns the search. It goes by the causes that nodes keep, pending ones before those of the last run, not by edges of the
graph: an edge says what may happen, a cause what did. Each node is entered once, and nothing recurses.
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
"""Whose commit it was, where, and what was told of it."""


def causes_of(node: Node) -> Iterator[tuple[Node | None, Spot, Notification]]:
    """What made it run last, or will make it run; with the node that wrote it, if it was one that is still there."""
    for spot, told in {**(node.last_causes or {}), **(node.causes or {})}.items():
        writer = told.source
        yield (writer if isinstance(writer, Node) and not writer.removed else None), spot, told


def upstream(node: Node) -> list[Node]:
    """Whoever had a say in its last run, nearest first."""
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
    """The shortest way from a node's commit to its own next run; empty if there is none.

    Each edge leads to the writer of the next one, and the last one to the start.
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
    """Some way round among those whose commits drive a node; empty if there is none. In the form of `way_back`."""
    path: list[tuple[Node, Iterator[tuple[Node | None, Spot, Notification]]]] = [(node, causes_of(node))]
    taken: list[Edge] = []  # one less than `path`: the edge from each to the one before it
    place = {node: 0}  # on the path
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
    """One episode. `links` are the way round: each is the writer's write that made the next node run."""

    node: str  # who was the first to spend its runs
    runs: int  # of it, without a pause
    nodes: tuple[str, ...]  # who goes round, each once; empty: nobody, it is driven from outside
    links: tuple[tuple[str, Cause], ...]  # (the node that was made to run, why), in the order of `nodes`
    outside: tuple[Cause, ...]  # what made it run and was written by no node
    left_out: int  # nodes of the way round beyond the bound
    hops: int = 0  # over how many sessions came what it is to run for, if that is why; `outside` says from whom

    def __str__(self) -> str:
        lines = [f"{self.node} ran {self.runs} times and does not come to an end"]
        if self.hops:
            lines = [
                f"{self.node} does not come to an end: what it runs for has gone from one runtime to another "
                f"{self.hops} times. The cycle leaves this runtime."
            ]
        if self.links:
            more = f" and {self.left_out} more" if self.left_out else ""
            lines.append(f"  these make each other run: {', '.join(self.nodes)}{more}")
            lines += [f"    {node} because of {cause}" for node, cause in self.links]
        else:
            lines += [f"  it is driven by {cause}" for cause in self.outside]
        return "\n".join(lines)


class NonSettling:
    """All episodes that are under way, and the newest reports. Nodes are kept by id: one that is removed is not."""

    __slots__ = ("_episodes", "_member_of", "_on_report", "_registry", "_shown", "reports")

    def __init__(
        self, registry: Registry, shown: int, entries: int, on_report: Callable[[NonSettlingReport], object]
    ) -> None:
        self._registry = registry
        self._shown = shown  # links of a report
        self._on_report = on_report
        self._episodes: dict[NonSettlingReport, dict[str, None]] = {}  # with everybody who belongs to it
        self._member_of: dict[str, NonSettlingReport] = {}
        self.reports: deque[NonSettlingReport] = deque(maxlen=entries)

    def under_way(self) -> tuple[NonSettlingReport, ...]:
        """The reports of episodes that have not ended."""
        self.pass_ended()
        return tuple(self._episodes)

    def exhausted(self, node: Node) -> None:
        """It spent its runs and is held back."""
        # fault+ non_settling.reported_each_time: return self._on_report(self._report(node, []))
        if node.id not in self._member_of:
            self._join(node, self._resumed(node) or self._begin(node))

    def pass_ended(self) -> None:
        """Episodes end when a pass leaves everybody in them clean. It looks until it finds one who is not."""
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
        """It had come to an end, and goes on without anything new from outside: that is the same episode."""
        if node.gate is not None and node.gate.exhaustions > 1:
            for report in reversed(self.reports):
                if node.id == report.node or node.id in report.nodes:
                    self._episodes.setdefault(report, {})
                    return report
        return None

    def _begin(self, node: Node) -> NonSettlingReport:
        """A new episode; or one that is under way, if that is what drives the node."""
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
            outside.sort(key=lambda cause: cause.hops, reverse=True)  # Who drives it comes first.
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
    """Clean, and its last run was not for something that may come round again from another runtime."""
    return node.status == CLEAN and not (node.gate is not None and node.gate.goes_round)
