"""Minimal patches of plain writes: the values that they changed, and the values of pending layers that they repeat.

A pending layer may be rejected, and a repeated value must not be lost with it, so the commit contains it again. This
module sees values and paths only, no layers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable

from headwater.data.diff import diff_at
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, lookup

SAYS_ALL = frozenset({"replace", "add"})
"""Patch kinds that set everything at their path, whatever was there."""
SAYS_IT = SAYS_ALL | {"remove"}
"""The same, and the kind after which the path is absent."""


def difference(
    before: MaybeValue,
    after: MaybeValue,
    written: Collection[tuple[Path, bool, Iterable[Path]]],
    has_read: Callable[[Path], bool],
) -> tuple[Patch, ...]:
    """Return the patches that make `after` of `before`, and those that repeat a value or an absence.

    The two differ only at or below the paths of `written`.
    Each entry of `written` has the path of a write, outside arrays; whether a layer wrote there or above; and, if no
    layer did, the paths below where layers wrote. C1: an array that the commit does not read is written as a whole,
    since without a read no check keeps a difference to this array from being applied to another one.
    """
    repeated = {at: None for path, is_repeated, below in written for at in ((path,) if is_repeated else below)}
    if () in repeated and after is not ABSENT:
        return (Patch("add", (), after),)  # The patch contains the whole document.
    patches = diff_at(before, after, [path for path, _, _ in written], has_read)
    if not repeated:
        return patches
    told = {patch.path for patch in patches if patch.kind in SAYS_IT}
    again: dict[Path, Patch] = {}
    for at in sorted(repeated, key=len):
        value = lookup(after, at)
        if not is_within(at, told) and not is_within(at, again):
            again[at] = Patch("remove", at) if value is ABSENT else Patch("add", at, value)
    return (*(patch for patch in patches if not is_within(patch.path, again)), *again.values())


def is_within(path: Path, places: Container[Path]) -> bool:
    """Return True if `path` is one of `places` or below one. Each prefix is looked up by hash."""
    return any(path[:length] in places for length in range(len(path) + 1))
