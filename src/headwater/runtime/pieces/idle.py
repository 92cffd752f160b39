"""Pieces with nodes that are not open here, and readers of a piece that stops running here.

A piece that is only named (`space.piece`) gets nodes as soon as a caller pulls or watches it, and their results are
worth keeping for the next read. There is no signal that no further read will come, so `IdlePieces` keeps a limited
number of such pieces and releases those used longest ago. A released piece gets its nodes again at the next read,
through any of its handles. A piece with a reader or a demanded node is not released.

When a piece stops running here, its readers must not keep an old value. A piece with a demanded reader outside of it is
only named from then on: its nodes stay, without those that run only because the piece is open (`PieceInstance.rest`).
Otherwise its nodes are removed, and its other readers are invalidated and run when they are next demanded. The cost is
proportional to the size of the piece, once. Nothing here decides whether a value is fresh.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.runtime.core.demand import Demand
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.scheduler.graph.edges import readers_of_writes
from headwater.scheduler.node import Node, NodeKind

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance


def instances_of(instance: PieceInstance) -> list[PieceInstance]:
    """Return a piece and all its descendants."""
    found = [instance]
    for each in found:
        found += each.children()
    return found


def nodes_of(instance: PieceInstance) -> list[Node]:
    """Return the nodes of a piece and of its descendants."""
    return [node for each in instances_of(instance) for node in each.nodes]


def outside_readers(nodes: list[Node]) -> dict[Node, None]:
    """Return the readers of some nodes that are not among these nodes."""
    own = set(nodes)
    return {each: None for node in nodes for each in readers_of_writes(node) if each not in own}


def is_demanded(reader: Node) -> bool:
    """Return whether a reader is demanded, other than by an event or a write that waits for a value."""
    return reader.live and not isinstance(getattr(reader.fn, "__self__", None), Demand)


def invalidate_readers(core: Core, readers: Iterable[Node]) -> None:
    """Invalidate readers whose inputs no node computes any more: their next run has them computed."""
    run = core.current.run
    asking = None if run is None else run.node
    for each in readers:
        if each is not asking:  # I5: a run never invalidates itself. It reads the new nodes.
            core.outside_run(
                lambda each=each: core.scheduler.outdate(each, keeps_result=True)  # type: ignore[misc]
            )


class IdlePieces:
    """The pieces of one runtime that have nodes and are not open."""

    __slots__ = ("_core", "_instances", "_is_asked", "_most")

    def __init__(self, core: Core, most: int) -> None:
        self._core = core
        self._instances: OrderedDict[PieceInstance, None] = OrderedDict()
        self._is_asked = False
        self._most = most

    def __len__(self) -> int:
        return len(self._instances)

    def note_use(self, instance: PieceInstance) -> None:
        """Note that a node of a piece was registered. An open piece is not idle."""
        while instance.parent is not None:
            instance = instance.parent
        if instance.is_open:
            self._instances.pop(instance, None)
            return
        self._instances[instance] = None
        self._instances.move_to_end(instance)
        if len(self._instances) > self._most and not self._is_asked:
            self._is_asked = True
            self._core.afterwards(self._stop_unused)

    def forget(self, instance: PieceInstance) -> None:
        self._instances.pop(instance, None)

    def _stop_unused(self) -> None:
        """Stop pieces above the limit, those used longest ago first, unless they are read or demanded.

        A few are examined at a time: where most of them are in use, each new piece would otherwise cost all of them.
        """
        self._is_asked = False
        before = len(self._instances)
        for _ in range(RUNTIME_LIMITS.examined_pieces):
            if len(self._instances) <= self._most:
                return
            instance, _ = self._instances.popitem(last=False)
            if instance.is_open:
                continue
            if instance.is_launched or _is_in_use(instance):
                self._instances[instance] = None
            else:
                instance.stop()
        if self._most < len(self._instances) < before:
            self._is_asked = True
            self._core.afterwards(self._stop_unused)


def _is_in_use(instance: PieceInstance) -> bool:
    """Return whether a node of the piece is demanded, suspended, or read by a node outside the piece.

    A materializer, which always demands itself, is demanded by the open piece: here by nothing.
    """
    own = set(nodes_of(instance))
    return any(
        (node.rooted and node.kind is not NodeKind.MATERIALIZER)
        or node.provisional
        or node.suspended
        or any(each not in own for each in readers_of_writes(node))
        for node in own
    )
