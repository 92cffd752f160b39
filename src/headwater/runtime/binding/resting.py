"""Pieces that somebody looked at and nobody runs here: the last ones are kept ready, the others are let go.

A piece that is only named (`space.piece`) has nodes as soon as somebody pulls or watches it, and what they computed is
worth something for the next look. But nobody says when there will be none: so there are so many of them at most. What
is let go has its nodes made again by whoever looks again, through whichever handle. What somebody reads stays.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headwater.runtime.binding.onward import nodes_of
from headwater.scheduler.graph.edges import readers_of

if TYPE_CHECKING:
    from headwater.runtime.binding.home import Home
    from headwater.runtime.core import Core

TRIES: Final = 8
"""How many are looked at to find one that can be let go, each time."""


class Resting:
    """The pieces of one runtime that have nodes and are not open."""

    __slots__ = ("_core", "_homes", "_is_asked", "_most")

    def __init__(self, core: Core, most: int) -> None:
        self._core = core
        self._homes: OrderedDict[Home, None] = OrderedDict()
        self._is_asked = False
        self._most = most

    def __len__(self) -> int:
        return len(self._homes)

    def used(self, home: Home) -> None:
        """Nodes of it were made: somebody looks at it, or runs it."""
        while home.parent is not None:
            home = home.parent
        if home.is_open:
            self._homes.pop(home, None)
            return
        self._homes[home] = None
        self._homes.move_to_end(home)
        if len(self._homes) > self._most and not self._is_asked:
            self._is_asked = True
            self._core.afterwards(self._let_go)

    def forget(self, home: Home) -> None:
        self._homes.pop(home, None)

    def _let_go(self) -> None:
        """Some that were looked at long ago, as far as nobody does now."""
        self._is_asked = False
        for _ in range(len(self._homes) - self._most + TRIES):
            if len(self._homes) <= self._most:
                return
            home, _ = self._homes.popitem(last=False)
            if home.is_open:
                continue
            if home.is_launched or _is_looked_at(home):
                self._homes[home] = None
            else:
                home.stop()


def _is_looked_at(home: Home) -> bool:
    """Whether anything outside the piece demands or reads what it computes."""
    own = set(nodes_of(home))
    return any(node.live or node.suspended or any(each not in own for each in readers_of(node)) for node in own)
