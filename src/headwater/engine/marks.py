"""The write index of one document: for every path, which seq wrote it last.

It answers one question in the depth of the path, however long the history: which is the latest accepted write
that overlaps this read? Upholds C1 and C2 together with `data.patch`, whose touches it records.

A node keeps, for three kinds of write (at the path, at or below it, to its key set), the latest seq with its
session, and the latest seq of any *other* session. Two are enough to leave out one session's own writes,
which is what a pending read needs (C3): the rest of that session's commits are looked up by the caller.

Past its size limit the oldest children of a node are merged into the node's `floor`. Reads below a merged
child then meet every write up to the floor: more conflicts than there are, never fewer (C2).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.data.address import Depth
from headwater.data.patch import Touch
from headwater.data.path import Path

NOBODY: Final = 0


class Mark:
    """One path. Every pair (`x_seq`, `x_by`) is the latest write of its kind, `x_other` the latest not by `x_by`."""

    __slots__ = (
        "at_by",
        "at_other",
        "at_seq",
        "below_by",
        "below_other",
        "below_seq",
        "children",
        "floor",
        "keys_by",
        "keys_other",
        "keys_seq",
    )

    def __init__(self) -> None:
        self.at_seq = self.at_by = self.at_other = 0
        self.below_seq = self.below_by = self.below_other = 0
        self.keys_seq = self.keys_by = self.keys_other = 0
        self.floor = 0  # latest write below this path whose node was merged away
        self.children: dict[str | int, Mark] | None = None

    def wrote_at(self, seq: int, by: int) -> None:
        if by != self.at_by:
            self.at_other = self.at_seq
            self.at_by = by
        self.at_seq = seq

    def wrote_keys(self, seq: int, by: int) -> None:
        if by != self.keys_by:
            self.keys_other = self.keys_seq
            self.keys_by = by
        self.keys_seq = seq


class Marks:
    """The write index of one document on one branch. Complete for every write after `since`."""

    __slots__ = ("_limit", "nodes", "root", "since", "stale")

    def __init__(self, since: int, limit: int) -> None:
        self.root = Mark()
        self.since = since
        self.nodes = 1
        self.stale = 0  # touches since the index was last stored
        self._limit = limit

    def record(self, touched: tuple[Touch, ...], seq: int, by: int) -> None:
        """Note an accepted write. Seqs arrive in rising order."""
        for touch in touched:
            path, keyset = touch
            node = parent = self.root
            if by != node.below_by:
                node.below_other = node.below_seq
                node.below_by = by
            node.below_seq = seq
            for step in path:
                parent = node
                children = node.children
                if children is None:
                    children = node.children = {}
                child = children.get(step)
                if child is None:
                    child = children[step] = Mark()
                    self.nodes += 1
                    # What was merged away may have been this very child.
                    child.floor = child.at_seq = child.at_other = node.floor
                    child.below_seq = child.below_other = node.floor
                node = child
                if by != node.below_by:
                    node.below_other = node.below_seq
                    node.below_by = by
                node.below_seq = seq
            node.wrote_at(seq, by)
            if keyset:
                parent.wrote_keys(seq, by)
        self.stale += len(touched) or 1
        if self.nodes > self._limit:
            self._coarsen()

    def latest(self, path: Path, depth: Depth, leave_out: int = NOBODY) -> int:
        """The seq of the latest overlapping write that is not by `leave_out`; 0 if there is none."""
        node = self.root
        latest = node.at_other if node.at_by == leave_out else node.at_seq
        for step in path:
            children = node.children
            child = children.get(step) if children is not None else None
            if child is None:
                return max(latest, node.floor)
            node = child
            at = node.at_other if node.at_by == leave_out else node.at_seq
            if at > latest:
                latest = at
        if depth == Depth.DEEP:
            below = node.below_other if node.below_by == leave_out else node.below_seq
            return max(latest, below)
        keys = node.keys_other if node.keys_by == leave_out else node.keys_seq
        return max(latest, keys)

    def _coarsen(self) -> None:
        """Merge the older half of the children of the widest nodes into their parent's floor."""
        # C2: what is merged counts as written up to its latest write: more conflicts than there are, never fewer.
        widest = self.root
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node.children:
                if len(node.children) > len(widest.children or ()):
                    widest = node
                stack.extend(node.children.values())
        children = widest.children
        if not children:
            return
        by_age = sorted(children, key=lambda step: children[step].below_seq)
        for step in by_age[: (len(by_age) + 1) // 2]:
            merged = children.pop(step)
            widest.floor = max(widest.floor, merged.below_seq, merged.floor)
        self.nodes = _count(self.root)

    # ---- on disk ---------------------------------------------------------------------------------

    def encode(self) -> bytes:
        self.stale = 0
        return msgspec.msgpack.encode(_packed(self.root))

    @classmethod
    def decode(cls, body: bytes, limit: int) -> Marks:
        marks = cls(0, limit)
        marks.root = _unpacked(msgspec.msgpack.decode(body))
        marks.nodes = _count(marks.root)
        return marks


def _count(root: Mark) -> int:
    total = 0
    stack = [root]
    while stack:
        node = stack.pop()
        total += 1
        if node.children:
            stack.extend(node.children.values())
    return total


# Depth is bounded by the depth of values (`ValueLimits.depth`), so recursion is, too.


def _packed(node: Mark) -> list[Any]:
    packed: list[Any] = [
        *(node.at_seq, node.at_by, node.at_other),
        *(node.below_seq, node.below_by, node.below_other),
        *(node.keys_seq, node.keys_by, node.keys_other),
        node.floor,
    ]
    if node.children:
        packed.append([[step, _packed(child)] for step, child in node.children.items()])
    return packed


def _unpacked(packed: list[Any]) -> Mark:
    node = Mark()
    node.at_seq, node.at_by, node.at_other = packed[0:3]
    node.below_seq, node.below_by, node.below_other = packed[3:6]
    node.keys_seq, node.keys_by, node.keys_other = packed[6:9]
    node.floor = packed[9]
    if len(packed) > 10:
        node.children = {step: _unpacked(child) for step, child in packed[10]}
    return node
