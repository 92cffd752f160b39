"""Persistence: restoring nodes without a run, from the reports of `run_reporter`. Upholds I7.

`install` restores a node as clean from an observation; `reconnect` restores the reads of a node that has to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.data.address import Depth
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.value import lookup, same
from headwater.protocol.commit import Read
from headwater.replica.document import NOT_HERE, Document
from headwater.scheduler.graph.graph import Graph
from headwater.scheduler.node import AFRESH, CLEAN, INVALID, Node


class Held(NamedTuple):
    """A read of another space that is known to hold there at a seq of that space."""

    document: Document
    path: Path
    depth: Depth
    seq: int


def install(graph: Graph, node: Node, reads: Sequence[Read], seq: int, elsewhere: Sequence[Held] = ()) -> bool:
    """Restore a node as if it had just run: clean, and subscribed to the reads of its last run, as of a seq.

    False: a value that it read was written here since then, or has a pending write; the node is unchanged then. A
    document that is not here is fetched, and its arrival tells whether it was written after that seq. Each space has
    its own seq.
    """
    spots: dict[Spot, None] = {}
    own = [Held(node.home.documents.of(read.doc), read.path, read.depth, seq) for read in reads]
    for document, path, depth, held in (*own, *elsewhere):
        if _is_written(document, path):
            return False
        if document.value is not NOT_HERE and document.written > held:
            return False
        if document in node.outputs:
            continue  # The result of the node is listed with its reads, and is not one of them.
        spots[graph.canonical(Spot(document, path, depth))] = None
    # I7: the node is notified of later changes there, and not of changes that it has seen.
    node.elsewhere = {each.document.home: each.seq for each in elsewhere} or None
    # fault resume.not_subscribed: graph.apply_read_delta(node, [None])
    graph.apply_read_delta(node, [*spots, None])
    node.expect = AFRESH  # No run here was ordered by these edges: its next run checks each read.
    node.status, node.causes, node.as_of = CLEAN, None, seq
    return True


def reconnect(graph: Graph, node: Node, reads: Sequence[Read]) -> None:
    """Restore the reads of a node that has to run, so that the nodes above it are demanded until then."""
    documents = [(node.home.documents.of(read.doc), read) for read in reads]
    spots = [Spot(document, read.path, read.depth) for document, read in documents if document not in node.outputs]
    # fault resume.not_subscribed: graph.apply_read_delta(node, [None])
    graph.apply_read_delta(node, [*dict.fromkeys(map(graph.canonical, spots)), None])
    node.expect = AFRESH
    node.status = INVALID


def _is_written(document: Document, path: Path) -> bool:
    """True if a commit or a result of this runtime that is not confirmed yet wrote to a place."""
    entry = document.entry
    if entry is not None:
        confirmed = document.confirmed
        return confirmed is NOT_HERE or not same(lookup(confirmed, path), lookup(entry.value, path))
    if not document.layers:
        return False
    home = document.home
    return bool(home.pending.under(document, path, home.next_local_seq))
