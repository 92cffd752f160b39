"""The rights of users in a simulated space, and whether the history kept to them.

A second reading of the access document, written from the rules and not from `engine.access`: the right that a landed
commit needed (`check_landed`), and the documents that a user may be told of (`check_told`). Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.value import MaybeValue
from headwater.engine import ACCESS
from headwater.protocol.commit import MAIN, Commit, EntityAbsent
from headwater.protocol.messages import Answer, FromEngine, Opened, Sync, Watched
from headwater.testing.simulation.trace import Trace

NONE, READ, WRITE, OWN = range(4)
ROLES: Final = {"readers": READ, "writers": WRITE, "owners": OWN}


def right_in(document: MaybeValue, user: str) -> int:
    """Return the right of a user by an access document."""
    if not isinstance(document, dict):
        return OWN  # a space without a founder
    return max([right for role, right in ROLES.items() if user in _names(document, role)], default=NONE)


def _names(document: MaybeValue, role: str) -> tuple[object, ...]:
    names = document.get(role, ()) if isinstance(document, dict) else ()
    return names if isinstance(names, tuple) else ()


class Register:
    """The owner of each session, and the rights of each user over time."""

    __slots__ = ("_least", "_seen", "_trace", "_value", "users")

    def __init__(self, value: Callable[[DocKey, int], MaybeValue], trace: Trace) -> None:
        self._value = value
        self._trace = trace
        self._seen: list[int] = [0]  # the seqs at which the access document changed
        self._least: dict[str, int] = {}
        self.users: dict[str, str] = {}  # by session

    def right(self, user: str, at: int) -> int:
        return right_in(self._value(ACCESS, at), user)

    def least(self, user: str) -> int:
        """The least that a user could do at any time since the space was founded."""
        return min([self.right(user, seq) for seq in self._seen[1:]], default=OWN)

    def _scopes(self, session: str) -> tuple[str, ...]:
        return (SPACE_SCOPE, f"user:{self.users[session]}", f"session:{session}")

    # ---- the log -----------------------------------------------------------------------------------

    def check_landed(self, seq: int, session: str, commit: Commit) -> None:
        """Check that the commit that is about to land at `seq` was allowed just before it."""
        written = [operation.doc for operation in commit.operations]
        if ACCESS in written:
            self._seen.append(seq)
        if session not in self.users:
            return  # the host's own, a merge
        user = self.users[session]
        right = self.right(user, seq - 1)
        shared = any(doc.scope == SPACE_SCOPE for doc in written) or commit.events or commit.records
        needed = OWN if ACCESS in written else WRITE if shared else READ
        if right < needed:
            self._trace.broken("access", "log", f"{user!r} has right {right} and wrote {written} at {seq}")
        named = [*written, *(read.doc for read in commit.reads)]
        named += [condition.doc for condition in commit.preconditions if isinstance(condition, EntityAbsent)]
        self._check_scopes(session, named, "log", f"the commit at {seq}")
        if ACCESS in written and (len(written) > 1 or commit.branch != MAIN or commit.events or commit.records):
            self._trace.broken("access", "log", f"the change of access at {seq} is not alone, or not on {MAIN!r}")

    def check_document(self, at: int) -> None:
        """A space keeps an owner."""
        document = self._value(ACCESS, at)
        if not isinstance(document, dict) or set(document) - set(ROLES) or not _names(document, "owners"):
            self._trace.broken("access", "log", f"the access document at {at} is {document!r}")

    # ---- the wire ----------------------------------------------------------------------------------

    def check_told(self, user: str, session: str, message: FromEngine, end: int) -> None:
        """Check that no user is told of a time at which they could not read, or of documents of others."""
        docs: list[DocKey] = []
        match message:
            case Watched(_, seq, documents) | Answer(_, seq, documents):
                docs = [state.doc for state in documents]
            case Sync(seq, changes, arrived):
                docs = [*(change.doc for change in changes), *(state.doc for state in arrived)]
            case Opened(_, seq):
                pass
            case _:
                return
        if seq <= end and self.right(user, seq) < READ:
            self._trace.broken("access", "server", f"{user!r} may not read at {seq} and was told {message}")
        if docs and session in self.users:
            self._check_scopes(session, docs, "server", type(message).__name__)

    def _check_scopes(self, session: str, docs: Iterable[DocKey], who: str, what: str) -> None:
        allowed = self._scopes(session)
        for doc in docs:
            if doc.scope not in allowed:
                self._trace.broken("access", who, f"{what} of session {session} names {doc}, which is not its own")
