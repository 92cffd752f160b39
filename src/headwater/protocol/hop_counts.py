"""Hop counts: how often a change went from session to session.

An authored change has 0 hops, and a change of a derived commit has one more than the cause of that commit (I6). A merge
of changes keeps the largest count, so that a cycle does not look shorter than it is. The scheduler decides how many
hops are too many.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.data.address import DocKey
from headwater.data.value import MAX_INT
from headwater.protocol.commit import Operation, Provenance
from headwater.protocol.messages import DocChange, Own, Patched, Way

AUTHORED: Final = Way(0)
"""The hops of an authored change."""


class Ways(dict[DocKey, Way]):
    """The hops of changes of other sessions, the largest count for each document. Unknown ones are left out."""


def make_patched(operation: Operation, seq: int, provenance: Provenance, session: str, named_hops: int) -> Patched:
    """Make the change that other sessions are sent for an operation of a session's commit or result.

    The change names its node and its session from `named_hops` hops on: most never come that far, and names cost bytes.
    """
    way: Way | None = None
    if provenance.derived:
        hops = min(provenance.hops + 1, MAX_INT)
        way = Way(hops, provenance.node, session) if hops >= named_hops else Way(hops)
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
    """Return the hops of one change. None: it is this session's own, or its hops are unknown."""
    if isinstance(change, Patched):
        return change.way or AUTHORED
    return None if isinstance(change, Own) else change.way
