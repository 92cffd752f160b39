"""The write index of one document: for every path, the seq that wrote it last.

It finds the latest accepted write that overlaps a read, at a cost of the depth of the path, however long the history.
Upholds C1 and C2 together with `data.patch`, whose touches it records.

A node keeps, for three kinds of write (at the path, at or below it, to its key set), the latest seq with its session,
and the latest seq of any *other* session. Two are enough to leave out one session's own writes, as a pending read
requires (C3): the rest of that session's commits are looked up by the caller.

Past its size limit the older half of all nodes is merged into the `floor` of their parents. Reads below a merged child
then meet every write up to the floor: more conflicts than there are, never fewer (C2).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.data.address import Depth
from headwater.data.patch import Touch
from headwater.data.path import Path

NO_SESSION_ID: Final = 0


class IndexNode:
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
        self.children: dict[str | int, IndexNode] | None = None

    def wrote_keys(self, seq: int, by: int) -> None:
        if by != self.keys_by:
            self.keys_other = self.keys_seq
            self.keys_by = by
        self.keys_seq = seq


class WriteIndex:
    """The write index of one document on one branch. Complete for every write after `since`."""

    __slots__ = ("_limit", "nodes", "root", "since", "stale")

    def __init__(self, since: int, limit: int) -> None:
        self.root = IndexNode()
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
                    child = children[step] = IndexNode()
                    self.nodes += 1
                    # A node that was merged away may have been this very child.
                    child.floor = child.at_seq = child.at_other = node.floor
                    child.below_seq = child.below_other = node.floor
                node = child
                if by != node.below_by:
                    node.below_other = node.below_seq
                    node.below_by = by
                node.below_seq = seq
            if by != node.at_by:
                node.at_other = node.at_seq
                node.at_by = by
            node.at_seq = seq
            if keyset:
                parent.wrote_keys(seq, by)
        self.stale += len(touched) or 1
        if self.nodes > self._limit:
            self._coarsen()

    def latest(self, path: Path, depth: Depth, leave_out: int = NO_SESSION_ID) -> int:
        """The seq of the latest overlapping write that is not by `leave_out`; 0 if there is none."""
        node = self.root
        latest = node.at_other if node.at_by == leave_out else node.at_seq
        for step in path:
            children = node.children
            child = children.get(step) if children is not None else None
            if child is None:
                # fault marks.writes_above_ignored: return node.floor
                return max(latest, node.floor)
            node = child
            at = node.at_other if node.at_by == leave_out else node.at_seq
            # fault marks.writes_above_ignored: if True:
            if at > latest:
                latest = at
        if depth == Depth.DEEP:
            below = node.below_other if node.below_by == leave_out else node.below_seq
            return max(latest, below)
        keys = node.keys_other if node.keys_by == leave_out else node.keys_seq
        # fault marks.key_sets_ignored: return latest
        return max(latest, keys)

    def writers(self, path: Path) -> set[int]:
        """Every session whose writes `latest` could leave out at this path."""
        node: IndexNode | None = self.root
        found = {self.root.at_by}
        for step in path:
            node = node.children.get(step) if node is not None and node.children is not None else None
            if node is None:
                return found
            found.add(node.at_by)
        if node is not None:
            found |= {node.below_by, node.keys_by}
        return found

    def newest(self) -> int:
        """The highest seq that is named anywhere."""
        newest = 0
        stack = [self.root]
        while stack:
            node = stack.pop()
            newest = max(newest, node.at_seq, node.at_other, node.below_seq, node.below_other, node.keys_seq)
            newest = max(newest, node.keys_other, node.floor)
            if node.children:
                stack.extend(node.children.values())
        return newest

    def _coarsen(self) -> None:
        """Merge the older half of all paths into their parents. Halving makes it cheap over many writes."""
        # C2: a merged path counts as written up to its latest write: more conflicts than there are, never fewer.
        seqs: list[int] = []
        stack = [self.root]
        while stack:
            node = stack.pop()
            seqs.append(node.below_seq)
            if node.children:
                stack.extend(node.children.values())
        seqs.sort()
        horizon = seqs[len(seqs) // 2]
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node.children:
                for step in [step for step, child in node.children.items() if child.below_seq <= horizon]:
                    merged = node.children.pop(step)
                    node.floor = max(node.floor, merged.below_seq, merged.floor)
                stack.extend(node.children.values())
        self.nodes = _count(self.root)

    # ---- on disk ---------------------------------------------------------------------------------

    def encode(self) -> bytes:
        self.stale = 0
        return msgspec.msgpack.encode(_packed(self.root))

    @classmethod
    def decode(cls, body: bytes, limit: int) -> WriteIndex:
        marks = cls(0, limit)
        marks.root = _unpacked(_decoder.decode(body))
        marks.nodes = _count(marks.root)
        return marks


def _count(root: IndexNode) -> int:
    total = 0
    stack = [root]
    while stack:
        node = stack.pop()
        total += 1
        if node.children:
            stack.extend(node.children.values())
    return total


# Depth is bounded by the depth of values (`ValueLimits.depth`), so recursion is, too.


def _packed(node: IndexNode) -> list[Any]:
    return [
        (node.at_seq, node.at_by, node.at_other),
        (node.below_seq, node.below_by, node.below_other),
        (node.keys_seq, node.keys_by, node.keys_other),
        node.floor,
        [(step, _packed(child)) for step, child in (node.children or {}).items()],
    ]


class _Packed(msgspec.Struct, array_like=True):
    """A node as it is stored, so that a damaged one is refused and not believed."""

    at: tuple[int, int, int]
    below: tuple[int, int, int]
    keys: tuple[int, int, int]
    floor: int
    children: list[tuple[str | int, _Packed]] = []


_decoder = msgspec.msgpack.Decoder(_Packed)


def _unpacked(packed: _Packed) -> IndexNode:
    node = IndexNode()
    node.at_seq, node.at_by, node.at_other = packed.at
    node.below_seq, node.below_by, node.below_other = packed.below
    node.keys_seq, node.keys_by, node.keys_other = packed.keys
    node.floor = packed.floor
    if packed.children:
        node.children = {step: _unpacked(child) for step, child in packed.children}
    return node
