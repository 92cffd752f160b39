"""Ways through what made nodes run: from a node to whoever's commit made it run, and on, until one comes back.

Owns the search. It goes by the causes that nodes keep, pending ones before those of the last run, not by edges of the
graph: an edge says what may happen, a cause what did. Each node is entered once, and nothing recurses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from headwater.data.spots import Spot
from headwater.replica.feed import Notification
from headwater.scheduler.node import Node

__all__ = ["Edge", "causes_of", "upstream", "way_back", "way_round_above"]

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
