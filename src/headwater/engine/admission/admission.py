"""Admission: the decision whether a commit may enter the log. The rules C1 to C4, in one place.

Judges a commit against the current heads and plans the changes of acceptance. It changes nothing: all checks come
before all writes (C7). The same functions answer for stored read sets, so that "is this still current" has one
definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from headwater.data.address import Depth, DocKey, check_id, check_scope
from headwater.data.change import overlaps
from headwater.data.codec import encode
from headwater.data.patch import Patch, PatchError, Touch, apply
from headwater.data.value import ABSENT, Absent, MaybeValue, lookup, same
from headwater.engine.admission.preconditions import Preconditions
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch
from headwater.engine.log.heads import Head, Heads
from headwater.engine.log.log import Log
from headwater.engine.log.sessions import Sessions, StoredSession
from headwater.engine.log.write_index import NO_SESSION_ID
from headwater.errors import InvalidValueError
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.observations import Layers
from headwater.protocol.verdict import Collision, Conflict, Rejection, RuleRefused

Planned: TypeAlias = tuple[Head, MaybeValue, tuple[Touch, ...]]
"""The effect of one operation of an admitted commit: the document, its value afterwards, the paths touched."""


class Admission:
    """Decides about commits. Upholds C1, C2, C3 and C4."""

    __slots__ = ("_heads", "_holding", "_limits", "_log", "_preconditions", "_sessions")

    def __init__(
        self, log: Log, heads: Heads, sessions: Sessions, preconditions: Preconditions, limits: Limits
    ) -> None:
        self._log = log
        self._heads = heads
        self._sessions = sessions
        self._preconditions = preconditions
        self._limits = limits
        # Reads of the open frame that hold: the head of each document, and its seq then.
        self._holding: dict[Read, tuple[Head, int]] = {}

    def begin_frame(self) -> None:
        """Forget the reads of the frame before, which may be of another session or branch."""
        self._holding.clear()

    def judge(
        self, session: StoredSession, branch: Branch, commit: Commit, sizes: list[int]
    ) -> Rejection | list[Planned]:
        """Return the reason to reject the commit, whose operations are charged `sizes`, or the plan of its changes."""
        # fault admission.preconditions_ignored: if False:
        if commit.preconditions:
            failed = self._preconditions.failure(commit.preconditions, session, branch)
            if failed is not None:
                return failed
        conflict = self.conflict(session, branch, commit.reads, self._holding) if commit.reads else None
        return self.plan(branch, commit.operations, conflict, sizes)

    # ---- reads -----------------------------------------------------------------------------------

    def conflict(
        self,
        session: StoredSession,
        branch: Branch,
        reads: tuple[Read, ...],
        holding: dict[Read, tuple[Head, int]] | None = None,
    ) -> Conflict | None:
        """C1: every read saw exactly the accepted overlapping writes before this commit. All that did not.

        `holding`: reads of the same session and branch that are known to hold, each with its head, and its seq then.
        """
        # C1: every read saw exactly the accepted overlapping writes before this commit, or it is named here.
        # fault+ admission.reads_not_compared: return None
        collisions: list[Collision] = []
        dead: set[int] = set()
        # Looked up once, however many reads of a document lost against the same commit.
        writers: dict[tuple[int, DocKey], tuple[str, str]] = {}
        fates: dict[tuple[DocKey, Layers], list[int]] = {}  # of the same layers, asked once
        expired = False
        inherits_from = branch.fork_seq
        for read in reads:
            # Results of one wave mostly read the same places: a read that held holds until its document is written.
            held = None if holding is None else holding.get(read)
            # fault admission.held_reads_held_for_good: if held is not None:
            if held is not None and held[0].seq == held[1]:
                continue
            head = self._heads.get(branch, read.doc)
            if read.layers:
                under = read.doc, read.layers
                if under not in fates:
                    # fault admission.dead_layers_admitted: fates[under] = []
                    fates[under] = self._dead_layers(session, branch, read)
                dead.update(fates[under])
            if head.seq <= read.seq and read.seq >= inherits_from:
                if holding is not None and not (dead or expired):
                    holding[read] = head, head.seq
                continue  # nothing was written after the basis
            if read.layers:
                seq, lost = self._latest_beside_layers(session, branch, head, read)
                expired = expired or lost
            else:
                seq = self._latest(branch, head, read, NO_SESSION_ID)
            if seq > read.seq:
                if (seq, read.doc) not in writers:
                    writers[seq, read.doc] = self._writer(seq, read.doc)
                writer = writers[seq, read.doc]
                collisions.append(Collision(read.doc, read.path, read.depth, read.seq, seq, *writer))
            elif holding is not None and not (dead or expired):
                holding[read] = head, head.seq
        if collisions or dead or expired:
            return Conflict(tuple(collisions), tuple(sorted(dead)), expired)
        return None

    def _dead_layers(self, session: StoredSession, branch: Branch, read: Read) -> list[int]:
        """C4: a commit over a layer that was not accepted, or is not shown by its branch, is rejected with it.

        A wave has a say in the documents of its accepted results alone: a read of another one saw a result that is not
        in the log.
        """
        # C4: a commit that depends on a rejected commit is rejected.
        dead = []
        # fault admission.only_top_layer_judged: for first, last in ((read.layers[-1][1], read.layers[-1][1]),):
        for first, last in read.layers:
            for local_seq in range(first, last + 1):
                place = self._sessions.place_of(session, local_seq)
                wave = None if place is None else self._sessions.wave_of(session, local_seq)
                # fault waves.superseded_result_is_a_layer: wave = None
                is_dead = wave is not None and read.doc not in wave.docs
                if is_dead or place is None or not branch.shows(place[1], place[0]):
                    # fault admission.cascade_skipped: dead += [local_seq] if local_seq not in session.refused else []
                    dead.append(local_seq)
        # fault admission.dead_layers_ignored: return []
        return dead

    def _latest(self, branch: Branch, head: Head, read: Read, leave_out: int) -> int:
        """The latest write on this branch that overlaps the read, as far as it is newer than the basis.

        A basis before the fork also meets the parent's writes. Those after the fork count too, although the
        branch does not see them: more than there are, never fewer (C2).
        """
        latest = 0
        if head.seq > read.seq:
            marks = head.marks
            if marks.since > read.seq:
                marks = self._heads.complete_index(branch, head)
            latest = marks.latest(read.path, read.depth, leave_out)
        if branch.parent is not None and read.seq < branch.fork_seq:
            inherited = self._heads.get(branch.parent, read.doc)
            latest = max(latest, self._latest(branch.parent, inherited, read, leave_out))
        return latest

    def _latest_beside_layers(self, session: StoredSession, branch: Branch, head: Head, read: Read) -> tuple[int, bool]:
        """C3: leaves out exactly the layers that the read names, and compares with its true basis."""
        # C3: all named layers are left out, nothing else, and the basis is the true one.
        # fault+ admission.own_commits_left_out: return self._latest(branch, head, read, session.id), False
        # fault+ admission.basis_too_late: places = [self._sessions.place_of(session, last) for _, last in read.layers]
        # fault+ admission.basis_too_late: seq = max([read.seq, *[place[0] for place in places if place]])
        # fault+ admission.basis_too_late: read = msgspec.structs.replace(read, seq=seq)
        # fault+ admission.own_writes_left_out: return self._latest(branch, head, read, session.id), False
        read = _as_layers_see_it(head, read)
        latest = self._latest(branch, head, read, session.id)
        if latest > read.seq:
            return latest, False
        if read.seq < session.forgotten_seq:
            # fault admission.forgotten_commits_ignored: return 0, False
            return self._own_unnamed_in_log(session, branch, head, read)
        for local_seq in reversed(session.landed_in.get(read.doc, ())):
            landed = session.landed[local_seq]
            if landed.seq <= read.seq:
                break
            if not branch.shows(landed.branch, landed.seq) or _named(read, local_seq):
                continue
            for doc, touched in landed.touched:
                if doc == read.doc and any(overlaps(touch, read.path, read.depth) for touch in touched):
                    return landed.seq, False
        return 0, False

    def _own_unnamed_in_log(self, session: StoredSession, branch: Branch, head: Head, read: Read) -> tuple[int, bool]:
        """The same from the log, for commits no longer remembered: any own write to the document counts (C2)."""
        if read.seq < self._log.kept_from - 1:
            return 0, True  # the rows that would tell are gone
        walked = 0
        at: Branch | None = branch
        start = head.seq
        while at is not None:
            for revision in self._log.history(start, read.doc, down_to=read.seq):
                walked += 1
                if walked > self._limits.scan_commits:
                    return 0, True
                if revision.session == session.id and not _named(read, revision.local_seq):
                    return revision.seq, False
            if read.seq >= at.fork_seq:
                break
            at = at.parent
            start = self._heads.get(at, read.doc).seq if at is not None else 0
        return 0, False

    def collision(self, read: Read, seq: int) -> Collision:
        return Collision(read.doc, read.path, read.depth, read.seq, seq, *self._writer(seq, read.doc))

    def _writer(self, seq: int, doc: DocKey) -> tuple[str, str]:
        """The session and node that wrote a document in a commit, as far as it is still known."""
        writer = self._log.writer_of(seq, doc)
        return (self._sessions.key_of(writer[0]), writer[1]) if writer is not None else ("", "")

    # ---- operations ------------------------------------------------------------------------------

    def plan(
        self, branch: Branch, operations: Sequence[Operation], conflict: Conflict | None, sizes: Sequence[int]
    ) -> Conflict | RuleRefused | list[Planned]:
        """Return the reason to reject operations, whose reads have this conflict, or the plan of their changes."""
        planned: list[Planned] = []
        collisions: list[Collision] = []
        values = self._limits.values
        for operation, size in zip(operations, sizes, strict=True):
            head = self._heads.get(branch, operation.doc)
            value = head.value
            touched: list[Touch] = []
            is_removed = False
            for patch in operation.patches:
                try:
                    value, more = apply(value, patch, values)
                except PatchError as error:
                    if error.is_limit:
                        return RuleRefused("value_limits", f"{head.key.scope}:{head.key.id} cannot hold it: {error}")
                    collisions.append(self._inapplicable(branch, head, patch, error))
                    break
                touched += more
                is_removed |= value is ABSENT
            # Patches that cancel each other change nothing. A document that was removed in between is made anew.
            if len(operation.patches) > 1 and not is_removed and same(head.value, value):
                touched.clear()
            planned.append((head, value, tuple(touched)))
            if not head.doc or head.base_bytes + head.patch_bytes + size > self._limits.document_bytes:
                refused = self._refused_document(head, value, size)
                if refused is not None:
                    return refused
        if conflict is None and not collisions:
            return planned
        known = conflict or Conflict()
        return Conflict(known.collisions + tuple(collisions), known.dead_layers, known.basis_expired)

    def _inapplicable(self, branch: Branch, head: Head, patch: Patch, error: PatchError) -> Collision:
        """It applied where it was written, so the document has changed: a stale view, worth a retry."""
        read = Read(head.key, patch.path, Depth.DEEP, 0)
        seq = self._latest(branch, head, read, NO_SESSION_ID)
        return msgspec.structs.replace(self.collision(read, seq), reason=f"cannot take {patch.kind!r} now: {error}")

    def _refused_document(self, head: Head, value: MaybeValue, size: int) -> RuleRefused | None:
        """Check the name of a new document, and the size of one that could exceed the limit since its snapshot."""
        if not head.doc:
            try:
                check_scope(head.key.scope)
                check_id(head.key.id)
            except InvalidValueError as error:
                return RuleRefused("document_name", str(error))
        if isinstance(value, Absent) or head.base_bytes + head.patch_bytes + size <= self._limits.document_bytes:
            return None
        if len(encode(value)) > self._limits.document_bytes:
            return RuleRefused(
                "document_bytes",
                f"{head.key.scope}:{head.key.id} has grown past {self._limits.document_bytes} bytes. Split it "
                "into several documents.",
            )
        return None


def _as_layers_see_it(head: Head, read: Read) -> Read:
    """C3: widen a read of an array that depends on layers to the whole array.

    The effect of a layer on an array depends on the whole array: the index of an append, the element that a removal by
    value took. So a read of an element or of the length depends on all of it (C2).
    """
    cut = next((place for place, step in enumerate(read.path) if type(step) is int), None)
    path = read.path if cut is None else read.path[:cut]
    if cut is None and (read.depth == Depth.DEEP or type(lookup(head.value, path)) is not tuple):
        return read
    return Read(read.doc, path, Depth.DEEP, read.seq, read.layers)


def _named(read: Read, local_seq: int) -> bool:
    return any(first <= local_seq <= last for first, last in read.layers)
