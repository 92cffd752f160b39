"""Preconditions: conditions on the space without which a commit makes no sense at all.

They belong to the commit, not to an operation, and hold for commits without operations too. An honest commit names an
origin and a lease that were there before it, so that a condition that is false now stays false: a failure is permanent,
and no writer retries it.
"""

from __future__ import annotations

from typing import assert_never

from headwater.engine.delivery.targets import Targets
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Heads
from headwater.engine.log.sessions import Sessions, StoredSession
from headwater.protocol.commit import EntityAbsent, LeaseHeld, OriginCommitted, Precondition
from headwater.protocol.verdict import PreconditionFailed


class Preconditions:
    """Evaluates the preconditions of a commit against the space as it is now."""

    __slots__ = ("_heads", "_sessions", "_targets")

    def __init__(self, heads: Heads, sessions: Sessions, targets: Targets) -> None:
        self._targets = targets
        self._heads = heads
        self._sessions = sessions

    def failure(
        self, preconditions: tuple[Precondition, ...], session: StoredSession, branch: Branch
    ) -> PreconditionFailed | None:
        # fault preconditions.ignored: for precondition in ():
        for precondition in preconditions:
            detail = self._why_not(precondition, session, branch)
            if detail is not None:
                return PreconditionFailed(str(type(precondition).__struct_config__.tag), detail)
        return None

    def _why_not(self, precondition: Precondition, session: StoredSession, branch: Branch) -> str | None:
        match precondition:
            case OriginCommitted(local_seq):
                # Commits of a session are judged in order (C5), so the origin's fate is known by now.
                # fault preconditions.failed_origin_passes: if False:
                if self._sessions.place_of(session, local_seq) is None:
                    return f"its origin, commit {local_seq} of this session, was not accepted"
            case EntityAbsent(doc):
                head = self._heads.get(branch, doc)
                # A tombstone counts as present: the document was written once.
                # fault preconditions.tombstone_is_absent: if head.value:
                # fault receipts.not_conditions: if False:
                if head.seq or head.inherited_seq:
                    return f"{doc.scope}:{doc.id} was already created on branch {branch.name!r}"
            case LeaseHeld(name, token):
                holder = self._targets.holder_of(name, token)
                # fault+ targets.commit_ignores_lease: holder = None
                if holder is not None:
                    # The token fences the lease: a session that does not hold it must not learn it.
                    held = "another worker holds it" if holder else "no worker holds it"
                    return f"lease {name!r} with token {token} is no longer held: {held}"
            case _:
                assert_never(precondition)
        return None
