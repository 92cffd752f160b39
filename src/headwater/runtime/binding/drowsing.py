"""Why a node of a sleeping piece did not run: it is not here, and everything that was live of its piece was clean.

Owns what `why` answers of such a node. Looks at what is here and asks nobody: what made its last run is stored, and is
told once something brings it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.pieces.declarations import (
    ChildMember,
    ComputedMember,
    EachMember,
    EffectMember,
    FoldMember,
    MaterializerMember,
)
from headwater.pieces.names import SEPARATOR
from headwater.scheduler.introspection.causes import ASLEEP, Explanation
from headwater.scheduler.node import NodeKind

if TYPE_CHECKING:
    from headwater.runtime.binding.pieces import Pieces

KINDS = {
    ComputedMember: NodeKind.COMPUTATION,
    EachMember: NodeKind.COMPUTATION,
    ChildMember: NodeKind.COMPUTATION,
    FoldMember: NodeKind.COMPUTATION,
    MaterializerMember: NodeKind.MATERIALIZER,
    EffectMember: NodeKind.EFFECT,
}


def explained(pieces: Pieces, node: str) -> Explanation | None:
    """What can be told of a node that is not here, by its id. None: it is of no piece that sleeps."""
    space, _, place = node.partition("/")
    id, _, stored = place.partition(" ")[0].rpartition(":")
    root = pieces.known(space, id.partition(SEPARATOR)[0])
    if root is None or root.phase is None or not root.phase.as_of or root.id != id:
        return None
    member = root.outline.get(stored)
    kind = KINDS.get(type(member)) if member is not None else None
    if kind is None:
        return None
    return Explanation(
        node=node,
        kind=kind.value,
        status=ASLEEP,
        runs=0,
        steps=(),
        pending=(),
        left_out=0,
        asleep_since=root.phase.as_of,
    )
