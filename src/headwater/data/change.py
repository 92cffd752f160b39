"""When a write matters to a read.

`overlaps` compares a touch with a deep or a shape read; `changed_touches` is the naive definition of the differences
between two values. Invariant (C2): overlap may be over-approximated, never under-approximated; disjoint keys of one
container do not collide.
"""

from __future__ import annotations

from headwater.data.address import Depth
from headwater.data.patch_kinds import Touch
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue, equal

__all__ = ["changed_touches", "overlaps"]


def overlaps(touch: Touch, path: Path, depth: Depth) -> bool:
    """Whether a read of `path` could see the touch.

    A deep read meets touches at, above and below its path; a shape read those at or above it, and the
    appearance or vanishing of its own keys or elements.
    """
    # C2: at, above or below; for a shape at or above, or a changed key set. Never less than the truth.
    written, keyset = touch
    if len(written) <= len(path):
        return path[: len(written)] == written
    if depth == Depth.DEEP:
        return written[: len(path)] == path
    return keyset and written[:-1] == path


def changed_touches(before: MaybeValue, after: MaybeValue) -> tuple[Touch, ...]:
    """The smallest true differences of two values, elements compared by index. For verifiers: it is slow."""
    found: list[Touch] = []
    if (before is ABSENT) != (after is ABSENT):
        found.append(Touch((), True))
    else:
        _compare(before, after, (), found)
    return tuple(found)


def _compare(before: MaybeValue, after: MaybeValue, path: Path, found: list[Touch]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            if key in before and key in after:
                _compare(before[key], after[key], (*path, key), found)
            else:
                found.append(Touch((*path, key), True))
    elif isinstance(before, tuple) and isinstance(after, tuple):
        for index in range(max(len(before), len(after))):
            if index < len(before) and index < len(after):
                _compare(before[index], after[index], (*path, index), found)
            else:
                found.append(Touch((*path, index), True))
    elif not equal(before, after):
        found.append(Touch(path, False))
