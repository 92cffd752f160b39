"""`ResumeState`: the stored observations of the nodes of one piece, while the piece is resumed here.

`Resume` keeps it for each piece without a parent; the children of the piece use it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.protocol.observations import ForeignRead, Observed
from headwater.replica.document import Document
from headwater.runtime.pieces.identity import Key, NodeIdentity
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.pieces.instance import PieceInstance


@dataclass(slots=True, eq=False)
class ForeignAnswers:
    """The answers of other spaces about the reads of one piece's nodes."""

    held: dict[ForeignRead, int] = field(default_factory=dict)  # reads that hold, each as of a seq of its space
    written: set[ForeignRead] = field(default_factory=set)  # reads that do not hold
    documents: list[Document] = field(default_factory=list)  # documents that were read, until their readers are back
    instances: list[PieceInstance] = field(default_factory=list)  # pieces of these documents, kept as long as the list

    def add(self, more: ForeignAnswers) -> None:
        """Add the answers of spaces that were asked again."""
        self.held.update(more.held)
        self.written |= more.written
        self.documents += more.documents
        self.instances = [*dict.fromkeys([*self.instances, *more.instances])]


@dataclass(slots=True, eq=False)
class RegisteredNode:
    """A node of a piece that was registered here and may be resumed."""

    instance: PieceInstance
    node: Node
    identity: NodeIdentity
    tries: int = 0  # further queries for its observation, because its reads were written meanwhile


@dataclass(slots=True, eq=False)
class LookupBatch:
    """Nodes of a sleeping piece whose observations are queried together."""

    document: Document
    held: list[RegisteredNode] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ResumeState:
    """Resuming one piece: the stored observations of its nodes, and the nodes that wait for them."""

    document: Document  # stands for the end of the queries: nodes wait for it like for a document
    table: dict[Key, tuple[Observed, int]] = field(default_factory=dict)  # each as of a seq; removed when it is used
    held: list[RegisteredNode] = field(default_factory=list)
    foreign_answers: ForeignAnswers = field(default_factory=ForeignAnswers)
    generation: int = 0  # the newest generation with an observation
    is_over: bool = False
    as_of: int = 0  # the piece sleeps, and was clean at this seq; the observation of a node is queried when needed
    batch: LookupBatch | None = None  # nodes whose query is about to be sent
    asked: int = 0  # queries for single nodes without an answer
