"""Pieces with nodes that are not open here, and readers of a piece that stops running here.

A piece that is only named (`space.piece`) gets nodes as soon as a caller pulls or watches it, and their results are
worth keeping for the next read. There is no signal that no further read will come, so `IdlePieces` keeps a limited
number of such pieces and releases those used longest ago. A released piece gets its nodes again at the next read,
through any of its handles. A piece with a reader or a demanded node is not released.

When a piece stops running here, its readers must not keep an old value. A member with a live reader gets its node
again, as in a piece that is only named: if the value is equal, no reader runs. The rows of an `each` or `child` with a
live reader keep their nodes and children, without what runs only because the piece is open; such a reader also reads
the rows that lead to the child, as if it had looked for it. Other readers are invalidated and run when they are next
demanded. The cost is proportional to the size of the piece, once. Nothing here decides whether a value is fresh.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.cells.handle import Input
from headwater.replica.document import Document
from headwater.runtime.core.demand import Demand
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.scheduler.graph.edges import readers_of_writes
from headwater.scheduler.node import Node, NodeKind

if TYPE_CHECKING:
    from headwater.pieces.declarations import Declaration
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.children.coordinator import ChildSet
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView


class PieceReads(NamedTuple):
    """The part of a piece that nodes outside it read."""

    members: list[tuple[ScopedView, Declaration]]  # those with a live reader whose node can be made again by itself
    readers: dict[Node, None]  # the readers of everything else
    kept: list[ChildSet]  # those with a live reader of a row or a child
    rows: dict[Node, list[Document]]  # by live reader of a child of these: the keys and rows that lead to the child


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


def find_reads(instance: PieceInstance) -> PieceReads:
    """Return the members of a piece that nodes outside it read, and the other outside readers."""
    nodes = nodes_of(instance)
    own = set(nodes)
    found = PieceReads([], {}, [], {})
    for each in instance.coordinators.values():
        there = each.nodes()
        if not each.is_sparse and any(_is_demanded(one) for one in outside_readers(there) if one not in own):
            found.kept.append(each)
    # fault+ pieces.rows_stopped: found.kept.clear()
    staying = {node for each in found.kept for node in each.nodes()}
    for each in found.kept:
        for child, rows in _led_to(each, []):
            staying.difference_update(child.keepers())
            for one in outside_readers(child.nodes):
                if one in own:
                    continue
                if _is_demanded(one):
                    found.rows.setdefault(one, []).extend(rows)
                else:
                    found.readers[one] = None
    nodes = [node for node in nodes if node not in staying]
    own = set(nodes)
    places: dict[Document, tuple[ScopedView, Declaration]] = {}
    for view in instance.views():
        for member, handle in view.handles.items():
            if isinstance(handle, Input):
                known: Input[Any] = handle
                places[known.document] = (view, member)
    for node in nodes:
        others = [one for one in readers_of_writes(node) if one not in own]
        place = places.get(node.outputs[0]) if node.outputs else None
        if place is not None and any(one.live for one in others):
            found.members.append(place)
        else:
            found.readers.update(dict.fromkeys(others))
    return found


def _is_demanded(reader: Node) -> bool:
    """Return whether a reader is demanded, other than by an event or a write that waits for a value."""
    return reader.live and not isinstance(getattr(reader.fn, "__self__", None), Demand)


def _led_to(coordinator: ChildSet, above: list[Document]) -> Iterator[tuple[PieceInstance, list[Document]]]:
    """Yield the descendants below a coordinator, each with the documents of the keys and rows that lead to it."""
    for row in coordinator.rows.values():
        if row.child is not None and row.result is not None:
            rows = [*above, coordinator.node.outputs[0], row.result.document]
            yield row.child, rows
            for each in row.child.coordinators.values():
                yield from _led_to(each, rows)


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

    def restore_reads(self, instance: PieceInstance, found: PieceReads) -> None:
        """Recreate the read members of a piece that was stopped, and invalidate the other readers."""
        if found.kept:
            self.note_use(instance)
        for reader, rows in found.rows.items():
            self._core.scheduler.add_reads(reader, rows)
        for view, member in found.members:
            view.handle(member)
        invalidate_readers(self._core, found.readers)

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
