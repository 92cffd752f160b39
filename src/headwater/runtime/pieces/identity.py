"""The names of a piece's nodes over restarts: what is known of a node is known under its part.

A part is the name of a node inside its piece. What is one session's has none: the next process is another session. Owns
names; knows no code and compares nothing.

What a node's code is made of, as its observation says it beside its fingerprint, and what two such texts differ in.

The fingerprint alone decides. It is a digest for each node, since what a piece was given and where results go are in
it. What its code is made of is the same for all nodes of a member, so that it stands behind their kind, which is stored
once for all of them: a few characters for each sort of thing. They tell people what changed, as far as they can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.pieces.declarations import Declaration
from headwater.pieces.fingerprints.change_kinds import SAID, differing
from headwater.protocol.observations import BETWEEN

if TYPE_CHECKING:
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.view import ScopedView

__all__ = ["changes", "kind_of", "with_kinds"]


KIND: Final = "what kind of member it is"
GIVEN: Final = "what it was given, what its reads are by default, or where it writes"
SOMETHING: Final = "something that it refers to"


def with_kinds(kind: str, kinds: str) -> str:
    """The kind of a node, and behind it what its code is made of, if that is known."""
    return f"{kind} {kinds}" if kinds else kind


def kind_of(said: str) -> str:
    """The kind of a node, out of that."""
    return said.partition(" ")[0]


def changes(before: str, after: str) -> tuple[str, ...]:
    """What two nodes of different fingerprints differ in, in words, out of the same."""
    (one, _, then), (other, _, now) = before.partition(" "), after.partition(" ")
    if one != other:
        return (KIND,)
    if then == now:
        return (GIVEN,) if now else (SOMETHING,)
    return tuple([SAID[kind] for kind in differing(then, now)]) or (SOMETHING,)


KEYS: Final = "keys of "
"""What an `each` reads of its elements to know which there are has a fingerprint of its own."""
WITHIN: Final = "\x1e"
"""Between the parts of a node's name. It is in none of them."""
Key = tuple[str, str, str, str]
"""The member, the child and the element, the scope and whose it is: a node of a piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """A node of a piece, by names that a later process knows, too."""

    member: str
    code: str  # whose fingerprint is its own; empty: there is no author's code in it
    element: str = ""  # the key of the element whose row it is
    scope: str = ""
    principal: str = ""
    is_keeper: bool = False  # it keeps rows, and needs to know all of them
    is_new: bool = False  # its element came just now: nothing is known of it
    # What it keeps beside its result, as texts, and having that back. None: it keeps nothing.
    started: Callable[[], tuple[str, ...] | None] | None = None
    restore: Callable[[tuple[str, ...]], bool] | None = None

    def key(self, home: PieceInstance) -> Key:
        child = home.id if home.parent is not None else ""
        if self.element:
            child = f"{child}{BETWEEN}{self.element}"
        return (self.member, child, self.scope, self.principal)


def name_of(key: Key) -> str:
    """A node of a piece as one text."""
    return WITHIN.join(key)


def named(text: str) -> Key:
    """The node of a piece that was named so."""
    member, child, scope, principal = (*text.split(WITHIN), "", "", "")[:4]
    return (member, child, scope, principal)


def part_of(facet: ScopedView, member: Declaration) -> NodeIdentity | None:
    """The node of a member that is computed for everybody or for a user. None: it is one session's."""
    if facet.scope == "session":
        return None
    is_users = facet.scope == "user"
    return NodeIdentity(
        member=member.stored,
        code=member.stored,
        scope="user" if is_users else "",
        principal=facet.user if is_users else "",
    )


def row_of(member: str) -> str:
    """What the rows of an `each` are called, and the one of a `child`."""
    return f"{member} row"
