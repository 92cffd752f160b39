"""Founding: the first whose commit is accepted makes the space, and owns it.

The access document that says so is written in the same transaction, right behind that commit: what was refused founds
nothing, and there is no moment at which a space has content and no owner. Decides nothing about the commit itself.
"""

from __future__ import annotations

from headwater.data.patch import replace
from headwater.engine.admission.access import ACCESS, founding
from headwater.engine.commit_group import Outcome
from headwater.engine.log.sessions import FOUNDER
from headwater.engine.wiring import Parts
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.verdict import Accepted


def found_after(outcome: Outcome, key: str, parts: Parts, now_us: int) -> None:
    """Inside the open transaction, after a frame of a session was judged: write who owns the space from now on.

    What this process itself commits has no principal: then it is whoever has what it makes, if somebody does.
    """
    access, sessions = parts.access, parts.sessions
    if access is None or isinstance(outcome, Exception):
        return
    principal = sessions.get(key).principal or access.founders.owner
    if not principal or access.is_founded():
        return
    if not any(isinstance(verdict, Accepted) and not verdict.replayed for verdict in outcome):
        return
    founder = sessions.open_own(FOUNDER, now_us)
    operation = Operation(ACCESS, (replace((), founding(principal)),))
    made = parts.group.take(founder, (Commit(founder.last + 1, (operation,)),))
    if isinstance(made, Exception):
        raise made
