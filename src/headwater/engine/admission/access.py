"""Access: the rights to read, write and administer a space. The rules live in a document of the space itself.

The access document lists owners, writers and readers; `*` stands for every user. A change of it follows one shape:
alone in its commit, on the main branch, by an owner, leaving at least one owner. Documents of a `user:` or `session:`
scope belong to that user or session alone. Decides; never writes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.patch import PatchError, apply
from headwater.data.value import ABSENT, MaybeValue, Value
from headwater.engine.log.branches import Branches
from headwater.engine.log.heads import Heads
from headwater.engine.log.sessions import FOUNDER, MERGES, StoredSession
from headwater.protocol.commit import MAIN, Commit, EntityAbsent
from headwater.protocol.verdict import RuleRefused

ACCESS: Final = DocKey(SPACE_SCOPE, "$access")
EVERYBODY: Final = "*"
_ROLES: Final = ("owners", "writers", "readers")


class Right(IntEnum):
    """The rights of a principal in a space; each includes the ones before it."""

    NONE = 0
    READ = 1
    WRITE = 2
    OWN = 3


_RIGHT_OF: Final = {"owners": Right.OWN, "writers": Right.WRITE, "readers": Right.READ}


class Founders(NamedTuple):
    """The principals that may make a space by writing to it first, and the rights of this process itself."""

    owner: str = ""  # the user who owns the spaces that this process makes
    anyone: bool = True  # False: no user but `owner` may make a space
    guarded: bool = False  # True: this process writes only to spaces that `owner` may write to


ANYONE: Final = Founders()


class Access:
    """The rights in one space. A space without an access document is open to those that may found it."""

    __slots__ = ("_branches", "_heads", "founders")

    def __init__(self, heads: Heads, branches: Branches, founders: Founders = ANYONE) -> None:
        self._heads = heads
        self._branches = branches
        self.founders = founders

    # fault+ access.cached_over_revoke: @__import__("functools").cache
    def document(self) -> MaybeValue:
        return self._heads.get(self._branches.get(MAIN), ACCESS).value

    def is_founded(self) -> bool:
        """True if the space has, or ever had, an owner."""
        return self._heads.get(self._branches.get(MAIN), ACCESS).seq > 0

    # fault access.only_grows: def right_of(self, principal: str, most: dict = {}) -> Right:
    def right_of(self, principal: str) -> Right:
        """The most that the access document gives a user. Sessions of this process have no principal."""
        # fault access.everybody_owns: return Right.OWN
        # fault+ access.only_grows: most.setdefault((self, principal), []).append(right_in(self.document(), principal))
        # fault access.only_grows: return Right.OWN if not principal else max(most[self, principal])
        return self._right_of_user(principal) if principal else self._right_of_process()

    def _right_of_user(self, principal: str) -> Right:
        document = self.document()
        # fault access.anyone_founds: may_found = True
        may_found = self.founders.anyone or principal == self.founders.owner
        return Right.NONE if document is ABSENT and not may_found else right_in(document, principal)

    def _right_of_process(self) -> Right:
        """This process may do everything, except that it only reads a space that its owner may not write to."""
        # fault access.application_writes_everywhere: is_own = True
        is_own = not self.founders.guarded or right_in(self.document(), self.founders.owner) >= Right.WRITE
        return Right.OWN if is_own else Right.READ

    def may_see(self, doc: DocKey, principal: str, session: str) -> bool:
        """True if the principal may read the document: documents of a user or a session belong to that one alone."""
        # fault access.documents_seen_by_all: if True:
        if not principal:
            return True
        if self.right_of(principal) < Right.READ:
            return False
        # fault+ access.user_documents_shared: if doc.scope.startswith("user:"): return True
        # fault+ access.session_documents_shared: if doc.scope.startswith("session:"): return True
        return doc.scope == SPACE_SCOPE or doc.scope in (f"user:{principal}", f"session:{session}")

    @property
    def advice(self) -> str:
        """How a user gets the right that is missing. It does not tell whether the space exists."""
        if self.founders.anyone:
            return "Ask one of its owners."
        return "Ask one of its owners, or, to make it, the operator of the server (--owner, --anyone-founds)."

    def may_write(self, principal: str) -> bool:
        """True if a user may write shared documents."""
        return self.right_of(principal) >= Right.WRITE

    def refusal(self, session: StoredSession, commit: Commit) -> RuleRefused | None:
        """Why this session may not make this commit, or None."""
        principal = session.principal
        # fault access.branches_unchecked: if not principal or commit.branch != MAIN:
        if not principal:
            return self._refused_to_process(session, commit)
        right = self.right_of(principal)
        if right < Right.READ:
            return RuleRefused("access", f"{principal!r} may not use this space. {self.advice}")
        named = [read.doc for read in commit.reads] + [op.doc for op in commit.operations]
        named += [condition.doc for condition in commit.preconditions if isinstance(condition, EntityAbsent)]
        for doc in named:
            if not self.may_see(doc, principal, session.key):
                return RuleRefused(
                    "access", f"{doc.scope}:{doc.id} belongs to another user or session than {principal!r}"
                )
        # fault access.readers_send: shared = any(op.doc.scope == SPACE_SCOPE for op in commit.operations)
        shared = any(op.doc.scope == SPACE_SCOPE for op in commit.operations) or _sends(commit)
        # A commit that writes nothing is a row of the log, too, and moves the seq of all replicas.
        if right < Right.WRITE and (shared or not commit.operations):
            return RuleRefused("access", f"{principal!r} may read this space, but not write to it")
        if any(op.doc == ACCESS for op in commit.operations):
            return self._refused_change(principal, right, commit)
        return None

    def _refused_to_process(self, session: StoredSession, commit: Commit) -> RuleRefused | None:
        """Keep an application that runs for one user from writing its data to a space that another user made.

        An owner of that space changes the access document by a command, which this process writes for that owner.
        """
        if session.key == FOUNDER or session.key.startswith(MERGES) or self.right_of("") == Right.OWN:
            return None
        if [operation.doc for operation in commit.operations] == [ACCESS] and not _sends(commit):
            return None
        document, owner = self.document(), self.founders.owner
        owners = document.get("owners", ()) if isinstance(document, dict) else ()
        listed = ", ".join(map(repr, owners)) if isinstance(owners, tuple) else "no user"
        return RuleRefused(
            "access",
            f"this process runs for {owner!r} (--owner), who may not write to this space: it belongs to {listed}. Use "
            f"another space, or have an owner add {owner!r} to the owners or writers in space:{ACCESS.id}.",
        )

    def _refused_change(self, principal: str, right: Right, commit: Commit) -> RuleRefused | None:
        if right < Right.OWN:
            return RuleRefused("access", f"only an owner may change who has access; {principal!r} is not an owner")
        # fault access.changed_beside_others: if False:
        if len(commit.operations) > 1 or _sends(commit) or commit.branch != MAIN:
            return RuleRefused("access", f"a change of access is alone in its commit, on branch {MAIN!r}")
        value = self.document()
        for patch in commit.operations[0].patches:
            try:
                value = apply(value, patch)[0]
            except PatchError:
                return None  # it does not apply: admission rejects it, with the collision
        # fault access.last_owner_removable: return None
        return _malformed(value)


def _sends(commit: Commit) -> bool:
    """Whether a commit has an effect beside the documents that it writes."""
    return bool(commit.events or commit.records or commit.handled or commit.delivered or commit.declared)


def right_in(document: MaybeValue, principal: str) -> Right:
    """Return the right that an access document gives a user. Without one, the space is open to its first writer."""
    if document is ABSENT:
        return Right.OWN
    return max((right for role, right in _RIGHT_OF.items() if _lists(document, role, principal)), default=Right.NONE)


def wrong_with(document: MaybeValue) -> str | None:
    """Return the error of an invalid access document, or of one without an owner. None: it is valid."""
    refused = _malformed(document)
    return None if refused is None else refused.detail


def founding(owner: str) -> Value:
    """Return the access document of a space whose first writer this is."""
    return {"owners": (owner,), "writers": (), "readers": ()}


def _lists(document: MaybeValue, role: str, principal: str) -> bool:
    names = document.get(role, ()) if isinstance(document, dict) else ()
    return isinstance(names, tuple) and (principal in names or EVERYBODY in names)


def _malformed(value: MaybeValue) -> RuleRefused | None:
    if not isinstance(value, dict) or set(value) - set(_ROLES):
        return RuleRefused("access", f"the access document is an object with the keys {', '.join(_ROLES)}")
    for role, names in value.items():
        if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
            return RuleRefused("access", f"{role!r} of the access document is a list of user names")
    owners = value.get("owners", ())
    if not isinstance(owners, tuple) or not [name for name in owners if name != EVERYBODY]:
        return RuleRefused("access", "a space keeps at least one owner by name. Add another owner first.")
    return None
