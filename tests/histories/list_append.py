"""Strict serializability of histories in which transactions append unique values to lists and read whole lists.

A read of a list shows the order of all appends before it, so that the order of versions need not be guessed (the idea
is that of Elle, by Kingsbury and Alvaro). `check` derives the order of the values of each list from its longest read,
and then the order that transactions must have had. A transaction that appended comes before those that read its value
(wr) or appended after it (ww); one that read a list comes before the one that appended the next value (rw); one that
ended comes before those that began later (rt). A cycle of such edges is an anomaly. A history is strictly serializable
if it has none, no read shows a value of a failed transaction or of no transaction, and reads of one list are prefixes
of one another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise


class Outcome(Enum):
    OK = "ok"  # it was acknowledged
    FAILED = "failed"  # it was refused, and has no effect
    UNKNOWN = "unknown"  # no answer came: it may have happened, at any time after its begin


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of a client, with what it read and appended."""

    id: str
    began: float
    ended: float  # of an unknown one: infinity
    outcome: Outcome
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)  # as of before its own appends
    appends: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A way in which a history is not strictly serializable."""

    kind: str
    about: str


def check(history: Sequence[Transaction], final: dict[str, tuple[str, ...]] | None = None) -> list[Anomaly]:
    """Return the anomalies of a history. `final`: the lists as they are at the end, read after everything."""
    found: list[Anomaly] = []
    writers: dict[tuple[str, str], Transaction] = {}
    for each in history:
        for key, value in each.appends.items():
            if (key, value) in writers:
                raise ValueError(f"{value!r} is appended to {key!r} twice: values have to be unique")
            writers[key, value] = each
    reads = [(each.id, key, seen) for each in history if each.outcome is Outcome.OK for key, seen in each.reads.items()]
    reads += [("the end", key, seen) for key, seen in (final or {}).items()]
    order: dict[str, tuple[str, ...]] = {}
    for _, key, seen in reads:
        if len(seen) > len(order.get(key, ())):
            order[key] = seen
    for reader, key, seen in reads:
        if seen != order.get(key, ())[: len(seen)]:
            found.append(Anomaly("incompatible order", f"{reader} read {seen} of {key}, others {order[key]}"))
    for key, values in order.items():
        if len(set(values)) < len(values):
            found.append(Anomaly("duplicate", f"{key} has a value twice: {values}"))
        for value in values:
            writer = writers.get((key, value))
            if writer is None:
                found.append(Anomaly("value of nobody", f"{value!r} in {key}"))
            elif writer.outcome is Outcome.FAILED:
                found.append(Anomaly("aborted read", f"{value!r} of {writer.id} in {key}"))
    if final is not None:
        for (key, value), writer in writers.items():
            if writer.outcome is Outcome.OK and value not in final.get(key, ()):
                found.append(Anomaly("lost append", f"{value!r} of {writer.id} was acknowledged and is not in {key}"))
    return found or _cycles(history, order, writers)


def _cycles(
    history: Sequence[Transaction], order: dict[str, tuple[str, ...]], writers: dict[tuple[str, str], Transaction]
) -> list[Anomaly]:
    shown = {writers[key, value].id for key, values in order.items() for value in values}
    # An unknown transaction whose values no one saw may not have happened.
    part = {each.id: each for each in history if each.outcome is Outcome.OK or each.id in shown}
    edges: dict[str, dict[str, str]] = defaultdict(dict)

    def add(before: str, after: str, why: str) -> None:
        if before != after:
            edges[before].setdefault(after, why)

    for key, values in order.items():
        for first, second in pairwise(values):
            add(writers[key, first].id, writers[key, second].id, f"ww {key}")
    for each in part.values():
        for key, seen in each.reads.items() if each.outcome is Outcome.OK else ():
            if seen:
                add(writers[key, seen[-1]].id, each.id, f"wr {key}")
            values = order.get(key, ())
            if len(seen) < len(values):
                add(each.id, writers[key, values[len(seen)]].id, f"rw {key}")
    for at, successors in _real_time(part.values()).items():
        for successor in successors:
            edges[at].setdefault(successor, "rt")
    return [_cycle_text(cycle, edges) for cycle in _find_cycles(edges)]


def _real_time(part: Iterable[Transaction]) -> dict[str, set[str]]:
    """Return edges from each transaction to those that began after its end, through nodes that stand for times."""
    edges: dict[str, set[str]] = defaultdict(set)
    # A chain of moments keeps the number of edges linear: ended -> moment -> next moment -> began.
    all_of = sorted(part, key=lambda each: each.began)
    moments = sorted({each.began for each in all_of})
    names = [f"at {number}" for number in range(len(moments))]
    for first, second in pairwise(names):
        edges[first].add(second)
    for each in all_of:
        edges[names[bisect_left(moments, each.began)]].add(each.id)
        after = bisect_left(moments, each.ended)
        while after < len(moments) and moments[after] <= each.ended:
            after += 1
        if after < len(moments):
            edges[each.id].add(names[after])
    return edges


def _find_cycles(edges: dict[str, dict[str, str]]) -> list[list[str]]:
    """Return one cycle of each strongly connected part that has more than one node (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    is_open: set[str] = set()
    found: list[list[str]] = []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        is_open.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    is_open.add(successor)
                    work.append((successor, iter(edges.get(successor, ()))))
                    break
                if successor in is_open:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[str] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        is_open.discard(part[-1])
                    if len(part) > 1:
                        found.append(_shortest(part, edges))
    return found


def _shortest(part: list[str], edges: dict[str, dict[str, str]]) -> list[str]:
    """Return a shortest cycle through the first node of a strongly connected part that is a transaction."""
    inside = set(part)
    start = next((node for node in sorted(part) if not node.startswith("at ")), part[0])
    came: dict[str, str] = {}
    queue = [start]
    for node in queue:
        for successor in edges.get(node, ()):
            if successor == start:
                path = [node]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path[::-1]
            if successor in inside and successor not in came:
                came[successor] = node
                queue.append(successor)
    return part


def _cycle_text(cycle: list[str], edges: dict[str, dict[str, str]]) -> Anomaly:
    steps = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    kinds = {edges[first][second].split()[0] for first, second in steps}
    named = "G0" if kinds == {"ww"} else "G1c" if kinds <= {"ww", "wr"} else "G2" if "rt" not in kinds else "real time"
    said = [f"{first} -{edges[first][second]}->" for first, second in steps if not first.startswith("at ")]
    return Anomaly(named, " ".join([*said, cycle[0]]))
