"""Asking: documents that are read once, now or as they were, on behalf of a peer that may see them.

A page that has no room for all that was asked for is a shorter page; what comes next is asked for with `next`.
"""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.data.value import size_of
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.peer import Peer
from headwater.engine.problems import problem_code
from headwater.engine.room import Room
from headwater.errors import AccessError, HeadwaterError, ProtocolError
from headwater.protocol.messages import Answer, Problem, Query, state_of


def answer(engine: Engine, peer: Peer, message: Query, limits: Limits, room: Room) -> None:
    """Tell the peer what it asked for, or why it cannot have it."""
    try:
        reply = answered(engine, peer, message, limits)
        room.begin()
        for state in reply.documents:
            room.take(size_of(state.value))
        peer.send(reply)
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
    page = engine.documents(
        message.scope, branch=peer.branch, after=message.after, limit=limit, most_bytes=limits.answer_bytes
    )
    return Answer(message.id, seq, tuple(state_of(d.doc, d.seq, d.value) for d in page.items), page.next)
