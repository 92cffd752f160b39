"""What a node's code is made of, as its observation says it beside its fingerprint, and what two such texts differ in.

The fingerprint alone decides. It is a digest for each node, since what a piece was given and where results go are in
it. What its code is made of is the same for all nodes of a member, so that it stands behind their kind, which is stored
once for all of them: a few characters for each sort of thing. They tell people what changed, as far as they can.
"""

from __future__ import annotations

from typing import Final

from headwater.pieces.fingerprints.change_kinds import SAID, differing

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
