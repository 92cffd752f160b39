"""What plain writes have to say: what they changed, and what they repeated of pending layers.

Those may fall, and what was repeated must not fall with them. Looks at values and places only; knows no layer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from headwater.data.diff import diff
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, Value, lookup

SAYS_ALL = frozenset({"replace", "add"})
"""Kinds after which everything at a place is what they say."""
SAYS_IT = SAYS_ALL | {"remove"}
"""The same, with that nothing is there."""


def difference(
    before: MaybeValue,
    after: MaybeValue,
    written: Iterable[tuple[Path, bool, Iterable[Path]]],
    has_read: Callable[[Path], bool],
) -> tuple[tuple[Patch, ...], list[Path]]:
    """The patches, and the places where the writes repeat that nothing is there, which no patch can say.

    Of each write: its place, outside arrays; whether a layer had written there or above; if none had, where below.
    C1: an array of which the commit says no read is said as a whole: nothing else would keep a difference to it from
    being applied to another one.
    """
    repeated = {at: None for path, is_repeated, below in written for at in ((path,) if is_repeated else below)}
    if () in repeated and after is not ABSENT:
        return (Patch("add", (), after),), []  # Nothing beside it has to be said.
    patches = diff(before, after, has_read)
    if not repeated:
        return patches, []
    told = {patch.path for patch in patches if patch.kind in SAYS_ALL}
    again: dict[Path, Value] = {}
    for at in sorted(repeated, key=len):
        value = lookup(after, at)
        if value is not ABSENT and not is_within(at, told) and not is_within(at, again):
            again[at] = value
    kept = [patch for patch in patches if not is_within(patch.path, again)]
    kept += [Patch("add", at, value) for at, value in again.items()]
    leaning = [
        at for at in repeated if lookup(after, at) is ABSENT and not is_within(at, told) and not is_within(at, again)
    ]
    return tuple(kept), leaning


def is_within(path: Path, places: Container[Path]) -> bool:
    """Whether a path is one of these places, which are found by hash, or below one."""
    return any(path[:length] in places for length in range(len(path) + 1))
