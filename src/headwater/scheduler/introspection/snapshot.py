"""The graph at one moment, as records that can be written as JSON.

A record holds texts and numbers only, so that keeping a record keeps no node alive. Taking a snapshot reads no value,
loads nothing and moves no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, cast

from headwater.data.address import doc_text
from headwater.replica.document import Document
from headwater.scheduler.graph.edges import readers_of, writers_above, writers_of
from headwater.scheduler.node import STATUS, Gate, Node

__all__ = ["GateRecord", "GraphSnapshot", "NodeRecord", "ReadRecord", "record_of", "take"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """One place that a node reads."""

    address: str
    depth: str  # "deep" or "shape"
    writers: tuple[str, ...]  # the nodes with this declared output; empty: there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord:
    """The times that keep a node from running. Microseconds; moments are of the monotonic clock."""

    debounce_us: int
    throttle_us: int
    is_auto: bool
    eligible_at: int
    exhaustions: int
    waits_for: int  # the moment that the wake timer has; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node, in words. `number` rises with registration and is unique among the nodes of one scheduler."""

    id: str
    number: int
    kind: str
    status: str
    live: bool
    rooted: bool
    provisional: bool
    height: int
    rank: int
    parent: str | None
    outputs: tuple[str, ...]
    envelope: tuple[str, ...]
    declared: tuple[str, ...]
    reads: tuple[ReadRecord, ...]
    writers: tuple[str, ...]  # nodes whose outputs it reads
    readers: tuple[str, ...]  # nodes that read its outputs
    gate: GateRecord | None
    is_queued: bool
    is_suspended: bool
    is_loading: bool
    runs: int
    attempts: int
    error: str | None
    as_of: int  # it was resumed without a run, since its reads held at this seq; 0: it ran here, or never
    opaque: str  # why its code cannot be fingerprinted: it is never resumed as clean; empty: it can be


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSnapshot:
    """Some or all nodes of a scheduler, in order of registration."""

    nodes: tuple[NodeRecord, ...]

    def node(self, id: str) -> NodeRecord:
        """Return the record of a node; `KeyError` if it is not in this snapshot."""
        for record in self.nodes:
            if record.id == id:
                return record
        raise KeyError(id)

    def edges(self) -> tuple[tuple[str, str], ...]:
        """Return (writer, reader) for every pair of nodes of which one reads an output of the other."""
        return tuple((writer, record.id) for record in self.nodes for writer in record.writers)

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as plain JSON data."""
        return {"nodes": [_plain(asdict(record)) for record in self.nodes]}


def take(nodes: Iterable[Node], only: Callable[[Node], bool] | None = None) -> GraphSnapshot:
    """Take a snapshot of these nodes, or of those that a predicate chooses."""
    chosen = [node for node in nodes if only is None or only(node)]
    return GraphSnapshot(nodes=tuple(record_of(node) for node in sorted(chosen, key=lambda node: node.order)))


def record_of(node: Node) -> NodeRecord:
    """Return the record of a node."""
    return NodeRecord(
        id=node.id,
        number=node.order,
        kind=node.kind.value,
        status=STATUS[node.status],
        live=node.live,
        rooted=node.rooted,
        provisional=node.provisional,
        height=node.height,
        rank=node.rank,
        parent=None if node.parent is None else node.parent.id,
        outputs=tuple(doc_text(document.key) for document in node.outputs),
        envelope=tuple(doc_text(document.key, path) for document, path in node.envelope),
        declared=tuple(doc_text(document.key) for document in node.declared),
        reads=_reads(node),
        writers=_ids(writers_above(node)),
        readers=_ids(readers_of(node)),
        gate=None if node.gate is None else _gate(node.gate),
        is_queued=node.queued >= 0,
        is_suspended=node.suspended,
        is_loading=bool(node.loading),
        runs=node.runs,
        attempts=node.attempts,
        error=None if node.error is None else f"{type(node.error).__name__}: {node.error}",
        as_of=node.as_of,
        opaque=node.opaque,
    )


def _reads(node: Node) -> tuple[ReadRecord, ...]:
    records = []
    for spot in node.reads:
        if spot is not None:
            document = cast(Document, spot.document)
            writers = _ids(writer for writer in writers_of(document) if writer is not node)
            address = doc_text(document.key, spot.path)
            records.append(ReadRecord(address=address, depth=spot.depth.name.lower(), writers=writers))
    return tuple(records)


def _gate(gate: Gate) -> GateRecord:
    return GateRecord(
        debounce_us=gate.debounce_us,
        throttle_us=gate.throttle_us,
        is_auto=gate.is_auto,
        eligible_at=gate.eligible_at,
        exhaustions=gate.exhaustions,
        waits_for=gate.waits_for,
    )


def _ids(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the ids, each once: a node may read several spots of another."""
    return tuple(dict.fromkeys(node.id for node in nodes))


def _plain(value: Any) -> Any:
    """Convert tuples to lists, which is their form in JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
