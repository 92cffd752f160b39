"""Watches a scheduler from outside: every notification of the feed against the naive definition of its concern.

It hears each notification before and after the scheduler does, compares every read of every node with the change, and
keeps why each node ought to be invalid. `problems` says where the scheduler differs. Changes nothing.
"""

from __future__ import annotations

from typing import cast

from headwater.data.address import Depth, DocKey
from headwater.data.path import Path
from headwater.data.reader_trie import Spot, shape_differs
from headwater.data.value import lookup, same
from headwater.replica import Changed, Document, Kind, Layer, Notification, Replica, TierEntry
from headwater.scheduler import CLEAN, INVALID, Node
from headwater.testing.scheduler.kit import World

Place = tuple[DocKey, Path]


def concerns(spot: Spot, change: Changed) -> bool:
    """Whether a reader of the spot would get another value now."""
    if spot.document is not change.document:
        return False
    if not change.known_before:
        return True
    was, now = lookup(change.before, spot.path), lookup(change.after, spot.path)
    return shape_differs(was, now) if spot.depth is Depth.SHAPE else not same(was, now)


def _is_replaced(node: Node, notification: Notification) -> bool:
    """Whether another writer changed the result of a clean node, or removed one that its last run found in place."""
    if isinstance(notification.source, Node) or notification.kind is Kind.COMMIT or node.error is not None:
        return False
    documents = {change.document for change in notification.changes}
    if not node.wrote:
        return not documents.isdisjoint(node.outputs)
    return notification.kind is not Kind.REVERT and node.returns and node.outputs[0] in documents


class Watcher:
    """Everything that happens to the nodes of one world."""

    def __init__(self, replica: Replica) -> None:
        self.world: World | None = None
        self.problems: list[str] = []
        self.causes: dict[Node, dict[Place, None]] = {}  # since its last completed run
        self.rejections: dict[Node, int] = {}  # since its last completed run
        self.rejected = 0  # commits of nodes that did not land
        self.completed: list[tuple[Node, frozenset[Place], Layer | TierEntry | None]] = []
        self.unfounded: list[str] = []  # runs after the first that nothing called for
        self._seen: dict[Node, int] = {}
        replica.feed.subscribe(self._before)

    @classmethod
    def world_of(cls, replica: Replica | None = None, **options: object) -> tuple[World, Watcher]:
        """A world that is watched."""
        replica = replica or Replica()
        watcher = cls(replica)
        world = World(replica=replica, **options)  # type: ignore[arg-type]
        watcher.join(world)
        return world, watcher

    def join(self, world: World) -> None:
        self.world = world
        world.replica.feed.subscribe(self._after)
        world.scheduler.faults.subscribe(self._failed)
        world.scheduler.introspection.on_ran(self._ran)
        world.replica.on_rejected(self._rejected)
        world.replica.on_overwritten(self._overwritten)

    # ---- around the scheduler ------------------------------------------------------------------------

    def _nodes(self) -> list[Node]:
        return [] if self.world is None else self.world.nodes()

    def _before(self, notification: Notification) -> None:
        self._seen = {node: node.status for node in self._nodes()}

    def _after(self, notification: Notification) -> None:
        for node in self._nodes():
            was = self._seen.get(node, node.status)
            called = () if notification.source is node else self._called(node, notification)
            is_replaced = was == CLEAN and _is_replaced(node, notification)
            should = INVALID if (called or is_replaced) and was == CLEAN else was
            if node.status != should:
                self.problems.append(f"{node!r} had status {was}, should have {should} after {notification!r}")
            for spot in called:
                if node.causes is None or spot not in node.causes:
                    self.problems.append(f"{node!r} is not told that {spot!r} changed")
            self._note(node, called)
            if is_replaced:
                self.causes[node][node.outputs[0].key, ()] = None

    def _called(self, node: Node, notification: Notification) -> tuple[Spot, ...]:
        """The spots of a node that a notification concerns."""
        spots = [spot for spot in node.reads if spot is not None and node in spot.readers]
        return tuple(spot for spot in spots if any(concerns(spot, change) for change in notification.changes))

    def _failed(self, notification: Notification) -> None:
        for node in self._nodes():
            if node is not notification.source:
                self._note(node, self._called(node, notification))

    def _note(self, node: Node, spots: tuple[Spot, ...]) -> None:
        known = self.causes.setdefault(node, {})
        for spot in spots:
            known[cast(Document, spot.document).key, spot.path] = None

    def _overwritten(self, document: Document, *_: object) -> None:
        """Another session wrote something else to the output of a node, under the result of the node."""
        for node in document.writers:
            if isinstance(node, Node):
                self.causes.setdefault(node, {})[document.key, ()] = None

    def _rejected(self, layer: Layer, rejection: object) -> None:
        if isinstance(layer.source, Node):
            self.rejected += 1
            self.rejections[layer.source] = self.rejections.get(layer.source, 0) + 1

    # ---- runs ----------------------------------------------------------------------------------------

    def _ran(self, node: Node, made: Layer | TierEntry | None) -> None:
        causes = frozenset(self.causes.pop(node, {}))
        rejected = self.rejections.pop(node, 0)
        if node.runs > 1 and not causes and not rejected and not node.failures:
            self.unfounded.append(f"{node!r} ran again for nothing")
        self.completed.append((node, causes, made))
