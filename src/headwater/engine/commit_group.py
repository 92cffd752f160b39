"""A group: several frames, one store transaction, one fsync, verdicts after it.

Each frame is checked and judged in turn, so that later frames see earlier ones, and is written in its own savepoint.
Inside a group, memory runs ahead of the disk; if the transaction does not commit, all of it is dropped and the disk
decides (C7). Upholds C5, C7 and C10.

`check_commits` refuses commits that no honest peer sends, whatever the space holds; `Admission` judges the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.clock import Clock
from headwater.data.address import NAME_LENGTH, DocKey
from headwater.data.patch import replace
from headwater.data.path import Path
from headwater.data.value import MAX_INT
from headwater.engine.admission.access import ACCESS, Access, founding
from headwater.engine.admission.admission import Admission, Planned
from headwater.engine.admission.user_stock import UserStock
from headwater.engine.delivery.commit_outbox import CommitOutbox
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch, Branches
from headwater.engine.log.heads import Heads
from headwater.engine.log.log import Log
from headwater.engine.log.sessions import FOUNDER, MERGES, AcceptedCommit, Sessions, StoredSession
from headwater.engine.observations.writer import ObservationWriter, ReplacedPieces
from headwater.engine.planned_writes import PlannedWrites
from headwater.engine.store.port import Store
from headwater.engine.waves import Waves, check_wave, size_refusal
from headwater.errors import LimitError, ProtocolError
from headwater.protocol.commit import (
    MAIN,
    Checked,
    Commit,
    Frame,
    LeaseHeld,
    Operation,
    OriginCommitted,
    Precondition,
    Read,
    WellFormed,
    checked_frame,
    decode_frame,
    encode_commit,
    encode_frame,
    is_sound,
    without,
    without_results,
)
from headwater.protocol.log_record import DROPPED, charged_bytes
from headwater.protocol.observations import Observation
from headwater.protocol.reactions import lease_name
from headwater.protocol.verdict import Accepted, Conflict, Rejected, Rejection, RuleRefused, Verdict


def check_commits(commits: Frame, last_seq: int, limits: Limits) -> None:
    """ProtocolError: one is no commit of a session that has seen a log which ends there.

    Results of one wave share the objects of their reads. A layer that an earlier commit may name, a later one may, too.
    """
    known: set[int] = set()  # the `id` of each read that was checked
    for commit in commits:
        operations = commit.operations
        if len(operations) > 1 and len({op.doc for op in operations}) < len(operations):
            raise ProtocolError(
                f"commit {commit.local_seq} names a document in two operations. Put its patches into one."
            )
        for read in commit.reads:
            if id(read) not in known:
                known.add(id(read))
                _check_read(commit, read, last_seq, limits)
        _check_causes(commit, commit.provenance.causes)
        if commit.results:
            check_wave(commit)
            causes: object = None
            for result in commit.results:
                if result.provenance.causes is not causes:  # Most results of a wave have the same.
                    causes = result.provenance.causes
                    _check_causes(commit, result.provenance.causes)
        for condition in commit.preconditions:
            _check_precondition(commit, condition)
        for event in commit.events:
            if not 0 <= event.due_us <= MAX_INT:
                raise ProtocolError(
                    f"event {event.id!r} of commit {commit.local_seq} is due at {event.due_us}: write microseconds "
                    f"from 0 to {MAX_INT}"
                )
        if commit.delivered:
            _check_delivered(commit)
        if commit.declared:
            _check_declared(commit)


def _check_causes(commit: Commit, causes: tuple[tuple[DocKey, Path], ...]) -> None:
    for doc, _ in causes:
        if len(doc.id) > NAME_LENGTH or len(doc.scope) > 2 * NAME_LENGTH:
            raise ProtocolError(f"commit {commit.local_seq} names a cause that is over {NAME_LENGTH} long")


def _check_read(commit: Commit, read: Read, last_seq: int, limits: Limits) -> None:
    if not 0 <= read.seq <= last_seq:
        raise ProtocolError(
            f"commit {commit.local_seq} read {read.doc.scope}:{read.doc.id} at seq {read.seq}, but the log "
            f"ends at {last_seq}"
        )
    if len(read.doc.id) > NAME_LENGTH or len(read.doc.scope) > 2 * NAME_LENGTH:
        raise ProtocolError(f"commit {commit.local_seq} read a document whose name is over {NAME_LENGTH} long")
    if read.layers:
        _check_layers(commit, read.layers, limits)


def _check_precondition(commit: Commit, condition: Precondition) -> None:
    if isinstance(condition, OriginCommitted) and not 0 < condition.local_seq < commit.local_seq:
        raise ProtocolError(
            f"commit {commit.local_seq} names {condition.local_seq} as its origin: an origin is an earlier commit"
        )
    if isinstance(condition, LeaseHeld) and not 0 <= condition.token <= MAX_INT:
        raise ProtocolError(f"commit {commit.local_seq} names a lease with token {condition.token}, which none has")


def _check_layers(commit: Commit, layers: tuple[tuple[int, int], ...], limits: Limits) -> None:
    named = 0
    for first, last in layers:
        named += last - first + 1
        if not 0 < first <= last < commit.local_seq or named > limits.read_layers:
            raise ProtocolError(
                f"commit {commit.local_seq} names the layers {first} to {last}: layers are earlier commits "
                f"of its own session, at most {limits.read_layers} of them"
            )


def _check_delivered(commit: Commit) -> None:
    """A position moves only for the holder of its target, on the branch whose records are delivered, and once."""
    held = {each.name for each in commit.preconditions if isinstance(each, LeaseHeld)}
    named = [lease_name(each.reaction, each.key) for each in commit.delivered]
    if commit.branch != MAIN:
        raise ProtocolError(f"commit {commit.local_seq} delivers records on a branch: only those of {MAIN!r} are")
    if len(set(named)) < len(named) or not held.issuperset(named):
        raise ProtocolError(
            f"commit {commit.local_seq} delivers to a target twice, or without lease_held. Name the lease of each once."
        )


def _check_declared(commit: Commit) -> None:
    """Reactions are declared on the branch whose records are delivered, each once."""
    if commit.branch != MAIN:
        raise ProtocolError(f"commit {commit.local_seq} declares reactions on a branch: only {MAIN!r} is delivered")
    if len({each.reaction for each in commit.declared}) < len(commit.declared):
        raise ProtocolError(f"commit {commit.local_seq} declares a reaction twice. Declare each once.")


Outcome = tuple[Verdict, ...] | ProtocolError | LimitError
"""A verdict per commit, or why the frame is no frame of this session at all."""

_NONE: Final[list[Verdict]] = []
UNWRITABLE: Final = (TypeError, ValueError, AttributeError, OverflowError, NotImplementedError, RecursionError)
"""The exceptions of encoding an object that is not a commit."""


class CommitGroup:
    """Judges frames inside one open store transaction and writes the accepted commits."""

    __slots__ = (
        "_accepted",
        "_access",
        "_admission",
        "_at_us",
        "_branches",
        "_clock",
        "_commit_outbox",
        "_dropped",
        "_few_bytes",
        "_heads",
        "_limits",
        "_log",
        "_observed",
        "_replaced",
        "_sessions",
        "_store",
        "_user_stock",
        "_waves",
        "_writes",
    )

    def __init__(
        self,
        store: Store,
        log: Log,
        heads: Heads,
        branches: Branches,
        sessions: Sessions,
        admission: Admission,
        writes: PlannedWrites,
        commit_outbox: CommitOutbox,
        user_stock: UserStock,
        observations: ObservationWriter,
        access: Access | None,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._branches = branches
        self._sessions = sessions
        self._admission = admission
        self._writes = writes
        self._waves = Waves(log, heads, sessions, admission, writes, access, limits)
        self._commit_outbox = commit_outbox
        self._user_stock = user_stock
        self._observed = observations
        self._replaced = ReplacedPieces(store, observations)
        self._access = access
        self._clock = clock
        self._limits = limits
        # A commit of so few bytes is under every limit on its parts, each of which takes a byte.
        self._few_bytes = min(limits.commit_bytes, limits.commit_reads, limits.commit_operations, limits.commit_patches)
        self._accepted = False
        self._dropped: dict[int, frozenset[DocKey]] = {}  # by the seqs of this group's commits, if there are any
        self._at_us = 0

    def judge_frame(
        self, session: StoredSession, frame: Frame, *, alone: bool = False, observed: tuple[Observation, ...] = ()
    ) -> Outcome:
        """Judge one frame. A frame outside the protocol changes nothing and has no verdicts.

        `alone`: it is the only one of its transaction, which is all the savepoint that it needs.
        """
        try:
            if not (isinstance(frame, Checked) and frame.limits is self._limits.values):
                frame = self._validate(frame)
            # fault group.replays_judged_again: known = []
            # fault group.replayed_waves_judged_again: known = self._replays(session, frame) if len(frame) == 1 else []
            known = self._replays(session, frame)
            fresh = frame[len(known) :] if known else frame
            encoded = _encode_each(fresh)
            if sum(map(len, encoded)) > self._limits.frame_bytes:
                raise LimitError(f"the frame is longer than {self._limits.frame_bytes} bytes. Send several.")
        except (ProtocolError, LimitError) as error:
            return error
        if not fresh:
            return tuple(known)
        if not alone:
            self._store.savepoint()
        verdicts = self._judge_commits(session, fresh, encoded, observed)
        # fault+ observations.stored_first: if alone: self._observed.flush(), self._store.commit(), self._store.begin()
        if self._log.close_frame():
            self._accepted = True
            self._sessions.keep_judged(session)
            self._sessions.trim(session)
        # fault+ remade.forgotten_later: if alone: self._store.commit(), self._store.begin()
        # fault+ remade.forgotten_later: [self._replaced.forget(self._branches.find(c.branch), c) for c in fresh]
        if not alone:
            self._store.release()
        return (*known, *verdicts) if known else tuple(verdicts)

    def _validate(self, frame: Frame) -> Frame:
        """Check a frame made in this process: content that cannot be read back must not be stored."""
        limits = self._limits.values
        # What a well-formed frame consists of has the right types, and so is read back as it was written.
        is_well_formed = isinstance(frame, WellFormed)
        if is_well_formed and is_sound(frame, limits):
            return frame
        try:
            checked = checked_frame(frame, limits)
        except UNWRITABLE as error:
            raise ProtocolError(f"the frame is not a sequence of commits: {error}") from error
        if is_well_formed:
            return checked
        return decode_frame(_encode_for_check(checked), limits)

    def begin(self) -> None:
        """All frames of a group have one time: when it was begun."""
        self._at_us = self._log.next_time(self._clock.now_us())
        self._accepted = False
        self._dropped.clear()

    def finish(self) -> bool:
        """Write back heads if it is time. False: nothing was accepted, and no transaction is needed."""
        if self._accepted and (
            self._log.replayed >= self._limits.heads_commits or self._heads.bytes_pinned > self._limits.cache_bytes // 2
        ):
            self._heads.write_back()
        # C7: observations are written with the commits that they describe, or not at all.
        is_observed = self._observed.flush()
        return self._sessions.evict() or self._accepted or is_observed

    def found_space(self, key: str, outcome: Outcome) -> None:
        """Write the access document of a space right behind its first accepted commit, inside the open transaction.

        The space belongs to the principal of the session; a session of this process has none, and then to
        `Founders.owner`. Because both commits are in one transaction, no space has content without an owner.
        """
        access = self._access
        if access is None or isinstance(outcome, Exception):
            return
        owner = self._sessions.get(key).principal or access.founders.owner
        if not owner or access.is_founded():
            return
        if not any(isinstance(verdict, Accepted) and not verdict.replayed for verdict in outcome):
            return
        founder = self._sessions.open_own(FOUNDER, self._clock.now_us())
        operation = Operation(ACCESS, (replace((), founding(owner)),))
        founded = self.judge_frame(founder, (Commit(founder.last + 1, (operation,)),))
        if isinstance(founded, Exception):
            raise founded

    # ---- replay ----------------------------------------------------------------------------------

    def _replays(self, session: StoredSession, frame: Frame) -> list[Verdict]:
        """C10: return the known verdicts of commits that already have one, before anything else is checked."""
        if len(frame) == 1 and session.last < frame[0].local_seq <= MAX_INT:
            check_commits(frame, self._log.next_seq - 1, self._limits)
            return _NONE
        self._check_frame(session, frame)
        known: list[Verdict] = []
        for commit in frame:
            if commit.local_seq > session.last:
                break
            known.append(self._known_verdict(session, commit))
        check_commits(frame[len(known) :], self._log.next_seq - 1, self._limits)
        return known

    def _known_verdict(self, session: StoredSession, commit: Commit) -> Verdict:
        logged = self._sessions.logged(session, commit.local_seq)
        if logged is not None:
            seq = logged.seq
            lost: tuple[int, ...] = ()
            if commit.results:
                wave = self._sessions.wave_of(session, commit.local_seq)
                lost = () if wave is None else wave.lost
                if lost and lost[-1] < len(commit.results):
                    commit = without_results(commit, lost)
            if logged.encoded != encode_commit(commit):
                self._log.decoded(seq, logged.encoded)  # CorruptionError: the row is damaged.
                # C10: the same key with other content is a mistake of the peer, not a second commit.
                raise ProtocolError(
                    f"commit {commit.local_seq} of session {session.key!r} was accepted at seq {seq} with other "
                    "content. A replay must repeat it byte for byte; new content needs a new local_seq."
                )
            # fault group.replay_gets_new_seq: return Accepted(commit.local_seq, seq + 1, replayed=True)
            # fault group.replay_answered_for_now: return Accepted(commit.local_seq, self._log.last_seq, replayed=True)
            return Accepted(commit.local_seq, seq, replayed=True, superseded=lost)
        if commit.local_seq <= session.row.acked:
            raise ProtocolError(
                f"commit {commit.local_seq} of session {session.key!r} is replayed although the client said, up to "
                f"{session.row.acked}, that it has the verdicts. Its key is no longer kept."
            )
        # Without a remembered reason the answer is still no: its turn is over (C5).
        return Rejected(commit.local_seq, session.refused.get(commit.local_seq, Conflict()))

    def _check_frame(self, session: StoredSession, frame: Frame) -> None:
        if not frame:
            raise ProtocolError("a frame holds at least one commit")
        if len(frame) > self._limits.frame_commits:
            raise LimitError(
                f"a frame of {len(frame)} commits is over the limit of {self._limits.frame_commits}. Send several."
            )
        last = 0
        for commit in frame:
            if not last < commit.local_seq <= MAX_INT:
                # C5: verdicts come in local_seq order, so commits do.
                raise ProtocolError(
                    f"commit {commit.local_seq} of session {session.key!r} comes after {last}: local_seq must rise, "
                    f"from 1 to {MAX_INT}"
                )
            last = commit.local_seq
            if commit.branch != frame[0].branch:
                raise ProtocolError("all commits of a frame are on one branch. Send one frame per branch.")

    # ---- judging and accepting -------------------------------------------------------------------

    def _judge_commits(
        self, session: StoredSession, frame: Frame, encodings: list[bytes], observed: tuple[Observation, ...]
    ) -> list[Verdict]:
        branch = self._branches.find(frame[0].branch)
        if branch is None:
            return [self._refused(session, commit, _branch_missing(commit.branch)) for commit in frame]
        runs = self.observe(session, branch, observed) if observed else {}
        verdict: Accepted | Rejected
        self._log.open_frame(session.id, branch.id, self._at_us)
        self._admission.begin_frame()
        verdicts: list[Verdict] = []
        # fault group.wave_judged_backwards: for commit, encoded in zip(frame[::-1], encodings[::-1], strict=True):
        for commit, encoded in zip(frame, encodings, strict=True):
            operations = commit.operations
            if commit.results and len(encoded) <= self._limits.commit_bytes:
                verdict, unwritten = self._waves.judge(session, branch, commit, encoded)
                if isinstance(verdict, Rejected):
                    self._sessions.refuse(session, commit.local_seq, verdict.rejection)
                else:
                    if unwritten:
                        self._dropped[verdict.seq] = unwritten
                    self._note_accepted(session, branch, commit, verdict, runs.get(commit.local_seq, ()))
                verdicts.append(verdict)
                continue
            is_plain = not (commit.events or commit.handled or commit.delivered or commit.declared)
            if is_plain and self._access is None and len(encoded) <= self._few_bytes:
                refusal = None
            else:
                refusal = self._refusal(session, branch, commit, encoded)
            if len(operations) + len(commit.reads) > self._limits.prefetch_documents and refusal is None:
                named = (*[each.doc for each in operations], *[each.doc for each in commit.reads])
                for _ in self._heads.many(branch, named):
                    pass  # They are in memory from here on.
            sizes = [len(encoded)] if len(operations) == 1 else charged_bytes(encoded, len(operations))
            plan = refusal or self._admission.judge(session, branch, commit, sizes)
            if not isinstance(plan, list):
                verdicts.append(self._refused(session, commit, plan))
                continue
            # An operation that changes nothing here is no write: it wakes no reader and conflicts with no commit.
            # fault group.equal_writes_kept: previous = tuple([planned[0].seq for planned in plan])
            previous = [head.seq if touched else DROPPED for head, _, touched in plan]
            seq = self._log.admit(commit.local_seq, encoded, tuple(previous))
            if DROPPED in previous:
                self._dropped[seq] = frozenset([head.key for head, _, touched in plan if not touched])
            self._apply(session, branch, commit, seq, plan, sizes)
            verdict = Accepted(commit.local_seq, seq)
            self._note_accepted(session, branch, commit, verdict, runs.get(commit.local_seq, ()))
            verdicts.append(verdict)
        # fault group.wave_judged_backwards: return verdicts[::-1]
        return verdicts

    def _note_accepted(
        self,
        session: StoredSession,
        branch: Branch,
        commit: Commit,
        verdict: Accepted,
        runs: Sequence[Observation],
    ) -> None:
        """Keep what the accepted commit, which was written, says about nodes."""
        seq, lost = verdict.seq, {*verdict.superseded, *[place for place, _ in verdict.refused]}
        # fault remade.forgotten_later:
        self._replaced.forget(branch, self.effective(seq, commit) if self._dropped else commit)
        if lost:
            # fault waves.lost_results_observed: pass
            runs = [run for run in runs if run.place not in lost]
        if runs:
            # I5: as of its own commit, so that its own writes do not make it dirty.
            self._observed.record_runs(session, branch, runs, seq, wrote=bool(commit.operations))

    def observe(
        self, session: StoredSession, branch: Branch, observed: tuple[Observation, ...]
    ) -> dict[int, list[Observation]]:
        """Keep current observations of runs that changed nothing. Return those of commits, by `local_seq`."""
        runs: dict[int, list[Observation]] = {}
        may_write = self._access is None or self._access.may_write(session.principal)
        for run in observed[: self._limits.frame_observations] if may_write and self._observed.is_on else ():
            if run.local_seq:
                if run.local_seq in runs:
                    runs[run.local_seq].append(run)
                else:
                    runs[run.local_seq] = [run]
            else:
                self._observed.record_unchanged(session, branch, run)
        return runs

    def observe_without_commits(
        self, session: StoredSession, branch_name: str, observed: tuple[Observation, ...]
    ) -> Outcome:
        """The same without a frame: nothing is judged, so that there is no verdict."""
        branch = self._branches.find(branch_name)
        if branch is not None:
            self.observe(session, branch, observed)
        return ()

    def _refused(self, session: StoredSession, commit: Commit, rejection: Rejection) -> Rejected:
        self._sessions.refuse(session, commit.local_seq, rejection)
        return Rejected(commit.local_seq, rejection)

    def _refusal(self, session: StoredSession, branch: Branch, commit: Commit, encoded: bytes) -> RuleRefused | None:
        """Return the reason of a rejection that no retry can change: its size, a taken event id, a missing right."""
        if self._access is not None:
            refused = self._access.refusal(session, commit)
            if refused is not None:
                return refused
        if session.key.startswith(MERGES):
            return None  # a merge is as large as its branch's changes, and cannot be split
        if len(encoded) > self._limits.commit_bytes:
            return RuleRefused(
                "commit_bytes",
                f"it is {len(encoded)} bytes long, over the limit of {self._limits.commit_bytes}. Split it.",
            )
        patches = sum([len(operation.patches) for operation in commit.operations])
        reads = len(commit.reads) + len(commit.provenance.causes)
        refused = size_refusal(reads, len(commit.operations), patches, self._limits)
        if refused is not None:
            return refused
        refused = self._user_stock.refusal(session, branch, commit)
        if refused is not None:
            return refused
        if commit.events or commit.handled or commit.delivered or commit.declared:
            return self._commit_outbox.refusal(commit)
        return None

    def _apply(
        self, session: StoredSession, branch: Branch, commit: Commit, seq: int, plan: list[Planned], sizes: list[int]
    ) -> None:
        """C7: past this point nothing can say no; a failing store fails the whole group."""
        self._user_stock.note(session, branch, commit)
        written = self._writes.write(session, branch, seq, plan, sizes)
        self._sessions.accept(session, commit.local_seq, AcceptedCommit(seq, branch.id, written))
        if commit.events or commit.records or commit.handled or commit.delivered or commit.declared:
            # fault group.events_lost: pass
            self._commit_outbox.store_sent(session, branch, commit, seq, self._at_us)

    @property
    def drops_operations(self) -> bool:
        """True if this group accepted an operation that changed nothing."""
        return bool(self._dropped)

    def effective(self, seq: int, commit: Commit) -> Commit:
        """A commit that this group accepted, without the operations that changed nothing where it landed."""
        # fault group.equal_writes_spread: return commit
        return without(commit, self._dropped[seq]) if seq in self._dropped else commit


def _encode_each(frame: Frame) -> list[bytes]:
    """Encode the commits of a frame, or raise for the one with content that cannot be encoded."""
    try:
        return list(map(encode_commit, frame))
    except UNWRITABLE:
        return [_encode(commit) for commit in frame]


def _encode_for_check(frame: Frame) -> bytes:
    """Encode the frame, or raise for the commit with content that cannot be encoded."""
    try:
        return encode_frame(frame)
    except UNWRITABLE:
        for commit in frame:
            _encode(commit)
        raise


def _encode(commit: Commit) -> bytes:
    """Encode a commit, or raise if it has content that cannot be encoded."""
    try:
        return encode_commit(commit)
    except UNWRITABLE as error:
        number = getattr(commit, "local_seq", "?")
        raise ProtocolError(f"commit {number} has a name or a number that cannot be written down: {error}") from error


def _branch_missing(name: str) -> RuleRefused:
    return RuleRefused("branch", f"branch {name!r} does not exist or was deleted")
