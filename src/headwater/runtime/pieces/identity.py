"""Names of a piece's nodes that stay the same over restarts, and the kind that an observation stores beside them.

A `NodeIdentity` names a node inside its piece; stored observations are looked up by it. A node of one session has no
identity, because the next process is another session. This part only names nodes: it knows no code and compares
nothing.

The kind of an observation is stored with the components of the node's code behind it (`with_kinds`). The fingerprint
alone decides whether a node is current. A fingerprint is one digest of the code, the inputs of the piece, and the
documents of the node as seen from it, so that all pieces of a class with equal inputs share it. The components of the
code are stored behind the kind: a few characters for each sort of component. They tell people which component changed,
as far as it is known (`changes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headwater.pieces.declarations import Declaration, Scope
from headwater.pieces.fingerprints.change_kinds import SAID, differing
from headwater.protocol.observations import BETWEEN

__all__ = ["changes", "kind_of", "with_kinds"]


KIND: Final = "what kind of member it is"
GIVEN: Final = "what it was given, what its reads are by default, or where it writes"
SOMETHING: Final = "something that it refers to"


def with_kinds(kind: str, kinds: str) -> str:
    """Return the kind of a node, followed by the components of its code if they are known."""
    return f"{kind} {kinds}" if kinds else kind


def kind_of(said: str) -> str:
    """Return the kind of a node from the text that `with_kinds` made."""
    return said.partition(" ")[0]


def changes(before: str, after: str) -> tuple[str, ...]:
    """Describe the differences between two nodes with different fingerprints, from the texts of `with_kinds`."""
    (one, _, then), (other, _, now) = before.partition(" "), after.partition(" ")
    if one != other:
        return (KIND,)
    if then == now:
        return (GIVEN,) if now else (SOMETHING,)
    return tuple([SAID[kind] for kind in differing(then, now)]) or (SOMETHING,)


SHARED: Final = 4_096  # names of members whose identities are kept in a process
KEYS: Final = "keys of "
"""Prefix of the member whose fingerprint covers the code that finds the element keys of an `each`."""
WITHIN: Final = "\x1e"
"""Separator of the parts of a node's name. No part contains it."""
Key = tuple[str, str, str, str]
"""A node of a piece: the member, the child with the element, the scope, and the user or runtime of that scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """A node of a piece, by names that a later process also knows."""

    member: str
    code: str  # the member with its fingerprint; empty: the node runs no author code
    element: str = ""  # the key of the element, if the node is a row
    scope: str = ""
    principal: str = ""
    is_keeper: bool = False  # it keeps rows, and needs to know all of them
    is_new: bool = False  # its element was added in this process: there is no observation of it
    # Return the state that the node keeps beside its result, as texts, and restore it. None: it keeps no state.
    started: Callable[[], tuple[str, ...] | None] | None = None
    restore: Callable[[tuple[str, ...]], bool] | None = None

    def key(self, child: str) -> Key:
        """Return the node of a child, by the id of the child. Empty: of the piece itself."""
        if self.element:
            child = f"{child}{BETWEEN}{self.element}"
        return (self.member, child, self.scope, self.principal)


def name_of(key: Key) -> str:
    """Return a node of a piece as one text."""
    return WITHIN.join(key)


def named(text: str) -> Key:
    """Return the node of a piece with this name: the inverse of `name_of`."""
    member, child, scope, principal = (*text.split(WITHIN), "", "", "")[:4]
    return (member, child, scope, principal)


def part_of(scope: Scope, user: str, member: Declaration) -> NodeIdentity | None:
    """Return the identity of a member's node of the scope space or user. None: it belongs to one session."""
    if scope == "session":
        return None
    if scope == "user":
        return NodeIdentity(member=member.stored, code=member.stored, scope="user", principal=user)
    return _of_space(member.stored)


@lru_cache(maxsize=SHARED)
def _of_space(stored: str) -> NodeIdentity:
    """Return the identity of a member's node of the scope space, which all pieces share."""
    return NodeIdentity(member=stored, code=stored)


def row_of(member: str) -> str:
    """Return the member name under which the rows of an `each`, or the one row of a `child`, are known."""
    return f"{member} row"
