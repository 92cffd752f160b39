"""The registry: all nodes. Owns identity, registration order and the links between parents and children.

Registration costs index inserts: no value is read, no node runs and no document is fetched (I2). Removal leaves nothing
behind. The registry decides nothing about running.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.data.path import Path
from headwater.data.value import MaybeValue
from headwater.errors import AuthoringError
from headwater.replica.document import Document
from headwater.replica.replica import Replica
from headwater.scheduler.node import Node, NodeKind


@dataclass(slots=True, kw_only=True)  # Not frozen: freezing would make a registration cost a third more.
class NodeSpec:
    """The description of a node to register. Everything about a node's writes is fixed here and never changes (P4)."""

    id: str
    kind: NodeKind
    fn: Callable[[], object]
    home: Replica
    outputs: tuple[Document, ...] = ()
    returns: bool = True
    encode: Callable[[object, MaybeValue], MaybeValue] | None = None
    envelope: tuple[tuple[Document, Path], ...] = ()
    declared: tuple[Document, ...] = ()
    parent: Node | None = None
    transient: tuple[type[Exception], ...] = ()
    debounce_ms: float = 0
    throttle_ms: float = 0
    no_auto_debounce: bool = False
    fingerprint: str = ""  # of the code behind `fn`, if known
    owns_outputs: bool = False  # no other node writes any of its two outputs: they are one result
    apart: Callable[[], object] | None = None  # `Node.apart`
    is_kept: bool = False  # its parent is its keeper (`Node.keeper`)


class Registry:
    """All nodes, by id."""

    __slots__ = ("_nodes", "_order")

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self._nodes.values()))

    def get(self, id: str) -> Node | None:
        return self._nodes.get(id)

    def add(self, spec: NodeSpec) -> Node:
        """Return the record of a new node, dormant and never run."""
        _check(spec)
        if spec.id in self._nodes:
            raise AuthoringError(f"there is a node {spec.id!r} already: remove it first, or choose another id")
        for document in spec.outputs:
            if document.writers:
                _check_result(spec, document)
        for document, _ in spec.envelope:
            if document.writers:
                _check_result(spec, document)
        self._order += 1
        parent = spec.parent
        if parent is not None and parent.removed:
            raise AuthoringError(f"{spec.id!r} would be the child of {parent.id!r}, which was removed")
        node = Node(
            spec.id,
            spec.kind,
            spec.fn,
            self._order,
            spec.home,
            spec.outputs,
            spec.returns and bool(spec.outputs),
            spec.encode,
            spec.envelope,
            spec.declared,
            parent,
            0 if parent is None else parent.rank + 1,
            spec.transient,
        )
        node.fingerprint = spec.fingerprint
        node.owns_outputs = spec.owns_outputs
        node.apart = spec.apart
        node.keeper = parent if spec.is_kept else None
        # fault registry.children_before_parents: node.low = ((15 - min(node.rank, 15)) << 40) + node.order
        node.low = (min(node.rank, 15) << 40) + node.order
        self._nodes[spec.id] = node
        if parent is not None:
            if parent.children is None:
                parent.children = {}
            parent.children[node] = None
        return node

    def drop(self, node: Node) -> None:
        if self._nodes.get(node.id) is node:
            del self._nodes[node.id]
        node.removed = True
        if node.parent is not None and node.parent.children is not None:
            node.parent.children.pop(node, None)
            if not node.parent.children:
                node.parent.children = None
        node.children = node.kept = None
        node.causes = node.last_causes = None


def _check(spec: NodeSpec) -> None:
    if spec.debounce_ms or spec.throttle_ms:
        for name, ms in (("debounce", spec.debounce_ms), ("throttle", spec.throttle_ms)):
            if not 0 <= ms < math.inf:
                raise AuthoringError(f"{name} of {spec.id!r} is {ms:g} ms: write 0 or more")
    if spec.kind is NodeKind.EFFECT and (spec.outputs or spec.envelope):
        raise AuthoringError(f"effect {spec.id!r} writes: make it a computation, or post an event to a handler")
    if spec.kind is NodeKind.COMPUTATION and not spec.outputs:
        raise AuthoringError(f"computation {spec.id!r} has no output: say which document its result goes to")
    if spec.envelope and spec.kind is not NodeKind.MATERIALIZER:
        raise AuthoringError(f"{spec.kind.value} {spec.id!r} has an envelope: make it a materializer")
    if spec.kind is NodeKind.MATERIALIZER and not spec.envelope:
        raise AuthoringError(f"materializer {spec.id!r} has no envelope: say inside which documents it writes")
    for document in spec.outputs:
        if document.home is not spec.home:
            raise _of_another_space(spec, document)
    for document, _ in spec.envelope:
        if document.home is not spec.home:
            raise _of_another_space(spec, document)


def _of_another_space(spec: NodeSpec, document: Document) -> AuthoringError:
    return AuthoringError(f"{spec.id!r} writes {document!r} of another space: a run writes its own space only")


def _check_result(spec: NodeSpec, document: Document) -> None:
    """Raise `AuthoringError` if a document is the result of another node.

    A result has one writer: with two, the document would show the result of the node that ran last (I1).
    """
    for writer in document.writers:
        if isinstance(writer, Node) and writer.returns and writer.outputs[0] is document:
            raise AuthoringError(
                f"{spec.id!r} writes {document!r}, which is the result of {writer.id!r}: write somewhere else, or "
                "remove that one first"
            )
