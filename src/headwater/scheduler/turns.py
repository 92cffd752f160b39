"""Whose turn it is: one sweep from low to high, and the next one for what came too late for this. Part of the pass.

A turn is a number: height, then parents before children, then registration. An entry whose node waits elsewhere by now
is passed over when it is met.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from headwater.scheduler.node import Node

ABOVE_ALL: Final = 1 << 60


class Sweep:
    """Nodes that wait for their turn, in this sweep or in the next."""

    __slots__ = ("at", "next", "now")

    def __init__(self) -> None:
        self.now: list[tuple[int, Node]] = []
        self.next: list[tuple[int, Node]] = []
        self.at = -1  # the turn that this sweep is at

    def __bool__(self) -> bool:
        return bool(self.now or self.next)

    def push(self, node: Node) -> None:
        turn = node.queued = node.turn
        heappush(self.now if turn > self.at else self.next, (turn, node))

    def turn_over(self) -> bool:
        """Begin the next sweep. False: nobody waits for it."""
        self.at = -1
        if self.next:
            self.now, self.next = self.next, self.now
            return True
        return False

    def take_next(self) -> list[Node]:
        """Everybody who waits for the next sweep; they do so no more."""
        self.at = -1
        waiting, self.next = self.next, []
        nodes = [node for turn, node in waiting if node.queued == turn]
        for node in nodes:
            node.queued = -1
        return nodes

    def lowest(self) -> int:
        """The height of the lowest that waits."""
        lowest = _lowest(self.now) if self.now else ABOVE_ALL
        return min(lowest, _lowest(self.next)) if self.next else lowest


def _lowest(turns: list[tuple[int, Node]]) -> int:
    while turns:
        turn, node = turns[0]
        if node.queued == turn:
            if node.is_runnable:
                return turn >> 44
            node.queued = -1
        heappop(turns)
    return ABOVE_ALL
