"""Ways: how far a change has come from session to session, and which of several is the longest.

Owns how hops are counted at a crossing (I6): what is authored has gone nowhere, and what a derived commit changes has
gone one step further than what made that commit. Whoever merges changes keeps the longest way, so that a cycle looks
no shorter than it is. Decides nothing about what has come too far; the scheduler does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.data.address import DocKey
from headwater.data.value import MAX_INT
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import DocChange, Own, Patched, Way

NAMED_FROM_HOPS: Final = 6
"""Hops from which on a change says who wrote it: most never come that far, and names cost bytes."""

AUTHORED: Final = Way(0)
"""The way of what nobody derived."""


class Ways(dict[DocKey, Way]):
    """How changes of others came, for each document the longest way. One that nobody knows is left out."""


def make_patched(operation: Operation, seq: int, commit: Commit, session: str) -> Patched:
    """What others are told of an operation of a session's commit."""
    provenance = commit.provenance
    way: Way | None = None
    if provenance.derived:
        hops = min(provenance.hops + 1, MAX_INT)
        way = Way(hops, provenance.node, session) if hops >= NAMED_FROM_HOPS else Way(hops)
    return Patched(operation.doc, seq, operation.patches, way)


def longest_hops(changes: Iterable[DocChange]) -> Ways:
    """How these came."""
    ways = Ways()
    for change in changes:
        way = hops_of_change(change)
        if way is not None and (change.doc not in ways or way.hops > ways[change.doc].hops):
            ways[change.doc] = way
    return ways


def hops_of_change(change: DocChange) -> Way | None:
    """How one change came. None: it is this session's own, or nobody knows."""
    if isinstance(change, Patched):
        return change.way or AUTHORED
    return None if isinstance(change, Own) else change.way
