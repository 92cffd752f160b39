"""Preview of a restart: the nodes that a program would run again if it were started now, and why.

Compares stored observations with the nodes of the current program, by the rules of resuming, and reports more: the
changed part of a node's code, the reads that were written since and the commits that wrote them, and the duration of
the last run. A reader of such a node runs again if the new value differs, which cannot be known before. Runs nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headwater.data.address import SPACE_SCOPE, DocKey, doc_text
from headwater.data.value import ABSENT, MaybeValue, freeze
from headwater.pieces.declarations import HandlerMember, ReactionMember
from headwater.pieces.names import document_id
from headwater.protocol.observations import NodeKey, Observed, label_of
from headwater.runtime.pieces.classes import member_digests
from headwater.runtime.pieces.identity import changes, kind_of
from headwater.runtime.pieces.records import RECORD, Record, record_document
from headwater.runtime.resume.dry_nodes import DryNode, DryNodes, OpenDry
from headwater.runtime.resume.judge import Reason, judge
from headwater.runtime.resume.limits import DEFAULT_RESUME_LIMITS, ResumeLimits
from headwater.scheduler.node import NodeKind

if TYPE_CHECKING:
    from headwater.runtime.pieces.registry import PieceRegistry

__all__ = ["CLEAN", "JudgedNode", "Preview", "PreviewInput", "fates_of", "preview", "register_stored"]

CLEAN: Final = "clean"
RERUN: Final = "rerun"
MAY: Final = "may"
GONE: Final = "gone"

MAKER: Final = "the node that makes its piece runs again"
NOT_MADE: Final = "it is not in this program"
FOLLOWS: Final = "it reads a value that is computed again"

MAKING: Final = frozenset({each.value for each in (Reason.KEEPS, Reason.CODE, Reason.OPAQUE, Reason.UNCOMPARED)})
"""Reasons of a row that has to run before its child exists."""

ELSEWHERE: Final = "a value that it read in another space was written, or that space did not answer"
"""The text of both reasons: an answer is stored with neither."""

UNKNOWNS: Final = frozenset(
    {Reason.OPAQUE.value, Reason.UNCOMPARED.value, ELSEWHERE, Reason.KEEPS.value, Reason.NO_WRITER.value}
)
"""Reasons that leave unknown whether anything changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewInput:
    """The stored observations of a space, and the records of its pieces."""

    space: str
    observed: tuple[Observed, ...]
    records: Mapping[str, Record | None]
    raw: Mapping[str, Any]  # the same records, as they are stored
    held: frozenset[NodeKey] = frozenset()  # nodes whose reads of other spaces would be admitted there now


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedNode:
    """One node, and whether it would run again."""

    space: str
    piece: str
    node: str
    kind: str
    fate: str  # clean, rerun, may or gone
    reason: str
    details: tuple[str, ...]
    took_us: int

    def as_json(self) -> dict[str, Any]:
        return {
            "space": self.space,
            "piece": self.piece,
            "node": self.node,
            "kind": self.kind,
            "fate": self.fate,
            "reason": self.reason,
            "details": list(self.details),
            "took_us": self.took_us,
        }


@dataclass(slots=True, kw_only=True)
class Preview:
    """All nodes with stored observations."""

    nodes: list[JudgedNode] = field(default_factory=list)
    fresh: list[tuple[str, str, str]] = field(default_factory=list)  # members that are new, by space and piece

    def of(self, fate: str) -> list[JudgedNode]:
        return [each for each in self.nodes if each.fate == fate]

    def totals(self) -> dict[str, Any]:
        reasons = Counter(each.reason for each in self.of(RERUN))
        return {
            "nodes": len(self.nodes),
            **{fate: len(self.of(fate)) for fate in (CLEAN, RERUN, MAY, GONE)},
            "unknown": sum(count for reason, count in reasons.items() if reason in UNKNOWNS),
            "reasons": dict(reasons.most_common()),
            "rerun_us": sum(each.took_us for each in self.of(RERUN)),
            "may_us": sum(each.took_us for each in self.of(MAY)),
        }


async def preview(known: Iterable[PreviewInput], shown: Container[str] | None = None, *, open_dry: OpenDry) -> Preview:
    """Judge the stored nodes with the classes that are imported now. Nothing runs.

    `shown`: the spaces whose nodes are returned; the others are there for reads of them. None: all. `open_dry`
    opens the runtime that the nodes are registered in.
    """
    found, everything = Preview(), list(known)
    raw = {(each.space, document_id(piece, RECORD)): said for each in everything for piece, said in each.raw.items()}

    def record(space: str, doc: DocKey) -> MaybeValue:
        """Return the record of a piece; no other document is needed. Records have the names and inputs of pieces."""
        said = raw.get((space, doc.id)) if doc.scope == SPACE_SCOPE else None
        return ABSENT if said is None else freeze(said)

    async with open_dry(record) as dry_nodes:
        for each in everything:
            register_stored(dry_nodes, each)
            if shown is None or each.space in shown:
                found.fresh += _fresh(dry_nodes.parts.pieces, each)
        fates = {each.space: _judge_space(dry_nodes, each) for each in everything}
        _follow(dry_nodes, everything, fates)
    for each in everything:
        if shown is None or each.space in shown:
            of_space = fates[each.space]
            found.nodes += [_as_row(each.space, observed, of_space[observed.node]) for observed in each.observed]
    return found


def register_stored(dry_nodes: DryNodes, known: PreviewInput) -> None:
    """Register the stored nodes of one space."""
    core = dry_nodes.core
    space = core.space(known.space)
    by_piece: dict[str, list[Observed]] = {}
    for each in known.observed:
        by_piece.setdefault(each.node.piece, []).append(each)
    for piece in by_piece:
        core.load(record_document(space, piece))
    for piece, observed in by_piece.items():
        dry_nodes.register_stored(space, piece, known.records.get(piece), observed)


def _fresh(pieces: PieceRegistry, known: PreviewInput) -> list[tuple[str, str, str]]:
    """Members whose results are stored and that the class did not have when the piece was last opened."""
    found = []
    for piece, record in known.records.items():
        instance = pieces.find(known.space, piece)
        if instance is None or record is None or not record.members:
            continue
        head = f"{instance.schema.name}."
        was = {name.removeprefix(head) for name in record.members if name.startswith(head)}
        for name in member_digests(instance.cls):
            member = instance.schema.get(name.removeprefix(head)) if name.startswith(head) else None
            if (
                member is not None
                and member.stored not in was
                and not isinstance(member, (HandlerMember, ReactionMember))
            ):
                found.append((known.space, piece, member.stored))
    return found


# ---- each node by itself -------------------------------------------------------------------------------


Fate = tuple[str, str, tuple[str, ...]]
"""Whether a node would run again, the reason, and details."""


def fates_of(dry_nodes: DryNodes, known: PreviewInput) -> dict[NodeKey, Fate]:
    """Judge each node of a space by itself."""
    fates: dict[NodeKey, Fate] = {}
    for each in known.observed:
        node = each.node
        at = (known.space, node.piece, (node.member, node.child, node.scope, node.principal))
        dry_node = dry_nodes.nodes.get(at)
        if dry_node is not None:
            fates[node] = judge_node(dry_nodes, dry_node, is_held=node in known.held)
        else:
            fates[node] = (GONE, NOT_MADE, (dry_nodes.missing.get(at, ""),))
    return fates


def _judge_space(dry_nodes: DryNodes, known: PreviewInput) -> dict[NodeKey, Fate]:
    """Judge each node of a space, with the nodes below rows that have to run, without following readers."""
    fates = fates_of(dry_nodes, known)
    _wait_for_makers(fates)
    return fates


def _as_row(space: str, observed: Observed, fate: Fate) -> JudgedNode:
    is_now, reason, details = fate
    return JudgedNode(
        space=space,
        piece=observed.node.piece,
        node=label_of(observed.node),
        kind=kind_of(observed.kind),
        fate=is_now,
        reason=reason,
        details=tuple([text for text in details if text]),
        took_us=observed.took_us,
    )


def judge_node(
    dry_nodes: DryNodes, dry_node: DryNode, *, is_held: bool, limits: ResumeLimits = DEFAULT_RESUME_LIMITS
) -> Fate:
    """Judge one node by the rules of resuming."""
    observed = dry_node.observed
    foreign = None if is_held or not observed.foreign else Reason.NO_ANSWER
    reason = judge(dry_node.said, dry_node.implied, observed, foreign)
    if reason is None and not dry_node.is_kept:
        reason = Reason.KEEPS
    if reason is None and not dry_nodes.has_writers(dry_node):
        reason = Reason.NO_WRITER
    match reason:
        case None:
            return CLEAN, "", ()
        case Reason.OPAQUE | Reason.UNDECLARED:
            why = (
                dry_nodes.fingerprints.why(dry_node.instance.cls, dry_node.identity.code)
                or "the inputs of its piece are not known here"
            )
            return RERUN, Reason.OPAQUE.value, (why,)
        case Reason.UNCOMPARED:
            why = "it read the time or a value of one session, read a failed value, or returned a cleanup function"
            return RERUN, reason.value, (why,)
        case Reason.CODE:
            return RERUN, reason.value, changes(observed.kind, dry_node.said.kind)
        case Reason.DELAYS:
            return RERUN, reason.value, (f"{observed.gate} before, {dry_node.said.gate} now (debounce/throttle, ms)",)
        case Reason.WRITTEN:
            return RERUN, reason.value, _written(observed, limits.listed_reads)
        case Reason.NO_ANSWER | Reason.WRITTEN_THERE:
            return RERUN, ELSEWHERE, tuple(dict.fromkeys(read.space for read in observed.foreign))
        case _:
            return RERUN, reason.value, ()


def _written(observed: Observed, most: int) -> tuple[str, ...]:
    """List the stale reads of a node, each with the write that it missed."""
    reads = [(observed.reads[place], seq) for place, seq in observed.stale]
    written = [f"{doc_text(read.doc, read.path)} at seq {seq}" for read, seq in reads]
    more = len(written) - most
    return (*written[:most], *((f"and {more} more",) if more > 0 else ()))


# ---- readers --------------------------------------------------------------------------------


def _wait_for_makers(fates: dict[NodeKey, Fate]) -> None:
    """Mark the nodes below a row that has to run first: they may run again once its child exists."""
    again = [node for node, fate in fates.items() if fate[1] in MAKING]
    rows = {node.piece for node in again if node.member.endswith(" row")}
    for node, (fate, reason, _) in list(fates.items()):
        if fate == GONE and reason == NOT_MADE and node.child and node.piece in rows:
            fates[node] = (MAY, MAKER, ())


def _follow(dry_nodes: DryNodes, everything: Iterable[PreviewInput], fates: Mapping[str, dict[NodeKey, Fate]]) -> None:
    """Mark the direct and indirect readers, in all spaces, of nodes that run again."""
    readers: dict[tuple[str, DocKey], list[tuple[str, NodeKey]]] = {}
    for known in everything:
        for each in known.observed:
            reads = [(known.space, read.doc) for read in each.reads] + [(read.space, read.doc) for read in each.foreign]
            for place in dict.fromkeys(reads):
                readers.setdefault(place, []).append((known.space, each.node))
    waiting = deque(
        (space, node) for space, of_space in fates.items() for node, fate in of_space.items() if fate[0] in (RERUN, MAY)
    )
    while waiting:
        space, node = waiting.popleft()
        dry_node = dry_nodes.nodes.get((space, node.piece, (node.member, node.child, node.scope, node.principal)))
        if dry_node is None or dry_node.node.kind is NodeKind.EFFECT:
            continue
        for document in [*dry_node.node.outputs, *(inside for inside, _ in dry_node.node.envelope)]:
            at = dry_nodes.core.name_of(document.home) or space
            for where, reader in readers.get((at, document.key), ()):
                if fates[where][reader][0] == CLEAN:
                    text = doc_text(document.key)
                    fates[where][reader] = (MAY, FOLLOWS, (text if where == at else f"{at}/{text}",))
                    waiting.append((where, reader))
