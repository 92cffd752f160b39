"""Stored observations of nodes as JSON: a page of nodes, the backlog of each piece, and the last run behind a document.

The engine decides whether a node's reads are current, and other spaces decide about reads there (`foreign_reads`); the
code of today is not known here. The caller checks that the user is an owner: addresses reveal the structure of an
application.

The log has only runs that wrote. The observation of a node also covers a last run that wrote nothing, or of an effect:
its cause, when its reads were verified, and whether they are current.
"""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any, Final

import msgspec

from headwater.data.address import SPACE_SCOPE, Depth, DocKey, doc_text, parse_address
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.value import Absent
from headwater.engine.engine import Engine
from headwater.engine.provenance import last_write
from headwater.errors import AuthoringError
from headwater.pieces.names import SEPARATOR, document_id, piece_id
from headwater.protocol.command_messages import CommandQuestion
from headwater.protocol.commit import MAIN, Read, part_that_wrote
from headwater.protocol.observations import (
    BETWEEN,
    Backlog,
    ForeignRead,
    NodeKey,
    Observations,
    Observed,
    OutdatedReads,
    PieceBacklog,
    QueryBacklog,
    QueryCurrent,
    QueryObservations,
    label_of,
)
from headwater.runtime.pieces.identity import kind_of
from headwater.server.commands.foreign_reads import ForeignReads, ForeignVerdict, spaces_of, undecided
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits

__all__ = ["backlog_form", "current_form", "decode_cursor", "last_run_form", "nodes_form"]


RECORD: Final = "@"


class RequestedNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A choice of nodes; an empty or None field does not restrict it.

    With `records`, the answer has observations and piece records instead, for a caller that has the code; `also` names
    pieces to include even if nothing of them was observed.
    """

    piece: str = ""
    generation: int | None = None
    member: str = ""
    child: str | None = None
    reads: str = ""
    records: bool = False
    also: tuple[str, ...] = ()


def nodes_form(
    engine: Engine, asked: CommandQuestion, foreign_reads: ForeignReads | None = None
) -> dict[str, JsonForm]:
    """Return a page of nodes, ordered by piece, generation, member and child.

    `foreign_reads` collects questions to other spaces; until `decide`, nodes that read other spaces are unknown.
    """
    try:
        chosen = msgspec.convert(asked.value or {}, RequestedNodes)
    except msgspec.ValidationError as error:
        raise AuthoringError(f"the filter of nodes is not valid: {error}") from None
    if chosen.generation is not None and chosen.generation < 0:
        raise AuthoringError(f"generation {chosen.generation}: write 0 or more")
    after = decode_cursor(asked.after) if asked.after else None
    reads = parse_address(chosen.reads) if chosen.reads else None
    branch = asked.branch or MAIN
    question = QueryObservations(
        0,
        _to_piece_id(chosen.piece),
        chosen.generation,
        chosen.member,
        chosen.child,
        after,
        max(1, asked.limit),
        None if reads is None else DocKey(reads.scope, reads.id),
    )
    page = engine.query_observations(question, branch=branch)
    assert isinstance(page, Observations)
    nodes: list[JsonForm] = [] if chosen.records else [_node_form(each, foreign_reads) for each in page.observed]
    made: dict[str, JsonForm] = {
        "seq": page.seq,
        "branch": branch,
        "nodes": nodes,
        "next": None if page.next is None else _encode_cursor(page.next),
    }
    if chosen.records:
        pieces = dict.fromkeys([*[each.node.piece for each in page.observed], *chosen.also])
        made["records"] = {piece: _stored_record(engine, piece, branch) for piece in pieces}
        made["observed"] = [msgspec.to_builtins(each) for each in page.observed]
    return made


def current_form(engine: Engine, asked: CommandQuestion) -> dict[str, JsonForm]:
    """Return the reads that are outdated, by their index. Asked by other spaces about reads of this one."""
    try:
        foreign = msgspec.convert(asked.value, tuple[ForeignRead, ...])
    except msgspec.ValidationError as error:
        raise AuthoringError(f"the reads are not valid: {error}") from None
    reads = tuple([Read(each.doc, each.path, each.depth, each.seq) for each in foreign])
    chains = {each.seq: each.chain for each in foreign if each.chain is not None}
    found = engine.query_observations(QueryCurrent(0, reads, tuple(chains.items())), branch=asked.branch or MAIN)
    assert isinstance(found, OutdatedReads)
    return {"seq": found.seq, "stale": [list(each) for each in found.stale]}


def backlog_form(
    engine: Engine, asked: CommandQuestion, foreign_reads: ForeignReads | None = None
) -> dict[str, JsonForm]:
    """Return the pieces with nodes that are not clean: counts, the time of their last runs, and the writes that are the
    cause.

    Nodes that read other spaces are counted in `foreign_reads.decide`.
    """
    page = engine.query_observations(
        QueryBacklog(0, _to_piece_id(asked.after), max(1, asked.limit)), branch=asked.branch or MAIN
    )
    assert isinstance(page, Backlog)
    counts = [_BacklogRow(each) for each in page.pieces]
    made: dict[str, JsonForm] = {"seq": page.seq, "branch": asked.branch or MAIN, "pieces": [], "next": page.next}

    def settle() -> None:
        made["pieces"] = [each.form() for each in counts if each.dirty]

    for each in counts:
        for took_us, reads in each.stored.elsewhere:
            if foreign_reads is None:
                each.add(took_us, undecided(reads))
            else:
                foreign_reads.add(reads, partial(each.add, took_us))
    settle()
    if foreign_reads is not None:
        foreign_reads.add((), lambda _: settle())  # After all counts.
    return made


class _BacklogRow:
    """The backlog of one piece; answers of other spaces add to it."""

    __slots__ = ("_causes", "_took_us", "_unasked", "dirty", "stored")

    def __init__(self, stored: PieceBacklog) -> None:
        self.stored = stored
        self.dirty = stored.dirty
        self._took_us = stored.took_us
        self._causes = {doc_text(doc): seq for doc, seq in stored.causes}
        self._unasked: dict[str, None] = {}

    def add(self, took_us: int, verdict: ForeignVerdict) -> None:
        if verdict.is_clean:
            return
        self.dirty += 1
        self._took_us += took_us
        self._causes.update(verdict.written)
        self._unasked.update(dict.fromkeys(verdict.unasked))

    def form(self) -> dict[str, JsonForm]:
        return {
            "piece": self.stored.piece,
            "nodes": self.stored.nodes,
            "dirty": self.dirty,
            "took_us": self._took_us,
            "causes": [{"address": address, "seq": seq} for address, seq in self._causes.items()],
            "unasked": list(self._unasked),
        }


def _node_form(each: Observed, foreign_reads: ForeignReads | None) -> dict[str, JsonForm]:
    node = each.node
    child, _, element = node.child.partition(BETWEEN)
    stale = [(doc_text(each.reads[place].doc, each.reads[place].path), seq) for place, seq in each.stale]
    made: dict[str, JsonForm] = {
        "node": label_of(node),
        "piece": node.piece,
        "generation": node.generation,
        "member": node.member,
        "child": child,
        "element": element,
        "scope": node.scope or SPACE_SCOPE,
        "principal": node.principal,
        "kind": kind_of(each.kind),
        "fingerprint": each.fingerprint,
        "gate": each.gate,
        "failed": each.failed,
        "cause": None if each.cause is None else doc_text(*each.cause),
        "reads": [{"address": doc_text(r.doc, r.path), "depth": Depth(r.depth).name.lower()} for r in each.reads],
        "elsewhere": [
            {"space": r.space, "address": doc_text(r.doc, r.path), "depth": Depth(r.depth).name.lower(), "seq": r.seq}
            for r in each.foreign
        ],
        "children": list(each.children),
        "took_us": each.took_us,
        "changed_at": each.changed_at,
        "verified_at": each.verified_at,
    }

    def settle(verdict: ForeignVerdict) -> None:
        made["state"] = _node_state(each, verdict)
        made["stale"] = [{"address": address, "seq": seq} for address, seq in (*stale, *verdict.written)]
        made["unasked"] = list(verdict.unasked)

    settle(undecided(each.foreign))
    if foreign_reads is not None:
        foreign_reads.add(each.foreign, settle)
    return made


def _node_state(each: Observed, verdict: ForeignVerdict) -> str:
    """Return the state of a node, as far as spaces know it: they do not know the code of today."""
    if not each.fingerprint:
        return "unknown"
    if each.failed:
        return "failed"
    if each.stale or verdict.written:
        return "dirty"
    return "unknown" if verdict.unasked else "clean"


def _stored_record(engine: Engine, piece: str, branch: str) -> JsonForm:
    """Return the stored record of a piece, or None."""
    found: Any = engine.read(DocKey(SPACE_SCOPE, document_id(piece, RECORD)), branch=branch).value
    return None if isinstance(found, Absent) else json_form(found)


def _to_piece_id(name: str) -> str:
    """Return the id of a piece for its name or its id."""
    return name if not name or "/" in name or "%" in name or "~" in name else piece_id(name)


def _encode_cursor(node: NodeKey) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(node)).decode("ascii").rstrip("=")


def decode_cursor(text: str) -> NodeKey:
    """Return the key that a page continues after, from the cursor of the page before."""
    try:
        padded = text + "=" * (-len(text) % 4)
        return msgspec.msgpack.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=NodeKey)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise AuthoringError(f"{text!r} is not a cursor: write the one of the previous page") from None


def last_run_form(
    engine: Engine,
    doc: DocKey,
    foreign_reads: ForeignReads | None = None,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
) -> dict[str, JsonForm] | None:
    """Return the last run of the node behind a document, or None if no such node was observed.

    `foreign_reads` collects questions to other spaces that the node read.
    """
    found = _find_observed(engine, doc, limits.nodes_of_one_name)
    if found is None:
        return None
    cause: dict[str, JsonForm] | None = None
    if found.cause is not None:
        wrote = last_write(engine, found.cause[0], found.verified_at)
        cause = {
            "address": doc_text(*found.cause),
            "seq": None if wrote is None else wrote.seq,
            "at_us": None if wrote is None else wrote.at_us,
            "session": None if wrote is None else wrote.session,
            "node": None if wrote is None else part_that_wrote(wrote.commit, found.cause[0]).provenance.node,
        }
    stale = [(doc_text(found.reads[place].doc, found.reads[place].path), seq) for place, seq in found.stale]
    made: dict[str, JsonForm] = {
        "kind": kind_of(found.kind),
        "cause": cause,
        "changed_at": found.changed_at,
        "verified_at": found.verified_at,
        "took_us": found.took_us,
        "failed": bool(found.failed),
        "comparable": bool(found.fingerprint),
        "elsewhere": list(spaces_of(found.foreign)),
    }

    def settle(verdict: ForeignVerdict) -> None:
        made["stale"] = [{"address": address, "seq": seq} for address, seq in (*stale, *verdict.written)]
        made["unasked"] = list(verdict.unasked)

    settle(undecided(found.foreign))
    if foreign_reads is not None:
        foreign_reads.add(found.foreign, settle)
    return made


def _find_observed(engine: Engine, doc: DocKey, most: int) -> Observed | None:
    home, colon, member = doc.id.rpartition(":")
    if not colon:
        return None
    piece = home.partition(SEPARATOR)[0]
    child = home if SEPARATOR in home else ""
    scope, _, principal = doc.scope.partition(":")
    page = engine.query_observations(QueryObservations(0, piece, None, member, child, None, most), branch=MAIN)
    assert isinstance(page, Observations)
    whose = ("", "") if scope == SPACE_SCOPE else (scope, principal)
    for each in page.observed:
        if (each.node.scope, each.node.principal) == whose or kind_of(each.kind) == "effect":
            return each
    return None
