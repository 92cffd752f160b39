"""The hub: the engine's side of all conversations about one space. Sessions, watches, verdicts, fan-out.

Takes messages in the order of arrival, lets commits that arrived together share one group, and owes each peer two
things in this order: the verdicts of its own commits, then the changes of the documents that it watches (C6). Runs on
the engine's thread; does no input or output. Upholds C5 and C9 on the engine's side.

`opened` checks everything in an `Open` before the session is touched. `work_size` estimates the work of a message for a
host that has to choose a thread for it. It counts bytes: those of the message, of the documents that it writes or asks
for, and some for each thing that it names and each peer that it notifies. It asks only memory: work that would read the
disk, or has no bound that is known before (a page of documents, the past, catching up), is larger than any limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import maxsize
from typing import Final

from headwater.clock import Clock
from headwater.data.address import DocKey, check_id
from headwater.data.value import Value, size_of
from headwater.engine.admission.access import ACCESS
from headwater.engine.commit_group import Outcome
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.sessions import StoredSession
from headwater.engine.sync.conflict_turns import ConflictTurns
from headwater.engine.sync.error_codes import ending_code, problem_code, refused
from headwater.engine.sync.peer import AnswerBudget, Peer, PeerState, SyncWindows, size_of_patches
from headwater.engine.sync.queries import PeerQueries
from headwater.engine.sync.watch_table import KeptWatches, WatchTable
from headwater.errors import (
    AbsentError,
    AccessError,
    HeadwaterError,
    InvariantViolation,
    LimitError,
    ProtocolError,
    StorageError,
)
from headwater.protocol.commit import Commit, EntityAbsent, Frame, Provenance, origins_of, without
from headwater.protocol.hop_counts import make_patched
from headwater.protocol.messages import (
    Ack,
    Bye,
    ClaimCode,
    FromReplica,
    Hello,
    Open,
    Opened,
    Own,
    Problem,
    Query,
    Renew,
    Renewed,
    Sync,
    Transact,
    Unwatch,
    Verdicts,
    Watch,
    Watched,
    WatchEvents,
)
from headwater.protocol.observations import Observation, WatchWrittenDocuments
from headwater.protocol.reactions import Finish, WatchTargets
from headwater.protocol.verdict import Accepted, Conflict, Rejected

UNKNOWN: Final = maxsize


def work_size(engine: Engine, watching: WatchTable, peer: Peer, message: FromReplica, *, most: int, item: int) -> int:
    """About how many bytes are gone through for a message. Counting ends as soon as that is more than `most`.

    `item` is counted for each named thing besides its own bytes: a read, a document, an event, a notified peer.
    """
    match message:
        case Transact():
            total = 0
            for run in message.observations:
                total += 2 * item + len(run.about) + len(run.footprint)
            for commit in message.commits:
                if total > most:
                    break
                total += _size_of_commit(engine, watching, commit, most - total, item)
            return total
        case Ack():
            # A peer whose window was full is owed whole documents now.
            return UNKNOWN if peer.is_owed() else item
        case Open():
            # A resumed session is sent the changes that it missed.
            is_new = not (message.resume or message.seen or message.sent or message.acked)
            return _size_of_documents(engine, peer, [ACCESS], most, item) if is_new else UNKNOWN
        case Watch():
            if any(selector.follow for selector in message.selectors):
                return UNKNOWN
            return _size_of_documents(engine, peer, [selector.doc for selector in message.selectors], most, item)
        case Query():
            if message.at is not None or not message.doc:
                return UNKNOWN
            return _size_of_documents(engine, peer, [DocKey(message.scope, message.doc)], most, item)
        case Finish():
            return item * (1 + len(message.outcomes))
        case Unwatch() | Renew() | ClaimCode() | WatchEvents() | WatchWrittenDocuments() | WatchTargets():
            return item
        case _:
            return UNKNOWN


def _size_of_documents(engine: Engine, peer: Peer, docs: list[DocKey], most: int, item: int) -> int:
    total = 0
    for doc in docs:
        size = engine.size_in_memory(doc, branch=peer.branch)
        if size is None:
            return UNKNOWN
        total += item + size
        if total > most:
            break
    return total


def _size_of_commit(engine: Engine, watching: WatchTable, commit: Commit, most: int, item: int) -> int:
    operations, reads, events, records = commit.operations, commit.reads, commit.events, commit.records
    named = len(reads) + len(commit.results) + len(commit.preconditions) + len(events) + len(records)
    named += len(commit.handled) + len(commit.delivered) + len(commit.declared)
    total = item * (1 + named)
    if total > most:
        return UNKNOWN
    docs: list[DocKey] = []
    for operation in operations:
        docs.append(operation.doc)  # A comprehension would be one more call.
    for read in reads:
        docs.append(read.doc)
    for condition in commit.preconditions:
        if isinstance(condition, EntityAbsent):
            docs.append(condition.doc)
    heads = engine.heads_in_memory(docs, branch=commit.branch)
    if heads is None:
        return UNKNOWN
    for operation, head in zip(operations, heads, strict=False):
        told = len(watching.watchers.get((commit.branch, operation.doc), ()))
        patched = 0
        for patch in operation.patches:
            patched += item + size_of(patch.arg, most)
            if patched > most:
                return UNKNOWN
        total += head.base_bytes + head.patch_bytes + patched * (1 + told)
        if total > most:
            return UNKNOWN
    payloads: list[Value] = []
    for event in events:
        payloads.append(event.payload)
    for record in records:
        payloads.append(record.payload)
    for payload in payloads:
        total += size_of(payload, most)
        if total > most:
            return UNKNOWN
    for place, read in enumerate(reads, len(operations)):
        head = heads[place]
        if head.seq > read.seq:
            if head.marks.since > read.seq:
                return UNKNOWN  # Memory lacks the writes since.
            if read.layers:
                total += item * (head.seq - read.seq)
    return total


def open_session(engine: Engine, peer: Peer, message: Open, limits: Limits) -> StoredSession | None:
    """Return the session, which is this peer's from now on. None: it is gone, and the peer was sent a problem."""
    if peer.state is not PeerState.GREETED:
        raise ProtocolError("a connection opens one session, after it has said hello")
    peer.opens += 1
    if peer.opens > limits.session_opens:
        raise ProtocolError(
            f"a session is asked for {limits.session_opens} times at most on one connection. Make another one."
        )
    check_id(message.session)
    if len(message.sent) > limits.in_flight:
        raise LimitError(f"a session has at most {limits.in_flight} commits on the wire")
    # First: a user without a right gets the same answer whatever the space has.
    # fault+ opening.branches_told: if not engine.has_branch(message.branch): raise AbsentError("there is no branch")
    # fault opening.branches_told: if not engine.may_see(ACCESS, peer.principal, message.session):
    if not engine.may_see(ACCESS, peer.principal, message.session):
        raise AccessError(f"{peer.principal!r} may not read this space. {engine.access_advice}")
    if not engine.has_branch(message.branch):
        raise AbsentError(f"there is no branch {message.branch!r} in this space")
    # fault opening.restored_log_accepted: if False:
    if message.seen > engine.last_seq:
        # The space was restored from a backup, or begun anew: this replica shows state that is not in its log.
        ends = f"it has seen seq {message.seen}, but the log ends at {engine.last_seq}: this is not the space it knew"
        peer.send(Problem("session_gone", ends, fatal=False))
        return None
    # fault opening.restored_log_accepted: if False:
    if message.chain is not None and not engine.may_have_ended_at(message.seen, message.chain):
        # It was, and has grown past the state of this replica: no commit on that state may be judged by this log (C1).
        other = f"it has seen another log up to seq {message.seen}: this space was restored from a backup since"
        peer.send(Problem("session_gone", other, fatal=False))
        return None
    try:
        session = engine.resume_session(message.session, peer.principal, message.resume, message.following)
    except ProtocolError as error:
        peer.send(Problem("stale_token", str(error), fatal=False))
        return None
    if message.acked:
        # fault opening.acknowledges_one_more: engine.acknowledge(session.key, message.acked + 1)
        engine.acknowledge(session.key, message.acked)
    peer.session, peer.branch = message.session, message.branch
    peer.state = PeerState.OPEN
    return session


class Hub:
    """Everything connected to one space."""

    __slots__ = (
        "_access_changed",
        "_announced_seq",
        "_answer_budget",
        "_clock",
        "_engine",
        "_founded",
        "_frames",
        "_keeps_time",
        "_kept",
        "_limits",
        "_owed",
        "_peers",
        "_watching",
        "_windows",
        "on_answered",
        "queries",
        "turns",
    )

    def __init__(self, engine: Engine, clock: Clock, limits: Limits, *, keeps_time: bool = False) -> None:
        """`keeps_time`: `process` is called again after `due_us`, with nothing if need be."""
        self._engine = engine
        self._keeps_time = keeps_time
        self._clock = clock
        self._limits = limits
        self._peers: dict[str, Peer] = {}  # session -> the one connection that owns it
        self._kept: dict[str, KeptWatches] = {}
        self._watching = WatchTable(engine, limits)
        self._windows = SyncWindows()
        self._answer_budget = AnswerBudget(limits.answer_bytes)
        self.queries = PeerQueries(engine, limits, self._answer_budget)
        self.turns = ConflictTurns(limits)
        self._frames: list[tuple[Peer, Transact]] = []
        self._announced_seq = engine.last_seq  # commits up to here were announced to watchers
        self._access_changed = False
        self._founded = False  # known to be; nothing takes that back but a group that was lost
        self._owed: dict[Peer, None] = {}  # peers that may be owed changes
        # Called when messages should leave before more are made: peers were given a turn, or there are many bytes.
        self.on_answered: Callable[[], object] = lambda: None

    @property
    def sessions(self) -> int:
        return len(self._peers)

    @property
    def watched(self) -> int:
        """How many documents are watched, by connections and by sessions whose connection was lost."""
        return len(self._watching.watchers)

    @property
    def due_us(self) -> int | None:
        """How soon `process` has to be called again even if no message arrives. None: only with a message."""
        return self._limits.turn_us if self.turns.lines or self.turns.held else None

    def process(self, batch: Sequence[tuple[Peer, FromReplica]]) -> None:
        """Process messages. Commits gather until a message of another kind needs their effects."""
        self._catch_up()
        after: Sequence[tuple[Peer, FromReplica]] = ()
        if self._keeps_time and (self.turns.lines or self.turns.held):
            is_tick = not batch
            batch, after = self.turns.in_order(batch, self._clock.monotonic_us())
            if not (batch or after or is_tick):
                return  # All of it is kept back.
        self._process_messages(batch)
        if self.grant_turns():
            self.on_answered()
        if after:
            self._process_messages(after)
            self.grant_turns()
        self.flush()

    def _process_messages(self, batch: Sequence[tuple[Peer, FromReplica]]) -> None:
        for peer, message in batch:
            if peer.state is PeerState.CLOSED:
                continue
            if not isinstance(message, Transact | Ack) and (self._frames or not isinstance(message, Finish)):
                self._commit()  # a later message may read their writes; an acknowledgement does not
            try:
                if not peer.is_closed():  # by the failure of an earlier message
                    self._handle(peer, message)
            except HeadwaterError as error:
                self._end_connection(peer, error)
            if len(self._frames) >= self._limits.group_commits:
                self._commit()
            if self._answer_budget.is_spent():
                self.on_answered()
        self._commit()

    def grant_turns(self) -> bool:
        """Tell the next session after a conflict that it has the turn, with the changes that it needs for that."""
        if not self.turns.lines:
            return False
        given = self.turns.give_turns(self._clock.monotonic_us())
        for peer in given:
            self._send_news(peer, 0)
        return bool(given)

    def changed_outside(self) -> None:
        """Notify watchers of changes that were made without a message."""
        self.queries.targets_due()
        self.process(())

    def work_size(self, peer: Peer, message: FromReplica, most: int) -> int:
        """How large the work is that a message makes, or anything over `most`: see `work_size`."""
        item = self._limits.work_item_bytes
        return work_size(self._engine, self._watching, peer, message, most=most, item=item)

    def release_held(self) -> None:
        """End all turns, and judge the messages that were held back for them."""
        if self.turns.held:
            self.turns.end_turns()
            self.process(())

    def lost(self, peer: Peer) -> None:
        """A connection is gone. Its watches are kept for a while, the keys of its commits for ever."""
        if self._peers.get(peer.session) is peer:
            del self._peers[peer.session]
            if peer.leaves_nothing:
                self._watching.unwatch_all(peer)
            else:
                self._kept[peer.session] = KeptWatches(peer, self._clock.now_us() + self._limits.session_kept_us)
                self._bound_kept(peer.principal)
        self._forget(peer)
        self.expire()

    def _bound_kept(self, principal: str) -> None:
        """Drop the watches of the oldest lost connection of a user who has too many."""
        if len(self._kept) > self._limits.user_kept_sessions and principal:
            kept = [session for session, each in self._kept.items() if each.peer.principal == principal]
            if len(kept) > self._limits.user_kept_sessions:
                self._watching.unwatch_all(self._kept.pop(kept[0]).peer)

    def expire(self) -> None:
        """Drop the watches of lost connections, once their time is over."""
        now = self._clock.now_us()
        for session in [session for session, kept in self._kept.items() if kept.until_us <= now]:
            # fault+ hub.keys_expire: self._engine.session(session).last = 0
            # fault hub.expired_watches_resumed: self._watching.unwatch_all(self._kept[session].peer)
            self._watching.unwatch_all(self._kept.pop(session).peer)

    # ---- messages ----------------------------------------------------------------------------------

    def _handle(self, peer: Peer, message: FromReplica) -> None:
        match message:
            case Transact(commits):
                branch = self._check_open(peer).branch
                for commit in commits:
                    if commit.branch != branch:
                        raise ProtocolError(f"this session is on branch {branch!r}")
                self._frames.append((peer, message))
            case Open():
                self._open(peer, message)
            case Watch():
                self._watch(self._check_open(peer), message)
            case Unwatch(id):
                self._watching.unwatch(self._check_open(peer), id)
            case Ack(seq, local_seq):
                # fault hub.ack_opens_no_window: self._check_open(peer)
                self._windows.heard(self._check_open(peer), seq)
                peer.heard_seq = max(peer.heard_seq, min(seq, peer.sent_seq))
                self._owed[peer] = None  # changes merged while its window was full
                if local_seq:
                    self._engine.note_acknowledged(peer.session, local_seq)
            case Bye(acked):
                self._engine.close_session(self._check_open(peer).session, acked)
                peer.leaves_nothing = True
                self.lost(peer)
            case Renew():
                # fault hub.renewal_not_answered: pass
                peer.send(Renewed())  # the sender of the token has checked it
            case Hello():
                raise ProtocolError("Hello has no place here")
            case _:
                self.queries.answer(self._check_open(peer), message)

    def _check_open(self, peer: Peer) -> Peer:
        if peer.state is not PeerState.OPEN:
            raise ProtocolError("open a session first")
        return peer

    def _end_connection(self, peer: Peer, error: HeadwaterError) -> None:
        """Send a problem and end the connection.

        The peer's undecided commits are replayed on its next connection (C6).
        """
        peer.send(Problem(ending_code(error), str(error)))
        self.lost(peer)

    def _forget(self, peer: Peer) -> None:
        peer.state = PeerState.CLOSED
        self.turns.leave_queue(peer)
        self._windows.forget(peer)
        self.queries.forget(peer)
        peer.take_changes()  # On its next connection it is sent the changes that it has not seen.

    # ---- opening -----------------------------------------------------------------------------------

    def _open(self, peer: Peer, message: Open) -> None:
        session = open_session(self._engine, peer, message, self._limits)
        if session is None:
            return
        # fault hub.resumes_one_late: resumed = self._take_over(peer, message.seen + 1, message.watching)
        resumed = self._take_over(peer, message.seen, message.watching)
        # fault hub.landed_not_told: landed = ()
        landed = self._engine.find_accepted(session.key, message.sent)
        lost = self._engine.find_superseded(session.key, [local_seq for local_seq, _ in landed])
        following = tuple(sorted(peer.unsure))
        peer.owes_seq = peer.owes_seq or bool(peer.unsure)
        try:
            owed = resumed and (peer.is_owed() or self._announced_seq > peer.sent_seq)
            missed = self._watching.composed(peer, self._announced_seq, None, self._answer_budget) if owed else None
        except LimitError:
            # More changes than fit one answer: it asks for everything again, one watch after the other.
            self._watching.unwatch_all(peer)
            resumed, following, missed = False, (), None
        peer.send(Opened(session.key, self._announced_seq, resumed, landed, session.last, following, lost))
        if missed is not None:
            self._sync(peer, missed)

    def _take_over(self, peer: Peer, seen: int, watching: tuple[int, ...] | None) -> bool:
        """Make this connection the owner of its session: the former one is told that it is not any more."""
        former = self._peers.pop(peer.session, None)
        if former is not None:
            former.send(Problem("revoked", "another connection has taken this session up"))
            # fault hub.takeover_leaves_both: pass
            self._forget(former)
        else:
            kept = self._kept.pop(peer.session, None)
            former = kept.peer if kept is not None else None
        self._peers[peer.session] = peer
        if former is None:
            return False
        # fault hub.resumed_past_sent_seq: if former.branch != peer.branch or former.leaves_nothing:
        if former.branch != peer.branch or former.sent_seq < seen or former.leaves_nothing:
            self._watching.unwatch_all(former)
            return False
        self._watching.hand_over(former, peer, watching)
        self._watching.catch_up(peer, seen)
        return True

    # ---- commits -----------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Judge the gathered commits in one group, answer, and note the changes for their watchers."""
        if not self._frames:
            self.queries.finish()
            return
        frames, self._frames = self._frames, []
        try:
            self._catch_up()
            batch: list[tuple[str, Frame]] = []
            runs: dict[int, tuple[str, tuple[Observation, ...]]] = {}
            for at, (peer, frame) in enumerate(frames):
                batch.append((peer.session, frame.commits))
                if frame.observations:
                    runs[at] = (peer.branch, frame.observations)
            first = self.queries.finish_first
            outcomes = self._engine.submit_group(batch, founds=not self._founded, observed=runs, first=first)
            self._founded = self._founded or self._engine.is_founded
        except StorageError as error:
            self._founded = False
            # C6: the fate of the group is unknown. No verdict leaves; every connection starts over. Rejections were
            # forgotten with it, so all peers start over, not only those with a frame in it.
            for peer in {**dict.fromkeys(self._peers.values()), **{peer: None for peer, _ in frames}}:
                if not peer.is_closed():
                    self._end_connection(peer, error)
            self._catch_up()  # recovery may have found that some of it landed
            return
        self.queries.finished()
        # fault+ hub.sync_before_verdict: self._catch_up(), self.flush()
        # fault+ hub.refusal_told_late: late = sorted(zip(frames, outcomes), key=lambda each: str(each[1])[:2] == "(R")
        # fault hub.refusal_told_late: for (peer, frame), outcome in late:
        for (peer, frame), outcome in zip(frames, outcomes, strict=True):
            self._answer(peer, frame.commits, outcome)
        self._catch_up()

    def _catch_up(self) -> None:
        """Spread commits that did not come through here: merges, the founding of the space, the host's own."""
        while self._announced_seq < self._engine.last_seq:
            page = self._engine.changes(since=self._announced_seq, limit=self._limits.page)
            for logged in page.items:
                # fault hub.commits_passed_over: pass
                commit = without(logged.commit, logged.dropped) if logged.dropped else logged.commit
                self._notify_watchers(logged.session, commit, logged.seq)
            through = int(page.next) if page.next is not None else self._engine.last_seq
            if through <= self._announced_seq:
                raise InvariantViolation(
                    f"the log ends at {self._engine.last_seq} but has no commit after {self._announced_seq}"
                )
            self._announced_seq = through
        if self._access_changed:
            # fault hub.access_not_rechecked: pass
            self._recheck_access()

    def _recheck_access(self) -> None:
        """Stop sending to peers that may not read any more."""
        self._access_changed = False
        for peer in tuple(self._peers.values()):
            if not self._engine.may_see(ACCESS, peer.principal, peer.session):
                peer.leaves_nothing = True
                self._end_connection(peer, AccessError(f"{peer.principal!r} may not read this space any more"))

    def _answer(self, peer: Peer, frame: tuple[Commit, ...], outcome: Outcome) -> None:
        """Send the verdicts of a frame, or end the connection of a peer whose frame was outside the protocol."""
        if isinstance(outcome, LimitError):
            outcome = refused(frame, outcome)
        if isinstance(outcome, HeadwaterError):
            self._end_connection(peer, outcome)
            return
        owner = self._peers.get(peer.session, peer)  # the session may have a new connection by now
        is_there = owner.state is not PeerState.CLOSED  # if not, it gets the verdict when it replays
        if is_there:
            # fault hub.wave_answered_backwards: owner.send(Verdicts(outcome[::-1]))
            owner.send(Verdicts(outcome))
        now_us = 0
        drops = self._engine.drops_operations
        has_turns = bool(self.turns.lines)
        for commit, verdict in zip(frame, outcome, strict=True):
            # Both are waited for by their seq: the own commit to be covered, the winner to be here before a retry.
            if is_there and (isinstance(verdict, Accepted) or isinstance(verdict.rejection, Conflict)):
                owner.owes_seq = True
                self._owed[owner] = None
                if has_turns or isinstance(verdict, Rejected):
                    now_us = now_us or self._clock.monotonic_us()
                    self.turns.note_verdict(owner, verdict, now_us)
                    has_turns = True
            if isinstance(verdict, Accepted) and verdict.seq == self._announced_seq + 1:
                seq = verdict.seq
                self._notify_watchers(owner.session, self._engine.effective(seq, commit) if drops else commit, seq)
                self._announced_seq = seq  # changes after the founding of the space are spread from the log

    def _notify_watchers(self, author: str, commit: Commit, seq: int) -> None:
        """C9: notify all watchers, in the order of the log."""
        self.queries.note_commits(author, commit, seq)
        origins: Sequence[Provenance] = ()
        for place, operation in enumerate(commit.operations):
            self._access_changed = self._access_changed or operation.doc == ACCESS
            # fault hub.branches_told_to_main: watchers = self._watching.watchers.get(("main", operation.doc))
            # fault+ hub.told_to_branches: all = self._watching.watchers
            # fault hub.told_to_branches: watchers = [peer for at in all if at[1] == operation.doc for peer in all[at]]
            watchers = self._watching.watchers.get((commit.branch, operation.doc))
            if not watchers:
                continue
            size, theirs = 0, None
            for peer in watchers:
                if peer.state is PeerState.CLOSED:
                    continue  # kept for its next connection, which reads newer changes
                if peer.session == author:
                    peer.note_change(Own(operation.doc, seq, commit.local_seq))
                else:
                    if theirs is None:
                        size = size_of_patches(operation.patches)
                        origins = origins or origins_of(commit)
                        theirs = make_patched(operation, seq, origins[place], author, self._limits.named_hops)
                    peer.note_change(theirs)
                    if size > self._limits.small_change_bytes:
                        peer.count_bytes(size)
                self._owed[peer] = None

    # ---- watching ----------------------------------------------------------------------------------

    def _watch(self, peer: Peer, message: Watch) -> None:
        try:
            docs = self._watching.selected(peer, message)
            self._answer_budget.begin()
            states = self._watching.states(peer, docs, self._answer_budget)
        except HeadwaterError as error:
            # Nothing of it is watched: a peer gets no changes of documents that it was not answered for.
            peer.send(Problem(problem_code(error), str(error), False, message.id))
            return
        # fault hub.watch_without_sync: pass
        self._send_sync(peer, at_least_seq=True, past_window=True)  # so that everything else is as of the same seq
        self._watching.begin(peer, message, docs)
        seq = self._announced_seq
        peer.sent_seq = seq
        peer.send(Watched(message.id, seq, states, self._engine.chain_at(seq)))

    # ---- telling -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send every peer its changes, as far as its window allows."""
        self.queries.send_news()
        owed, self._owed = self._owed, {}
        now_us = self._clock.monotonic_us() if self.turns.lines else 0
        for peer in owed:
            if now_us and self._keeps_time and self.turns.may_wait(peer, now_us):
                self._owed[peer] = None
            elif peer.is_owed():
                self._send_news(peer, self.turns.place_of(peer) if now_us else None)
                if self._answer_budget.is_spent():
                    self.on_answered()

    def _send_news(self, peer: Peer, turn: int | None) -> None:
        if peer.state is PeerState.OPEN:
            try:
                self._send_sync(peer, turn=turn)
            except HeadwaterError as error:
                # On its next connection that is read again from its last seq; or, if it was too much, all it watches.
                peer.sent_seq = min(peer.sent_seq, peer.heard_seq)
                peer.leaves_nothing = isinstance(error, LimitError)
                self._end_connection(peer, error)

    def _send_sync(
        self, peer: Peer, *, at_least_seq: bool = False, past_window: bool = False, turn: int | None = None
    ) -> None:
        """Send the changes that a peer is owed, unless enough messages are on their way to it."""
        if peer.unacked >= self._limits.sync_window and not (past_window or turn == 0):
            return  # it has enough on the way: later changes are merged
        if peer.is_owed() or (at_least_seq and self._announced_seq > peer.sent_seq) or turn is not None:
            self._sync(peer, self._watching.composed(peer, self._announced_seq, turn, self._answer_budget))

    def _sync(self, peer: Peer, sync: Sync) -> None:
        peer.sent_seq = sync.seq
        self._windows.sent(peer, sync.seq)
        peer.send(sync)
