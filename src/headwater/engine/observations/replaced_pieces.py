"""Remade: a piece whose record is made, or removed, is another one; what was known of its nodes is gone with that.

In the transaction of the commit that does it, whoever made it and whether or not anybody says so: there is no moment,
and no crash, after which a node of a new piece could be taken for one that had run. Owns which commits these are.
"""

from __future__ import annotations

from headwater.engine.log.branches import Branch
from headwater.engine.observations.writer import Observing
from headwater.engine.store.port import NodeNumbers, Store
from headwater.protocol.commit import Commit
from headwater.protocol.observations import whose_record


class Remade:
    """Forgets what was observed of former pieces, inside the open store transaction."""

    __slots__ = ("_observing", "_store")

    def __init__(self, store: Store, observing: Observing) -> None:
        self._store = store
        self._observing = observing

    def look(self, branch: Branch, commit: Commit) -> None:
        """A commit was admitted, and what was observed of its own run is not kept yet."""
        # fault+ remade.observations_kept: return
        for operation in commit.operations:
            id = whose_record(operation.doc)
            if id and any(not patch.path for patch in operation.patches):
                piece = self._store.number_of(id)
                if piece is not None:
                    # I7: also what another session has observed by now; it was of the former one.
                    node = NodeNumbers(branch.id, piece, 0, 0, "", 0)
                    if self._observing.remove(node, whole_piece=True, is_over=lambda _: True):
                        self._observing.wholes.remade(branch, id)
