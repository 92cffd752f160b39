"""Opening: whether a connection may take a session up, and what it is told if it may not.

Checks all that an `Open` says before the session is touched. Never looks at who owns the session now; the hub does.
"""

from __future__ import annotations

from typing import Final

from headwater.data.address import check_id
from headwater.engine.admission.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.sessions import Session
from headwater.engine.sync.connection import Peer, PeerState
from headwater.errors import AbsentError, AccessError, LimitError, ProtocolError
from headwater.protocol.messages import Open, Problem

OPENS: Final = 2  # with the token that was answered last, and with the one that was chosen without an answer


def opened(engine: Engine, peer: Peer, message: Open, limits: Limits) -> Session | None:
    """The session, which is this peer's from now on. None: it is gone, and the peer was told so."""
    if peer.state is not PeerState.GREETED:
        raise ProtocolError("a connection opens one session, after it has said hello")
    peer.opens += 1
    if peer.opens > OPENS:
        raise ProtocolError(f"a session is asked for {OPENS} times at most on one connection. Make another one.")
    check_id(message.session)
    if len(message.sent) > limits.in_flight:
        raise LimitError(f"a session has at most {limits.in_flight} commits on the wire")
    if not engine.has_branch(message.branch):
        raise AbsentError(f"there is no branch {message.branch!r} in this space")
    if not engine.may_see(ACCESS, peer.principal, message.session):
        raise AccessError(f"{peer.principal!r} may not read this space. {engine.access_advice}")
    # fault opening.restored_log_accepted: if False:
    if message.seen > engine.last_seq:
        # The space was restored from a backup, or begun anew: what this replica shows is not in its log.
        ends = f"it has seen seq {message.seen}, but the log ends at {engine.last_seq}: this is not the space it knew"
        peer.send(Problem("session_gone", ends, fatal=False))
        return None
    # fault opening.restored_log_accepted: if False:
    if message.chain is not None and not engine.may_have_been(message.seen, message.chain):
        # It was, and has grown past what this replica shows: no commit of that may be judged by this log (C1).
        other = f"it has seen another log up to seq {message.seen}: this space was restored from a backup since"
        peer.send(Problem("session_gone", other, fatal=False))
        return None
    try:
        session = engine.resume_session(message.session, peer.principal, message.resume, message.following)
    except ProtocolError as error:
        peer.send(Problem("stale_token", str(error), fatal=False))
        return None
    if message.acked:
        # fault opening.acknowledges_one_more: engine.acknowledge(session.key, message.acked + 1)
        engine.acknowledge(session.key, message.acked)
    peer.session, peer.branch = message.session, message.branch
    peer.state = PeerState.OPEN
    return session
