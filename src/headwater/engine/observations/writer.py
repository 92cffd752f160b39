"""Keeps the observations of nodes, each with the commit of its run, or drops it.

Owns the rows of observations; `reader_index` finds the pieces that read a document. An observation is kept if its reads
are current: because they were admitted with its commit, or by the same function. It replaces an earlier observation of
its node, never a later one. It has no seq, makes no log row and is sent to no peer. Dropping one fails nothing: its
node is then as unknown as before.

Most runs repeat the reads of the last one. Then only the state of the node is new: seqs and times. It is stored in the
log row of its commit, and the table is written back later, together with heads, and before rows are listed. Recovery
restores from the log the states that the table lacks. A run with other reads, other code or a failure, and one without
a commit, is written to the table at once.

No commit writes a mark for the readers of its documents: the head of a document tells all of them at once that it was
written after a node was verified. So a mark can neither be missing nor be cleared together with another (see
`queries`), and a document with ten thousand readers costs as much as one without.

A piece whose record is made, or removed, is another piece. `ReplacedPieces` drops the observations of the former one in
the transaction of that commit, so that after no moment and no crash a node of the new piece is taken for one that had
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from headwater.data.address import NAME_LENGTH, DocKey
from headwater.data.path import Path, check_path
from headwater.engine.admission.admission import Admission
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Heads
from headwater.engine.log.log import Log
from headwater.engine.log.sessions import StoredSession
from headwater.engine.observations.clean_pieces import CleanPieceReports
from headwater.engine.observations.codec import (
    Body,
    NodeState,
    ObservedNode,
    RunState,
    StoredDoc,
    StoredRead,
    StoredState,
    decode_body,
    decode_run,
    decode_state,
    encode_form,
    forms_of,
    pages_of,
)
from headwater.engine.observations.interned_names import InternedNames
from headwater.engine.observations.reader_index import ReaderIndex
from headwater.engine.store.port import NodeNumbers, ObservationRow, Store
from headwater.errors import InvalidValueError, LimitError, ProtocolError
from headwater.protocol.commit import Commit, Read
from headwater.protocol.observations import (
    MOST_AWAKE,
    RECORD,
    WHOLE,
    Footprint,
    Observation,
    decode_about,
    decode_footprint,
    is_below,
    whose_record,
)

TOO_MUCH: Final = "an observation names more, or longer, than is kept of a node"


class ObservationWriter:
    """Keeps observations, inside the open store transaction. `is_on` False: keeps none."""

    __slots__ = (
        "_abouts",
        "_added",
        "_admission",
        "_below",
        "_generations",
        "_heads",
        "_is_written",
        "_known",
        "_limits",
        "_log",
        "_names",
        "_new",
        "_readers",
        "_rows",
        "_store",
        "_unwritten",
        "clean_pieces",
        "is_on",
    )

    def __init__(
        self,
        store: Store,
        log: Log,
        heads: Heads,
        admission: Admission,
        readers: ReaderIndex,
        limits: Limits,
        *,
        is_on: bool,
    ) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._admission = admission
        self._limits = limits
        self._readers = readers
        self.clean_pieces = CleanPieceReports(store, limits)
        self._names = InternedNames(store, limits)
        self.is_on = is_on
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory, so that the disk decides."""
        self._names.forget()
        self._abouts: dict[tuple[int, bytes], ObservedNode] = {}  # by branch
        self._known: dict[NodeNumbers, StoredState] = {}
        self._generations: dict[tuple[int, int], int] = {}  # the newest one, by branch and piece
        self._rows: dict[NodeNumbers, ObservationRow] = {}  # to be written at the end of the group
        self._added = 0  # of them, how many are new
        self._new: set[tuple[int, int]] = set()  # branches and pieces without any row in the table
        self._unwritten: dict[NodeNumbers, ObservationRow] = {}  # of earlier groups, too: the log has their states
        self._below: dict[tuple[int, int], list[tuple[str, tuple[int, int, int]]]] = {}  # children that are gone
        self._is_written = False  # whether anything was written in this transaction
        self._readers.forget()
        self.clean_pieces.forget()

    # ---- what a frame observes -------------------------------------------------------------------

    def record_unchanged(self, session: StoredSession, branch: Branch, observation: Observation) -> None:
        """Keep a run that changed nothing, as of now, if its reads are current by the rule for commits."""
        last_seq = self._log.next_seq - 1
        try:
            about = self._abouts.get((branch.id, observation.about)) or self._about(branch, observation.about)
            if about.is_whole:
                # From now on its nodes are known by the piece's generation, which queries ask for.
                if observation.seq <= last_seq and self._is_of_this_generation(about.node):
                    self._write_rows()  # Observations kept in this group are part of it.
                    self._names.mark_used((about.node.piece, about.node.member, about.fingerprint))
                    self.clean_pieces.report(
                        session, branch, about.node, about.fingerprint, observation, self._awake(observation)
                    )
                return
            if observation.seq > last_seq or not (observation.gone or self._is_current(session, branch, observation)):
                return
            self._keep(session, branch, observation, last_seq, wrote=False)
        except (ProtocolError, LimitError):
            return  # It has nothing that can be kept, and counts as not observed.

    def record_runs(
        self, session: StoredSession, branch: Branch, observations: Iterable[Observation], seq: int, *, wrote: bool
    ) -> None:
        """Keep the runs of the commit that was admitted last, with their reads, at its seq."""
        states: list[bytes] = []
        # fault+ observations.verified_after_frame: seq += 1
        for observation in observations:
            try:
                state = self._keep_state(session, branch, observation, seq, wrote=wrote)
                if state:
                    states.append(state)
                else:
                    self._keep(session, branch, observation, seq, wrote=wrote)
            except (ProtocolError, LimitError):
                continue  # As above; its commit stands.
        if states:
            self._log.attach(states)

    def _keep_state(
        self, session: StoredSession, branch: Branch, observation: Observation, seq: int, *, wrote: bool
    ) -> bytes:
        """Keep a run that repeats the last one of its node, and return its state for the log row of its commit.

        Return nothing if it does not repeat that run, or nothing is known of it here.
        """
        # fault+ observations.stored_for_parent_branch: return b""
        about = self._abouts.get((branch.id, observation.about))
        known = None if about is None else self._known.get(about.node)
        if (
            about is None
            or known is None
            or known.session != session.id
            or known.order >= observation.order
            or known.footprint != observation.footprint
            or not known.footprint
            or not about.fingerprint
            or known.what != (about.kind, about.fingerprint, about.gate, 0)
            or about.node in self._rows
            or self._generations.get(about.node[:2]) != about.node.generation
            or observation.gone
            or observation.failed
            or observation.foreign
            or isinstance(observation.cause, tuple)
        ):
            return b""
        node, order, what = about.node, observation.order, known.what
        changed_at = seq if wrote else known.changed_at
        state = encode_form(
            NodeState(*what, observation.took_us, changed_at, seq, session.id, order, observation.cause, ())
        )
        self._unwritten[node] = ObservationRow(*node, state, known.body)
        self._known[node] = StoredState(changed_at, seq, session.id, order, what, known.body, known.footprint)
        self.clean_pieces.count_observation(session)
        return encode_form(RunState(*node[1:], state))

    def _awake(self, observation: Observation) -> tuple[str, ...] | None:
        """The nodes of a piece that are to be there though all of it is clean. None: that cannot be kept."""
        try:
            children = self._footprint(observation).children
        except ProtocolError:
            return None
        return children if len(children) <= MOST_AWAKE else None

    def _is_current(self, session: StoredSession, branch: Branch, observation: Observation) -> bool:
        # fault+ observations.stale_runs_kept: return True
        footprint = self._footprint(observation)
        layers = observation.layers or ((),) * len(footprint.reads)
        if len(layers) != len(footprint.reads) or not all(map(self._are_layers, layers)):
            return False
        reads = zip(footprint.reads, layers, strict=True)
        return not self._admission.conflict(
            session, branch, tuple([Read(r.doc, r.path, r.depth, observation.seq, under) for r, under in reads])
        )

    def _are_layers(self, layers: tuple[tuple[int, int], ...]) -> bool:
        named = 0
        for first, last in layers:
            named += last - first + 1
            if not 0 < first <= last or named > self._limits.read_layers:
                return False
        return True

    def _footprint(self, observation: Observation) -> Footprint:
        footprint = decode_footprint(observation.footprint, self._limits.values)
        reads, children, most = footprint.reads, footprint.children, self._limits.commit_reads
        if len(reads) > most or len(children) > most or len(observation.foreign) > most:
            raise ProtocolError(TOO_MUCH)
        for read in reads:
            if len(read.doc.id) > NAME_LENGTH or len(read.doc.scope) > 2 * NAME_LENGTH:
                raise ProtocolError(TOO_MUCH)
        if children:
            check_names(children)
        return footprint

    def _keep(self, session: StoredSession, branch: Branch, observation: Observation, seq: int, *, wrote: bool) -> None:
        """Store an observation whose reads are current as of a seq, unless a later run of the node was observed."""
        # fault+ observations.stored_for_parent_branch: branch = branch.parent or branch
        about = self._abouts.get((branch.id, observation.about)) or self._about(branch, observation.about)
        # A commit is judged now, and so are the layers of a run; without any, its reads are as of their own seq.
        seen = seq if observation.local_seq or observation.layers else observation.seq
        node, said = about.node, (session.id, observation.order, seen)
        if observation.gone:
            if node.child and not about.has_member:
                self._below.setdefault(node[:2], []).append((node.child, said))  # One look at the piece for all.
            else:
                self.remove(node, whole_piece=not about.has_member, is_over=lambda state: not _is_later(state, said))
            self.clean_pieces.count_observation(session)
            return
        if self._generations.get(node[:2]) != node.generation and not self._is_of_this_generation(node):
            return
        known = self._known.get(node) or self._stored(node)
        if known is not None and _is_later(known, said):
            return  # It is a replay, or a later run was observed already.
        # All refusals come first: past them, memory and rows change together.
        is_remembered = known is not None and known.footprint == observation.footprint
        reads, body = (None, known.body) if known is not None and is_remembered else self._body(branch, observation)
        failed = 0
        if observation.failed:
            check_names((observation.failed,))
            failed = self._names.number_of(observation.failed)
        what = (about.kind, about.fingerprint, about.gate, failed)
        is_same = known is not None and known.what == what and known.body == body and not observation.foreign
        if not is_same or not about.fingerprint or observation.failed:
            self._is_written = self.clean_pieces.drop_report(node) or self._is_written
        self.clean_pieces.count_observation(session)
        if known is not None and is_same and known.session != session.id and known.verified_at >= said[2]:
            return  # Another runtime has found the same, having seen as much.
        changed_at = seq if wrote else known.changed_at if known is not None else 0
        state = self._state(session, branch, observation, what, changed_at, seq)
        made_of = observation.footprint
        if reads is not None:
            if known is None or known.body != body:
                self._readers.update_reads(node, () if known is None else decode_body(known.body).reads, reads)
            for read in reads:
                if type(read.doc) is tuple:
                    made_of = b""  # A document that was never written is named; once it has a number, it is not.
                    break
        if known is None:
            self._added += 1
        self._rows[node] = ObservationRow(*node, state, body)
        self._unwritten.pop(node, None)
        if self._names.is_sweeping:
            self._names.mark_used((node.piece, node.member, node.scope, *what))
        self._known[node] = StoredState(changed_at, seq, session.id, observation.order, what, body, made_of)

    def _state(
        self,
        session: StoredSession,
        branch: Branch,
        observation: Observation,
        what: tuple[int, int, int, int],
        changed_at: int,
        seq: int,
    ) -> bytes:
        cause: int | tuple[StoredDoc, Path] | None
        if isinstance(observation.cause, tuple):
            doc, path = observation.cause
            cause = self._doc(branch, doc), self._path(path)
        else:
            cause = observation.cause
        for read in observation.foreign:
            self._path(read.path)
        took_us, order = observation.took_us, observation.order
        return encode_form(NodeState(*what, took_us, changed_at, seq, session.id, order, cause, observation.foreign))

    def _path(self, path: Path) -> Path:
        try:
            return check_path(path, self._limits.values)
        except InvalidValueError as error:
            raise ProtocolError(f"the reads of an observation cannot be decoded: {error}") from error

    def _body(self, branch: Branch, observation: Observation) -> tuple[tuple[StoredRead, ...], bytes]:
        footprint, heads = self._footprint(observation), self._heads
        stored: list[StoredRead] = []
        for read in footprint.reads:
            head = heads.get(branch, read.doc)
            doc = head.doc or heads.number_of(head)
            stored.append(StoredRead(doc or (read.doc.scope, read.doc.id), read.path, int(read.depth)))
        reads = tuple(stored)
        return reads, encode_form(Body(reads, footprint.children))

    @property
    def is_behind(self) -> bool:
        """Whether the table lacks states that the log has."""
        return bool(self._unwritten)

    def write_back(self) -> None:
        """Write the states that only the log has to the table, inside the open store transaction."""
        if self._unwritten:
            self._write()

    def restore(self, observed: Sequence[tuple[int, bytes]]) -> None:
        """Write states from the log, oldest first, each with its branch, as far as the table has older ones."""
        newest: dict[NodeNumbers, bytes] = {}
        for branch, encoded in observed:
            run = decode_run(encoded)
            node = NodeNumbers(branch, run.piece, run.generation, run.member, run.child, run.scope)
            newest[node] = run.state
        rows: list[ObservationRow] = []
        for node, state in newest.items():
            row = self._store.observation(node)
            forms = None if row is None else forms_of(row)
            # A node that was removed, or whose later run had no commit, has no row here, or a later one.
            # fault observations.later_runs_overwritten: if row is not None and forms is not None:
            if row is not None and forms is not None and decode_state(state).verified_at > forms[0].verified_at:
                rows.append(row._replace(state=state))
        self._store.put_observations(rows, 0)

    def flush(self) -> bool:
        """Write the observations that the log does not have. False: none were written since the last call."""
        if self._rows or self._below or self._readers.is_changed:
            self._write_rows()
        is_written, self._is_written = self._is_written or self._names.is_added, False
        if self._names.is_added:
            self._names.is_added = False
            self._names.begin_sweep()
        if is_written and self._names.sweep_some():
            for held in (self._abouts, self._generations):
                held.clear()  # They name numbers, some of which are gone or will be those of other names.
        return is_written

    def _write(self) -> None:
        """Write all kept observations, also those that the log has: rows are listed next."""
        unwritten, self._unwritten = self._unwritten, {}
        self._rows.update(unwritten)
        self._write_rows()

    def _write_rows(self) -> None:
        self._is_written = True
        if self._below:
            self._rows.update(self._unwritten)  # Rows of removed children are listed below.
            self._unwritten.clear()
        if self._rows:
            self._store.put_observations(self._rows.values(), self._added)
        below, self._below, self._rows, self._added = self._below, {}, {}, 0
        self._new.clear()
        for at, gone in below.items():
            self._drop_below(at, gone)
        self._readers.write()
        for held in (self._known, self._generations, self._abouts):
            _shorten(held, self._limits.cached_observations)
        self._names.evict(self._limits.cached_observations)

    # ---- nodes that are no more ------------------------------------------------------------------

    def _is_of_this_generation(self, node: NodeNumbers) -> bool:
        """True unless a newer generation of the piece was observed, which replaced that of the node."""
        at = (node.branch, node.piece)
        newest = self._generations.get(at)
        if newest is None:
            stored = self._store.newest_generation(*at)
            newest = node.generation if stored is None else stored
            if stored is None:
                self._new.add(at)
        if node.generation > newest:
            self._renew(node)
        self._generations[at] = max(newest, node.generation)
        return node.generation >= newest

    def _renew(self, node: NodeNumbers) -> None:
        """Move the observations of a piece to another version of its class: the code of these nodes is the same."""
        self._write()  # Observations kept in this group may be part of it.
        self.clean_pieces.drop_report(node)
        for rows in pages_of(self._store, node.branch, node.piece, self._limits.page):
            older = [row for row in rows if row.generation < node.generation]
            self._store.drop_observations([row.key for row in older])
            renewed = [row._replace(generation=node.generation) for row in older]
            self._store.put_observations(renewed, len(renewed))
            for row in older:
                self._known.pop(row.key, None)

    def remove(self, node: NodeNumbers, *, whole_piece: bool, is_over: Callable[[NodeState], bool]) -> bool:
        """Forget one node, or all of a piece, as far as `is_over` says of their states. True: a piece had some."""
        self._write()  # Observations kept in this group may be part of it.
        had_some = False
        if whole_piece:
            for rows in pages_of(self._store, node.branch, node.piece, self._limits.page):
                had_some = True
                self._drop(rows, is_over)
            self._generations.pop((node.branch, node.piece), None)
        else:
            self._drop([row] if (row := self._store.observation(node)) is not None else [], is_over)
        self._write()
        return had_some

    def _drop_below(self, at: tuple[int, int], gone: list[tuple[str, tuple[int, int, int]]]) -> None:
        for rows in pages_of(self._store, *at, self._limits.page):
            for row in rows:  # Each row once, however many of the removed nodes it contains.
                over = [said for child, said in gone if is_below(row.child, child)]
                self._drop([row] if over else [], lambda state, over=over: not all(_is_later(state, s) for s in over))  # type: ignore[misc]

    def _drop(self, rows: list[ObservationRow], is_over: Callable[[NodeState], bool]) -> None:
        for row in rows:
            forms = forms_of(row)
            if forms is not None and not is_over(forms[0]):
                continue
            self._known.pop(row.key, None)
            self.clean_pieces.drop_report(row.key)
            self._readers.update_reads(row.key, forms[1].reads if forms is not None else (), ())
            self._store.drop_observations([row.key])

    def forget_branch(self, branch: Branch) -> None:
        """It was merged or deleted: nothing is known of its nodes any more."""
        self.write_back()
        # fault observations.merged_branch_kept:
        self._store.drop_observed_branch(branch.id)
        self.forget()

    # ---- numbers ---------------------------------------------------------------------------------

    def _about(self, branch: Branch, encoded: bytes) -> ObservedNode:
        said = decode_about(encoded)
        node = said.node
        if not node.piece:
            raise ProtocolError(TOO_MUCH)
        code = said.kind, said.fingerprint, said.gate
        check_names((node.piece, node.member, node.child, node.scope, node.principal, *code))
        whose = f"{node.scope}\0{node.principal}" if node.scope or node.principal else ""
        piece, member, scope, kind, fingerprint, gate = self._names.numbers_of((node.piece, node.member, whose, *code))
        numbers = NodeNumbers(branch.id, piece, node.generation, member, node.child, scope)
        made = ObservedNode(numbers, kind, fingerprint, gate, bool(node.member), node.member == WHOLE)
        self._abouts[branch.id, encoded] = made
        return made

    def _doc(self, branch: Branch, key: DocKey) -> StoredDoc:
        head = self._heads.get(branch, key)
        return self._heads.number_of(head) or (key.scope, key.id)

    def _stored(self, node: NodeNumbers) -> StoredState | None:
        if node[:2] in self._new:
            return None  # Its piece has rows of this group only, and those are known.
        row = self._unwritten.get(node) or self._store.observation(node)
        forms = forms_of(row) if row is not None else None
        if row is None or forms is None:
            return None  # An unreadable row counts as none.
        state = forms[0]
        what = (state.kind, state.fingerprint, state.gate, state.failed)
        return StoredState(state.changed_at, state.verified_at, state.session, state.order, what, row.body, b"")


def _is_later(stored: NodeState | StoredState, said: tuple[int, int, int]) -> bool:
    """True if the stored run is later, or the same one: by its session's count, or by the seqs that both had seen."""
    session, order, seq = said
    return stored.order >= order if stored.session == session else stored.verified_at > seq


def check_names(names: Iterable[str]) -> None:
    """Raise ProtocolError if a name is longer than names are kept of a node."""
    for name in names:
        if len(name) > NAME_LENGTH:
            raise ProtocolError(TOO_MUCH)


def _shorten(held: dict[Any, Any], most: int) -> None:
    """Evict the oldest entries."""
    while len(held) > most:
        del held[next(iter(held))]


class ReplacedPieces:
    """Drops the observations of former pieces, inside the open store transaction."""

    __slots__ = ("_store", "_writer")

    def __init__(self, store: Store, observing: ObservationWriter) -> None:
        self._store = store
        self._writer = observing

    def forget(self, branch: Branch, commit: Commit) -> None:
        """Drop observations after a commit was admitted, before those of its own run are kept."""
        # fault+ remade.observations_kept: return
        for operation in commit.operations:
            id = whose_record(operation.doc) if operation.doc.id.endswith(RECORD) else ""
            if id and any(not patch.path for patch in operation.patches):
                piece = self._store.number_of(id)
                if piece is not None:
                    # I7: also observations of other sessions by now; they were of the former piece.
                    node = NodeNumbers(branch.id, piece, 0, 0, "", 0)
                    if self._writer.remove(node, whole_piece=True, is_over=lambda _: True):
                        self._writer.clean_pieces.forget_piece(branch, id)
