"""Waves: computations of one pass that travel together, and the reads that need not travel with them.

A read that lies inside an earlier plain write of the same frame saw exactly that write: nothing can come between two
commits of one frame. Such a read is not sent; the commit says instead that it stands on the other (C4), which is
all that is left to check.
"""

from __future__ import annotations

import msgspec

from headwater.data.patch import Patch
from headwater.data.path import Path, starts_with
from headwater.data.value import size_of
from headwater.protocol.commit import Commit, Read
from headwater.replica.transaction import PLAIN, ranges


def thinned(frame: list[Commit]) -> tuple[Commit, ...]:
    """The same commits without the reads that the frame itself answers."""
    if len(frame) < 2:
        return tuple(frame)
    sent: list[Commit] = []
    for place, commit in enumerate(frame):
        kept: list[Read] = []
        after: set[int] = set()
        for read in commit.reads:
            writer = _answered_by(frame[:place], read)
            if writer is None:
                kept.append(read)
            else:
                after.add(writer)
        sent.append(
            msgspec.structs.replace(commit, reads=tuple(kept), after=ranges(sorted(after))) if after else commit
        )
    return tuple(sent)


def size_of_commit(commit: Commit) -> int:
    """About how many bytes a commit is on the wire."""
    size = 64
    for read in commit.reads:
        size += 40 + len(read.doc.id) + _size_of_path(read.path)
    for doc, path in commit.provenance.causes:
        size += 16 + len(doc.id) + _size_of_path(path)
    for operation in commit.operations:
        size += 32 + len(operation.doc.id)
        for patch in operation.patches:
            size += 16 + _size_of_path(patch.path) + size_of(patch.arg)
    for event in commit.events:
        size += 64 + size_of(event.payload)
    for record in commit.records:
        size += 64 + size_of(record.payload)
    return size


def _size_of_path(path: Path) -> int:
    return sum(4 + len(step) if isinstance(step, str) else 8 for step in path)


def _answered_by(earlier: list[Commit], read: Read) -> int | None:
    """The commit whose plain write is all that the read saw, if there is one."""
    for commit in reversed(earlier):
        patches = [patch for op in commit.operations if op.doc == read.doc for patch in op.patches]
        overlapping = [patch for patch in patches if _overlaps(patch, read)]
        if overlapping:
            last = overlapping[-1]
            inside = last.kind in PLAIN and starts_with(read.path, last.path)
            seen = any(first <= commit.local_seq <= end for first, end in read.layers)  # its view stood on it
            return commit.local_seq if inside and seen else None
    return None


def _overlaps(patch: Patch, read: Read) -> bool:
    """Over-approximated: an intent on an array reaches everything in it, a write everything below and above."""
    return starts_with(read.path, patch.path) or starts_with(patch.path, read.path)
