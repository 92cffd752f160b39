"""How much of a space each user has stored: events, timers, and, without the right to write, documents of their own.

Users who may write share a space; one of them must not fill it with events that never end. A user who may only read
still has documents of a `user:` or `session:` scope. Owners, and sessions of the process of the engine, are not
bounded. Counts are read from the store when a user first needs them and kept in memory from then on.
"""

from __future__ import annotations

from typing import Final

from headwater.data.address import SPACE_SCOPE
from headwater.engine.admission.access import Access, Right
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Heads
from headwater.engine.log.sessions import StoredSession
from headwater.engine.store.port import Store
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import RuleRefused

RULE: Final = "user_limit"


class _Stock:
    """The counts of one user."""

    __slots__ = ("documents", "events", "timers")

    def __init__(self, documents: int, events: int, timers: int) -> None:
        self.documents = documents
        self.events = events
        self.timers = timers  # of the events, those with a time


class UserStock:
    """The counts of all users of one space."""

    __slots__ = ("_access", "_heads", "_limits", "_stocks", "_store")

    def __init__(self, store: Store, heads: Heads, access: Access | None, limits: Limits) -> None:
        self._store = store
        self._heads = heads
        self._access = access
        self._limits = limits
        self._stocks: dict[str, _Stock] = {}

    def forget(self) -> None:
        """Drop the counts: the store was rolled back, or events were deleted with their branch."""
        self._stocks.clear()

    def refusal(self, session: StoredSession, branch: Branch, commit: Commit) -> RuleRefused | None:
        """Return the reason why a user may not store what a commit would add."""
        principal = session.principal
        if not principal or self._access is None:
            return None
        right = self._access.right_of(principal)
        # fault stock.users_unbounded: if True:
        if right >= Right.OWN:
            return None
        limits = self._limits
        if commit.events:
            stock = self._stock(principal)
            timers = sum([event.due_us > 0 for event in commit.events])
            if stock.events + len(commit.events) > limits.user_events:
                return _refused(f"{limits.user_events} stored events", "until some are handled")
            if timers and stock.timers + timers > limits.user_timers:
                return _refused(f"{limits.user_timers} events for later", "until some are handled")
        if right < Right.WRITE and (new := self._new_documents(branch, commit)):
            stock = self._stock(principal)
            if stock.documents + new > limits.user_documents:
                return _refused(f"{limits.user_documents} documents of a user who may only read", "until you may write")
        return None

    def note(self, session: StoredSession, branch: Branch, commit: Commit) -> None:
        """Count an accepted commit, before it is applied."""
        stock = self._stocks.get(session.principal)
        if stock is not None:
            stock.events += len(commit.events)
            stock.timers += sum([event.due_us > 0 for event in commit.events])
            stock.documents += self._new_documents(branch, commit)

    def note_dropped(self, session: int, due_us: int) -> None:
        """Count an event of a session as gone."""
        if not self._stocks:
            return
        row = self._store.session(session)
        stock = self._stocks.get(row.principal) if row is not None else None
        if stock is not None:
            stock.events -= 1
            stock.timers -= due_us > 0

    def _new_documents(self, branch: Branch, commit: Commit) -> int:
        own = {op.doc for op in commit.operations if op.doc.scope != SPACE_SCOPE}
        return sum([not self._heads.get(branch, doc).seq for doc in own])

    def _stock(self, principal: str) -> _Stock:
        stock = self._stocks.get(principal)
        if stock is None:
            events, timers = self._store.count_events(principal)
            documents = self._store.count_documents(f"user:{principal}", self._limits.user_documents)
            stock = self._stocks[principal] = _Stock(documents, events, timers)
        return stock


def _refused(most: str, until: str) -> RuleRefused:
    return RuleRefused(RULE, f"you have as much as one user may store in this space: {most}. No more fit {until}.")
