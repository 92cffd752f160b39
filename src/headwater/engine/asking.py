"""Asking: documents that are read once, now or as they were, on behalf of a peer that may see them."""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.peer import Peer
from headwater.engine.problems import problem_code
from headwater.errors import AccessError, HeadwaterError, ProtocolError
from headwater.protocol.messages import Answer, Problem, Query, state_of


def answer(engine: Engine, peer: Peer, message: Query, limits: Limits) -> None:
    """Tell the peer what it asked for, or why it cannot have it."""
    try:
        peer.send(answered(engine, peer, message, limits))
    except HeadwaterError as error:
        peer.send(Problem(problem_code(error), str(error), False, message.id))


def answered(engine: Engine, peer: Peer, message: Query, limits: Limits) -> Answer:
    """The document that was asked for, or a page of a scope. AccessError: they are not for this peer."""
    doc = DocKey(message.scope, message.doc)
    if not engine.may_see(doc, peer.principal, peer.session):
        raise AccessError(f"{message.scope}:{message.doc or '*'} is not for {peer.principal!r}")
    if message.at is not None and not message.doc:
        raise ProtocolError("a page of documents is of now. Ask for them one by one to read the past.")
    seq = engine.last_seq
    if message.doc:
        found = engine.read(doc, branch=peer.branch, at=message.at)
        return Answer(message.id, seq, (state_of(doc, found.seq, found.value),))
    limit = max(1, min(message.limit, limits.query_documents))
    page = engine.documents(message.scope, branch=peer.branch, after=message.after, limit=limit)
    return Answer(message.id, seq, tuple(state_of(d.doc, d.seq, d.value) for d in page.items), page.next)
