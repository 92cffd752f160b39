"""Clean pieces: pieces whose nodes were all clean as of a seq, as reported by the runtime that had the piece open.

One row for each piece, beside the rows of its nodes. It is kept only if every observation of the reporting session was
kept, and is dropped with the first observation of other reads, other code or a failure: from then on it is not known
that every node has an observation. After a piece is deleted or recreated, reports of sessions opened before that are
ignored: they may describe the old piece. The row never says that one node is clean: writes after its seq are compared
node by node, by admission. A piece without a row is asked node by node.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.sessions import StoredSession
from headwater.engine.observations.codec import Body, NodeState, decode_state, encode_form
from headwater.engine.store.port import NodeNumbers, ObservationRow, Store
from headwater.protocol.observations import WHOLE, Observation, decode_about

NO_READS: Final = encode_form(Body(()))


class CleanPieceReports:
    """The rows of whole pieces, inside the open store transaction."""

    __slots__ = ("_counted", "_known", "_limits", "_remade", "_store", "_until")

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory. Reports of sessions opened before are not believed any more."""
        self._counted: Counter[int] = Counter()  # by session, how many of its observations were kept
        self._known: dict[tuple[int, int], bool] = {}  # by branch and piece, whether there is a row
        self._remade: dict[tuple[int, str], int] = {}  # by branch and piece, the last session that knew a former one
        self._until = self._store.last_session()  # Up to this one they may have known former ones of any piece.

    def count_observation(self, session: StoredSession) -> None:
        """Count an observation of a session that is stored, or was stored already."""
        self._counted[session.id] += 1
        if len(self._counted) > self._limits.clean_reports:
            del self._counted[next(iter(self._counted))]

    def forget_piece(self, branch: Branch, piece: str) -> None:
        """Forget the nodes of a piece: another piece has its name from now on, or none has."""
        last = self._store.last_session()
        if len(self._remade) >= self._limits.clean_reports:
            self._remade, self._until = {}, last
        self._remade[branch.id, piece] = last

    def report(
        self,
        session: StoredSession,
        branch: Branch,
        node: NodeNumbers,
        fingerprint: int,
        said: Observation,
        awake: tuple[str, ...] | None,
    ) -> None:
        """Store a session's report that a piece was clean as of a seq, or, without a fingerprint, that it may not be.

        The report is believed if no observation of the session is missing, or was dropped with a former piece, and if
        the list of nodes to keep `awake` can be stored; None: it is too long, or cannot be read.
        """
        former = self._remade.get((branch.id, decode_about(said.about).node.piece), self._until)
        # I7: a node without an observation is not among those that would be compared.
        is_believed = self._counted[session.id] == said.order - 1 and session.id > former
        self.count_observation(session)
        if not fingerprint or awake is None:
            self.drop_report(node)  # The former report is not true any more.
        if not (is_believed and fingerprint) or awake is None:
            return
        key = NodeNumbers(branch.id, node.piece, 0, node.member, "", 0)
        before = self._store.observation(key)
        if before is not None and decode_state(before.state).verified_at > said.seq:
            return
        state = encode_form(NodeState(0, fingerprint, 0, 0, 0, node.generation, said.seq, session.id, said.order))
        body = encode_form(Body((), awake)) if awake else NO_READS
        self._store.put_observations([ObservationRow(*key, state, body)], int(before is None))
        self._known[branch.id, node.piece] = True

    def drop_report(self, node: NodeNumbers) -> bool:
        """Note that a node of a piece changed, or is new. True: a row was dropped because of that."""
        at = (node.branch, node.piece)
        if self._known.get(at) is False:
            return False
        self._known[at] = False
        if len(self._known) > self._limits.clean_reports:
            del self._known[next(iter(self._known))]
        member = self._store.number_of(WHOLE) or 0  # 0: no piece was reported yet
        key = NodeNumbers(*at, 0, member, "", 0)
        if not member or self._store.observation(key) is None:
            return False
        self._store.drop_observations([key])
        return True
