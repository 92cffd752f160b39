"""The readers of one document: a trie of paths, with a spot at each place that is read.

A spot is one place at one depth, made once and shared by all its readers, so that two reads of it are compared by
identity. `match` finds the spots that a change concerns: it costs the depth of the change and the spots that it finds,
never the number of other spots. Readers are opaque objects here, and nothing is marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headwater.data.address import Depth, Link
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, Value, equal, same

__all__ = ["NO_READERS", "OBJECT", "Spot", "TrieNode", "detach", "match", "shape_differs"]


OBJECT: Final = "\0object"
"""A step that leads to a value in every object and nowhere else: its value differs when an object comes or goes."""
NO_READERS: Final[dict[object, None]] = {}
"""The readers of a spot without readers. Never written."""


class Spot:
    """A place in a document, read at one depth. In the trie as long as it has readers."""

    __slots__ = ("depth", "document", "path", "readers", "stamp", "twig")

    def __init__(self, document: object, path: Path, depth: Depth) -> None:
        self.document = document
        self.path = path
        self.depth = depth
        self.twig: TrieNode | None = None  # where it is in the trie
        self.readers = NO_READERS  # in the order in which they came; a table of its own from the first one on
        self.stamp = 0  # the number of the run that looked here last

    def __repr__(self) -> str:
        return f"<spot {self.document!r} {self.path} {self.depth.name.lower()}>"


class TrieNode:
    """One step of the trie: the spots here, and the way further down."""

    __slots__ = ("children", "deep", "parent", "shape", "step")

    def __init__(self, parent: TrieNode | None = None, step: str | int = "") -> None:
        self.parent = parent
        self.step = step
        self.children: dict[str | int, TrieNode] | None = None
        self.deep: Spot | None = None
        self.shape: Spot | None = None

    def find(self, path: Path, depth: Depth) -> Spot | None:
        """The spot that is read at a path below here, if one is."""
        twig = self
        for step in path:
            below = twig.children.get(step) if twig.children else None
            if below is None:
                return None
            twig = below
        return twig.deep if depth is Depth.DEEP else twig.shape

    def attach(self, spot: Spot) -> None:
        """Put a spot into the trie, whose root this is."""
        twig = self
        for step in spot.path:
            if twig.children is None:
                twig.children = {}
            below = twig.children.get(step)
            if below is None:
                below = twig.children[step] = TrieNode(twig, step)
            twig = below
        if spot.depth is Depth.DEEP:
            twig.deep = spot
        else:
            twig.shape = spot
        spot.twig = twig

    def spots(self) -> Iterator[Spot]:
        """Every spot at or below here, without recursion."""
        waiting = [self]
        while waiting:
            twig = waiting.pop()
            if twig.deep is not None:
                yield twig.deep
            if twig.shape is not None:
                yield twig.shape
            if twig.children:
                waiting.extend(reversed(twig.children.values()))

    def spots_below(self, path: Path) -> Iterator[Spot]:
        """Every spot at or below a path."""
        twig = self
        for step in path:
            below = twig.children.get(step) if twig.children else None
            if below is None:
                return
            twig = below
        yield from twig.spots()

    def is_empty(self) -> bool:
        return self.deep is None and self.shape is None and not self.children


def detach(spot: Spot) -> None:
    """Take a spot without readers out of its trie, with the steps that only led to it."""
    twig = spot.twig
    if twig is None:
        return
    spot.twig = None
    spot.readers = NO_READERS
    if twig.deep is spot:
        twig.deep = None
    elif twig.shape is spot:
        twig.shape = None
    while twig.is_empty() and twig.parent is not None:
        above = twig.parent
        if above.children is not None and above.children.get(twig.step) is twig:
            del above.children[twig.step]
        twig = above


def match(root: TrieNode, before: MaybeValue, after: MaybeValue, touched: Iterable[Path] | None) -> list[Spot]:
    """The spots whose value differs: the whole of it for a deep one, keys, length or kind for a shape.

    `touched` names places that cover every difference; None: unknown, so that everything read is compared. Which
    spots are found does not depend on it.
    """
    found: dict[Spot, None] = {}
    if touched is None:
        _below(root, before, after, found)
    else:
        for path in touched:
            _along(root, before, after, path, found)
    return list(found)


def _along(twig: TrieNode, before: MaybeValue, after: MaybeValue, path: Path, found: dict[Spot, None]) -> None:
    """Walk down one path: readers above its end see the difference, too; below its end everything is compared."""
    passed: list[tuple[TrieNode, bool]] = []
    at: TrieNode | None = twig
    around: tuple[TrieNode | None, MaybeValue, MaybeValue] = (None, ABSENT, ABSENT)
    for step in path:
        if before is after:
            return
        around = (at, before, after)
        was, now = _step(before, step), _step(after, step)
        if at is not None:
            passed.append((at, _kind_differs(before, after) or (was is ABSENT) is not (now is ABSENT)))
            at = at.children.get(step) if at.children else None
        before, after = was, now
    parent = around[0]
    if same(before, after) and not _is_moved(around[1], around[2], path):
        return  # Nothing differs here after all, so no reader above sees a difference because of this.
    for above, reshaped in passed:
        if above.deep is not None:
            found[above.deep] = None
        if above.shape is not None and (reshaped or (above is parent and _is_moved(around[1], around[2], path))):
            found[above.shape] = None
    if at is not None:
        _below(at, before, after, found)


def _is_moved(before: MaybeValue, after: MaybeValue, path: Path) -> bool:
    """Whether the key at the end of a path was removed from its object and added again, which makes it the last one.

    If several were, this is true of the last of them, and costs more than a look only for that.
    """
    # fault+ reader_trie.moved_key_ignored: return False
    if type(before) is not dict or type(after) is not dict or len(before) != len(after) or path[-1] not in after:
        return False
    last = next(reversed(after))
    return last != next(reversed(before)) or (last == path[-1] and _keys_differ(before, after))


def _below(twig: TrieNode, before: MaybeValue, after: MaybeValue, found: dict[Spot, None]) -> None:
    """Everything that is read at or below a place, compared."""
    waiting = [(twig, before, after)]
    while waiting:
        at, was, now = waiting.pop()
        if was is now:
            continue
        if at.deep is not None and not same(was, now):
            found[at.deep] = None
        if at.shape is not None and shape_differs(was, now):
            found[at.shape] = None
        if at.children:
            waiting.extend((below, _step(was, step), _step(now, step)) for step, below in at.children.items())


def _step(value: MaybeValue, step: str | int) -> MaybeValue:
    if type(value) is dict and type(step) is str:
        found = value.get(step, ABSENT)
        return True if found is ABSENT and step == OBJECT else found
    if type(value) is tuple and type(step) is int:
        return value[step] if 0 <= step < len(value) else ABSENT
    # I1: a reader below a link is shown its target, so that another link is another value.
    return value if type(value) is Link else ABSENT


def shape_differs(before: MaybeValue, after: MaybeValue) -> bool:
    """True if two values differ in kind, keys, order of keys or length.

    A leaf is its own shape.
    """
    if before is after:
        return False
    if type(before) is dict and type(after) is dict:
        return _keys_differ(before, after)
    if type(before) is tuple and type(after) is tuple:
        return len(before) != len(after)
    return not equal(before, after)


def _kind_differs(before: MaybeValue, after: MaybeValue) -> bool:
    """Whether one is an object or an array and the other is not. Costs nothing in the size of either."""
    return type(before) is not type(after)


def _keys_differ(before: dict[str, Value], after: dict[str, Value]) -> bool:
    return list(before) != list(after)
