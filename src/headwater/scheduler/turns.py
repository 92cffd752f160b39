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

    __slots__ = ("anew", "at", "next", "now", "was")

    def __init__(self) -> None:
        self.now: list[tuple[int, Node]] = []
        self.next: list[tuple[int, Node]] = []
        self.at = -1  # the turn that this sweep is at
        self.was = -1  # the same when it was paused
        self.anew = 0  # how often this pass began it anew

    def __bool__(self) -> bool:
        return bool(self.now or self.next)

    def push(self, node: Node) -> None:
        turn = node.queued = node.turn
        heappush(self.now if turn > self.at else self.next, (turn, node))

    def take(self) -> Node | None:
        """Whose turn it is. None: whoever it was waits elsewhere by now."""
        turn, node = heappop(self.now)
        if node.queued != turn:
            return None
        node.queued = -1
        self.at = turn
        return node

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


def pause(*sweeps: Sweep) -> None:
    """Between two slices a sweep is nowhere: what comes then is in order with everybody who waits, readers included."""
    for sweep in sweeps:
        sweep.was, sweep.at = sweep.at, -1


def resume(*sweeps: Sweep) -> bool:
    """Go on. True: something has come that lay behind, so that another sweep begins."""
    is_another = False
    for sweep in sweeps:
        if sweep.now and sweep.now[0][0] <= sweep.was:
            is_another = True
        elif sweep.at < sweep.was:
            sweep.at = sweep.was
        sweep.was = -1
    return is_another


def begin_anew(most: int, *sweeps: Sweep) -> None:
    """Everybody who waits is in one sweep again, in order, so often in a pass at most."""
    for sweep in sweeps:
        if sweep.anew >= most:
            continue
        sweep.anew += 1
        sweep.at = -1
        for entry in sweep.next:
            heappush(sweep.now, entry)
        sweep.next.clear()


def over(*sweeps: Sweep) -> None:
    """The pass is over, and so are its sweeps."""
    for sweep in sweeps:
        sweep.at, sweep.anew = -1, 0


def _lowest(turns: list[tuple[int, Node]]) -> int:
    while turns:
        turn, node = turns[0]
        if node.queued == turn:
            if node.is_runnable:
                return turn >> 44
            node.queued = -1
        heappop(turns)
    return ABOVE_ALL
