"""Pieces that somebody looked at and nobody runs here: the last ones are kept ready, the others are let go.

A piece that is only named (`space.piece`) has nodes as soon as somebody pulls or watches it, and what they computed is
worth something for the next look. But nobody says when there will be none: so there are so many of them at most. What
is let go has its nodes made again by whoever looks again, through whichever handle. What somebody reads stays.

Whoever reads what a piece computes, when the piece stops running here: they are not left with an old value.

What a live reader reads is computed on, as of a piece that is only named: if its value is the same, nobody runs for it.
Others look again when somebody demands them, and so does whoever read what has to be made in a new way: the rows and
children of an `each`. Costs what the piece has, once. Decides nothing about what is fresh.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.cells.handle import Input
from headwater.replica.document import Document
from headwater.scheduler.graph.edges import readers_of
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.pieces.declarations import Declaration
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView


class Read(NamedTuple):
    """What others read of a piece."""

    members: list[tuple[ScopedView, Declaration]]  # what is read by somebody live, and can be made again by itself
    readers: dict[Node, None]  # of everything else


def homes_of(home: PieceInstance) -> list[PieceInstance]:
    """A piece, and its children, however far down."""
    found = [home]
    for each in found:
        found += each.children()
    return found


def nodes_of(home: PieceInstance) -> list[Node]:
    """The nodes of a piece and of its children."""
    return [node for each in homes_of(home) for node in each.nodes]


def readers(nodes: list[Node]) -> dict[Node, None]:
    """Who else reads what some nodes compute."""
    own = set(nodes)
    return {each: None for node in nodes for each in readers_of(node) if each not in own}


def read(home: PieceInstance) -> Read:
    """What others read of a piece that runs here."""
    nodes = nodes_of(home)
    own = set(nodes)
    places: dict[Document, tuple[ScopedView, Declaration]] = {}
    for facet in home.facets():
        for member, handle in facet.handles.items():
            if isinstance(handle, Input):
                known: Input[Any] = handle
                places[known.document] = (facet, member)
    found = Read([], {})
    for node in nodes:
        others = [each for each in readers_of(node) if each not in own]
        place = places.get(node.outputs[0]) if node.outputs else None
        if place is not None and any(each.live for each in others):
            found.members.append(place)
        else:
            found.readers.update(dict.fromkeys(others))
    return found


def go_on(home: PieceInstance, found: Read) -> None:
    """The piece is stopped: have what is read computed."""
    for facet, member in found.members:
        facet.handle(member)
    look_again(home.pieces, found.readers)


def look_again(pieces: PieceRegistry, readers: Iterable[Node]) -> None:
    """Nobody computes what these read any more: their next look has it computed."""
    run = pieces.core.current.run
    asking = None if run is None else run.node
    for each in readers:
        if each is not asking:  # I5: a run never invalidates itself. It looks at what it made.
            pieces.outside(lambda each=each: pieces.core.scheduler.outdate(each))  # type: ignore[misc]


TRIES: Final = 8
"""How many are looked at to find one that can be let go, each time."""


class IdlePieces:
    """The pieces of one runtime that have nodes and are not open."""

    __slots__ = ("_core", "_homes", "_is_asked", "_most")

    def __init__(self, core: Core, most: int) -> None:
        self._core = core
        self._homes: OrderedDict[PieceInstance, None] = OrderedDict()
        self._is_asked = False
        self._most = most

    def __len__(self) -> int:
        return len(self._homes)

    def used(self, home: PieceInstance) -> None:
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

    def forget(self, home: PieceInstance) -> None:
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


def _is_looked_at(home: PieceInstance) -> bool:
    """Whether anything outside the piece demands or reads what it computes."""
    own = set(nodes_of(home))
    return any(node.live or node.suspended or any(each not in own for each in readers_of(node)) for node in own)
